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

pub use self::binary_heap::LazyBinaryHeap;
pub use self::btree::BTree;
pub use self::corewheel::{CorewheelLocal, CorewheelShard, CorewheelWheel, LocalClock, RealTime};
pub(crate) use self::corewheel::{note_fired, take_fired};
pub use self::floor::Floor;
pub use self::hash_wheel::HashWheel;
pub use self::heap4::Heap4;
pub use self::linked64::Linked64;
pub use self::single65536::Single65536;
pub use self::table::Handle;
pub use self::tokio::{DelayQueuePeer, Place, TokioSleep};
pub(crate) use self::tokio::{empty, put};
