//! The coverage of a simulation: operations, faults, and which operation followed which fault.

use std::fmt::Write;

use crate::plan::CORES;

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

/// An operation counts for a fault if it is among the next sixteen on that core.
const UNDER: u8 = 16;

/// Counts each operation, each fault, and each operation under each fault.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Coverage {
    pub(crate) episodes: u64,
    pub(crate) fired: u64,
    /// Turns that a shard wanted, and in which nothing fired.
    pub(crate) needless: u64,
    /// The sum over all episodes, in nanoseconds.
    pub(crate) virtual_time: u128,
    operations: Counts,
    faults: [u64; FAULTS],
    pairs: [Counts; FAULTS],
    /// The number of operations for which each core is still under each fault.
    left: [[u8; FAULTS]; CORES],
    /// The faults of `left` that are not zero, one bit each.
    active: [u32; CORES],
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Counts([u64; OPERATIONS]);

impl Default for Counts {
    fn default() -> Self {
        Self([0; OPERATIONS])
    }
}

impl Coverage {
    pub(crate) fn operation(&mut self, operation: Operation, core: usize) {
        self.operations.0[operation as usize] += 1;
        let mut active = self.active[core];
        while active != 0 {
            let fault = active.trailing_zeros() as usize;
            active &= active - 1;
            self.pairs[fault].0[operation as usize] += 1;
            self.left[core][fault] -= 1;
            if self.left[core][fault] == 0 {
                self.active[core] &= !(1 << fault);
            }
        }
    }

    pub(crate) fn fault(&mut self, fault: Fault, core: usize) {
        self.faults[fault as usize] += 1;
        self.prolong(fault, core);
    }

    /// Puts the next operations of a core under a fault that it has had.
    pub(crate) fn prolong(&mut self, fault: Fault, core: usize) {
        self.active[core] |= 1 << fault as u32;
        self.left[core][fault as usize] = UNDER;
    }

    /// Adds the counts of another episode.
    pub(crate) fn join(&mut self, other: &Self) {
        let add = |to: &mut [u64], from: &[u64]| {
            to.iter_mut().zip(from).for_each(|(to, from)| *to += from);
        };
        self.episodes += 1;
        self.fired += other.fired;
        self.needless += other.needless;
        self.virtual_time += other.virtual_time;
        add(&mut self.operations.0, &other.operations.0);
        add(&mut self.faults, &other.faults);
        self.pairs.iter_mut().zip(&other.pairs).for_each(|(to, from)| add(&mut to.0, &from.0));
    }

    /// The number of operations.
    pub fn operations(&self) -> u64 {
        self.operations.0.iter().sum()
    }

    /// The virtual time that has passed, in years.
    pub fn years(&self) -> f64 {
        const YEAR: f64 = 365.0 * 86_400e9;
        #[allow(clippy::cast_precision_loss, reason = "years are counted in hundreds")]
        let nanos = self.virtual_time as f64;
        nanos / YEAR
    }

    /// The faults and operations of which the operation has never come under the fault.
    pub fn missing(&self) -> Vec<(&'static str, &'static str)> {
        let pairs = (0..FAULTS).flat_map(|fault| (0..OPERATIONS).map(move |row| (fault, row)));
        pairs
            .filter(|&(fault, row)| self.pairs[fault].0[row] == 0)
            .map(|(fault, row)| (Fault::NAMES[fault], Operation::NAMES[row]))
            .collect()
    }

    /// Returns the table in Markdown: totals, faults, and each operation under each fault.
    pub fn table(&self) -> String {
        let mut text = format!(
            "{} operations over {:.0} virtual years in {} episodes; {} timers fired. {} turns that a \
             shard had asked for found nothing to do.\n\n| | fault | times |\n|---|---|---|\n",
            grouped(self.operations()),
            self.years(),
            grouped(self.episodes),
            grouped(self.fired),
            grouped(self.needless)
        );
        for (fault, name) in Fault::NAMES.iter().enumerate() {
            let _ = writeln!(text, "| {} | {name} | {} |", fault + 1, grouped(self.faults[fault]));
        }
        text.push_str("\n| operation | in all |");
        (1..=FAULTS).for_each(|number| _ = write!(text, " {number} |"));
        let _ = write!(text, "\n|---|---|{}", "---|".repeat(FAULTS));
        for (operation, name) in Operation::NAMES.iter().enumerate() {
            let _ = write!(text, "\n| {name} | {} |", grouped(self.operations.0[operation]));
            self.pairs.iter().for_each(|row| _ = write!(text, " {} |", short(row.0[operation])));
        }
        text.push('\n');
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

/// Writes a number in few characters.
fn short(number: u64) -> String {
    match number {
        0..10_000 => number.to_string(),
        10_000..10_000_000 => format!("{}k", number / 1_000),
        _ => format!("{}M", number / 1_000_000),
    }
}

#[cfg(test)]
mod tests {
    use super::{grouped, short};

    #[test]
    fn numbers_are_readable() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(grouped), ["0", "999", "1 000", "1 234 567"]);
        assert_eq!([0, 9_999, 10_000, 12_345_678].map(short), ["0", "9999", "10k", "12M"]);
    }
}
