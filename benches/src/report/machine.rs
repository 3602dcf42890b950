//! Where and when figures were made: no figure means anything without it.

use std::{env, fmt, fs, process::Command};

use jiff::Zoned;

/// The head of a table.
#[derive(Debug)]
pub struct Machine {
    cpu: String,
    cores: usize,
    kernel: String,
    rustc: String,
    date: String,
    command: String,
}

impl Machine {
    /// This one, now.
    pub fn here() -> Self {
        let cpus = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let cpu = cpus.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
        let system = rustix::system::uname();
        let arguments = env::args().skip(1).map(|argument| format!(" {argument}"));
        Self {
            cpu: cpu.map_or("an unknown processor", |(_, name)| name).to_owned(),
            cores: std::thread::available_parallelism().map_or(0, Into::into),
            kernel: format!(
                "{} {}",
                system.sysname().to_string_lossy(),
                system.release().to_string_lossy()
            ),
            rustc: rustc().unwrap_or_else(|| "unknown rustc".to_owned()),
            date: Zoned::now().strftime("%F %R %Z").to_string(),
            command: format!(
                "cargo run --release -p corewheel-bench --bin compare --{}",
                arguments.collect::<String>()
            ),
        }
    }
}

fn rustc() -> Option<String> {
    let output = Command::new("rustc").arg("--version").output().ok()?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.command.trim_end_matches(" --"))?;
        write!(
            f,
            "{}, {} cores, {}, {}, {}",
            self.cpu, self.cores, self.kernel, self.rustc, self.date
        )
    }
}
