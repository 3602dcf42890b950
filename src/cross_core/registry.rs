//! The table of shards, in which a handle finds its shard by number.
//!
//! The number of an ended shard may be reused. The next shard with this number uses generations
//! above those of the ended shard, so a stale handle matches no later timer.

use std::sync::{Arc, Mutex};

use crate::{
    cross_core::{
        reclaim::{self, EpochArc, Pinned, Protected, pin},
        shared::Shared,
    },
    error::ConfigError,
    limits::{OWNER_GENERATION_MAX, SHARDS_MAX},
    util::sync::{const_static, lock},
};

const_static! {
    static REGISTRY: Registry = Registry {
        shards: EpochArc::empty_array(),
        free_numbers: Mutex::new(FreeNumbers {
            reusable_assignments: Vec::new(),
            first_never_used_number: 0,
            created_shard_count: 0,
        }),
    };
}

/// The shards of the process, by number.
struct Registry {
    shards: [EpochArc<Shared>; SHARDS_MAX as usize],
    /// Locked only to create, end or list shards. Operations on handles never take this lock.
    free_numbers: Mutex<FreeNumbers>,
}

/// The numbers that new shards can get.
#[derive(Debug)]
struct FreeNumbers {
    reusable_assignments: Vec<NumberAssignment>,
    first_never_used_number: u32,
    created_shard_count: u64,
}

/// A shard's number and first generation.
#[derive(Debug)]
struct NumberAssignment {
    number: u32,
    first_generation: u64,
}

impl FreeNumbers {
    fn assign_number(&mut self) -> Option<NumberAssignment> {
        let assignment = self.reusable_assignments.pop().or_else(|| {
            let number = self.first_never_used_number;
            (number < SHARDS_MAX).then(|| {
                self.first_never_used_number += 1;
                NumberAssignment { number, first_generation: 1 }
            })
        })?;
        self.created_shard_count += 1;
        Some(assignment)
    }
}

/// Assigns a shard its number and serial, and lets handles find it. Returns the shard, and the
/// generation of its first timer.
pub(crate) fn register(mut shared: Shared) -> Result<(Arc<Shared>, u64), ConfigError> {
    let mut free_numbers = lock(&REGISTRY.free_numbers);
    let assignment = free_numbers.assign_number().ok_or(ConfigError::TooManyShards)?;
    (shared.number, shared.serial) = (assignment.number, free_numbers.created_shard_count);
    drop(free_numbers);
    shared.slab.raise_first_generation(assignment.first_generation);
    let shared = Arc::new(shared);
    REGISTRY.shards[shared.number as usize].publish(Arc::clone(&shared));
    Ok((shared, assignment.first_generation))
}

/// Removes a shard from the table. The next shard with this `number` uses generations from
/// `first_generation` on.
pub(crate) fn unregister(number: u32, first_generation: u64) {
    REGISTRY.shards[number as usize].retract(reclaim::move_to_garbage);
    // A number whose generations are used up is not reused.
    if first_generation <= OWNER_GENERATION_MAX {
        lock(&REGISTRY.free_numbers)
            .reusable_assignments
            .push(NumberAssignment { number, first_generation });
    }
}

#[inline]
pub(crate) fn find_shard(number: u32, pinned: &Pinned) -> Option<Protected<'_, Shared>> {
    REGISTRY.shards[number as usize % SHARDS_MAX as usize].get(pinned)
}

pub(crate) fn find_shard_arc(number: u32) -> Option<Arc<Shared>> {
    Some(find_shard(number, &pin())?.to_arc())
}

pub(crate) fn ever_used_shard_numbers() -> std::ops::Range<u32> {
    0..lock(&REGISTRY.free_numbers).first_never_used_number
}
