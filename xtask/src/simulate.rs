//! The simulation, for as long as one likes.

use crate::{lane::Lane, lanes};

/// How much to simulate; without either, for ten minutes.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// So many operations.
    #[arg(long)]
    operations: Option<u64>,
    /// So long.
    #[arg(long)]
    minutes: Option<f64>,
    /// The seed of the first episode; the next ones follow.
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

impl Options {
    pub(crate) fn lane(&self) -> Lane {
        let minutes = self.minutes.or(self.operations.is_none().then_some(10.0));
        let minutes = minutes.map(|minutes| format!(" --minutes {minutes}"));
        let operations = self.operations.map(|operations| format!(" --operations {operations}"));
        let extent = operations.unwrap_or_default() + &minutes.unwrap_or_default();
        lanes::simulator().and(&format!("--seed {}{extent}", self.seed))
    }
}

#[cfg(test)]
mod tests {
    use super::Options;

    #[test]
    fn it_takes_ten_minutes_if_nothing_is_said() {
        let lane =
            |operations, minutes| Options { operations, minutes, seed: 7 }.lane().to_string();
        let command =
            "cargo run --release --locked -p corewheel-simulator --bin simulate -- --seed 7";
        assert_eq!(lane(None, None), format!("{command} --minutes 10"));
        assert_eq!(lane(Some(1), None), format!("{command} --operations 1"));
        assert_eq!(lane(Some(1), Some(0.5)), format!("{command} --operations 1 --minutes 0.5"));
    }
}
