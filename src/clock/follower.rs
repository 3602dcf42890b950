//! The machine's clock, followed by a counter: between two looks at the clock, where it must be by the counter.
//!
//! Pure arithmetic: what the counter and the clock show comes from outside, so tests can make it up.
//!
//! # Why an interval holds the truth
//!
//! An *anchor* is a reading of the clock between two readings of the counter. If the clock runs at least at `slow` and at
//! most at `quick` nanoseconds a count, then `count - after` counts at `slow` and `count - before` counts at `quick` enclose what
//! has passed since the anchor. Both are the measured rate with a wide margin: the kernel may have been steering
//! its clock when that was measured, and may be now, by at most 11 % either way (Linux bounds it so, and a time daemon
//! that corrects a large offset does use 8 %). 1.11 / 0.89 is below 5/4, and 0.89 / 1.11 above 3/4. What that lacks in
//! precision a short window gives back: a quarter of 13 us is little more than 3 us.
//!
//! # What a counter that lies can do
//!
//! Only a count between the last one and the end of the window is believed; otherwise the clock itself is read. So `lo` is
//! never ahead of the clock by more than a window, whatever the counter does: a jump ahead ends the window. `hi` can fall
//! behind only if the counter stands still or goes back and then stays within the window unnoticed. A count
//! that repeats is not believed, and each new anchor is checked against the last: if the counter lied, it counts as a
//! fault, and the rate is learned again; after the eighth fault the counter is given up.

use super::Reading;

/// How long an anchor is used, by the quicker rate. An interval is then at most 10 us wide: two fifths of this, an eighth
/// for the bracket, and the slack. A reading of the clock every 13 us or so is half a percent of a core.
const WINDOW_NANOS: u64 = 16_000;

/// Added to `hi` for what the counter may have been read too early: the processor may read it while it waits for memory
/// that comes before it in the program, for less than a microsecond.
const SLACK_NANOS: u64 = 1_000;

/// An anchor whose counter readings are further apart than this part of a window (the thread was interrupted between
/// them) is not used.
const BRACKET_SHARE: u64 = 8;

/// A rate is measured over a span this long, in nanoseconds: longer than all error, and short enough for the arithmetic.
const LESSON_MIN: u64 = 1_000_000;
const LESSON_MAX: u64 = 1_000_000_000;

/// Two lessons must agree to one part in this many.
const AGREEMENT: u64 = 64;

/// The fault at which the counter is given up, if each came within a minute of the one before.
const FAULTS_MAX: u32 = 8;
const PARDON_NANOS: u64 = 60_000_000_000;

/// A reading of the clock between two of the counter.
#[derive(Clone, Copy, Debug)]
pub(super) struct Anchor {
    pub(super) before: u64,
    pub(super) nanos: u64,
    pub(super) after: u64,
}

/// Bounds of nanoseconds a count, in parts of 2^-32.
#[derive(Clone, Copy, Debug)]
struct Rate {
    slow: u64,
    quick: u64,
}

/// Between two looks at the clock.
#[derive(Debug)]
struct Window {
    /// The latest count that was believed. The next is greater: so nothing is believed when this is the greatest number.
    last: u64,
    end: u64,
    anchor: Anchor,
    rate: Rate,
}

#[derive(Clone, Copy, Debug)]
enum State {
    New,
    Learning { since: Anchor, guess: Option<Rate> },
    Following { since: Anchor, rate: Rate },
}

/// What one reader knows of the counter. It begins with nothing, and learns the rate from the first looks at the clock, which
/// are readings in their own right: it never waits to learn.
#[derive(Debug)]
pub(super) struct Follower {
    window: Window,
    state: State,
    faults: u32,
    last_fault: u64,
}

impl Follower {
    pub(super) fn new() -> Self {
        let anchor = Anchor { before: 0, nanos: 0, after: 0 };
        let window = Window { last: u64::MAX, end: 0, anchor, rate: Rate { slow: 0, quick: 0 } };
        Self { window, state: State::New, faults: 0, last_fault: 0 }
    }

    /// Where the clock must be when the counter shows `count`. `None`: look at the clock, and call [`look`](Self::look).
    #[inline]
    pub(super) fn at(&mut self, count: u64) -> Option<Reading> {
        let window = &mut self.window;
        if count <= window.last || count > window.end {
            return None;
        }
        window.last = count;
        let Window { anchor: Anchor { before, nanos, after }, rate: Rate { slow, quick }, .. } =
            *window;
        // No overflow: a window and a bracket are some 2^15 nanoseconds, here in parts of 2^-32.
        let least = ((count - after) * slow) >> 32;
        let most = ((count - before) * quick) >> 32;
        Some(Reading {
            lo: nanos.saturating_add(least),
            hi: nanos.saturating_add(most + 1 + SLACK_NANOS),
        })
    }

    /// Learns from a look at the clock. False: the counter has lied too often, do not ask again.
    pub(super) fn look(&mut self, anchor: Anchor) -> bool {
        self.window.last = u64::MAX;
        match self.state {
            State::New => self.state = State::Learning { since: anchor, guess: None },
            State::Learning { since, guess } => self.learn(since, guess, anchor),
            State::Following { since, rate } if rate.explains(since, anchor) => {
                self.follow(rate, anchor);
            }
            State::Following { .. } => return self.fault(anchor),
        }
        true
    }

    fn learn(&mut self, since: Anchor, guess: Option<Rate>, anchor: Anchor) {
        if anchor.nanos.saturating_sub(since.nanos) < LESSON_MIN {
            return;
        }
        match (guess, Rate::measured(since, anchor)) {
            (Some(guess), Some(rate)) if rate.is_like(guess) => self.follow(rate.widened(), anchor),
            (_, rate) => self.state = State::Learning { since: anchor, guess: rate },
        }
    }

    fn follow(&mut self, rate: Rate, anchor: Anchor) {
        self.state = State::Following { since: anchor, rate };
        // Within the window by the quicker rate, and so by any.
        let counts = (WINDOW_NANOS << 32) / rate.quick;
        let bracket = anchor.after.checked_sub(anchor.before);
        if bracket.is_some_and(|bracket| bracket <= counts / BRACKET_SHARE) {
            self.window = Window {
                last: anchor.after,
                end: anchor.after.saturating_add(counts),
                anchor,
                rate,
            };
        }
    }

    fn fault(&mut self, anchor: Anchor) -> bool {
        let pardoned = anchor.nanos.saturating_sub(self.last_fault) > PARDON_NANOS;
        self.faults = if pardoned { 1 } else { self.faults + 1 };
        self.last_fault = anchor.nanos;
        self.state = State::Learning { since: anchor, guess: None };
        self.faults < FAULTS_MAX
    }
}

impl Rate {
    /// What the clock ran at between two anchors, if that can be said well.
    fn measured(since: Anchor, anchor: Anchor) -> Option<Self> {
        let nanos =
            anchor.nanos.checked_sub(since.nanos).filter(|&nanos| nanos <= LESSON_MAX)? << 32;
        let least = anchor.before.checked_sub(since.after)?;
        let most = anchor.after.checked_sub(since.before)?;
        let rate = Self { slow: nanos.checked_div(most)?, quick: nanos.checked_div(least)? + 1 };
        // Bounds that differ much are those of a thread that was interrupted within an anchor; the wrong way round, those of one
        // that was moved to a core whose counter lags.
        let differ = rate.quick.checked_sub(rate.slow)?;
        (differ <= rate.slow / AGREEMENT).then_some(rate)
    }

    fn is_like(self, other: Self) -> bool {
        let above = |rate: Self| rate.quick + rate.quick / AGREEMENT;
        self.slow <= above(other) && other.slow <= above(self)
    }

    /// Bounds that hold however the kernel steers its clock.
    fn widened(self) -> Self {
        Self { slow: self.slow / 4 * 3, quick: self.quick / 4 * 5 + 5 }
    }

    /// Whether both anchors can be true.
    fn explains(self, since: Anchor, anchor: Anchor) -> bool {
        let passed = |from: u64, to: u64, rate: u64| {
            Some((u128::from(to.checked_sub(from)?) * u128::from(rate)) >> 32)
        };
        let (Some(nanos), Some(least), Some(most)) = (
            anchor.nanos.checked_sub(since.nanos).map(u128::from),
            passed(since.after, anchor.before, self.slow),
            passed(since.before, anchor.after, self.quick),
        ) else {
            return false;
        };
        // A nanosecond either way for what the clock rounds off.
        least <= nanos + 1 && nanos <= most + 1
    }
}

// Not under miri: arithmetic without `unsafe` that runs for many made-up milliseconds.
#[cfg(all(test, not(loom), not(miri)))]
mod tests;
