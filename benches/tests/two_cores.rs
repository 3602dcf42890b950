//! The peers between two cores: right before they are measured. Every timer that is handed over is
//! cancelled once and collected once, and every message arrives once. The loads assert that
//! themselves.

use std::collections::BTreeSet;

use corewheel_bench::{
    across::{Channel, FloorOwner, Local, LocalShard, Locked, Owner, ParkingLot, Std, TokioDrop},
    cores,
    mailboxes::{self, Array, Chain, Chains, Mailbox, Nodes, Ring, Seg, SwapQueue},
    peers::{CorewheelWheel, Heap4, Linked64},
    workloads::xcancel::{self, Direction, Size, Stretch},
};
use fastrand::Rng;
use tokio::runtime::Builder;

const SIZE: Size = Size { live: 500, handed: 64 * 100, stretches: 2 };
const DIRECTIONS: [Direction; 2] = [Direction::OneWay, Direction::BothWays];

fn check_exchange(direction: Direction, stretches: &[[Stretch; 2]]) {
    let adds = |core: usize| core == 0 || direction == Direction::BothWays;
    assert_eq!(stretches.len(), SIZE.stretches);
    for ends in stretches {
        for (core, end) in ends.iter().enumerate() {
            assert_eq!(end.taken_in, if adds(core) { SIZE.handed } else { 0 });
            assert_eq!(end.cancelled, if adds(1 - core) { SIZE.handed } else { 0 });
        }
    }
}

fn exchange<T: Owner>() {
    for direction in DIRECTIONS {
        check_exchange(direction, &xcancel::on_threads::<T>(direction, SIZE));
    }
}

/// Whatever brings a handle to the other core.
#[test]
fn timers_are_cancelled_from_elsewhere() {
    exchange::<Local<false>>();
    exchange::<Local<true>>();
    exchange::<LocalShard>();
    exchange::<FloorOwner>();
    exchange::<Locked<CorewheelWheel, Std>>();
    exchange::<Locked<CorewheelWheel, ParkingLot>>();
    exchange::<Locked<Linked64, ParkingLot>>();
    exchange::<Locked<Heap4, ParkingLot>>();
    exchange::<Channel<CorewheelWheel>>();
}

#[test]
fn tokio_drops_in_another_task() {
    let mut runtime = Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).enable_time().build().expect("a runtime");
    for direction in DIRECTIONS {
        check_exchange(direction, &xcancel::in_tasks::<TokioDrop>(direction, SIZE, &runtime));
    }
}

/// On one thread, in bursts: every message arrives, whatever was taken in between.
fn keeps_messages<M: Mailbox>() {
    const COUNT: u32 = 70;
    let nodes = Nodes::new(COUNT as usize);
    let (mut sender, mut receiver) = M::open(&nodes);
    let (mut free, mut sent): (BTreeSet<u32>, _) = ((1..=COUNT).collect(), BTreeSet::new());
    let mut rng = Rng::with_seed(5);
    for _ in 0..5000 {
        for _ in 0..rng.u32(..3) {
            let Some(index) = rng.choice(&free).copied() else { break };
            assert!(nodes.claim(index) && !nodes.claim(index));
            free.remove(&index);
            sent.insert(index);
            M::push(&mut sender, index);
        }
        if rng.u32(..10) == 0 {
            M::take(&mut receiver, |index| {
                assert!(sent.remove(&index), "it was sent, and once");
                nodes.free(index);
                free.insert(index);
            });
            assert!(sent.is_empty(), "nothing is left: nobody sends meanwhile");
        }
    }
}

#[test]
fn mailboxes_lose_nothing() {
    keeps_messages::<Chains>();
    keeps_messages::<Chain<false>>();
    keeps_messages::<Chain<true>>();
    keeps_messages::<SwapQueue>();
    keeps_messages::<Seg>();
    keeps_messages::<Array>();
    keeps_messages::<mailboxes::Channel>();
    keeps_messages::<Ring>();
}

#[test]
fn a_thread_knows_how_often_it_lost_its_core() {
    let before = cores::losses();
    assert!(cores::losses() >= before && before.is_some() == cfg!(target_os = "linux"));
}
