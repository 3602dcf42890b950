use std::collections::BTreeSet;

use super::*;

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
        assert_eq!(wheel.remove(key), None);
    }
}

#[test]
fn a_key_of_another_wheel_breaks_nothing() {
    let (mut wheel, mut other) = (Tiny::starting_at(0), Tiny::starting_at(0));
    let foreign = [other.insert(1, 'x'), other.insert(2, 'y')];
    let key = wheel.insert(5, 'a');
    assert_eq!(wheel.remove(key), Some('a'));
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
