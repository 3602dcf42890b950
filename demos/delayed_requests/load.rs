//! The load: two threads with the clients of half the partitions and groups each, who do what their cast says and write
//! down what they see. It has no timers of the library: what is to be judged should not also hold the watch.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use mio::{Events, Poll, Token};

use crate::board::Board;
use crate::client::Client;
use crate::group_cast::GroupCast;
use crate::net;
use crate::partition_cast::PartitionCast;
use crate::plan::{MEMBERS, OF_A_PARTITION, Plan};

pub(crate) const THREADS: u32 = 2;
const EVENTS: usize = 1_024;
/// How long a thread sleeps at most, so that it sees when to give up.
const NAP: Duration = Duration::from_millis(50);

/// What a thread of the load comes back with.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) clients: Vec<Client>,
    /// The longest it came back to its clients later than it wanted.
    pub(crate) held_up: Duration,
}

/// The clients are connected; now they begin.
pub(crate) fn start(
    plan: &Arc<Plan>,
    board: &Arc<Board>,
    server: SocketAddr,
    start: Instant,
) -> io::Result<Vec<JoinHandle<io::Result<Seen>>>> {
    let crowds: io::Result<Vec<_>> =
        (0..THREADS).map(|thread| Crowd::new(plan, board, server, thread)).collect();
    let crowds = crowds?.into_iter().zip(0..);
    crowds
        .map(|(crowd, thread)| {
            thread::Builder::new().name(format!("load-{thread}")).spawn(move || crowd.run(start))
        })
        .collect()
}

/// Who belongs together: the clients of a partition or of a group.
enum Cast {
    Partition(PartitionCast),
    Group(GroupCast),
}

/// One cast and where it stands.
struct Troupe {
    cast: Cast,
    clients: Vec<Client>,
    /// When it acts next if there is no answer before.
    next: Option<Duration>,
}

struct Crowd {
    plan: Arc<Plan>,
    board: Arc<Board>,
    poll: Poll,
    troupes: Vec<Troupe>,
    /// By token: the troupe, and the place in it.
    places: Vec<(usize, usize)>,
}

impl Troupe {
    fn new(cast: Cast, clients: usize, server: SocketAddr) -> io::Result<Self> {
        let clients: io::Result<_> = (0..clients).map(|_| Client::connect(server)).collect();
        Ok(Self { cast, clients: clients?, next: Some(Duration::ZERO) })
    }

    fn act(&mut self, plan: &Plan, board: &Board, now: Duration) {
        self.next = match &mut self.cast {
            Cast::Partition(cast) => cast.act(&mut self.clients, plan, board, now),
            Cast::Group(cast) => cast.act(&mut self.clients, plan, board, now),
        };
    }

    fn is_over(&self) -> bool {
        let is_over = match &self.cast {
            Cast::Partition(cast) => cast.is_over(),
            Cast::Group(cast) => cast.is_over(),
        };
        is_over && self.clients.iter().all(Client::is_idle)
    }
}

impl Crowd {
    fn new(
        plan: &Arc<Plan>,
        board: &Arc<Board>,
        server: SocketAddr,
        thread: u32,
    ) -> io::Result<Self> {
        let (plan, board) = (Arc::clone(plan), Arc::clone(board));
        let mut crowd =
            Self { poll: Poll::new()?, troupes: Vec::new(), places: Vec::new(), plan, board };
        let plan = Arc::clone(&crowd.plan);
        // Numbers are dealt out two by two, so that a thread's partitions do not all belong to the same core.
        let is_mine = |index: &u32| index / 2 % THREADS == thread;
        for index in (0..plan.partitions).filter(is_mine) {
            let cast = Cast::Partition(PartitionCast::new(index, &plan));
            crowd.add(Troupe::new(cast, OF_A_PARTITION, server)?)?;
        }
        for index in (0..plan.groups).filter(is_mine) {
            crowd.add(Troupe::new(Cast::Group(GroupCast::new(index, &plan)), MEMBERS, server)?)?;
        }
        Ok(crowd)
    }

    fn add(&mut self, mut troupe: Troupe) -> io::Result<()> {
        for (place, client) in troupe.clients.iter_mut().enumerate() {
            client.register(self.poll.registry(), Token(self.places.len()))?;
            self.places.push((self.troupes.len(), place));
        }
        self.troupes.push(troupe);
        Ok(())
    }

    fn run(mut self, start: Instant) -> io::Result<Seen> {
        let mut events = Events::with_capacity(EVENTS);
        let mut held_up = Duration::ZERO;
        while !self.troupes.iter().all(Troupe::is_over) && start.elapsed() < self.plan.patience() {
            let wait = self.until_next(start.elapsed());
            let wanted = start.elapsed() + wait;
            net::unless_interrupted(self.poll.poll(&mut events, Some(wait)))?;
            let now = start.elapsed();
            held_up = held_up.max(now.saturating_sub(wanted));
            for event in &events {
                let (troupe, place) = self.places[event.token().0];
                self.troupes[troupe].clients[place].receive(&self.board);
                self.troupes[troupe].next = Some(Duration::ZERO);
            }
            for troupe in &mut self.troupes {
                if troupe.next.is_some_and(|next| next <= now) {
                    troupe.act(&self.plan, &self.board, now);
                }
            }
        }
        let mut clients: Vec<_> =
            self.troupes.into_iter().flat_map(|troupe| troupe.clients).collect();
        // A last look at each: nobody may be answered twice.
        for client in &mut clients {
            client.receive(&self.board);
        }
        Ok(Seen { clients, held_up })
    }

    fn until_next(&self, now: Duration) -> Duration {
        let next = self.troupes.iter().filter_map(|troupe| troupe.next).min();
        next.map_or(NAP, |next| next.saturating_sub(now)).min(NAP)
    }
}
