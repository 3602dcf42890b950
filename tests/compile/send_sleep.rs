//! A future of this thread where one is wanted that moves between threads.

fn spawn(_task: impl Future<Output = ()> + Send) {}

fn main() {
    spawn(async {
        corewheel::future::sleep(std::time::Duration::from_secs(1)).await;
    });
}
