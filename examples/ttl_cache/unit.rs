//! How a client says when a key shall go.

use crate::moment::{Clock, Moment};
use crate::reply::{NO_INTEGER, Refused};
use crate::resp;

/// How a deadline is given.
#[derive(Clone, Copy)]
pub(crate) enum Unit {
    Seconds,
    Millis,
    UnixSeconds,
    UnixMillis,
}

impl Unit {
    pub(crate) fn of(word: &[u8]) -> Option<Self> {
        let units: [(&[u8], Self); 4] = [
            (b"ex", Self::Seconds),
            (b"px", Self::Millis),
            (b"exat", Self::UnixSeconds),
            (b"pxat", Self::UnixMillis),
        ];
        units.into_iter().find(|(name, _)| word.eq_ignore_ascii_case(name)).map(|(_, unit)| unit)
    }

    /// `None` if it is too far away.
    pub(crate) fn moment(self, number: i64, clock: Clock) -> Option<Moment> {
        match self {
            Self::Seconds => clock.after(number.checked_mul(1_000)?),
            Self::Millis => clock.after(number),
            Self::UnixSeconds => Moment::of_unix_millis(number.checked_mul(1_000)?),
            Self::UnixMillis => Moment::of_unix_millis(number),
        }
    }

    /// The deadline that a word gives a key with its value: there must be some time left by its sign.
    pub(crate) fn positive(
        self,
        word: &[u8],
        clock: Clock,
        command: &'static str,
    ) -> Result<Moment, Refused> {
        let number = resp::number(word).ok_or(NO_INTEGER)?;
        let moment = if number > 0 { self.moment(number, clock) } else { None };
        moment.ok_or(Refused::BadDeadline(command))
    }
}
