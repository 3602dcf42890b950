//! What was asked for on the command line, checked before anything starts.

use std::time::Duration;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};

use crate::seats;

/// The load's connections all go from one address to one port, so each needs a local port of its own.
const MOST_CONNECTIONS: i64 = 25_000;
/// Below this an ordinary pause of the machine makes a talking connection look like a silent one.
const SHORTEST_IDLE_MS: u64 = 200;

/// A thread-per-core TCP server that closes idle connections, under a load that it brings along.
///
/// Of the connections a tenth falls silent, a tenth is closed by the client, and for a tenth another thread cancels the
/// idle timer, so that they stay open although silent; the others keep talking. The verdict says whether exactly the
/// silent ones were closed, and how late, by the clocks of the clients. Exit status: 0 the verdict is ok, 1 it is not,
/// 2 it could not be tried.
#[derive(Debug, Parser)]
#[command(name = "idle_timeouts")]
pub(crate) struct Args {
    /// How many connections the load opens, 10 to 25 000 (each needs a local port)
    #[arg(long, allow_negative_numbers = true, default_value_t = 4_000)]
    #[arg(value_parser = clap::value_parser!(u32).range(10..=MOST_CONNECTIONS))]
    pub(crate) connections: u32,

    /// After how many milliseconds of silence the server closes a connection
    #[arg(long, default_value_t = 2_000, value_parser = clap::value_parser!(u64).range(SHORTEST_IDLE_MS..=3_600_000))]
    idle_ms: u64,

    /// How long the run takes; at least 1.2 times (three idle timeouts and a second)
    #[arg(long, default_value_t = 12, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: u64,

    /// How many event loops the server has, one thread each [default: one per core that it may use]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=256))]
    cores: Option<u16>,

    /// The verdict fails when more than one in a hundred closings is later than this
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=60_000))]
    late_limit_ms: u64,

    /// Print the verdict as one JSON object on one line, and nothing else
    #[arg(long)]
    pub(crate) json: bool,
}

impl Args {
    /// Reads the command line. Where it asks for what cannot be, says why and exits with status 2.
    pub(crate) fn read() -> Self {
        let args = Self::parse();
        let shortest = shortest_run(args.idle());
        if args.run() < shortest {
            let message = format!(
                "--seconds {} is too short for --idle-ms {}: connections must have the time to fall silent and to be \
                 found; ask for at least --seconds {} or for a shorter --idle-ms",
                args.seconds,
                args.idle_ms,
                shortest.as_millis().div_ceil(1_000),
            );
            Self::command().error(ErrorKind::ValueValidation, message).exit();
        }
        args
    }

    pub(crate) fn idle(&self) -> Duration {
        Duration::from_millis(self.idle_ms)
    }

    pub(crate) fn run(&self) -> Duration {
        Duration::from_secs(self.seconds)
    }

    pub(crate) fn late_limit(&self) -> Duration {
        Duration::from_millis(self.late_limit_ms)
    }

    pub(crate) fn cores(&self) -> usize {
        seats::cores(self.cores)
    }
}

/// A sixth of a run is for connecting (see `plan`); then a connection must talk, have its timer cancelled and be silent
/// for more than a timeout, with a second to spare.
fn shortest_run(idle: Duration) -> Duration {
    (idle * 3 + Duration::from_secs(1)) * 6 / 5
}
