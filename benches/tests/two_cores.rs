//! The peers between two cores: right before they are measured. Every timer that is handed over is
//! cancelled once and collected once, and every message arrives once. The loads assert that
//! themselves.

use std::{collections::BTreeSet, time::Duration};

use corewheel_bench::{
    asked, cores,
    crossing::{
        Channel, Crossing, FloorEnd, Local, LocalShard, Locked, ParkingLot, Std, TokioDrop,
    },
    mailboxes::{self, Array, Chain, Chains, Mailbox, Nodes, Ring, Seg, SwapQueue},
    measure::Effort,
    peers::{CorewheelShard, CorewheelWheel, Linked64},
    workloads::{
        asked as asking,
        flood::{self, Corewheel, Load, Owner, Setting},
        late, mailbox, scaling,
        xcancel::{self, Direction, Size, Stretch},
    },
};
use fastrand::Rng;
use tokio::runtime::{Builder, Runtime};

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
    let samples = xcancel::samples("xcancel", direction, SIZE, stretches);
    let [end_to_end, call, kept] = &samples[..] else { unreachable!("three figures") };
    assert!(end_to_end.value > 0.0 && call.value > 0.0 && (0.0..=100.0).contains(&kept.value));
}

fn exchange<T: Crossing>() {
    for direction in DIRECTIONS {
        check_exchange(direction, &xcancel::on_threads::<T>(direction, SIZE));
    }
}

fn two_workers() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_time().build().expect("a runtime")
}

#[test]
fn a_line_takes_its_time_there_and_back() {
    let nanos = cores::line_nanos();
    assert!((1.0..1e9).contains(&nanos), "{nanos} ns");
}

/// Whatever brings a handle to the other core.
#[test]
fn timers_are_cancelled_from_elsewhere() {
    exchange::<Local<false>>();
    exchange::<Local<true>>();
    exchange::<LocalShard>();
    exchange::<FloorEnd>();
    exchange::<Locked<CorewheelWheel, Std>>();
    exchange::<Locked<CorewheelWheel, ParkingLot>>();
    exchange::<Locked<Linked64, ParkingLot>>();
    exchange::<Channel<CorewheelWheel>>();
}

#[test]
fn tokio_drops_in_another_task() {
    for direction in DIRECTIONS {
        check_exchange(direction, &xcancel::in_tasks::<TokioDrop>(direction, SIZE, &two_workers()));
    }
}

fn check_asked<O: asked::Owner>() {
    for at_once in [1, 7, 1000] {
        let samples = asking::run::<O>("asked", at_once, 8);
        let names: Vec<&str> = samples.iter().map(|sample| sample.workload.as_str()).collect();
        let requests = ["asked-add", "asked-reset", "asked-run"];
        assert_eq!(names, requests.map(|name| [name.to_owned(), format!("{name}-call")]).concat());
        assert!(
            samples.chunks(2).all(|pair| 0.0 < pair[1].value && pair[1].value < pair[0].value),
            "{samples:?}"
        );
    }
}

/// Who asks asserts that each timer was live, and the owner that everything has run.
#[test]
fn what_is_asked_is_done() {
    check_asked::<asked::Local<false>>();
    check_asked::<asked::Local<true>>();
    check_asked::<asked::Locked<CorewheelWheel, Std>>();
    check_asked::<asked::Locked<Linked64, ParkingLot>>();
    check_asked::<asked::Channel<CorewheelWheel>>();
    check_asked::<asked::Entered>();
}

const LOAD: Load = Load {
    due: late::Size { timers: 200, span: Duration::from_millis(100) },
    pending: 20_000,
    setting: Setting::Alone,
};
const SETTINGS: [Setting; 3] = [Setting::Alone, Setting::Flooded, Setting::Bounded];

fn check_flood(outcome: impl Fn(Load) -> flood::Outcome) {
    let samples = flood::run("flood", LOAD, &SETTINGS, outcome);
    let settings: BTreeSet<&str> = samples.iter().map(|sample| sample.setting.as_str()).collect();
    assert_eq!(settings.len(), SETTINGS.len());
    assert_eq!(
        samples.iter().filter(|sample| sample.workload == "flood-took").count(),
        2,
        "two of them are floods"
    );
}

fn flooded<O: Owner>() {
    check_flood(flood::on_two_cores::<O>);
}

#[test]
fn timers_fire_in_a_flood_of_cancels() {
    flooded::<Corewheel>();
    flooded::<flood::Locked<CorewheelWheel, Std>>();
    flooded::<flood::Locked<Linked64, ParkingLot>>();
    flooded::<flood::Channel<CorewheelWheel>>();
    check_flood(|load| flood::tokio(load, &two_workers()));
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

/// In bursts, between two threads.
fn check_mailbox<M: Mailbox>() {
    keeps_messages::<M>();
    for nodes in [64, 1000] {
        let samples = mailbox::run::<M>("mailbox", nodes, 64 * 500);
        assert!(samples.len() == 2 && samples.iter().all(|sample| sample.value > 0.0));
    }
}

#[test]
fn mailboxes_lose_nothing() {
    check_mailbox::<Chains>();
    check_mailbox::<Chain<false>>();
    check_mailbox::<Chain<true>>();
    check_mailbox::<SwapQueue>();
    check_mailbox::<Seg>();
    check_mailbox::<Array>();
    check_mailbox::<mailboxes::Channel>();
    check_mailbox::<Ring>();
}

#[test]
fn scaling_is_measured_beside_the_empty_harness() {
    let effort = Effort { timed: Duration::ZERO, warm_up_max: Duration::from_millis(10) };
    let samples = scaling::run::<CorewheelShard>("scaling", 1000, 1, effort);
    assert_eq!(samples.len(), 3);
    assert!(samples.iter().all(|sample| sample.unit == "times" && sample.value > 0.0));
}

#[test]
fn a_thread_knows_how_often_it_lost_its_core() {
    let before = cores::losses();
    assert!(cores::losses() >= before && before.is_some() == cfg!(target_os = "linux"));
}
