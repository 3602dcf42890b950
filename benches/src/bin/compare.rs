//! Compares corewheel with other timers. See `--help`.

use std::error::Error;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::{env, fs};

use clap::{Parser, ValueEnum};
use corewheel_bench::alloc::CountingAllocator;
use corewheel_bench::measure::Sample;
use corewheel_bench::plan::{Job, Named, Peer, Scale, Workload};
use corewheel_bench::report::{self, Section};
use corewheel_bench::run::run;
use indicatif::{ProgressBar, ProgressStyle};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Measures corewheel and other timers, each run in a new process, and prints tables.
#[derive(Debug, Parser)]
struct Args {
    /// Only these peers
    #[arg(long, value_enum)]
    peer: Vec<Peer>,
    /// Only these workloads, each with its variants: `pause` includes `pause-all-due`
    #[arg(long, value_enum)]
    workload: Vec<Workload>,
    /// Only these numbers of live timers, tasks, keys, requests or connections
    #[arg(long)]
    n: Vec<usize>,
    /// Fewer and shorter runs, for a first look
    #[arg(long)]
    quick: bool,
    /// Runs too short to be meaningful, for tests
    #[arg(long, hide = true)]
    tiny: bool,
    /// Print one JSON object per figure instead of tables
    #[arg(long)]
    json: bool,
    /// Also draw times by number of timers, and the curve of `pause`, as SVG into this directory
    #[arg(long, value_name = "DIR")]
    plots: Option<PathBuf>,
    /// Write a page with all tables and a list of the peers to this file
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    figures: Option<PathBuf>,
    /// Does one run in this process, which another `compare` started
    #[arg(long, hide = true)]
    job: Option<String>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let args = Args::parse();
    if let Some(job) = &args.job {
        let job: Job = serde_json::from_str(job)?;
        let run = run(job.peer, job.workload).ok_or_else(|| format!("{job:?} is not supported"))?;
        for sample in run(job) {
            println!("{}", serde_json::to_string(&sample)?);
        }
        return Ok(());
    }
    let sections = run_jobs(&args)?;
    if let Some(plots) = &args.plots {
        fs::create_dir_all(plots)?;
        for section in &sections {
            report::draw(section, plots)?;
        }
    }
    if args.json {
        print!("{}", sections.iter().map(Section::json_lines).collect::<String>());
    } else if let Some(figures) = &args.figures {
        fs::write(figures, report::page(&sections, args.quick))?;
    } else {
        println!("{}\n{}\n", report::command_line(), report::machine_description());
        print!("{}", report::sections(&sections));
    }
    Ok(())
}

fn run_jobs(args: &Args) -> Result<Vec<Section>, Box<dyn Error>> {
    let scale = match (args.tiny, args.quick) {
        (true, _) => Scale::Tiny,
        (_, true) => Scale::Quick,
        _ => Scale::Full,
    };
    let (mut sections, mut jobs) = (Vec::new(), Vec::new());
    for &workload in Workload::value_variants() {
        if !is_chosen(workload, &args.workload) {
            continue;
        }
        let is_chosen = |peer: &&Peer| {
            (args.peer.is_empty() || args.peer.contains(peer)) && run(**peer, workload).is_some()
        };
        let peers: Vec<&Peer> = Peer::value_variants().iter().filter(is_chosen).collect();
        let sizes = workload.sizes(scale);
        let has_all_sizes = workload.sizes(Scale::Full).len() == 1 || args.n.is_empty();
        for &n in sizes.iter().filter(|n| has_all_sizes || args.n.contains(n)) {
            for _ in 0..workload.rounds(n, scale) {
                let job = |&&peer| (sections.len(), Job { peer, workload, n, scale });
                jobs.extend(peers.iter().map(job));
            }
        }
        sections.push(Section::new(workload));
    }
    let style = ProgressStyle::with_template("[{elapsed} of about {duration}] {bar:40} {msg}")?;
    let progress_bar = ProgressBar::new(jobs.len() as u64).with_style(style);
    for (section, job) in jobs {
        progress_bar.set_message(format!("{} {} {}", job.workload.name(), job.n, job.peer.name()));
        sections[section].add(job.peer, run_in_new_process(job)?);
        progress_bar.inc(1);
    }
    progress_bar.finish_and_clear();
    Ok(sections)
}

/// Returns whether the selection contains the workload, or the workload of which it is a variant.
fn is_chosen(workload: Workload, selection: &[Workload]) -> bool {
    let variant_of = |&it| workload == it || workload.name().starts_with(&(it.name() + "-"));
    selection.is_empty() || selection.iter().any(variant_of)
}

fn run_in_new_process(job: Job) -> Result<Vec<Sample>, Box<dyn Error>> {
    let mut command = Command::new(env::current_exe()?);
    command.arg("--job").arg(serde_json::to_string(&job)?).stderr(Stdio::inherit());
    let output = command.output()?;
    if !output.status.success() {
        return Err(format!("{job:?} failed").into());
    }
    let samples = serde_json::Deserializer::from_slice(&output.stdout).into_iter();
    Ok(samples.collect::<Result<_, _>>()?)
}
