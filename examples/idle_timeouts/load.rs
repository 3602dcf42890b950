//! The load: a few threads with thousands of clients each, which do what the plan says and write down what they see.
//!
//! Its schedule is a plain heap, not a timer of the library: what is to be judged should not also hold the watch.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use mio::{Events, Poll, Token};

use crate::board::Board;
use crate::client::{Client, Fate, Step};
use crate::net;
use crate::plan::Plan;

pub(crate) const THREADS: u32 = 2;
const EVENTS: usize = 1_024;
/// How long a thread sleeps at most, so that it sees the end of the run.
const NAP: Duration = Duration::from_millis(50);

/// What all threads of the load know.
#[derive(Clone)]
pub(crate) struct Brief {
    pub(crate) plan: Arc<Plan>,
    pub(crate) board: Arc<Board>,
    pub(crate) server: SocketAddr,
    pub(crate) start: Instant,
}

/// Starts the threads. Each gives its clients back at the end, those that are still open with their sockets.
pub(crate) fn start(brief: &Brief) -> io::Result<Vec<JoinHandle<io::Result<Vec<Client>>>>> {
    (0..THREADS)
        .map(|thread| {
            let crowd = Crowd::new(brief.clone(), thread)?;
            thread::Builder::new().name(format!("load-{thread}")).spawn(move || crowd.run())
        })
        .collect()
}

/// The clients of one thread.
struct Crowd {
    brief: Brief,
    poll: Poll,
    clients: Vec<Client>,
    /// When each client acts next, and its place in `clients`; one that has nothing left to do is not in it.
    agenda: BinaryHeap<Reverse<(Duration, usize)>>,
}

impl Crowd {
    fn new(brief: Brief, thread: u32) -> io::Result<Self> {
        let plan = &brief.plan;
        let clients: Vec<_> = (0..plan.connections)
            // Ten neighbours have ten different tasks: together they make a fair share.
            .filter(|id| id / 10 % THREADS == thread)
            .map(|id| Client::new(id, plan.role(id)))
            .collect();
        let moment =
            |(index, client): (usize, &Client)| Reverse((plan.connects_at(client.id), index));
        Ok(Self {
            agenda: clients.iter().enumerate().map(moment).collect(),
            poll: Poll::new()?,
            clients,
            brief,
        })
    }

    fn run(mut self) -> io::Result<Vec<Client>> {
        let mut events = Events::with_capacity(EVENTS);
        while self.brief.start.elapsed() < self.brief.plan.end {
            net::unless_interrupted(self.poll.poll(&mut events, Some(self.until_next())))?;
            for event in &events {
                self.clients[event.token().0].receive();
            }
            self.act();
        }
        // A last look at each: a connection that the server has closed in the meantime must not pass for an open one.
        self.clients.iter_mut().for_each(Client::receive);
        Ok(self.clients)
    }

    fn until_next(&self) -> Duration {
        let now = self.brief.start.elapsed();
        let wait = self.agenda.peek().map(|Reverse((moment, _))| moment.saturating_sub(now));
        wait.unwrap_or(NAP).min(NAP)
    }

    /// Lets every client act whose moment has come.
    fn act(&mut self) {
        let now = self.brief.start.elapsed();
        while let Some(&Reverse((moment, index))) = self.agenda.peek()
            && moment <= now
        {
            self.agenda.pop();
            if let Some(next) = self.act_one(index, now) {
                self.agenda.push(Reverse((next, index)));
            }
        }
    }

    /// Gives the client's next moment.
    fn act_one(&mut self, index: usize, now: Duration) -> Option<Duration> {
        let Brief { plan, board, server, .. } = &self.brief;
        let client = &mut self.clients[index];
        if let Fate::Unconnected(_) = client.fate {
            let retry = client.connect(*server, self.poll.registry(), Token(index), now);
            if retry.is_some() {
                return retry;
            }
            board.connected.one_more();
        }
        // Closed already, and not yet told by the poll? Then it was not this packet after which it was closed.
        client.receive();
        if !matches!(client.fate, Fate::Open) {
            return None;
        }
        match client.step(plan, board.is_released(client.id), now) {
            Step::Send(next) => {
                client.send();
                next
            }
            Step::Wait(until) => Some(until),
            Step::Leave => {
                client.leave();
                board.left.one_more();
                None
            }
        }
    }
}
