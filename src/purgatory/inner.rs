//! The operations of one core. Nothing is borrowed while an operation's own code runs (P5).

mod across;

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    mem,
    rc::Rc,
    time::Duration,
};

use self::across::ElsewhereArena;
use super::{
    Completion, DelayedOperation, OperationId, Outcome, PurgatoryCounts, WatchKey,
    arena::{Arena, Id},
    group::Member,
    message::Message,
    watches::{Removed, Watcher, Watches},
};
use crate::{
    error::AddError,
    handle::{Cancel, LocalHandle},
    hooks::PanicPlace,
    limits::{ENDS_NESTED_MAX, WATCHERS_KEPT},
    local::{LocalTimer, local_timer},
};

/// Where no watch is.
const NOWHERE: u32 = ElsewhereArena::NOWHERE;

pub(super) struct Inner<K: WatchKey, Op: DelayedOperation> {
    operations: RefCell<Arena<Parked<Op>>>,
    watches: RefCell<Watches<K>>,
    /// The watches of these operations on other cores.
    elsewhere: RefCell<ElsewhereArena>,
    /// Events so far: an operation that is being added looks again if there was one meanwhile.
    events: Cell<u64>,
    /// Room for the watchers of one event, kept for the next.
    room: Cell<Vec<(Id, Watcher)>>,
    counts: RefCell<PurgatoryCounts>,
    /// How many operations are coming to their end, one inside the other.
    ending: Cell<usize>,
    /// Those that have completed too deep inside others.
    to_end: RefCell<VecDeque<(Op, Completion)>>,
    /// How it reaches other cores, if it does.
    member: Option<Member<K>>,
}

/// An operation that waits.
struct Parked<Op> {
    /// `None` while it is out: its `try_complete` runs.
    operation: Option<Op>,
    /// `None` while it is being added.
    timer: Option<LocalHandle>,
    /// Where its last watch on this core is, which knows the others.
    last_watch: u32,
    /// Where its last watch on another core is, as far as those have confirmed them.
    elsewhere: u32,
    /// How it was completed while it was out.
    completed: Option<Completion>,
    /// There was another event while it was out.
    look_again: bool,
}

/// What was found when an operation came back.
enum Back<Op> {
    Completed(Op, Completion),
    LookAgain,
    Waits,
}

impl<K: WatchKey, Op: DelayedOperation> Inner<K, Op> {
    pub(super) fn new(member: Option<Member<K>>) -> Self {
        Self {
            operations: RefCell::default(),
            watches: RefCell::default(),
            elsewhere: RefCell::default(),
            events: Cell::new(0),
            room: Cell::default(),
            counts: RefCell::default(),
            ending: Cell::new(0),
            to_end: RefCell::default(),
            member,
        }
    }

    #[track_caller]
    pub(super) fn add(
        self: &Rc<Self>,
        mut operation: Op,
        keys: impl IntoIterator<Item = K>,
        timeout: Duration,
    ) -> Result<Outcome, AddError<Op>> {
        let events = self.events.get();
        if is_met(&mut operation) {
            self.count(|counts| counts.added += 1);
            self.end(operation, Completion::Condition);
            return Ok(Outcome::Completed);
        }
        let id = self.park(operation, timeout)?;
        self.count(|counts| counts.added += 1);
        for key in keys {
            // The code of the keys may have completed it.
            if self.operations.borrow().get(id).is_none() {
                break;
            }
            self.watch(id, key);
        }
        // An event may have come before the watch on its key: one that `try_complete`, or the code of the keys, has caused.
        if self.events.get() != events {
            self.check(id);
        }
        let waits = self.operations.borrow().get(id).is_some();
        Ok(if waits { Outcome::Waits(OperationId(id)) } else { Outcome::Completed })
    }

    /// Gives the operation a name and a timer.
    #[track_caller]
    fn park(self: &Rc<Self>, operation: Op, timeout: Duration) -> Result<Id, AddError<Op>> {
        let id = self.operations.borrow_mut().insert(Parked {
            operation: Some(operation),
            timer: None,
            last_watch: NOWHERE,
            elsewhere: NOWHERE,
            completed: None,
            look_again: false,
        });
        let inner = Rc::downgrade(self);
        let expire = move || {
            if let Some(inner) = inner.upgrade() {
                inner.complete(id, Completion::Expired);
            }
        };
        match local_timer().try_add_local(timeout, expire) {
            Ok(timer) => {
                self.with(id, |parked| parked.timer = Some(timer));
                Ok(id)
            }
            Err(error) => {
                let parked = self.operations.borrow_mut().remove(id);
                let operation = parked.and_then(|parked| parked.operation);
                Err(AddError::new(
                    error.reason(),
                    operation.unwrap_or_else(|| unreachable!("it was parked above")),
                ))
            }
        }
    }

    fn watch(&self, id: Id, key: K) {
        if let Some((member, core)) = self.member_of(&key) {
            member.send(core, Message::Watch { key, operation: id });
            return;
        }
        let spare = self.with(id, |parked| {
            let (watch, spare) =
                self.watches.borrow_mut().add(key, Watcher::own(id), parked.last_watch);
            parked.last_watch = watch.index();
            spare
        });
        if mem::needs_drop::<K>() {
            LocalTimer::isolate(PanicPlace::Drop, || drop(spare));
        }
    }

    pub(super) fn notify(&self, key: &K) {
        match self.member_of(key) {
            Some((member, core)) => member.send(core, Message::Event { key: key.clone() }),
            None => _ = self.check_key(key),
        }
    }

    pub(super) fn check_key(&self, key: &K) -> usize {
        self.events.set(self.events.get() + 1);
        // An event inside this one finds no room, and makes its own.
        let mut watchers = self.room.take();
        self.watches.borrow().of(key, &mut watchers);
        let mut completed = 0;
        for (watch, watcher) in watchers.drain(..) {
            match watcher.elsewhere() {
                None => completed += usize::from(self.check(watcher.operation)),
                Some(core) => {
                    self.send(core, Message::Check { operation: watcher.operation, watch });
                }
            }
        }
        if watchers.capacity() <= WATCHERS_KEPT {
            self.room.set(watchers);
        }
        completed
    }

    /// Has an operation look at its condition. Whether it has completed by that.
    ///
    /// If there is an event meanwhile, its own code has caused it, and it looks once more: not for ever, if it causes one
    /// each time.
    fn check(&self, id: Id) -> bool {
        for _ in 0..2 {
            let Some(mut operation) = self.take_out(id) else { return false };
            if is_met(&mut operation) {
                self.complete(id, Completion::Condition);
            }
            match self.take_back(id, operation) {
                Back::Completed(operation, how) => {
                    self.end(operation, how);
                    return how == Completion::Condition;
                }
                Back::LookAgain => (),
                Back::Waits => return false,
            }
        }
        false
    }

    /// Takes an operation out, so that it can look at its condition. One that is out already will look again.
    fn take_out(&self, id: Id) -> Option<Op> {
        self.with(id, |parked| {
            let operation = parked.operation.take();
            parked.look_again = operation.is_none();
            operation
        })
        .flatten()
    }

    fn take_back(&self, id: Id, operation: Op) -> Back<Op> {
        let found = self.with(id, |parked| (parked.completed, mem::take(&mut parked.look_again)));
        let (completed, look_again) =
            found.unwrap_or_else(|| unreachable!("an operation that is out is not forgotten"));
        if let Some(how) = completed {
            self.forget(id);
            return Back::Completed(operation, how);
        }
        self.with(id, |parked| parked.operation = Some(operation));
        if look_again { Back::LookAgain } else { Back::Waits }
    }

    /// Completes an operation that waits. False if it has completed. The timer is the flag: this has cancelled it, or is it.
    pub(super) fn complete(&self, id: Id, how: Completion) -> bool {
        let is_claimed = self.with(id, |parked| how == Completion::Expired || parked.claim());
        if is_claimed != Some(true) {
            return false;
        }
        match self.take_out(id) {
            Some(operation) => {
                self.forget(id);
                self.end(operation, how);
            }
            // It is looking at its condition, and completes when it comes back.
            None => _ = self.with(id, |parked| parked.completed = Some(how)),
        }
        true
    }

    /// Forgets an operation that has completed: it leaves all its keys.
    fn forget(&self, id: Id) -> Option<Op> {
        let parked = self.operations.borrow_mut().remove(id)?;
        let mut at = parked.last_watch;
        loop {
            let removed = self.watches.borrow_mut().remove_at(at);
            let Some(Removed { sibling, key }) = removed else { break };
            if mem::needs_drop::<K>() && key.is_some() {
                LocalTimer::isolate(PanicPlace::Drop, || drop(key));
            }
            at = sibling;
        }
        self.leave_all(parked.elsewhere);
        parked.operation
    }

    /// Runs what comes last. If that completes others, they end inside it, but not ever deeper.
    fn end(&self, operation: Op, how: Completion) {
        self.count(|counts| match how {
            Completion::Condition => counts.by_condition += 1,
            Completion::Forced => counts.forced += 1,
            Completion::Expired => counts.expired += 1,
        });
        let outside = self.ending.get();
        if outside == ENDS_NESTED_MAX {
            self.to_end.borrow_mut().push_back((operation, how));
            return;
        }
        self.ending.set(outside + 1);
        LocalTimer::isolate(PanicPlace::Operation, || operation.on_complete(how));
        if outside == 0 && !self.to_end.borrow().is_empty() {
            self.end_those_left();
        }
        self.ending.set(outside);
    }

    #[cold]
    fn end_those_left(&self) {
        loop {
            let next = self.to_end.borrow_mut().pop_front();
            let Some((operation, how)) = next else { break };
            LocalTimer::isolate(PanicPlace::Operation, || operation.on_complete(how));
        }
    }

    pub(super) fn cancel_for_key(&self, key: &K) -> Vec<Op> {
        let mut watchers = Vec::new();
        self.watches.borrow().of(key, &mut watchers);
        let own = watchers.into_iter().filter(|(_, watcher)| watcher.elsewhere().is_none());
        self.hand_back(own.map(|(_, watcher)| watcher.operation))
    }

    pub(super) fn drain(&self) -> Vec<Op> {
        let ids = self.operations.borrow().ids();
        self.hand_back(ids.into_iter())
    }

    /// Takes operations out for good, but those that are out at this moment.
    fn hand_back(&self, ids: impl Iterator<Item = Id>) -> Vec<Op> {
        let claimed = ids.filter_map(|id| {
            let is_claimed = self.with(id, |parked| parked.operation.is_some() && parked.claim());
            (is_claimed == Some(true)).then(|| self.forget(id)).flatten()
        });
        let operations: Vec<Op> = claimed.collect();
        self.count(|counts| counts.handed_back += operations.len() as u64);
        operations
    }

    /// How to reach the core that a key belongs to, if it is another one.
    fn member_of(&self, key: &K) -> Option<(&Member<K>, u32)> {
        let member = self.member.as_ref()?;
        let core = member.core_of(key);
        (core != member.core()).then_some((member, core))
    }

    pub(super) fn watched(&self, key: &K) -> usize {
        self.watches.borrow().len_of(key)
    }

    pub(super) fn len(&self) -> usize {
        self.operations.borrow().len()
    }

    pub(super) fn counts(&self) -> PurgatoryCounts {
        PurgatoryCounts {
            live: self.len() as u64,
            watches: self.watches.borrow().len() as u64,
            keys: self.watches.borrow().keys() as u64,
            unsent: self.member.as_ref().map_or(0, Member::unsent),
            ..*self.counts.borrow()
        }
    }

    fn count(&self, count: impl FnOnce(&mut PurgatoryCounts)) {
        count(&mut self.counts.borrow_mut());
    }

    fn with<R>(&self, id: Id, look: impl FnOnce(&mut Parked<Op>) -> R) -> Option<R> {
        self.operations.borrow_mut().get_mut(id).map(look)
    }
}

impl<Op> Parked<Op> {
    /// Whether it is the caller who completes it: whose timer this has cancelled. (Once the thread's timer has ended nobody can cancel
    /// it, and nobody else can complete the operation.)
    fn claim(&self) -> bool {
        self.timer.is_some_and(|timer| timer.cancel() == Cancel::Cancelled)
            || self.completed.is_none() && LocalTimer::has_ended()
    }
}

impl<K: WatchKey, Op: DelayedOperation> Drop for Inner<K, Op> {
    fn drop(&mut self) {
        for id in self.operations.get_mut().ids() {
            let Some(parked) = self.operations.get_mut().remove(id) else { continue };
            if let Some(timer) = parked.timer {
                timer.cancel();
            }
            self.leave_all(parked.elsewhere);
            LocalTimer::isolate(PanicPlace::Drop, || drop(parked.operation));
        }
        self.tell_that_it_ends();
        // Its keys. (If nothing was ever added, the thread may have no timer yet, and gets none for this.)
        let watches = mem::take(self.watches.get_mut());
        if watches.len() > 0 {
            LocalTimer::isolate(PanicPlace::Drop, || drop(watches));
        }
    }
}

/// Whether the condition is met; it is not if looking at it panics.
fn is_met<Op: DelayedOperation>(operation: &mut Op) -> bool {
    let mut is_met = false;
    LocalTimer::isolate(PanicPlace::Operation, || is_met = operation.try_complete());
    is_met
}
