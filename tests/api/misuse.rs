//! What bad input gets: each has a defined answer; none aborts, hangs or loses a timer.
#![allow(clippy::unchecked_time_subtraction, reason = "a test that underflows fails")]

use std::{
    cell::{Cell, RefCell},
    error::Error,
    fmt::Debug,
    panic::{AssertUnwindSafe, catch_unwind},
    rc::Rc,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use corewheel::{
    AddErrorReason, Cancel, Clock, Completion, Config, ConfigError, Cores, Counts,
    DelayedOperation, LocalHandle, ManualClock, Purgatory, Shard, TimerHandle, Turn, Wheel,
    local_timer,
};

use crate::common::{TICK, in_virtual_time, on_a_thread, wait_until};

fn turn_after(clock: &ManualClock, ticks: u32) -> Turn {
    clock.advance(TICK * ticks);
    local_timer().turn()
}

fn never() {
    unreachable!("this callback must not run");
}

/// A callback that counts its runs.
fn counts(runs: &Rc<Cell<usize>>) -> impl Fn() + 'static {
    let runs = Rc::clone(runs);
    move || runs.set(runs.get() + 1)
}

// ---- durations and instants

#[test]
fn a_zero_delay_means_the_next_tick() {
    in_virtual_time(|clock| {
        let runs = Rc::new(Cell::new(0));
        // On the boundary between two ticks the next one has just begun; within a tick it has not.
        for (since, waits) in [(Duration::ZERO, Duration::ZERO), (TICK / 4, TICK * 3 / 4)] {
            clock.advance(since);
            local_timer().add(Duration::ZERO, counts(&runs));
            local_timer().add_local(Duration::ZERO, counts(&runs));
            assert_eq!(local_timer().time_until_next(), Some(waits));
            if waits > Duration::ZERO {
                clock.advance(waits - Duration::from_nanos(1));
                assert_eq!(local_timer().turn().fired, 0);
                clock.advance(Duration::from_nanos(1));
            }
            assert_eq!(local_timer().turn().fired, 2);
        }
        assert_eq!(runs.get(), 4);
    });
}

#[test]
fn a_zero_delay_fires_by_the_real_clock_too() {
    on_a_thread(|| {
        let runs = Rc::new(Cell::new(0));
        local_timer().add(Duration::ZERO, counts(&runs));
        let begun = Instant::now();
        while runs.get() == 0 && begun.elapsed() < Duration::from_secs(20) {
            local_timer().turn();
        }
        assert_eq!(runs.get(), 1);
    });
}

#[test]
fn an_endless_delay_is_accepted_never_fires_and_can_be_cancelled() {
    in_virtual_time(|clock| {
        let handles = [
            local_timer().add(Duration::MAX, never),
            local_timer().add_local(Duration::MAX, never).share(),
            local_timer().add_periodic(Duration::MAX, never),
            local_timer()
                .try_add(Duration::from_nanos(u64::MAX), never)
                .expect("any duration is accepted"),
            // One that 64 bits of nanoseconds would take for five ticks.
            local_timer().add(Duration::from_nanos(u64::MAX) + TICK * 5, never),
        ];
        let soon = local_timer().add(TICK, || {});
        let moved = local_timer().add(TICK * 2, never);
        assert!(moved.reset(Duration::MAX));
        assert_eq!(turn_after(clock, 1).fired, 1);
        clock.advance(Duration::MAX);
        assert_eq!(local_timer().turn().fired, 0);
        assert_eq!((soon.cancel(), moved.cancel()), (Cancel::Ended, Cancel::Cancelled));
        assert!(handles.into_iter().all(|handle| handle.cancel() == Cancel::Cancelled));
        assert_eq!(local_timer().next_deadline(), None);
    });
}

#[test]
fn an_endless_delay_leaves_something_to_sleep_for_and_to_show() {
    on_a_thread(|| {
        let handle = local_timer().add(Duration::MAX, never);
        assert!(local_timer().next_deadline().is_some_and(|deadline| deadline > Instant::now()));
        assert!(local_timer().prepare_sleep().timeout() > Some(Duration::from_secs(1)));
        assert_eq!((local_timer().turn().fired, handle.cancel()), (0, Cancel::Cancelled));
        let mut shard = Shard::new();
        shard.add(Duration::MAX, "endless");
        assert!(shard.next_deadline() > Some(Instant::now()));
        assert_eq!(
            shard.drain().into_iter().map(|(_, payload)| payload).collect::<Vec<_>>(),
            ["endless"]
        );
    });
}

#[test]
fn an_instant_in_the_past_fires_in_the_next_turn() {
    // Before the clock began, and after it.
    let long_ago = Instant::now();
    in_virtual_time(|clock| {
        let begun = clock.now();
        clock.advance(TICK * 100 + TICK / 2);
        let runs = Rc::new(Cell::new(0));
        for instant in [long_ago, begun, clock.now() - TICK * 50] {
            let handle = local_timer().add_at(instant, counts(&runs));
            assert!(handle.is_pending());
        }
        assert_eq!((local_timer().turn().fired, runs.get()), (3, 3));
        // Also where the timer has turned meanwhile.
        local_timer().add_at(begun, counts(&runs));
        assert_eq!(local_timer().time_until_next(), Some(Duration::ZERO));
        assert_eq!((local_timer().turn().fired, runs.get()), (1, 4));
    });
    let mut shard = Shard::new();
    shard.add_at(long_ago, ());
    shard.turn();
    assert!(shard.next_expired().is_some());
}

#[test]
fn an_instant_out_of_sight_never_fires() {
    in_virtual_time(|clock| {
        let mut far = clock.now();
        while let Some(further) = far.checked_add(Duration::from_secs(1 << 40)) {
            far = further;
            if far > clock.now() + Duration::from_secs(1 << 45) {
                break;
            }
        }
        let handle = local_timer().add_at(far, never);
        assert_eq!(turn_after(clock, u32::MAX).fired, 0);
        assert_eq!(handle.cancel(), Cancel::Cancelled);
    });
}

// ---- configuration

#[test]
fn a_tick_below_a_microsecond_is_refused() {
    for tick in [Duration::ZERO, Duration::from_nanos(1), Duration::from_nanos(999)] {
        let refused = Err(ConfigError::TickTooShort { tick });
        assert_eq!(on_a_thread(|| Config::new().tick(tick).install()), refused);
        assert_eq!(Shard::<()>::with_config(Config::new().tick(tick)).map(drop), refused);
    }
    assert_eq!(on_a_thread(|| Config::new().tick(Duration::from_micros(1)).install()), Ok(()));
}

#[test]
fn a_refused_configuration_leaves_the_thread_as_it_was() {
    on_a_thread(|| {
        assert!(Config::new().tick(Duration::ZERO).install().is_err());
        let clock = ManualClock::new();
        Config::new().tick(TICK).clock(&clock).install().expect("nothing was installed before");
        let runs = Rc::new(Cell::new(0));
        local_timer().add(TICK, counts(&runs));
        assert_eq!((turn_after(&clock, 1).fired, runs.get()), (1, 1));
    });
}

#[test]
fn a_tick_as_long_as_you_like_is_accepted_and_nothing_is_early() {
    for tick in [Duration::from_secs(3_600), Duration::from_secs(1 << 33), Duration::MAX] {
        let clock = ManualClock::new();
        on_a_thread(|| {
            Config::new()
                .tick(tick)
                .clock(&clock)
                .install()
                .expect("any tick from a microsecond up");
            let runs = Rc::new(Cell::new(0));
            local_timer().add(Duration::from_nanos(1), counts(&runs));
            clock.advance(tick.min(Duration::from_nanos(u64::MAX)) - Duration::from_nanos(1));
            assert_eq!(local_timer().turn().fired, 0);
            clock.advance(Duration::from_nanos(1));
            assert_eq!((local_timer().turn().fired, runs.get()), (1, 1));
        });
    }
}

#[test]
fn the_shortest_tick_is_exact_to_the_microsecond() {
    let clock = ManualClock::new();
    on_a_thread(|| {
        Config::new().tick(Duration::from_micros(1)).clock(&clock).install().expect("long enough");
        let runs = Rc::new(Cell::new(0));
        local_timer().add(Duration::from_nanos(1_000_500), counts(&runs));
        clock.advance(Duration::from_nanos(1_000_999));
        assert_eq!(local_timer().turn().fired, 0);
        clock.advance(Duration::from_nanos(1));
        assert_eq!(local_timer().turn().fired, 1);
    });
}

#[test]
fn a_second_configuration_is_refused_and_changes_nothing() {
    on_a_thread(|| {
        let (clock, other) = (ManualClock::new(), ManualClock::new());
        Config::new().tick(TICK).clock(&clock).install().expect("a fresh thread");
        let runs = Rc::new(Cell::new(0));
        let handle = local_timer().add(TICK, counts(&runs));
        let again = Config::new().tick(TICK * 100).clock(&other).install();
        assert_eq!(again, Err(ConfigError::AlreadyRunning));
        assert!(handle.is_pending() && handle.reset(TICK * 2));
        other.advance(TICK * 1_000);
        assert_eq!(local_timer().turn().fired, 0);
        assert_eq!((turn_after(&clock, 2).fired, runs.get()), (1, 1));
    });
}

#[test]
fn a_configuration_after_the_first_use_is_refused() {
    struct Never;
    impl DelayedOperation for Never {
        fn try_complete(&mut self) -> bool {
            false
        }
        fn on_complete(self, _: Completion) {}
    }
    let uses: [fn(); 4] = [
        || _ = local_timer().add(Duration::from_secs(60), never),
        || _ = local_timer().turn(),
        || _ = local_timer().len(),
        || drop(local_timer().prepare_sleep()),
    ];
    for first_use in uses {
        on_a_thread(|| {
            first_use();
            assert_eq!(Config::new().install(), Err(ConfigError::AlreadyRunning));
        });
    }
    on_a_thread(|| {
        drop(Purgatory::<u8, Never>::new());
        assert_eq!(Config::new().install(), Ok(()), "nobody has used it");
    });
}

#[test]
fn a_capacity_is_no_limit() {
    let clock = ManualClock::new();
    let mut shard =
        Shard::with_config(Config::new().tick(TICK).clock(&clock).capacity(3)).expect("valid");
    (0..5_000).for_each(|id| _ = shard.add(TICK * (id % 7), id));
    clock.advance(TICK * 7);
    shard.turn();
    assert_eq!(std::iter::from_fn(|| shard.next_expired()).count(), 5_000);
}

// ---- clocks

#[test]
fn a_clock_that_goes_back_is_held_and_counted() {
    in_virtual_time(|clock| {
        let runs = Rc::new(Cell::new(0));
        clock.set(TICK * 10);
        assert_eq!(local_timer().turn().fired, 0);
        clock.set(TICK * 4);
        // The timer holds at tick 10, so this is due at tick 15 and not at tick 9.
        let handle = local_timer().add(TICK * 5, counts(&runs));
        assert_eq!(local_timer().counts().clock_regressions, 1);
        assert_eq!(local_timer().time_until_next(), Some(TICK * 5));
        for (shown, fired) in [(4, 0), (9, 0), (14, 0), (15, 1)] {
            clock.set(TICK * shown);
            assert_eq!(local_timer().turn().fired, fired, "at tick {shown}");
        }
        assert_eq!((local_timer().counts().clock_regressions, runs.get()), (3, 1));
        assert_eq!(handle.cancel(), Cancel::Ended);
    });
}

#[test]
fn a_timer_that_fired_before_the_clock_went_back_does_not_fire_again() {
    in_virtual_time(|clock| {
        let runs = Rc::new(Cell::new(0));
        local_timer().add(TICK, counts(&runs));
        local_timer().add_periodic(TICK * 4, counts(&runs));
        assert_eq!(turn_after(clock, 5).fired, 2);
        clock.set(Duration::ZERO);
        for _ in 0..7 {
            assert_eq!(turn_after(clock, 1).fired, 0);
        }
        assert_eq!((turn_after(clock, 1).fired, runs.get()), (1, 3));
    });
}

#[test]
fn a_jump_ahead_fires_what_is_due_in_the_order_of_the_deadlines() {
    const DELAYS: [u64; 12] =
        [3, 1, 70_000, 65_535, 65_536, 65_537, 9, 1 << 32, 131_072, 1 << 33, 2, 1_000_000];
    let mut sorted = DELAYS;
    sorted.sort_unstable();
    let clock = ManualClock::new();
    let mut shard = Shard::with_config(Config::new().tick(TICK).clock(&clock)).expect("valid");
    for jump in [1 << 33, 1 << 34] {
        for delay in DELAYS {
            shard.add(Duration::from_millis(delay), delay);
        }
        clock.advance(Duration::from_millis(jump));
        shard.turn();
        let fired: Vec<u64> =
            std::iter::from_fn(|| shard.next_expired()).map(|expired| expired.payload).collect();
        assert_eq!(fired, sorted);
    }
}

// ---- a thread that ends

/// What the timer of an exiting thread answers.
#[derive(Debug, PartialEq)]
struct Answers {
    refused: AddErrorReason,
    /// What the callback that was handed back returns; it is called by the test.
    callback_ran: bool,
    panicked: [bool; 4],
    sleep: Option<Duration>,
    turn: Turn,
    len: (usize, bool),
    next: (Option<Instant>, Option<Duration>),
    counts: Counts,
    installed: Result<(), ConfigError>,
    handle: (Cancel, bool, bool),
    private: (Cancel, bool, bool, Cancel),
    now_goes_on: bool,
}

fn panics<R>(run: impl FnOnce() -> R) -> bool {
    catch_unwind(AssertUnwindSafe(run)).is_err()
}

/// Asks the timer everything; `None` if it is still there.
fn ask_everything(handle: TimerHandle, private: LocalHandle) -> Option<Answers> {
    let timer = local_timer();
    let ran = Rc::new(Cell::new(false));
    let written = Rc::clone(&ran);
    let error = timer.try_add(TICK, move || written.set(true)).err()?;
    let refused = error.reason();
    assert_reads_well(&error, "exiting");
    (error.into_inner())();
    let earlier = timer.now();
    Some(Answers {
        refused,
        callback_ran: ran.get(),
        panicked: [
            panics(|| timer.add(TICK, never)),
            panics(|| timer.add_at(earlier, never)),
            panics(|| timer.add_periodic(TICK, never)),
            panics(|| timer.add_local(TICK, never)),
        ],
        sleep: timer.prepare_sleep().timeout(),
        turn: timer.turn(),
        len: (timer.len(), timer.is_empty()),
        next: (timer.next_deadline(), timer.time_until_next()),
        counts: timer.counts(),
        installed: Config::new().install(),
        handle: (handle.cancel(), handle.is_pending(), handle.reset(TICK)),
        private: (
            private.cancel(),
            private.is_pending(),
            private.reset(TICK),
            private.share().cancel(),
        ),
        now_goes_on: timer.now() >= earlier,
    })
}

type Reported = mpsc::Sender<Option<Answers>>;

/// Asks when its thread's locals are dropped.
struct AsksAtExit(TimerHandle, LocalHandle, Reported);

impl Drop for AsksAtExit {
    fn drop(&mut self) {
        self.2.send(ask_everything(self.0, self.1)).expect("the test listens");
    }
}

thread_local! {
    static EARLY: RefCell<Option<AsksAtExit>> = const { RefCell::new(None) };
    static LATE: RefCell<Option<AsksAtExit>> = const { RefCell::new(None) };
}

/// A thread local is dropped before or after the timer, whichever was used first: one of these is dropped after.
#[test]
fn the_timer_of_an_exiting_thread_has_a_defined_answer_to_everything() {
    let (reported, reports) = mpsc::channel();
    on_a_thread(move || {
        // Registers it before the timer's.
        EARLY.with(|_| ());
        let handle = local_timer().add(Duration::from_secs(600), never);
        let private = local_timer().add_local(Duration::from_secs(600), never);
        EARLY.set(Some(AsksAtExit(handle, private, reported.clone())));
        LATE.set(Some(AsksAtExit(handle, private, reported)));
    });
    let answers: Vec<Option<Answers>> = reports.into_iter().collect();
    assert_eq!(answers.len(), 2);
    let ended: Vec<Answers> = answers.into_iter().flatten().collect();
    assert!(!ended.is_empty(), "one of the two was dropped after the timer");
    for answers in ended {
        let expected = Answers {
            refused: AddErrorReason::ShutDown,
            callback_ran: true,
            panicked: [true; 4],
            sleep: Some(Duration::ZERO),
            turn: Turn::default(),
            len: (0, true),
            next: (None, None),
            counts: Counts::default(),
            installed: Err(ConfigError::AlreadyRunning),
            handle: (Cancel::Ended, false, false),
            private: (Cancel::Ended, false, false, Cancel::Ended),
            now_goes_on: true,
        };
        assert_eq!(answers, expected);
    }
}

struct AddsAtExit;

impl Drop for AddsAtExit {
    fn drop(&mut self) {
        local_timer().add(Duration::ZERO, || ());
        local_timer().turn();
    }
}

thread_local! {
    static FIRST_USE: AddsAtExit = const { AddsAtExit };
}

#[test]
fn a_thread_that_first_uses_its_timer_when_it_exits_exits() {
    on_a_thread(|| FIRST_USE.with(|_| ()));
}

#[test]
fn a_thread_that_panics_or_exits_drops_its_callbacks_and_its_handles_are_stale() {
    struct CountsItsDrop(Arc<AtomicUsize>);
    impl Drop for CountsItsDrop {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    for panicking in [false, true] {
        let (drops, ran) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let handles = Arc::new(Mutex::new(Vec::new()));
        let (counted, written, given) =
            (Arc::clone(&drops), Arc::clone(&ran), Arc::clone(&handles));
        let ended = thread::spawn(move || {
            for delay in [Duration::ZERO, TICK, Duration::from_secs(600), Duration::MAX] {
                for periodic in [false, true] {
                    let (captured, ran) =
                        (CountsItsDrop(Arc::clone(&counted)), Arc::clone(&written));
                    let callback = move || {
                        let _captured = &captured;
                        ran.fetch_add(1, Ordering::Relaxed);
                    };
                    let handle = if periodic {
                        local_timer().add_periodic(delay, callback)
                    } else {
                        local_timer().add(delay, callback)
                    };
                    given.lock().expect("sound").push(handle);
                }
            }
            assert!(!panicking, "as planned");
        })
        .join();
        assert_eq!(ended.is_err(), panicking);
        assert_eq!((drops.load(Ordering::Relaxed), ran.load(Ordering::Relaxed)), (8, 0));
        for handle in handles.lock().expect("sound").drain(..) {
            assert_eq!(
                (handle.cancel(), handle.is_pending(), handle.reset(TICK)),
                (Cancel::Ended, false, false)
            );
        }
    }
}

#[test]
fn a_cancel_that_races_with_the_end_of_the_thread_gets_a_true_answer() {
    for _ in 0..50 {
        let drops = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&drops);
        let (sender, handles) = mpsc::channel();
        let owner = thread::spawn(move || {
            for _ in 0..100 {
                let captured = Arc::clone(&counted);
                let dropped =
                    Dropped(Box::new(move || _ = captured.fetch_add(1, Ordering::Relaxed)));
                let callback = move || {
                    let _dropped = dropped;
                    never();
                };
                sender
                    .send(local_timer().add(Duration::from_secs(600), callback))
                    .expect("the test listens");
            }
        });
        let answers: Vec<Cancel> = handles.into_iter().map(TimerHandle::cancel).collect();
        assert!(!answers.contains(&Cancel::Running));
        owner.join().expect("no panic");
        assert_eq!((answers.len(), drops.load(Ordering::Relaxed)), (100, 100));
    }
}

struct Dropped(Box<dyn FnMut()>);

impl Drop for Dropped {
    fn drop(&mut self) {
        (self.0)();
    }
}

#[test]
fn a_shard_that_moved_to_a_thread_that_ends_ends_with_it() {
    let mut shard = Shard::new();
    let handle = shard.add(Duration::from_secs(600), ());
    assert!(handle.is_pending());
    thread::spawn(move || drop(shard)).join().expect("no panic");
    assert_eq!((handle.cancel(), handle.is_pending()), (Cancel::Ended, false));
    wait_until("the handle is stale everywhere", || {
        on_a_thread(|| handle.cancel()) == Cancel::Ended
    });
}

// ---- errors and names

fn assert_reads_well(error: &dyn Error, mentions: &str) {
    let text = error.to_string();
    assert!(text.contains(mentions), "{text:?} does not say {mentions:?}");
    assert!(!text.ends_with(['.', '!', '\n']) && text.trim() == text, "{text:?}");
    assert!(text.starts_with(|first: char| !first.is_uppercase()), "{text:?}");
    assert!(!format!("{error:?}").is_empty());
}

#[test]
fn errors_are_errors_and_say_what_is_wrong() {
    assert_reads_well(&ConfigError::TickTooShort { tick: Duration::from_nanos(999) }, "999ns");
    assert_reads_well(&ConfigError::AlreadyRunning, "timer");
    assert_reads_well(&ConfigError::TooManyShards { max: 16_384 }, "16384");
    for reason in [AddErrorReason::ShutDown, AddErrorReason::Full] {
        assert!(!reason.to_string().ends_with('.') && !format!("{reason:?}").is_empty());
    }
}

#[test]
fn every_public_type_can_be_printed() {
    fn prints(value: impl Debug) {
        let text = format!("{value:?}");
        assert!(!text.is_empty() && !format!("{value:#?}").is_empty());
    }
    in_virtual_time(|clock| {
        struct Opaque;
        let handle = local_timer().add(TICK, || {});
        prints(handle);
        prints(handle.guard());
        prints(handle.cancel());
        prints(local_timer().add_local(TICK, || {}));
        prints(local_timer());
        prints(local_timer().prepare_sleep());
        prints(local_timer().counts());
        prints(turn_after(clock, 1));
        prints(clock);
        prints(Clock::from(clock));
        prints(Clock::monotonic());
        prints(Config::new().on_wake(|| {}).on_panic(|_| {}));
        let mut shard = Shard::with_config(Config::new().tick(TICK).clock(clock)).expect("valid");
        shard.add(TICK, Opaque);
        prints(&shard);
        let mut shard = Shard::with_config(Config::new().tick(TICK).clock(clock)).expect("valid");
        shard.add(TICK, "payload");
        clock.advance(TICK);
        shard.turn();
        prints(shard.next_expired().expect("due"));
        let mut wheel = Wheel::<Opaque>::new();
        prints(wheel.insert(5, Opaque));
        prints(&wheel);
        prints(wheel.advance(5));
        prints(ConfigError::AlreadyRunning);
        prints(corewheel::PanicPlace::Callback);
    });
    let cores = Cores::builder().shards(1);
    prints(&cores);
    let cores = cores.start(prints).expect("started");
    prints(&cores);
    assert!(cores.join().into_iter().all(|ended| ended.is_ok()));
    let text = Arc::new(Mutex::new(String::new()));
    let written = Arc::clone(&text);
    on_a_thread(|| {
        let hook = move |report: &corewheel::PanicReport<'_>| {
            *written.lock().expect("sound") = format!("{report:?}")
        };
        Config::new().on_panic(hook).install().expect("a fresh thread");
        local_timer().add_at(Instant::now(), || panic!("as planned"));
        while local_timer().turn().fired == 0 {}
    });
    let text = text.lock().expect("sound");
    assert!(text.contains("Callback") && text.contains("as planned"), "{text}");
}

/// Drains a shard, and gives its number to another thread's timer. Whether that got it: another test may have been quicker.
fn drained_reaches_its_successor() -> Option<bool> {
    let mut drained = Shard::<u32>::with_config(Config::new().tick(TICK)).expect("valid");
    drop(drained.drain());
    let number = drained.metrics().number;
    on_a_thread(move || {
        let core = local_timer().shard_ref();
        if core.metrics().number != number {
            return None;
        }
        let add = || {
            thread::scope(|scope| {
                scope.spawn(|| core.add(TICK * 60_000, || ())).join().expect("no panic")
            })
        };
        let arrived = add();
        let _ = local_timer().turn();
        let not_arrived = add();
        let own = local_timer().add(TICK * 60_000, || ());
        let handles = [not_arrived, arrived, own];
        let reached = handles
            .map(|handle| drained.reset(handle, Duration::ZERO) | drained.cancel(handle).is_some());
        let _ = local_timer().turn();
        let again = handles
            .map(|handle| drained.reset(handle, Duration::ZERO) | drained.cancel(handle).is_some());
        assert!(handles.into_iter().all(TimerHandle::is_pending) && local_timer().len() == 3);
        Some(reached != [false; 3] || again != [false; 3])
    })
}

/// Its number is another one's as soon as it has ended.
#[test]
fn a_drained_shard_does_not_reach_its_successor() {
    let reached = (0..1_000).find_map(|_| drained_reaches_its_successor());
    assert_eq!(reached, Some(false));
}

/// Whether the owner has heard of it or not.
#[test]
fn a_drained_timer_comes_with_the_deadline_it_was_moved_to() {
    let clock = ManualClock::new();
    let mut shard = Shard::with_config(Config::new().tick(TICK).clock(&clock)).expect("valid");
    let begun = clock.now();
    let handles = [10, 20].map(|ticks| shard.add(TICK * ticks, ticks));
    on_a_thread(|| assert!(handles[0].reset(TICK * 50)));
    shard.turn();
    on_a_thread(|| assert!(handles[0].reset(TICK * 5) && handles[1].reset(TICK * 90)));
    let mut pending = shard.drain();
    pending.sort_unstable();
    assert_eq!(pending, [(begun + TICK * 5, 10), (begun + TICK * 90, 20)]);
}

/// When its thread's locals are dropped, and its timer has been, it says what it gets when it cancels a timer of the next thread whose
/// timer has the same number.
struct CancelsItsSuccessors {
    number: u32,
    told: mpsc::Sender<Cancel>,
}

impl Drop for CancelsItsSuccessors {
    fn drop(&mut self) {
        if local_timer().try_add(TICK, never).is_err() {
            let answer = (0..1_000).find_map(|_| self.cancels_its_successors());
            self.told.send(answer.expect("the number is free")).expect("the test listens");
        }
    }
}

impl CancelsItsSuccessors {
    /// `None` if the number has gone to another test.
    fn cancels_its_successors(&self) -> Option<Cancel> {
        let (give, given) = mpsc::channel();
        let (end, ended) = mpsc::channel::<()>();
        let number = self.number;
        let next = thread::spawn(move || {
            let is_next = local_timer().shard_ref().metrics().number == number;
            give.send(is_next.then(|| local_timer().add(TICK * 60_000, never)))
                .expect("it is waited for");
            assert!(ended.recv().is_err());
        });
        let answer = given.recv().expect("no panic").map(TimerHandle::cancel);
        drop(end);
        next.join().expect("no panic");
        answer
    }
}

thread_local! {
    static FIRST: RefCell<Option<CancelsItsSuccessors>> = const { RefCell::new(None) };
    static LAST: RefCell<Option<CancelsItsSuccessors>> = const { RefCell::new(None) };
}

/// P12: whose timer has ended is no owner any more, also of what comes after it on other threads.
#[test]
fn an_exiting_thread_cancels_as_any_other_once_its_timer_has_ended() {
    let (told, tells) = mpsc::channel();
    on_a_thread(move || {
        // One of the two is dropped after the timer, as above.
        FIRST.with(|_| ());
        let number = local_timer().shard_ref().metrics().number;
        for place in [&FIRST, &LAST] {
            place.set(Some(CancelsItsSuccessors { number, told: told.clone() }));
        }
    });
    let answers: Vec<Cancel> = tells.into_iter().collect();
    assert!(
        !answers.is_empty() && answers.iter().all(|&answer| answer == Cancel::Cancelled),
        "{answers:?}"
    );
}

/// P11: the end of a shard is a value, and what is asked of it afterwards has an answer.
#[test]
fn a_drained_shard_has_a_defined_answer_to_everything() {
    let clock = ManualClock::new();
    let mut shard = Shard::with_config(Config::new().tick(TICK).clock(&clock)).expect("valid");
    let begun = clock.now();
    let handles = [1, 2, 3].map(|id| shard.add(TICK * id, id));
    assert_eq!(on_a_thread(|| handles[2].cancel()), Cancel::Cancelled);
    let mut pending = shard.drain();
    pending.sort_unstable();
    assert_eq!(pending, [(begun + TICK, 1), (begun + TICK * 2, 2)]);
    let counts = shard.counts();
    assert_eq!(
        (counts.added, counts.handed_back, counts.cancelled, counts.live, counts.held),
        (3, 2, 1, 0, 0)
    );

    assert!(shard.drain().is_empty(), "once");
    assert_eq!(handles.map(TimerHandle::cancel), [Cancel::Ended; 3]);
    assert_eq!((shard.cancel(handles[0]), shard.reset(handles[0], TICK)), (None, false));
    clock.advance(TICK * 10);
    shard.turn();
    assert!(shard.next_expired().is_none());
    assert_eq!((shard.next_deadline(), shard.len()), (None, 0));
    assert_eq!(shard.prepare_sleep().timeout(), Some(Duration::ZERO), "nothing would end it");
    let error = shard.try_add(TICK, 4).expect_err("it has ended");
    assert_eq!((error.reason(), error.into_inner()), (AddErrorReason::ShutDown, 4));
    assert!(panics(|| shard.add(TICK, 5)));
}
