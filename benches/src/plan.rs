//! The peers and the workloads, with the sizes and rounds of each. The comments of [`Peer`] and
//! [`Workload`] appear in `--help` and `doc/figures.md`.

use std::time::Duration;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::measure::{Durations, Sample};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub enum Peer {
    /// corewheel's `Wheel`: no clock, no callbacks.
    CorewheelWheel,
    /// corewheel's `Shard`: a wheel with a clock and a mailbox, payloads by value.
    CorewheelShard,
    /// corewheel's `local_timer()`: callbacks.
    CorewheelLocal,
    /// `corewheel-local` with the fast clock, for workloads in real time. Other peers read the
    /// system's clock, so their ratios to this row also compare the clocks.
    CorewheelLocalFast,
    /// corewheel's `future::Timers`: a timer thread for each worker of the runtime.
    CorewheelTimers,
    /// corewheel's `future::Timers::per_worker`: a wheel for each worker, and one thread that fires
    /// all timers.
    CorewheelPerWorker,
    /// corewheel's `future::Sleep` on tokio's current-thread runtime, driven by `corewheel-tokio`.
    CorewheelSleep,
    /// The least that a timer with a handle must do, without firing; for two cores, the round trip
    /// of a cache line.
    Floor,
    /// `floor` with a compare-and-swap.
    FloorCas,
    /// A hierarchical wheel of linked lists, 64 slots a level, as in tokio.
    Linked64,
    /// A wheel of one level with 65,536 slots: delays of up to 65 s.
    Single65536,
    /// A 4-ary heap that tracks the position of each timer.
    Heap4,
    /// The standard library's `BinaryHeap`, with lazy removal of cancelled entries.
    BinaryHeap,
    /// The standard library's `BTreeMap`, by deadline.
    #[value(name = "btree")]
    BTree,
    /// The cancellable wheel of the crate `hierarchical_hash_wheel_timer`.
    HierarchicalHashWheel,
    /// tokio-util's `DelayQueue`. In virtual time, a tick includes an advance of tokio's paused
    /// clock.
    DelayQueue,
    /// tokio's `Sleep` on its current-thread runtime. In virtual time, a tick includes an advance
    /// of tokio's paused clock.
    TokioSleep,
    /// tokio's `Sleep` on its multi-thread runtime, which has no virtual time.
    TokioThreads,
    /// `tokio-threads` with tokio's alternative timer, if built with `--cfg tokio_unstable`.
    TokioAlt,
    /// The crate `pingora-timeout` on tokio's multi-thread runtime.
    PingoraTimeout,
    /// monoio's `Sleep` on its runtime.
    MonoioSleep,
    /// For two cores: `corewheel-wheel` behind the standard library's lock.
    MutexStd,
    /// For two cores: `corewheel-wheel` behind the lock of `parking_lot`.
    MutexParkingLot,
    /// For the two-core workloads, and for `packets` and `purgatory`: the peer `linked64` behind
    /// the lock of `parking_lot`.
    MutexLinked64,
    /// For two cores: `heap4` behind the lock of `parking_lot`.
    MutexHeap4,
    /// For two cores: `corewheel-wheel`, whose owner gets requests through a channel and does not
    /// answer.
    Channel,
    /// For `waking`: tokio's `Notify`, in a current-thread runtime that polls for events.
    TokioNotify,
    /// For `waking`: an `eventfd`.
    #[value(name = "eventfd")]
    EventFd,
    /// For `waking`: the standard library's `park`.
    Futex,
    /// Scheme 1 of Varghese and Lauck: each tick decrements every timer.
    Countdown,
    /// Scheme 2: one list sorted by deadline.
    OrderedList,
    /// Scheme 5: a hashed wheel with sorted slots.
    SortedSlots,
    /// Scheme 6: a hashed wheel whose timers count rounds.
    RoundsWheel,
    /// The algorithm of Netty's `HashedWheelTimer` in Rust, with its tick of 100 ms.
    Netty,
    /// `netty` with a tick of 1 ms.
    #[value(name = "netty-1ms")]
    Netty1ms,
    /// The algorithm of Kafka's `SystemTimer`, in Rust.
    Kafka,
    /// The algorithm of the timer wheel of Linux, in Rust.
    Linux,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub enum Workload {
    /// Cancels a random timer and adds one, with delays of 1 to 60 s: ns per pair. After every
    /// thousand pairs a tick of 1 ms passes. Multi-thread runtimes use real time, and yield after
    /// every thousand pairs.
    Churn,
    /// `churn` with a delay of 30 s for every timer.
    Churn30,
    /// Adds timers due within 60 s, and fires all of them: ns per timer. `fill`: the adds. `drain`:
    /// the turns.
    Drain,
    /// Resets a random timer to 30 s from now: ns per reset. Multi-thread runtimes use real time.
    Reset,
    /// Adds each timer again when it fires: ns per timer.
    Steady,
    /// The time of a turn, with one turn per tick and timers due within 120 s. `max-cpu`: the
    /// longest turn in CPU time of the thread. `handled`: the most entries that a turn fires or
    /// relinks. Some peers are left out to save time.
    Pause,
    /// `pause` with all timers due in one tick. Turns of corewheel have a budget of 64 entries; the
    /// other peers fire all timers in one turn.
    PauseAllDue,
    /// `pause` after each timer was reset to a deadline one minute later.
    PauseAfterReset,
    /// `pause` after the loop slept for 10 s. Turns of corewheel have a budget of 64 entries; the
    /// other peers have none.
    PauseAfterSleep,
    /// Adds timers of ten minutes within 1.5 s, with or without a periodic timer beside them. After
    /// the adds, the loop calls `turn` only at the next deadlines that the peer reports. `longest`:
    /// the longest turn that fires no timer, in elapsed time and in CPU time. `relinked`: the most
    /// entries that a turn relinks.
    PauseHeartbeat,
    /// Ticks in which no timer is due, with timers due in an hour: ns per tick.
    Idle,
    /// One advance by an hour, without timers: ns per advance.
    IdleHour,
    /// Allocated and resident bytes per timer. `live`: all timers are live. `left`: all timers are
    /// cancelled, and the loop has called `turn` and prepared a sleep. `turned`: after 10,000
    /// turns.
    Memory,
    /// Allocated and resident bytes by which `churn` grows after its warm-up, and the number of
    /// pairs.
    MemoryChurn,
    /// `churn30` in real time, where each add reads the clock: ns per pair.
    Call,
    /// Tasks that wrap one short operation after another in a timeout. Each operation returns
    /// `Pending` once. `cpu`: CPU time per operation. `floor`: CPU time without timeouts.
    /// `timeout`: the difference. `left`: dropped timeouts, one per task, that are still registered
    /// after 50 ms. Timeouts of pingora-timeout share entries, which stay until they are due and
    /// are not counted. Tasks of `tokio-sleep`, `corewheel-local` and `corewheel-local-fast` run on
    /// two current-thread runtimes; the tasks of other peers may move between two workers.
    Async,
    /// `async` with an operation that is ready at once.
    AsyncReady,
    /// How late the timeouts of tasks expire. In current-thread runtimes, `corewheel-tokio` drives
    /// corewheel's timers.
    AsyncLate,
    /// One thread serves connections with an idle timeout of 30 s, which each packet resets: CPU
    /// time of the timers per packet. `loop`: CPU time of the same loop without timers, which is
    /// subtracted. A tenth of the connections fall silent: a last packet shortens the timeout to 5
    /// ms, and the timeout closes the connection. Without timers, the last packet closes the
    /// connection. Sockets are simulated, and each reset reads the real clock. `corewheel-sleep`,
    /// `tokio-sleep` and `monoio-sleep` have a task for each connection; the other loops call
    /// `turn` after every 64 packets.
    Packets,
    /// Delayed operations in virtual time: operations per second, CPU time per operation, and the
    /// share that events complete. A watched key belongs to the core whose operations wait or, in
    /// `far`, to the core that makes the events. In peers other than corewheel, all cores share
    /// watch lists, operations and timers behind one lock: the standard library's for `linked64`
    /// and `btree`, `parking_lot`'s for `mutex-linked64`.
    Purgatory,
    /// How late timers fire in real time, with a tick of 1 ms or the peer's own.
    Late,
    /// A loop whose timers have slack: wake-ups, entries relinked per timer, and ns per timer. For
    /// `linked64` and `btree`, the caller rounds the deadlines.
    Within,
    /// The number of timers per tick and the longest turn, when timers with one deadline are spread
    /// over a range. For `linked64` and `btree`, the caller draws random deadlines.
    Spread,
    /// One core adds timers, the other cancels them: ns per timer, from the first add until the
    /// owner has freed the last timer, and per call of cancel. With `channel`, a call of cancel
    /// gets no answer. All peers read the real clock in each add. Values are medians of the run's
    /// intervals without an involuntary context switch; if `undisturbed` is 0 %, they are medians
    /// of all intervals and mean little. `line`: the mean round trip of a cache line before and
    /// after the run. Compare only runs with similar `line`.
    Xcancel,
    /// `xcancel` with both cores adding and cancelling.
    XcancelBoth,
    /// The time of a call of cancel under contention, with one clock reading. `firing`: the owner
    /// fires 10,000 timers in one turn; only calls that begin in that turn, and the first call,
    /// count. `four-threads`: four threads cancel while the owner frees the cancelled timers; if
    /// there are fewer cores, threads share them. With `channel`, a call of cancel gets no answer.
    /// A wheel behind a lock fires all due timers in one critical section.
    XcancelLock,
    /// The time from a call that wakes a sleeping thread of another core until that thread has done
    /// its work. `call`: the time of the call alone. corewheel's thread is woken by a closure or,
    /// in `add`, by a timer that is due at once.
    Waking,
    /// Remote requests: `add` a timer, `reset` a timer, `run` a closure. One core sends a batch of
    /// requests, and then the owner consumes it in one turn. The unit is ns per request, for both
    /// cores and for the call alone, by the size of the batch. In a batch of one, most of the time
    /// is the transfer of cache lines. 10,000 timers are live. The cores alternate, so locks are
    /// free; `xcancel` and `flood` show contended locks. With `channel`, requests get no answer.
    /// All peers read the real clock in each add and reset. With `tokio-sleep`, the requester
    /// registers sleeps with the owner's runtime, and spawns closures there.
    Asked,
    /// How late timers fire while another core cancels pending timers as fast as it can. `took`:
    /// the time of all cancels. `bounded`: a turn consumes at most 256 requests, and in corewheel
    /// fires or moves at most 256 timers. tokio's cancelling task yields after every 64 cancels. Of
    /// corewheel's layers, only `corewheel-local` takes part.
    Flood,
    /// The speed-up of `churn` by a second core, where each core has its own timers, computed from
    /// CPU time. `empty`: the speed-up of `floor`, measured in alternation with the peer: the
    /// maximum on this machine. `share`: the speed-up divided by `empty`.
    Scaling,
    /// Timer schemes from the literature, explained in `doc/schemes.md`: ns per call of each
    /// routine. N timers are live. `start`: starts N / 8 more timers, at least 10; `ordered-list`
    /// always 10. `stop`: stops that number of random timers; an untimed tick follows. `tick`: the
    /// mean of up to 4,096 ticks in which no timer expires, with their cascades and their updates
    /// of counts. `expiry`: ns per timer for ticks in which a batch expires, minus the median tick
    /// without an expiry. `netty` defers some work of start and stop to its worker: `expiry`
    /// includes the deferred linking, and no column includes the unlinking.
    Scheme,
}

impl Peer {
    pub fn is_corewheel(self) -> bool {
        self.name().starts_with("corewheel-")
    }

    /// Returns true if this peer is another timer that can replace corewheel: it takes any delay,
    /// fires at the exact tick, and recognizes stale handles.
    pub fn can_replace_corewheel(self) -> bool {
        !self.is_corewheel()
            && !matches!(
                self,
                Self::Floor | Self::FloorCas | Self::Single65536 | Self::DelayQueue | Self::Channel
            )
    }

    /// Returns the peer `floor` or `floor-cas` with which a layer of corewheel is compared, if any.
    pub fn floor(self, workload: Workload) -> Option<Self> {
        match self {
            // The floor for two cores reads the system's clock, which is slower than the fast one.
            Self::CorewheelLocalFast => None,
            _ if workload.crosses_cores() => self.is_corewheel().then_some(Self::Floor),
            Self::CorewheelWheel => Some(Self::Floor),
            Self::CorewheelShard | Self::CorewheelLocal => Some(Self::FloorCas),
            _ => None,
        }
    }
}

impl Workload {
    /// Returns the sizes, each a number of [`counted`](Self::counted).
    pub fn sizes(self, scale: Scale) -> &'static [usize] {
        let quick = scale == Scale::Quick;
        match self {
            Self::IdleHour => &[0],
            Self::Waking => &[1],
            _ if scale == Scale::Tiny => &[1000],
            Self::Late | Self::AsyncLate if quick => &[4000],
            Self::Late | Self::AsyncLate | Self::XcancelLock => &[10_000],
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
            _ if self.measures_tasks() => "tasks",
            Self::Purgatory => "keys",
            Self::Asked => "requests at once",
            Self::Packets => "connections",
            _ => "timers",
        }
    }

    /// Returns the number of runs for each peer and size.
    pub fn rounds(self, n: usize, scale: Scale) -> usize {
        match self {
            _ if scale == Scale::Tiny => 1,
            Self::Scheme => scale.pick(15, 5, 1),
            // Bytes hardly vary between rounds.
            Self::Memory | Self::MemoryChurn => 1,
            _ if scale == Scale::Full => 5,
            Self::Flood | Self::Late => 1,
            _ if n >= 100_000 || self.measures_tasks() => 1,
            _ => 3,
        }
    }

    pub fn crosses_cores(self) -> bool {
        matches!(self, Self::Xcancel | Self::XcancelBoth | Self::XcancelLock | Self::Flood)
    }

    pub fn measures_tasks(self) -> bool {
        matches!(self, Self::Async | Self::AsyncReady | Self::AsyncLate)
    }

    pub fn needs_two_cores(self) -> bool {
        self.crosses_cores() || matches!(self, Self::Asked | Self::Waking | Self::Scaling)
    }
}

/// One run, in a new process with a fresh heap and clock.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Job {
    pub peer: Peer,
    pub workload: Workload,
    pub n: usize,
    pub scale: Scale,
}

impl Job {
    /// Returns the durations. A quick run is too short to warm up a million timers. A tiny run is
    /// long enough for each thread to run on a busy machine.
    pub fn durations(self) -> Durations {
        let (timed, warm_up_max) = self.scale.pick((250, 1000), (40, 120), (20, 5));
        let [timed, warm_up_max] = [timed, warm_up_max].map(Duration::from_millis);
        Durations { timed, warm_up_max }
    }

    /// Creates a sample named after the workload and, unless empty, `part`.
    pub fn sample(self, part: &str, unit: &str, value: f64) -> Sample {
        let name = format!("{}-{part}", self.workload.name());
        Sample::new(name.trim_end_matches('-'), self.n, unit, value)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Scale {
    Full,
    /// Fewer and shorter runs, for a first look.
    Quick,
    /// Runs too short to be meaningful, for tests.
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

/// The name and the description in `--help`.
pub trait Named: ValueEnum {
    fn name(&self) -> String {
        self.to_possible_value().expect("no variant is skipped").get_name().to_owned()
    }

    fn about(&self) -> String {
        let value = self.to_possible_value().expect("no variant is skipped");
        value.get_help().map_or_else(String::new, |help| format!("{help}."))
    }
}

impl<T: ValueEnum> Named for T {}
