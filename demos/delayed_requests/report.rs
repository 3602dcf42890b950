//! What is printed, for people or as JSON. The verdict goes to the standard output, everything else to the other one.

use std::io::{self, Write};

use crate::args::Args;
use crate::plan::Plan;
use crate::verdict::{Lateness, Verdict};

/// Says what is about to happen, and which loops have no core to themselves.
pub(crate) fn print_start(args: &Args, plan: &Plan, pinned: &[Option<usize>]) {
    eprintln!(
        "{} partitions and {} groups with {} connections, timeout {:?}, {} event loops, {:?}",
        plan.partitions,
        plan.groups,
        plan.connections(),
        plan.timeout,
        pinned.len(),
        args.duration(),
    );
    for (index, _) in pinned.iter().enumerate().filter(|(_, core)| core.is_none()) {
        eprintln!(
            "event loop {index} could not be pinned to a core; it runs where the system puts it"
        );
    }
}

/// Nobody may be reading any more; the exit status says it all the same.
pub(crate) fn print(verdict: &Verdict, json: bool) {
    let mut out = io::stdout().lock();
    let _ = if json { print_as_json(&mut out, verdict) } else { print_in_words(&mut out, verdict) };
}

fn print_as_json(out: &mut impl Write, verdict: &Verdict) -> io::Result<()> {
    let line =
        serde_json::to_string(verdict).expect("a verdict is numbers and strings under fixed names");
    writeln!(out, "{line}")
}

fn print_in_words(out: &mut impl Write, verdict: &Verdict) -> io::Result<()> {
    let Verdict { answers, server, .. } = verdict;
    let Lateness { p50, p99, p999, max, limit_p99, held_up } = verdict.lateness_us;
    let kinds = [
        ("produce", answers.produces),
        ("fetch", answers.fetches),
        ("follow", answers.follows),
        ("join", answers.joins),
    ];
    writeln!(out, "requests            {:>8}", answers.requests)?;
    for (kind, [requests, timed_out]) in kinds {
        writeln!(out, "  {kind:<18}{requests:>8}  timed out {timed_out}")?;
    }
    writeln!(
        out,
        "completed           {:>8}  though somebody stalled {}",
        answers.completed_by_condition, answers.wrongly_completed
    )?;
    writeln!(
        out,
        "timed out           {:>8}  expected {}, contested {}, though nobody stalled {}, early {}",
        answers.timed_out,
        answers.expected_timed_out,
        answers.contested_timed_out,
        answers.wrongly_timed_out,
        answers.early,
    )?;
    writeln!(
        out,
        "  late by             p50 {p50} us, p99 {p99} us, p99.9 {p999} us, max {max} us"
    )?;
    writeln!(
        out,
        "                      (limit: p99 {limit_p99} us, and {held_up} us that the machine held up a thread)"
    )?;
    writeln!(
        out,
        "contested           {:>8}  the condition came about when they timed out",
        answers.contested
    )?;
    writeln!(
        out,
        "both                {:>8}  twice {}, unanswered {}",
        answers.both, answers.answered_twice, answers.unanswered
    )?;
    writeln!(
        out,
        "the server counts   {:>8}  = {} completed + {} timed out + {} waiting",
        server.totals.added, server.totals.by_condition, server.totals.expired, server.totals.live,
    )?;
    writeln!(
        out,
        "across cores        {:>8}  watches left {}",
        server.totals.elsewhere, server.totals.watches
    )?;
    for failure in &verdict.failures {
        writeln!(out, "FAILURE: {failure}")?;
    }
    writeln!(out, "verdict             {:>8}", if verdict.ok { "ok" } else { "FAILED" })
}
