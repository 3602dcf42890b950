//! Every contender's delayed operations end once, in each way, before they are measured.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use corewheel::Cores;
use corewheel_bench::{
    across::{ParkingLot, Std},
    delayed::{Board, Corewheel, Delayed, Ended, Layout, Locked, Operation},
    peers::{BTree, Linked64},
};

const FOR_EVER: u64 = 30_000;

/// On one core: by an event, by force, by time, and at once.
fn ends_in_each_way<D: Delayed>() {
    let board: &Board = Box::leak(Box::new(Board {
        events: (0..2).map(|_| AtomicU64::new(0)).collect(),
        ended: vec![Ended::default()],
    }));
    let common = D::common(Layout { cores: 1, far: false });
    let config = {
        let common = common.clone();
        move |core| D::config(&common, core)
    };
    let cores = Cores::builder().shards(1).config(config).start(move |core| {
        let mut delayed = D::new(&common, &core);
        let operation = |key, wanted| Operation { board, key, core: 0, wanted };
        let ended = || board.ended[0].read();
        assert!(delayed.add(operation(0, 0), FOR_EVER).is_none(), "nothing to wait for");
        assert_eq!(ended(), [1, 0]);

        let [by_event, by_force] =
            [1, 1].map(|wanted| delayed.add(operation(0, wanted), FOR_EVER).expect("waits"));
        delayed.add(operation(1, 1), 3).expect("waits");
        delayed.notify(0);
        assert_eq!(ended(), [1, 0], "there was no event");
        delayed.force(by_force);
        delayed.force(by_force);
        assert_eq!(ended(), [1, 1]);
        board.events[0].store(1, Relaxed);
        delayed.notify(0);
        delayed.notify(0);
        delayed.force(by_event);
        assert_eq!(ended(), [2, 1]);

        (0..2).for_each(|_| delayed.tick());
        assert_eq!(ended(), [2, 1]);
        (0..3).for_each(|_| delayed.tick());
        assert_eq!(ended(), [2, 2]);
    });
    cores.expect("a thread").join().remove(0).expect("all as asserted");
}

#[test]
fn each_ends_once_in_each_way() {
    ends_in_each_way::<Corewheel>();
    ends_in_each_way::<Locked<Linked64, Std>>();
    ends_in_each_way::<Locked<BTree, ParkingLot>>();
}
