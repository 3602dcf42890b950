//! The peer `channel`: only the owner touches its timers, and a requester sends requests to the
//! owner through a channel. The requester numbers the timers that it adds. Requests get no answer,
//! and wake no thread.

use std::fmt::Debug;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

use super::{Owner, Remote, Requests, Resets, Sleeping, Task, TickClock, TurnResult, count_run};
use crate::timers::{Payload, ReportsDeadline, TimerSet};

pub struct Channel<T: TimerSet> {
    timers: T,
    ticks: TickClock,
    requests: Receiver<Request<T::Handle>>,
    /// The timers that the requester added, by number.
    handles_by_number: Vec<Option<T::Handle>>,
    is_behind: bool,
}

#[derive(Clone, Debug)]
pub struct Requester<H> {
    requests: Sender<Request<H>>,
    ticks: TickClock,
    /// Numbers of cancelled timers, for reuse.
    free_numbers: Vec<usize>,
    next_number: usize,
}

#[derive(Clone, Debug)]
pub enum TimerId<H> {
    Own(H),
    Requested(usize),
}

enum Request<H> {
    Add { number: usize, deadline: u64, payload: Payload },
    Reset { id: TimerId<H>, deadline: u64 },
    Run(Task),
    Cancel(TimerId<H>),
}

impl<T: TimerSet> Channel<T> {
    /// Consumes a request; returns true if it was a cancel.
    fn consume(&mut self, request: Request<T::Handle>) -> bool {
        match request {
            Request::Add { number, deadline, payload } => {
                if number == self.handles_by_number.len() {
                    self.handles_by_number.push(None);
                }
                self.handles_by_number[number] = Some(self.timers.add(deadline, payload));
            }
            Request::Reset { mut id, deadline } => {
                let handle = match &mut id {
                    TimerId::Own(handle) => handle,
                    TimerId::Requested(number) => {
                        self.handles_by_number[*number].as_mut().expect("added")
                    }
                };
                assert!(self.timers.reset(handle, deadline), "the timer is live");
            }
            Request::Run(task) => task(),
            Request::Cancel(id) => {
                let handle = match id {
                    TimerId::Own(handle) => handle,
                    TimerId::Requested(number) => {
                        self.handles_by_number[number].take().expect("added")
                    }
                };
                assert!(self.timers.cancel(&handle), "the timer is live");
                return true;
            }
        }
        false
    }
}

impl<T: TimerSet<Handle: Send + 'static>> Owner for Channel<T> {
    type Handle = TimerId<T::Handle>;
    type Remote = Requester<T::Handle>;

    fn new(_: usize) -> (Self, Self::Remote) {
        let ((sender, requests), ticks) = (mpsc::channel(), TickClock(Instant::now()));
        let requester =
            Requester { requests: sender, ticks, free_numbers: Vec::new(), next_number: 0 };
        let timers = T::new();
        (
            Self { timers, ticks, requests, handles_by_number: Vec::new(), is_behind: false },
            requester,
        )
    }

    fn add(&mut self, delay: Duration, payload: Payload) -> TimerId<T::Handle> {
        TimerId::Own(self.timers.add(self.ticks.deadline(delay), payload))
    }

    fn turn(&mut self, request_budget: usize, on_fire: impl FnMut(Payload)) -> TurnResult {
        self.timers.advance(self.ticks.now(), on_fire);
        let (mut collected, mut left) = (0, request_budget);
        while left > 0
            && let Ok(request) = self.requests.try_recv()
        {
            collected += usize::from(self.consume(request));
            left -= 1;
        }
        self.is_behind = left == 0;
        TurnResult { collected, is_behind: self.is_behind }
    }
}

impl<T: TimerSet<Handle: Send + 'static>> Resets for Channel<T> {
    fn reset(&mut self, id: &mut TimerId<T::Handle>, delay: Duration) -> bool {
        let TimerId::Own(handle) = id else { unreachable!("the owner added the timer") };
        self.timers.reset(handle, self.ticks.deadline(delay))
    }
}

impl<T: ReportsDeadline<Handle: Send + 'static>> Sleeping for Channel<T> {
    const HAS_BUDGET: bool = true;

    fn sleep(&self) {
        if !self.is_behind {
            self.ticks.park_until(self.timers.next_deadline());
        }
    }
}

impl<H: Send> Requester<H> {
    fn request(&self, request: Request<H>) {
        assert!(self.requests.send(request).is_ok(), "the owner receives requests");
    }
}

impl<H: Send> Remote for Requester<H> {
    type Handle = TimerId<H>;

    fn cancel(&mut self, id: TimerId<H>) -> bool {
        if let TimerId::Requested(number) = id {
            self.free_numbers.push(number);
        }
        self.request(Request::Cancel(id));
        true
    }
}

impl<H: Clone + Send> Requests for Requester<H> {
    fn add(&mut self, delay: Duration, payload: Payload) -> TimerId<H> {
        let deadline = self.ticks.deadline(delay);
        let number = self.free_numbers.pop().unwrap_or(self.next_number);
        self.next_number += usize::from(number == self.next_number);
        self.request(Request::Add { number, deadline, payload });
        TimerId::Requested(number)
    }

    fn reset(&mut self, id: &mut TimerId<H>, delay: Duration) -> bool {
        let deadline = self.ticks.deadline(delay);
        self.request(Request::Reset { id: id.clone(), deadline });
        true
    }

    fn run(&mut self, payload: Payload) {
        self.request(Request::Run(Box::new(move || count_run(payload))));
    }
}
