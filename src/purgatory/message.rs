//! What purgatories of different cores say to one another.

use super::arena::Id;

#[derive(Debug)]
pub(super) enum Message<K> {
    /// There was an event on a key of yours.
    Event { key: K },
    /// An operation of mine watches a key of yours.
    Watch { key: K, operation: Id },
    /// The watch that your operation asked for is in place.
    Watching { operation: Id, watch: Id },
    /// A watch that you have for an operation of mine is over.
    Leave { watch: Id },
    /// There was an event on a key that your operation watches, by that watch of mine.
    Check { operation: Id, watch: Id },
    /// I have ended, or never was: there will be no event any more on a key of mine that your operation watches.
    Gone { operation: Id },
}

impl<K> Message<K> {
    pub(super) fn is_watch(&self) -> bool {
        matches!(self, Self::Watch { .. })
    }

    /// What its sender is told if this message can reach nobody.
    pub(super) fn answer(&self) -> Option<Self> {
        match *self {
            // The operation has gone with its purgatory.
            Self::Watching { watch, .. } | Self::Check { watch, .. } => Some(Self::Leave { watch }),
            Self::Watch { operation, .. } => Some(Self::Gone { operation }),
            Self::Event { .. } | Self::Leave { .. } | Self::Gone { .. } => None,
        }
    }
}
