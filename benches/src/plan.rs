//! The peers and the workloads, and how often and how large each is run. The comments of [`Peer`]
//! and [`Workload`] are the text of `--help` and of `doc/figures.md`.

use std::time::Duration;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::measure::{Effort, Sample};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub enum Peer {
    /// corewheel's `Wheel`: no clock, no callbacks.
    CorewheelWheel,
    /// corewheel's `Shard`: the engine of one core, payloads by value.
    CorewheelShard,
    /// corewheel's `local_timer()`, callbacks.
    CorewheelLocal,
    /// `corewheel-local` with the fast clock; in virtual time it would be `corewheel-local`.
    CorewheelLocalFast,
    /// corewheel's `future::Timers`, one thread of timers for each worker of the runtime.
    CorewheelTimers,
    /// corewheel's `future::Timers::per_worker`: a wheel for each worker, one thread for all.
    CorewheelPerWorker,
    /// corewheel's `future::Sleep` on tokio's current-thread runtime, driven by `corewheel-tokio`.
    CorewheelSleep,
    /// The least that a timer with a handle must do, without firing; between two cores, a cache
    /// line there and back.
    Floor,
    /// `floor` with a compare-and-swap.
    FloorCas,
    /// A linked wheel of 64 slots a level, as in tokio and Linux.
    Linked64,
    /// One level of 65,536 slots: no delays above 65 s.
    Single65536,
    /// A 4-ary heap that knows the position of each timer.
    Heap4,
    /// `BinaryHeap`, in which cancelled entries stay.
    BinaryHeap,
    /// `BTreeMap` by deadline.
    #[value(name = "btree")]
    BTree,
    /// The cancellable wheel of the crate `hierarchical_hash_wheel_timer`.
    HierarchicalHashWheel,
    /// tokio-util's `DelayQueue`.
    DelayQueue,
    /// tokio's `Sleep` on its current-thread runtime.
    TokioSleep,
    /// tokio's `Sleep` on its multi-thread runtime, which has no virtual time.
    TokioThreads,
    /// `tokio-threads` with tokio's alternative timer, if built with `--cfg tokio_unstable`.
    TokioAlt,
    /// The crate `pingora-timeout` on tokio's multi-thread runtime.
    PingoraTimeout,
    /// monoio's `Sleep` on its runtime.
    MonoioSleep,
    /// Two cores: `corewheel-wheel` behind the standard library's lock.
    MutexStd,
    /// Two cores: `corewheel-wheel` behind the lock of `parking_lot`.
    MutexParkingLot,
    /// Two cores, and `packets`: `linked64` behind the lock of `parking_lot`.
    MutexLinked64,
    /// Two cores: `heap4` behind the lock of `parking_lot`.
    MutexHeap4,
    /// Two cores: `corewheel-wheel`, which gets requests through a channel. The sender gets no
    /// answer.
    Channel,
    /// Waking: tokio's `Notify`, in a current-thread runtime that polls for events.
    TokioNotify,
    /// Waking: an `eventfd`.
    #[value(name = "eventfd")]
    EventFd,
    /// Waking: the standard library's `park`.
    Futex,
    /// Scheme 1 of Varghese and Lauck: each tick counts every timer down.
    Countdown,
    /// Scheme 2: one list in the order of the deadlines.
    OrderedList,
    /// Scheme 5: a hashed wheel whose slots are in order.
    SortedSlots,
    /// Scheme 6: a hashed wheel whose timers count rounds.
    RoundsWheel,
    /// Netty's `HashedWheelTimer`, with its tick of 100 ms.
    Netty,
    /// `netty` with a tick of 1 ms.
    #[value(name = "netty-1ms")]
    Netty1ms,
    /// Kafka's `SystemTimer`.
    Kafka,
    /// The timer wheel of Linux.
    Linux,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub enum Workload {
    /// Cancels a random timer and adds one, with delays of 1 to 60 s: ns per pair. After every
    /// thousand pairs a tick of 1 ms passes. The runtimes of several threads have no virtual time:
    /// they go by the machine's clock and yield after every thousand pairs.
    Churn,
    /// The longest single pair or tick of `churn`: as the caller waits, and by the time that the
    /// thread ran.
    ChurnLongest,
    /// `churn` with a delay of 30 s for every timer.
    Churn30,
    /// Adds timers over 60 s and lets all fire: ns per timer added, and per timer fired.
    Drain,
    /// Moves a random timer to 30 s from now: ns per reset. The runtimes of several threads go by
    /// the machine's clock.
    Reset,
    /// Timers that are added again when they fire: ns per timer.
    Steady,
    /// How long a single turn takes, tick by tick, with timers over the next 120 s; and how many
    /// entries it touches at most. `max-cpu` is the longest turn in CPU time of the thread. Some
    /// peers are left out to save time.
    Pause,
    /// `pause` with all timers due in one tick. Turns of corewheel have a budget of 64 entries; the
    /// other peers have no budget and fire all at once.
    PauseAllDue,
    /// `pause` after every deadline was moved a minute ahead.
    PauseAfterReset,
    /// `pause` after the loop slept for 10 s. Turns of corewheel have a budget of 64 entries; the
    /// other peers have none.
    PauseAfterSleep,
    /// Timers of ten minutes that are added within 1.5 s, beside a heartbeat or none, in a loop
    /// that turns only when the peer says so. The longest turn that fires nothing, as elapsed time
    /// and as CPU time of the thread; and the most entries that a turn moves beyond those it fires.
    PauseHeartbeat,
    /// Ticks in which nothing is due, with timers that are due in an hour: ns per tick.
    Idle,
    /// An hour passes at once, without timers: ns per hour.
    IdleHour,
    /// How often an idle `Shard` must be turned until its only timer, an hour away, has fired.
    IdleWakeUps,
    /// Bytes per timer, by the allocator and resident. Live: all are. Left: all were cancelled, and
    /// the loop has turned once and announced a sleep without end. Turned: after 10,000 turns.
    Memory,
    /// How many bytes `churn` takes beyond its start, by the allocator and resident, and in how
    /// many pairs.
    MemoryChurn,
    /// Allocations of corewheel per million operations, once `churn`, `reset`, `steady` and `call`
    /// have settled.
    MemoryAllocations,
    /// `churn30` on the machine's clock, which each add reads: ns per pair.
    Call,
    /// Tasks that wrap one short operation after the other in a timeout. The operation is pending
    /// once. Timeout: the next column less the one after, stretch by stretch. Left: timeouts that
    /// are still registered 50 ms after as many were dropped. Entries of pingora-timeout, one for
    /// all that end within 10 ms, stay until then and are not counted. Tasks of `tokio-sleep`,
    /// `corewheel-local` and `corewheel-local-fast` stay on two runtimes of one thread each; the
    /// others move between two workers.
    Async,
    /// `async` with an operation that is ready at once.
    AsyncReady,
    /// How late the timeouts of tasks end. On the runtimes of one thread the crate
    /// `corewheel-tokio` drives corewheel's timers; the threads of `corewheel-timers` sleep until a
    /// timer is due.
    AsyncLate,
    /// One thread serves connections with an idle timeout of 30 s, which each packet moves: CPU
    /// time of the timers per packet. Loop: the CPU time of the same loop without timers, which was
    /// subtracted. A tenth of the connections falls silent: a last packet shortens the timeout to 5
    /// ms, and the timeout closes the connection. Without timers the last packet closes it. Sockets
    /// are simulated, and the machine's clock is read for each packet. `corewheel-sleep`,
    /// `tokio-sleep` and `monoio-sleep` have a task for each connection; the loop of the others
    /// turns after every 64 packets.
    Packets,
    /// Delayed operations a second in virtual time, the time that the threads ran for one, and the
    /// share that completed by an event. The watched keys belong to the core whose operations wait,
    /// or (`far`) to the one that makes the events. In each of the other peers, all cores share the
    /// watch lists, the operations and the timer, behind one lock: the standard library's for
    /// `linked64` and `btree`, `parking_lot`'s for `mutex-linked64`.
    Purgatory,
    /// How late timers fire by the machine's clock, over 5 s, with a tick of 1 ms or the peer's
    /// own.
    Late,
    /// `late` with a tick of 50 us.
    #[value(name = "late-50us")]
    Late50us,
    /// The savings of a loop whose timers may fire later by some slack: wake-ups, entries touched
    /// per timer, ns per timer. For `linked64` and `btree` the caller rounds the deadlines.
    Within,
    /// How many timers share a tick, and the longest turn, when timers of one deadline are spread
    /// over a range. For `linked64` and `btree` the caller draws the deadlines at random.
    Spread,
    /// One core adds timers, the other cancels them: ns from adding to consuming the cancellation,
    /// and per call of cancel. A call of the peer `channel` does not learn whether it cancelled the
    /// timer. All peers read the machine's clock when they add. Values are medians of the stretches
    /// in which no thread lost its core; where `undisturbed` is 0 %, they are of all stretches and
    /// mean little. `line` is a cache line to the other core and back, before and after: runs with
    /// different lines cannot be compared.
    Xcancel,
    /// `xcancel` with both cores adding and cancelling.
    XcancelBoth,
    /// The time of a call of cancel where a lock hurts. Firing: the owner fires 10,000 timers in
    /// one turn; calls count that begin during the turn. Four threads: all cancel at once, while
    /// the owner collects; where there are fewer cores than threads, they share them. The time
    /// contains one reading of the clock. A call of the peer `channel` does not learn whether it
    /// cancelled the timer.
    XcancelLock,
    /// How long it takes to wake a sleeping thread of another core: from the call until the thread
    /// has done its work. Call: the time of the call alone. corewheel's thread is woken by a
    /// closure to run, or (`add`) by a timer that is due at once.
    Waking,
    /// Requests of another core: an added timer, a reset, a callback. In ns per request for both
    /// cores, and for the call alone, by the number of requests that are made before the owner
    /// consumes them in one turn. That turn is a part of the figure; with one request most of it is
    /// the transfer of cache lines. 10,000 timers are live. Neither core waits for the other:
    /// `xcancel` and `flood` show what locks cost where they do. `channel` gives no answer. All
    /// peers read the machine's clock for an add and a reset. The requester registers a sleep of
    /// tokio's with the owner's runtime, and callbacks are spawned there.
    Asked,
    /// How late timers fire while another core cancels pending timers as fast as it can; `took` is
    /// the time for all of them. Bounded: a turn consumes at most 256 requests. tokio's task yields
    /// after 64 cancels. `corewheel-local` stands for corewheel's other layers.
    Flood,
    /// The gain of a second core where nothing crosses cores, as a factor. Empty: the floor of
    /// `churn`, in turns with the peer, which shows the limit of the machine. Share: the first
    /// divided by the second. By the time that the threads ran.
    Scaling,
    /// Timer schemes of the literature, explained in `doc/schemes.md`: ns per call of each routine.
    /// Start: a batch of N / 8 timers, but 10 at least, on top of the N. Stop: as many random ones
    /// of them all; after each batch a tick passes, which is not timed. Tick: one in which nothing
    /// is due, of up to 4,096, with the counting down, the rounds and the cascades that fall into
    /// them. Expiry: a tick in which a batch on top of the N expires, less the median of those in
    /// which nothing does. `netty` leaves some work of start and stop to its worker: the linking
    /// shows in expiry, the unlinking in no column.
    Scheme,
}

impl Peer {
    pub fn is_corewheel(self) -> bool {
        self.name().starts_with("corewheel-")
    }

    /// Returns true if the peer can replace corewheel. A timer then takes any delay, is exact to
    /// the tick, and its cancel answers for stale handles too.
    pub fn is_complete(self) -> bool {
        !self.is_corewheel()
            && !matches!(
                self,
                Self::Floor | Self::FloorCas | Self::Single65536 | Self::DelayQueue | Self::Channel
            )
    }

    /// Returns the floor of one of corewheel's layers.
    pub fn floor(self, workload: Workload) -> Option<Self> {
        match self {
            _ if workload.crosses_cores() => self.is_corewheel().then_some(Self::Floor),
            Self::CorewheelWheel => Some(Self::Floor),
            Self::CorewheelShard | Self::CorewheelLocal => Some(Self::FloorCas),
            _ => None,
        }
    }
}

impl Workload {
    /// Returns the numbers of live timers, or of what [`counted`](Self::counted) says.
    pub fn sizes(self, scale: Scale) -> &'static [usize] {
        let quick = scale == Scale::Quick;
        match self {
            Self::IdleHour => &[0],
            Self::IdleWakeUps | Self::Waking => &[1],
            _ if scale == Scale::Tiny => &[1000],
            Self::Late | Self::Late50us | Self::AsyncLate if quick => &[4000],
            Self::Late | Self::Late50us | Self::AsyncLate | Self::XcancelLock => &[10_000],
            Self::Memory if quick => &[100_000],
            Self::Within | Self::Spread => &[100_000],
            Self::Flood if quick => &[200_000],
            Self::Xcancel | Self::XcancelBoth | Self::Scaling => &[1000, 100_000, 1_000_000],
            Self::MemoryChurn => &[1000, 100_000],
            Self::Asked => &[1, 64, 1000],
            Self::Scheme => &[10, 100, 1000, 10_000, 100_000],
            Self::Packets => &[10_000, 100_000],
            Self::Async | Self::AsyncReady | Self::Purgatory => &[1000],
            Self::Memory
            | Self::Flood
            | Self::Pause
            | Self::PauseAllDue
            | Self::PauseAfterReset
            | Self::PauseAfterSleep
            | Self::PauseHeartbeat => &[1_000_000],
            _ => &[1000, 10_000, 100_000, 1_000_000],
        }
    }

    pub fn counted(self) -> &'static str {
        match self {
            _ if self.is_about_tasks() => "tasks",
            Self::Purgatory => "keys",
            Self::Asked => "requests at once",
            Self::Packets => "connections",
            _ => "timers",
        }
    }

    /// Returns how often it is repeated for each peer.
    pub fn rounds(self, n: usize, scale: Scale) -> usize {
        match self {
            _ if scale == Scale::Tiny => 1,
            Self::Scheme => scale.pick(15, 5, 1),
            // Bytes and counts do not scatter.
            Self::Memory | Self::MemoryChurn | Self::MemoryAllocations | Self::IdleWakeUps => 1,
            _ if scale == Scale::Full => 5,
            Self::ChurnLongest | Self::Flood | Self::Late | Self::Late50us => 1,
            _ if n >= 100_000 || self.is_about_tasks() => 1,
            _ => 3,
        }
    }

    /// Returns whether one core cancels another core's timers in it.
    pub fn crosses_cores(self) -> bool {
        matches!(self, Self::Xcancel | Self::XcancelBoth | Self::XcancelLock | Self::Flood)
    }

    pub fn is_about_tasks(self) -> bool {
        matches!(self, Self::Async | Self::AsyncReady | Self::AsyncLate)
    }

    pub fn needs_two_cores(self) -> bool {
        self.crosses_cores() || matches!(self, Self::Asked | Self::Waking | Self::Scaling)
    }
}

/// One run, in a separate process, so that each has the same fresh heap and clock.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Job {
    pub peer: Peer,
    pub workload: Workload,
    pub n: usize,
    pub scale: Scale,
}

impl Job {
    /// Returns how long it takes. A quick run is too short for a million timers to settle; a tiny
    /// one is long enough for every thread to have its turn on a busy machine.
    pub fn effort(self) -> Effort {
        let (timed, warm_up_max) = self.scale.pick((250, 1000), (40, 120), (20, 5));
        let [timed, warm_up_max] = [timed, warm_up_max].map(Duration::from_millis);
        Effort { timed, warm_up_max }
    }

    /// Creates a figure of the workload, or of a part of it that has a name.
    pub fn sample(self, part: &str, unit: &str, value: f64) -> Sample {
        let name = format!("{}-{part}", self.workload.name());
        Sample::new(name.trim_end_matches('-'), self.n, unit, value)
    }
}

/// How much is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Scale {
    /// What figures are made of.
    Full,
    /// Less of everything, for a first look.
    Quick,
    /// Too little to mean anything, for tests.
    Tiny,
}

impl Scale {
    pub fn pick<T>(self, full: T, quick: T, tiny: T) -> T {
        match self {
            Self::Full => full,
            Self::Quick => quick,
            Self::Tiny => tiny,
        }
    }
}

/// What `--help` knows about a peer or a workload.
pub trait Named: ValueEnum {
    fn name(&self) -> String {
        self.to_possible_value().expect("none is skipped").get_name().to_owned()
    }

    fn about(&self) -> String {
        let value = self.to_possible_value().expect("none is skipped");
        value.get_help().map_or_else(String::new, |help| format!("{help}."))
    }
}

impl<T: ValueEnum> Named for T {}
