//! What was asked for on the command line, checked before anything starts.

use std::time::Duration;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};

use crate::seats;

/// Below this an ordinary pause of the machine makes a request time out that should have completed.
const SHORTEST_TIMEOUT_MS: u64 = 100;

/// A small replicated log, thread per core, whose requests wait for their condition or time out, under a load that it
/// brings along.
///
/// Producers wait until the followers have what they have appended, consumers and followers until there are enough
/// bytes, members of a group until all are in. Followers and members stall at moments the load knows, so it knows of
/// each request whether it must time out. The verdict says whether each was answered exactly once, as expected, and
/// how late the time-outs were, by the clocks of the clients. Exit status: 0 the verdict is ok, 1 it is not, 2 it could
/// not be tried.
#[derive(Debug, Parser)]
#[command(name = "delayed_requests")]
pub(crate) struct Args {
    /// How many partitions, each with 2 followers, 4 producers and 4 consumers, a connection each
    #[arg(long, allow_negative_numbers = true, default_value_t = 40)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=800))]
    pub(crate) partitions: u32,

    /// How many groups, each with 5 members, a connection each
    #[arg(long, allow_negative_numbers = true, default_value_t = 40)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=800))]
    pub(crate) groups: u32,

    /// After how many milliseconds a request times out (one of a follower: after twice as many)
    #[arg(long, default_value_t = 800)]
    #[arg(value_parser = clap::value_parser!(u64).range(SHORTEST_TIMEOUT_MS..=60_000))]
    timeout_ms: u64,

    /// How many seconds the run takes; at least ten timeouts
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    duration: u64,

    /// How many event loops the server has, one thread each [default: one per core that it may use]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=256))]
    cores: Option<u16>,

    /// The verdict fails when more than one in a hundred time-outs is later than this, and than what the machine held up
    /// a thread besides
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
        let shortest = args.timeout() * 10;
        if args.duration() < shortest {
            let message = format!(
                "--duration {} is too short for --timeout-ms {}: every follower must have the time to stall and to \
                 recover; ask for at least --duration {} or for a shorter --timeout-ms",
                args.duration,
                args.timeout_ms,
                shortest.as_millis().div_ceil(1_000),
            );
            Self::command().error(ErrorKind::ValueValidation, message).exit();
        }
        args
    }

    pub(crate) fn timeout(&self) -> Duration {
        Duration::from_millis(self.timeout_ms)
    }

    pub(crate) fn duration(&self) -> Duration {
        Duration::from_secs(self.duration)
    }

    pub(crate) fn late_limit(&self) -> Duration {
        Duration::from_millis(self.late_limit_ms)
    }

    pub(crate) fn cores(&self) -> usize {
        seats::cores(self.cores)
    }
}
