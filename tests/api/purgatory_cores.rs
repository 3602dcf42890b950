//! Purgatories of several cores, in virtual time and in step: an event reaches whoever watches its key, wherever they are and
//! whenever it comes; nothing is left behind by what has ended. The end of this file does it in real time, with threads that
//! get in each other's way.

use std::{
    cell::{Cell, RefCell},
    hash::{Hash, Hasher},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Barrier, Mutex, OnceLock,
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc,
    },
    thread::{self, ThreadId},
    time::Duration,
};

use corewheel::{
    Completion, Config, DelayedOperation, Outcome, Purgatory, PurgatoryCounts, PurgatoryGroup,
    ShardRef, Turn, local_purgatory, local_timer,
};

use crate::{
    common::{self, TICK},
    lockstep::Lockstep,
    purgatory_stress,
};

/// Belongs to the core of its number.
type Key = usize;
type Waits = Purgatory<Key, Op>;
type Cores = Lockstep<Option<Waits>>;

/// Completes when its flag is set.
struct Op(Arc<Seen>);

/// What a test sees of an operation.
#[derive(Default)]
struct Seen {
    is_met: AtomicBool,
    looks: AtomicUsize,
    ended: Mutex<Vec<(Completion, ThreadId)>>,
}

impl DelayedOperation for Op {
    fn try_complete(&mut self) -> bool {
        self.0.looks.fetch_add(1, Ordering::Relaxed);
        self.0.is_met.load(Ordering::Acquire)
    }

    fn on_complete(self, how: Completion) {
        self.0.ended.lock().expect("sound").push((how, thread::current().id()));
    }
}

impl Seen {
    fn set(&self) {
        self.is_met.store(true, Ordering::Release);
    }

    fn looks(&self) -> usize {
        self.looks.load(Ordering::Relaxed)
    }

    fn ended(&self) -> Vec<Completion> {
        self.ended.lock().expect("sound").iter().map(|&(how, _)| how).collect()
    }
}

fn group() -> PurgatoryGroup<Key> {
    PurgatoryGroup::by(|&key| key)
}

/// Cores of which these have joined the group.
fn cores(count: usize, joined: &[usize], group: &PurgatoryGroup<Key>) -> Cores {
    let cores = Cores::start(count);
    for &core in joined {
        join(&cores, core, group);
    }
    cores
}

fn join(cores: &Cores, core: usize, group: &PurgatoryGroup<Key>) {
    let (group, shards) = (group.clone(), cores.shards.clone());
    cores.on(core, move |own| *own = Some(group.join(core, &shards)));
}

fn with<R: Send + 'static>(
    cores: &Cores,
    core: usize,
    ask: impl FnOnce(&Waits) -> R + Send + 'static,
) -> R {
    cores.on(core, |own| ask(own.as_ref().expect("it has joined")))
}

fn add(cores: &Cores, core: usize, keys: &'static [Key], ticks: u32) -> Arc<Seen> {
    let seen = Arc::new(Seen::default());
    let op = Op(Arc::clone(&seen));
    with(cores, core, move |own| {
        let outcome = own
            .try_complete_else_watch(op, keys.iter().copied(), TICK * ticks)
            .expect("there is room");
        assert!(matches!(outcome, Outcome::Waits(_)));
    });
    seen
}

fn notify(cores: &Cores, core: usize, key: Key) {
    with(cores, core, move |own| own.notify(&key));
}

fn counts(cores: &Cores, core: usize) -> PurgatoryCounts {
    with(cores, core, Purgatory::counts)
}

/// That no watch is left on these cores, and nothing unsaid.
fn assert_nothing_left(cores: &Cores, of: impl IntoIterator<Item = usize>) {
    for core in of {
        let counts = counts(cores, core);
        assert_eq!(
            (counts.live, counts.watches, counts.keys, counts.unsent),
            (0, 0, 0, 0),
            "on core {core}"
        );
    }
}

#[test]
fn an_event_on_any_core_completes_an_operation_on_its_own() {
    for (owner, key, from) in [(0, 0, 0), (0, 1, 0), (0, 1, 1), (0, 1, 2), (2, 0, 1), (1, 1, 0)] {
        let group = group();
        let cores = cores(3, &[0, 1, 2], &group);
        let keys: &'static [Key] = [&[0][..], &[1], &[2]][key];
        let seen = add(&cores, owner, keys, 50);
        cores.settle();
        assert_eq!(
            (counts(&cores, owner).live, with(&cores, key, move |own| own.watched(&key))),
            (1, 1)
        );
        notify(&cores, from, key);
        cores.settle();
        assert_eq!(seen.ended(), [], "its condition is not met");
        seen.set();
        notify(&cores, from, key);
        cores.settle();
        assert_eq!(seen.ended(), [Completion::Condition], "{owner} {key} {from}");
        let its_thread = cores.on(owner, |_| thread::current().id());
        assert_eq!(seen.ended.lock().expect("sound")[0].1, its_thread);
        assert_nothing_left(&cores, 0..3);
    }
}

/// An event at each moment between the adding and the last confirmation, with the watches on two other cores.
#[test]
fn no_event_falls_between_the_registrations() {
    for moment in 0..12 {
        for (key, turns) in [(1, [0, 1, 2]), (2, [0, 1, 2]), (1, [2, 1, 0]), (2, [1, 2, 0])] {
            let group = group();
            let cores = cores(3, &[0, 1, 2], &group);
            let seen = add(&cores, 0, &[0, 1, 2], 50);
            let steps = turns.into_iter().cycle().take(12).enumerate();
            for (at, core) in steps {
                if at == moment {
                    seen.set();
                    group.notify(&key);
                }
                cores.turn(core);
            }
            cores.settle();
            assert_eq!(
                seen.ended(),
                [Completion::Condition],
                "at {moment}, on {key}, in the order {turns:?}"
            );
            assert_nothing_left(&cores, 0..3);
        }
    }
}

#[test]
fn a_core_that_does_not_turn_keeps_no_event_of_another_from_anybody() {
    let group = group();
    let cores = cores(3, &[0, 1, 2], &group);
    let seen = add(&cores, 0, &[1, 2], 50);
    cores.turn(0);
    seen.set();
    group.notify(&1);
    for core in [1, 0, 1, 0] {
        cores.turn(core);
    }
    assert_eq!(seen.ended(), [Completion::Condition]);
    cores.settle();
    assert_nothing_left(&cores, 0..3);
}

#[test]
fn what_ends_otherwise_leaves_the_other_cores_too() {
    let group = group();
    let cores = cores(2, &[0, 1], &group);
    // One that expires before its watch is confirmed, one after, one that is forced, one that is handed back.
    let early = add(&cores, 0, &[1, 1], 1);
    cores.clock.advance(TICK);
    cores.turn(0);
    assert_eq!(early.ended(), [Completion::Expired]);
    let late = add(&cores, 0, &[0, 1], 5);
    cores.settle();
    assert_eq!(counts(&cores, 1).watches, 1);
    cores.clock.advance(TICK * 5);
    let other = add(&cores, 0, &[1, 0], 5);
    cores.settle();
    assert_eq!(late.ended(), [Completion::Expired]);
    assert_eq!(
        with(&cores, 0, |own| own.cancel_for_key(&1)).len(),
        0,
        "the watches are on the other core"
    );
    assert_eq!(with(&cores, 0, |own| own.cancel_for_key(&0)).len(), 1);
    cores.settle();
    assert_eq!(other.ended(), []);
    assert_nothing_left(&cores, 0..2);
    let counts = counts(&cores, 0);
    assert_eq!((counts.added, counts.expired, counts.handed_back), (3, 2, 1));
}

#[test]
fn events_travel_together_and_are_not_counted_by_keys() {
    let group = group();
    let cores = cores(2, &[0, 1], &group);
    let seen = add(&cores, 1, &[1], 50);
    with(&cores, 0, |own| (0..200).for_each(|_| own.notify(&1)));
    assert_eq!(counts(&cores, 0).unsent, 200 % 64);
    assert_eq!(cores.turn(1).fired, 3);
    cores.turn(0);
    assert_eq!(counts(&cores, 0).unsent, 0);
    assert_eq!((cores.turn(1).fired, seen.looks()), (1, 201));
}

#[test]
fn what_is_said_before_a_core_joins_is_heard() {
    for event_first in [true, false] {
        let group = group();
        group.notify(&1); // nobody is there
        let cores = cores(2, &[0], &group);
        let (seen, brief) = (add(&cores, 0, &[1], 50), add(&cores, 0, &[1], 1));
        cores.settle();
        cores.clock.advance(TICK);
        cores.settle();
        assert_eq!(brief.ended(), [Completion::Expired]);
        seen.set();
        if event_first {
            notify(&cores, 0, 1);
            cores.settle();
        }
        assert_eq!(seen.ended(), []);
        join(&cores, 1, &group);
        if !event_first {
            notify(&cores, 1, 1);
        }
        cores.settle();
        assert_eq!(seen.ended(), [Completion::Condition]);
        assert_nothing_left(&cores, 0..2);
    }
}

#[test]
fn a_core_that_ends_leaves_no_watch_behind() {
    // How many steps its watches have come on their way.
    for steps in 0..6 {
        let group = group();
        let mut cores = cores(3, &[0, 1, 2], &group);
        let seen = add(&cores, 0, &[1, 2], 50);
        let stays = add(&cores, 2, &[0, 1], 50);
        for core in [0, 1, 2, 0, 1].into_iter().take(steps) {
            cores.turn(core);
        }
        cores.end(0);
        cores.settle();
        cores.settle();
        assert_eq!(
            (seen.ended(), Arc::strong_count(&seen)),
            (vec![], 1),
            "dropped, and not completed"
        );
        assert_eq!([1, 2].map(|core| counts(&cores, core).watches), [1, 0], "after {steps} steps");
        // And what is left goes on.
        stays.set();
        notify(&cores, 2, 1);
        cores.settle();
        assert_eq!(stays.ended(), [Completion::Condition]);
        assert_nothing_left(&cores, [1, 2]);
    }
}

#[test]
fn a_purgatory_that_goes_leaves_no_watch_behind() {
    for steps in 0..5 {
        let group = group();
        let cores = cores(2, &[0, 1], &group);
        let seen = add(&cores, 0, &[1], 50);
        for core in [0, 1, 0, 1].into_iter().take(steps) {
            cores.turn(core);
        }
        cores.on(0, |own| *own = None);
        cores.settle();
        assert_eq!(Arc::strong_count(&seen), 1);
        assert_nothing_left(&cores, [1]);
    }
}

/// An operation that holds its own purgatory is not dropped when its thread ends; its watch goes at the next event.
#[test]
fn watches_of_what_a_core_has_leaked_go_at_the_next_event() {
    let group = group();
    let mut cores = cores(2, &[0, 1], &group);
    add(&cores, 0, &[1], 50);
    cores.settle();
    cores.on(0, |own| std::mem::forget(own.take()));
    cores.end(0);
    cores.settle();
    assert_eq!(counts(&cores, 1).watches, 1);
    group.notify(&1);
    cores.settle();
    assert_nothing_left(&cores, [1]);
}

#[test]
fn when_the_core_of_a_key_has_ended_the_other_keys_and_the_timeout_are_left() {
    for steps in 0..4 {
        let group = group();
        let mut cores = cores(3, &[0, 1, 2], &group);
        let (by_key, by_time) = (add(&cores, 0, &[1, 2], 50), add(&cores, 0, &[1], 5));
        for core in [0, 1, 0].into_iter().take(steps) {
            cores.turn(core);
        }
        cores.end(1);
        cores.settle();
        by_key.set();
        notify(&cores, 0, 1); // to nobody
        notify(&cores, 0, 2);
        cores.settle();
        cores.clock.advance(TICK * 5);
        cores.settle();
        assert_eq!(
            (by_key.ended(), by_time.ended()),
            (vec![Completion::Condition], vec![Completion::Expired])
        );
        assert_nothing_left(&cores, [0, 2]);
    }
}

/// The condition is met, but whoever should have told of it has ended: with the watch on its way, in place, or kept for a core
/// that never joined.
#[test]
fn when_the_core_of_a_key_ends_its_watchers_look_once_more() {
    for steps in 0..6 {
        for has_joined in [true, false] {
            let group = group();
            let mut cores = cores(3, if has_joined { &[0, 1, 2] } else { &[0, 2] }, &group);
            let (seen, other) = (add(&cores, 0, &[1], 50), add(&cores, 0, &[1, 2, 1], 50));
            for core in [0, 1, 0, 1].into_iter().cycle().take(steps) {
                cores.turn(core);
            }
            seen.set();
            assert_eq!(seen.ended(), []);
            cores.end(1);
            cores.settle();
            assert_eq!(
                (seen.ended(), other.ended()),
                (vec![Completion::Condition], vec![]),
                "{steps} {has_joined}"
            );
            // Whoever comes later hears of it too.
            let late = add(&cores, 2, &[1], 50);
            late.set();
            cores.settle();
            assert_eq!(late.ended(), [Completion::Condition]);
            other.set();
            notify(&cores, 0, 2);
            cores.settle();
            assert_eq!(other.ended(), [Completion::Condition]);
            assert_nothing_left(&cores, [0, 2]);
        }
    }
}

/// Whoever they are and however many each has.
#[test]
fn when_a_core_never_joins_each_of_those_who_wait_for_it_is_told() {
    let group = group();
    let mut cores = cores(4, &[0, 1, 2], &group);
    let waits = [0, 1, 1, 0, 2].map(|core| add(&cores, core, &[3], 50));
    cores.settle();
    let looks = waits.each_ref().map(|seen| seen.looks());
    cores.end(3);
    cores.settle();
    for (seen, before) in waits.iter().zip(looks) {
        assert_eq!(seen.looks(), before + 1);
    }
}

/// Belongs to the core of its number, and is counted.
#[derive(Clone)]
struct Counted {
    core: usize,
    _one: Arc<()>,
}

impl PartialEq for Counted {
    fn eq(&self, other: &Self) -> bool {
        self.core == other.core
    }
}

impl Eq for Counted {}

impl Hash for Counted {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.core.hash(hasher);
    }
}

/// Watches are kept for it, but there is nobody whom an event could concern.
#[test]
fn events_are_not_kept_for_a_core_that_has_not_joined() {
    let cores = Lockstep::<Option<Purgatory<Counted, Op>>>::start(2);
    let (group, keys) = (PurgatoryGroup::by(|key: &Counted| key.core), Arc::new(()));
    let (key, shards) = (Counted { core: 1, _one: Arc::clone(&keys) }, cores.shards.clone());
    cores.on(0, move |own| {
        let own = own.insert(group.join(0, &shards));
        (0..10).for_each(|_| own.notify(&key));
    });
    assert_eq!(Arc::strong_count(&keys), 11, "they are on their way");
    cores.settle();
    assert_eq!(Arc::strong_count(&keys), 1);
}

/// The same if only the purgatory goes and its thread stays.
#[test]
fn when_the_purgatory_of_a_key_goes_its_watchers_look_once_more() {
    for steps in 0..6 {
        let group = group();
        let cores = cores(2, &[0, 1], &group);
        let seen = add(&cores, 0, &[1], 50);
        for core in [0, 1, 0].into_iter().cycle().take(steps) {
            cores.turn(core);
        }
        seen.set();
        cores.on(1, |own| *own = None);
        cores.settle();
        assert_eq!(seen.ended(), [Completion::Condition], "{steps}");
        assert_nothing_left(&cores, [0]);
    }
}

#[test]
fn a_full_timer_takes_messages() {
    let group = group();
    let cores = Cores::start_with(2, |config| config.limit(1));
    (0..2).for_each(|core| join(&cores, core, &group));
    let (seen, other) = (add(&cores, 0, &[1], 50), add(&cores, 1, &[1], 50));
    cores.settle();
    for seen in [&seen, &other] {
        seen.set();
    }
    group.notify(&1);
    cores.settle();
    assert_eq!(
        (seen.ended(), other.ended()),
        (vec![Completion::Condition], vec![Completion::Condition])
    );
    assert_nothing_left(&cores, 0..2);
    // One may be added again: messages have left no trace in the limit.
    add(&cores, 0, &[0], 50);
}

#[test]
fn what_is_said_after_a_sleep_was_announced_ends_it() {
    let woken = Arc::new(AtomicUsize::new(0));
    let group = group();
    let noted = Arc::clone(&woken);
    let cores = Cores::start_with(2, |config| {
        let woken = Arc::clone(&noted);
        config.on_wake(move || _ = woken.fetch_add(1, Ordering::Relaxed))
    });
    (0..2).for_each(|core| join(&cores, core, &group));
    let seen = add(&cores, 1, &[1], 50);
    seen.set();
    with(&cores, 0, |own| {
        let sleep = local_timer().prepare_sleep();
        own.notify(&1);
        own.notify(&1);
        drop(sleep);
    });
    assert_eq!(woken.load(Ordering::Relaxed), 1);
    // Preparing to sleep sends.
    cores.on(0, |_| drop(local_timer().prepare_sleep()));
    cores.turn(1);
    assert_eq!(seen.ended(), [Completion::Condition]);
}

#[test]
fn a_thread_without_a_timer_tells_of_events() {
    let group = group();
    let cores = cores(2, &[0, 1], &group);
    let seen = add(&cores, 0, &[1], 50);
    cores.settle();
    seen.set();
    let events = group.clone();
    thread::spawn(move || events.notify(&1)).join().expect("no panic");
    cores.settle();
    assert_eq!(seen.ended(), [Completion::Condition]);
    // Nor does a thread wait for itself: its own event comes in its next turn.
    let own = add(&cores, 0, &[0], 50);
    own.set();
    cores.on(0, move |_| group.notify(&0));
    assert_eq!(own.ended(), []);
    cores.turn(0);
    assert_eq!(own.ended(), [Completion::Condition]);
}

#[test]
fn who_joins_wrongly_is_told() {
    let group = group();
    let cores = cores(3, &[0, 1], &group);
    let refusal = |core: usize, index: usize, shards: &[ShardRef]| {
        let (group, shards) = (group.clone(), shards.to_vec());
        let join = move |_: &mut _| drop(group.join::<Op>(index, &shards));
        let panic = catch_unwind(AssertUnwindSafe(|| cores.on(core, join))).expect_err("it panics");
        let text = panic.downcast_ref::<&str>().map(|&text| text.to_owned());
        text.or_else(|| panic.downcast_ref::<String>().cloned()).expect("a message")
    };
    let all = &cores.shards;
    assert_eq!(refusal(0, 0, all), "this thread has joined the group before");
    assert_eq!(refusal(2, 1, all), "core 1 is not this thread's");
    assert_eq!(refusal(2, 3, all), "core 3 of 3");
    assert_eq!(refusal(2, 0, &all[2..]), "1 cores, and 3 for others");
    // None of that has harmed who has joined well.
    let seen = add(&cores, 0, &[1], 50);
    seen.set();
    cores.settle();
    assert_eq!(seen.ended(), [Completion::Condition], "at the confirmation");
}

#[test]
fn a_thread_may_join_several_groups() {
    let groups = [(); 3].map(|()| group());
    let cores = Cores::start(2);
    for core in [0, 1] {
        let (groups, shards) = (groups.clone(), cores.shards.clone());
        cores.on(core, move |own| {
            let mut joined = groups.map(|group| group.join::<Op>(core, &shards)).into_iter();
            *own = joined.next();
            let _ = local_timer().add_local(TICK * 1_000, move || drop(joined));
        });
    }
    let seen = add(&cores, 0, &[1], 50);
    cores.settle();
    seen.set();
    groups[1].notify(&1);
    cores.settle();
    assert_eq!(seen.ended(), [], "that was another group's");
    groups[0].notify(&1);
    cores.settle();
    assert_eq!(seen.ended(), [Completion::Condition]);
}

thread_local! {
    /// A purgatory that a hook finds which is called on this thread.
    static OWN: RefCell<Option<Waits>> = const { RefCell::new(None) };
}

/// The loop turns at once instead of sleeping over it.
#[test]
fn what_a_hook_says_while_letters_are_sent_is_not_slept_over() {
    let (group, barrier) = (group(), Barrier::new(3));
    let shards = OnceLock::<Vec<_>>::new();
    thread::scope(|scope| {
        let (refer, refs) = mpsc::channel();
        for core in [1, 2] {
            let (refer, group, barrier, shards) = (refer.clone(), group.clone(), &barrier, &shards);
            scope.spawn(move || {
                let tell_first = move || {
                    OWN.with_borrow(|own| {
                        own.iter().filter(|_| core == 2).for_each(|own| own.notify(&1))
                    })
                };
                Config::new().on_wake(tell_first).install().expect("a fresh thread");
                refer.send((core, local_timer().shard_ref())).expect("it is waited for");
                barrier.wait();
                let own: Waits = group.join(core, shards.get().expect("set by now"));
                let sleep = local_timer().prepare_sleep();
                barrier.wait();
                barrier.wait();
                drop((sleep, own));
            });
        }
        let mut all = vec![(0, local_timer().shard_ref())];
        all.extend(refs.iter().take(2));
        all.sort_by_key(|&(core, _)| core);
        shards.set(all.into_iter().map(|(_, shard)| shard).collect::<Vec<_>>()).expect("once");
        barrier.wait();
        OWN.set(Some(group.join(0, shards.get().expect("just set"))));
        barrier.wait();
        OWN.with_borrow(|own| own.iter().for_each(|own| own.notify(&2)));
        let unsent =
            || OWN.with_borrow(|own| own.iter().map(|own| own.counts().unsent).sum::<u64>());
        let sleep = local_timer().prepare_sleep();
        let before = (unsent(), sleep.timeout());
        drop(sleep);
        let _ = local_timer().turn();
        let after = unsent();
        barrier.wait();
        OWN.set(None);
        assert_eq!(
            (before, after),
            ((1, Some(Duration::ZERO)), 0),
            "sent by the turn that comes at once"
        );
    });
}

thread_local! {
    /// Whether keys that can hurt do so on this thread.
    static HURTS: Cell<bool> = const { Cell::new(false) };
}

/// Belongs to the core of its number. Its code may panic.
#[derive(Clone, PartialEq, Eq)]
struct Touchy {
    core: usize,
    hurts_to_hash: bool,
    hurts_to_drop: bool,
}

impl Touchy {
    fn of(core: usize) -> Self {
        Self { core, hurts_to_hash: false, hurts_to_drop: false }
    }
}

impl Hash for Touchy {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        assert!(!(self.hurts_to_hash && HURTS.get()), "as planned, while it is hashed");
        self.core.hash(hasher);
    }
}

impl Drop for Touchy {
    fn drop(&mut self) {
        if self.hurts_to_drop && HURTS.get() && !thread::panicking() {
            HURTS.set(false);
            panic!("as planned, while it is dropped");
        }
    }
}

fn touchy_cores(count: usize) -> Lockstep<Option<Purgatory<Touchy, Op>>> {
    let (cores, group) = (Lockstep::start(count), PurgatoryGroup::by(|key: &Touchy| key.core));
    for core in 0..count {
        let (group, shards) = (group.clone(), cores.shards.clone());
        cores.on(core, move |own| *own = Some(group.join(core, &shards)));
    }
    cores
}

fn add_touchy(own: &Purgatory<Touchy, Op>, key: Touchy) -> Arc<Seen> {
    let seen = Arc::new(Seen::default());
    let outcome = own
        .try_complete_else_watch(Op(Arc::clone(&seen)), [key], TICK * 50)
        .expect("there is room");
    assert!(matches!(outcome, Outcome::Waits(_)));
    seen
}

/// What comes with the message of a key that panics is met all the same.
#[test]
fn a_key_that_panics_takes_no_other_message_with_it() {
    let cores = touchy_cores(2);
    cores.on(1, |_| HURTS.set(true));
    let well = cores.on(0, |own| {
        let own = own.as_ref().expect("it has joined");
        add_touchy(own, Touchy { hurts_to_hash: true, ..Touchy::of(1) });
        add_touchy(own, Touchy::of(1))
    });
    cores.settle();
    assert_eq!(cores.on(1, |_| local_timer().counts().panicked), 1);
    well.set();
    cores.on(0, |own| own.as_ref().expect("it has joined").notify(&Touchy::of(1)));
    cores.settle();
    assert_eq!(well.ended(), [Completion::Condition]);
}

/// Nor does one in a letter that nobody takes any more.
#[test]
fn a_key_that_panics_when_its_core_is_gone_keeps_no_other_letter_back() {
    let mut cores = touchy_cores(3);
    let well = cores.on(2, |own| add_touchy(own.as_ref().expect("it has joined"), Touchy::of(2)));
    well.set();
    cores.end(1);
    cores.on(0, |own| {
        let own = own.as_ref().expect("it has joined");
        own.notify(&Touchy { hurts_to_drop: true, ..Touchy::of(1) });
        own.notify(&Touchy::of(2));
        HURTS.set(true);
    });
    cores.turn(0);
    assert_eq!(cores.on(0, |_| local_timer().counts().panicked), 1);
    cores.turn(2);
    assert_eq!(well.ended(), [Completion::Condition]);
}

/// Nor is anything lost by one that others watch already, and that goes as soon as it is given.
#[test]
fn a_key_that_panics_as_it_is_given_keeps_no_operation_from_its_other_keys() {
    let cores = touchy_cores(2);
    let touchy = || Touchy { hurts_to_drop: true, ..Touchy::of(0) };
    let seen = cores.on(0, move |own| {
        let own = own.as_ref().expect("it has joined");
        add_touchy(own, touchy());
        let seen = Arc::new(Seen::default());
        HURTS.set(true);
        assert!(
            own.try_complete_else_watch(
                Op(Arc::clone(&seen)),
                [touchy(), Touchy::of(1)],
                TICK * 50
            )
            .is_ok()
        );
        assert!(!HURTS.replace(false), "it has panicked");
        assert_eq!(local_timer().counts().panicked, 1);
        seen
    });
    cores.settle();
    seen.set();
    cores.on(1, |own| own.as_ref().expect("it has joined").notify(&Touchy::of(1)));
    cores.settle();
    assert_eq!(seen.ended(), [Completion::Condition]);
}

/// Nor, if it is in a letter that is full, the operation that ends.
#[test]
fn a_key_that_panics_in_a_full_letter_keeps_no_operation_from_its_end() {
    let mut cores = touchy_cores(2);
    let seen = Arc::new(Seen::default());
    let operation = Op(Arc::clone(&seen));
    cores.on(0, |own| {
        let keys = [0, 1].map(Touchy::of);
        let own = own.as_ref().expect("it has joined");
        assert!(own.try_complete_else_watch(operation, keys, TICK * 50).is_ok());
    });
    cores.settle();
    cores.end(1);
    seen.set();
    let completed = cores.on(0, |own| {
        let own = own.as_ref().expect("it has joined");
        for _ in 1..64 {
            own.notify(&Touchy { hurts_to_drop: true, ..Touchy::of(1) });
        }
        HURTS.set(true);
        own.check_and_complete(&Touchy::of(0))
    });
    assert_eq!((completed, seen.ended()), (1, vec![Completion::Condition]));
    assert_eq!(cores.on(0, |_| local_timer().counts().panicked), 1);
}

/// Nor the thread with it that ends, or the process.
#[test]
fn a_key_that_panics_when_its_thread_ends_harms_nobody() {
    common::on_a_thread(|| {
        let own = local_purgatory::<Touchy, Op>();
        for core in [0, 1] {
            let seen = Arc::new(Seen::default());
            let key = Touchy { hurts_to_drop: true, ..Touchy::of(core) };
            assert!(own.try_complete_else_watch(Op(seen), [key], TICK * 50).is_ok());
        }
        HURTS.set(true);
    });
}

/// And one that panics when its list goes leaves none behind.
#[test]
fn a_key_that_panics_when_nobody_watches_it_any_more_is_gone() {
    let cores = touchy_cores(1);
    let keys = cores.on(0, |own| {
        let own = own.as_ref().expect("it has joined");
        let seen = add_touchy(own, Touchy { hurts_to_drop: true, ..Touchy::of(0) });
        seen.set();
        HURTS.set(true);
        let key = Touchy::of(0);
        let _ = catch_unwind(AssertUnwindSafe(|| {
            own.check_and_complete(&Touchy { hurts_to_drop: true, ..key.clone() })
        }));
        assert!(!HURTS.replace(false), "it has panicked");
        own.counts().keys
    });
    assert_eq!(keys, 0);
}

/// Nor does it take the operation with it that was the last to watch it, which leaves its other keys.
#[test]
fn an_operation_whose_key_panics_ends_all_the_same() {
    let cores = touchy_cores(2);
    let seen = cores.on(0, |own| {
        let (own, seen) = (own.as_ref().expect("it has joined"), Arc::new(Seen::default()));
        let keys = [
            Touchy::of(0),
            Touchy { hurts_to_drop: true, hurts_to_hash: false, core: 2 },
            Touchy::of(1),
        ];
        let operation = Op(Arc::clone(&seen));
        assert!(own.try_complete_else_watch(operation, keys, TICK * 50).is_ok());
        seen
    });
    cores.settle();
    assert_eq!(cores.on(1, |own| own.as_ref().expect("it has joined").counts().watches), 1);
    seen.set();
    cores.on(0, |own| {
        HURTS.set(true);
        assert_eq!(own.as_ref().expect("it has joined").check_and_complete(&Touchy::of(0)), 1);
        assert!(!HURTS.replace(false), "it has panicked");
        let counts = own.as_ref().expect("it has joined").counts();
        assert_eq!((counts.by_condition, counts.live, counts.watches, counts.keys), (1, 0, 0, 0));
        assert_eq!(local_timer().counts().panicked, 1);
    });
    cores.settle();
    assert_eq!(seen.ended(), [Completion::Condition]);
    assert_eq!(cores.on(1, |own| own.as_ref().expect("it has joined").counts().watches), 0);
}

/// Who waits for a key whose code has panicked on its core hears that there will be no event on it, also of a core that joins late.
#[test]
fn a_watch_whose_key_panics_is_answered() {
    for is_late in [false, true] {
        let (cores, group) = (
            Lockstep::<Option<Purgatory<Touchy, Op>>>::start(2),
            PurgatoryGroup::by(|key: &Touchy| key.core),
        );
        let join = |core: usize| {
            let (group, shards) = (group.clone(), cores.shards.clone());
            cores.on(core, move |own| *own = Some(group.join(core, &shards)));
        };
        (0..if is_late { 1 } else { 2 }).for_each(join);
        let [touchy, well] = cores.on(0, |own| {
            let own = own.as_ref().expect("it has joined");
            [Touchy { hurts_to_hash: true, ..Touchy::of(1) }, Touchy::of(1)]
                .map(|key| add_touchy(own, key))
        });
        cores.on(1, |_| HURTS.set(true));
        cores.settle();
        if is_late {
            join(1);
            cores.settle();
        }
        assert_eq!([&touchy, &well].map(|seen| seen.looks()), [2, 2], "late: {is_late}");
        assert_eq!(cores.on(1, |own| own.as_ref().expect("it has joined").counts().watches), 1);
    }
}

/// Also if something keeps the purgatory, an operation of its own for one: the event was on its way there.
#[test]
fn watchers_look_once_more_when_the_core_of_a_key_has_leaked_its_purgatory() {
    let group = group();
    let mut cores = cores(2, &[0, 1], &group);
    let seen = add(&cores, 0, &[1], 50);
    cores.settle();
    cores.on(1, |own| std::mem::forget(own.take()));
    seen.set();
    group.notify(&1);
    cores.end(1);
    cores.settle();
    assert_eq!(seen.ended(), [Completion::Condition]);
    assert_nothing_left(&cores, [0]);
}

#[test]
fn a_purgatory_may_go_in_its_own_callback() {
    struct Last(Option<Waits2>);
    type Waits2 = Purgatory<Key, Last>;
    impl DelayedOperation for Last {
        fn try_complete(&mut self) -> bool {
            false
        }

        fn on_complete(mut self, _: Completion) {
            self.0 = None;
        }
    }
    common::in_virtual_time(|clock| {
        let purgatory = Waits2::new();
        for ticks in [1, 5] {
            let own = purgatory.clone();
            let _ = purgatory
                .try_complete_else_watch(Last(Some(own)), [1], TICK * ticks)
                .expect("there is room");
        }
        drop(purgatory);
        for _ in 0..2 {
            clock.advance(TICK * 5);
            let _: Turn = local_timer().turn();
        }
        assert_eq!(local_timer().len(), 0);
    });
}

// ---- in real time

#[test]
fn under_stress_each_operation_ends_once_and_no_event_is_lost() {
    purgatory_stress::run(common::operations(1), Duration::from_secs(30));
}
