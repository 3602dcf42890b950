//! Mailboxes between two cores: right before they are measured. Every message arrives once. The loads
//! of the other workloads of two cores assert that each timer is cancelled and collected once.

use std::collections::BTreeSet;

use corewheel_bench::{
    cores,
    mailboxes::{self, Array, Chain, Chains, Mailbox, Nodes, Ring, Seg, SwapQueue},
};
use fastrand::Rng;

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
