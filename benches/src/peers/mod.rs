//! The peers, each behind [`Timers`](crate::timers::Timers).

mod binary_heap;
mod btree;
mod corewheel;
mod floor;
mod hash_wheel;
mod heap4;
mod linked64;
mod single65536;
mod table;
mod tokio;

pub use self::{
    binary_heap::LazyBinaryHeap,
    btree::BTree,
    corewheel::{CorewheelLocal, CorewheelShard, CorewheelWheel, LocalClock, RealTime},
    floor::Floor,
    hash_wheel::HashWheel,
    heap4::Heap4,
    linked64::Linked64,
    single65536::Single65536,
    table::Handle,
    tokio::{DelayQueuePeer, Place, TokioSleep},
};
pub(crate) use self::{
    corewheel::{note_fired, take_fired},
    tokio::{empty, put},
};
