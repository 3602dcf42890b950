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
use crate::timers::{panic_not_due, payload};

/// Timers per canceller and round, usually more than it can cancel during a turn.
const TIMERS_PER_ROUND: usize = 20_000;
/// The delay of timers that are not due in a run.
const LONG_DELAY: Duration = Duration::from_mins(1);
/// The delay of timers that the measured turn fires.
const SHORT_DELAY: Duration = Duration::from_millis(1);
/// How long the owner waits after its adds, so that all `SHORT_DELAY` timers are due in the
/// measured turn.
const WAIT_UNTIL_DUE: Duration = Duration::from_millis(3);

/// The name of each setting, and true if the owner fires timers while one thread cancels others, or
/// false if four threads cancel.
const SETTINGS: [(&str, bool); 2] = [("firing", true), ("four-threads", false)];

/// The progress of a run. `phase` is odd during a round, and even between rounds. All accesses
/// acquire or release, so a thread that sees a change also sees the work before it.
#[derive(Debug, Default)]
struct Progress {
    phase: AtomicUsize,
    /// Counts cancellers that are ready for a round.
    ready_cancellers: AtomicUsize,
    /// Counts cancellers that have cancelled all timers of a round.
    done_cancellers: AtomicUsize,
}

/// Measures calls of cancel, including one clock reading each. In `firing`, the owner fires `n`
/// timers.
pub fn run<O: Owner<Remote: Clone>>(job: Job) -> Vec<Sample> {
    run_in_settings(&SETTINGS, |owner_fires| {
        quantiles(job, "ns", &mut run_rounds::<O>(job, owner_fires))
    })
}

fn run_rounds<O: Owner<Remote: Clone>>(job: Job, owner_fires: bool) -> Vec<f64> {
    let progress = &Progress::default();
    let canceller_count = if owner_fires { 1 } else { 4 };
    thread::scope(|scope| {
        cores::pin(0);
        let (owner, remote) = O::new(job.n + canceller_count * TIMERS_PER_ROUND);
        let start = |core| {
            let (sender, receiver) = mpsc::channel();
            let remote = remote.clone();
            let canceller = scope.spawn(move || {
                cores::pin(core);
                cancel_all(remote, &receiver, progress)
            });
            (sender, canceller)
        };
        let (senders, cancellers): (Vec<_>, Vec<_>) = (1..=canceller_count).map(start).unzip();
        run_owner(owner, &senders, job, owner_fires, progress);
        drop(senders);
        let nanos = cancellers.into_iter().map(|it| it.join().expect("the run does not panic"));
        nanos.flatten().collect()
    })
}

fn run_owner<O: Owner>(
    mut owner: O,
    cancellers: &[Sender<Vec<O::Handle>>],
    job: Job,
    owner_fires: bool,
    progress: &Progress,
) {
    let mut collected = 0;
    for round in 1..=job.scale.pick(40, 5, 1) {
        for canceller in cancellers {
            let handles =
                (0..TIMERS_PER_ROUND).map(|id| owner.add(LONG_DELAY, payload(id))).collect();
            canceller.send(handles).expect("the canceller waits");
        }
        let cancellers_so_far = round * cancellers.len();
        cores::spin_until(|| progress.ready_cancellers.load(Acquire) == cancellers_so_far);
        if owner_fires {
            (0..job.n).for_each(|id| _ = owner.add(SHORT_DELAY, payload(id)));
            thread::sleep(WAIT_UNTIL_DUE);
        }
        progress.phase.store(2 * round - 1, Release);
        if owner_fires {
            let mut fired = 0;
            let on_fire = |payload| fired += usize::from(black_box(payload) != [u64::MAX; 3]);
            collected += owner.turn(usize::MAX, on_fire).collected;
            assert_eq!(fired, job.n, "all timers are due");
            progress.phase.store(2 * round, Release);
        }
        while progress.done_cancellers.load(Acquire) < cancellers_so_far {
            collected += owner.turn(usize::MAX, panic_not_due).collected;
        }
        progress.phase.store(2 * round, Release);
        while collected < cancellers_so_far * TIMERS_PER_ROUND {
            collected += owner.turn(usize::MAX, panic_not_due).collected;
        }
    }
}

/// Cancels the timers of each round. Returns the durations of the calls that began in their round.
fn cancel_all<R: Remote>(
    mut remote: R,
    handles_of_rounds: &Receiver<Vec<R::Handle>>,
    progress: &Progress,
) -> Vec<f64> {
    let mut nanos = Vec::new();
    for (round, handles) in (1..).zip(handles_of_rounds) {
        nanos.reserve(handles.len());
        progress.ready_cancellers.fetch_add(1, Release);
        cores::spin_until(|| progress.phase.load(Acquire) >= 2 * round - 1);
        for handle in handles {
            let is_round_over = progress.phase.load(Acquire) > 2 * round - 1;
            let started = Instant::now();
            assert!(remote.cancel(handle), "the timer was live");
            // This thread's first call counts, even if it begins after its round.
            if !is_round_over || nanos.is_empty() {
                nanos.push(started.elapsed().as_nanos() as f64);
            }
        }
        remote.return_boxes();
        progress.done_cancellers.fetch_add(1, Release);
    }
    nanos
}
