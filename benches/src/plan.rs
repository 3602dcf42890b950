//! Who is measured, in what, and what cannot be measured.

mod field;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::cores;

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, ValueEnum, Serialize, Deserialize)]
pub enum Peer {
    /// The wheel alone.
    CorewheelWheel,
    /// One core's engine, payloads by value.
    CorewheelShard,
    /// `local_timer()`, callbacks.
    CorewheelLocal,
    /// The same with the fast clock.
    CorewheelLocalFast,
    /// `future::Timers`, one thread of timers for each worker of the runtime.
    CorewheelTimers,
    /// The least a handle needs.
    Floor,
    /// The same with a compare-and-swap.
    FloorCas,
    /// Linked lists, 64 slots a level.
    Linked64,
    /// One level of 65 536 slots.
    Single65536,
    /// 4-ary heap with positions.
    Heap4,
    /// `BinaryHeap`, cancelled entries stay.
    BinaryHeap,
    /// `BTreeMap` by deadline.
    #[value(name = "btree")]
    BTree,
    /// The crate of this name, its cancellable wheel.
    HierarchicalHashWheel,
    /// tokio-util's `DelayQueue`.
    DelayQueue,
    /// tokio's `Sleep`, current-thread runtime.
    TokioSleep,
    /// tokio's `Sleep`, multi-thread runtime with one worker.
    TokioThreads,
    /// The same with tokio's alternative timer.
    TokioAlt,
    /// The crate of this name, on tokio's multi-thread runtime.
    PingoraTimeout,
    /// The wheel behind the standard library's lock, for two cores.
    MutexStd,
    /// The same behind `parking_lot`'s.
    MutexParkingLot,
    /// `linked64` behind that one.
    MutexLinked64,
    /// The wheel, asked by a channel: who asks gets no answer.
    Channel,
    /// Mailbox: corewheel's, a stack through the nodes, all taken at once and met along two chains.
    Stack,
    /// Mailbox: the same with one chain.
    StackChain,
    /// Mailbox: that, taken one at a time.
    StackSingle,
    /// Mailbox: Vyukov's queue through the nodes.
    SwapQueue,
    /// Mailbox: `crossbeam_queue::SegQueue`.
    SegQueue,
    /// Mailbox: `crossbeam_queue::ArrayQueue`.
    ArrayQueue,
    /// Mailbox: `std::sync::mpsc`.
    StdMpsc,
    /// Mailbox: a ring of one sender (`rtrb`).
    Ring,
}

/// What they are compared in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, ValueEnum)]
pub enum Workload {
    /// Cancel a random timer and add one, delays of 1 to 60 s.
    Churn,
    /// The same, every delay 30 s.
    Churn30,
    /// Add over 60 s, let all fire.
    Drain,
    /// Move a random timer to 30 s from now.
    Reset,
    /// Timers that re-add themselves when they fire.
    Steady,
    /// How long a single turn takes.
    Pause,
    /// Ticks in which nothing is due.
    Idle,
    /// Bytes per timer, left, grown; allocations.
    Memory,
    /// Add and cancel by the machine's clock.
    Call,
    /// Tasks that wrap one short operation after the other in a timeout.
    Async,
    /// Delayed operations, by how many cores take part.
    Purgatory,
    /// How late timers fire by the machine's clock.
    Late,
    /// What a loop saves when timers may fire somewhat later.
    Within,
    /// What a loop is spared when timers that come together do not fire together.
    Spread,
    /// Timers that another core cancels: from being added to being taken in, and the call alone.
    Xcancel,
    /// Timers, other deadlines and callbacks that another core asks for: what a request costs both, and the call alone.
    Asked,
    /// How late timers fire while another core cancels a million others.
    Flood,
    /// What a message to another core costs, by what it travels through.
    Mailbox,
    /// What a second core adds where nothing crosses cores, beside what the machine lets it add.
    Scaling,
}

/// One kind of run. A workload has one or more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, ValueEnum, Serialize, Deserialize)]
pub enum Pass {
    /// ns per pair.
    Churn,
    /// The longest pair.
    ChurnLongest,
    /// ns per pair.
    Churn30,
    /// ns per timer added, and fired.
    Drain,
    /// ns per reset.
    Reset,
    /// ns per timer fired and added.
    Steady,
    /// Tick by tick.
    Pause,
    /// All due in one tick.
    PauseAllDue,
    /// All moved before.
    PauseAfterReset,
    /// After 10 s without a turn.
    PauseAfterSleep,
    /// Ticks with timers.
    Idle,
    /// An hour without.
    IdleHour,
    /// Live, and left.
    Memory,
    /// Growth.
    MemoryChurn,
    /// In the steady state.
    Allocations,
    /// ns per pair.
    Call,
    /// What a timeout costs whose operation is not ready at once.
    Async,
    /// The same of one that is.
    AsyncReady,
    /// Lateness of timeouts that end.
    AsyncLate,
    /// Delayed operations a second, and the time that the threads ran for one.
    Purgatory,
    /// Lateness at a tick of 1 ms, or the peer's own.
    Late,
    /// Lateness at a tick of 50 us.
    #[value(name = "late-50us")]
    LateFine,
    /// Turns for one timer in an hour.
    IdleWakeUps,
    /// Wake-ups per second, by slack.
    Within,
    /// Timers per tick, by range.
    Spread,
    /// ns per timer, and per call that cancels it; one core adds, the other cancels.
    Xcancel,
    /// The same, both cores do both.
    XcancelBoth,
    /// ns per request, and per call; by how many are asked before they are taken in.
    Asked,
    /// Lateness, by what happens beside.
    Flood,
    /// ns per message sent, and taken.
    Mailbox,
    /// Two cores against one, for the peer and for an array; the first by the second.
    Scaling,
}

impl Peer {
    /// Its name in tables.
    pub fn name(self) -> String {
        value_name(&self)
    }

    /// Whether it is one of ours.
    pub fn is_corewheel(self) -> bool {
        let one_core =
            matches!(self, Self::CorewheelWheel | Self::CorewheelShard | Self::CorewheelLocal);
        one_core || matches!(self, Self::CorewheelLocalFast | Self::CorewheelTimers | Self::Stack)
    }

    /// Any delay, exact, cancelled with an answer by a handle that survives the reuse of what it names; or a mailbox for any
    /// number of senders. And not corewheel, nor a part of it.
    pub fn is_complete(self) -> bool {
        let partial = matches!(
            self,
            Self::Floor
                | Self::FloorCas
                | Self::Single65536
                | Self::DelayQueue
                | Self::Channel
                | Self::StackChain
                | Self::StackSingle
                | Self::Ring
        );
        !partial && !self.is_corewheel()
    }

    /// The floor that one of our layers is held against.
    pub fn floor(self, pass: Pass) -> Option<Self> {
        match self {
            _ if pass.crosses_cores() => self.is_corewheel().then_some(Self::Floor),
            Self::Stack => Some(Self::Ring),
            Self::CorewheelWheel => Some(Self::Floor),
            Self::CorewheelShard | Self::CorewheelLocal => Some(Self::FloorCas),
            _ => None,
        }
    }

    fn is_floor(self) -> bool {
        matches!(self, Self::Floor | Self::FloorCas)
    }

    /// Whether its time can be told to move.
    pub fn has_virtual_time(self) -> bool {
        !matches!(self, Self::TokioThreads | Self::TokioAlt)
    }

    fn is_asked_when_to_wake(self) -> bool {
        self.is_corewheel() || matches!(self, Self::Linked64 | Self::BTree)
    }

    fn has_delayed_operations(self) -> bool {
        matches!(self, Self::CorewheelLocal | Self::Linked64 | Self::BTree)
    }

    fn has_a_clock(self) -> bool {
        let tokio = matches!(
            self,
            Self::DelayQueue | Self::TokioSleep | Self::TokioThreads | Self::TokioAlt
        );
        tokio || matches!(self, Self::CorewheelLocal | Self::CorewheelLocalFast)
    }

    /// Why it is not measured in a pass.
    pub fn refusal(self, pass: Pass) -> Option<&'static str> {
        let paused = matches!(
            self,
            Self::CorewheelWheel
                | Self::CorewheelShard
                | Self::CorewheelLocal
                | Self::Linked64
                | Self::BinaryHeap
                | Self::BTree
                | Self::DelayQueue
        );
        let reason = match pass {
            _ if pass.needs_two_cores() && cores::count() < 2 => "there is one core",
            _ if self == Self::TokioAlt && !cfg!(tokio_unstable) => {
                "built without --cfg tokio_unstable"
            }
            Pass::Call if !self.has_a_clock() => "reads no clock",
            Pass::Purgatory if !self.has_delayed_operations() => "has no delayed operations",
            Pass::Late if !self.has_a_clock() && self != Self::BTree => "has no loop that sleeps",
            _ if self == Self::CorewheelLocalFast && pass.runs_in_virtual_time() => {
                "in virtual time it is corewheel-local"
            }
            Pass::LateFine if !matches!(self, Self::CorewheelLocal | Self::CorewheelLocalFast) => {
                "has no such tick"
            }
            Pass::IdleWakeUps if self != Self::CorewheelShard => "is not asked",
            Pass::Flood if matches!(self, Self::CorewheelShard | Self::CorewheelLocalFast) => {
                "corewheel-local stands for it"
            }
            Pass::Scaling if self.is_floor() => "is what the others are held against",
            Pass::Scaling if !self.is_corewheel() && self != Self::Linked64 => {
                "left out to save time"
            }
            Pass::Within | Pass::Spread if !self.is_asked_when_to_wake() => "left out to save time",
            Pass::Spread if self == Self::CorewheelWheel => "leaves that to its caller",
            Pass::Allocations if !self.is_corewheel() => "counted for corewheel",
            _ if !self.has_virtual_time() && pass.waits_in_virtual_time() => {
                "no virtual time in this runtime"
            }
            _ if self.is_floor() && pass.fires() => "never fires",
            _ if self == Self::Single65536 && pass.reaches_far() => {
                "has no place for delays above 65 s"
            }
            _ if !paused && pass.is_pause() => "left out to save time",
            _ => return None,
        };
        Some(reason)
    }
}

impl Workload {
    /// Its kinds of runs.
    pub fn passes(self) -> &'static [Pass] {
        match self {
            Self::Churn => &[Pass::Churn, Pass::ChurnLongest],
            Self::Churn30 => &[Pass::Churn30],
            Self::Drain => &[Pass::Drain],
            Self::Reset => &[Pass::Reset],
            Self::Steady => &[Pass::Steady],
            Self::Pause => {
                &[Pass::Pause, Pass::PauseAllDue, Pass::PauseAfterReset, Pass::PauseAfterSleep]
            }
            Self::Idle => &[Pass::Idle, Pass::IdleHour],
            Self::Memory => &[Pass::Memory, Pass::MemoryChurn, Pass::Allocations],
            Self::Call => &[Pass::Call],
            Self::Async => &[Pass::Async, Pass::AsyncReady, Pass::AsyncLate],
            Self::Purgatory => &[Pass::Purgatory],
            Self::Late => &[Pass::Late, Pass::LateFine, Pass::IdleWakeUps],
            Self::Within => &[Pass::Within],
            Self::Spread => &[Pass::Spread],
            Self::Xcancel => &[Pass::Xcancel, Pass::XcancelBoth],
            Self::Asked => &[Pass::Asked],
            Self::Flood => &[Pass::Flood],
            Self::Mailbox => &[Pass::Mailbox],
            Self::Scaling => &[Pass::Scaling],
        }
    }
}

impl Pass {
    /// Its name in tables.
    pub fn name(self) -> String {
        value_name(&self)
    }

    /// How many timers are live in it.
    pub fn sizes(self, quick: bool) -> &'static [usize] {
        match self {
            Self::IdleHour => &[0],
            Self::IdleWakeUps => &[1],
            Self::Late | Self::LateFine | Self::AsyncLate if quick => &[4000],
            Self::Late | Self::LateFine | Self::AsyncLate => &[10_000],
            Self::Memory if quick => &[100_000],
            Self::Within | Self::Spread => &[100_000],
            Self::Flood if quick => &[200_000],
            Self::Flood => &[1_000_000],
            Self::Xcancel | Self::XcancelBoth | Self::Scaling => &[1000, 100_000, 1_000_000],
            Self::Mailbox | Self::MemoryChurn => &[1000, 100_000],
            // Requests.
            Self::Asked => &[1, 64, 1000],
            // Tasks, and keys.
            Self::Async | Self::AsyncReady | Self::Purgatory => &[1000],
            Self::Memory
            | Self::Pause
            | Self::PauseAllDue
            | Self::PauseAfterReset
            | Self::PauseAfterSleep => &[1_000_000],
            _ => &[1000, 10_000, 100_000, 1_000_000],
        }
    }

    /// Whether it has figures of several kinds for one number of timers, which then stand side by side.
    pub fn is_profile(self) -> bool {
        self.sizes(false).len() == 1
    }

    /// What is done with peers that have no budgets, slack or spreading, where corewheel is asked for it.
    pub fn instead(self) -> Option<&'static str> {
        match self {
            Self::PauseAllDue | Self::PauseAfterSleep => Some("Without a budget, all at once"),
            Self::Purgatory => Some("With a map of watch lists, all behind one lock"),
            Self::Within => Some("The caller rounds the deadlines"),
            Self::Spread => Some("The caller draws the deadlines at random"),
            _ => None,
        }
    }

    /// What its sizes are numbers of.
    pub fn counted(self) -> &'static str {
        match self {
            Self::Async | Self::AsyncReady | Self::AsyncLate => "tasks",
            Self::Purgatory => "keys",
            _ => "timers",
        }
    }

    /// Whether time is told to move in it.
    pub fn runs_in_virtual_time(self) -> bool {
        let by_the_clock =
            matches!(self, Self::Call | Self::Late | Self::LateFine) || self.is_about_futures();
        !by_the_clock && !self.crosses_cores() && self != Self::Asked
    }

    /// Whether there is more to it than operations that nobody waits for.
    fn waits_in_virtual_time(self) -> bool {
        let operations =
            matches!(self, Self::Churn | Self::ChurnLongest | Self::Churn30 | Self::Reset);
        self.runs_in_virtual_time() && !operations
    }

    fn is_pause(self) -> bool {
        matches!(
            self,
            Self::Pause | Self::PauseAllDue | Self::PauseAfterReset | Self::PauseAfterSleep
        )
    }

    /// Whether it is about what fires, or does not in time.
    fn fires(self) -> bool {
        self.is_pause() || matches!(self, Self::Steady | Self::Idle | Self::IdleHour | Self::Flood)
    }

    fn reaches_far(self) -> bool {
        self.is_pause() || self == Self::Idle
    }

    /// How often it is repeated for each peer.
    pub fn rounds(self, n: usize, quick: bool) -> usize {
        match self {
            // Bytes and counts do not scatter.
            Self::Memory | Self::MemoryChurn | Self::Allocations | Self::IdleWakeUps => 1,
            _ if !quick => 5,
            Self::Late | Self::LateFine | Self::ChurnLongest | Self::Flood => 1,
            _ if self.is_about_futures() || n >= 100_000 => 1,
            _ => 3,
        }
    }
}

/// One run: a process of its own, so that each has the same fresh heap and clock.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Job {
    /// Who.
    pub peer: Peer,
    /// What.
    pub pass: Pass,
    /// With how many timers.
    pub n: usize,
    /// With less of everything.
    pub quick: bool,
}

fn value_name(value: &impl ValueEnum) -> String {
    value.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}
