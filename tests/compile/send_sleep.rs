//! Passes a future that is bound to its thread where a `Send` future is required.

fn spawn(_task: impl Future<Output = ()> + Send) {}

fn main() {
    spawn(async {
        corewheel::future::sleep(std::time::Duration::from_secs(1)).await;
    });
}
