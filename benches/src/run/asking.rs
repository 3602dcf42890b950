//! Runs on two cores, of which one asks the other.

use crate::{
    asked::{Channel, Entered, Local, Locked},
    crossing::{ParkingLot, Std},
    measure::Sample,
    peers::{CorewheelWheel, Linked64},
    plan::{Job, Peer},
    workloads::asked,
};

/// What another core asks for.
pub(super) fn asked(Job { peer, pass, n, quick }: Job) -> Vec<Sample> {
    let run = match peer {
        Peer::CorewheelLocal => asked::run::<Local<false>>,
        Peer::CorewheelLocalFast => asked::run::<Local<true>>,
        Peer::MutexStd => asked::run::<Locked<CorewheelWheel, Std>>,
        Peer::MutexParkingLot => asked::run::<Locked<CorewheelWheel, ParkingLot>>,
        Peer::MutexLinked64 => asked::run::<Locked<Linked64, ParkingLot>>,
        Peer::Channel => asked::run::<Channel<CorewheelWheel>>,
        Peer::TokioSleep => asked::run::<Entered>,
        _ => unreachable!("it is for other passes"),
    };
    let rounds = if n < 1000 { 4000 } else { 400 };
    run(&pass.name(), n, if quick { rounds / 4 } else { rounds })
}
