//! What only a shard with tiny limits can show.

use std::{thread, time::Duration};

use super::*;
use crate::{
    clock::ManualClock,
    error::AddErrorReason,
    limits::{GENERATION_MAX, GUEST, INDEX_MAX},
    local_timer,
    mailbox::Urgency,
    origin::Origin,
    parcel::Sent,
    state::{Cancel, Move, Next},
};

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
            .spawn(|| {
                shared
                    .add(shared.nanos_after(TICK * ticks), Sent::new(Origin::caller(), || ()))
                    .map_err(|(reason, _)| reason)
            })
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
    assert_eq!(guests[1].cancel(), Cancel::Cancelled);
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
    // Each is a thread, which takes Miri long.
    for round in 0..if cfg!(miri) { 1 } else { 20 } {
        let guests: Vec<_> = (0..40).map(|_| add_from_elsewhere(&shard, 100)).collect();
        assert_eq!(fired(&mut shard), 0);
        assert!(
            (40..=48).contains(&shard.guests.known()),
            "{} nodes in round {round}",
            shard.guests.known()
        );
        for (number, guest) in guests.into_iter().enumerate() {
            if number % 2 == 0 {
                assert!(shard.cancel(guest).is_some());
            } else {
                assert_eq!(guest.cancel(), Cancel::Cancelled);
            }
        }
        // Other tests pin now and then: what they might see waits for them.
        for turn in 0..100_000 {
            assert_eq!(fired(&mut shard), 0);
            if turn >= 100 && shard.guests.known() <= 8 {
                break;
            }
        }
        let counts = shard.counts();
        assert_eq!((shard.len(), counts.queued), (0, 0));
        assert!(
            (2..=8).contains(&shard.guests.known()),
            "{} nodes left after round {round}",
            shard.guests.known()
        );
    }
}

/// Guests come to pages of which a part is out of use by then, after each number of turns.
#[test]
fn what_is_left_of_a_page_is_in_use_again_with_it() {
    let (mut shard, _clock) = shard();
    for turns in 0..if cfg!(miri) { 2 } else { 60 } {
        let guests: Vec<_> = (0..40).map(|_| add_from_elsewhere(&shard, 100)).collect();
        // It looks at its pages itself, in each turn.
        (0..=turns).for_each(|_| assert_eq!(fired(&mut shard), 0));
        assert!(
            (40..=80).contains(&shard.guests.known()),
            "{} nodes after {turns} turns",
            shard.guests.known()
        );
        // One of each page, and then the other one.
        let (ones, others): (Vec<_>, Vec<_>) =
            guests.into_iter().partition(|guest| guest.index() % 2 == 0);
        assert!(ones.into_iter().chain(others).all(|guest| shard.cancel(guest).is_some()));
        (0..turns).for_each(|_| assert_eq!(fired(&mut shard), 0));
    }
}

/// A guest that counts itself when its callback is dropped.
fn add_counted(shard: &Shard<Callback>, count: &Arc<()>) -> TimerHandle {
    let (shared, captured) = (shard.shared(), Arc::clone(count));
    let added =
        shared.add(shared.nanos_after(TICK), Sent::new(Origin::caller(), move || drop(captured)));
    let guest = added.map_err(|(reason, _)| reason).expect("there is room").answer;
    TimerHandle::of_guest(shard.number(), guest.index, guest.generation)
}

/// What a thread does between the two swaps of a reset: everything else, here.
fn while_moving(
    shard: &mut Shard<Callback>,
    guest: TimerHandle,
    meanwhile: impl FnOnce(&mut Shard<Callback>),
) -> bool {
    let shared = Arc::clone(shard.shared());
    let pinned = crate::reclaim::pin();
    let moved = shared.guests.with(guest.index() & !GUEST, &pinned, |place| {
        assert_eq!(place.node.state.begin_move(guest.generation()), Move::Begun);
        meanwhile(shard);
        place.asked.write(3_000_000);
        let (answer, next) = place.node.state.end_move();
        if next == Next::Push {
            let _ = shared.mailbox.push(guest.index(), &place.node.link, Urgency::Urgent);
        }
        answer
    });
    moved.expect("it is there")
}

/// The owner meets a guest while another thread is moving it; if the shard ends before that thread goes on, there is no other
/// message of it.
#[test]
fn a_guest_that_arrives_while_it_is_moved_is_not_lost() {
    for cancels in [false, true] {
        let ((mut shard, _clock), callback) = (shard(), Arc::new(()));
        let guest = add_counted(&shard, &callback);
        let moved = while_moving(&mut shard, guest, |shard| {
            assert!(
                !cancels
                    || shard.shared().guests.with(
                        guest.index() & !GUEST,
                        &crate::reclaim::pin(),
                        |place| {
                            place.node.state.cancel(guest.generation())
                                == (Cancel::Cancelled, Next::Nothing)
                        }
                    ) == Some(true)
            );
            assert_eq!(fired(shard), 0);
            assert_eq!((shard.counts().added, shard.len()), (1, 1), "it has arrived");
            let pending = shard.drain();
            assert_eq!(pending.len(), usize::from(!cancels));
        });
        assert!(!moved, "the shard has ended");
        assert_eq!(Arc::strong_count(&callback), 1, "its callback has been dropped");
        let counts = shard.counts();
        assert_eq!(
            (counts.cancelled, counts.handed_back, counts.live),
            (cancels.into(), (!cancels).into(), 0)
        );
    }
}

/// And if it goes on, the timer fires where it was moved to, once.
#[test]
fn a_guest_that_arrives_while_it_is_moved_goes_on() {
    let (mut shard, clock) = shard();
    let callback = Arc::new(());
    let guest = add_counted(&shard, &callback);
    assert!(while_moving(&mut shard, guest, |shard| {
        clock.advance(TICK * 2);
        assert_eq!(fired(shard), 0, "nobody knows yet when it is due");
    }));
    assert_eq!(fired(&mut shard), 0);
    clock.advance(TICK);
    assert_eq!((fired(&mut shard), Arc::strong_count(&callback)), (1, 1));
    let counts = shard.counts();
    assert_eq!((counts.added, counts.fired, counts.live, counts.queued), (1, 1, 0, 0));
}

/// What arrives after a pass has ended waits for the next one, however often the old one is asked.
#[test]
fn a_pass_that_is_over_takes_nothing_in() {
    let (mut shard, clock) = shard();
    let [_, own] = [1, 100].map(|ticks| shard.add(TICK * ticks, callback()));
    clock.advance(TICK);
    assert_eq!(fired(&mut shard), 1);
    add_from_elsewhere(&shard, 100);
    assert_eq!(thread::spawn(move || own.cancel()).join().expect("no panic"), Cancel::Cancelled);
    for _ in 0..3 {
        assert!(shard.next_expired().is_none());
        assert_eq!((shard.counts().queued, shard.len()), (2, 1));
    }
    assert_eq!(fired(&mut shard), 0);
    assert_eq!((shard.counts().queued, shard.len()), (0, 1), "the one that has been added since");
}

/// The index of a timer that its owner has cancelled is in use as long as there is a message about it.
#[test]
fn an_add_for_which_there_is_no_index_is_refused() {
    let (mut shard, _clock) = shard();
    let own: Vec<_> = (0..INDEX_MAX).map(|_| shard.add(TICK * 100, callback())).collect();
    let moved = own[3];
    assert!(thread::spawn(move || moved.reset(TICK * 50)).join().expect("no panic"));
    assert!(shard.cancel(moved).is_some());
    assert_eq!(shard.len(), INDEX_MAX as usize - 1);
    assert_eq!(
        shard.try_add(TICK, callback()).map_err(|error| error.reason()),
        Err(AddErrorReason::Full)
    );
    assert_eq!(fired(&mut shard), 0);
    assert!(shard.try_add(TICK, callback()).is_ok());
}

/// Whatever the timer is, its index is free when it has been cancelled.
#[test]
fn who_cancels_leaves_nothing_in_use() {
    for _ in 0..3 * INDEX_MAX {
        let (periodic, once) =
            (local_timer().add_periodic(TICK, || ()), local_timer().add(TICK, || ()));
        let answers =
            [periodic.cancel(), once.cancel(), local_timer().add_local(TICK, || ()).cancel()];
        assert_eq!(answers, [Cancel::Cancelled; 3]);
    }
    assert_eq!(local_timer().len(), 0);
}

/// Also of a thread whose timer has its number.
#[test]
fn a_reference_to_a_timer_that_has_ended_is_no_threads_own() {
    for _ in 0..1000 {
        let gone = thread::spawn(|| local_timer().shard_ref()).join().expect("no panic");
        // The numbers of the other tests' shards come and go, too.
        let has_its_number = thread::spawn(move || {
            let number = local_timer().shard_ref().number();
            assert!(!gone.is_own() && gone.try_add(TICK, || ()).is_err());
            number == gone.number()
        });
        if has_its_number.join().expect("no panic") {
            return;
        }
    }
    panic!("no number was used again");
}

/// An add that is refused keeps no node.
#[test]
fn adds_that_no_generation_is_left_for_leave_all_nodes_to_others() {
    let (shard, _clock) = shard();
    let (shared, callback) = (shard.shared(), Arc::new(()));
    let add = || {
        let captured = Arc::clone(&callback);
        shared
            .add(0, Sent::new(Origin::caller(), move || drop(captured)))
            .map(drop)
            .map_err(|(reason, _)| reason)
    };
    shared.guests.start_at(GENERATION_MAX + 1);
    for _ in 0..2 * INDEX_MAX {
        assert_eq!((add(), Arc::strong_count(&callback)), (Err(AddErrorReason::Full), 1));
    }
    shared.guests.start_at(GENERATION_MAX);
    assert_eq!([(); 2].map(|()| add()), [Ok(()), Err(AddErrorReason::Full)]);
}
