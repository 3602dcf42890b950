//! The project's commands, run as `cargo xtask <command>`.
//!
//! A command is a list of lanes ([`lanes`]), a lane is one ordinary shell command. The runner ([`run`]) prints each
//! before it runs it, so that anyone can repeat a single lane by hand. What a command needs to be installed is asked
//! for before its first lane ([`tools`]).

mod breakage;
mod coverage;
mod fuzz;
mod lane;
mod lanes;
mod licences;
mod mutants;
mod redis;
mod run;
mod simulate;
mod soak;
mod stop;
mod tools;

use std::process::ExitCode;

use clap::Parser;

/// The project's commands.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
enum Command {
    /// Run every check: format, clippy, docs, tests, examples, loom models, benches.
    Test,
    /// Explore the loom models and print how many interleavings each one saw.
    Loom {
        /// Explore without a bound on preemptions. Each model says whether it has come to its end.
        #[arg(long)]
        exhaustive: bool,
        /// With `--exhaustive`: for how many minutes each model is explored at most.
        #[arg(long, default_value_t = 10, requires = "exhaustive", value_parser = clap::value_parser!(u64).range(1..=1_440))]
        minutes: u64,
    },
    /// Run whole programs of threads in random interleavings, drawn from many seeds by shuttle.
    Shuttle,
    /// Simulate many cores in virtual time, with every fault, and print what was done.
    Simulate(simulate::Options),
    /// Break the library in every way we know, one at a time, and check that a test notices.
    Break(breakage::Options),
    /// Run the unit tests and short races under Miri: in many schedules, with 32 bits, and big-endian. Takes nightly Rust.
    Miri,
    /// Run the tests that have threads under `AddressSanitizer`, on nightly Rust.
    Asan,
    /// Run the tests that have threads under `ThreadSanitizer`, on nightly Rust.
    Tsan,
    /// Run the fuzz targets, each for a time, on nightly Rust; cargo-fuzz is installed where it is missing.
    Fuzz(fuzz::Options),
    /// Measure which lines the tests reach; cargo-llvm-cov is installed where it is missing.
    Coverage,
    /// Change the library in small ways, thousands of them, and check that the tests notice; by cargo-mutants, which is installed
    /// where it is missing.
    Mutants(mutants::Options),
    /// Check that the library builds with the oldest Rust that it promises to; rustup gets it where it is missing.
    Msrv,
    /// Check that every licence of what is built is a permissive one.
    Licences(licences::Options),
    /// Make the package as it would be published, and run its tests from what is in it.
    Package,
    /// Run the example `idle_timeouts` at full load for an hour and watch its memory and lateness.
    Soak(soak::Options),
    /// Test the example `ttl_cache` with the clients of Redis, or measure it side by side with Redis.
    Redis(redis::Options),
}

impl Command {
    fn run(&self) -> Result<(), run::Failure> {
        match self {
            Self::Test => {
                tools::require(tools::STABLE)?;
                run::all(&lanes::test())
            }
            Self::Loom { exhaustive: false, .. } => run::all(&lanes::loom()),
            Self::Loom { exhaustive: true, minutes } => run::all(&lanes::loom_exhaustive(*minutes)),
            Self::Shuttle => run::all(&lanes::shuttle_long()),
            Self::Break(options) => breakage::run(options),
            Self::Miri => {
                tools::require(tools::MIRI)?;
                run::all(&lanes::miri())
            }
            Self::Asan => {
                tools::require(tools::NIGHTLY)?;
                run::all(&lanes::asan())
            }
            Self::Tsan => {
                tools::require(tools::NIGHTLY)?;
                run::all(&lanes::tsan())
            }
            Self::Fuzz(options) => fuzz::run(options),
            Self::Coverage => coverage::run(),
            Self::Mutants(options) => mutants::run(options),
            Self::Msrv => {
                tools::provide(tools::OLDEST_RUST)?;
                run::all(&lanes::msrv())
            }
            Self::Licences(options) => licences::run(options),
            Self::Soak(options) => soak::run(options),
            Self::Package => run::all(&lanes::package()),
            Self::Redis(options) => redis::run(options),
            Self::Simulate(options) => run::all(&[options.lane()]),
        }
    }
}

fn main() -> ExitCode {
    match Command::parse().run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("xtask: {failure}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_well_formed() {
        super::Command::command().debug_assert();
    }
}
