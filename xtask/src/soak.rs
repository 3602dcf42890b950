//! The main job for a long time: the example `idle_timeouts` at full load, while its memory is watched. Fails when the example's
//! verdict does, when its memory grows after the warm-up, or when its timers fire later in the second half than in the first.

mod judge;

use std::{
    fs,
    process::{Child, Stdio},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

use self::judge::{Late, Sample};
use crate::{
    lane::Lane,
    run::{self, Failure},
};

const EXAMPLE: &str = "idle_timeouts";

/// How long, and how much.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// How long the example runs.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=1_440))]
    minutes: u64,
    /// How many connections: the default is what 20 000 open files allow.
    #[arg(long, default_value_t = 9_000)]
    connections: u32,
    /// After how many milliseconds of silence a connection is closed; it sends three packets in that time. The default keeps two
    /// cores a third busy, the load included; with half of it a pause of the machine makes the load late, and the run void.
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(200..=60_000))]
    idle_ms: u64,
}

/// The example's own limit is for a machine with time to spare. Here the load and the server wait for the same cores.
const LATE_LIMIT_MS: u64 = 100;

/// How often memory is looked at in a run.
const LOOKS: u32 = 60;

/// See the module.
pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let seconds = options.minutes * 60;
    run::all(&[Lane::new("build", "cargo build --release --locked --example").and(EXAMPLE)])?;
    let lane = Lane::new("soak", "cargo run --quiet --release --locked --example")
        .and(EXAMPLE)
        .and(&format!("-- --json --seconds {seconds} --connections {}", options.connections))
        .and(&format!("--idle-ms {} --late-limit-ms {LATE_LIMIT_MS}", options.idle_ms));
    println!("    {lane}");
    let start = Instant::now();
    let mut child = lane
        .process()
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| Failure(format!("the example cannot be started: {error}")))?;
    let samples = watch(&mut child, start, Duration::from_secs(seconds));
    let output = child
        .wait_with_output()
        .map_err(|error| Failure(format!("the example is lost: {error}")))?;
    let said = String::from_utf8_lossy(&output.stdout);
    let verdict: Value = serde_json::from_str(said.trim()).map_err(|error| {
        Failure(format!("the example gave no verdict ({}): {error}", output.status))
    })?;
    let late = Late::all(&verdict);
    judge::print(&samples, &late);
    judge::verdict(&verdict, &samples, &late)
}

/// Looks at the example's memory now and then until it ends. (`cargo run` becomes the example.)
fn watch(child: &mut Child, start: Instant, run: Duration) -> Vec<Sample> {
    let mut samples = Vec::new();
    while child.try_wait().is_ok_and(|ended| ended.is_none()) {
        if let Some(kib) = resident_kib(child.id()) {
            samples.push(Sample { share: start.elapsed().as_secs_f64() / run.as_secs_f64(), kib });
        }
        thread::sleep(run / LOOKS);
    }
    samples
}

/// What a process has in memory, if it is the example already.
fn resident_kib(process: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    if field("Name:")? != EXAMPLE {
        return None;
    }
    field("VmRSS:")?.split_whitespace().next()?.parse().ok()
}
