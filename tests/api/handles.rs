//! Handles are plain values (P12) with a definite status on every thread (P3).

use std::{cell::Cell, fmt::Debug, future::Ready, hash::Hash, panic, rc::Rc};

use corewheel::{
    Cancel, Config, Core, Cores, LocalHandle, LocalTimer, PreparedSleep, Shard, ShardRef,
    TimerGuard, TimerHandle, TimerStatus,
    future::{Interval, SharedWheel, Sleep, Timeout, Timers},
    local_timer,
};

use crate::{
    implements::implements,
    support::{
        TICK, call_from_another_thread, cancel_remotely, in_checked_virtual_time, must_not_run,
        on_a_thread, turn_after,
    },
};

#[test]
fn a_handle_is_a_plain_value_of_sixteen_bytes() {
    assert_eq!(size_of::<TimerHandle>(), 16);
    assert_eq!(size_of::<Option<TimerHandle>>(), 16);
    assert_eq!(size_of::<LocalHandle>(), 16);
    assert_eq!(size_of::<TimerGuard>(), 16);
    assert!(implements!(TimerHandle: Copy + Send + Sync + Unpin + Eq + Hash + Debug + 'static));
    assert!(implements!(TimerHandle: panic::UnwindSafe + panic::RefUnwindSafe));
    assert!(implements!(TimerGuard: Send + Sync + Debug));
    assert!(!implements!(TimerGuard: Clone), "a guard cancels once");
    assert!(implements!(LocalHandle: Copy + Eq + Hash + Debug));
    let origin = if cfg!(feature = "origins") { size_of::<usize>() } else { 0 };
    assert!(size_of::<Sleep>() <= 48 + origin, "{}", size_of::<Sleep>());
    assert!(size_of::<Sleep<SharedWheel>>() <= 64 + origin, "{}", size_of::<Sleep<SharedWheel>>());
}

#[test]
fn thread_bound_types_are_not_send_and_the_others_are() {
    assert!(!implements!(LocalHandle: Send));
    assert!(!implements!(LocalHandle: Sync));
    assert!(!implements!(LocalTimer: Send));
    assert!(!implements!(LocalTimer: Sync));
    assert!(!implements!(PreparedSleep<'static>: Send));
    assert!(!implements!(PreparedSleep<'static>: Sync));
    assert!(!implements!(Shard<Rc<u8>>: Send));
    assert!(!implements!(Sleep: Send));
    assert!(!implements!(Interval: Send));
    assert!(!implements!(Timeout<()>: Send));
    assert!(implements!(Sleep<SharedWheel>: Send + Unpin + panic::UnwindSafe + 'static));
    assert!(implements!(Interval<SharedWheel>: Send + Unpin + 'static));
    assert!(implements!(Timeout<Ready<()>, SharedWheel>: Send + Unpin + 'static));
    assert!(implements!(Timers: Send + Sync + Clone + panic::UnwindSafe));
    assert!(implements!(ShardRef: Send + Sync + Clone + Eq + panic::UnwindSafe));
    assert!(implements!(Cores<()>: Send + Sync));
    assert!(implements!(Core: Send + Sync));
    assert!(implements!(Config: Send + Sync));
    assert!(implements!(Shard<u8>: Send));
    assert!(!implements!(Shard<u8>: Sync), "only the owner may call methods, even with `&self`");
}

#[test]
fn from_bits_restores_a_handle_while_its_timer_is_live() {
    in_checked_virtual_time(|clock| {
        let handles = [
            local_timer().add(TICK, || ()),
            local_timer().add_periodic(TICK, || ()),
            call_from_another_thread(|shard| shard.add(TICK, || ())),
        ];
        for handle in handles {
            let bits = handle.to_bits();
            assert_eq!(TimerHandle::from_bits(bits), Some(handle));
            on_a_thread(move || assert_eq!(TimerHandle::from_bits(bits), Some(handle)));
            // The skipped bits hold the shard number. A changed number may name a shard of another
            // test.
            for bit in (0..32).chain(46..128) {
                assert_eq!(TimerHandle::from_bits(bits ^ 1 << bit), None, "bit {bit}");
            }
        }
        assert_eq!(turn_after(clock, 1).fired, 3);
        assert_eq!(TimerHandle::from_bits(handles[0].to_bits()), None);
        assert_eq!(handles[1].cancel(), Cancel::Cancelled);
        assert_eq!(TimerHandle::from_bits(handles[1].to_bits()), None);
    });
    for bits in [0, 1, u128::MAX, u128::from(u64::MAX), 1 << 63, u128::MAX << 64] {
        assert_eq!(TimerHandle::from_bits(bits), None);
    }
}

#[test]
fn status_is_pending_then_running_then_ended_on_all_threads() {
    fn status(handle: TimerHandle) -> TimerStatus {
        let own_status = handle.status();
        assert_eq!(on_a_thread(move || handle.status()), own_status);
        own_status
    }
    in_checked_virtual_time(|clock| {
        let own = Rc::new(Cell::new(None));
        let in_callback = Rc::clone(&own);
        let ask = move || assert_eq!(in_callback.get().map(status), Some(TimerStatus::Running));
        let once = local_timer().add(TICK, ask.clone());
        own.set(Some(once));
        assert_eq!(status(once), TimerStatus::Pending);
        assert_eq!(turn_after(clock, 1).fired, 1);
        assert_eq!(status(once), TimerStatus::Ended);

        let periodic = local_timer().add_periodic(TICK, ask);
        own.set(Some(periodic));
        assert_eq!(turn_after(clock, 1).fired, 1);
        assert_eq!(status(periodic), TimerStatus::Pending);
        cancel_remotely(periodic);
        assert_eq!(status(periodic), TimerStatus::Ended);
        local_timer().turn();
        assert_eq!(
            status(local_timer().add_local(TICK, must_not_run).share()),
            TimerStatus::Pending
        );
    });
}
