//! A server that is started for a while: ours, or Redis.

use std::{
    fs,
    io::{self, BufRead, BufReader},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use crate::{lane, run::Failure};

/// How long a server may take to start.
const PATIENCE: Duration = Duration::from_secs(10);

/// It ends when this is dropped.
#[derive(Debug)]
pub(super) struct Server {
    child: Child,
    pub(super) port: u16,
}

/// The example, as it was built.
pub(super) fn example() -> Command {
    Command::new(lane::target_base().join("release/examples/ttl_cache"))
}

impl Server {
    /// The example.
    pub(super) fn ours() -> Result<Self, Failure> {
        let mut child = start(example().args(["--port", "0"]).stdout(Stdio::piped()))?;
        let mut ready = String::new();
        if let Some(output) = child.stdout.take() {
            // A line that cannot be read is no port, either.
            let _ = BufReader::new(output).read_line(&mut ready);
        }
        // "ready at 127.0.0.1:6380, 2 event loops"
        let address =
            ready.strip_prefix("ready at ").and_then(|rest| rest.split(',').next()?.parse().ok());
        match address {
            Some(address) => Ok(Self { child, port: SocketAddr::port(&address) }),
            None => Err(unready(child, &ready)),
        }
    }

    /// Redis, with nothing on disk.
    pub(super) fn redis() -> Result<Self, Failure> {
        let port = free_port().map_err(|error| Failure(format!("no port is free: {error}")))?;
        let port_word = port.to_string();
        let mut command = Command::new("redis-server");
        command.args([
            "--port",
            &port_word,
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--appendonly",
            "no",
        ]);
        let child = start(command.stdout(Stdio::null()))?;
        let begun = Instant::now();
        while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
            if begun.elapsed() > PATIENCE {
                return Err(unready(child, "nobody listens"));
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(Self { child, port })
    }

    /// Resident memory in MiB: now, and the most there has been.
    pub(super) fn memory(&self) -> (f64, f64) {
        let status =
            fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap_or_default();
        let mib = |field: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap_or_default();
            line.split_whitespace()
                .next()
                .and_then(|kib| kib.parse().ok())
                .map_or(0.0, |kib: f64| kib / 1024.0)
        };
        (mib("VmRSS:"), mib("VmHWM:"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // One that has ended by itself cannot be killed, and need not be.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn start(command: &mut Command) -> Result<Child, Failure> {
    command.spawn().map_err(|error| Failure(format!("{command:?} cannot be started: {error}")))
}

fn unready(mut child: Child, why: &str) -> Failure {
    let _ = child.kill();
    let _ = child.wait();
    Failure(format!("the server did not get ready: {why}"))
}

fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}
