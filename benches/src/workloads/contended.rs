//! The time of a cancel while the owner fires many timers, or while three more threads cancel.

use std::hint::black_box;
use std::sync::atomic::{AtomicUsize, Ordering::Acquire, Ordering::Release};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

use super::{quantiles, run_in_settings};
use crate::across::{Owner, Remote};
use crate::cores;
use crate::measure::Sample;
use crate::plan::Job;
use crate::timers::{not_due, payload};

/// Timers per canceller and round, usually more than it can cancel during a turn.
const PENDING: usize = 20_000;
/// The delay of timers that are not due in a run.
const LONG: Duration = Duration::from_mins(1);
/// The delay of timers that the measured turn fires.
const SHORT: Duration = Duration::from_millis(1);
/// How long the owner waits, so that all `SHORT` timers are due in the measured turn.
const UNTIL_DUE: Duration = Duration::from_millis(3);

/// The name of each setting, and true if the owner fires timers while one thread cancels others, or
/// false if four threads cancel.
const SETTINGS: [(&str, bool); 2] = [("firing", true), ("four-threads", false)];

/// The progress of a run. `phase` is odd during a round, and even between rounds. All accesses
/// acquire or release, so a thread that sees a change also sees the work before it.
#[derive(Debug, Default)]
struct Progress {
    phase: AtomicUsize,
    /// Counts cancellers that are ready for a round.
    ready: AtomicUsize,
    /// Counts cancellers that have cancelled all timers of a round.
    done: AtomicUsize,
}

/// Measures calls of cancel, including one clock reading each. In `firing`, the owner fires `n`
/// timers.
pub fn run<O: Owner<Remote: Clone>>(job: Job) -> Vec<Sample> {
    run_in_settings(&SETTINGS, |fires| quantiles(job, "ns", &mut run_rounds::<O>(job, fires)))
}

fn run_rounds<O: Owner<Remote: Clone>>(job: Job, fires: bool) -> Vec<f64> {
    let progress = &Progress::default();
    let cancellers = if fires { 1 } else { 4 };
    thread::scope(|scope| {
        cores::pin(0);
        let (owner, remote) = O::new(job.n + cancellers * PENDING);
        let start = |core| {
            let (sender, receiver) = mpsc::channel();
            let remote = remote.clone();
            let canceller = scope.spawn(move || {
                cores::pin(core);
                cancel_all(remote, &receiver, progress)
            });
            (sender, canceller)
        };
        let (senders, cancellers): (Vec<_>, Vec<_>) = (1..=cancellers).map(start).unzip();
        run_owner(owner, &senders, job, fires, progress);
        drop(senders);
        let nanos = cancellers.into_iter().map(|it| it.join().expect("the run does not panic"));
        nanos.flatten().collect()
    })
}

fn run_owner<O: Owner>(
    mut owner: O,
    cancellers: &[Sender<Vec<O::Handle>>],
    job: Job,
    fires: bool,
    progress: &Progress,
) {
    let mut collected = 0;
    for round in 1..=job.scale.pick(40, 5, 1) {
        for canceller in cancellers {
            let handles = (0..PENDING).map(|id| owner.add(LONG, payload(id))).collect();
            canceller.send(handles).expect("the canceller waits");
        }
        let all = round * cancellers.len();
        cores::spin_until(|| progress.ready.load(Acquire) == all);
        if fires {
            (0..job.n).for_each(|id| _ = owner.add(SHORT, payload(id)));
            thread::sleep(UNTIL_DUE);
        }
        progress.phase.store(2 * round - 1, Release);
        if fires {
            let mut fired = 0;
            let on_fire = |payload| fired += usize::from(black_box(payload) != [u64::MAX; 3]);
            collected += owner.turn(usize::MAX, on_fire).collected;
            assert_eq!(fired, job.n, "all timers are due");
            progress.phase.store(2 * round, Release);
        }
        while progress.done.load(Acquire) < all {
            collected += owner.turn(usize::MAX, not_due).collected;
        }
        progress.phase.store(2 * round, Release);
        while collected < all * PENDING {
            collected += owner.turn(usize::MAX, not_due).collected;
        }
    }
}

/// Cancels the timers of each round. Returns the durations of the calls that began in their round.
fn cancel_all<R: Remote>(
    mut remote: R,
    rounds: &Receiver<Vec<R::Handle>>,
    progress: &Progress,
) -> Vec<f64> {
    let mut nanos = Vec::new();
    for (round, handles) in (1..).zip(rounds) {
        nanos.reserve(handles.len());
        progress.ready.fetch_add(1, Release);
        cores::spin_until(|| progress.phase.load(Acquire) >= 2 * round - 1);
        for handle in handles {
            let is_over = progress.phase.load(Acquire) > 2 * round - 1;
            let started = Instant::now();
            assert!(remote.cancel(handle), "the timer was live");
            // The first call of the run counts, even if it begins after its round.
            if !is_over || nanos.is_empty() {
                nanos.push(started.elapsed().as_nanos() as f64);
            }
        }
        remote.return_boxes();
        progress.done.fetch_add(1, Release);
    }
    nanos
}
