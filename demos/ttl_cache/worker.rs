//! One core of the server: its keys, its connections, its event loop, and the requests that travel
//! between the cores.
//!
//! ```text
//! core of the connection                        core of the keys
//!   requests of a turn ---- ShardRef::run ----->  carries them out, in order
//!   the connections' replies <-- ShardRef::run -- all answers together
//! ```
//!
//! `ShardRef::run` wakes a core that sleeps, takes no lock, and runs the closures of one thread in
//! order. A turn with a budget takes them in even if a million timers are due before them.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Write};
use std::mem;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use corewheel::{Core, ShardRef, local_timer};
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Registry, Token};
use resp_rs::resp2::Frame;

use crate::Args;
use crate::commands::{self, Request, Route};
use crate::common::server::{self, LISTENER, Server, WAKER};
use crate::connection::{Connection, Replies, Served};
use crate::keys::Keys;

const EVENTS: usize = 1_024;
/// How many timers fire in one turn before clients are served again: about 100 us of work.
const TURN_BUDGET: usize = 256;
/// How many bytes are read from one connection before the next one is served.
const READ_MAX: usize = 16 << 10;
const TOO_MANY_CLIENTS: &[u8] = b"-ERR max number of clients reached\r\n";

/// One core of the server.
struct Worker {
    registry: Registry,
    idle: Duration,
    max_clients: usize,
    router: Router,
    /// By their tokens, none of which is used twice.
    connections: HashMap<usize, Connection>,
    next_token: usize,
    /// The connections that have something to do.
    ready: BTreeSet<usize>,
    shards: Vec<ShardRef>,
    /// How many requests of other cores were carried out here.
    served: u64,
    scratch: Vec<u8>,
}

/// Where the answer to a request goes.
#[derive(Clone, Copy, Debug)]
struct Address {
    connection: usize,
    reply: usize,
}

/// Sends commands to the cores of their keys.
pub(crate) struct Router {
    /// The core of this router, and its keys.
    own: usize,
    keys: Rc<RefCell<Keys>>,
    /// Chooses the core of a key, by a secret: no client can send all keys to one core.
    hasher: RandomState,
    /// The requests to each core that are sent at the end of the turn.
    outgoing: Vec<Vec<(Address, Request)>>,
}

thread_local! {
    static WORKER: RefCell<Option<Worker>> = const { RefCell::new(None) };
}

/// Runs `act` on this thread's worker, if there is one. Nothing else borrows the worker in a turn,
/// when timers fire.
fn with(act: impl FnOnce(&mut Worker)) {
    WORKER.with_borrow_mut(|worker| worker.as_mut().map_or((), act));
}

/// Starts a worker per core. Each returns how many requests of other cores it has carried out.
pub(crate) fn start(args: &Args, port: u16) -> io::Result<Server<u64>> {
    let (hasher, args) = (RandomState::new(), args.clone());
    Server::start(port, args.options.cores(), move |core, (poll, listener)| {
        let worker = Worker::new(core, poll.registry().try_clone()?, hasher.clone(), &args);
        WORKER.set(Some(worker));
        run(core, poll, &listener)
    })
}

/// Serves until the core is asked to stop.
fn run(core: &Core, mut poll: Poll, listener: &TcpListener) -> io::Result<u64> {
    let mut events = Events::with_capacity(EVENTS);
    while !core.is_stopping() {
        local_timer().sleep_with(|mut timeout| {
            with(|worker| {
                if !worker.ready.is_empty() {
                    timeout = Some(Duration::ZERO);
                }
            });
            server::poll(&mut poll, &mut events, timeout)
        })?;
        with(|worker| {
            for event in &events {
                match event.token() {
                    LISTENER => worker.accept_all(listener),
                    WAKER => {}
                    Token(token) => {
                        if let Some(connection) = worker.connections.get_mut(&token) {
                            connection.is_read_closed |= event.is_read_closed();
                            connection.is_readable |= event.is_readable() || event.is_read_closed();
                            worker.ready.insert(token);
                        }
                    }
                }
            }
            worker.serve_ready();
        });
        local_timer().turn_within(TURN_BUDGET);
        with(Worker::serve_ready);
    }
    Ok(WORKER.take().map_or(0, |worker| worker.served))
}

impl Worker {
    fn new(core: &Core, registry: Registry, hasher: RandomState, args: &Args) -> Self {
        let (own, shards) = (core.index(), core.shards());
        // Each core has its share.
        let keys = Keys::new(args.max_keys.div_ceil(shards.len()));
        let outgoing = shards.iter().map(|_| Vec::new()).collect();
        Self {
            registry,
            idle: Duration::from_secs(args.idle),
            max_clients: args.max_clients.div_ceil(shards.len()),
            router: Router { own, keys, hasher, outgoing },
            connections: HashMap::new(),
            next_token: 0,
            ready: BTreeSet::new(),
            shards: shards.to_vec(),
            served: 0,
            scratch: vec![0; READ_MAX],
        }
    }

    fn accept_all(&mut self, listener: &TcpListener) {
        // A client that cannot be accepted is dropped; the others are served all the same.
        while let Ok(Some((stream, _))) = server::accept(listener) {
            let _ = self.accept(stream);
        }
    }

    fn accept(&mut self, mut stream: TcpStream) -> io::Result<()> {
        if self.connections.len() >= self.max_clients {
            return stream.write_all(TOO_MANY_CLIENTS);
        }
        let token = self.next_token;
        self.next_token += 1;
        stream.set_nodelay(true)?;
        let interest = Interest::READABLE | Interest::WRITABLE;
        self.registry.register(&mut stream, Token(token), interest)?;
        let close = move || with(|worker| drop(worker.connections.remove(&token)));
        let idle = local_timer().add_local(self.idle, close);
        self.connections.insert(token, Connection::new(token, stream, idle));
        Ok(())
    }

    /// Serves each connection that has something to do for a little while, and sends the requests
    /// to other cores.
    fn serve_ready(&mut self) {
        for token in mem::take(&mut self.ready) {
            let Some(connection) = self.connections.get_mut(&token) else { continue };
            match connection.serve(&mut self.router, &mut self.scratch, self.idle) {
                Served::Waits => {}
                Served::HasMore => drop(self.ready.insert(token)),
                Served::Ends => {
                    connection.idle.cancel();
                    self.connections.remove(&token);
                }
            }
        }
        let from = self.router.own;
        for (shard, requests) in self.shards.iter().zip(&mut self.router.outgoing) {
            if !requests.is_empty() {
                let requests = mem::take(requests);
                // A core that has ended takes no requests, and all cores end together.
                let _ = shard.try_run(move || with(|worker| worker.serve_remote(requests, from)));
            }
        }
    }

    /// Carries out the requests of another core.
    fn serve_remote(&mut self, requests: Vec<(Address, Request)>, from: usize) {
        self.served += requests.len() as u64;
        let keys = &mut self.router.keys.borrow_mut();
        let requests = requests.into_iter();
        let answers: Vec<_> = requests.map(|(to, request)| (to, request.answer(keys))).collect();
        let _ = self.shards[from].try_run(move || with(|worker| worker.deliver(answers)));
    }

    /// Hands the answers of another core to their connections, as far as those are still open.
    fn deliver(&mut self, answers: Vec<(Address, Frame)>) {
        for (Address { connection: token, reply }, answer) in answers {
            if let Some(connection) = self.connections.get_mut(&token) {
                connection.replies.deliver(reply, answer);
                self.ready.insert(token);
            }
        }
    }
}

impl Router {
    /// Sends a command of a connection to the core of its key, or to all cores. The answer comes to
    /// `replies`, now or later.
    pub(crate) fn route(&mut self, connection: usize, words: &[Bytes], replies: &mut Replies) {
        let cores = self.outgoing.len();
        let (cores, hash, run) = match commands::route(words) {
            Err(refused) => return replies.push(refused),
            Ok(Route::Here(run)) => return replies.push(run(words)),
            Ok(Route::EveryCore(run)) => (0..cores, 0, run),
            Ok(Route::Key(run)) => {
                let hash = self.hasher.hash_one(&words[1]);
                // The lower half finds the key on its core.
                let core = usize::try_from(hash >> 32).unwrap_or_default() % cores;
                (core..core + 1, hash, run)
            }
        };
        let reply = replies.reserve(cores.len());
        for core in cores {
            let request = Request { words: words.to_vec(), hash, run };
            if core == self.own {
                replies.deliver(reply, request.answer(&mut self.keys.borrow_mut()));
            } else {
                self.outgoing[core].push((Address { connection, reply }, request));
            }
        }
    }
}
