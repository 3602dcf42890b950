//! A wheel that only its owner touches, and a channel. Who asks names a timer by a number of its own, and gets no answer. In
//! virtual time.

use std::sync::mpsc::{self, Receiver, Sender};

use super::{Asker, Owner, Task, ran, tick};
use crate::timers::{Payload, Timers};

/// `channel`.
#[derive(Debug)]
pub struct Channel<T: Timers> {
    timers: T,
    /// By number.
    handles: Vec<Option<T::Handle>>,
    requests: Receiver<Request>,
    turns: u64,
}

/// Who asks it.
#[derive(Debug)]
pub struct ChannelAsker {
    requests: Sender<Request>,
    /// Numbers of timers that have been cancelled.
    free: Vec<usize>,
    /// Numbers so far.
    numbers: usize,
}

#[derive(Debug)]
enum Request {
    Add { number: usize, delay: u64, payload: Payload },
    Reset { number: usize, delay: u64 },
    Run(Task),
    Cancel { number: usize },
}

impl<T: Timers> Channel<T> {
    fn deal_with(&mut self, request: Request) {
        let now = tick(self.turns);
        match request {
            Request::Add { number, delay, payload } => {
                if number == self.handles.len() {
                    self.handles.push(None);
                }
                self.handles[number] = Some(self.timers.add(now + delay, payload));
            }
            Request::Reset { number, delay } => {
                let handle = self.handles[number].as_mut().expect("it was added");
                assert!(self.timers.reset(handle, now + delay), "it is live");
            }
            Request::Run(task) => task.run(),
            Request::Cancel { number } => {
                let handle = self.handles[number].take().expect("it was added");
                assert!(self.timers.cancel(&handle), "it is live");
            }
        }
    }
}

impl<T: Timers> Owner for Channel<T> {
    type Asker = ChannelAsker;

    fn new() -> (Self, ChannelAsker) {
        let (sender, requests) = mpsc::channel();
        let asker = ChannelAsker { requests: sender, free: Vec::new(), numbers: 0 };
        (Self { timers: T::new(), handles: Vec::new(), requests, turns: 0 }, asker)
    }

    fn turn(&mut self, runs: u64) {
        self.turns += 1;
        while let Ok(request) = self.requests.try_recv() {
            self.deal_with(request);
        }
        self.timers.advance(tick(self.turns), |payload| unreachable!("{payload:?} is not due"));
        assert_eq!(ran(), runs, "it takes in all");
    }
}

impl ChannelAsker {
    fn send(&self, request: Request) {
        self.requests.send(request).expect("the owner is there");
    }
}

impl Asker for ChannelAsker {
    type Handle = usize;

    fn add(&mut self, delay: u64, payload: Payload) -> usize {
        let number = self.free.pop().unwrap_or(self.numbers);
        self.numbers += usize::from(number == self.numbers);
        self.send(Request::Add { number, delay, payload });
        number
    }

    fn reset(&mut self, &mut number: &mut usize, delay: u64) -> bool {
        self.send(Request::Reset { number, delay });
        true
    }

    fn run(&mut self, payload: Payload) {
        self.send(Request::Run(Task::new(payload)));
    }

    fn cancel(&mut self, number: usize) -> bool {
        self.send(Request::Cancel { number });
        self.free.push(number);
        true
    }
}
