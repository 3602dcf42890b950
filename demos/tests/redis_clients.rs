//! `ttl_cache` answers unmodified Redis clients: redis-cli and redis-benchmark.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

/// Commands, and what redis-cli shows for each.
const BEFORE_THE_DEADLINE: &[(&str, &str)] = &[
    ("SET key value", "OK"),
    ("TTL key", "(integer) -1"),
    ("EXPIRE key 100", "(integer) 1"),
    ("TTL key", "(integer) 100"),
    ("SET key other EX 100", "OK"),
    ("PERSIST key", "(integer) 1"),
    ("PERSIST key", "(integer) 0"),
    ("PEXPIREAT key 4102444800123", "(integer) 1"),
    ("TTL nobody", "(integer) -2"),
    ("SET brief value PX 2000", "OK"),
    ("SET kept value PX 2000", "OK"),
    ("PERSIST kept", "(integer) 1"),
    ("SET again value PX 2000", "OK"),
    ("SET again value PX 60000", "OK"),
    ("GET brief", "\"value\""),
    ("FLY", "(error) ERR unknown command 'FLY'"),
];
const AFTER_THE_DEADLINE: &[(&str, &str)] = &[
    ("GET brief", "(nil)"),
    ("TTL brief", "(integer) -2"),
    ("GET kept", "\"value\""),
    ("EXISTS brief kept again", "(integer) 2"),
    ("SET brief value NX PX 60000", "OK"),
    ("DEL brief", "(integer) 1"),
    ("FLUSHALL", "OK"),
    ("DBSIZE", "(integer) 0"),
];
const DEADLINE: Duration = Duration::from_millis(2_010);
/// Sent by `redis-cli --pipe`.
const PIPED: usize = 20_000;
const BENCHMARKS: &str = "ping_inline,ping_mbulk,set,get,incr,mset";

struct Server {
    child: Child,
    port: String,
}

impl Server {
    fn start() -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ttl_cache"));
        command.args(["--port", "0"]).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the server starts");
        let mut ready = String::new();
        let output = child.stdout.take().expect("stdout is piped");
        BufReader::new(output).read_line(&mut ready).expect("the server says when it is ready");
        // "ready at 127.0.0.1:6380, 2 event loops"
        let port = ready.split([':', ',']).nth(1).expect("the server says its port").to_owned();
        Self { child, port }
    }

    /// Runs a client against this server. Returns what it prints.
    fn run(&self, client: &str, arguments: &[&str], input: &str) -> String {
        let mut command = Command::new(client);
        command.args(["-p", &self.port]).args(arguments);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it is installed");
        child.stdin.take().expect("piped").write_all(input.as_bytes()).expect("it reads all");
        let output = child.wait_with_output().expect("it ends");
        let printed = String::from_utf8(output.stdout).expect("it prints text");
        assert!(output.status.success(), "{client} {arguments:?}: {printed}");
        printed
    }

    fn compare(&self, steps: &[(&str, &str)]) {
        let asked: Vec<&str> = steps.iter().map(|(asked, _)| *asked).collect();
        let printed = self.run("redis-cli", &["--no-raw"], &asked.join("\n"));
        assert_eq!(asked.into_iter().zip(printed.lines()).collect::<Vec<_>>(), steps);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // A server that has ended already cannot be killed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn redis_clients_are_answered() {
    for tool in ["redis-cli", "redis-benchmark"] {
        if Command::new(tool).arg("--version").output().is_err() {
            println!("SKIPPED: {tool} not found, install redis-tools");
            return;
        }
    }
    let server = Server::start();
    server.compare(BEFORE_THE_DEADLINE);
    thread::sleep(DEADLINE);
    server.compare(AFTER_THE_DEADLINE);

    let piped = "INCR piped\r\n".repeat(PIPED);
    let printed = server.run("redis-cli", &["--pipe"], &piped);
    assert!(printed.contains(&format!("errors: 0, replies: {PIPED}")), "{printed}");
    server.compare(&[("INCR piped", "(integer) 20001")]);

    let arguments = ["--csv", "-P", "16", "-n", "20000", "-r", "10000", "-t", BENCHMARKS];
    let printed = server.run("redis-benchmark", &arguments, "");
    // A line of CSV for each benchmark, below the header.
    let measured = printed.lines().filter(|line| line.starts_with('"')).count();
    assert_eq!(measured, 1 + BENCHMARKS.split(',').count(), "{printed}");
}
