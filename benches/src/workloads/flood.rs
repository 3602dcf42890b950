//! Punctuality under a flood of cancels, by the machine's clock. One core has timers that are due
//! over some seconds, and very many others that are not. Half-way, another core cancels all of
//! those as fast as it can. How late does the first core fire?
//!
//! Its loop sleeps until the next timer is due. What takes in all that was cancelled at once may be busy with that
//! while timers come due; where it can be bounded, it is measured bounded too.

use std::{
    cell::RefCell,
    mem,
    rc::Rc,
    sync::{
        Arc,
        mpsc::{self, Receiver, Sender},
    },
    thread,
    time::{Duration, Instant},
};

use corewheel::{Cancel, TimerHandle, local_timer};
use fastrand::Rng;
use tokio::{
    runtime::Runtime,
    task::{unconstrained, yield_now},
    time::sleep,
};

use super::{
    SEED,
    late::{self, LEAD, Log, Size, delays, sleeping_tasks},
    quantiles,
};
use crate::{
    cores,
    crossing::{BATCH, Lock, Shareable},
    measure::Sample,
    peers::{self, Place},
    timers::Waking,
};

/// Entries, and cancelled timers, of a turn that is bounded.
const BUDGET: usize = 256;

/// What happens beside the timers that are due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// Nothing.
    Alone,
    /// The flood, all of which a turn takes in.
    Flooded,
    /// The flood, of which a turn takes in a bounded part.
    Bounded,
}

impl Setting {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Alone => "alone",
            Self::Flooded => "flooded",
            Self::Bounded => "bounded",
        }
    }

    fn budget(self) -> usize {
        if self == Self::Bounded { BUDGET } else { usize::MAX }
    }

    fn is_flooded(self) -> bool {
        self != Self::Alone
    }
}

/// How much of it.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// The timers that are due.
    pub due: Size,
    /// Those that are not, and that are cancelled in a flood.
    pub pending: usize,
    /// Which.
    pub setting: Setting,
}

/// The results.
#[derive(Debug)]
pub struct Outcome {
    /// How late each timer fired, in microseconds.
    pub lateness: Vec<f64>,
    /// From the first cancel until the owner had taken in the last, if there was a flood.
    pub flood: Option<Duration>,
}

/// Timers by the machine's clock, of a thread that sleeps until the next is due.
pub trait Owner {
    /// Names a timer on the other core.
    type Handle: Send;
    /// The other core's handle.
    type Other: Send;

    /// Without timers.
    fn new() -> Self;

    /// For the other core.
    fn other(&self) -> Self::Other;

    /// Adds a timer, and notes how late it is when it fires.
    fn add(&mut self, delay: Duration) -> Self::Handle;

    /// Cancels a timer on the other core. Returns false if it had ended.
    fn cancel(other: &Self::Other, handle: Self::Handle) -> bool;

    /// Fires the due timers and collects the cancelled ones, at most this number of each, if the
    /// peer can be bounded.
    fn turn(&mut self, budget: usize);

    /// Sleeps until the next turn is wanted.
    fn sleep(&self);

    /// Timers that have not ended.
    fn live(&self) -> usize;

    /// Reads what was noted of the timers that have fired.
    fn lateness<R>(&mut self, read: impl FnOnce(&mut Vec<f64>) -> R) -> R;
}

/// Delays of the timers that do not fire.
fn pending(load: Load) -> impl Iterator<Item = Duration> {
    let mut rng = Rng::with_seed(SEED);
    (0..load.pending).map(move |_| Duration::from_millis(rng.u64(30_000..=60_000)))
}

/// When the flood begins, counted from when all timers have been added.
fn flood_delay(load: Load) -> Duration {
    LEAD + load.due.span / 2
}

/// The owner on the first core, the flood from the second.
pub fn on_two_cores<O: Owner>(load: Load) -> Outcome {
    let (to_other, of_owner) = mpsc::channel();
    let own = move || {
        let mut owner = O::new();
        let handles: Vec<O::Handle> = pending(load).map(|delay| owner.add(delay)).collect();
        delays(load.due).for_each(|delay| _ = owner.add(delay));
        to_other.send((owner.other(), handles)).expect("the other core waits");
        let left = if load.setting.is_flooded() { 0 } else { load.pending };
        let mut flood_ended = None;
        while owner.live() > left {
            owner.sleep();
            owner.turn(load.setting.budget());
            if flood_ended.is_none()
                && owner.live() + owner.lateness(|late| late.len()) == load.due.timers
            {
                flood_ended = Some(Instant::now());
            }
        }
        (owner.lateness(mem::take), flood_ended)
    };
    let flood = move || {
        let (other, handles) = of_owner.recv().expect("the owner sends");
        thread::sleep(flood_delay(load));
        let started = Instant::now();
        load.setting.is_flooded().then(|| {
            let cancel = |handle| usize::from(O::cancel(&other, handle));
            let cancelled: usize = handles.into_iter().map(cancel).sum();
            assert_eq!(cancelled, load.pending, "each was live");
            started
        })
    };
    let ((lateness, ended), started) = cores::on_two(own, flood);
    Outcome { lateness, flood: started.zip(ended).map(|(started, ended)| ended - started) }
}

/// Runs it in these settings.
pub fn run(
    name: &str,
    load: Load,
    settings: &[Setting],
    outcome: impl Fn(Load) -> Outcome,
) -> Vec<Sample> {
    let in_setting =
        |&setting| samples(name, Load { setting, ..load }, outcome(Load { setting, ..load }));
    settings.iter().flat_map(in_setting).collect()
}

fn samples(name: &str, load: Load, Outcome { mut lateness, flood }: Outcome) -> Vec<Sample> {
    let n = load.pending;
    assert_eq!(lateness.len(), load.due.timers, "each timer fires once");
    let mut samples = quantiles(name, n, "us", &mut lateness);
    assert!(lateness[0] >= 0.0, "none is early");
    let took = flood.map(|took| took.as_secs_f64() * 1e3);
    samples.extend(took.map(|ms| Sample::new(format!("{name}-took"), n, "ms", ms)));
    samples.into_iter().map(|sample| sample.at(load.setting.name())).collect()
}

/// `corewheel-local`, which parks and is unparked.
#[derive(Debug)]
pub struct Corewheel {
    log: Rc<RefCell<Log>>,
}

impl Owner for Corewheel {
    type Handle = TimerHandle;
    type Other = ();

    fn new() -> Self {
        Self { log: Rc::default() }
    }

    fn other(&self) {}

    fn add(&mut self, delay: Duration) -> TimerHandle {
        let (log, due) = (Rc::clone(&self.log), Instant::now() + delay);
        local_timer().add(delay, move || log.borrow_mut().fired(due))
    }

    fn cancel((): &(), handle: TimerHandle) -> bool {
        handle.cancel() == Cancel::Cancelled
    }

    fn turn(&mut self, budget: usize) {
        local_timer().turn_within(budget);
    }

    fn sleep(&self) {
        late::park();
    }

    fn live(&self) -> usize {
        local_timer().len()
    }

    fn lateness<R>(&mut self, read: impl FnOnce(&mut Vec<f64>) -> R) -> R {
        read(&mut self.log.borrow_mut().lateness)
    }
}

/// A wheel in ticks of a millisecond, told the time.
#[derive(Debug)]
pub struct Ticking<T> {
    timers: T,
    start: Instant,
    log: Log,
    live: usize,
}

impl<T: Waking> Ticking<T> {
    fn new() -> Self {
        Self { timers: T::new(), start: Instant::now(), log: Log::default(), live: 0 }
    }

    fn add(&mut self, delay: Duration) -> T::Handle {
        let due = self.start.elapsed() + delay;
        self.live += 1;
        // In the tick after the one that is passing, at least.
        let deadline = due.as_nanos().div_ceil(1_000_000) as u64;
        self.timers.add(deadline, [due.as_nanos() as u64; 3])
    }

    fn cancel(&mut self, handle: &T::Handle) -> bool {
        let was_live = self.timers.cancel(handle);
        self.live -= usize::from(was_live);
        was_live
    }

    fn advance(&mut self) {
        let Self { timers, start, log, live } = self;
        timers.advance(start.elapsed().as_millis() as u64, |[due, ..]| {
            *live -= 1;
            log.fired(*start + Duration::from_nanos(due));
        });
    }

    /// When to turn next; `None` without timers.
    fn next(&self) -> Option<Instant> {
        self.timers.next_deadline().map(|tick| self.start + Duration::from_millis(tick))
    }
}

fn park_until(instant: Option<Instant>) {
    if let Some(timeout) =
        instant.and_then(|instant| instant.checked_duration_since(Instant::now()))
    {
        thread::park_timeout(timeout);
    }
}

/// `mutex-std`, `mutex-parking-lot`, `mutex-linked64`.
#[derive(Debug)]
pub struct Locked<T: Shareable, L: Lock>(Arc<L::Of<Ticking<T>>>);

impl<T: Waking + Shareable, L: Lock> Owner for Locked<T, L> {
    type Handle = T::Handle;
    type Other = Arc<L::Of<Ticking<T>>>;

    fn new() -> Self {
        Self(Arc::new(L::new(Ticking::new())))
    }

    fn other(&self) -> Self::Other {
        Arc::clone(&self.0)
    }

    fn add(&mut self, delay: Duration) -> T::Handle {
        L::with(&self.0, |timers| timers.add(delay))
    }

    fn cancel(other: &Self::Other, handle: T::Handle) -> bool {
        L::with(other, |timers| timers.cancel(&handle))
    }

    fn turn(&mut self, _: usize) {
        L::with(&self.0, Ticking::advance);
    }

    fn sleep(&self) {
        park_until(L::with(&self.0, |timers| timers.next()));
    }

    fn live(&self) -> usize {
        L::with(&self.0, |timers| timers.live)
    }

    fn lateness<R>(&mut self, read: impl FnOnce(&mut Vec<f64>) -> R) -> R {
        L::with(&self.0, |timers| read(&mut timers.log.lateness))
    }
}

/// `channel`. A request wakes no thread.
#[derive(Debug)]
pub struct Channel<T: Waking> {
    timers: Ticking<T>,
    to_owner: Sender<T::Handle>,
    requests: Receiver<T::Handle>,
    /// The last turn has left requests.
    behind: bool,
}

impl<T: Waking<Handle: Send>> Owner for Channel<T> {
    type Handle = T::Handle;
    type Other = Sender<T::Handle>;

    fn new() -> Self {
        let (to_owner, requests) = mpsc::channel();
        Self { timers: Ticking::new(), to_owner, requests, behind: false }
    }

    fn other(&self) -> Sender<T::Handle> {
        self.to_owner.clone()
    }

    fn add(&mut self, delay: Duration) -> T::Handle {
        self.timers.add(delay)
    }

    fn cancel(other: &Sender<T::Handle>, handle: T::Handle) -> bool {
        other.send(handle).expect("the owner is there");
        true
    }

    fn turn(&mut self, budget: usize) {
        self.timers.advance();
        let mut taken_in = 0;
        for handle in self.requests.try_iter().take(budget) {
            assert!(self.timers.cancel(&handle), "it was live");
            taken_in += 1;
        }
        self.behind = taken_in == budget;
    }

    fn sleep(&self) {
        if !self.behind {
            park_until(self.timers.next());
        }
    }

    fn live(&self) -> usize {
        self.timers.live
    }

    fn lateness<R>(&mut self, read: impl FnOnce(&mut Vec<f64>) -> R) -> R {
        read(&mut self.timers.log.lateness)
    }
}

/// The flood in a tokio runtime with two workers. Each due timer has a task. One task drops the
/// others, and yields after each batch, as a task should.
pub fn tokio(load: Load, runtime: &Runtime) -> Outcome {
    runtime.block_on(async {
        let registered = tokio::spawn(unconstrained(async move { register(load) }));
        let places = registered.await.expect("a task that does not panic");
        let tasks = sleeping_tasks(load.due);
        let flood = tokio::spawn(unconstrained(drop_all(load, places)));
        let lateness = tasks.join_all().await;
        let (places, took) = flood.await.expect("a task that does not panic");
        drop(places);
        Outcome { lateness, flood: took }
    })
}

/// Those that do not fire, each polled once.
fn register(load: Load) -> Vec<Place> {
    pending(load).map(|delay| peers::put(&mut Vec::new(), sleep(delay))).collect()
}

/// Drops them where they are; the places go when all is over.
async fn drop_all(load: Load, mut places: Vec<Place>) -> (Vec<Place>, Option<Duration>) {
    sleep(flood_delay(load)).await;
    if !load.setting.is_flooded() {
        return (places, None);
    }
    let started = Instant::now();
    for batch in places.chunks_mut(BATCH) {
        for place in batch {
            assert!(peers::empty(place), "it was live");
        }
        yield_now().await;
    }
    (places, Some(started.elapsed()))
}
