//! Measures corewheel beside its peers. See `--help`.

use std::{
    env, fs,
    io::{self, BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
};

use clap::{Parser, ValueEnum};
use corewheel_bench::{
    alloc::Counting,
    measure::Sample,
    plan::{Job, Peer, Workload},
    report::{
        Machine, Results, draw, draw_schemes, json_lines, scheme_json_lines, scheme_tables, tables,
    },
    run::run,
    schemes,
};
use indicatif::{ProgressBar, ProgressStyle};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Measures corewheel beside its peers: every workload for every peer, interleaved, each run in a process of its own.
/// Tables come on standard output.
#[derive(Debug, Parser)]
struct Args {
    /// Only these peers
    #[arg(long, value_enum)]
    peer: Vec<Peer>,
    /// Only these workloads
    #[arg(long, value_enum)]
    workload: Vec<Workload>,
    /// Only these numbers of live timers (or of what a workload counts instead)
    #[arg(long)]
    n: Vec<usize>,
    /// Less of everything, for a first look
    #[arg(long)]
    quick: bool,
    /// One JSON object per figure instead of the tables
    #[arg(long)]
    json: bool,
    /// Also draw the figures as SVG into this directory
    #[arg(long, value_name = "DIR")]
    plots: Option<PathBuf>,
    /// Instead: the timer schemes of the literature, what each of their routines costs
    #[arg(long, conflicts_with_all = ["peer", "workload", "n"])]
    schemes: bool,
    /// Does one run: how this program starts itself
    #[arg(long, hide = true)]
    job: Option<String>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let result = match &args.job {
        Some(job) => run_job(job),
        None if args.schemes => measure_schemes(&args),
        None => compare(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("compare: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run_job(job: &str) -> io::Result<()> {
    for sample in run(serde_json::from_str(job)?) {
        println!("{}", serde_json::to_string(&sample)?);
    }
    Ok(())
}

fn compare(args: &Args) -> io::Result<()> {
    let mut results = Results::default();
    let jobs = plan(args, &mut results);
    let bar = progress_bar(jobs.len() as u64);
    for job in jobs {
        bar.set_message(format!("{} {} {}", job.pass.name(), job.n, job.peer.name()));
        results.add(job.peer, job.pass, start(job)?);
        bar.inc(1);
    }
    bar.finish_and_clear();
    show(args, || json_lines(&results), || tables(&results));
    draw_into(args, |directory| draw(&results, directory))
}

/// In this process, where the schemes take turns.
fn measure_schemes(args: &Args) -> io::Result<()> {
    let bar = progress_bar(schemes::steps(args.quick));
    let next = |what: &str| {
        bar.set_message(what.to_owned());
        bar.inc(1);
    };
    let rows = schemes::measure(&mut { next }, args.quick);
    bar.finish_and_clear();
    show(args, || scheme_json_lines(&rows), || scheme_tables(&rows));
    draw_into(args, |directory| draw_schemes(&rows, directory))
}

fn progress_bar(steps: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("[{elapsed} of about {duration}] {bar:40} {msg}");
    ProgressBar::new(steps).with_style(style.expect("a valid template"))
}

fn show(args: &Args, json_lines: impl FnOnce() -> String, tables: impl FnOnce() -> String) {
    if args.json {
        print!("{}", json_lines());
    } else {
        println!("{}\n{}", Machine::here(), tables());
    }
}

fn draw_into(args: &Args, draw: impl FnOnce(&Path) -> io::Result<()>) -> io::Result<()> {
    let Some(directory) = &args.plots else { return Ok(()) };
    fs::create_dir_all(directory)?;
    draw(directory)
}

/// All runs: within each pass, size and round the peers come one after the other, so that what the machine does beside
/// hits all of them.
fn plan(args: &Args, results: &mut Results) -> Vec<Job> {
    let (peers, workloads) = (chosen(&args.peer), chosen(&args.workload));
    let mut jobs = Vec::new();
    for &pass in workloads.iter().flat_map(|workload| workload.passes()) {
        let peers: Vec<Peer> = peers.iter().copied().filter(|peer| peer.is_for(pass)).collect();
        for &peer in &peers {
            if let Some(reason) = peer.refusal(pass) {
                results.refuse(peer, pass, reason);
            }
        }
        let part: Vec<Peer> =
            peers.iter().copied().filter(|peer| peer.refusal(pass).is_none()).collect();
        for &n in pass
            .sizes(args.quick)
            .iter()
            .filter(|&n| pass.is_profile() || args.n.is_empty() || args.n.contains(n))
        {
            for _ in 0..pass.rounds(n, args.quick) {
                jobs.extend(part.iter().map(|&peer| Job { peer, pass, n, quick: args.quick }));
            }
        }
    }
    jobs
}

/// Those that were asked for, or all.
fn chosen<T: ValueEnum + Copy>(asked: &[T]) -> Vec<T> {
    if asked.is_empty() { T::value_variants().to_vec() } else { asked.to_vec() }
}

/// Starts this program once more for one run.
fn start(job: Job) -> io::Result<Vec<Sample>> {
    let mut command = Command::new(env::current_exe()?);
    command.arg("--job").arg(serde_json::to_string(&job)?).stdout(Stdio::piped());
    let mut child = command.spawn()?;
    let output = BufReader::new(child.stdout.take().expect("piped"));
    let samples = output.lines().map(|line| Ok(serde_json::from_str(&line?)?)).collect();
    if !child.wait()?.success() {
        return Err(io::Error::other(format!("{job:?} failed")));
    }
    samples
}
