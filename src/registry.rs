//! Which shards exist, so that a plain handle finds its owner.
//!
//! A handle names its shard by a number. Numbers are used again, so they never run out; what keeps a stale handle from
//! reaching a newer shard of its number is the generation: the registry remembers where the old shard's counters stood,
//! and the new one goes on from there. So no two timers of one number ever share a generation. Remote timers have
//! another counter, and a generation bit that says so.

use std::sync::{Arc, Mutex, PoisonError};

use crate::{
    error::ConfigError,
    limits::{GENERATION_MAX, SHARDS_MAX},
    reclaim::{self, Published, Seen},
    shared::Shared,
    slab,
    sync::global,
};

global! {
    static REGISTRY: Registry = Registry::new();
}

struct Registry {
    places: Box<[Published<Shared>]>,
    /// Taken when a shard is made and when it ends, never by a handle.
    vacancies: Mutex<Vacancies>,
}

/// The numbers that are free.
#[derive(Debug)]
struct Vacancies {
    returned: Vec<Vacancy>,
    never_used: u32,
    /// Shards that were made so far.
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
        // Nothing in the critical sections can panic half-way; a poisoned lock guards sound data.
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

/// A shard's number, and the generation its first timer gets.
#[derive(Debug)]
pub(crate) struct Registration {
    pub(crate) number: u32,
    pub(crate) first_generation: u64,
}

/// Gives a shard its number: from now on its handles find it.
pub(crate) fn register(shared: &Arc<Shared>) -> Result<Registration, ConfigError> {
    let (vacancy, made) = {
        let mut vacancies = REGISTRY.vacancies();
        (vacancies.take().ok_or(ConfigError::TooManyShards { max: SHARDS_MAX })?, vacancies.made)
    };
    shared.gauges.set_serial(made);
    shared.start_remote_generations_at(vacancy.next_generation);
    REGISTRY.places[vacancy.number as usize].publish(Arc::clone(shared));
    Ok(Registration { number: vacancy.number, first_generation: vacancy.next_generation })
}

/// Takes a shard's number back; its handles find nothing from now on. `next_generation` is where a later shard of this
/// number goes on.
pub(crate) fn unregister(number: u32, next_generation: u64) {
    REGISTRY.places[number as usize].retract(reclaim::bury);
    reclaim::free_garbage();
    slab::free_orphans();
    // A number whose generations are used up is never given again.
    if next_generation <= GENERATION_MAX {
        REGISTRY.vacancies().returned.push(Vacancy { number, next_generation });
    }
}

/// Looks at the shard `number`, if it is there, as a stranger: pinned meanwhile.
#[inline]
pub(crate) fn with<R>(number: u32, look: impl FnOnce(Option<&Seen<'_, Shared>>) -> R) -> R {
    REGISTRY.places[number as usize].with(look)
}

/// What the shard `number` shares with others, if it is there.
#[cfg(feature = "metrics")]
pub(crate) fn shared(number: u32) -> Option<Arc<Shared>> {
    with(number, |seen| seen.map(|shared| Arc::clone(shared)))
}

/// The numbers that have been given so far, of shards that exist or not.
pub(crate) fn numbers() -> std::ops::Range<u32> {
    0..REGISTRY.vacancies().never_used
}
