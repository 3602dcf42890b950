use std::collections::HashMap;

use super::*;
use crate::limits::{
    CASCADED_AHEAD_PER_TURN_MAX, INDEX_MAX, PAGE_BITS, SPARE_PAGES, WHEEL_KEY_GENERATION_MAX,
};

type TinyWheel<T> = Wheel<T, 2, 32>;

/// Compares the wheel with a model, under the small limits of unit tests.
#[cfg(all(feature = "std", not(loom)))]
mod with_tiny_limits {
    use super::super::model::{assert_agrees_with_the_model, common::scaled};

    #[test]
    fn a_wheel_of_1_bit_agrees_with_the_model() {
        assert_agrees_with_the_model::<1, 64>(scaled(8_000), 500, 40);
    }

    #[test]
    fn a_wheel_of_2_bits_agrees_with_the_model() {
        assert_agrees_with_the_model::<2, 32>(scaled(16_000), 500, 40);
    }

    #[test]
    fn a_wheel_of_3_bits_agrees_with_the_model() {
        assert_agrees_with_the_model::<3, 22>(scaled(16_000), 500, 12);
    }
}

#[test]
fn a_retired_index_is_never_reused() {
    // The first level covers the deadline 1, but not 100.
    for deadline in [1, 100] {
        let mut wheel = TinyWheel::starting_at(0);
        let mut keys = std::collections::HashSet::new();
        for round in 0..100 {
            let key = wheel.insert(deadline, round);
            assert!(keys.insert(key), "{key:?} was returned twice");
            assert_eq!(wheel.remove(key), Some(round));
        }
        for key in keys {
            assert!(key.generation < WHEEL_KEY_GENERATION_MAX, "{key:?} has a retired index");
            assert_eq!(wheel.remove(key), None);
        }
    }
}

#[test]
fn removals_free_surplus_pages_gradually() {
    let mut wheel = TinyWheel::starting_at(0);
    let keys: Vec<Key> = (0..50).map(|entry| wheel.insert(100, entry)).collect();
    let mut capacity = wheel.capacity();
    assert!(capacity >= 50);
    for key in keys {
        wheel.remove(key);
        // The last removal puts two indices into free lists, so it may free two pages.
        let freed_max = (1 + usize::from(wheel.is_empty())) << PAGE_BITS;
        assert!(wheel.capacity() + freed_max >= capacity, "too many pages freed at once");
        capacity = wheel.capacity();
    }
    wheel.advance_and_check();
    // The first page is never freed, and index 0 is unused.
    assert_eq!(capacity, ((1 + SPARE_PAGES as usize) << PAGE_BITS) - 1);
}

#[test]
fn equal_batches_free_no_pages() {
    const BATCH: u64 = (SPARE_PAGES as u64) << PAGE_BITS;
    // The number of live entries varies where in a page each batch starts.
    for live in 0..6 {
        let mut wheel = TinyWheel::starting_at(0);
        (0..live).for_each(|entry| _ = wheel.insert(1_000, entry));
        let mut capacity = None;
        for round in 0..10 {
            let keys: Vec<Key> = (0..BATCH).map(|entry| wheel.insert(100, entry)).collect();
            let most = wheel.capacity();
            assert_eq!(*capacity.get_or_insert(most), most, "in round {round}");
            for key in keys {
                wheel.remove(key);
            }
            wheel.advance_and_check();
            assert_eq!(wheel.capacity(), most, "after round {round}");
        }
    }
}

impl<T> TinyWheel<T> {
    fn advance_and_check(&mut self) {
        let now = self.now();
        assert!(self.advance(now).next().is_none());
        self.check();
    }
}

#[test]
fn a_pass_abandoned_before_its_portion_is_behind() {
    let mut wheel = TinyWheel::starting_at(0);
    // These entries are in one slot of the second level, which cascades in several portions.
    (0..5 * CASCADED_AHEAD_PER_TURN_MAX).for_each(|_| _ = wheel.insert(32, ()));
    wheel.insert(20, ());
    assert_eq!(wheel.advance(31).next(), Some((20, ())));
    assert!(wheel.next_deadline() < Some(31) && wheel.is_behind());
    wheel.advance(31).for_each(drop);
    assert!(wheel.next_deadline() > Some(31) && !wheel.is_behind());
}

/// A late pass also cascades the missed portions, so the next pass cascades only its own portion.
#[test]
fn a_pass_after_a_late_one_is_short() {
    const MAX: u64 = CASCADED_AHEAD_PER_TURN_MAX as u64;
    for late in 0..3 {
        let mut wheel: Wheel<(), 3, 22> = Wheel::starting_at(0);
        (0..5 * MAX).for_each(|_| _ = wheel.insert(66, ()));
        assert_eq!(wheel.next_deadline(), Some(60));
        for now in 60 + late..65 {
            let before = wheel.relinked();
            assert_eq!(wheel.advance(now).count(), 0);
            let missed = if now == 60 + late { late } else { 0 };
            assert!(wheel.relinked() - before <= (1 + missed) * MAX, "at {now}, {late} late");
        }
        assert_eq!(wheel.raw_wheel.upper_entry_count, 0);
    }
}

#[test]
fn keys_of_another_wheel_do_not_corrupt_a_wheel() {
    let (mut wheel, mut other) = (TinyWheel::starting_at(0), TinyWheel::starting_at(0));
    let foreign_keys = [other.insert(1, 'x'), other.insert(2, 'y')];
    let key = wheel.insert(5, 'a');
    assert!(!wheel.is_empty());
    assert_eq!((wheel.remove(key), wheel.is_empty()), (Some('a'), true));
    for key in foreign_keys {
        assert!(!wheel.reset(key, 9));
        assert_eq!(wheel.remove(key), None);
    }
    wheel.check();
    assert_ne!(wheel.insert(5, 'b'), wheel.insert(5, 'c'));
    assert_eq!(wheel.len(), 2);
}

#[test]
fn keys_from_arbitrary_bits_are_safe_and_round_trip() {
    let mut wheel = TinyWheel::starting_at(0);
    let keys: Vec<Key> = (0..9).map(|tick| wheel.insert(tick, tick)).collect();
    for bits in [0, 1, u64::MAX, u64::from(u32::MAX), u64::MAX << 32, 64, 1 << 20] {
        let key = Key::from_bits(bits);
        assert_eq!(key.to_bits(), bits);
        assert_eq!(wheel.remove(key).is_some(), keys.contains(&key), "{key:?}");
        wheel.check();
    }
    for key in keys.into_iter().skip(1) {
        assert!(wheel.remove(Key::from_bits(key.to_bits())).is_some());
    }
    assert!(wheel.is_empty());
}

#[test]
fn lookups_iter_retain_and_clear_agree_with_a_map() {
    let mut wheel = TinyWheel::starting_at(0);
    let mut map = HashMap::new();
    for number in 0..40_u64 {
        let deadline = 1 << (number % 30);
        map.insert(wheel.insert(deadline, number), (deadline, number));
    }
    let removed: Vec<Key> = map.keys().copied().filter(|key| key.index % 3 == 0).collect();
    for key in &removed {
        assert_eq!(wheel.remove(*key), map.remove(key).map(|(_, number)| number));
    }
    let due: Vec<_> = wheel.advance(9).collect();
    map.retain(|_, entry| !due.contains(entry));
    (10..200).for_each(|now| assert_eq!(wheel.advance_within(now, 0).next(), None));
    for (key, (_, number)) in &mut map {
        *number += 100;
        *wheel.get_mut(*key).expect("live") += 100;
        assert!(wheel.contains(*key) && wheel.get(*key) == Some(number));
    }
    for key in removed {
        assert!(!wheel.contains(key) && wheel.get(key).is_none());
        assert!(wheel.get_mut(key).is_none() && wheel.deadline(key).is_none());
    }
    let matches_map = |wheel: &TinyWheel<u64>, map: &HashMap<_, _>| {
        let listed = wheel.iter().map(|(key, deadline, number)| (key, (deadline, *number)));
        [wheel.len(), wheel.iter().count()] == [map.len(); 2]
            && listed.collect::<HashMap<_, _>>() == *map
    };
    assert!(matches_map(&wheel, &map));
    assert!(map.iter().all(|(key, (deadline, _))| wheel.deadline(*key) == Some(*deadline)));

    let keep = |deadline: u64, number: &mut u64| {
        *number += 1_000;
        deadline > 1_000 && !number.is_multiple_of(3)
    };
    wheel.retain(|key, deadline, number| {
        assert_eq!(map[&key], (deadline, *number));
        keep(deadline, number)
    });
    map.retain(|_, (deadline, number)| keep(*deadline, number));
    assert!(!map.is_empty() && matches_map(&wheel, &map));
    wheel.check();

    let drained = wheel.drain();
    wheel.check();
    assert_eq!((drained.len(), wheel.len(), wheel.now()), (map.len(), 0, 199));
    assert!(map.keys().all(|key| !wheel.contains(*key)));
    let drained = drained.into_iter().map(|(key, deadline, number)| (key, (deadline, number)));
    assert_eq!(drained.collect::<HashMap<_, _>>(), map);

    for &(deadline, number) in map.values() {
        wheel.insert(deadline, number);
    }
    wheel.clear();
    wheel.check();
    assert_eq!((wheel.len(), wheel.iter().count(), wheel.now()), (0, 0, 199));
    wheel.insert(500, 1);
    let late = wheel.insert(3, 2);
    assert_eq!((wheel.deadline(late), wheel.remove(late)), (Some(199), Some(2)));
    assert!(map.into_keys().all(|key| wheel.get(key).is_none()));
    assert_eq!(wheel.advance(u64::MAX).collect::<Vec<_>>(), [(500, 1)]);
}

#[test]
#[should_panic(expected = "the wheel is full")]
fn a_full_wheel_returns_the_value_or_panics() {
    let mut wheel = TinyWheel::starting_at(0);
    let keys: Vec<Key> = (0..INDEX_MAX).map(|_| wheel.try_insert(5, ()).expect("room")).collect();
    assert_eq!(wheel.try_insert(5, ()), Err(()));
    assert_eq!(wheel.remove(keys[7]), Some(()));
    let key = wheel.try_insert(7, ()).expect("there is room again");
    wheel.check();
    assert_eq!((wheel.deadline(key), wheel.len()), (Some(7), INDEX_MAX as usize));
    wheel.insert(5, ());
}

#[test]
fn reserved_pages_are_allocated_and_kept() {
    let mut wheel = Wheel::<u64>::with_capacity(9);
    let reserved = wheel.capacity();
    assert_eq!(reserved, 9, "pages have two entries, and index 0 is unused");
    wheel.check();
    let keys: Vec<Key> = (0..9).map(|tick| wheel.insert(tick, tick)).collect();
    assert_eq!(wheel.capacity(), reserved);
    wheel.reserve(usize::MAX);
    assert_eq!(wheel.capacity(), INDEX_MAX as usize, "the maximum");
    for key in keys {
        assert!(wheel.remove(key).is_some());
    }
    (1..1_000).for_each(|now| assert_eq!(wheel.advance(now).next(), None));
    assert_eq!(wheel.capacity(), INDEX_MAX as usize);
    wheel.check();
}

/// Tests the functions of `RawWheel` that only shards call. The entries have no values.
#[cfg(feature = "std")]
mod shard_functions {
    use super::{super::entries::Entries, *};

    struct BareWheel {
        raw_wheel: RawWheel<Levels<2, 32>>,
        entries: Entries<()>,
    }

    impl BareWheel {
        fn starting_at(now: u64) -> Self {
            Self { raw_wheel: RawWheel::starting_at(now), entries: Entries::new() }
        }

        fn index(&mut self) -> u32 {
            self.entries.allocate_index().expect("there is room")
        }

        fn link(&mut self, deadline: u64) -> u32 {
            let index = self.index();
            self.raw_wheel.link(&self.entries, self.entries.entry(index), deadline);
            index
        }

        fn begin(&mut self, pass_end: u64) {
            self.raw_wheel.begin_pass(&self.entries, pass_end, usize::MAX);
        }

        fn pop(&mut self) -> Option<(u32, u64)> {
            self.raw_wheel
                .pop_due_entry(&self.entries)
                .map(|(entry, deadline)| (entry.index(), deadline))
        }

        fn relink_unless_reached(&mut self, index: u32, deadline: u64) -> Result<(), u64> {
            self.raw_wheel.relink_unless_reached(&self.entries, self.entries.entry(index), deadline)
        }
    }

    /// The stored deadline matters if the shard ends before it fires the timer: the shard hands the
    /// timer back with this deadline.
    #[test]
    fn relink_unless_reached_unlinks_a_due_entry() {
        let mut wheel = BareWheel::starting_at(7);
        let linked = wheel.link(100);
        let unlinked = wheel.index();
        for index in [linked, unlinked] {
            assert_eq!(wheel.relink_unless_reached(index, 5), Err(7));
            assert_eq!(
                (wheel.entries.entry(index).deadline().get(), wheel.raw_wheel.len()),
                (5, 0)
            );
        }
    }

    #[test]
    fn a_pass_is_behind_until_its_last_due_entry_expires() {
        let mut wheel = BareWheel::starting_at(0);
        for deadline in [5, 8, 11, 300] {
            wheel.link(deadline);
        }
        wheel.begin(10);
        for (deadline, is_behind) in [(5, true), (8, false)] {
            assert_eq!(wheel.pop().map(|(_, due)| due), Some(deadline));
            assert_eq!(
                (wheel.raw_wheel.is_behind(), wheel.raw_wheel.is_pass_done()),
                (is_behind, false)
            );
        }
        // A pass is done after its last entry: a late entry that is linked afterwards waits for the
        // next pass.
        wheel.begin(11);
        assert_eq!(wheel.pop().map(|(_, due)| due), Some(11));
        wheel.link(3);
        assert_eq!((wheel.raw_wheel.is_behind(), wheel.raw_wheel.is_pass_done()), (false, true));
        assert_eq!(wheel.pop(), None);
        assert_eq!((wheel.raw_wheel.is_behind(), wheel.raw_wheel.is_pass_done()), (false, true));
    }

    #[test]
    fn linked_entries_are_counted() {
        let mut wheel = BareWheel::starting_at(10);
        let check_len = |wheel: &BareWheel, len: usize, step: &str| {
            assert_eq!(wheel.raw_wheel.len(), len, "{step}");
        };
        let near = wheel.link(11);
        check_len(&wheel, 1, "near");
        let far = wheel.link(1000);
        check_len(&wheel, 2, "far");
        let late = wheel.link(5);
        check_len(&wheel, 3, "late");
        let farther = wheel.link(5000);
        check_len(&wheel, 4, "farther");
        wheel.raw_wheel.reset(&wheel.entries, wheel.entries.entry(near), 14);
        check_len(&wheel, 4, "to later");
        wheel.raw_wheel.reset(&wheel.entries, wheel.entries.entry(near), 12);
        check_len(&wheel, 4, "to earlier");
        for _ in 0..2 {
            wheel.raw_wheel.unlink_if_linked(&wheel.entries, wheel.entries.entry(near));
            check_len(&wheel, 3, "unlinked");
        }
        wheel.raw_wheel.reset_or_link(&wheel.entries, wheel.entries.entry(near), 20);
        check_len(&wheel, 4, "linked again");
        for _ in 0..2 {
            assert_eq!(wheel.relink_unless_reached(far, 2000), Ok(()));
            check_len(&wheel, 4, "in order");
        }
        for _ in 0..2 {
            assert_eq!(wheel.relink_unless_reached(far, 3), Err(10));
            check_len(&wheel, 3, "in order, but due");
        }
        assert_eq!(wheel.relink_unless_reached(far, 3000), Ok(()));
        check_len(&wheel, 4, "in order, from no slot");
        for (deadline, is_postponable) in [(3000, false), (21, true), (20, true), (20, true)] {
            let entry = wheel.entries.entry(near);
            let linked = wheel.raw_wheel.try_relink_as_postponable(&wheel.entries, entry, deadline);
            assert_eq!(linked, is_postponable);
            check_len(&wheel, 4, "postponable");
            wheel.raw_wheel.check(&wheel.entries, wheel.entries.possibly_used_indices());
        }
        wheel.raw_wheel.unlink(&wheel.entries, wheel.entries.entry(farther));
        check_len(&wheel, 3, "unlinked");
        wheel.begin(30);
        for index in [late, near] {
            assert_eq!(wheel.pop().map(|(due, _)| due), Some(index));
        }
        check_len(&wheel, 1, "expired");
    }

    /// The entries of an upper level's slot cascade evenly over the ticks, even if each pass spans
    /// several ticks.
    #[test]
    fn far_entries_cascade_evenly() {
        for ticks in [1, 3, 16] {
            let mut wheel = BareWheel::starting_at(0);
            for deadline in 1024..1074 {
                wheel.link(deadline);
            }
            let mut expired = 0;
            for pass_end in (0..1280 + ticks).step_by(ticks) {
                let before = wheel.raw_wheel.relinked;
                wheel.begin(pass_end as u64);
                expired += std::iter::from_fn(|| wheel.pop()).count();
                // Each tick cascades at most three entries.
                assert!(wheel.raw_wheel.relinked - before <= 3 * ticks as u64, "until {pass_end}");
            }
            assert_eq!(expired, 50);
        }
    }
}

#[test]
fn time_never_goes_back() {
    let mut wheel = TinyWheel::starting_at(0);
    assert_eq!(wheel.advance(100).next(), None);
    wheel.insert(101, ());
    assert_eq!(wheel.advance(50).next(), None);
    assert_eq!(wheel.now(), 100);
    assert_eq!(wheel.advance(101).next(), Some((101, ())));
}

#[test]
fn the_largest_tick_is_reached() {
    let starts = if cfg!(miri) { 2..3 } else { 0..3 };
    for start in [0, 1 << 63, u64::MAX - 1][starts].iter().copied() {
        let mut wheel = TinyWheel::starting_at(start);
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
