//! The verdict of a check, and how it is printed.

use std::io::{self, Write};
use std::time::Duration;

use corewheel::Counts;
use serde::Serialize;

use super::exactness::Exactness;
use super::flood::{Flood, Latency};

/// How many wrong answers are told.
const WRONG_TOLD: usize = 20;

#[derive(Debug, Serialize)]
pub(crate) struct Verdict {
    pub(crate) ok: bool,
    /// Answers that were looked at.
    pub(crate) answers: usize,
    pub(crate) exactness: Exactness,
    pub(crate) flood: Flood,
    /// Timers that there have been, if the server is ours.
    pub(crate) timers: Timers,
    /// Requests that were carried out on another core than that of their connection.
    pub(crate) from_elsewhere: u64,
    /// Why it is not ok, in words.
    pub(crate) failures: Vec<String>,
}

/// What has become of all timers.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Timers {
    pub(crate) added: u64,
    pub(crate) fired: u64,
    pub(crate) cancelled: u64,
    pub(crate) live: u64,
}

impl Verdict {
    /// By how much a key may be late, and how long a GET may take while keys expire.
    pub(crate) fn reach(
        answers: usize,
        wrong: Vec<String>,
        exactness: Exactness,
        flood: Flood,
        (tolerance, late_limit): (Duration, Duration),
    ) -> Self {
        let (timers, from_elsewhere) = (Timers::default(), 0);
        let mut verdict = Self {
            ok: true,
            answers,
            exactness,
            flood,
            timers,
            from_elsewhere,
            failures: Vec::new(),
        };
        let count = wrong.len();
        verdict.complain(wrong.into_iter().take(WRONG_TOLD));
        verdict.complain((count > WRONG_TOLD).then(|| format!("{count} answers were wrong")));
        verdict.complain(exactness.failures(tolerance));
        let failures = verdict.flood.failures(late_limit);
        verdict.complain(failures);
        verdict
    }

    pub(crate) fn complain(&mut self, failures: impl IntoIterator<Item = String>) {
        self.failures.extend(failures);
        self.ok = self.failures.is_empty();
    }

    /// Takes in what has become of the timers of a server's cores.
    pub(crate) fn take_in(
        &mut self,
        from_elsewhere: u64,
        cores: usize,
        ends: Vec<Result<Counts, String>>,
    ) {
        self.from_elsewhere += from_elsewhere;
        let none = cores > 1 && from_elsewhere == 0;
        self.complain(none.then(|| String::from("no request was carried out on another core")));
        for (core, end) in ends.into_iter().enumerate() {
            match end {
                Ok(counts) => self.take_in_core(core, &counts),
                Err(end) => self.complain([format!("core {core} {end}")]),
            }
        }
    }

    fn take_in_core(&mut self, core: usize, counts: &Counts) {
        self.timers.added += counts.added;
        self.timers.fired += counts.fired;
        self.timers.cancelled += counts.cancelled;
        self.timers.live += counts.live;
        let adds_up =
            counts.added == counts.live + counts.fired + counts.cancelled + counts.handed_back;
        self.complain(
            (!adds_up).then(|| format!("core {core}: the timers added do not add up: {counts:?}")),
        );
        let panicked = counts.panicked;
        self.complain(
            (panicked > 0).then(|| format!("core {core}: {panicked} callbacks panicked")),
        );
    }

    /// Nobody may be reading any more; the exit status says it all the same.
    pub(crate) fn print(&self, json: bool) {
        let mut out = io::stdout().lock();
        let _ = if json { self.print_as_json(&mut out) } else { self.print_in_words(&mut out) };
    }

    fn print_as_json(&self, out: &mut impl Write) -> io::Result<()> {
        let line = serde_json::to_string(self)
            .expect("a verdict is numbers and strings under fixed names");
        writeln!(out, "{line}")
    }

    fn print_in_words(&self, out: &mut impl Write) -> io::Result<()> {
        let Self { answers, exactness, flood, timers, .. } = self;
        writeln!(out, "answers looked at     {answers:>8}")?;
        writeln!(
            out,
            "keys to the deadline  {:>8}  early {}, late {}",
            exactness.keys, exactness.early, exactness.late
        )?;
        writeln!(
            out,
            "set per second        {:>8.0}  with a deadline, in a pipeline",
            flood.set_per_second
        )?;
        writeln!(
            out,
            "expired in a second   {:>8}  at most {} behind",
            flood.expiring, flood.backlog_max
        )?;
        writeln!(
            out,
            "  gone after          mean {} ms, the last {} ms",
            flood.release_mean_ms, flood.last_gone_ms
        )?;
        for (when, Latency { count, p50, p99, p999, max }) in
            [("quiet", &flood.quiet_us), ("meanwhile", &flood.expiring_us)]
        {
            writeln!(
                out,
                "  GET, {when:<14} {count:>8}  p50 {p50} us, p99 {p99} us, p99.9 {p999} us, max {max} us"
            )?;
        }
        if timers.added > 0 {
            let Timers { added, fired, cancelled, live } = timers;
            writeln!(
                out,
                "timers added          {added:>8}  = {live} live + {fired} fired + {cancelled} cancelled"
            )?;
            writeln!(out, "done on another core  {:>8}", self.from_elsewhere)?;
        }
        for failure in &self.failures {
            writeln!(out, "FAILURE: {failure}")?;
        }
        writeln!(out, "verdict               {}", if self.ok { "ok" } else { "FAILED" })
    }
}

impl Exactness {
    fn failures(&self, tolerance: Duration) -> Vec<String> {
        let Self { early, late, latest_us, .. } = *self;
        let is_late = Duration::from_micros(latest_us) > tolerance;
        let early = (early > 0).then(|| format!("{early} keys went before their deadline"));
        let late = is_late
            .then(|| format!("{late} keys were there after their deadline, up to {latest_us} us"));
        early.into_iter().chain(late).collect()
    }
}

impl Flood {
    fn failures(&self, limit: Duration) -> Vec<String> {
        let (p99, left) = (self.expiring_us.p99, self.left);
        // What the machine held a client up without any of that is not the server's fault.
        let quiet = self.quiet_us.p99;
        let slow = (Duration::from_micros(p99.saturating_sub(quiet)) > limit).then(|| {
            format!("while keys expired, GETs had a p99 of {p99} us, {quiet} us before: over the limit of {limit:?}")
        });
        let left = (left > 0).then(|| format!("{left} keys never went"));
        let void = self
            .is_void
            .then(|| String::from("keys expired while others were still being set: void"));
        [slow, left, void].into_iter().flatten().collect()
    }
}
