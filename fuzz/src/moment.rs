//! Numbers that are interesting as times, drawn from the input.

use arbitrary::Arbitrary;

/// A time as seen from another one, or a length of time.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub enum Moment {
    /// So long after the present.
    Near(u8),
    Later(u16),
    /// So long before it.
    Past(u8),
    /// The start of a slot of so many bits, so many slots on, and a little before or after.
    Boundary {
        bits: u8,
        slots: u8,
        aside: i8,
    },
    /// Anything.
    At(u64),
}

impl Moment {
    /// The moment, seen from `now`.
    pub(crate) fn from(self, now: u64) -> u64 {
        match self {
            Self::Near(by) => now.saturating_add(by.into()),
            Self::Later(by) => now.saturating_add(by.into()),
            Self::Past(by) => now.saturating_sub(by.into()),
            Self::Boundary { bits, slots, aside } => {
                let bits = u32::from(bits) % 64;
                let start = (now >> bits).saturating_add(slots.into()).saturating_mul(1 << bits);
                start.saturating_add_signed((aside % 2).into())
            }
            Self::At(moment) => moment,
        }
    }

    /// As a length of time: seen from zero.
    pub(crate) fn length(self) -> u64 {
        self.from(0)
    }
}
