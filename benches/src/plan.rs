//! Who is measured, in what, and what cannot be measured.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, ValueEnum, Serialize, Deserialize)]
pub enum Peer {
    /// The wheel alone.
    CorewheelWheel,
    /// One core's engine, payloads by value.
    CorewheelShard,
    /// `local_timer()`, callbacks.
    CorewheelLocal,
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
    /// How late timers fire by the machine's clock.
    Late,
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
    /// Ticks with timers.
    Idle,
    /// An hour without.
    IdleHour,
}

impl Peer {
    /// Its name in tables.
    pub fn name(self) -> String {
        value_name(self)
    }

    /// Whether it is one of ours.
    pub fn is_corewheel(self) -> bool {
        matches!(self, Self::CorewheelWheel | Self::CorewheelShard | Self::CorewheelLocal)
    }

    /// Any delay, exact, and cancelled by a handle that survives the reuse of what it names; and not corewheel.
    pub fn is_complete(self) -> bool {
        let partial = matches!(self, Self::Floor | Self::FloorCas | Self::Single65536 | Self::DelayQueue);
        !partial && !self.is_corewheel()
    }

    /// The floor that one of our layers is held against.
    pub fn floor(self) -> Option<Self> {
        match self {
            Self::CorewheelWheel => Some(Self::Floor),
            Self::CorewheelShard | Self::CorewheelLocal => Some(Self::FloorCas),
            _ => None,
        }
    }

    /// Why it is not measured in a pass.
    pub fn refusal(self, pass: Pass) -> Option<&'static str> {
        match (self, pass) {
            (Self::TokioThreads | Self::TokioAlt | Self::TokioSleep | Self::DelayQueue | Self::HierarchicalHashWheel, _) => Some("to come"),
            (Self::Floor | Self::FloorCas, Pass::Steady | Pass::Idle | Pass::IdleHour) => Some("never fires"),
            (Self::Single65536, Pass::Idle) => Some("no delay of an hour"),
            (Self::TokioThreads | Self::TokioAlt, _) if !pass.runs_in_real_time() => {
                Some("no virtual time in this runtime")
            }
            #[cfg(not(tokio_unstable))]
            (Self::TokioAlt, _) => Some("built without --cfg tokio_unstable"),
            _ => None,
        }
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
            Self::Idle => &[Pass::Idle, Pass::IdleHour],
            Self::Pause | Self::Memory | Self::Call | Self::Late => &[],
        }
    }
}

impl Pass {
    /// Its name in tables.
    pub fn name(self) -> String {
        value_name(self)
    }

    /// How many timers are live in it.
    pub fn sizes(self) -> &'static [usize] {
        match self {
            Self::IdleHour => &[0],
            _ => &[1000, 10_000, 100_000, 1_000_000],
        }
    }

    /// How often it is repeated for each peer.
    pub fn rounds(self, n: usize, quick: bool) -> usize {
        match n {
            _ if !quick => 5,
            1_000_000 => 1,
            _ => 3,
        }
    }

    /// Whether peers without virtual time can take part: nobody waits for a timer in it.
    fn runs_in_real_time(self) -> bool {
        matches!(self, Self::Churn | Self::ChurnLongest | Self::Churn30 | Self::Reset)
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

fn value_name(value: impl ValueEnum) -> String {
    value.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}
