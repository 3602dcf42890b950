//! Texts for people: `Debug` shows figures, errors are plain sentences. And defaults.

use std::{
    error::Error,
    fmt::Debug,
    io,
    rc::Rc,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use corewheel::{
    AddErrorReason, Cancel, Clock, Completion, Config, ConfigError, Cores, DelayedOperation,
    ManualClock, Outcome, PanicPlace, PanicReport, Purgatory, PurgatoryGroup, Shard, Wheel,
    future::{TimeoutError, Timers, VirtualTime, sleep},
    local_timer,
};

use crate::{
    common::{TICK, on_a_thread},
    support::{HOUR, configured, manual_shard, on_a_core, turn_after},
};

pub(crate) struct Never;

impl DelayedOperation for Never {
    fn try_complete(&mut self) -> bool {
        false
    }

    fn on_complete(self, _: Completion) {}
}

#[test]
fn debug_shows_figures() {
    on_a_core(|_| {
        let purgatory = Purgatory::<&str, Never>::default();
        let outcome = purgatory.try_complete_else_watch(Never, ["key"], HOUR);
        assert!(matches!(outcome, Ok(Outcome::Waits(_))));
        let timers = Timers::new(&[local_timer().shard_ref()]);
        for (shown, start) in [
            (format!("{purgatory:?}"), "Purgatory { counts: PurgatoryCounts {"),
            (format!("{:?}", PurgatoryGroup::<&str>::default()), "PurgatoryGroup { number: "),
            (format!("{:?}", sleep(HOUR)), "Sleep { backend: "),
            (format!("{timers:?}"), "Timers([ShardRef"),
        ] {
            assert!(shown.starts_with(start), "{shown}");
        }
        assert!(format!("{:?}", timers.sleep(HOUR)).contains("Remote(ShardRef"));
        assert!(format!("{:?}", Shard::<()>::default()).contains("added: 0"));
    });
    let time = VirtualTime::default();
    assert_eq!(format!("{time:?}"), "VirtualTime { cores: 1, tasks: 0, elapsed: 0ns, .. }");
}

#[test]
fn every_public_type_has_debug() {
    static REPORT: Mutex<String> = Mutex::new(String::new());
    fn prints(value: impl Debug) {
        assert!(!format!("{value:?}").is_empty() && !format!("{value:#?}").is_empty());
    }
    on_a_core(|clock| {
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
        let (mut shard, _) = manual_shard();
        shard.add(TICK, Opaque);
        prints(&shard);
        let (mut shard, clock) = manual_shard();
        shard.add(TICK, "payload");
        clock.advance(TICK);
        shard.turn();
        prints(shard.next_expired().expect("due"));
        let mut wheel = Wheel::<Opaque>::new();
        prints(wheel.insert(5, Opaque));
        prints(&wheel);
        prints(wheel.advance(5));
        prints(ConfigError::AlreadyRunning);
        prints(PanicPlace::Callback);
    });
    let cores = Cores::builder().shards(1);
    prints(&cores);
    let cores = cores.start(prints).expect("started");
    prints(&cores);
    assert!(cores.join().into_iter().all(|ended| ended.is_ok()));
    let hook = |report: &PanicReport<'_>| *REPORT.lock().expect("sound") = format!("{report:?}");
    configured(
        |config| config.on_panic(hook),
        |clock| {
            local_timer().add(TICK, || panic!("as planned"));
            turn_after(clock, 1);
        },
    );
    let shown = REPORT.lock().expect("sound");
    assert!(shown.contains("Callback") && shown.contains("as planned"), "{shown}");
}

#[test]
fn errors_are_sentences() {
    fn assert_reads_well(error: &(impl Debug + ToString), mentions: &str) {
        let text = error.to_string();
        assert!(text.contains(mentions) && text.contains(' '), "{text:?} without {mentions:?}");
        assert!(!text.ends_with(['.', '!', '\n']) && text.trim() == text, "{text:?}");
        assert!(text.starts_with(|first: char| !first.is_uppercase()), "{text:?}");
        assert!(!format!("{error:?}").is_empty());
    }
    for reason in [AddErrorReason::ShutDown, AddErrorReason::Full, AddErrorReason::TooManyShards] {
        assert_reads_well(&reason, "");
    }
    assert_reads_well(&ConfigError::TickTooShort { tick: Duration::from_nanos(999) }, "999ns");
    assert_reads_well(&ConfigError::TickTooShort { tick: Duration::ZERO }, "tick");
    assert_reads_well(&ConfigError::AlreadyRunning, "wheel");
    assert_reads_well(&ConfigError::TooManyShards { max: 16_384 }, "16384");
    assert!(ConfigError::AlreadyRunning.source().is_none());
    let mut full = Shard::with_config(Config::new().limit(0)).expect("valid");
    let error = full.try_add(TICK, ()).expect_err("it is full");
    assert_reads_well(&error, "timer not added: ");
    assert_eq!(format!("{error:?}"), "AddError { reason: Full, .. }");
}

#[test]
fn display_shows_figures_and_answers() {
    on_a_core(|clock| {
        let handle = local_timer().add(TICK, || {});
        let local = local_timer().add_local(TICK, || {});
        assert_eq!(format!("TimerHandle({handle})"), format!("{handle:?}"));
        assert_eq!(format!("LocalTimerHandle({local})"), format!("{local:?}"));
        let turn = turn_after(clock, 1);
        assert_eq!(
            turn.to_string(),
            format!("fired 2, collected 0, live 0, touched {}", turn.touched)
        );
        local_timer().add(TICK, || {
            assert!(local_timer().turn().to_string().ends_with(", nested"));
        });
        assert_eq!(turn_after(clock, 1).fired, 1);
        let cancelled = local_timer().add(TICK, || {});
        assert_eq!(
            format!("{:>10}{:>6}", cancelled.cancel(), cancelled.cancel()),
            " cancelled ended"
        );
        assert_eq!(
            local_timer().counts().to_string(),
            "added 4, live 0, fired 3, cancelled 1, handed back 0"
        );
    });
}

#[test]
fn only_a_won_cancel_is_cancelled() {
    let answers = [Cancel::Cancelled, Cancel::Running, Cancel::Ended];
    assert_eq!(answers.map(Cancel::is_cancelled), [true, false, false]);
    assert_eq!(answers.map(|answer| answer.to_string()), ["cancelled", "running", "ended"]);
}

#[test]
fn errors_become_io_errors_of_a_fitting_kind() {
    fn kind_and_text(error: impl Into<io::Error>) -> (io::ErrorKind, String) {
        let error = error.into();
        (error.kind(), error.to_string())
    }
    for (reason, kind) in [
        (AddErrorReason::ShutDown, io::ErrorKind::BrokenPipe),
        (AddErrorReason::Full, io::ErrorKind::QuotaExceeded),
        (AddErrorReason::TooManyShards, io::ErrorKind::QuotaExceeded),
    ] {
        assert_eq!(kind_and_text(reason), (kind, reason.to_string()));
        let timeout = TimeoutError::NoTimer(reason);
        assert_eq!(kind_and_text(timeout), (kind, timeout.to_string()));
    }
    let elapsed = TimeoutError::Elapsed;
    assert_eq!(kind_and_text(elapsed), (io::ErrorKind::TimedOut, elapsed.to_string()));
    for (error, kind) in [
        (ConfigError::TickTooShort { tick: Duration::ZERO }, io::ErrorKind::InvalidInput),
        (ConfigError::AlreadyRunning, io::ErrorKind::AlreadyExists),
        (ConfigError::TooManyShards { max: 1 }, io::ErrorKind::QuotaExceeded),
    ] {
        assert_eq!(kind_and_text(error), (kind, error.to_string()));
    }
    let mut shard = Shard::with_config(Config::new().limit(0)).expect("valid");
    // The payload need not be `Send`.
    let error = shard.try_add(TICK, Rc::new(())).expect_err("it is full");
    let full = (io::ErrorKind::QuotaExceeded, error.to_string());
    assert_eq!(kind_and_text(error), full);
    on_a_core(|clock| {
        let other = local_timer().add(HOUR, || {});
        local_timer().add(TICK, move || {
            let error = other.cancel_wait().expect_err("inside a callback");
            assert_eq!(kind_and_text(error), (io::ErrorKind::Deadlock, error.to_string()));
        });
        assert_eq!(turn_after(clock, 1).fired, 1);
        assert_eq!(local_timer().counts().panicked, 0);
    });
}

#[test]
fn a_cloned_config_has_the_same_settings_and_hooks() {
    let reports = Arc::new(AtomicUsize::new(0));
    let (clock, counted) = (ManualClock::new(), Arc::clone(&reports));
    let config = Config::new().clock(&clock).limit(1).on_panic(move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
    });
    for config in [config.clone(), config.clone(), config] {
        let clock = clock.clone();
        on_a_thread(move || {
            config.install().expect("a new thread");
            local_timer().add(TICK, || panic!("as planned"));
            assert!(local_timer().try_add(TICK, || ()).is_err());
            turn_after(&clock, 1);
        });
    }
    assert_eq!(reports.load(Ordering::Relaxed), 3);
}

#[test]
fn a_default_is_what_new_makes() {
    assert_eq!(ManualClock::default().elapsed(), Duration::ZERO);
    on_a_thread(|| {
        let config = Config::default().tick(Duration::from_millis(1)).clock(Clock::default());
        config.install().expect("a new thread");
        local_timer().add(HOUR, || ());
        let until = local_timer().time_until_next().expect("a timer waits");
        assert!(until <= HOUR + Duration::from_millis(1));
    });
}
