//! The output of `Debug` and `Display`, the texts of errors, and clones of `Config`.

use std::{
    error::Error,
    io::{self, ErrorKind},
    rc::Rc,
    sync::mpsc,
    time::Duration,
};

use corewheel::{
    AddErrorReason, Cancel, Config, ConfigError, ManualClock, PanicReport, Shard, TimerStatus,
    future::{TimeoutError, Timers, VirtualTime, sleep},
    local_timer,
    purgatory::{Purgatory, PurgatoryGroup},
};

use crate::support::{
    Counter, HOUR, NeverCompletes, TICK, add_waiting, in_checked_virtual_time, on_a_thread,
    on_configured_thread, turn_after,
};

#[test]
fn debug_output_shows_the_main_fields() {
    in_checked_virtual_time(|_| {
        let purgatory = Purgatory::<&str, NeverCompletes>::default();
        add_waiting(&purgatory, NeverCompletes, ["key"], 1);
        let timers = Timers::new(&[local_timer().shard_ref()]);
        for (shown, start) in [
            (format!("{purgatory:?}"), "Purgatory { counts: PurgatoryCounts {"),
            (format!("{:?}", PurgatoryGroup::<&str>::default()), "PurgatoryGroup {"),
            (format!("{:?}", sleep(HOUR)), "Sleep { backend: "),
            (format!("{timers:?}"), "Timers([ShardRef"),
        ] {
            assert!(shown.starts_with(start), "{shown}");
        }
        assert!(format!("{:?}", timers.sleep(HOUR)).contains("SharedWheel(ShardRef"));
        assert!(format!("{:?}", Shard::<()>::default()).contains("added: 0"));
    });
    let (sender, receiver) = mpsc::channel();
    let hook = move |panic: &PanicReport<'_>| sender.send(format!("{panic:?}")).expect("sent");
    on_configured_thread(Config::new().panic_hook(hook), |clock| {
        local_timer().add(TICK, || panic!("as planned"));
        turn_after(clock, 1);
    });
    let report = receiver.recv().expect("a report");
    assert!(report.contains("Callback") && report.contains("as planned"), "{report}");
    let time = VirtualTime::default();
    assert_eq!(format!("{time:?}"), "VirtualTime { cores: 1, tasks: 0, elapsed: 0ns, .. }");
}

/// Asserts the style of the error's text, that it contains `mentions`, and that the error converts
/// to an `io::Error` of `kind`.
fn assert_error(error: impl ToString + Into<io::Error>, mentions: &str, kind: ErrorKind) {
    let text = error.to_string();
    assert!(text.contains(mentions) && text.contains(' '), "{text:?} without {mentions:?}");
    assert!(!text.ends_with(['.', '!', '\n']) && text.trim() == text, "{text:?}");
    assert!(text.starts_with(|first: char| !first.is_uppercase()), "{text:?}");
    let error: io::Error = error.into();
    assert_eq!((error.kind(), error.to_string()), (kind, text));
}

#[test]
fn errors_are_sentences_and_convert_to_io_errors() {
    use ErrorKind::{AlreadyExists, BrokenPipe, Deadlock, InvalidInput, QuotaExceeded, TimedOut};
    for (reason, kind) in [
        (AddErrorReason::ShutDown, BrokenPipe),
        (AddErrorReason::Full, QuotaExceeded),
        (AddErrorReason::TooManyShards, QuotaExceeded),
    ] {
        assert_error(reason, "", kind);
        assert_error(TimeoutError::NoTimer(reason), &reason.to_string(), kind);
    }
    assert_error(TimeoutError::Elapsed, "elapsed", TimedOut);
    let tick = Duration::from_nanos(999);
    assert_error(ConfigError::TickOutOfRange { tick }, "999ns", InvalidInput);
    assert_error(ConfigError::ThreadHasWheel, "wheel", AlreadyExists);
    assert_error(ConfigError::TooManyShards, "16384", QuotaExceeded);
    assert!(ConfigError::ThreadHasWheel.source().is_none());
    let mut full = Shard::with_config(Config::new().limit(0)).expect("valid");
    // The payload need not be `Send`.
    let error = full.try_add(TICK, Rc::new(())).expect_err("full");
    assert_eq!(format!("{error:?}"), "AddError { reason: Full, .. }");
    assert_error(error, "timer not added: ", QuotaExceeded);
    in_checked_virtual_time(|clock| {
        let other = local_timer().add(HOUR, || {});
        local_timer().add(TICK, move || {
            assert_error(other.cancel_wait().expect_err("inside a callback"), "", Deadlock);
        });
        assert_eq!(turn_after(clock, 1).fired, 1);
        assert_eq!(local_timer().counts().panicked, 0);
    });
}

#[cfg(all(feature = "fd", any(target_os = "linux", target_os = "android")))]
#[test]
fn descriptor_errors_convert_to_io_errors() {
    use corewheel::TimerFdError::{Io, NoWheel, VirtualTime};
    assert_error(VirtualTime, "virtual", ErrorKind::Unsupported);
    let ended = AddErrorReason::ShutDown;
    assert_error(NoWheel(ended), &ended.to_string(), ErrorKind::BrokenPipe);
    assert!(NoWheel(ended).source().is_none());
    let system = Io(io::Error::from_raw_os_error(24));
    assert!(system.to_string().contains("descriptor") && system.source().is_some());
    assert_eq!(io::Error::from(system).raw_os_error(), Some(24));
}

#[test]
fn display_shows_counts_statuses_and_cancel_results() {
    in_checked_virtual_time(|clock| {
        let handle = local_timer().add(TICK, || {});
        let local = local_timer().add_local(TICK, || {});
        assert_eq!(format!("TimerHandle({handle})"), format!("{handle:?}"));
        assert_eq!(format!("LocalHandle({local})"), format!("{local:?}"));
        let turn = turn_after(clock, 1);
        assert_eq!(turn.to_string(), "fired 2, collected 0, live 0, relinked 0");
        local_timer().add(TICK, || {
            assert!(local_timer().turn().to_string().ends_with(", nested"));
        });
        assert_eq!(turn_after(clock, 1).fired, 1);
        let cancelled = local_timer().add(TICK, || {});
        let answers = [cancelled.cancel(), cancelled.cancel(), Cancel::Running];
        let shown = answers.map(|answer| format!("{answer:>9}")).concat();
        assert_eq!(shown, "cancelled    ended  running");
        let statuses = [TimerStatus::Pending, TimerStatus::Running, TimerStatus::Ended];
        let shown = statuses.map(|status| format!("{status:>9}")).concat();
        assert_eq!(shown, "  pending  running    ended");
        let shown = local_timer().counts().to_string();
        assert_eq!(shown, "added 4, live 0, fired 3, cancelled 1, handed back 0");
    });
}

#[test]
fn a_cloned_config_has_the_same_settings_and_hooks() {
    let (clock, reports) = (ManualClock::new(), Counter::default());
    let count = reports.callback();
    let config = Config::default().clock(&clock).limit(1).panic_hook(move |_| count());
    for config in [config.clone(), config.clone(), config] {
        let clock = clock.clone();
        on_a_thread(move || {
            config.install().expect("a new thread");
            local_timer().add(TICK, || panic!("as planned"));
            assert!(local_timer().try_add(TICK, || ()).is_err());
            turn_after(&clock, 1);
        });
    }
    assert_eq!(reports.get(), 3);
}
