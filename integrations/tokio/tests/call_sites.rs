//! The call sites of timers, which the feature `origins` of corewheel records.
#![cfg(any(target_os = "linux", target_os = "android"))]

use std::{
    future::{pending, poll_fn},
    pin::Pin,
    task::{Context, Poll},
};

use corewheel::local_timer;
use corewheel_tokio::time::{self, Duration, Instant};

const HOUR: Duration = Duration::from_secs(3_600);

#[test]
fn a_timer_records_where_its_future_was_created() {
    let lines = corewheel_tokio::run(async {
        let (at, never) = (Instant::now() + HOUR, pending::<()>);
        let first = line!() + 1;
        let mut sleep = time::sleep(HOUR);
        let mut other_sleep = time::sleep_until(at);
        let mut timeout = time::timeout(HOUR, never());
        let mut other_timeout = time::timeout_at(at, never());
        let mut interval = time::interval(HOUR);
        let mut other_interval = time::interval_at(at, HOUR);
        interval.tick().await; // at once
        let poll_all = |cx: &mut Context<'_>| {
            let sleeps_ready =
                [&mut sleep, &mut other_sleep].map(|it| Pin::new(it).poll(cx).is_ready());
            let timeouts_ready =
                [&mut timeout, &mut other_timeout].map(|it| Pin::new(it).poll(cx).is_ready());
            let ticks_ready =
                [&mut interval, &mut other_interval].map(|it| it.poll_tick(cx).is_ready());
            Poll::Ready([sleeps_ready, timeouts_ready, ticks_ready])
        };
        assert_eq!(poll_fn(poll_all).await, [[false; 2]; 3]);
        let report = local_timer().live_timers_by_call_site();
        assert!(report.by_live_count().iter().all(|it| it.location.file() == file!()), "{report}");
        let mut lines: Vec<_> =
            report.by_live_count().iter().map(|it| it.location.line() - first).collect();
        lines.sort_unstable();
        lines
    });
    assert_eq!(lines.expect("a runtime"), [0, 1, 2, 3, 4, 5]);
}
