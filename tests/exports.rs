//! Exports to the `metrics` facade, and events of `tracing`.

mod common;

use std::{
    collections::HashMap,
    io,
    ops::Range,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    task::{Context, Waker},
    thread,
    time::Duration,
};

use common::{TICK, cancel_remotely, named_shard, turn_and_expire};
use corewheel::{
    Config, ManualClock, PanicPlace, PanicReport, Shard,
    future::{Sleep, Timers},
    local_timer,
    metrics::{Exporter, Watchdog},
};
use metrics::{
    Counter, Gauge, Histogram, Key, KeyName, Label, Metadata, Recorder, SharedString, Unit,
};
use metrics_util::{
    CompositeKey,
    debugging::{DebugValue, DebuggingRecorder, Snapshotter},
};
use tracing_subscriber::fmt::MakeWriter;

fn turn(shard: &mut Shard<u32>) -> usize {
    let fired = turn_and_expire(shard).len();
    // Publishes the counts.
    let _ = shard.time_until_next();
    fired
}

fn with_recorder(test: impl FnOnce(&Snapshotter)) {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    metrics::with_local_recorder(&recorder, || test(&snapshotter));
}

/// The exported values of a shard, by the name of the metric and its label `by`, if any.
type Exported = HashMap<String, DebugValue>;

fn gauge(value: f64) -> DebugValue {
    DebugValue::Gauge(value.into())
}

/// Asserts that `number` durations were exported, each in the range `expected`, in seconds.
fn assert_durations(reported: &Exported, name: &str, number: usize, expected: Range<f64>) {
    let DebugValue::Histogram(reported) = &reported[name] else { panic!("{name}: {reported:?}") };
    assert_eq!(reported.len(), number);
    assert!(reported.iter().all(|duration| expected.contains(&duration.0)), "{reported:?}");
}

fn assert_counters<const N: usize>(reported: &Exported, expected: [(&str, u64); N]) {
    for (name, count) in expected {
        assert_eq!(reported.get(name), Some(&DebugValue::Counter(count)), "{name}");
    }
}

/// Returns a shard's gauges, and the counts and durations exported since the last call.
fn reported(snapshotter: &Snapshotter, shard: &str) -> Exported {
    let name_of = |key: &CompositeKey| {
        let label = |name: &str| key.key().labels().find(|it| it.key() == name).map(Label::value);
        let by = label("by").map(|by| format!(" {by}")).unwrap_or_default();
        (label("name") == Some(shard)).then(|| format!("{}{by}", key.key().name()))
    };
    let reported = snapshotter.snapshot().into_vec().into_iter();
    reported.filter_map(|(key, _, _, value)| Some((name_of(&key)?, value))).collect()
}

#[test]
fn an_export_reports_changes_since_the_last_one() {
    let (mut shard, clock) = named_shard("exported");
    with_recorder(|snapshotter| {
        let mut exporter = Exporter::new();
        let timers: Vec<_> = (0..6).map(|timer| shard.add(TICK * 10, timer)).collect();
        assert!(shard.cancel(timers[0]).is_some() && shard.cancel(timers[5]).is_some());
        assert!(shard.reset(timers[1], TICK * 50));
        cancel_remotely(timers[2]);
        clock.advance(TICK * 12);
        assert_eq!(turn(&mut shard), 2);
        exporter.export();
        let first = reported(snapshotter, "exported");
        assert_counters(
            &first,
            [
                ("corewheel_added_total", 6),
                ("corewheel_fired_total", 2),
                ("corewheel_cancelled_total own", 2),
                ("corewheel_cancelled_total other", 1),
                ("corewheel_resets_total own", 1),
                ("corewheel_resets_total other", 0),
                ("corewheel_turns_total", 1),
                ("corewheel_runs_total", 2),
            ],
        );
        assert_eq!(first["corewheel_live"], gauge(1.0));
        assert_durations(&first, "corewheel_lateness_seconds loop", 2, 0.002..0.002_5);

        shard.add(TICK, 6);
        clock.advance(TICK);
        assert_eq!(turn(&mut shard), 1);
        exporter.export();
        let second = reported(snapshotter, "exported");
        assert_counters(&second, [("corewheel_added_total", 1)]);
        assert_durations(&second, "corewheel_lateness_seconds loop", 1, 0.0..0.001);
    });
}

type Log = &'static Mutex<Vec<u8>>;

fn written(log: Log) -> String {
    String::from_utf8(log.lock().unwrap().clone()).expect("text")
}

/// Returns the text that a subscriber writes during `test`.
fn log_of(test: impl FnOnce(Log)) -> String {
    let log: Log = Box::leak(Box::default());
    let writer = || log.make_writer();
    let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(writer).finish();
    tracing::subscriber::with_default(subscriber, || test(log));
    written(log)
}

#[test]
fn a_caught_panic_emits_a_tracing_event() {
    let text = log_of(|_| {
        local_timer().add(Duration::ZERO, || panic!("a callback that panics, as it should here"));
        thread::sleep(TICK * 2);
        assert_eq!(local_timer().turn().fired, 1);
    });
    let words = ["ERROR", "a panic was caught", "Callback", "as it should here"];
    let is_logged = text.lines().any(|line| words.iter().all(|word| line.contains(word)));
    assert!(is_logged, "{text}");
}

#[test]
fn the_next_add_reports_an_overdue_timer_without_a_driver_once() {
    let assert_one_is_overdue = |text: &str, word: &str| {
        assert_eq!(text.matches("a timer is overdue and no loop drives it").count(), 1, "{text}");
        assert!(text.contains("ERROR") && text.contains(word), "{text}");
    };
    let text = log_of(|log| {
        let clock = ManualClock::new();
        Config::new().clock(&clock).install().expect("a new thread");
        local_timer().add(TICK, || ());
        local_timer().add(Duration::ZERO, || ());
        assert_eq!(written(log), "", "none is overdue yet");
        clock.advance(TICK * 1_100);
        (0..3).for_each(|_| _ = local_timer().add(TICK * 1_000, || ()));
    });
    assert_one_is_overdue(&text, "overdue=");
    let text = log_of(|log| {
        let clock = ManualClock::new();
        let config = || Config::new().clock(&clock).name("no driver");
        let (timers, _driver) = Timers::per_worker_with(1, |_| config()).expect("valid");
        let poll = |sleep: &mut Sleep<_>| {
            let polled = Pin::new(sleep).poll(&mut Context::from_waker(Waker::noop()));
            assert!(polled.is_pending());
        };
        let mut first = timers.sleep(TICK);
        poll(&mut first);
        clock.advance(TICK * 1_100);
        assert_eq!(written(log), "", "no add has checked");
        (0..3).for_each(|_| poll(&mut timers.sleep(TICK)));
    });
    assert_one_is_overdue(&text, "no driver");
    assert!(text.contains("run the `TimersDriver`"), "{text}");
}

#[test]
fn a_timer_on_the_own_wheel_of_a_timers_driver_is_reported_at_once() {
    let text = log_of(|_| {
        let (timers, driver) = Timers::per_worker_with(1, |_| Config::new()).expect("valid");
        let shard = timers.shards()[0].clone();
        shard.run(move || {
            local_timer().add(TICK * 1_000, || ());
            drop(timers); // ends `run`
        });
        driver.run();
    });
    assert_eq!(
        text.matches("a thread that runs a `TimersDriver` has a timer").count(),
        1,
        "{text}"
    );
    assert!(text.contains("ERROR") && text.contains("`ShardRef`"), "{text}");
}

/// A subscriber is user code: it may call the library (P5), and its panic is contained (P6).
#[test]
fn a_subscriber_may_use_the_wheel_and_panic() {
    let writer = || -> io::Sink {
        local_timer().add(TICK * 1_000, || ());
        panic!("a subscriber that panics, as it should here");
    };
    let subscriber = tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE);
    let subscriber = subscriber.with_writer(writer).finish();
    tracing::subscriber::with_default(subscriber, || {
        let clock = ManualClock::new();
        let (sender, reported) = mpsc::channel();
        let report = move |report: &PanicReport<'_>| sender.send(report.place()).expect("received");
        Config::new().clock(&clock).panic_hook(report).install().expect("a fresh thread");
        local_timer().add(TICK, || panic!("a callback that panics, as it should here"));
        local_timer().add(TICK, || ());
        clock.advance(TICK * 5);
        assert_eq!(local_timer().turn().fired, 2, "the rest of the turn runs");
        assert!(reported.try_iter().eq([PanicPlace::Callback]), "the hook is called");
        // The clock goes back, and another shard starts and ends.
        clock.set(TICK * 3);
        local_timer().turn();
        drop(Shard::<u32>::new());
        let counts = local_timer().counts();
        assert_eq!((counts.live, counts.panicked, counts.clock_regressions), (1, 1, 1));
    });
}

#[test]
fn an_export_reports_callback_durations() {
    with_recorder(|snapshotter| {
        let clock = ManualClock::new();
        let config = Config::new().clock(&clock).name("timed").sample_callbacks(1);
        config.install().expect("a fresh thread");
        for _ in 0..2 {
            let slow = clock.clone();
            local_timer().add(TICK, move || slow.advance(TICK * 3));
        }
        clock.advance(TICK);
        assert_eq!(local_timer().turn().fired, 2);
        Exporter::new().export();
        let reported = reported(snapshotter, "timed");
        assert_durations(&reported, "corewheel_callback_seconds", 2, 0.003..0.003_75);
    });
}

/// A new shard may reuse the number and the name of an ended one.
#[test]
fn a_successor_of_the_same_name_is_counted_from_zero() {
    with_recorder(|snapshotter| {
        let mut exporter = Exporter::new();
        for timers in [3, 5] {
            let (mut shard, clock) = named_shard("a name of two");
            for _ in 0..timers {
                shard.add(TICK, 1);
                clock.advance(TICK);
                assert_eq!(turn(&mut shard), 1);
            }
            exporter.export();
            let reported = reported(snapshotter, "a name of two");
            assert_counters(&reported, [("corewheel_fired_total", timers)]);
        }
    });
}

#[test]
fn an_ended_shard_exports_its_last_counts_and_zero_gauges() {
    with_recorder(|snapshotter| {
        let mut exporter = Exporter::default();
        let (mut ends, _clock) = named_shard("ends");
        (0..3).for_each(|timer| _ = ends.add(TICK, timer));
        let _ = ends.time_until_next();
        exporter.export();
        assert_eq!(reported(snapshotter, "ends")["corewheel_live"], gauge(3.0));
        drop(ends.drain());
        exporter.export();
        let last = reported(snapshotter, "ends");
        assert_counters(&last, [("corewheel_handed_back_total", 3)]);
        assert_eq!(last["corewheel_live"], gauge(0.0));
        exporter.export();
        let after = reported(snapshotter, "ends").remove("corewheel_handed_back_total");
        assert!(!matches!(after, Some(DebugValue::Counter(1..))), "{after:?}");
        drop(ends);

        // A shard that is dropped with live timers.
        let (mut dropped, clock) = named_shard("dropped");
        (0..3).for_each(|timer| _ = dropped.add(TICK, timer));
        dropped.turn();
        assert!(dropped.next_expired().is_none());
        clock.advance(TICK * 7);
        let _ = dropped.time_until_next();
        exporter.export();
        let before = reported(snapshotter, "dropped");
        let gauges = ["live", "longest_turn_seconds", "overdue_seconds"];
        let gauges = gauges.map(|name| format!("corewheel_{name}"));
        assert!(gauges.iter().all(|name| before[name] != gauge(0.0)), "{before:?}");
        assert_eq!(before["corewheel_overdue_seconds"], gauge(0.006));
        drop(dropped);
        exporter.export();
        let after = reported(snapshotter, "dropped");
        assert!(gauges.iter().all(|name| after[name] == gauge(0.0)), "{after:?}");
    });
}

struct PanicsOnce(DebuggingRecorder, AtomicBool);

impl Recorder for PanicsOnce {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, metadata: &Metadata<'_>) -> Counter {
        let is_first = !self.1.swap(true, Ordering::Relaxed);
        assert!(!is_first, "a recorder that panics, as it should here");
        self.0.register_counter(key, metadata)
    }

    fn register_gauge(&self, key: &Key, metadata: &Metadata<'_>) -> Gauge {
        self.0.register_gauge(key, metadata)
    }

    fn register_histogram(&self, key: &Key, metadata: &Metadata<'_>) -> Histogram {
        self.0.register_histogram(key, metadata)
    }
}

#[test]
fn the_gauges_of_ended_shards_become_zero_despite_a_panicking_recorder() {
    let mut exporter = Exporter::new();
    let names = ["first to end", "second to end"];
    let shards = names.map(|name| {
        let (mut shard, clock) = named_shard(name);
        shard.add(TICK, 1);
        let _ = shard.time_until_next();
        (shard, clock)
    });
    let healthy_recorder = DebuggingRecorder::new();
    metrics::with_local_recorder(&healthy_recorder, || exporter.export());
    drop(shards);
    let recorder = PanicsOnce(DebuggingRecorder::new(), AtomicBool::new(false));
    let snapshotter = recorder.0.snapshotter();
    metrics::with_local_recorder(&recorder, || {
        assert!(catch_unwind(AssertUnwindSafe(|| exporter.export())).is_err());
        exporter.export();
    });
    for name in names {
        assert_eq!(reported(&snapshotter, name)["corewheel_live"], gauge(0.0), "{name}");
    }
}

#[test]
fn a_watchdog_emits_stall_events_despite_a_panicking_subscriber() {
    let log: Log = Box::leak(Box::default());
    let has_panicked = AtomicBool::new(false);
    let writer = move || {
        let is_first = !has_panicked.swap(true, Ordering::Relaxed);
        assert!(!is_first, "a subscriber that panics, as it should here");
        log.make_writer()
    };
    let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(writer).finish();
    // Global, because the watchdog runs on another thread.
    tracing::subscriber::set_global_default(subscriber).expect("none is set yet");
    let (sender, reported) = mpsc::channel();
    let watchdog = Watchdog::start(TICK * 10, move |stall| {
        if stall.name.starts_with("stands still") {
            let _ = sender.send(());
        }
    });
    for name in ["stands still", "stands still as well"] {
        let (mut shard, clock) = named_shard(name);
        shard.add(TICK, 1);
        assert_eq!(shard.time_until_next(), Some(TICK));
        clock.advance(TICK * 100);
        reported.recv_timeout(Duration::from_secs(20)).expect("the stall is reported");
    }
    drop(watchdog);
    let text = written(log);
    assert!(["WARN", "a loop does not turn", "99ms"].iter().all(|it| text.contains(it)), "{text}");
}
