//! Compares how late sleeps end in a loop over `io_uring`: the ring's timeouts against corewheel.
//!
//! ```sh
//! cargo run --release -p corewheel-io-uring --example io_uring_lateness
//! ```

#[path = "../../../examples/common/lateness.rs"]
mod lateness;

use std::{cell::RefCell, collections::HashMap, io, rc::Rc, time::Duration};

use async_executor::LocalExecutor;
use corewheel::{Config, future::sleep, local_timer};
use corewheel_io_uring::Driver;
use futures::channel::oneshot;
use io_uring::{
    IoUring, opcode,
    types::{TimeoutFlags, Timespec},
};
use lateness::LocalTask as Task;
use rustix::time::{ClockId, clock_gettime};

/// The tick is short, to match the precision of the ring's own timeouts.
const TICK: Duration = Duration::from_micros(20);

thread_local! {
    /// The timeouts to submit: each deadline, and the channel that reports its end.
    static TIMEOUTS_TO_SUBMIT: RefCell<Vec<(Timespec, oneshot::Sender<()>)>> = const { RefCell::new(Vec::new()) };
}

/// Sleeps with a timeout of the ring.
async fn ring_sleep(delay: Duration) {
    let now = Duration::try_from(clock_gettime(ClockId::Monotonic)).expect("a time after zero");
    let (sender, is_over) = oneshot::channel();
    TIMEOUTS_TO_SUBMIT.with_borrow_mut(|requested| requested.push(((now + delay).into(), sender)));
    is_over.await.expect("the ring completes the timeout");
}

#[allow(unsafe_code)]
fn main() -> io::Result<()> {
    let mut ring = match IoUring::new(256) {
        Err(error) if corewheel_io_uring::is_io_uring_unavailable(&error) => {
            lateness::print_skipped("io_uring", &error);
            return Ok(());
        }
        ring => ring?,
    };
    let mut driver = Driver::install(Config::new().tick(TICK))?;
    let tasks = Rc::new(LocalExecutor::new());
    let spawner = Rc::clone(&tasks);
    let compared = tasks.spawn(async move {
        let spawn = |task| -> Task { Box::pin(spawner.spawn(task)) };
        let own = |delay| -> Task { Box::pin(ring_sleep(delay)) };
        lateness::compare("io_uring", "exact", spawn, own, |delay| Box::pin(sleep(delay))).await;
    });
    let (mut number, mut submitted) = (0, HashMap::new());
    loop {
        while tasks.try_tick() {}
        if compared.is_finished() {
            return Ok(());
        }
        for (deadline, sender) in TIMEOUTS_TO_SUBMIT.take() {
            let deadline = Box::new(deadline);
            let timeout = opcode::Timeout::new(&raw const *deadline).flags(TimeoutFlags::ABS);
            number += 1;
            // SAFETY: the deadline stays in its box until the completion.
            unsafe { ring.submission().push(&timeout.build().user_data(number)) }
                .expect("room for a timeout per task");
            submitted.insert(number, (deadline, sender));
        }
        driver.submit_and_wait(&mut ring)?;
        // Turns first, so that tasks woken by corewheel run before tasks woken by completions.
        local_timer().turn();
        for completion in ring.completion() {
            if !driver.process_completion(&completion) {
                let (_, sender) =
                    submitted.remove(&completion.user_data()).expect("a submitted timeout");
                let _ = sender.send(());
            }
        }
    }
}
