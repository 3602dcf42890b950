//! Publishing, retiring and burying, with threads that look.

use std::{sync::atomic::AtomicBool, thread};

use super::*;

#[test]
fn it_shows_what_is_published_until_it_is_retracted() {
    let place = Published::default();
    let look = || place.with(|seen| seen.map(|value| ***value));
    assert_eq!(look(), None);
    place.publish(Arc::new(5));
    assert_eq!(look(), Some(5));
    assert_eq!(place.look(&pin()), Some(&5));
    place.retract(drop);
    place.retract(drop);
    assert_eq!(look(), None);
    assert_eq!(place.look(&pin()), None);
}

#[test]
fn what_one_thread_publishes_another_one_sees_whole() {
    for _ in 0..if cfg!(miri) { 5 } else { 1_000 } {
        let place = Published::default();
        thread::scope(|scope| {
            scope.spawn(|| place.publish(Arc::new(vec![1, 2, 3])));
            while !place.with(|seen| seen.is_some_and(|value| ***value == [1, 2, 3])) {
                thread::yield_now();
            }
        });
    }
}

#[test]
fn what_is_seen_can_be_kept() {
    let place = Published::default();
    place.publish(Arc::new(5));
    let kept = place.with(|seen| seen.map(|value| Arc::clone(value))).expect("published");
    drop(place);
    assert_eq!((*kept, Arc::strong_count(&kept)), (5, 1));
}

#[test]
fn a_place_that_goes_lets_go_of_its_value() {
    let (place, value) = (Published::default(), Arc::new(()));
    place.publish(Arc::clone(&value));
    assert_eq!(Arc::strong_count(&value), 2);
    drop(place);
    assert_eq!(Arc::strong_count(&value), 1);
}

#[test]
fn what_is_buried_is_freed_when_nobody_looks() {
    let (place, value) = (Published::default(), Arc::new(()));
    // Other tests pin now and then; what is not freed by one end is by a later one.
    let freed = (0..100_000).any(|_| {
        place.publish(Arc::clone(&value));
        place.retract(bury);
        free_garbage();
        Arc::strong_count(&value) == 1
    });
    assert!(freed);
}

/// Nobody waits for who is burying something, nor frees it instead.
#[test]
fn what_cannot_be_buried_now_is_buried_later() {
    let value = Arc::new(());
    let other = BURIED.lock().unwrap_or_else(PoisonError::into_inner);
    bury(Arc::clone(&value));
    for _ in 0..1_000 {
        pin().0.flush();
    }
    assert_eq!(Arc::strong_count(&value), 2);
    drop(other);
    assert!((0..100_000).any(|_| {
        free_garbage();
        Arc::strong_count(&value) == 1
    }));
}

#[test]
fn who_else_uses_epochs_is_not_met() {
    let done = Arc::new(AtomicBool::new(false));
    let strangers = Arc::clone(&done);
    epoch::pin().defer(move || strangers.store(true, Ordering::Relaxed));
    epoch::pin().flush();
    for _ in 0..100 {
        free_garbage();
    }
    assert!(!done.load(Ordering::Relaxed), "done by a thread that pins here");
    let _stays = epoch::pin();
    what_is_buried_is_freed_when_nobody_looks();
}

/// A value, published, and taken back while `look` is still looking.
fn retired_under(look: impl FnOnce(&mut Retired<Arc<()>>, &Arc<()>)) -> Arc<()> {
    let (place, inner, mut retired) = (Published::default(), Arc::new(()), Retired::default());
    let value = Arc::new(Arc::clone(&inner));
    place.publish(Arc::clone(&value));
    let pinned = pin();
    assert!(place.look(&pinned).is_some());
    place.retract(drop);
    retired.push(value);
    for _ in 0..100 {
        retired.free_some();
    }
    assert_eq!((retired.len(), Arc::strong_count(&inner)), (1, 2), "somebody is looking");
    drop(pinned);
    look(&mut retired, &inner);
    inner
}

#[test]
fn what_is_retired_is_freed_in_steps_when_nobody_looks() {
    retired_under(|retired, inner| {
        assert!((0..100_000).any(|_| {
            retired.free_some();
            retired.len() == 0
        }));
        assert_eq!(Arc::strong_count(inner), 1);
    });
}

/// Not by whoever does the work of an epoch, a canceller perhaps.
#[test]
fn what_was_retired_by_a_shard_that_is_gone_is_freed_by_another() {
    let inner = retired_under(|_, _| ());
    for _ in 0..1_000 {
        pin().0.flush();
    }
    assert_eq!(Arc::strong_count(&inner), 2);
    assert!((0..100_000).any(|_| {
        free_garbage();
        Arc::strong_count(&inner) == 1
    }));
}
