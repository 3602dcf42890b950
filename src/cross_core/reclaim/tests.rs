use std::{sync::atomic::AtomicBool, thread, time::Instant};

use super::*;

/// Numbers a test's attempts, until a minute has passed. An attempt can fail because the system has
/// suspended a pinned thread.
pub(crate) fn attempts() -> impl Iterator<Item = u32> {
    let begun = Instant::now();
    (0..).take_while(move |attempt| {
        if attempt % 1_000 == 999 {
            thread::yield_now();
        }
        begun.elapsed().as_secs() < 60
    })
}

/// Advances the epoch until `is_done` returns true. Returns false after a minute.
fn is_done_eventually(is_done: impl Fn() -> bool) -> bool {
    attempts().any(|_| {
        advance_epoch();
        is_done()
    })
}

#[test]
fn a_value_is_visible_until_it_is_retracted() {
    let [cell] = EpochArc::<i32>::empty_array();
    let read = || cell.get(&pin()).map(|value| *value);
    assert_eq!(read(), None);
    cell.publish(Arc::new(5));
    assert_eq!(read(), Some(5));
    cell.retract(drop);
    cell.retract(drop);
    assert_eq!(read(), None);
}

#[test]
fn a_reader_sees_the_complete_published_value() {
    for _ in 0..if cfg!(miri) { 5 } else { 1_000 } {
        let [cell] = EpochArc::empty_array();
        thread::scope(|scope| {
            scope.spawn(|| cell.publish(Arc::new(vec![1, 2, 3])));
            while cell.get(&pin()).is_none_or(|value| *value != [1, 2, 3]) {
                thread::yield_now();
            }
        });
        cell.retract(drop);
    }
}

#[test]
fn a_protected_value_can_be_kept_as_an_arc() {
    let [cell] = EpochArc::empty_array();
    cell.publish(Arc::new(5));
    let kept = cell.get(&pin()).expect("published").to_arc();
    cell.retract(drop);
    assert!(is_done_eventually(|| Arc::strong_count(&kept) == 1));
    assert_eq!(*kept, 5);
}

#[test]
fn a_value_is_not_released_while_a_reader_is_pinned() {
    let ([cell], value) = (EpochArc::empty_array(), Arc::new(()));
    cell.publish(Arc::clone(&value));
    let pinned = pin();
    let seen = cell.get(&pinned);
    cell.retract(drop);
    (0..100).for_each(|_| advance_epoch());
    assert!(seen.is_some() && Arc::strong_count(&value) == 2);
    drop(pinned);
    assert!(is_done_eventually(|| Arc::strong_count(&value) == 1));
}

#[test]
fn garbage_is_freed_when_no_thread_is_pinned() {
    let ([cell], value) = (EpochArc::empty_array(), Arc::new(()));
    let freed = attempts().any(|_| {
        cell.publish(Arc::clone(&value));
        cell.retract(move_to_garbage);
        free_garbage();
        Arc::strong_count(&value) == 1
    });
    assert!(freed);
}

#[test]
fn a_move_to_garbage_retries_while_the_lock_is_held() {
    let value = Arc::new(());
    let garbage = lock(&GARBAGE);
    move_to_garbage(Arc::clone(&value));
    for _ in 0..1_000 {
        pin().0.flush();
    }
    assert_eq!(Arc::strong_count(&value), 2);
    drop(garbage);
    assert!(attempts().any(|_| {
        free_garbage();
        Arc::strong_count(&value) == 1
    }));
}

#[test]
fn the_global_epoch_collector_is_independent() {
    let done = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&done);
    epoch::pin().defer(move || flag.store(true, Ordering::Relaxed));
    epoch::pin().flush();
    for _ in 0..100 {
        free_garbage();
    }
    assert!(!done.load(Ordering::Relaxed), "`free_garbage` ran work of the global collector");
    let _pinned = epoch::pin();
    garbage_is_freed_when_no_thread_is_pinned();
}

#[test]
fn a_pointer_is_published_once_and_released_after_unpinning() {
    use std::sync::atomic::AtomicU32;

    static RELEASED: AtomicU32 = AtomicU32::new(0);

    let (cell, value) = (EpochPointer::default(), 5_u32);
    assert_eq!(cell.load(&pin()), None);
    assert!(cell.publish_if_empty(NonNull::from(&value)));
    assert!(!cell.publish_if_empty(NonNull::from(&6)));
    let pinned = pin();
    assert_eq!(cell.load(&pinned), Some(NonNull::from(&value)));
    cell.retract(|_| {
        // Relaxed: a count.
        RELEASED.fetch_add(1, Ordering::Relaxed);
    });
    assert_eq!(cell.load(&pinned), None);
    let is_released = || RELEASED.load(Ordering::Relaxed) == 1;
    (0..100).for_each(|_| advance_epoch());
    assert!(!is_released(), "this thread is pinned");
    drop(pinned);
    assert!(is_done_eventually(is_released));
}
