//! `Cores`: one pinned thread per core, each with its own timer, from start to join.

use std::{
    fmt, io,
    num::NonZeroUsize,
    panic,
    sync::{Arc, mpsc},
    thread::{self, JoinHandle},
};

use core_affinity::CoreId;

use crate::{
    config::Config,
    error::ConfigError,
    limits::SHARDS_MAX,
    local::{ShardRef, local_timer},
    sync::{AtomicBool, Ordering},
};

type MakeConfig = dyn Fn(usize) -> Config + Send + Sync;

/// Threads of a thread-per-core program, each pinned to a core and with its own timer. [`stop`](Cores::stop) asks them to end, and
/// [`join`](Cores::join) waits until they have; dropping this lets them run on by themselves.
///
/// # Examples
///
/// A poll per thread, whose waker ends its sleep when a timer cannot wait:
///
/// ```
/// use corewheel::{Config, Cores, local_timer};
/// use mio::{Events, Poll, Token, Waker};
/// use std::{io::ErrorKind, sync::Arc, time::Duration};
///
/// let polls = [Poll::new()?, Poll::new()?];
/// let wakers: Vec<_> =
///     polls.iter().map(|poll| Waker::new(poll.registry(), Token(usize::MAX)).map(Arc::new)).collect::<Result<_, _>>()?;
/// let config = move |index: usize| {
///     let waker = Arc::clone(&wakers[index]);
///     Config::new().on_wake(move || waker.wake().expect("the poll lives as long as its thread"))
/// };
///
/// let cores = Cores::builder().config(config).start_with(Vec::from(polls), |core, mut poll| {
///     let mut events = Events::with_capacity(1024);
///     local_timer().add(Duration::from_millis(5), move || println!("hello from shard {}", core.index()));
///     while !local_timer().is_empty() {
///         let sleep = local_timer().prepare_sleep();
///         match poll.poll(&mut events, sleep.timeout()) {
///             Err(error) if error.kind() != ErrorKind::Interrupted => panic!("the poll is gone: {error}"),
///             _ => drop(sleep), // a signal ends a poll as well
///         }
///         local_timer().turn();
///     }
///     local_timer().counts().fired
/// })?;
/// for fired in cores.join() {
///     assert_eq!(fired.unwrap(), 1);
/// }
/// # Ok::<(), std::io::Error>(())
/// ```
#[must_use = "dropped, the threads run on and nobody waits for them"]
pub struct Cores<R> {
    /// A thread that was let in returns something.
    threads: Vec<JoinHandle<Option<R>>>,
    pinned: Vec<Option<usize>>,
    all: Arc<All>,
}

/// What a thread knows of its place.
#[derive(Clone, Debug)]
pub struct Core {
    index: usize,
    pinned: Option<usize>,
    all: Arc<All>,
}

/// What all threads see.
#[derive(Debug)]
struct All {
    shards: Box<[ShardRef]>,
    /// Which of them have heard that they are to end.
    stopping: Box<[AtomicBool]>,
}

/// How the threads are made; from [`Cores::builder`].
#[must_use = "nothing runs before `start`"]
pub struct CoresBuilder {
    shards: Option<usize>,
    pin: bool,
    config: Arc<MakeConfig>,
}

impl Core {
    /// Which of the threads this is, from 0.
    pub fn index(&self) -> usize {
        self.index
    }

    /// The machine's core it is pinned to; `None` if it is not, or could not be.
    pub fn pinned_to(&self) -> Option<usize> {
        self.pinned
    }

    /// The timers of all the threads, by index: to add to another one's.
    pub fn shards(&self) -> &[ShardRef] {
        &self.all.shards
    }

    /// Whether the thread has heard, in one of its turns, that it is to end ([`Cores::stop`]): for a loop to look at after each turn.
    /// Cost: a load.
    #[inline]
    pub fn is_stopping(&self) -> bool {
        // Relaxed: the thread itself has stored it, and for others it is news that may come late.
        self.all.stopping[self.index].load(Ordering::Relaxed)
    }
}

impl Cores<()> {
    /// As many threads as the calling thread may use cores ([`thread::available_parallelism`]: of those that it may run on, what a
    /// container's quota allows), each timer with the default configuration. (In a thread that is pinned to one core, that is one, to
    /// which all would be pinned.)
    ///
    /// The threads are pinned to the cores that it may run on, one after the other, in the system's order, and from the first again if
    /// there are more of them. To keep them off a core, or off the other half of one, start the program under `taskset` or in a
    /// cpuset. Where containers share a machine by quotas alone, do not [pin](CoresBuilder::pin): all would sit on the first cores.
    pub fn builder() -> CoresBuilder {
        CoresBuilder { shards: None, pin: true, config: Arc::new(|_| Config::new()) }
    }
}

impl<R> Cores<R> {
    /// How many threads there are.
    pub fn len(&self) -> usize {
        self.threads.len()
    }

    /// Whether there is no thread.
    pub fn is_empty(&self) -> bool {
        self.threads.is_empty()
    }

    /// For each thread, the core it is pinned to; `None` for one that is not, or could not be, and runs wherever the operating
    /// system puts it.
    pub fn pinned(&self) -> &[Option<usize>] {
        &self.pinned
    }

    /// The timers of the threads, by index: to add to them from elsewhere.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::{Cores, local_timer};
    /// use std::{thread, time::Duration};
    ///
    /// let cores = Cores::builder().shards(2).start(|core| {
    ///     while local_timer().turn().fired == 0 {
    ///         local_timer().prepare_sleep().park();
    ///     }
    ///     core.index()
    /// })?;
    /// for shard in cores.shards() {
    ///     shard.add(Duration::from_millis(1), || println!("on {:?}", thread::current().name()));
    /// }
    /// assert_eq!(cores.join().len(), 2);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn shards(&self) -> &[ShardRef] {
        &self.all.shards
    }

    /// Asks all threads to end: each hears of it in its next turn, a sleeping one is woken for that, and from then on
    /// [`Core::is_stopping`] says so. Each decides itself when to end; [`join`](Self::join) waits. To ask again, or threads that
    /// have ended, changes nothing.
    ///
    /// What the caller has added or moved there before has been taken in by then: a callback given to [`ShardRef::run`] has run
    /// when the loop sees that it is to end. (Also if the caller is one of the threads and asks itself; but what the budgets of two
    /// turns put off is not waited for.)
    ///
    /// For that the request goes twice through the thread's mailbox, and is counted as two timers.
    ///
    /// # Examples
    ///
    /// ```
    /// use corewheel::{Cores, local_timer};
    ///
    /// let cores = Cores::builder().start(|core| {
    ///     while !core.is_stopping() {
    ///         local_timer().prepare_sleep().park();
    ///         local_timer().turn();
    ///     }
    /// })?;
    /// cores.stop();
    /// assert!(cores.join().iter().all(Result::is_ok));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn stop(&self) {
        for (index, shard) in self.all.shards.iter().enumerate() {
            let all = Arc::clone(&self.all);
            shard.post(move || {
                // What a thread has asked of itself in a turn comes in the next one. So does a message that is sent now.
                let heard = Arc::clone(&all);
                // Relaxed: as the load in `is_stopping` says.
                all.shards[index]
                    .post(move || heard.stopping[index].store(true, Ordering::Relaxed));
            });
        }
    }

    /// Waits for all threads and returns what each has returned, or the panic that ended it. It does not ask them to end: see
    /// [`stop`](Self::stop). A thread's timer ends with it: pending callbacks are dropped.
    pub fn join(self) -> Vec<thread::Result<R>> {
        let let_in = |returned: Option<R>| {
            returned.unwrap_or_else(|| unreachable!("every thread was let in"))
        };
        self.threads.into_iter().map(|thread| thread.join().map(let_in)).collect()
    }
}

impl<R> fmt::Debug for Cores<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cores").field("pinned", &self.pinned).finish_non_exhaustive()
    }
}

impl CoresBuilder {
    /// How many threads, each with its shard; more than the machine has cores is fine, and zero counts as one.
    pub fn shards(mut self, shards: usize) -> Self {
        self.shards = Some(shards.max(1));
        self
    }

    /// Whether each thread is pinned to a core, as it is unless this says otherwise.
    pub fn pin(mut self, pin: bool) -> Self {
        self.pin = pin;
        self
    }

    /// How the timer of each thread is made; called with the thread's index, on that thread.
    pub fn config(mut self, config: impl Fn(usize) -> Config + Send + Sync + 'static) -> Self {
        self.config = Arc::new(config);
        self
    }

    /// Starts the threads and runs `run` on each. As [`start_with`](Self::start_with), with nothing to hand over.
    ///
    /// # Errors
    ///
    /// As [`start_with`](Self::start_with).
    ///
    /// # Panics
    ///
    /// If the function given to [`config`](Self::config) panics.
    pub fn start<R: Send + 'static>(
        self,
        run: impl Fn(Core) -> R + Send + Sync + 'static,
    ) -> io::Result<Cores<R>> {
        let shards = self
            .shards
            .unwrap_or_else(|| thread::available_parallelism().map_or(1, NonZeroUsize::get));
        self.start_with(vec![(); shards], move |core, ()| run(core))
    }

    /// Starts a thread for each of the `seats` and runs `run` on it with its seat: what was prepared for it, such as a
    /// poll whose waker its configuration already knows. Returns when all of them are pinned, as far as that is possible, and
    /// have their timers; only then does any of them enter `run`. The seats say how many there are:
    /// [`shards`](Self::shards) is for [`start`](Self::start).
    ///
    /// # Errors
    ///
    /// If a thread cannot be started, or a configuration is invalid (then [`io::Error::get_ref`] is the [`ConfigError`]). In both
    /// cases no thread enters `run`, and those already started have ended.
    ///
    /// # Panics
    ///
    /// If the function given to [`config`](Self::config) panics.
    pub fn start_with<S: Send + 'static, R: Send + 'static>(
        self,
        seats: Vec<S>,
        run: impl Fn(Core, S) -> R + Send + Sync + 'static,
    ) -> io::Result<Cores<R>> {
        if seats.len() > SHARDS_MAX as usize {
            return Err(invalid(ConfigError::TooManyShards { max: SHARDS_MAX }));
        }
        let core_ids =
            if self.pin { core_affinity::get_core_ids().unwrap_or_default() } else { Vec::new() };
        let run = Arc::new(run);
        let mut starting = Starting { threads: Vec::new(), reports: Vec::new(), gates: Vec::new() };
        for (index, seat) in seats.into_iter().enumerate() {
            let core_id = core_ids.get(index % core_ids.len().max(1)).copied();
            let place = Place {
                index,
                core_id,
                config: Arc::clone(&self.config),
                run: Arc::clone(&run),
                seat,
            };
            if let Err(error) = starting.spawn(place) {
                starting.give_up();
                return Err(error);
            }
        }
        starting.finish()
    }
}

fn invalid(error: ConfigError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, error)
}

impl fmt::Debug for CoresBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CoresBuilder")
            .field("shards", &self.shards)
            .field("pin", &self.pin)
            .finish_non_exhaustive()
    }
}

/// What a thread needs in order to begin.
struct Place<F, S> {
    index: usize,
    core_id: Option<CoreId>,
    config: Arc<MakeConfig>,
    run: Arc<F>,
    seat: S,
}

impl<R, S, F: Fn(Core, S) -> R> Place<F, S> {
    /// The thread's whole life. `None` if it was not let in.
    fn live(self, report: &mpsc::Sender<Report>, gate: &mpsc::Receiver<Arc<All>>) -> Option<R> {
        let pinned = self.core_id.filter(|&id| core_affinity::set_for_current(id)).map(|id| id.id);
        let ready =
            (self.config)(self.index).install().map(|()| (pinned, local_timer().shard_ref()));
        // Whoever waits for the report opens the gate or drops it.
        let _ = report.send(ready);
        let all = gate.recv().ok()?;
        Some((self.run)(Core { index: self.index, pinned, all }, self.seat))
    }
}

/// Where a thread was pinned, and its timer.
type Report = Result<(Option<usize>, ShardRef), ConfigError>;

/// Threads that have begun and wait to be let in.
struct Starting<R> {
    threads: Vec<JoinHandle<Option<R>>>,
    reports: Vec<mpsc::Receiver<Report>>,
    gates: Vec<mpsc::Sender<Arc<All>>>,
}

impl<R: Send + 'static> Starting<R> {
    fn spawn<F, S>(&mut self, place: Place<F, S>) -> io::Result<()>
    where
        F: Fn(Core, S) -> R + Send + Sync + 'static,
        S: Send + 'static,
    {
        let (report, reports) = mpsc::channel();
        let (gate, gated) = mpsc::channel();
        let builder = thread::Builder::new().name(format!("corewheel-{}", place.index));
        self.threads.push(builder.spawn(move || place.live(&report, &gated))?);
        self.reports.push(reports);
        self.gates.push(gate);
        Ok(())
    }

    /// Lets the threads in if all of them are ready.
    fn finish(self) -> io::Result<Cores<R>> {
        let reports: Result<Vec<_>, _> = self.reports.iter().map(mpsc::Receiver::recv).collect();
        let Ok(reports) = reports else {
            let panics = self.give_up();
            panic::resume_unwind(
                panics
                    .into_iter()
                    .next()
                    .unwrap_or_else(|| Box::new("a thread ended without a report")),
            );
        };
        match reports.into_iter().collect::<Result<(Vec<_>, Vec<_>), ConfigError>>() {
            Ok((pinned, shards)) => Ok(self.open(pinned, shards.into_boxed_slice())),
            Err(error) => {
                self.give_up();
                Err(invalid(error))
            }
        }
    }

    fn open(self, pinned: Vec<Option<usize>>, shards: Box<[ShardRef]>) -> Cores<R> {
        let stopping = shards.iter().map(|_| AtomicBool::new(false)).collect();
        let all = Arc::new(All { shards, stopping });
        for gate in self.gates {
            // A thread that waits at its gate holds the other end.
            let _ = gate.send(Arc::clone(&all));
        }
        Cores { threads: self.threads, pinned, all }
    }

    /// Sends the threads home, waits for them, and returns what they panicked with.
    fn give_up(self) -> Vec<Box<dyn std::any::Any + Send>> {
        drop(self.gates);
        self.threads.into_iter().filter_map(|thread| thread.join().err()).collect()
    }
}
