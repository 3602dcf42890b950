//! Handles are plain values (P12), and the caller of `cancel` learns at once whether it has
//! cancelled (P3), on the owning core and elsewhere.

use std::{
    cell::Cell, collections::HashSet, fmt::Debug, hash::Hash, marker::PhantomData, panic, rc::Rc,
    time::Duration,
};

use corewheel::{
    Cancel, Config, Core, Cores, LocalHandle, LocalTimer, PreparedSleep, Shard, TimerGuard,
    TimerHandle, TimerStatus, local_timer,
};

use crate::{
    common::{TICK, in_virtual_time, on_a_thread},
    support::{
        Counter, assert_stale, cancel_elsewhere, expired, manual_shard, never, on_a_core, pass,
        turn_after,
    },
};

// ---- types

/// Whether a type implements a trait. The inherent constant exists for such types only, and takes
/// precedence over the constant of the trait.
macro_rules! implements {
    ($type:ty: $($bound:tt)+) => {{
        #[allow(dead_code, reason = "used where the bound does not hold")]
        trait No {
            const IT_DOES: bool = false;
        }
        struct Probe<T>(PhantomData<T>);
        #[allow(dead_code, reason = "used where the bound holds")]
        impl<T: $($bound)+> Probe<T> {
            const IT_DOES: bool = true;
        }
        impl<T> No for Probe<T> {}
        <Probe<$type>>::IT_DOES
    }};
}

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
    assert!(implements!(Cores<()>: Send + Sync));
    assert!(implements!(Core: Send + Sync));
    assert!(implements!(Config: Send + Sync));
    assert!(implements!(Shard<u8>: Send));
}

#[test]
fn a_handle_returns_from_its_bits_while_its_timer_is_live() {
    on_a_core(|clock| {
        let handles = [
            local_timer().add(TICK, || ()),
            local_timer().add_periodic(TICK, || ()),
            on_a_thread({
                let shard = local_timer().shard_ref();
                move || shard.add(TICK, || ())
            }),
        ];
        for handle in handles {
            let bits = handle.to_bits();
            assert_eq!(TimerHandle::from_bits(bits), Some(handle));
            on_a_thread(move || assert_eq!(TimerHandle::from_bits(bits), Some(handle)));
            // The bits of the shard's number may name a timer of another test.
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
fn the_status_is_pending_then_running_then_ended_on_every_thread() {
    fn status(handle: TimerHandle) -> TimerStatus {
        let here = handle.status();
        assert_eq!(on_a_thread(move || handle.status()), here);
        here
    }
    on_a_core(|clock| {
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
        cancel_elsewhere(periodic);
        assert_eq!(status(periodic), TimerStatus::Ended);
        local_timer().turn();
        assert_eq!(status(local_timer().add_local(TICK, never).share()), TimerStatus::Pending);
    });
}

#[test]
fn the_owner_reads_the_deadline_and_the_time_left() {
    on_a_core(|clock| {
        let start = local_timer().now();
        let read = |handle| {
            let deadline = local_timer().deadline(handle);
            let left =
                deadline.map(|deadline| deadline.saturating_duration_since(local_timer().now()));
            assert_eq!(local_timer().time_left(handle), left);
            deadline.map(|deadline| deadline - start)
        };
        let near = local_timer().add(TICK * 3, || ());
        let far = local_timer().add(TICK * 3_000_000, never);
        let private = local_timer().add_local(TICK * 4 - TICK / 3, || ());
        let periodic = local_timer().add_periodic(TICK * 5, || ());
        let shard = local_timer().shard_ref();
        let remote = on_a_thread(move || shard.add(TICK * 6, || ()));
        assert_eq!(read(near), Some(TICK * 3));
        assert_eq!(read(far), Some(TICK * 3_000_000));
        assert_eq!(private.deadline().map(|deadline| deadline - start), Some(TICK * 4));
        assert_eq!(private.time_left(), Some(TICK * 4));
        assert_eq!(read(periodic), Some(TICK * 5));
        assert_eq!(read(remote), Some(TICK * 6), "before the owner has admitted it");
        assert!(on_a_thread(move || near.reset(TICK * 7)));
        assert_eq!(read(near), Some(TICK * 7), "before the owner has linked it there");
        assert!(near.reset(TICK * 8) && far.reset(TICK * 9));
        assert_eq!((read(near), read(far)), (Some(TICK * 8), Some(TICK * 9)));
        cancel_elsewhere(far);
        assert_eq!(read(far), None);

        pass(clock, 5);
        assert_eq!((read(near), read(periodic)), (Some(TICK * 8), Some(TICK * 10)));
        assert_eq!(private.deadline(), None);
        // The deadline has elapsed without a turn.
        clock.advance(TICK * 4);
        assert_eq!(
            (read(near), local_timer().time_left(near)),
            (Some(TICK * 8), Some(Duration::ZERO))
        );
        local_timer().turn();
        assert_eq!((read(near), read(remote)), (None, None));
        let of_another_thread = on_a_thread(|| {
            let (mut shard, _) = manual_shard();
            assert_eq!(shard.deadline(near), None);
            let handle = shard.add(TICK, ());
            assert_eq!(shard.time_left(handle), Some(TICK));
            assert_eq!(shard.deadline(handle), Some(shard.now() + TICK));
            assert_eq!(read(handle), None);
            handle
        });
        assert_eq!(read(of_another_thread), None);
    });
}

#[test]
fn values_of_one_thread_cannot_leave_it() {
    assert!(!implements!(LocalHandle: Send));
    assert!(!implements!(LocalHandle: Sync));
    assert!(!implements!(LocalTimer: Send));
    assert!(!implements!(LocalTimer: Sync));
    assert!(!implements!(PreparedSleep<'static>: Send));
    assert!(!implements!(PreparedSleep<'static>: Sync));
    assert!(!implements!(Shard<Rc<u8>>: Send));
}

#[test]
fn handles_are_equal_when_they_name_the_same_timer() {
    on_a_core(|_| {
        let [one, other] = [(); 2].map(|()| local_timer().add(TICK, never));
        let copy = one;
        assert!(one == copy && one != other);
        assert_eq!(HashSet::from([one, copy, other]).len(), 2);
        assert!(!format!("{one:?}").is_empty() && format!("{one:?}") != format!("{other:?}"));
        let local = local_timer().add_local(TICK, never);
        assert_eq!(local.share(), local.share());
    });
}

// ---- guards

#[test]
fn a_guard_cancels_when_it_is_dropped() {
    on_a_core(|clock| {
        let dropped = Counter::default();
        let guard = local_timer().add(TICK, dropped.never()).guard();
        let handle = guard.handle();
        assert!(handle.is_pending());
        drop(guard);
        assert_eq!((handle.cancel(), dropped.get()), (Cancel::Ended, 1));
        assert_eq!((turn_after(clock, 1).fired, local_timer().counts().cancelled), (0, 1));
        let unwound = panic::catch_unwind(|| {
            let _guard = local_timer().add(TICK, never).guard();
            panic!("as planned");
        });
        assert!(unwound.is_err() && local_timer().is_empty());
        let guard = local_timer().add(TICK, never).guard();
        on_a_thread(move || drop(guard));
        let turn = turn_after(clock, 1);
        assert_eq!((turn.fired, turn.collected, turn.live), (0, 1, 0));
    });
}

#[test]
fn a_guard_that_is_disarmed_or_stale_cancels_nothing() {
    on_a_core(|clock| {
        let handle = local_timer().add(TICK, || {}).guard().disarm();
        assert!(handle.is_pending());
        assert_eq!(turn_after(clock, 1).fired, 1);
        let guard = local_timer().add(TICK, || {}).guard();
        assert_eq!(turn_after(clock, 1).fired, 1);
        let next = local_timer().add(TICK, || {});
        drop(guard);
        assert!(next.is_pending());
        assert_eq!(turn_after(clock, 1).fired, 1);
    });
    drop(in_virtual_time(|_| local_timer().add(TICK, never).guard()));
}

// ---- stale handles

fn assert_stale_everywhere(handles: &[TimerHandle]) {
    handles.iter().copied().for_each(assert_stale);
    on_a_thread(|| handles.iter().copied().for_each(assert_stale));
}

#[test]
fn a_stale_handle_never_reaches_the_next_timer_of_its_node() {
    on_a_core(|clock| {
        let mut stale = HashSet::new();
        for round in 0..3_000 {
            // There is one timer at a time, so each reuses the node of the one before.
            let handle = match round % 2 {
                0 => local_timer().add(TICK, || {}),
                _ => local_timer().add_periodic(TICK, || {}),
            };
            match round % 3 {
                0 => assert_eq!(turn_after(clock, 1).fired, 1),
                1 => assert_eq!(handle.cancel(), Cancel::Cancelled),
                _ if round % 64 == 2 => assert_eq!(cancel_elsewhere(handle), Cancel::Cancelled),
                _ => {}
            }
            handle.cancel();
            local_timer().turn();
            assert!(local_timer().is_empty());
            assert!(stale.insert(handle), "no two timers ever have the same handle");
        }
        let runs = Counter::default();
        let live = [(); 10].map(|()| local_timer().add(TICK, runs.callback()));
        assert_stale_everywhere(&Vec::from_iter(stale));
        assert!(live.iter().all(|handle| handle.is_pending()));
        assert_eq!((turn_after(clock, 1).fired, runs.get()), (10, 10));
    });
}

#[test]
fn a_stale_handle_never_reaches_the_next_shard_of_its_number() {
    let mut stale = HashSet::new();
    // A number is free again at once, so most of these shards have the same number.
    for round in 0..100 {
        let (mut shard, clock) = manual_shard();
        for id in 0..20 {
            assert!(stale.insert(shard.add(TICK, id)), "no two timers ever have the same handle");
        }
        if round % 3 == 0 {
            clock.advance(TICK);
            assert_eq!(expired(&mut shard).len(), 20);
        }
        if round % 2 == 0 {
            drop(shard.drain());
        }
    }
    let (mut large, _) = manual_shard();
    stale.extend((0..5_000).map(|id| large.add(TICK, id)).last());
    drop(large);
    let mut shards: Vec<Shard<u8>> = (0..20).map(|_| manual_shard().0).collect();
    let mut live = Vec::new();
    for shard in &mut shards {
        live.extend((0..20).map(|id| shard.add(TICK, id)));
    }
    assert_stale_everywhere(&stale.iter().copied().collect::<Vec<_>>());
    for &handle in &stale {
        for shard in &mut shards {
            assert_eq!((shard.cancel(handle), shard.reset(handle, Duration::ZERO)), (None, false));
        }
    }
    assert!(live.iter().all(|handle| handle.is_pending()));
    for mut shard in shards {
        let mut ids: Vec<_> = shard.drain().into_iter().map(|(_, id)| id).collect();
        ids.sort_unstable();
        assert!(ids.into_iter().eq(0..20));
    }
    live.into_iter().for_each(assert_stale);
}

#[test]
fn a_shard_refuses_the_handles_of_another() {
    let ((mut one, _), (mut other, _)) = (manual_shard(), manual_shard());
    let handles = [0, 1, 2, 3].map(|id| (one.add(TICK * 9, id), other.add(TICK * 9, id)));
    for (of_one, of_other) in handles {
        assert_eq!((one.cancel(of_other), other.cancel(of_one)), (None, None));
        assert_eq!((one.reset(of_other, TICK), other.reset(of_one, TICK)), (false, false));
    }
    assert_eq!((one.time_until_next(), other.time_until_next()), (Some(TICK * 9), Some(TICK * 9)));
    assert_eq!(one.cancel(handles[3].0), Some(3));
}

// ---- from another thread

#[test]
fn a_cancel_elsewhere_leaves_the_callback_to_the_next_turn() {
    let at_exit = Counter::default();
    on_a_core(|clock| {
        let dropped = Counter::default();
        let handle = local_timer().add(TICK * 5, dropped.never());
        let other = local_timer().add(TICK * 9, || {});
        assert_eq!(cancel_elsewhere(handle), Cancel::Cancelled);
        assert_stale_everywhere(&[handle]);
        let counts = local_timer().counts();
        assert_eq!((counts.live, counts.held, counts.cancelled, local_timer().len()), (2, 1, 0, 2));
        assert_eq!(dropped.get(), 0);
        let turn = local_timer().turn();
        assert_eq!((turn.fired, turn.collected, turn.live), (0, 1, 1));
        let counts = local_timer().counts();
        assert_eq!((counts.live, counts.held, counts.cancelled, dropped.get()), (1, 0, 1, 1));
        assert_eq!((turn_after(clock, 9).fired, other.cancel()), (1, Cancel::Ended));
        let held = local_timer().add(TICK, at_exit.never());
        assert_eq!((cancel_elsewhere(held), at_exit.get()), (Cancel::Cancelled, 0));
    });
    assert_eq!(at_exit.get(), 1);
}

#[test]
fn a_timer_moves_to_an_instant_of_its_own_clock() {
    on_a_core(|clock| {
        let runs = Counter::default();
        let [own, other] = [(); 2].map(|()| local_timer().add(TICK, runs.callback()));
        let local = local_timer().add_local(TICK, runs.callback());
        let (passed, soon) = (clock.now(), clock.now() + TICK * 5);
        let reset = || [own.reset(soon), local.reset(soon), on_a_thread(|| other.reset(soon))];
        assert_eq!(reset(), [true; 3]);
        assert_eq!((turn_after(clock, 4).fired, turn_after(clock, 1).fired), (0, 3));
        assert_eq!((reset(), runs.get()), ([false; 3], 3));
        let late = local_timer().add(TICK * 100, runs.callback());
        assert!(late.reset(passed));
        assert_eq!((turn_after(clock, 1).fired, runs.get()), (1, 4));

        let shard = local_timer().shard_ref();
        let at = shard.now() + TICK * 2;
        assert_eq!(shard.now(), clock.now());
        on_a_thread(|| [at, passed].map(|at| shard.add(at, || ())));
        assert_eq!((local_timer().turn().fired, turn_after(clock, 2).fired), (1, 1));
    });
    let (mut shard, clock) = manual_shard();
    let handle = shard.add(TICK, ());
    assert!(shard.reset(handle, clock.now() + TICK * 3));
    clock.advance(TICK * 2);
    assert_eq!(expired(&mut shard), []);
    clock.advance(TICK);
    assert_eq!(expired(&mut shard), [()]);
    assert!(!shard.reset(handle, clock.now()));
}
