//! Bugs on purpose, between the simulator and the library: the simulation must find them.

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// Of some timers, what a cancel is told is right, and the cancel never comes to the library.
    LosesCancels,
    /// The payloads of some timers that fired are kept for ever.
    KeepsPayloads,
    /// The model takes every turn to be some ticks later than it is.
    LateTurns,
}
