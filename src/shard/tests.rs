//! What only a shard with tiny limits can show.

use std::{thread, time::Duration};

use super::*;
use crate::{clock::ManualClock, limits::INDEX_MAX, parcel::Sent};

const TICK: Duration = Duration::from_millis(1);

fn shard() -> (Shard<Callback>, ManualClock) {
    let clock = ManualClock::new();
    let shard = Shard::accepting(Config::new().tick(TICK).clock(&clock), Some);
    (shard.expect("valid"), clock)
}

fn callback() -> Callback {
    crate::callback::Once::new(|| ()).into()
}

/// Adds a timer as another thread would.
fn add_from_elsewhere(shard: &Shard<Callback>, ticks: u32) -> TimerHandle {
    let shared = shard.shared();
    let added = thread::scope(|scope| {
        scope
            .spawn(|| shared.add(shared.nanos_after(TICK * ticks), Sent::new(|| ())).map_err(|(reason, _)| reason))
            .join()
            .expect("no panic")
    });
    let guest = added.expect("there is room").answer;
    TimerHandle::of_guest(shard.number(), guest.index, guest.generation)
}

fn fired(shard: &mut Shard<Callback>) -> usize {
    shard.turn();
    std::iter::from_fn(|| shard.next_expired()).count()
}

#[test]
fn a_guest_for_whom_there_is_no_index_waits_until_there_is_one() {
    let (mut shard, clock) = shard();
    let own: Vec<_> = (0..INDEX_MAX).map(|_| shard.add(TICK * 100, callback())).collect();
    assert!(shard.try_add(TICK, callback()).is_err());
    let guests = [1, 2, 3].map(|ticks| add_from_elsewhere(&shard, ticks));
    clock.advance(TICK * 5);
    for _ in 0..3 {
        assert_eq!(fired(&mut shard), 0);
        assert_eq!(shard.counts().queued, 3);
        assert_eq!(shard.time_until_next(), Some(Duration::ZERO));
    }
    // One that is cancelled needs no index.
    assert_eq!(guests[1].cancel(), crate::state::Cancel::Cancelled);
    assert_eq!(fired(&mut shard), 0);
    assert_eq!(shard.counts().queued, 2);
    assert!(shard.cancel(own[7]).is_some());
    assert_eq!(fired(&mut shard), 2);
    let counts = shard.counts();
    assert_eq!((counts.added, counts.fired, counts.cancelled), (u64::from(INDEX_MAX) + 3, 2, 2));
    assert_eq!((counts.queued, counts.held, shard.len()), (0, 0, INDEX_MAX as usize - 1));
}

#[test]
fn the_pages_of_guests_come_and_go() {
    let (mut shard, _clock) = shard();
    for round in 0..20 {
        let guests: Vec<_> = (0..40).map(|_| add_from_elsewhere(&shard, 100)).collect();
        assert_eq!(fired(&mut shard), 0);
        assert!((40..=48).contains(&shard.guests.known()), "{} nodes in round {round}", shard.guests.known());
        for (number, guest) in guests.into_iter().enumerate() {
            if number % 2 == 0 {
                assert!(shard.cancel(guest).is_some());
            } else {
                assert_eq!(guest.cancel(), crate::state::Cancel::Cancelled);
            }
        }
        for _ in 0..100 {
            assert_eq!(fired(&mut shard), 0);
        }
        let counts = shard.counts();
        assert_eq!((shard.len(), counts.queued), (0, 0));
        assert!(shard.guests.known() <= 8, "{} nodes left after round {round}", shard.guests.known());
    }
}
