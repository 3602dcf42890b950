//! A load generator: two threads that simulate thousands of users of a server.
//!
//! Each loop of a thread looks at the schedules of all its users, because the library under test
//! must not time its own test.

use std::io;
use std::net::SocketAddr;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Registry, Token};

use super::server;

const THREADS: usize = 2;
const EVENTS: usize = 1_024;
/// The longest sleep of a load thread. It bounds the time until the thread notices the end of the
/// run.
const NAP: Duration = Duration::from_millis(50);

/// A user of the server, with one or more connections. Times count from the start of the run.
pub(crate) trait User: Send + 'static {
    /// Performs the user's next action, when it is due or data has arrived. Returns the time of the
    /// action after it.
    fn act(&mut self, now: Duration, connector: &Connector<'_>) -> io::Result<Option<Duration>>;

    /// Reads the received data.
    fn receive(&mut self);

    /// Returns true if the user has no actions left.
    fn is_over(&self, now: Duration) -> bool;
}

/// Opens the connections of one user.
pub(crate) struct Connector<'a> {
    server: SocketAddr,
    registry: &'a Registry,
    token: Token,
}

impl Connector<'_> {
    pub(crate) fn connect(&self) -> io::Result<TcpStream> {
        let stream = std::net::TcpStream::connect(self.server)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        let mut stream = TcpStream::from_std(stream);
        self.registry.register(&mut stream, self.token, Interest::READABLE)?;
        Ok(stream)
    }
}

/// The running threads.
pub(crate) struct Load<U> {
    threads: Vec<JoinHandle<io::Result<Crew<U>>>>,
}

impl<U: User> Load<U> {
    /// Creates the users, and then starts the threads.
    pub(crate) fn start(
        server: SocketAddr,
        users: u32,
        make: impl Fn(u32, &Connector<'_>) -> io::Result<U>,
    ) -> io::Result<Self> {
        let mut crews = Vec::new();
        for thread in 0..THREADS {
            // Each thread gets whole groups of ten consecutive users, because the ten have
            // different roles.
            let mine = (0..users).filter(|id| *id as usize / 10 % THREADS == thread);
            crews.push(Crew::new(server, mine, &make)?);
        }
        let start = Instant::now();
        let spawn = |crew: Crew<U>| {
            thread::Builder::new().name(String::from("load")).spawn(move || crew.run(start))
        };
        Ok(Self { threads: crews.into_iter().map(spawn).collect::<io::Result<_>>()? })
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.threads.iter().all(JoinHandle::is_finished)
    }

    /// Waits for the threads. Returns the users, whose connections are still open, and the longest
    /// delay that the machine caused a thread.
    pub(crate) fn join(self) -> io::Result<(Vec<U>, Duration)> {
        let (mut users, mut held_up) = (Vec::new(), Duration::ZERO);
        for thread in self.threads {
            let crew = thread.join().map_err(|_| io::Error::other("the load panicked"))??;
            users.extend(crew.users);
            held_up = held_up.max(crew.held_up);
        }
        Ok((users, held_up))
    }
}

/// The users that one thread simulates.
struct Crew<U> {
    server: SocketAddr,
    poll: Poll,
    users: Vec<U>,
    /// The time of each user's next action.
    schedule: Vec<Option<Duration>>,
    held_up: Duration,
}

impl<U: User> Crew<U> {
    fn new(
        server: SocketAddr,
        ids: impl Iterator<Item = u32>,
        make: impl Fn(u32, &Connector<'_>) -> io::Result<U>,
    ) -> io::Result<Self> {
        let poll = Poll::new()?;
        let make = |(index, id)| {
            make(id, &Connector { server, registry: poll.registry(), token: Token(index) })
        };
        let users = ids.enumerate().map(make).collect::<io::Result<Vec<_>>>()?;
        Ok(Self {
            server,
            poll,
            schedule: vec![Some(Duration::ZERO); users.len()],
            users,
            held_up: Duration::ZERO,
        })
    }

    fn run(mut self, start: Instant) -> io::Result<Self> {
        let mut events = Events::with_capacity(EVENTS);
        loop {
            let now = start.elapsed();
            if self.users.iter().all(|user| user.is_over(now)) {
                break;
            }
            let next = self.schedule.iter().flatten().min();
            let wait = next.map_or(NAP, |next| next.saturating_sub(now).min(NAP));
            server::poll(&mut self.poll, &mut events, Some(wait))?;
            self.held_up = self.held_up.max(start.elapsed().saturating_sub(now + wait));
            for event in &events {
                self.act(event.token().0, start.elapsed())?;
            }
            let now = start.elapsed();
            for index in 0..self.users.len() {
                if self.schedule[index].is_some_and(|moment| moment <= now) {
                    self.act(index, now)?;
                }
            }
        }
        // Reads once more, to notice connections that the server has closed.
        self.users.iter_mut().for_each(User::receive);
        Ok(self)
    }

    fn act(&mut self, index: usize, now: Duration) -> io::Result<()> {
        let (server, registry, token) = (self.server, self.poll.registry(), Token(index));
        self.schedule[index] =
            self.users[index].act(now, &Connector { server, registry, token })?;
        Ok(())
    }
}
