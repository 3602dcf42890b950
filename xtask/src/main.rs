//! The project's commands, run as `cargo xtask COMMAND`.
//!
//! Most commands run a group of lanes. A lane is one shell command in `xtask/lanes.txt`. Each
//! command is printed before it runs, so that a user can repeat it by hand.

mod breakage;
mod cost;
mod lanes;
mod process;
mod run;

use std::{env, path::Path, process::ExitCode};

use anyhow::anyhow;

const USAGE: &str = "\
usage: cargo xtask COMMAND
  test [--all]        the lanes that every change needs; with --all, every lane but the campaigns
  test --only WORD    the lanes of `test --all` whose name contains WORD
  break [--only WORD] weakens orderings and plants faults, one at a time; a test must notice each
                      --only: mutants with WORD in their name or file
  cost [--save [--all]]
                      counts instructions per operation, beside the best counts in cost/best.txt
                      --save: stores counts below the best; --all: stores all counts
and these groups of xtask/lanes.txt: ";

fn main() -> ExitCode {
    let words: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let outcome = match words[..] {
        ["test"] => run::run(|lane| lane.group == "test"),
        ["test", "--all"] => run::run(lanes::Lane::is_test),
        ["test", "--only", word] => run::run(|lane| lane.is_test() && lane.name.contains(word)),
        ["break", ref options @ ..] => breakage::run(options),
        ["cost", ref options @ ..] => cost::run(options),
        [group] if lanes::command_groups().contains(&group) => run::run(|lane| lane.group == group),
        _ => Err(anyhow!("{USAGE}{}", lanes::command_groups().join(", "))),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is below the root")
}
