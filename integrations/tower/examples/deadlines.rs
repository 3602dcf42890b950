//! A service that is sometimes slow, behind a timeout layer, in a work-stealing runtime:
//!
//! ```sh
//! cargo run --release -p corewheel-tower --example deadlines
//! ```

use std::{
    convert::Infallible,
    io,
    time::{Duration, Instant},
};

use corewheel_tokio::time;
use corewheel_tower::{TimeoutError, TimeoutLayer};
use tokio::task::JoinSet;
use tower::{ServiceBuilder, ServiceExt, service_fn};

const REQUESTS: u32 = 5_000;
const TIMEOUT: Duration = Duration::from_millis(200);

/// Answers at once, except every tenth request, which it answers too late.
async fn work(request: u32) -> Result<u32, Infallible> {
    if request.is_multiple_of(10) {
        time::sleep(TIMEOUT * 100).await;
    }
    Ok(request)
}

fn main() -> io::Result<()> {
    let service = ServiceBuilder::new()
        .layer(TimeoutLayer::new(time::timers(), TIMEOUT))
        .service(service_fn(work));
    let runtime = tokio::runtime::Builder::new_multi_thread().build()?;
    let (answered, late) = runtime.block_on(async {
        let mut requests = JoinSet::new();
        for request in 0..REQUESTS {
            let service = service.clone();
            requests.spawn(async move {
                let begun = Instant::now();
                (request, service.oneshot(request).await, begun.elapsed())
            });
        }
        let (mut answered, mut late) = (0, 0);
        while let Some(request) = requests.join_next().await {
            match request.expect("no panic") {
                (request, Ok(answer), _) => {
                    assert_eq!(request, answer);
                    answered += 1;
                }
                (_, Err(error), waited) => {
                    assert!(error.is::<TimeoutError>(), "{error}");
                    assert!(waited >= TIMEOUT, "never early");
                    late += 1;
                }
            }
        }
        (answered, late)
    });
    println!("{answered} answered, {late} timed out after {TIMEOUT:?}");
    assert_eq!((answered, late), (REQUESTS / 10 * 9, REQUESTS / 10));
    Ok(())
}
