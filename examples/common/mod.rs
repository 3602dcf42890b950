//! The code that `idle_timeouts` and the programs in `demos/` share.
//!
//! - `server`: one event loop per core, each with a listener on the same port
//! - `load`: threads that act as thousands of users of the server
//! - `view`: the live view of all timers
//! - `verdict`: the findings of a run, and how they are printed

pub(crate) mod load;
pub(crate) mod server;
pub(crate) mod verdict;
pub(crate) mod view;

use std::num::NonZero;
use std::thread;
use std::time::Duration;

/// The command-line options that all programs share.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Options {
    /// Number of event loops, one thread each [default: one per available core]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=256))]
    cores: Option<u16>,

    /// Limit of the 99th percentile of the lateness
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=60_000))]
    late_limit_ms: u64,

    /// Print the verdict as one JSON object on one line, and nothing else
    #[arg(long)]
    pub(crate) json: bool,
}

impl Options {
    pub(crate) fn cores(&self) -> usize {
        let available = || thread::available_parallelism().map_or(1, NonZero::get);
        self.cores.map_or_else(available, usize::from)
    }

    pub(crate) fn late_limit(&self) -> Duration {
        Duration::from_millis(self.late_limit_ms)
    }
}
