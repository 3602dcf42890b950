//! `Cores`: one pinned thread per core, each with its own timer, from start to join.

use std::{
    fmt, io,
    num::NonZeroUsize,
    panic,
    sync::{Arc, mpsc},
    thread::{self, JoinHandle},
};

use core_affinity::CoreId;

use crate::{config::Config, error::ConfigError};

type MakeConfig = dyn Fn(usize) -> Config + Send + Sync;

/// Threads of a thread-per-core program, each pinned to a core and with its own timer. Dropping this without
/// [`join`](Cores::join) lets them run on by themselves.
///
/// # Examples
///
/// ```
/// use corewheel::{Cores, local_timer};
/// use std::time::Duration;
///
/// let cores = Cores::builder().shards(2).start(|core| {
///     local_timer().add(Duration::ZERO, move || println!("hello from shard {}", core.index()));
///     while !local_timer().is_empty() {
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
}

/// One of the threads, as it sees itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Core {
    index: usize,
    pinned: Option<usize>,
}

/// How the threads are made; from [`Cores::builder`].
#[must_use = "nothing runs before `start`"]
pub struct CoresBuilder {
    shards: Option<usize>,
    config: Arc<MakeConfig>,
}

impl Core {
    /// Which of the threads this is, from 0.
    pub fn index(&self) -> usize {
        self.index
    }

    /// The machine's core it is pinned to; `None` if it could not be pinned.
    pub fn pinned_to(&self) -> Option<usize> {
        self.pinned
    }
}

impl Cores<()> {
    /// One thread for each core of the machine, each timer with the default configuration.
    pub fn builder() -> CoresBuilder {
        CoresBuilder { shards: None, config: Arc::new(|_| Config::new()) }
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

    /// For each thread, the core it is pinned to; `None` for one that could not be pinned and runs wherever the operating
    /// system puts it.
    pub fn pinned(&self) -> &[Option<usize>] {
        &self.pinned
    }

    /// Waits for all threads and returns what each has returned, or the panic that ended it. A thread's timer ends with
    /// it: pending callbacks are dropped.
    pub fn join(self) -> Vec<thread::Result<R>> {
        let let_in = |returned: Option<R>| returned.unwrap_or_else(|| unreachable!("every thread was let in"));
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

    /// How the timer of each thread is made; called with the thread's index, on that thread.
    pub fn config(mut self, config: impl Fn(usize) -> Config + Send + Sync + 'static) -> Self {
        self.config = Arc::new(config);
        self
    }

    /// Starts the threads and runs `run` on each. Returns when all of them are pinned, as far as that is possible, and
    /// have their timers; only then does any of them enter `run`.
    ///
    /// # Errors
    ///
    /// If a thread cannot be started, or a configuration is invalid (then [`io::Error::get_ref`] is the [`ConfigError`]). In both cases no thread enters `run`, and those already started have ended.
    ///
    /// # Panics
    ///
    /// If the function given to [`config`](Self::config) panics.
    pub fn start<R: Send + 'static>(self, run: impl Fn(Core) -> R + Send + Sync + 'static) -> io::Result<Cores<R>> {
        let core_ids = core_affinity::get_core_ids().unwrap_or_default();
        let shards = self.shards.unwrap_or_else(|| thread::available_parallelism().map_or(1, NonZeroUsize::get));
        let run = Arc::new(run);
        let mut starting = Starting { threads: Vec::new(), reports: Vec::new(), gates: Vec::new() };
        for index in 0..shards {
            let core_id = core_ids.get(index % core_ids.len().max(1)).copied();
            let place = Place { index, core_id, config: Arc::clone(&self.config), run: Arc::clone(&run) };
            if let Err(error) = starting.spawn(place) {
                starting.give_up();
                return Err(error);
            }
        }
        starting.finish()
    }
}

impl fmt::Debug for CoresBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CoresBuilder").field("shards", &self.shards).finish_non_exhaustive()
    }
}

/// What a thread needs in order to begin.
struct Place<F> {
    index: usize,
    core_id: Option<CoreId>,
    config: Arc<MakeConfig>,
    run: Arc<F>,
}

impl<R, F: Fn(Core) -> R> Place<F> {
    /// The thread's whole life. `None` if it was not let in.
    fn live(self, report: &mpsc::Sender<Result<Core, ConfigError>>, gate: &mpsc::Receiver<()>) -> Option<R> {
        let pinned = self.core_id.filter(|&id| core_affinity::set_for_current(id)).map(|id| id.id);
        let core = Core { index: self.index, pinned };
        let ready = (self.config)(self.index).install().map(|()| core);
        // Whoever waits for the report opens the gate or drops it.
        let _ = report.send(ready);
        gate.recv().ok().map(|()| (self.run)(core))
    }
}

/// Threads that have begun and wait to be let in.
struct Starting<R> {
    threads: Vec<JoinHandle<Option<R>>>,
    reports: Vec<mpsc::Receiver<Result<Core, ConfigError>>>,
    gates: Vec<mpsc::Sender<()>>,
}

impl<R: Send + 'static> Starting<R> {
    fn spawn<F: Fn(Core) -> R + Send + Sync + 'static>(&mut self, place: Place<F>) -> io::Result<()> {
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
                panics.into_iter().next().unwrap_or_else(|| Box::new("a thread ended without a report")),
            );
        };
        match reports.into_iter().collect::<Result<Vec<Core>, ConfigError>>() {
            Ok(cores) => Ok(self.open(&cores)),
            Err(error) => {
                self.give_up();
                Err(io::Error::new(io::ErrorKind::InvalidInput, error))
            }
        }
    }

    fn open(self, cores: &[Core]) -> Cores<R> {
        for gate in self.gates {
            // A thread that waits at its gate holds the other end.
            let _ = gate.send(());
        }
        Cores { threads: self.threads, pinned: cores.iter().map(Core::pinned_to).collect() }
    }

    /// Sends the threads home, waits for them, and returns what they panicked with.
    fn give_up(self) -> Vec<Box<dyn std::any::Any + Send>> {
        drop(self.gates);
        self.threads.into_iter().filter_map(|thread| thread.join().err()).collect()
    }
}
