//! What is printed, for people or as JSON. The verdict goes to the standard output, everything else to the other one.

use std::io::{self, Write};

use crate::args::Args;
use crate::verdict::{Lateness, Verdict};

/// Says what is about to happen, and which loops have no core to themselves.
pub(crate) fn print_start(args: &Args, pinned: &[Option<usize>]) {
    eprintln!(
        "{} connections, idle timeout {:?}, {} event loops, {:?}",
        args.connections,
        args.idle(),
        pinned.len(),
        args.run(),
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
    let Verdict { seen, accounts, .. } = verdict;
    let Lateness { p50, p99, p999, max, limit_p99 } = verdict.lateness_us;
    writeln!(
        out,
        "silent connections    {:>6}  closed by the server {}",
        seen.silent, seen.closed_idle
    )?;
    writeln!(
        out,
        "  late by             p50 {p50} us, p99 {p99} us, p99.9 {p999} us, max {max} us"
    )?;
    writeln!(
        out,
        "                      (limit: p99 {limit_p99} us, seen by the clients' clocks)"
    )?;
    writeln!(out, "closed too early      {:>6}", seen.closed_early)?;
    writeln!(out, "closed wrongly        {:>6}", seen.closed_wrongly)?;
    writeln!(out, "closed by the client  {:>6}", seen.closed_by_client)?;
    writeln!(
        out,
        "cancelled remotely    {:>6}  silent and still open {}",
        verdict.cancelled_remotely, seen.kept_open
    )?;
    writeln!(
        out,
        "open at the end       {:>6}  without all their echoes {}",
        seen.open_at_end, seen.unanswered
    )?;
    writeln!(
        out,
        "timers added          {:>6}  = {} live + {} fired + {} cancelled",
        accounts.added, accounts.live_at_end, accounts.fired, accounts.cancelled,
    )?;
    for failure in &verdict.failures {
        writeln!(out, "FAILURE: {failure}")?;
    }
    writeln!(out, "verdict               {}", if verdict.ok { "ok" } else { "FAILED" })
}
