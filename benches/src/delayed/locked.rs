//! A purgatory of all cores behind one lock: a map of watch lists, the operations, and a timer. As in Kafka, an operation
//! that is over leaves its list when the list is next looked through. The operations' last words are said without the lock.

use std::{
    collections::HashMap,
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use corewheel::{Completion, Config, Core, DelayedOperation};

use super::{Delayed, Layout, Operation};
use crate::timers::Timers;

/// One core's access.
#[derive(Debug)]
pub struct Locked<T: Timers> {
    inner: Arc<Mutex<Inner<T>>>,
    /// Room for what one call completes, kept for the next.
    done: Vec<Operation>,
    expired: Vec<u64>,
    cores: usize,
}

/// What is behind the lock.
#[derive(Debug)]
pub struct Inner<T: Timers> {
    watches: HashMap<usize, Vec<Id>>,
    operations: Vec<Slot<T>>,
    free: Vec<u32>,
    timers: T,
    now: u64,
}

#[derive(Debug)]
struct Slot<T: Timers> {
    generation: u32,
    parked: Option<(Operation, T::Handle)>,
}

/// Where an operation is, and which of those that have been there.
#[derive(Clone, Copy, Debug)]
pub struct Id {
    index: u32,
    generation: u32,
}

impl Id {
    fn to_bits(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.index)
    }

    fn of_bits(bits: u64) -> Self {
        Self { index: bits as u32, generation: (bits >> 32) as u32 }
    }
}

impl<T: Timers> Inner<T> {
    fn park(&mut self, operation: Operation, ticks: u64) -> Id {
        let index = self.free.pop().unwrap_or_else(|| {
            self.operations.push(Slot { generation: 0, parked: None });
            self.operations.len() as u32 - 1
        });
        let id = Id { index, generation: self.operations[index as usize].generation };
        self.watches.entry(operation.key as usize).or_default().push(id);
        let timer = self.timers.add(self.now + ticks, [id.to_bits(), 0, 0]);
        self.operations[index as usize].parked = Some((operation, timer));
        id
    }

    fn get(&mut self, id: Id) -> Option<&mut Operation> {
        let slot = &mut self.operations[id.index as usize];
        slot.parked
            .as_mut()
            .filter(|_| slot.generation == id.generation)
            .map(|(operation, _)| operation)
    }

    /// Takes an operation out and cancels its timer.
    fn take(&mut self, id: Id) -> Option<Operation> {
        let slot = &mut self.operations[id.index as usize];
        let (operation, timer) = slot.parked.take_if(|_| slot.generation == id.generation)?;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(id.index);
        self.timers.cancel(&timer);
        Some(operation)
    }

    /// Takes those out that are complete, and forgets those that are over.
    fn check(&mut self, key: usize, done: &mut Vec<Operation>) {
        let Some(list) = self.watches.get_mut(&key) else { return };
        let mut list = mem::take(list);
        list.retain(|&id| match self.get(id).map(DelayedOperation::try_complete) {
            Some(true) => {
                done.extend(self.take(id));
                false
            }
            Some(false) => true,
            None => false,
        });
        self.watches.insert(key, list);
    }
}

impl<T: Timers> Locked<T> {
    fn lock(inner: &Mutex<Inner<T>>) -> MutexGuard<'_, Inner<T>> {
        inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&mut self, how: Completion) {
        for operation in self.done.drain(..) {
            operation.on_complete(how);
        }
    }
}

impl<T: Timers + Send + 'static> Delayed for Locked<T>
where
    T::Handle: Send,
{
    type Common = (Arc<Mutex<Inner<T>>>, usize);
    type Id = Id;

    fn common(layout: Layout) -> Self::Common {
        let (watches, operations, free) = (HashMap::new(), Vec::new(), Vec::new());
        let inner = Inner { watches, operations, free, timers: T::new(), now: 0 };
        (Arc::new(Mutex::new(inner)), layout.cores)
    }

    fn config(_: &Self::Common, _: usize) -> Config {
        Config::new()
    }

    fn new((inner, cores): &Self::Common, _: &Core) -> Self {
        Self { inner: Arc::clone(inner), done: Vec::new(), expired: Vec::new(), cores: *cores }
    }

    fn add(&mut self, mut operation: Operation, ticks: u64) -> Option<Id> {
        if operation.try_complete() {
            operation.on_complete(Completion::Condition);
            return None;
        }
        // Every core's tick moves the time of all.
        let ticks = ticks * self.cores as u64;
        let mut inner = Self::lock(&self.inner);
        let id = inner.park(operation, ticks);
        // There may have been an event before the watch.
        if inner.get(id).is_some_and(DelayedOperation::try_complete) {
            let operation = inner.take(id);
            drop(inner);
            self.done.extend(operation);
            self.end(Completion::Condition);
            return None;
        }
        Some(id)
    }

    fn notify(&mut self, key: usize) {
        Self::lock(&self.inner).check(key, &mut self.done);
        self.end(Completion::Condition);
    }

    fn force(&mut self, id: Id) {
        let operation = Self::lock(&self.inner).take(id);
        self.done.extend(operation);
        self.end(Completion::Forced);
    }

    fn tick(&mut self) {
        let mut inner = Self::lock(&self.inner);
        inner.now += 1;
        let now = inner.now;
        inner.timers.advance(now, |[bits, ..]| self.expired.push(bits));
        for bits in self.expired.drain(..) {
            self.done.extend(inner.take(Id::of_bits(bits)));
        }
        drop(inner);
        self.end(Completion::Expired);
    }
}
