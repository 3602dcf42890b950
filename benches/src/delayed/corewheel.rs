//! corewheel's purgatory.

use std::{sync::Arc, time::Duration};

use corewheel::{
    Config, Core, ManualClock, OperationId, Outcome, Purgatory, PurgatoryGroup, local_timer,
};

use super::{Delayed, Layout, Operation};

const TICK: Duration = Duration::from_millis(1);

/// One core's purgatory in a group.
#[derive(Debug)]
pub struct Corewheel {
    purgatory: Purgatory<usize, Operation>,
    clock: ManualClock,
}

/// The group and each core's clock.
#[derive(Clone, Debug)]
pub struct Common {
    group: PurgatoryGroup<usize>,
    clocks: Arc<[ManualClock]>,
}

impl Delayed for Corewheel {
    type Common = Common;
    type Id = OperationId;

    fn common(layout: Layout) -> Common {
        let group = PurgatoryGroup::by(move |&key| layout.home(key));
        Common { group, clocks: (0..layout.cores).map(|_| ManualClock::new()).collect() }
    }

    fn config(common: &Common, core: usize) -> Config {
        Config::new().tick(TICK).clock(&common.clocks[core])
    }

    fn new(common: &Common, core: &Core) -> Self {
        let purgatory = common.group.join(core.index(), core.shards());
        Self { purgatory, clock: common.clocks[core.index()].clone() }
    }

    fn add(&mut self, operation: Operation, ticks: u64) -> Option<OperationId> {
        let (key, timeout) = (operation.key as usize, TICK * ticks as u32);
        match self
            .purgatory
            .try_complete_else_watch(operation, [key], timeout)
            .expect("there is room")
        {
            Outcome::Waits(id) => Some(id),
            Outcome::Completed => None,
        }
    }

    fn notify(&mut self, key: usize) {
        self.purgatory.notify(&key);
    }

    fn force(&mut self, id: OperationId) {
        self.purgatory.force_complete(id);
    }

    fn tick(&mut self) {
        self.clock.advance(TICK);
        local_timer().turn();
    }
}
