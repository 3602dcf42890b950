//! What a simulation has done: operations, faults, and which came right after which.

use crate::plan::CORES;

/// An enum of things to be counted, with their names.
macro_rules! named {
    ($(#[$doc:meta])* $kind:ident { $($name:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum $kind { $($name,)* }

        impl $kind {
            pub(crate) const NAMES: &[&str] = &[$($text,)*];
        }
    };
}

named! {
    /// What is asked of the library.
    Operation {
        Add = "add",
        AddAt = "add_at",
        AddWithin = "add_within",
        AddSpread = "add_spread",
        AddPeriodic = "add_periodic",
        AddLocal = "add_local",
        TryAdd = "try_add",
        AddInCallback = "try_add, in a callback",
        AddElsewhere = "ShardRef::try_add",
        Run = "ShardRef::try_run",
        ShardAdd = "Shard::add, try_add",
        ShardAddAt = "Shard::add_at",
        ShardAddWithin = "Shard::add_within",
        ShardAddSpread = "Shard::add_spread",
        ShardAddInPass = "Shard::try_add, in a pass",
        Cancel = "cancel",
        CancelElsewhere = "cancel, from elsewhere",
        CancelWait = "cancel_wait",
        CancelWaitElsewhere = "cancel_wait, from elsewhere",
        Guard = "guard dropped",
        GuardElsewhere = "guard dropped, elsewhere",
        ShardCancel = "Shard::cancel",
        Reset = "reset",
        ResetElsewhere = "reset, from elsewhere",
        ShardReset = "Shard::reset",
        IsPending = "is_pending",
        IsPendingElsewhere = "is_pending, from elsewhere",
        StaleHandle = "any, by a stale handle",
        Share = "LocalHandle::share",
        Turn = "turn",
        TurnWithin = "turn_within",
        ShardTurn = "Shard::turn",
        ShardTurnWithin = "Shard::turn_within",
        PrepareSleep = "prepare_sleep",
        NextDeadline = "next_deadline",
        TimeUntilNext = "time_until_next",
        Counts = "counts",
        TimePasses = "time passes",
        Watch = "Purgatory: add",
        Event = "Purgatory: event",
        Force = "Purgatory: force",
        HandBack = "Purgatory: hand back",
        Drain = "Shard::drain",
        Exchange = "a shard moves",
    }
}

named! {
    /// What goes wrong.
    Fault {
        ClockBack = "clock back",
        ClockJump = "clock jumps",
        ClockYears = "clock jumps years",
        ClockStall = "clock stalls",
        CallbackPanic = "callback panics",
        DropPanic = "destructor panics",
        WakePanic = "wake hook panics",
        Pause = "callback stalls",
        NestedTurn = "turn in a callback",
        PassGivenUp = "pass given up",
        Full = "shard full",
        AddFlood = "flood of adds",
        CancelFlood = "flood of cancels",
        ResetFlood = "flood of resets",
        ShardDropped = "shard dropped",
        ThreadExit = "thread exits",
    }
}

const OPERATIONS: usize = Operation::NAMES.len();
const FAULTS: usize = Fault::NAMES.len();

/// An operation is under a fault if it is among so many that come on the same core right after it.
const UNDER: u8 = 16;

/// How often each has come, and each operation under each fault.
#[derive(Clone, Debug)]
pub struct Coverage {
    pub(crate) episodes: u64,
    pub(crate) fired: u64,
    /// Turns that a shard wanted, and in which nothing fired.
    pub(crate) needless: u64,
    /// Of all episodes, in nanoseconds.
    pub(crate) virtual_time: u128,
    pub(crate) operations: [u64; OPERATIONS],
    pub(crate) faults: [u64; FAULTS],
    pub(crate) pairs: [[u64; OPERATIONS]; FAULTS],
    /// The faults that each core is under, a bit each, and for how many operations still.
    active: [u32; CORES],
    left: [[u8; FAULTS]; CORES],
}

impl Default for Coverage {
    fn default() -> Self {
        Self {
            episodes: 0,
            fired: 0,
            needless: 0,
            virtual_time: 0,
            operations: [0; OPERATIONS],
            faults: [0; FAULTS],
            pairs: [[0; OPERATIONS]; FAULTS],
            active: [0; CORES],
            left: [[0; FAULTS]; CORES],
        }
    }
}

impl Coverage {
    pub(crate) fn operation(&mut self, operation: Operation, core: usize) {
        self.operations[operation as usize] += 1;
        let mut active = self.active[core];
        while active != 0 {
            let fault = active.trailing_zeros() as usize;
            active &= active - 1;
            self.pairs[fault][operation as usize] += 1;
            self.left[core][fault] -= 1;
            if self.left[core][fault] == 0 {
                self.active[core] &= !(1 << fault);
            }
        }
    }

    pub(crate) fn fault(&mut self, fault: Fault, core: usize) {
        self.faults[fault as usize] += 1;
        self.fault_goes_on(fault, core);
    }

    /// The next operations are under it as well.
    pub(crate) fn fault_goes_on(&mut self, fault: Fault, core: usize) {
        self.active[core] |= 1 << fault as u32;
        self.left[core][fault as usize] = UNDER;
    }

    /// Adds what another episode has done.
    pub(crate) fn join(&mut self, other: &Self) {
        let add = |to: &mut [u64], from: &[u64]| {
            to.iter_mut().zip(from).for_each(|(to, from)| *to += from)
        };
        self.episodes += 1;
        self.fired += other.fired;
        self.needless += other.needless;
        self.virtual_time += other.virtual_time;
        add(&mut self.operations, &other.operations);
        add(&mut self.faults, &other.faults);
        self.pairs.iter_mut().zip(&other.pairs).for_each(|(to, from)| add(to, from));
    }

    /// Operations in all.
    pub fn operations(&self) -> u64 {
        self.operations.iter().sum()
    }

    /// In years of virtual time.
    pub fn years(&self) -> f64 {
        const YEAR: f64 = 365.0 * 86_400e9;
        #[allow(clippy::cast_precision_loss, reason = "years are counted in hundreds")]
        let nanos = self.virtual_time as f64;
        nanos / YEAR
    }

    /// The pairs of which the operation has never come under the fault.
    pub fn missing(&self) -> Vec<(&'static str, &'static str)> {
        let row = |(fault, row): (usize, &[u64; OPERATIONS])| {
            let missing =
                (0..OPERATIONS).filter(|&operation| row[operation] == 0).collect::<Vec<_>>();
            missing
                .into_iter()
                .map(move |operation| (Fault::NAMES[fault], Operation::NAMES[operation]))
        };
        self.pairs.iter().enumerate().flat_map(row).collect()
    }

    /// How often the rarest fault has come.
    pub fn rarest_fault(&self) -> (&'static str, u64) {
        let rarest = (0..FAULTS).min_by_key(|&fault| self.faults[fault]).unwrap_or(0);
        (Fault::NAMES[rarest], self.faults[rarest])
    }
}
