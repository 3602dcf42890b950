//! How requests come to the cores of their keys, and the answers back: in batches, through the timers of the cores.
//!
//! ```text
//! core of the connection                        core of the keys
//!   requests of a turn -> batch --- run ----------> carries them out, in order
//!   writes them out     <---------- run ----------- the batch, with the answers
//! ```
//!
//! `ShardRef::run` is a timer that is due at once: it wakes a core that sleeps, takes no lock, and a turn that has a
//! budget takes it in even when a million timers are due before it.
//!
//! Between two cores there is at most one batch under way in each direction; what comes meanwhile goes with the next.
//! So requests stay in their order (what several threads, or one, send to a timer may arrive in any), batches are the
//! larger the busier the cores are, and what is under way is bounded. The batch comes back with its answers, so there is
//! nothing to allocate in the steady state.

use corewheel::ShardRef;

use crate::commands::{self, Request, Run};
use crate::here;
use crate::keys::Keys;
use crate::resp::{Span, Words};

/// Requests are put off when so many bytes wait for one core.
const BYTES_MAX: usize = 16 << 20;
/// With so many bytes of answers a batch goes back, and comes again for the rest.
const ANSWERS_MAX: usize = 4 << 20;
/// Room that an empty batch keeps.
const KEPT: usize = 1 << 20;
const REQUESTS_KEPT: usize = 1 << 14;

/// Where an answer goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Address {
    /// The connection's key, and who it was that had it.
    pub(crate) connection: usize,
    pub(crate) id: u64,
    /// The answer's number there, and which part of it this is.
    pub(crate) answer: u64,
    pub(crate) part: usize,
}

/// Requests to one core, and then its answers.
#[derive(Default)]
pub(crate) struct Batch {
    requests: Vec<Asked>,
    /// The words of all requests.
    bytes: Vec<u8>,
    spans: Vec<Span>,
    /// How many requests have been answered, and how many of them on an earlier trip.
    answered: usize,
    before: usize,
    /// What was answered on this one.
    answers: Vec<u8>,
}

struct Asked {
    run: Run,
    hash: u64,
    to: Address,
    /// Where its words end among the spans, and where its answer ends.
    spans: usize,
    answer: usize,
}

/// The way to one other core.
#[derive(Default)]
struct Lane {
    next: Box<Batch>,
    /// What is used after `next`; `None` while it is under way.
    other: Option<Box<Batch>>,
}

/// The ways from one core to the others.
pub(crate) struct Crossing {
    own: usize,
    shards: Vec<ShardRef>,
    lanes: Vec<Lane>,
}

impl Batch {
    pub(crate) fn push(&mut self, run: Run, request: &Request<'_>, to: Address) {
        for word in request.words.iter() {
            let start = self.bytes.len();
            self.bytes.extend_from_slice(word);
            self.spans.push(Span::new(start..self.bytes.len()));
        }
        self.requests.push(Asked {
            run,
            hash: request.hash,
            to,
            spans: self.spans.len(),
            answer: 0,
        });
    }

    /// Carries requests out, in order, until there is no room for further answers.
    fn carry_out(&mut self, keys: &mut Keys) {
        let Self { requests, bytes, spans, answered, before, answers } = self;
        *before = *answered;
        let mut start = before.checked_sub(1).map_or(0, |last| requests[last].spans);
        for asked in &mut requests[*before..] {
            if answers.len() > ANSWERS_MAX {
                return;
            }
            let words = Words::new(bytes, &spans[start..asked.spans]);
            commands::answer(asked.run, keys, &Request { words, hash: asked.hash }, answers);
            (start, asked.answer) = (asked.spans, answers.len());
            *answered += 1;
        }
    }

    /// Hands the answers over that it has brought from this trip, in order.
    pub(crate) fn answers(&self) -> impl Iterator<Item = (Address, &[u8])> {
        let mut start = 0;
        self.requests[self.before..self.answered].iter().map(move |asked| {
            let answer = &self.answers[start..asked.answer];
            start = asked.answer;
            (asked.to, answer)
        })
    }

    fn len(&self) -> usize {
        self.requests.len()
    }

    fn is_done(&self) -> bool {
        self.answered == self.requests.len()
    }

    fn clear(&mut self) {
        (self.answered, self.before) = (0, 0);
        self.requests.clear();
        self.requests.shrink_to(REQUESTS_KEPT);
        self.spans.clear();
        self.spans.shrink_to(REQUESTS_KEPT);
        for bytes in [&mut self.bytes, &mut self.answers] {
            bytes.clear();
            bytes.shrink_to(KEPT);
        }
    }
}

impl Crossing {
    pub(crate) fn new(own: usize, shards: &[ShardRef]) -> Self {
        let lane = || Lane { other: Some(Box::default()), ..Lane::default() };
        Self { own, shards: shards.to_vec(), lanes: shards.iter().map(|_| lane()).collect() }
    }

    /// Which core a key belongs to, by its hash; `None` if it is this one.
    pub(crate) fn elsewhere(&self, hash: u64) -> Option<usize> {
        // The lower half finds the key on its core.
        let core = usize::try_from(hash >> 32).unwrap_or_default() % self.shards.len();
        (core != self.own).then_some(core)
    }

    pub(crate) fn cores(&self) -> usize {
        self.shards.len()
    }

    /// All cores but this one.
    pub(crate) fn others(&self) -> impl Iterator<Item = usize> + use<> {
        let own = self.own;
        (0..self.shards.len()).filter(move |&core| core != own)
    }

    /// Whether there is room for another request to whichever core.
    pub(crate) fn has_room(&self) -> bool {
        self.lanes.iter().all(|lane| lane.next.bytes.len() < BYTES_MAX)
    }

    pub(crate) fn push(&mut self, core: usize, run: Run, request: &Request<'_>, to: Address) {
        self.lanes[core].next.push(run, request, to);
    }

    /// Sends what has come together, where nothing is under way.
    pub(crate) fn send(&mut self) {
        for (core, lane) in self.lanes.iter_mut().enumerate() {
            if lane.next.len() > 0
                && let Some(other) = lane.other.take()
            {
                let batch = std::mem::replace(&mut lane.next, other);
                send(&self.shards[core], batch, self.own);
            }
        }
    }

    /// A batch has come back, and its answers have been taken.
    pub(crate) fn has_returned(&mut self, core: usize, mut batch: Box<Batch>) {
        if batch.is_done() {
            batch.clear();
            self.lanes[core].other = Some(batch);
        } else {
            batch.answers.clear();
            send(&self.shards[core], batch, self.own);
        }
    }

    fn return_to(&self, from: usize, answered: Box<Batch>) {
        let core = self.own;
        let _ =
            self.shards[from].try_run(move || here::with(|here| here.take_back(core, answered)));
    }
}

/// Two words, stored in place. A core that has ended takes nothing more, and all of them end together.
fn send(shard: &ShardRef, batch: Box<Batch>, from: usize) {
    let _ = shard.try_run(move || serve(batch, from));
}

/// Runs on the core that the batch was sent to.
fn serve(mut batch: Box<Batch>, from: usize) {
    here::with(|here| {
        batch.carry_out(&mut here.keys.borrow_mut());
        here.count_served(batch.answered - batch.before);
        here.crossing.borrow().return_to(from, batch);
    });
}
