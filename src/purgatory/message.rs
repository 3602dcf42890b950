//! What purgatories of different cores say to one another.

use super::arena::Id;

#[derive(Debug)]
pub(super) enum Message<K> {
    /// There was an event on a key of yours.
    Event { key: K },
    /// An operation of that core watches a key of yours.
    Watch { key: K, core: u32, operation: Id },
    /// The watch that your operation asked for is in place at that core.
    Watching { operation: Id, core: u32, watch: Id },
    /// A watch that you have for an operation of mine is over.
    Leave { watch: Id },
    /// There was an event on a key that your operation watches, by that watch at that core.
    Check { operation: Id, core: u32, watch: Id },
    /// The core of a key that your operation watches has ended, or never was: there will be no event on that key any more.
    Gone { operation: Id },
}

impl<K> Message<K> {
    pub(super) fn is_watch(&self) -> bool {
        matches!(self, Self::Watch { .. })
    }

    /// What its sender, a core, is told if this message can reach nobody.
    pub(super) fn answer(&self) -> Option<(u32, Self)> {
        match *self {
            // The operation has gone with its purgatory.
            Self::Watching { core, watch, .. } | Self::Check { core, watch, .. } => {
                Some((core, Self::Leave { watch }))
            }
            Self::Watch { core, operation, .. } => Some((core, Self::Gone { operation })),
            Self::Event { .. } | Self::Leave { .. } | Self::Gone { .. } => None,
        }
    }
}
