//! What was asked for on the command line.

use std::net::SocketAddr;
use std::time::Duration;

use clap::Parser;

use crate::seats;

const MIB: usize = 1 << 20;

/// A thread-per-core key-value server whose keys expire, for redis-cli, redis-benchmark and whoever else speaks RESP.
///
/// Every key with a deadline has a timer on the core that it belongs to, and so has every connection, for being idle.
/// It listens on the loopback interface and knows no passwords. It stores strings, and nothing on disk. Commands about several
/// keys are not atomic; what it does not know it answers with an error. Exit status of a check: 0 the verdict is ok, 1
/// it is not, 2 it could not be tried.
#[derive(Clone, Debug, Parser)]
#[command(name = "ttl_cache")]
pub(crate) struct Args {
    /// The port; 0 takes a free one and says which
    #[arg(long, default_value_t = 6380)]
    pub(crate) port: u16,

    /// How many event loops the server has, one thread each [default: one per core that it may use]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=256))]
    cores: Option<u16>,

    /// How many keys there may be; one more is refused with an error that begins with OOM. Each core has its share,
    /// and as keys are not spread quite evenly, the first may be full a little earlier
    #[arg(long, default_value_t = 4_000_000, value_parser = clap::value_parser!(u32).range(1..=32_000_000))]
    max_keys: u32,

    /// How many MiB the keys and their values may take, likewise
    #[arg(long, default_value_t = 1_024, value_parser = clap::value_parser!(u32).range(1..))]
    max_memory: u32,

    /// How many clients may be connected, likewise; one more is turned away
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u16).range(1..))]
    max_clients: u16,

    /// After how many seconds of silence a connection is closed
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..=31_536_000))]
    idle: u32,

    /// Show what the keys and the timers of each core do, while the server runs
    #[arg(long, conflicts_with_all = ["self_check", "against"])]
    pub(crate) live: bool,

    /// Start the server at a free port, check it from outside, and end with a verdict
    #[arg(long, conflicts_with = "against")]
    pub(crate) self_check: bool,

    /// Check the server at this address instead, which may be a Redis: all of its keys are lost
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) against: Option<SocketAddr>,

    /// How many keys expire within one second in a check
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1_000..=10_000_000))]
    pub(crate) expiring: u32,

    /// A check fails when the p99 of GETs is so much higher while keys expire than before
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=60_000))]
    late_limit_ms: u64,

    /// Print the verdict as one JSON object on one line, and nothing else
    #[arg(long)]
    pub(crate) json: bool,
}

impl Args {
    /// For a server that is checked: one that closes idle connections soon, and has room for what is to expire.
    pub(crate) fn for_check(&self, idle: u32) -> Self {
        // Keys are not spread quite evenly over the cores.
        Self {
            idle,
            max_keys: self.max_keys.max(self.expiring + self.expiring / 8 + 1_000),
            ..self.clone()
        }
    }

    pub(crate) fn with_room_for(&self, keys: u32) -> Self {
        Self { max_keys: keys, ..self.clone() }
    }

    pub(crate) fn cores(&self) -> usize {
        seats::cores(self.cores)
    }

    pub(crate) fn max_keys(&self) -> usize {
        self.max_keys as usize
    }

    /// In bytes.
    pub(crate) fn max_memory(&self) -> usize {
        (self.max_memory as usize).saturating_mul(MIB)
    }

    pub(crate) fn max_clients(&self) -> usize {
        usize::from(self.max_clients)
    }

    pub(crate) fn idle(&self) -> Duration {
        Duration::from_secs(self.idle.into())
    }

    pub(crate) fn late_limit(&self) -> Duration {
        Duration::from_millis(self.late_limit_ms)
    }
}
