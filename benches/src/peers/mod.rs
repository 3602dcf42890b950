//! The peers, each behind [`Timers`](crate::timers::Timers).

mod binary_heap;
mod btree;
mod corewheel_local;
mod corewheel_shard;
mod corewheel_wheel;
mod delay_queue;
mod floor;
mod handle;
mod hash_wheel;
mod heap4;
mod linked64;
mod single65536;
mod tokio_sleep;

pub use self::{
    binary_heap::LazyBinaryHeap,
    btree::BTree,
    corewheel_local::{CorewheelLocal, CorewheelLocalRealTime},
    corewheel_shard::CorewheelShard,
    corewheel_wheel::CorewheelWheel,
    delay_queue::{DelayQueuePeer, DelayQueueRealTime},
    floor::Floor,
    handle::Handle,
    hash_wheel::HashWheel,
    heap4::Heap4,
    linked64::Linked64,
    single65536::Single65536,
    tokio_sleep::{TokioSleep, TokioSleepRealTime},
};
