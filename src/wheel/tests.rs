use std::collections::BTreeSet;

use super::{nodes::Nodes, *};
use crate::limits::{INDEX_MAX, KEY_GENERATION_MAX};

type Tiny<T> = Wheel<T, 2, 32>;

/// The model with tiny limits: pages of two come and go, two are a crowd, indices retire, and the first level has room for
/// four revolutions.
#[cfg(all(feature = "std", not(loom)))]
mod with_tiny_limits {
    use super::super::model::{agrees_with_the_model, common::operations};

    #[test]
    fn one_bit_and_64_levels() {
        agrees_with_the_model::<1, 64>(operations(8_000), 500, 40);
    }

    #[test]
    fn two_bits_and_32_levels() {
        agrees_with_the_model::<2, 32>(operations(16_000), 500, 40);
    }

    #[test]
    fn three_bits_and_22_levels() {
        agrees_with_the_model::<3, 22>(operations(16_000), 500, 12);
    }
}

#[test]
fn a_retired_index_is_never_used_again() {
    let mut wheel = Tiny::starting_at(0);
    let mut keys = std::collections::HashSet::new();
    for round in 0..100 {
        let key = wheel.insert(round + 1, round);
        assert!(keys.insert(key), "{key:?} was given twice");
        assert_eq!(wheel.remove(key), Some(round));
    }
    for key in keys {
        assert!(
            key.generation < KEY_GENERATION_MAX,
            "there is one more to come, for those who ask"
        );
        assert_eq!(wheel.remove(key), None);
    }
}

/// What was reserved is kept, and of all pages a sixteenth.
#[test]
fn empty_pages_go_until_few_are_left() {
    let mut nodes = Nodes::<()>::new();
    nodes.reserve(9);
    let reserved = nodes.end();
    assert_eq!(reserved, 10);
    let taken: Vec<u32> = (1..reserved + 2).map(|_| nodes.take().0).collect();
    assert_eq!(nodes.end(), reserved + 2);
    for index in taken {
        nodes.give_if(index, |_, _| true);
    }
    assert!(!nodes.has_too_much(), "as many are empty as were reserved");

    let mut wheel = RawWheel::<(), 2, 32>::starting_at(0);
    wheel.reserve(9);
    assert_eq!(wheel.end_of_indices(), reserved);

    let mut nodes = Nodes::<()>::new();
    // Index 0 is never taken.
    let mut taken: Vec<u32> = (1..130).map(|_| nodes.take().0).collect();
    taken.sort_unstable();
    for index in taken.split_off(109) {
        nodes.give_if(index, |_, _| true);
    }
    let mut gone = 0;
    for _ in 0..1000 {
        if nodes.has_too_much() {
            gone += usize::from(nodes.shrink().is_some());
            nodes.check();
        }
    }
    assert_eq!(gone, 10 - 58 / 16, "of 65 pages ten were empty");
}

#[test]
#[should_panic(expected = "more entries than it can hold")]
fn a_wheel_without_an_index_left_refuses() {
    let mut wheel = Tiny::starting_at(0);
    for entry in 1..=u64::from(INDEX_MAX) {
        wheel.insert(entry, ());
    }
    assert_eq!(wheel.len(), INDEX_MAX as usize);
    wheel.insert(1, ());
}

#[test]
fn a_key_of_another_wheel_breaks_nothing() {
    let (mut wheel, mut other) = (Tiny::starting_at(0), Tiny::starting_at(0));
    let foreign = [other.insert(1, 'x'), other.insert(2, 'y')];
    let key = wheel.insert(5, 'a');
    assert!(!wheel.is_empty());
    assert_eq!((wheel.remove(key), wheel.is_empty()), (Some('a'), true));
    for key in foreign {
        assert!(!wheel.reset(key, 9));
        assert_eq!(wheel.remove(key), None);
    }
    wheel.check();
    assert_ne!(wheel.insert(5, 'b'), wheel.insert(5, 'c'));
    assert_eq!(wheel.len(), 2);
}

#[test]
fn an_iterator_dropped_early_loses_nothing() {
    let mut wheel = Tiny::starting_at(0);
    for deadline in [5, 3, 9, 3] {
        wheel.insert(deadline, deadline);
    }
    assert_eq!(wheel.advance(10).next(), Some((3, 3)));
    wheel.insert(1, 100);
    wheel.check();
    assert_eq!(wheel.next_deadline(), Some(3));
    let rest: Vec<_> = wheel.advance(10).collect();
    assert_eq!(rest, [(3, 3), (5, 5), (9, 9), (10, 100)]);
}

#[test]
fn what_is_inserted_already_due_waits_for_the_next_advance() {
    let mut wheel = Tiny::starting_at(7);
    wheel.insert(0, 'a');
    wheel.insert(7, 'b');
    assert_eq!(wheel.next_deadline(), Some(7));
    let due: BTreeSet<_> = wheel.advance(7).collect();
    assert_eq!(due, BTreeSet::from([(7, 'a'), (7, 'b')]));
    assert_eq!(wheel.next_deadline(), None);
}

#[test]
fn what_is_inserted_while_an_aligned_slot_fires_is_not_passed_over() {
    let mut wheel = Tiny::starting_at(0);
    let start = 1 << 10;
    for value in 0..3 {
        wheel.insert_within(start, 5, value);
    }
    assert_eq!(wheel.advance(start).next(), Some((start, 2)));
    wheel.insert(start, 3);
    let rest: BTreeSet<_> = wheel.advance(start + 1).collect();
    assert_eq!(rest, BTreeSet::from([(start, 0), (start, 1), (start, 3)]));
}

#[test]
fn slack_that_is_over_already_is_no_reason_to_wait() {
    let mut wheel = Tiny::starting_at(7);
    wheel.insert_within(3, 4, 'a');
    wheel.insert_within(7, 0, 'b');
    let due: BTreeSet<_> = wheel.advance(7).collect();
    assert_eq!(due, BTreeSet::from([(7, 'a'), (7, 'b')]));
}

/// A shard that ends before it could claim the timer hands it back with the deadline that was asked for.
#[cfg(feature = "std")]
#[test]
fn what_is_put_in_order_too_late_is_out_and_has_its_deadline() {
    let mut wheel = RawWheel::<(), 2, 32>::starting_at(7);
    let placed = wheel.insert(100).index;
    for index in [placed, wheel.take_index().index] {
        assert_eq!(wheel.put_in_order(index, 5), Err(7));
        assert_eq!((wheel.deadline(index), wheel.len()), (Some(5), 0));
    }
}

/// What a shard calls behind: a pass that is given up when all that is due has been handed out has left nothing.
#[cfg(feature = "std")]
#[test]
fn a_pass_that_is_given_up_is_behind_if_something_is_due() {
    let mut wheel = RawWheel::<(), 2, 32>::starting_at(0);
    for deadline in [5, 8, 11, 300] {
        wheel.insert(deadline);
    }
    wheel.begin(10, usize::MAX);
    for (deadline, is_behind) in [(5, true), (8, false)] {
        assert_eq!(wheel.pop_due(|_| ()).map(|(_, due)| due), Some(deadline));
        assert_eq!((wheel.is_behind(), wheel.is_done()), (is_behind, false));
    }
    // What is due already when it comes belongs to the next pass, if this one has got to its end.
    wheel.begin(11, usize::MAX);
    assert_eq!(wheel.pop_due(|_| ()).map(|(_, due)| due), Some(11));
    wheel.insert(3);
    assert_eq!((wheel.is_behind(), wheel.is_done()), (false, false));
    assert_eq!(wheel.pop_due(|_| ()), None);
    assert_eq!((wheel.is_behind(), wheel.is_done()), (false, true));
}

/// Whatever puts an entry somewhere, moves it or takes it out.
#[cfg(feature = "std")]
#[test]
fn entries_that_are_touched_are_counted_and_those_in_slots() {
    type Raw = RawWheel<(), 2, 32>;
    let mut wheel = Raw::starting_at(10);
    let mut seen = 0;
    let mut step = |wheel: &Raw, touched: u64, live: usize, what: &str| {
        assert_eq!((wheel.touched() - seen, wheel.len()), (touched, live), "{what}");
        seen = wheel.touched();
    };
    let near = wheel.insert(11).index;
    step(&wheel, 1, 1, "near");
    let far = wheel.insert(1000).index;
    step(&wheel, 1, 2, "far");
    let late = wheel.insert(5).index;
    step(&wheel, 1, 3, "late");
    let aligned = wheel.insert_within(5000, 4000).index;
    step(&wheel, 1, 4, "with slack");
    wheel.reset(near, 14);
    step(&wheel, 1, 4, "to later");
    wheel.reset(near, 12);
    step(&wheel, 1, 4, "to earlier");
    for touched in [1, 0] {
        wheel.take_out(near);
        step(&wheel, touched, 3, "taken out");
    }
    wheel.insert_again(near, 20);
    step(&wheel, 1, 4, "again");
    for touched in [1, 0] {
        assert_eq!(wheel.put_in_order(far, 2000), Ok(()));
        step(&wheel, touched, 4, "in order");
    }
    assert_eq!(wheel.put_in_order(far, 3), Err(10));
    step(&wheel, 1, 3, "in order, but due");
    assert_eq!(wheel.put_in_order(far, 3000), Ok(()));
    step(&wheel, 1, 4, "in order, from nowhere");
    wheel.remove(aligned);
    step(&wheel, 1, 3, "removed");
    wheel.begin(30, usize::MAX);
    for index in [late, near] {
        assert_eq!(wheel.pop_due(|_| ()).map(|(due, _)| due), Some(index));
    }
    step(&wheel, 2, 1, "handed out");
}

/// The entries of a far slot come down a share with each tick, and not together where it starts; also if a loop takes several ticks
/// at a time.
#[test]
fn what_is_far_comes_down_evenly() {
    for ticks in [1, 3, 16] {
        let mut wheel = RawWheel::<(), 2, 32>::starting_at(0);
        for deadline in 1024..1280 {
            wheel.insert(deadline);
        }
        let mut handed_out = 0;
        for target in (0..1280 + ticks).step_by(ticks) {
            let before = wheel.touched();
            wheel.begin(target as u64, usize::MAX);
            handed_out += std::iter::from_fn(|| wheel.pop_due(|_| ())).count();
            // As one comes due in each tick, so one comes down to each of three levels.
            assert!(wheel.touched() - before <= 4 * ticks as u64, "until {target}");
        }
        assert_eq!(handed_out, 256);
    }
}

#[test]
fn time_never_goes_back() {
    let mut wheel = Tiny::starting_at(0);
    assert_eq!(wheel.advance(100).next(), None);
    wheel.insert(101, ());
    assert_eq!(wheel.advance(50).next(), None);
    assert_eq!(wheel.now(), 100);
    assert_eq!(wheel.advance(101).next(), Some((101, ())));
}

#[test]
fn the_last_tick_of_all_is_reached() {
    // Miri takes a thousand times as long.
    let starts = if cfg!(miri) { 2..3 } else { 0..3 };
    for start in [0, 1 << 63, u64::MAX - 1][starts].iter().copied() {
        let mut wheel = Tiny::starting_at(start);
        wheel.insert(u64::MAX, ());
        wheel.check();
        assert_eq!(wheel.advance(u64::MAX - 1).next(), None);
        assert_eq!(wheel.next_deadline(), Some(u64::MAX));
        assert_eq!(wheel.advance(u64::MAX).next(), Some((u64::MAX, ())));
        wheel.insert(u64::MAX, ());
        wheel.check();
        assert_eq!(wheel.advance(u64::MAX).next(), Some((u64::MAX, ())));
    }
}
