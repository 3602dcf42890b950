//! The table of shards, through which a plain handle finds its shard.
//!
//! A handle names its shard by a number. Numbers are reused, so they never run out. The generation
//! keeps a stale handle from a newer shard of its number: the registry stores the old shard's
//! counters, and the new shard continues from them. So no two timers of one number ever share a
//! generation. Remote timers have another counter, and a generation bit that says so.

use std::sync::{Arc, Mutex, PoisonError};

use crate::{
    cross_core::{
        reclaim::{self, Published, Seen},
        shared::Shared,
        slab,
    },
    error::ConfigError,
    limits::{GENERATION_MAX, SHARDS_MAX},
    util::sync::global,
};

global! {
    static REGISTRY: Registry = Registry::new();
}

struct Registry {
    places: Box<[Published<Shared>]>,
    /// Locked when a shard is created and when it ends, never by a handle.
    vacancies: Mutex<Vacancies>,
}

/// The free numbers.
#[derive(Debug)]
struct Vacancies {
    returned: Vec<Vacancy>,
    never_used: u32,
    /// Shards created so far.
    made: u64,
}

#[derive(Debug)]
struct Vacancy {
    number: u32,
    next_generation: u64,
}

impl Registry {
    fn new() -> Self {
        Self {
            places: (0..SHARDS_MAX).map(|_| Published::default()).collect(),
            vacancies: Mutex::new(Vacancies { returned: Vec::new(), never_used: 0, made: 0 }),
        }
    }

    fn vacancies(&self) -> std::sync::MutexGuard<'_, Vacancies> {
        // No critical section can panic half-way, so a poisoned lock guards sound data.
        self.vacancies.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Vacancies {
    fn take(&mut self) -> Option<Vacancy> {
        self.made += 1;
        self.returned.pop().or_else(|| {
            let number = self.never_used;
            (number < SHARDS_MAX).then(|| {
                self.never_used += 1;
                Vacancy { number, next_generation: 1 }
            })
        })
    }
}

/// A shard's number, and the generation of its first timer.
#[derive(Debug)]
pub(crate) struct Registration {
    pub(crate) number: u32,
    pub(crate) first_generation: u64,
}

/// Gives a shard its number. From now on its handles find it.
pub(crate) fn register(shared: &Arc<Shared>) -> Result<Registration, ConfigError> {
    let (vacancy, made) = {
        let mut vacancies = REGISTRY.vacancies();
        (vacancies.take().ok_or(ConfigError::TooManyShards { max: SHARDS_MAX })?, vacancies.made)
    };
    shared.gauges.set_serial(made, vacancy.number);
    shared.start_remote_generations_at(vacancy.next_generation);
    REGISTRY.places[vacancy.number as usize].publish(Arc::clone(shared));
    Ok(Registration { number: vacancy.number, first_generation: vacancy.next_generation })
}

/// Takes a shard's number back. From now on its handles find nothing. A later shard of this number
/// starts at `next_generation`.
pub(crate) fn unregister(number: u32, next_generation: u64) {
    REGISTRY.places[number as usize].retract(reclaim::bury);
    reclaim::free_garbage();
    slab::free_orphans();
    // A number whose generations are used up is never reused.
    if next_generation <= GENERATION_MAX {
        REGISTRY.vacancies().returned.push(Vacancy { number, next_generation });
    }
}

/// Calls `look` with the shard `number`, if it exists, while this thread is pinned.
#[inline]
pub(crate) fn with<R>(number: u32, look: impl FnOnce(Option<&Seen<'_, Shared>>) -> R) -> R {
    REGISTRY.places[number as usize].with(look)
}

/// Returns the shared part of the shard `number`, if it exists.
#[cfg(feature = "metrics")]
pub(crate) fn shared(number: u32) -> Option<Arc<Shared>> {
    with(number, |seen| seen.map(|shared| Arc::clone(shared)))
}

/// Returns the numbers that were ever used.
pub(crate) fn numbers() -> std::ops::Range<u32> {
    0..REGISTRY.vacancies().never_used
}
