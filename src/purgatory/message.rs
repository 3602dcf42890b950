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
}

impl<K> Message<K> {
    pub(super) fn is_watch(&self) -> bool {
        matches!(self, Self::Watch { .. })
    }

    /// The watch, and its core, that is nobody's if this message can reach nobody: its operation has gone with its purgatory.
    pub(super) fn orphan(&self) -> Option<(u32, Id)> {
        match *self {
            Self::Watching { core, watch, .. } | Self::Check { core, watch, .. } => Some((core, watch)),
            Self::Event { .. } | Self::Watch { .. } | Self::Leave { .. } => None,
        }
    }
}
