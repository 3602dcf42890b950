use std::collections::BTreeMap;
use std::fmt::Write;

const OPERATIONS: &[&str] = &[
    "add",
    "add, an instant",
    "add, slack",
    "add, spread",
    "add_periodic",
    "add_local",
    "try_add",
    "try_add, in a callback",
    "ShardRef::try_add",
    "ShardRef::try_add_periodic",
    "ShardRef::try_run",
    "Shard::add, try_add",
    "Shard::add, an instant",
    "Shard::add, slack",
    "Shard::add, spread",
    "Shard::add_periodic",
    "Shard::try_add, in a pass",
    "cancel",
    "cancel, remote",
    "cancel_wait",
    "cancel_wait, remote",
    "guard dropped",
    "guard dropped, remote",
    "Shard::cancel",
    "reset",
    "reset, remote",
    "Shard::reset",
    "set_period",
    "Shard::set_period",
    "is_pending",
    "is_pending, remote",
    "any, by a stale handle",
    "LocalHandle::share",
    "ReusableTimer::new",
    "ReusableTimer::arm",
    "ReusableTimer::arm, an instant",
    "ReusableTimer::arm, slack",
    "ReusableTimer::arm, spread",
    "ReusableTimer::arm, pending",
    "ReusableTimer::arm, in its callback",
    "ReusableTimer::try_arm",
    "ReusableTimer::try_arm, ended wheel",
    "ReusableTimer::cancel",
    "ReusableTimer::handle",
    "ReusableTimer, by its handle, remote",
    "ReusableTimer dropped",
    "ReusableTimer dropped, in its callback",
    "turn",
    "turn_within",
    "turn_at",
    "Shard::turn",
    "Shard::turn_within",
    "Shard::turn_at",
    "prepare_sleep",
    "next_deadline, time_until_next, counts",
    "time passes",
    "drain",
    "Shard::drain",
    "a shard moves",
];

const FAULTS: &[&str] = &[
    "clock back",
    "clock jumps",
    "clock jumps years",
    "clock stalls",
    "clock blurred",
    "callback panics",
    "destructor panics",
    "wake hook panics",
    "callback stalls",
    "turn in a callback",
    "pass given up",
    "shard full",
    "flood of adds",
    "flood of cancels",
    "flood of resets",
    "shard dropped",
    "thread exits",
];

/// Counts how often each operation and each fault has occurred.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Coverage {
    pub(crate) episodes: u64,
    pub(crate) fired: u64,
    counts: BTreeMap<&'static str, u64>,
}

impl Coverage {
    pub(crate) fn count(&mut self, name: &'static str) {
        debug_assert!(OPERATIONS.contains(&name) || FAULTS.contains(&name), "{name} is not listed");
        *self.counts.entry(name).or_default() += 1;
    }

    pub(crate) fn add_episode(&mut self, other: &Self) {
        self.episodes += 1;
        self.fired += other.fired;
        for (name, count) in &other.counts {
            *self.counts.entry(name).or_default() += count;
        }
    }

    fn count_of(&self, name: &str) -> u64 {
        self.counts.get(name).copied().unwrap_or(0)
    }

    /// Returns the number of operations.
    pub fn operations(&self) -> u64 {
        OPERATIONS.iter().map(|name| self.count_of(name)).sum()
    }

    /// Returns the operations and faults that have never occurred.
    pub fn missing(&self) -> Vec<&'static str> {
        let names = OPERATIONS.iter().chain(FAULTS).copied();
        names.filter(|name| self.count_of(name) == 0).collect()
    }

    /// Returns the totals, and a table of the counts in Markdown.
    pub fn table(&self) -> String {
        let Self { episodes, fired, .. } = self;
        let mut text = format!(
            "{} operations in {episodes} episodes; {fired} timers fired.\n\n\
             | operation or fault | times |\n|---|---|\n",
            self.operations(),
        );
        for name in OPERATIONS.iter().chain(FAULTS) {
            let _ = writeln!(text, "| {name} | {} |", self.count_of(name));
        }
        text
    }
}
