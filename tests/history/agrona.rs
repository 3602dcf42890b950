//! Agrona's `DeadlineTimerWheel`.

use std::collections::BTreeMap;

use corewheel::{Cancel, ManualClock, Wheel, local_timer};

use crate::{
    CANCELS, cancel_elsewhere,
    common::{TICK, operations, seeded},
    counter, never, on_a_core, shard, turn_after,
};

/// Its identifiers carry no generation: a stale one cancels whoever has the place now.
#[test]
fn bug_38_a_stale_id_cancelled_a_stranger() {
    let mut wheel = Wheel::<u32>::new();
    let stale = wheel.insert(10, 1);
    assert_eq!(wheel.remove(stale), Some(1));
    let fired = wheel.insert(5, 2);
    assert_eq!(wheel.advance(5).next(), Some((5, 2)));
    let live = wheel.insert(10, 3);
    assert_eq!((wheel.remove(stale), wheel.remove(fired)), (None, None));
    assert!(!wheel.reset(stale, 20) && !wheel.reset(fired, 20));
    assert_eq!((wheel.next_deadline(), wheel.remove(live)), (Some(10), Some(3)));

    let mut shard = shard(&ManualClock::new());
    let stale = shard.add(TICK, 1);
    assert_eq!(shard.cancel(stale), Some(1));
    let live = shard.add(TICK, 2);
    assert_eq!(
        (shard.cancel(stale), shard.reset(stale, TICK * 5), cancel_elsewhere(stale)),
        (None, false, Cancel::Ended)
    );
    assert_eq!((shard.time_until_next(), shard.cancel(live)), (Some(TICK), Some(2)));

    for cancel in CANCELS {
        on_a_core(|clock| {
            let (runs, run) = counter();
            let stale = local_timer().add(TICK, never);
            let private = local_timer().add_local(TICK, never);
            assert_eq!((cancel(stale), private.cancel()), (Cancel::Cancelled, Cancel::Cancelled));
            local_timer().turn();
            let live = [0; 2].map(|_| local_timer().add(TICK, run.clone()));
            assert_eq!((cancel(stale), private.cancel()), (Cancel::Ended, Cancel::Ended));
            assert!(!stale.reset(TICK * 5) && !private.reset(TICK * 5) && !stale.is_pending());
            assert!(live.iter().all(|handle| handle.is_pending()));
            assert_eq!((turn_after(clock, 1).fired, runs.get()), (2, 2));
        });
    }
}

/// 4bf3d29a: what the iterator handed out was not what was there. Keys, values and deadlines stay together while
/// places are used again.
#[test]
fn bug_38_an_id_and_its_timer_did_not_belong_together() {
    seeded(0..operations(20).min(200), |random| {
        let (mut wheel, mut live) = (Wheel::<u64, 2, 32>::starting_at(0), BTreeMap::new());
        for value in 0..2_000 {
            let deadline = wheel.now() + 1 + random.u64(..500);
            live.insert(value, (wheel.insert(deadline, value), deadline));
            let any = random.u64(..=value);
            if let Some((key, _)) = live.get(&any).copied()
                && random.bool()
            {
                assert_eq!(wheel.remove(key), Some(any));
                live.remove(&any);
            }
            for (deadline, value) in wheel.advance(wheel.now() + random.u64(..3)) {
                assert_eq!(live.remove(&value).map(|(_, due)| due), Some(deadline));
            }
        }
        assert_eq!(wheel.len(), live.len());
    });
}
