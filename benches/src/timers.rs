//! What every peer does, so that one load can be put on all of them.

/// The payload of a timer, which moves when it fires: 24 bytes, for every peer.
pub type Payload = [u64; 3];

pub fn payload(connection: usize) -> Payload {
    [connection as u64; 3]
}

pub fn connection(payload: Payload) -> usize {
    payload[0] as usize
}

/// Panics: for turns in which no timer is due.
pub fn not_due(payload: Payload) {
    unreachable!("{payload:?} is not due");
}

/// Timers in ticks. A load is generic over this trait, so it is compiled for each peer.
///
/// A `deadline` is always later than the time of the last [`advance`](Self::advance).
pub trait Timers: Sized {
    /// Names a timer. Each peer decides on its contents, and so on its size in the caller's table.
    type Handle: Clone;

    /// Whether a load must be in a task of the peer's runtime and yield between batches.
    const IN_TASK: bool = false;

    /// No timers, at tick 0.
    fn new() -> Self;

    /// Adds a timer that fires in the first `advance` that reaches `deadline`.
    fn add(&mut self, deadline: u64, payload: Payload) -> Self::Handle;

    /// Ends a timer; false if it had ended. Not all peers can return the payload.
    fn cancel(&mut self, handle: &Self::Handle) -> bool;

    /// Moves a timer; false if it had ended. A handle that names the deadline is changed.
    fn reset(&mut self, handle: &mut Self::Handle, deadline: u64) -> bool;

    /// Moves time to `now` and hands out what is due. A peer has this or the next one.
    fn advance(&mut self, now: u64, on_fire: impl FnMut(Payload)) {
        self.advance_within(now, usize::MAX, on_fire);
    }

    /// Advances, but touches at most `budget` entries if the peer can. The next call goes on.
    fn advance_within(&mut self, now: u64, budget: usize, on_fire: impl FnMut(Payload)) {
        let _ = budget;
        self.advance(now, on_fire);
    }

    /// Announces a sleep, for a peer that frees memory then.
    fn prepare_sleep(&mut self) {}

    /// Counts the entries placed, moved, fired or removed so far, where the peer knows.
    fn touched(&self) -> Option<u64> {
        None
    }
}

/// How much later than its deadline a timer may fire.
#[derive(Clone, Copy, Debug)]
pub enum Window {
    /// By up to this number of ticks, so that it can wait for others.
    Slack(u64),
    /// At any tick of such a range, and at another one than those before it.
    Spread(u64),
}

impl Window {
    /// Chooses for a peer that cannot: a tick that most timers share, or a random one.
    pub(crate) fn choose(self, deadline: u64) -> u64 {
        match self {
            Self::Slack(slack) => roundest(deadline, deadline + slack),
            Self::Spread(range) => deadline + fastrand::u64(..=range),
        }
    }
}

/// Timers that tell a loop how long it may sleep, and can be asked for less than an exact deadline.
pub trait Waking: Timers {
    /// The tick until which there is nothing to do; `None` without timers.
    fn next_deadline(&self) -> Option<u64>;

    /// Adds a timer that fires in a window from `deadline` on.
    fn add_in(&mut self, deadline: u64, window: Window, payload: Payload) -> Self::Handle {
        self.add(window.choose(deadline), payload)
    }
}

/// The multiple of the largest power of two, of these ticks; the first is not 0.
fn roundest(from: u64, to: u64) -> u64 {
    let zeros = ((from - 1) ^ to).ilog2();
    to >> zeros << zeros
}

#[cfg(test)]
mod tests {
    use super::roundest;

    #[test]
    fn the_roundest_tick_has_the_most_zeros() {
        for from in 1..100_u64 {
            for to in from..200 {
                let most = (from..=to).max_by_key(|tick| tick.trailing_zeros()).expect("not empty");
                assert_eq!(roundest(from, to), most, "{from} to {to}");
            }
        }
    }
}
