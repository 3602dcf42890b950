//! A wheel that only its owner touches, and a channel by which others ask it to cancel. They get no answer: the timer
//! may have fired, or fire before the request is read. In virtual time.

use std::sync::mpsc::{self, Receiver, Sender};

use super::{Crossing, tick};
use crate::timers::{Payload, Timers};

/// `channel`.
#[derive(Debug)]
pub struct Channel<T: Timers> {
    timers: T,
    to_other: Sender<T::Handle>,
    requests: Receiver<T::Handle>,
    added: u64,
}

impl<T: Timers> Crossing for Channel<T>
where
    T::Handle: Send + 'static,
{
    type Handle = T::Handle;
    type Seed = (Sender<T::Handle>, Receiver<T::Handle>);

    fn seeds(_: usize) -> [Self::Seed; 2] {
        let [(to_first, of_first), (to_second, of_second)] = [(); 2].map(|()| mpsc::channel());
        [(to_second, of_first), (to_first, of_second)]
    }

    fn new((to_other, requests): Self::Seed) -> Self {
        Self { timers: T::new(), to_other, requests, added: 0 }
    }

    fn add(&mut self, delay: u64, payload: Payload) -> T::Handle {
        self.added += 1;
        self.timers.add(tick(self.added) + delay, payload)
    }

    fn cancel(&mut self, handle: T::Handle) -> bool {
        self.to_other.send(handle).expect("the other end is there");
        true
    }

    fn turn(&mut self) -> u64 {
        self.timers.advance(tick(self.added), |payload| unreachable!("{payload:?} is not due"));
        let mut taken_in = 0;
        for handle in self.requests.try_iter() {
            assert!(self.timers.cancel(&handle), "it was live");
            taken_in += 1;
        }
        taken_in
    }
}
