//! The coverage of a simulation: operations and faults.

use std::fmt::Write;

/// An enum of things to count, with their names in the tables.
macro_rules! named {
    ($(#[$doc:meta])* $kind:ident { $($name:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum $kind { $($name,)* }

        impl $kind {
            const NAMES: &[&str] = &[$($text,)*];
        }
    };
}

named! {
    /// A call of the library.
    Operation {
        Add = "add",
        AddAt = "add, an instant",
        AddWithin = "add, slack",
        AddSpread = "add, spread",
        AddPeriodic = "add_periodic",
        AddLocal = "add_local",
        TryAdd = "try_add",
        AddInCallback = "try_add, in a callback",
        AddRemote = "ShardRef::try_add",
        AddPeriodicRemote = "ShardRef::try_add_periodic",
        Run = "ShardRef::try_run",
        ShardAdd = "Shard::add, try_add",
        ShardAddAt = "Shard::add, an instant",
        ShardAddWithin = "Shard::add, slack",
        ShardAddSpread = "Shard::add, spread",
        ShardAddPeriodic = "Shard::add_periodic",
        ShardAddInPass = "Shard::try_add, in a pass",
        Cancel = "cancel",
        CancelRemote = "cancel, remote",
        CancelWait = "cancel_wait",
        CancelWaitRemote = "cancel_wait, remote",
        Guard = "guard dropped",
        GuardRemote = "guard dropped, remote",
        ShardCancel = "Shard::cancel",
        Reset = "reset",
        ResetRemote = "reset, remote",
        ShardReset = "Shard::reset",
        SetPeriod = "set_period",
        ShardSetPeriod = "Shard::set_period",
        IsPending = "is_pending",
        IsPendingRemote = "is_pending, remote",
        StaleHandle = "any, by a stale handle",
        Share = "LocalHandle::share",
        Turn = "turn",
        TurnWithin = "turn_within",
        ShardTurn = "Shard::turn",
        ShardTurnWithin = "Shard::turn_within",
        PrepareSleep = "prepare_sleep",
        Inspect = "next_deadline, time_until_next, counts",
        TimePasses = "time passes",
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

/// Counts each operation and each fault.
#[derive(Clone, Debug, PartialEq)]
pub struct Coverage {
    pub(crate) episodes: u64,
    pub(crate) fired: u64,
    /// Turns that a shard wanted, and in which nothing fired.
    pub(crate) needless: u64,
    /// The sum over all episodes, in nanoseconds.
    pub(crate) virtual_time: u128,
    operations: [u64; OPERATIONS],
    faults: [u64; FAULTS],
}

impl Default for Coverage {
    fn default() -> Self {
        let (operations, faults) = ([0; OPERATIONS], [0; FAULTS]);
        Self { episodes: 0, fired: 0, needless: 0, virtual_time: 0, operations, faults }
    }
}

impl Coverage {
    pub(crate) fn operation(&mut self, operation: Operation) {
        self.operations[operation as usize] += 1;
    }

    pub(crate) fn fault(&mut self, fault: Fault) {
        self.faults[fault as usize] += 1;
    }

    /// Adds the counts of another episode.
    pub(crate) fn join(&mut self, other: &Self) {
        self.episodes += 1;
        self.fired += other.fired;
        self.needless += other.needless;
        self.virtual_time += other.virtual_time;
        let to = self.operations.iter_mut().chain(&mut self.faults);
        to.zip(other.operations.iter().chain(&other.faults)).for_each(|(to, from)| *to += from);
    }

    /// The number of operations.
    pub fn operations(&self) -> u64 {
        self.operations.iter().sum()
    }

    /// The virtual time that has passed, in years.
    pub fn years(&self) -> f64 {
        const YEAR: f64 = 365.0 * 86_400e9;
        #[allow(clippy::cast_precision_loss, reason = "years are counted in hundreds")]
        let nanos = self.virtual_time as f64;
        nanos / YEAR
    }

    /// Each operation and each fault with its count.
    fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let names = Operation::NAMES.iter().chain(Fault::NAMES).copied();
        names.zip(self.operations.iter().chain(&self.faults).copied())
    }

    /// The operations and faults that have never occurred.
    pub fn missing(&self) -> Vec<&'static str> {
        self.counts().filter(|&(_, count)| count == 0).map(|(name, _)| name).collect()
    }

    /// Returns the totals, and a table of the counts in Markdown.
    pub fn table(&self) -> String {
        let mut text = format!(
            "{} operations over {:.0} virtual years in {} episodes; {} timers fired. {} turns that a \
             shard had asked for found nothing to do.\n\n| operation or fault | times |\n|---|---|\n",
            grouped(self.operations()),
            self.years(),
            grouped(self.episodes),
            grouped(self.fired),
            grouped(self.needless)
        );
        for (name, count) in self.counts() {
            let _ = writeln!(text, "| {name} | {} |", grouped(count));
        }
        text
    }
}

/// Writes a number with a space between thousands.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::grouped;

    #[test]
    fn numbers_are_readable() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(grouped), ["0", "999", "1 000", "1 234 567"]);
    }
}
