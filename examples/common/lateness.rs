//! How late a runtime's own timer and corewheel's end sleeps in the same run, while nothing else happens and beside busy tasks.

use std::{
    cell::{Cell, RefCell},
    pin::Pin,
    rc::Rc,
    time::{Duration, Instant},
};

use corewheel::{future, local_timer};
use hdrhistogram::Histogram;

/// A task, or the wait for one.
pub(crate) type Task = Pin<Box<dyn Future<Output = ()>>>;

const SLEEPERS: u64 = 32;
const SLEEPS: u64 = 100;
const BUSY_TASKS: usize = 4;
/// A busy task computes for this long, and then waits for the runtime's own timer.
const BUSY: Duration = Duration::from_micros(200);
const PAUSE: Duration = Duration::from_micros(200);

/// Measures both timers in the runtime of this thread, prints a table, and ends with a verdict.
pub(crate) async fn compare(spawn: impl Fn(Task) -> Task, own: fn(Duration) -> Task) {
    let corewheel: fn(Duration) -> Task = |delay| Box::pin(future::sleep(delay));
    println!("lateness in us        idle p50   idle p99   busy p50   busy p99");
    for (name, sleep) in [("the runtime's own", own), ("corewheel", corewheel)] {
        let fired = local_timer().counts().fired;
        print!("{name:<19}");
        for busy_tasks in [0, BUSY_TASKS] {
            let lateness = measure(&spawn, own, sleep, busy_tasks).await;
            for quantile in [0.5, 0.99] {
                print!("{:>11}", lateness.value_at_quantile(quantile) / 1_000);
            }
        }
        println!();
        let fired = local_timer().counts().fired - fired;
        let expected = if name == "corewheel" { 2 * SLEEPERS * SLEEPS } else { 0 };
        assert_eq!(fired, expected, "each sleep is one timer of corewheel's, or none");
    }
}

/// Measures the lateness of many sleeps, in nanoseconds.
async fn measure(
    spawn: impl Fn(Task) -> Task,
    own: fn(Duration) -> Task,
    sleep: fn(Duration) -> Task,
    busy_tasks: usize,
) -> Histogram<u64> {
    let empty = Histogram::new(3).expect("three digits are possible");
    let lateness = Rc::new(RefCell::new(empty.clone()));
    let is_over = Rc::new(Cell::new(false));
    let busy: Vec<Task> = (0..busy_tasks)
        .map(|_| {
            let is_over = Rc::clone(&is_over);
            spawn(Box::pin(async move {
                while !is_over.get() {
                    let begun = Instant::now();
                    while begun.elapsed() < BUSY {}
                    own(PAUSE).await;
                }
            }))
        })
        .collect();
    let sleepers: Vec<Task> = (0..SLEEPERS)
        .map(|seed| {
            let lateness = Rc::clone(&lateness);
            spawn(Box::pin(async move {
                let mut random = fastrand::Rng::with_seed(seed);
                for _ in 0..SLEEPS {
                    let delay = Duration::from_micros(random.u64(1_000..8_000));
                    let begun = Instant::now();
                    sleep(delay).await;
                    let late = begun.elapsed().checked_sub(delay).expect("never early");
                    let late = u64::try_from(late.as_nanos()).expect("less than 584 years");
                    lateness.borrow_mut().record(late).expect("it resizes");
                }
            }))
        })
        .collect();
    for sleeper in sleepers {
        sleeper.await;
    }
    is_over.set(true);
    for task in busy {
        task.await;
    }
    lateness.replace(empty)
}
