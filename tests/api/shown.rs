//! Texts for people: `Debug` shows figures, errors are plain sentences. And defaults.

use std::{error::Error, fmt::Debug, sync::Mutex, time::Duration};

use corewheel::{
    AddErrorReason, Clock, Completion, Config, ConfigError, Cores, DelayedOperation, ManualClock,
    Outcome, PanicPlace, PanicReport, Purgatory, PurgatoryGroup, Shard, Wheel,
    future::{Timers, VirtualTime, sleep},
    local_timer,
};

use crate::{
    common::{TICK, on_a_thread},
    support::{HOUR, configured, manual_shard, on_a_core, turn_after},
};

struct Never;

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
            (format!("{:?}", sleep(HOUR)), "Sleep { home: "),
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
