//! Connections with idle timeouts on one thread: each packet resets the timeout of its connection.
//! All peers get the same packets, as fast as they read them.
//!
//! The first deadlines are spread over the whole timeout, as in a server that has run for a long
//! time. The spread matters, because a wheel may leave a moved timer in place until its first
//! deadline.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::thread;
use std::time::Duration;

use corewheel::future;
use fastrand::Rng;
use monoio::io::AsyncReadRent;
use monoio::{FusionDriver, RuntimeBuilder};
use tokio::io::AsyncReadExt;
use tokio::runtime::Builder;
use tokio::sync::mpsc;
use tokio::task::{LocalSet, spawn_local};

use super::{SEED, in_thread};
use crate::across::Resets;
use crate::measure::{self, ClockId, Sample, median_of};
use crate::plan::Job;
use crate::timers::{connection, payload};

/// The timeout of an active connection.
const IDLE: Duration = Duration::from_secs(30);
/// The timeout after the last packet of a silent connection.
const LAST_TIMEOUT: Duration = Duration::from_millis(5);
/// One in this number of connections falls silent.
const ONE_SILENT_IN: usize = 10;
/// Packets that arrive together. The loop calls `turn` after each batch.
const BATCH: usize = 64;

/// Measures the CPU time per packet of the timers, and of the loop without timers. Both are medians
/// of the intervals after a warm-up.
fn run(job: Job, interval: impl Fn(&Traffic, bool) -> Duration + Sync) -> Vec<Sample> {
    let (packets, intervals) = job.scale.pick((1_000_000, 5), (500_000, 3), (10_000, 1));
    let traffic = Traffic::new(job.n, packets);
    let per_packet = |with_timers| {
        in_thread(|| interval(&traffic, with_timers)).as_nanos() as f64 / packets as f64
    };
    let costs: Vec<_> = (0..=intervals).map(|_| [false, true].map(per_packet)).collect();
    let intervals = &costs[1..];
    vec![
        job.sample("", "ns", median_of(intervals, |[without, with]| with - without)),
        job.sample("loop", "CPU ns", median_of(intervals, |[without, _]| *without)),
    ]
}

struct Traffic {
    connections: usize,
    packets: Vec<Packet>,
}

#[derive(Clone, Copy, Debug)]
struct Packet {
    connection: u32,
    is_last: bool,
}

impl Packet {
    fn timeout(self) -> Duration {
        if self.is_last { LAST_TIMEOUT } else { IDLE }
    }
}

impl Traffic {
    /// Draws random packets. The number of connections must be a multiple of [`ONE_SILENT_IN`] and
    /// at most the number of packets. The last packets of silent connections are evenly spaced.
    fn new(connections: usize, packets: usize) -> Self {
        let (mut rng, mut next_silent) = (Rng::with_seed(SEED), 0);
        let last_packet_step = packets / (connections / ONE_SILENT_IN);
        let packet = |sent| {
            let is_last = sent % last_packet_step == 0 && next_silent < connections;
            let connection = if is_last {
                next_silent += ONE_SILENT_IN;
                next_silent - ONE_SILENT_IN
            } else {
                let random_connection = rng.usize(..connections);
                random_connection
                    + usize::from(
                        random_connection % ONE_SILENT_IN == 0 && random_connection < next_silent,
                    )
            };
            Packet { connection: connection as u32, is_last }
        };
        Self { connections, packets: (1..=packets).map(packet).collect() }
    }

    fn silent_connections(&self) -> impl ExactSizeIterator<Item = usize> {
        (0..self.connections).step_by(ONE_SILENT_IN)
    }

    /// Returns the first timeout of a connection, which a reset replaces at once.
    fn first_timeout(&self, connection: usize) -> Duration {
        IDLE.mul_f64((connection + 1) as f64 / self.connections as f64)
    }

    fn assert_traffic_served(&self, mut closed: Vec<usize>, read: usize) {
        closed.sort_unstable();
        assert!(
            closed.into_iter().eq(self.silent_connections()),
            "exactly the silent connections are closed"
        );
        assert_eq!(read, self.packets.len(), "every packet is read");
    }
}

pub fn in_loop<O: Resets>(job: Job) -> Vec<Sample> {
    run(job, |traffic, with_timers| serve_in_loop(traffic, with_timers.then(|| O::new(0).0)))
}

fn serve_in_loop<O: Resets>(traffic: &Traffic, mut timeouts: Option<O>) -> Duration {
    let accept = |connection| {
        let timeout = timeouts.as_mut().map(|timeouts| {
            let mut timeout = timeouts.add(traffic.first_timeout(connection), payload(connection));
            assert!(timeouts.reset(&mut timeout, IDLE), "the connection is open");
            timeout
        });
        (timeout, 0)
    };
    let mut connections: Vec<_> = (0..traffic.connections).map(accept).collect();
    let mut closed = Vec::with_capacity(connections.len());
    let cpu_start = measure::read_clock(ClockId::ThreadCPUTime);
    for batch in traffic.packets.chunks(BATCH) {
        for packet in batch {
            let (timeout, read) = &mut connections[packet.connection as usize];
            *read += 1;
            if let (Some(timeouts), Some(timeout)) = (&mut timeouts, timeout) {
                assert!(timeouts.reset(timeout, packet.timeout()), "the connection is open");
            } else if packet.is_last {
                closed.push(packet.connection as usize);
            }
        }
        if let Some(timeouts) = &mut timeouts {
            timeouts.turn(usize::MAX, |payload| closed.push(connection(payload)));
        }
    }
    while let Some(timeouts) = &mut timeouts
        && closed.len() < traffic.silent_connections().len()
    {
        thread::sleep(Duration::from_millis(1));
        timeouts.turn(usize::MAX, |payload| closed.push(connection(payload)));
    }
    let cpu = measure::read_clock(ClockId::ThreadCPUTime).saturating_sub(cpu_start);
    traffic.assert_traffic_served(closed, connections.iter().map(|(_, read)| read).sum());
    cpu
}

/// Two functions for a task's idle timeout: one creates it, the other resets it.
type Timeout<F> = (fn(Duration) -> F, fn(Pin<&mut F>, Duration));

/// `corewheel-sleep`: corewheel's futures, in a tokio runtime without tokio's timers.
pub fn corewheel_sleep(job: Job) -> Vec<Sample> {
    let timeout: Timeout<_> =
        (future::sleep, |mut sleep, next_timeout| sleep.reset_after(next_timeout));
    run(job, |traffic, with_timers| on_tokio(traffic, with_timers.then_some(timeout), false))
}

pub fn tokio_sleep(job: Job) -> Vec<Sample> {
    use tokio::time::{Instant, sleep};
    let timeout: Timeout<_> =
        (sleep, |sleep, next_timeout| sleep.reset(Instant::now() + next_timeout));
    run(job, |traffic, with_timers| on_tokio(traffic, with_timers.then_some(timeout), true))
}

fn on_tokio<F>(traffic: &Traffic, timeout: Option<Timeout<F>>, uses_tokio_timer: bool) -> Duration
where
    F: Future<Output = ()> + 'static,
{
    let mut builder = Builder::new_current_thread();
    if timeout.is_some() && uses_tokio_timer {
        builder.enable_time();
    }
    let runtime = builder.enable_io().build().expect("a runtime");
    LocalSet::new().block_on(&runtime, async {
        if timeout.is_some() && !uses_tokio_timer {
            drop(corewheel_tokio::spawn_driver().expect("a descriptor"));
        }
        let (mut writer, reader) = UnixStream::pair().expect("two sockets");
        reader.set_nonblocking(true).expect("a socket");
        let mut reader = tokio::net::UnixStream::from_std(reader).expect("a runtime that polls");
        let poll = async || {
            writer.write_all(&[0]).expect("a byte");
            // After a short read, tokio's next read waits for an event.
            assert_eq!(reader.read(&mut [0; 8]).await.expect("a byte"), 1);
        };
        serve_in_tasks(traffic, timeout, |task| drop(spawn_local(task)), poll).await
    })
}

/// `monoio-sleep`: on io_uring if the kernel has it, otherwise on a poller.
pub fn monoio_sleep(job: Job) -> Vec<Sample> {
    use monoio::time::{Instant, sleep};
    let timeout: Timeout<_> =
        (sleep, |sleep, next_timeout| sleep.reset(Instant::now() + next_timeout));
    run(job, |traffic, with_timers| {
        let serve = async {
            let (mut writer, reader) = UnixStream::pair().expect("two sockets");
            // io_uring needs a blocking socket, and a poller a non-blocking one.
            reader.set_nonblocking(!monoio::utils::detect_uring()).expect("a socket");
            let mut reader =
                monoio::net::UnixStream::from_std(reader).expect("a runtime that polls");
            let poll = async || {
                writer.write_all(&[0]).expect("a byte");
                assert_eq!(reader.read(vec![0; 8]).await.0.expect("a byte"), 1);
            };
            let timeout = with_timers.then_some(timeout);
            serve_in_tasks(traffic, timeout, |task| drop(monoio::spawn(task)), poll).await
        };
        let builder = RuntimeBuilder::<FusionDriver>::new();
        if with_timers {
            builder.enable_timer().build().expect("a runtime").block_on(serve)
        } else {
            builder.build().expect("a runtime").block_on(serve)
        }
    })
}

/// Serves one interval with a task per connection, and returns the CPU time of its packets. `poll`
/// waits for an I/O event, so that the runtime fires its timers.
async fn serve_in_tasks<F: Future<Output = ()> + 'static>(
    traffic: &Traffic,
    timeout: Option<Timeout<F>>,
    spawn: fn(Pin<Box<dyn Future<Output = ()>>>),
    mut poll: impl AsyncFnMut(),
) -> Duration {
    let sockets: Rc<[RefCell<Socket>]> = (0..traffic.connections).map(|_| <_>::default()).collect();
    let (report_sender, mut report_receiver) = mpsc::unbounded_channel();
    for id in 0..traffic.connections {
        let (sockets, report_sender) = (Rc::clone(&sockets), report_sender.clone());
        let first_timeout = traffic.first_timeout(id);
        spawn(Box::pin(async move {
            let open = || report_sender.send((id, 0)).expect("the server waits");
            let read = serve(&sockets[id], timeout, first_timeout, open).await;
            report_sender.send((id, read)).expect("the server waits");
        }));
    }
    drop(report_sender);
    for _ in 0..traffic.connections {
        report_receiver.recv().await;
    }
    let cpu_start = measure::read_clock(ClockId::ThreadCPUTime);
    for batch in traffic.packets.chunks(BATCH) {
        for packet in batch {
            sockets[packet.connection as usize].borrow_mut().deliver(|socket| {
                socket.unread += 1;
                socket.last_has_arrived = packet.is_last;
            });
        }
        poll().await;
    }
    let (mut closed, mut read) = (Vec::new(), 0);
    while closed.len() < traffic.silent_connections().len() {
        let (connection, packets) =
            report_receiver.recv().await.expect("more connections are open");
        closed.push(connection);
        read += packets;
    }
    let cpu = measure::read_clock(ClockId::ThreadCPUTime).saturating_sub(cpu_start);
    for mut socket in sockets.iter().map(RefCell::borrow_mut) {
        if !socket.last_has_arrived {
            socket.deliver(|socket| socket.is_over = true);
        }
    }
    while let Some((_, packets)) = report_receiver.recv().await {
        read += packets;
    }
    traffic.assert_traffic_served(closed, read);
    cpu
}

#[derive(Default)]
struct Socket {
    unread: usize,
    last_has_arrived: bool,
    /// True if no more packets arrive.
    is_over: bool,
    /// The waker of an open connection's task.
    waker: Option<Waker>,
}

impl Socket {
    fn deliver(&mut self, change: impl FnOnce(&mut Self)) {
        change(self);
        self.waker.as_ref().expect("the connection is open").wake_by_ref();
    }

    /// Reads a packet and returns the connection's next timeout; `None` at the end of the interval.
    fn poll_read(&mut self) -> Poll<Option<Duration>> {
        if self.unread > 0 {
            self.unread -= 1;
            let is_last = self.last_has_arrived && self.unread == 0;
            Poll::Ready(Some(if is_last { LAST_TIMEOUT } else { IDLE }))
        } else if self.is_over {
            Poll::Ready(None)
        } else {
            Poll::Pending
        }
    }
}

/// Serves a connection until its timeout or the end of the interval. Returns its packet count.
async fn serve<F: Future<Output = ()>>(
    socket: &RefCell<Socket>,
    timeout: Option<Timeout<F>>,
    first_timeout: Duration,
    open: impl FnOnce(),
) -> usize {
    let mut sleep = pin!(timeout.map(|timeout| (timeout.0)(first_timeout)));
    poll_fn(|cx| {
        // Stores the waker only once, because a task's waker does not change.
        socket.borrow_mut().waker = Some(cx.waker().clone());
        Poll::Ready(sleep.as_mut().as_pin_mut().map(|sleep| sleep.poll(cx)))
    })
    .await;
    let (mut packets_read, mut next_timeout) = (0, IDLE);
    open();
    loop {
        match (timeout, sleep.as_mut().as_pin_mut()) {
            (Some(timeout), Some(sleep)) => (timeout.1)(sleep, next_timeout),
            _ if next_timeout == LAST_TIMEOUT => break,
            _ => (),
        }
        let next = poll_fn(|cx| {
            let next = socket.borrow_mut().poll_read();
            match sleep.as_mut().as_pin_mut().filter(|_| next.is_pending()) {
                Some(sleep) => sleep.poll(cx).map(|()| None),
                None => next,
            }
        });
        let Some(requested) = next.await else { break };
        (packets_read, next_timeout) = (packets_read + 1, requested);
    }
    socket.borrow_mut().waker = None;
    packets_read
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::across::LocalShard;

    #[test]
    fn only_silent_connections_end_with_a_last_packet() {
        let traffic = Traffic::new(200, 3000);
        for id in 0..200 {
            let of_connection = traffic.packets.iter().filter(|packet| packet.connection == id);
            let is_last_flags: Vec<bool> = of_connection.map(|packet| packet.is_last).collect();
            let last = is_last_flags.iter().position(|&is_last| is_last);
            assert_eq!(last, (id % 10 == 0).then_some(is_last_flags.len() - 1), "connection {id}");
        }
    }

    #[test]
    #[should_panic = "exactly the silent connections are closed"]
    fn a_loop_that_closes_an_active_connection_panics() {
        let mut traffic = Traffic::new(200, 3000);
        let is_active = |packet: &&mut Packet| !packet.connection.is_multiple_of(10);
        traffic.packets.iter_mut().rfind(is_active).expect("a packet").is_last = true;
        serve_in_loop::<LocalShard>(&traffic, None);
    }

    #[test]
    #[should_panic = "the connection is open"]
    fn a_task_that_closes_an_active_connection_panics() {
        let timeout: Timeout<_> = (|_| poll_fn(|_| Poll::Ready(())), |_, _| ());
        on_tokio(&Traffic::new(200, 3000), Some(timeout), true);
    }
}
