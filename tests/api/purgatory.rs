//! Delayed operations on one core, in virtual time: each completes once, by its condition, by force or by its timeout; it
//! leaves its keys at once; its own code may call back in; a panic of its own stays with it.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    sync::{Arc, Mutex, mpsc},
    thread,
    time::Duration,
};

use corewheel::{
    Completion, Config, DelayedOperation, ManualClock, OperationId, Outcome, Purgatory,
    local_purgatory, local_timer,
};

const TICK: Duration = Duration::from_millis(1);

type Keys = &'static str;
type Waits = Purgatory<Keys, Op>;

/// Completes when its flag is set, and notes how.
struct Op {
    is_met: Rc<Cell<bool>>,
    looks: Rc<Cell<u32>>,
    ended: Rc<RefCell<Vec<Completion>>>,
    /// Called while it looks, and when it has completed.
    during: Box<dyn FnMut()>,
    after: Box<dyn FnMut()>,
}

/// What a test sees of an operation.
#[derive(Clone, Default)]
struct Seen {
    is_met: Rc<Cell<bool>>,
    looks: Rc<Cell<u32>>,
    ended: Rc<RefCell<Vec<Completion>>>,
}

impl DelayedOperation for Op {
    fn try_complete(&mut self) -> bool {
        self.looks.set(self.looks.get() + 1);
        (self.during)();
        self.is_met.get()
    }

    fn on_complete(mut self, how: Completion) {
        self.ended.borrow_mut().push(how);
        (self.after)();
    }
}

impl Seen {
    fn op(&self) -> Op {
        self.op_with(|| (), || ())
    }

    fn op_with(&self, during: impl FnMut() + 'static, after: impl FnMut() + 'static) -> Op {
        Op {
            is_met: Rc::clone(&self.is_met),
            looks: Rc::clone(&self.looks),
            ended: Rc::clone(&self.ended),
            during: Box::new(during),
            after: Box::new(after),
        }
    }

    fn ended(&self) -> Vec<Completion> {
        self.ended.borrow().clone()
    }
}

/// On a thread of its own, whose timer is in virtual time.
fn in_virtual_time(run: impl FnOnce(&ManualClock) + Send) {
    thread::scope(|scope| {
        let ran = scope.spawn(|| {
            let clock = ManualClock::new();
            Config::new().tick(TICK).clock(&clock).install().expect("a new thread");
            run(&clock);
        });
        ran.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}

fn add(purgatory: &Waits, op: Op, keys: &[Keys], ticks: u32) -> Option<OperationId> {
    match purgatory
        .try_complete_else_watch(op, keys.iter().copied(), TICK * ticks)
        .expect("there is room")
    {
        Outcome::Completed => None,
        Outcome::Waits(id) => Some(id),
    }
}

fn pass(clock: &ManualClock, ticks: u32) {
    clock.advance(TICK * ticks);
    let _ = local_timer().turn();
}

#[test]
fn what_is_met_completes_at_once_and_touches_nothing() {
    in_virtual_time(|_| {
        let (purgatory, seen) = (Waits::new(), Seen::default());
        seen.is_met.set(true);
        assert_eq!(add(&purgatory, seen.op(), &["a"], 5), None);
        assert_eq!((seen.ended(), seen.looks.get()), (vec![Completion::Condition], 1));
        let counts = purgatory.counts();
        assert_eq!((counts.added, counts.by_condition, counts.live, counts.watches), (1, 1, 0, 0));
        assert_eq!(local_timer().counts().added, 0);
    });
}

#[test]
fn an_event_on_any_key_completes_it_and_it_leaves_them_all() {
    in_virtual_time(|clock| {
        for key in ["a", "b", "c"] {
            let (purgatory, seen, other) = (Waits::new(), Seen::default(), Seen::default());
            assert!(add(&purgatory, seen.op(), &["a", "b", "c"], 50).is_some());
            assert!(add(&purgatory, other.op(), &["b"], 50).is_some());
            assert_eq!((purgatory.counts().keys, purgatory.counts().watches), (3, 4));
            assert_eq!((purgatory.check_and_complete(&key), seen.looks.get()), (0, 2));
            seen.is_met.set(true);
            assert_eq!(purgatory.check_and_complete(&"d"), 0);
            assert_eq!(purgatory.check_and_complete(&key), 1);
            assert_eq!(purgatory.check_and_complete(&key), 0);
            assert_eq!(["a", "b", "c"].map(|key| purgatory.watched(&key)), [0, 1, 0]);
            pass(clock, 100);
            assert_eq!(
                (seen.ended(), other.ended()),
                (vec![Completion::Condition], vec![Completion::Expired])
            );
            let counts = purgatory.counts();
            assert_eq!(
                (counts.live, counts.watches, counts.keys, local_timer().len()),
                (0, 0, 0, 0)
            );
        }
    });
}

#[test]
fn without_an_event_it_expires_in_its_tick() {
    in_virtual_time(|clock| {
        let (purgatory, seen) = (Waits::new(), Seen::default());
        add(&purgatory, seen.op(), &["a"], 5);
        pass(clock, 4);
        assert_eq!(seen.ended(), []);
        pass(clock, 1);
        assert_eq!(seen.ended(), [Completion::Expired]);
        seen.is_met.set(true);
        assert_eq!((purgatory.check_and_complete(&"a"), purgatory.counts().expired), (0, 1));
    });
}

#[test]
fn force_completes_once() {
    in_virtual_time(|clock| {
        let (purgatory, seen) = (Waits::new(), Seen::default());
        let id = add(&purgatory, seen.op(), &["a", "a"], 5).expect("it waits");
        assert_eq!(purgatory.watched(&"a"), 2);
        assert!(purgatory.force_complete(id) && !purgatory.force_complete(id));
        pass(clock, 10);
        assert_eq!(seen.ended(), [Completion::Forced]);
        // Its place is used again, its name is not.
        let next = Seen::default();
        add(&purgatory, next.op(), &["a"], 5);
        assert!(!purgatory.force_complete(id));
        assert_eq!(next.ended(), []);
    });
}

#[test]
fn what_is_handed_back_does_not_complete() {
    in_virtual_time(|clock| {
        let (purgatory, seen, other) = (Waits::new(), Seen::default(), Seen::default());
        add(&purgatory, seen.op(), &["a", "b"], 5);
        add(&purgatory, other.op(), &["b"], 5);
        assert_eq!(purgatory.cancel_for_key(&"a").len(), 1);
        assert_eq!((purgatory.watched(&"b"), purgatory.len(), purgatory.is_empty()), (1, 1, false));
        assert_eq!(purgatory.drain().len(), 1);
        assert_eq!(
            (purgatory.is_empty(), local_timer().len()),
            (true, 0),
            "nor does its timeout stay"
        );
        pass(clock, 10);
        assert_eq!((seen.ended(), other.ended()), (vec![], vec![]));
        let counts = purgatory.counts();
        assert_eq!((counts.added, counts.handed_back, counts.watches), (2, 2, 0));
    });
}

#[test]
fn watchers_look_in_the_order_in_which_they_came() {
    in_virtual_time(|_| {
        let (purgatory, order) = (Waits::new(), Rc::new(RefCell::new(Vec::new())));
        let all: Vec<_> = (0..5)
            .map(|number| {
                let (seen, order) = (Seen::default(), Rc::clone(&order));
                add(
                    &purgatory,
                    seen.op_with(|| (), move || order.borrow_mut().push(number)),
                    &["a"],
                    5,
                );
                seen
            })
            .collect();
        for seen in &all {
            seen.is_met.set(true);
        }
        assert_eq!(purgatory.check_and_complete(&"a"), 5);
        assert_eq!(*order.borrow(), [0, 1, 2, 3, 4]);
    });
}

#[test]
fn its_own_code_may_call_back_in() {
    in_virtual_time(|clock| {
        let (purgatory, seen, next) = (Waits::new(), Seen::default(), Seen::default());
        let (inside, added) = (purgatory.clone(), next.clone());
        // When it has completed, it adds another one and tells of an event.
        let after = move || {
            add(&inside, added.op(), &["a"], 5);
            assert_eq!(inside.check_and_complete(&"a"), 0);
        };
        let inside = purgatory.clone();
        // While it looks, it asks everything, and has an event on its own key.
        let during = move || {
            inside.check_and_complete(&"a");
            assert!(inside.len() <= 1 && inside.watched(&"a") <= 1);
            let _ = local_timer().turn();
        };
        let id = add(&purgatory, seen.op_with(during, after), &["a"], 5).expect("it waits");
        // The event before there was a watch has it look again, and the one inside that look once more.
        assert_eq!(seen.looks.get(), 3);
        assert!(purgatory.force_complete(id));
        assert_eq!((seen.ended(), purgatory.len()), (vec![Completion::Forced], 1));
        pass(clock, 5);
        assert_eq!(next.ended(), [Completion::Expired]);
    });
}

#[test]
fn who_completes_it_while_it_looks_is_the_one_that_counts() {
    in_virtual_time(|clock| {
        for (by_timer, how) in [(true, Completion::Expired), (false, Completion::Forced)] {
            let (purgatory, seen, id) = (Waits::new(), Seen::default(), Rc::new(Cell::new(None)));
            let (inside, own, time) = (purgatory.clone(), Rc::clone(&id), clock.clone());
            let during = move || {
                if let Some(id) = own.take() {
                    if by_timer {
                        time.advance(TICK * 10);
                        assert_eq!(local_timer().turn().fired, 1);
                    } else {
                        assert!(inside.force_complete(id));
                    }
                    assert!(!inside.force_complete(id));
                }
            };
            id.set(add(&purgatory, seen.op_with(during, || ()), &["a"], 5));
            seen.is_met.set(true);
            assert_eq!(purgatory.check_and_complete(&"a"), 0, "its condition was met too late");
            assert_eq!((seen.ended(), purgatory.len()), (vec![how], 0));
        }
    });
}

#[test]
fn a_panic_stays_with_its_operation() {
    in_virtual_time(|clock| {
        std::panic::set_hook(Box::new(|_| ()));
        let (purgatory, looking, ending, well) =
            (Waits::new(), Seen::default(), Seen::default(), Seen::default());
        let armed = Rc::new(Cell::new(false));
        let is_armed = Rc::clone(&armed);
        let during = move || assert!(!is_armed.get(), "while looking");
        add(&purgatory, looking.op_with(during, || ()), &["a"], 5);
        add(&purgatory, ending.op_with(|| (), || panic!("while ending")), &["a"], 5);
        add(&purgatory, well.op(), &["a"], 5);
        armed.set(true);
        for seen in [&looking, &ending, &well] {
            seen.is_met.set(true);
        }
        assert_eq!(purgatory.check_and_complete(&"a"), 2);
        assert_eq!(
            (ending.ended(), well.ended()),
            (vec![Completion::Condition], vec![Completion::Condition])
        );
        assert_eq!((looking.ended(), purgatory.len()), (vec![], 1), "it waits for its timeout");
        pass(clock, 5);
        assert_eq!(looking.ended(), [Completion::Expired]);
        assert_eq!(local_timer().counts().panicked, 2);
        let counts = purgatory.counts();
        assert_eq!((counts.added, counts.by_condition, counts.expired, counts.live), (3, 2, 1, 0));
    });
}

#[test]
fn a_purgatory_that_goes_takes_its_operations_with_it() {
    in_virtual_time(|clock| {
        let (purgatory, seen) = (Waits::new(), Seen::default());
        add(&purgatory, seen.op(), &["a"], 5);
        drop(purgatory);
        assert_eq!((Rc::strong_count(&seen.looks), local_timer().len()), (1, 0));
        pass(clock, 10);
        assert_eq!(seen.ended(), []);
    });
}

#[test]
fn a_thread_has_one_for_each_kind() {
    in_virtual_time(|_| {
        let (seen, other) = (Seen::default(), Seen::default());
        add(&local_purgatory(), seen.op(), &["a"], 5);
        let _ = local_purgatory::<u32, Op>()
            .try_complete_else_watch(other.op(), [7], TICK)
            .expect("there is room");
        assert_eq!(
            (local_purgatory::<Keys, Op>().len(), local_purgatory::<u32, Op>().watched(&7)),
            (1, 1)
        );
        seen.is_met.set(true);
        assert_eq!(local_purgatory::<Keys, Op>().check_and_complete(&"a"), 1);
    });
}

#[test]
fn a_full_timer_hands_the_operation_back() {
    let full = thread::spawn(|| {
        Config::new().limit(1).install().expect("a new thread");
        let (purgatory, seen) = (Waits::new(), Seen::default());
        add(&purgatory, seen.op(), &["a"], 1000);
        let refused = purgatory
            .try_complete_else_watch(seen.op(), ["b"], TICK)
            .expect_err("one is the limit");
        assert_eq!(refused.reason(), corewheel::AddErrorReason::Full);
        assert_eq!(refused.into_inner().looks.get(), 2);
        assert_eq!((purgatory.len(), purgatory.watched(&"b"), purgatory.counts().added), (1, 0, 1));
    });
    full.join().unwrap();
}

#[test]
fn what_completes_while_its_keys_are_given_leaves_no_watch() {
    in_virtual_time(|clock| {
        let (purgatory, seen) = (Waits::new(), Seen::default());
        let ended = |key| {
            if key == "b" {
                pass(clock, 5);
            }
            key
        };
        let waits = purgatory.try_complete_else_watch(
            seen.op(),
            ["a", "b", "c"].into_iter().map(ended),
            TICK * 2,
        );
        assert_eq!(
            (waits.expect("there is room"), seen.ended()),
            (Outcome::Completed, vec![Completion::Expired])
        );
        let counts = purgatory.counts();
        assert_eq!((counts.added, counts.expired, counts.live, counts.watches), (1, 1, 0, 0));
    });
}

/// Each completes the next one, or all that are left: as if one after the other, however many there are.
#[test]
fn completions_may_cause_one_another_for_ever() {
    const MANY: usize = 100_000;

    struct Chained {
        at: usize,
        reached: Rc<Cell<usize>>,
        own: Purgatory<usize, Chained>,
        keys: usize,
    }

    impl DelayedOperation for Chained {
        fn try_complete(&mut self) -> bool {
            self.reached.get() >= self.at
        }

        fn on_complete(self, how: Completion) {
            assert_eq!(how, Completion::Condition);
            self.reached.set(self.reached.get().max(self.at + 1));
            self.own.check_and_complete(&((self.at + 1) % self.keys));
        }
    }

    in_virtual_time(|_| {
        // A key for each; a few for all, whose list the next one finds again.
        for (many, keys) in [(MANY, MANY + 1), (MANY / 100, 1)] {
            let (reached, own) = (Rc::new(Cell::new(0)), Purgatory::new());
            for at in 1..many {
                let operation =
                    Chained { at, reached: Rc::clone(&reached), own: own.clone(), keys };
                let waits = own
                    .try_complete_else_watch(operation, [at % keys], TICK * 50)
                    .expect("there is room");
                assert!(matches!(waits, Outcome::Waits(_)));
            }
            reached.set(1);
            own.check_and_complete(&(1 % keys));
            assert_eq!(
                (reached.get(), own.len(), own.counts().by_condition),
                (many, 0, many as u64 - 1)
            );
        }
    });
}

thread_local! {
    static SERVICE: RefCell<Option<Service>> = const { RefCell::new(None) };
}

/// Answers what is left when its thread ends, which has dropped its timer before.
struct Service {
    waits: Waits,
    ids: Vec<OperationId>,
    told: mpsc::Sender<usize>,
}

impl Drop for Service {
    fn drop(&mut self) {
        let Self { waits, ids, told } = self;
        assert!(local_timer().try_add(TICK, || ()).is_err(), "the timer has ended");
        assert_eq!(waits.cancel_for_key(&"a").len(), 1);
        assert!(
            waits.force_complete(ids[1])
                && !waits.force_complete(ids[1])
                && !waits.force_complete(ids[0])
        );
        told.send(waits.drain().len()).expect("the test listens");
        assert_eq!((waits.drain().len(), waits.is_empty()), (0, true));
    }
}

#[test]
fn what_is_left_when_the_timer_has_ended_is_handed_back() {
    let ((told, tells), ended) = (mpsc::channel(), Arc::new(Mutex::new(Vec::new())));
    let completed = Arc::clone(&ended);
    let thread = thread::spawn(move || {
        // Before the timer, and so dropped after it.
        SERVICE.with(|_| ());
        let (waits, seen) = (Waits::new(), Seen::default());
        let ids = ["a", "b", "c", "d"].map(|key| {
            let completed = Arc::clone(&completed);
            add(
                &waits,
                seen.op_with(|| (), move || completed.lock().expect("sound").push(key)),
                &[key],
                60_000,
            )
        });
        let ids = ids.into_iter().map(|id| id.expect("it waits")).collect();
        SERVICE.set(Some(Service { waits, ids, told }));
    });
    thread.join().expect("no panic");
    assert_eq!(tells.recv(), Ok(2));
    assert_eq!(*ended.lock().expect("sound"), ["b"]);
}
