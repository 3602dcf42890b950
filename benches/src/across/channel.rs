//! `channel`: timers that only their owner touches, and a channel of requests. The requester
//! numbers the timers that it adds, and gets no answer: a timer may have fired, or fire before the
//! request is consumed. A request wakes no thread.

use std::fmt::Debug;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

use super::{Owner, Remote, Requests, Sleeping, Task, Ticks, Turned, note};
use crate::timers::{Payload, Timers, Waking};

pub struct Channel<T: Timers> {
    timers: T,
    ticks: Ticks,
    requests: Receiver<Request<T::Handle>>,
    /// The timers of the requester, by number.
    requested: Vec<Option<T::Handle>>,
    is_behind: bool,
}

#[derive(Clone, Debug)]
pub struct Requester<H> {
    requests: Sender<Request<H>>,
    ticks: Ticks,
    /// Numbers of timers that have been cancelled.
    free: Vec<usize>,
    numbers: usize,
}

#[derive(Clone, Debug)]
pub enum Name<H> {
    Own(H),
    Requested(usize),
}

enum Request<H> {
    Add { number: usize, deadline: u64, payload: Payload },
    Reset { name: Name<H>, deadline: u64 },
    Run(Task),
    Cancel(Name<H>),
}

impl<T: Timers> Channel<T> {
    /// Consumes a request; returns true if it was a cancel.
    fn consume(&mut self, request: Request<T::Handle>) -> bool {
        match request {
            Request::Add { number, deadline, payload } => {
                if number == self.requested.len() {
                    self.requested.push(None);
                }
                self.requested[number] = Some(self.timers.add(deadline, payload));
            }
            Request::Reset { mut name, deadline } => {
                let handle = match &mut name {
                    Name::Own(handle) => handle,
                    Name::Requested(number) => self.requested[*number].as_mut().expect("added"),
                };
                assert!(self.timers.reset(handle, deadline), "it is live");
            }
            Request::Run(task) => task(),
            Request::Cancel(name) => {
                let handle = match name {
                    Name::Own(handle) => handle,
                    Name::Requested(number) => self.requested[number].take().expect("added"),
                };
                assert!(self.timers.cancel(&handle), "it is live");
                return true;
            }
        }
        false
    }
}

impl<T: Timers<Handle: Send + 'static>> Owner for Channel<T> {
    type Handle = Name<T::Handle>;
    type Remote = Requester<T::Handle>;

    fn new(_: usize) -> (Self, Self::Remote) {
        let ((sender, requests), ticks) = (mpsc::channel(), Ticks(Instant::now()));
        let requester = Requester { requests: sender, ticks, free: Vec::new(), numbers: 0 };
        let timers = T::new();
        (Self { timers, ticks, requests, requested: Vec::new(), is_behind: false }, requester)
    }

    fn add(&mut self, delay: Duration, payload: Payload) -> Name<T::Handle> {
        Name::Own(self.timers.add(self.ticks.deadline(delay), payload))
    }

    fn turn(&mut self, budget: usize, on_fire: impl FnMut(Payload)) -> Turned {
        self.timers.advance(self.ticks.now(), on_fire);
        let (mut collected, mut left) = (0, budget);
        while left > 0
            && let Ok(request) = self.requests.try_recv()
        {
            collected += usize::from(self.consume(request));
            left -= 1;
        }
        self.is_behind = left == 0;
        Turned { collected, is_behind: self.is_behind }
    }
}

impl<T: Waking<Handle: Send + 'static>> Sleeping for Channel<T> {
    const HAS_BUDGET: bool = true;

    fn sleep(&self) {
        if !self.is_behind {
            self.ticks.park_until(self.timers.next_deadline());
        }
    }
}

impl<H: Send> Requester<H> {
    fn request(&self, request: Request<H>) {
        assert!(self.requests.send(request).is_ok(), "the owner is there");
    }
}

impl<H: Send> Remote for Requester<H> {
    type Handle = Name<H>;

    fn cancel(&mut self, name: Name<H>) -> bool {
        if let Name::Requested(number) = name {
            self.free.push(number);
        }
        self.request(Request::Cancel(name));
        true
    }
}

impl<H: Clone + Send> Requests for Requester<H> {
    fn add(&mut self, delay: Duration, payload: Payload) -> Name<H> {
        let deadline = self.ticks.deadline(delay);
        let number = self.free.pop().unwrap_or(self.numbers);
        self.numbers += usize::from(number == self.numbers);
        self.request(Request::Add { number, deadline, payload });
        Name::Requested(number)
    }

    fn reset(&mut self, name: &mut Name<H>, delay: Duration) -> bool {
        let deadline = self.ticks.deadline(delay);
        self.request(Request::Reset { name: name.clone(), deadline });
        true
    }

    fn run(&mut self, payload: Payload) {
        self.request(Request::Run(Box::new(move || note(payload))));
    }
}
