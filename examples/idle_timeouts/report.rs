//! What is printed, for people or as JSON. The verdict goes to the standard output, everything else to the other one.

use crate::args::Args;
use crate::verdict::{Lateness, Verdict};

/// Says what is about to happen, and which loops have no core to themselves.
pub(crate) fn print_start(args: &Args, pinned: &[Option<usize>]) {
    eprintln!(
        "{} connections, idle timeout {:?}, {} event loops, {:?} to go",
        args.connections,
        args.idle(),
        pinned.len(),
        args.run(),
    );
    for (index, _) in pinned.iter().enumerate().filter(|(_, core)| core.is_none()) {
        eprintln!("event loop {index} could not be pinned to a core; it runs where the system puts it");
    }
}

pub(crate) fn print(verdict: &Verdict, json: bool) {
    if json {
        let line = serde_json::to_string(verdict).expect("a verdict is numbers and strings under fixed names");
        println!("{line}");
    } else {
        print_in_words(verdict);
    }
}

fn print_in_words(verdict: &Verdict) {
    let Verdict { seen, accounts, .. } = verdict;
    let Lateness { p50, p99, p999, max, limit_p99 } = verdict.lateness_us;
    println!("silent connections    {:>6}  closed by the server {}", seen.silent, seen.closed_idle);
    println!("  late by             p50 {p50} us, p99 {p99} us, p99.9 {p999} us, max {max} us");
    println!("                      (limit: p99 {limit_p99} us, seen by the clients' clocks)");
    println!("closed too early      {:>6}", seen.closed_early);
    println!("closed wrongly        {:>6}", seen.closed_wrongly);
    println!("closed by the client  {:>6}", seen.closed_by_client);
    println!("cancelled remotely    {:>6}  silent and still open {}", verdict.cancelled_remotely, seen.kept_open);
    println!("open at the end       {:>6}  without all their echoes {}", seen.open_at_end, seen.unanswered);
    println!(
        "timers added          {:>6}  = {} live + {} fired + {} cancelled + {} handed back",
        accounts.added, accounts.live_at_end, accounts.fired, accounts.cancelled, accounts.handed_back,
    );
    for failure in &verdict.failures {
        println!("FAILURE: {failure}");
    }
    println!("verdict               {}", if verdict.ok { "ok" } else { "FAILED" });
}
