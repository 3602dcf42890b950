//! Whether what is bounded is bounded: keys, what a client is owed that does not read, and how long it may be silent.

use std::io::{self, ErrorKind, Write};
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use super::client::{Answer, Client};

/// More than the sockets in between take.
const REQUESTS_MAX: usize = 256 << 20;
/// Keys that live half a second are gone by then.
const LIFE_MAX: Duration = Duration::from_secs(5);
/// How long a server that reads at all may leave a client waiting.
const STUCK: Duration = Duration::from_millis(300);

/// A server for `room` keys refuses a further one, says so, and has room again when some have expired.
pub(crate) fn keys(server: SocketAddr, room: usize) -> io::Result<Option<String>> {
    let mut client = Client::connect(server)?;
    // Cores have shares: all of them are full when there are many more.
    let numbers = 0..8 * room;
    for number in numbers.clone() {
        client.put(&["SET", &format!("bound:{number}"), "value", "PX", "500"]);
    }
    client.send()?;
    let mut refused = None;
    for _ in numbers {
        if let Answer::Error(why) = client.answer()? {
            refused.get_or_insert(why);
        }
    }
    let held = size(&mut client)?;
    if !refused.as_ref().is_some_and(|why| why.starts_with("OOM"))
        || held > i64::try_from(room + 8).unwrap_or(0)
    {
        return Ok(Some(format!(
            "with room for {room} keys, {held} were taken, and one was refused with {refused:?}"
        )));
    }
    let begun = Instant::now();
    while size(&mut client)? > 0 && begun.elapsed() < LIFE_MAX {
        thread::sleep(Duration::from_millis(20));
    }
    let again = client.ask(&["SET", "bound", "value"])?;
    let is_right = again == Answer::Simple(String::from("OK"));
    Ok((!is_right)
        .then(|| format!("after all keys should have expired, one more was answered {again}")))
}

fn size(client: &mut Client) -> io::Result<i64> {
    match client.ask(&["DBSIZE"])? {
        Answer::Integer(keys) => Ok(keys),
        answer => Err(io::Error::other(format!("DBSIZE was answered {answer}"))),
    }
}

/// A client that asks and asks and reads nothing is not read any more either, and harms nobody.
pub(crate) fn backpressure(server: SocketAddr) -> io::Result<Option<String>> {
    let (mut greedy, mut other) = (Client::connect(server)?, Client::connect(server)?);
    other.ask(&["SET", "long", &"x".repeat(10_000)])?;
    let requests = b"*2\r\n$3\r\nGET\r\n$4\r\nlong\r\n".repeat(10_000);
    greedy.stream().set_write_timeout(Some(STUCK))?;
    let mut sent = 0;
    while sent < REQUESTS_MAX {
        match greedy.stream().write(&requests) {
            Ok(length) => sent += length,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                break;
            }
            Err(error) => {
                return Ok(Some(format!("a client that did not read was cut off: {error}")));
            }
        }
    }
    let is_served = other.ask(&["PING"])? == Answer::Simple(String::from("PONG"));
    Ok((sent >= REQUESTS_MAX || !is_served).then(|| {
        format!("a client that did not read could send {sent} bytes of requests; others served: {is_served}")
    }))
}

/// A connection that has been silent since `silent_since` is closed after `idle`, and not before.
pub(crate) fn idle(
    mut client: Client,
    silent_since: Instant,
    idle: Duration,
) -> io::Result<Option<String>> {
    client.wait_for_end()?;
    let silent_for = silent_since.elapsed();
    Ok((silent_for < idle)
        .then(|| format!("a connection was closed after {silent_for:?} of silence")))
}
