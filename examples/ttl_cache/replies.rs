//! What a client is owed, in the order in which it has asked: answers that are there go out behind those that are
//! still to come from other cores.

use std::collections::VecDeque;

use crate::gather::{Gather, Kind};

/// See the module.
#[derive(Debug)]
pub(crate) struct Replies {
    /// What can be sent, and how much of it has been.
    out: Vec<u8>,
    sent: usize,
    /// What cannot, because its beginning is not there.
    waiting: VecDeque<Slot>,
    /// The number of the first of these.
    first: u64,
    /// Bytes in them.
    held: usize,
    /// About how long the longest of the last answers from other cores was: at first that is not known.
    longest: usize,
}

#[derive(Debug)]
enum Slot {
    Ready(Vec<u8>),
    Missing(Gather),
}

/// How many answers may wait for other cores, or behind those that do: the fewer, the longer they are, as so many bytes
/// may come at once.
const WAITING: std::ops::RangeInclusive<usize> = 8..=256;
const WAITING_BYTES: usize = 4 << 20;

/// Room for what is sent next; a buffer that had more is given back when it is empty.
const OUT_KEPT: usize = 64 << 10;

impl Replies {
    pub(crate) fn new() -> Self {
        let longest = WAITING_BYTES / WAITING.start();
        Self { out: Vec::new(), sent: 0, waiting: VecDeque::new(), first: 0, held: 0, longest }
    }

    /// Whether nothing is owed.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.unsent().is_empty()
    }

    /// Whether another answer may wait.
    pub(crate) fn has_room(&self) -> bool {
        self.waiting.len()
            < (WAITING_BYTES / self.longest.max(1)).clamp(*WAITING.start(), *WAITING.end())
    }

    /// How many bytes are there and have not been sent.
    pub(crate) fn owed(&self) -> usize {
        self.unsent().len() + self.held
    }

    /// Has an answer written that is there.
    pub(crate) fn write(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        if self.waiting.is_empty() {
            return write(&mut self.out);
        }
        if !matches!(self.waiting.back(), Some(Slot::Ready(_))) {
            self.waiting.push_back(Slot::Ready(Vec::new()));
        }
        if let Some(Slot::Ready(bytes)) = self.waiting.back_mut() {
            let before = bytes.len();
            write(bytes);
            self.held += bytes.len() - before;
        }
    }

    /// Keeps the place of an answer that comes later; its number.
    pub(crate) fn promise(&mut self, kind: Kind, parts: usize) -> u64 {
        self.waiting.push_back(Slot::Missing(Gather::new(kind, parts)));
        self.first + self.waiting.len() as u64 - 1
    }

    /// Part of an answer has come.
    pub(crate) fn deliver(&mut self, number: u64, part: usize, answer: &[u8]) {
        let place = number.checked_sub(self.first).and_then(|place| usize::try_from(place).ok());
        let Some(place) = place else { return };
        let Some(Slot::Missing(gather)) = self.waiting.get_mut(place) else { return };
        self.longest = answer.len().max(self.longest - self.longest / 8);
        if place == 0 && gather.is_one() {
            self.out.extend_from_slice(answer);
            self.pop();
        } else {
            self.held -= gather.held();
            gather.take_in(part, answer);
            self.held += gather.held();
        }
        self.settle();
    }

    /// Moves what need not wait any more.
    fn settle(&mut self) {
        while let Some(slot) = self.waiting.front() {
            match slot {
                Slot::Ready(bytes) => {
                    self.held -= bytes.len();
                    self.out.extend_from_slice(bytes);
                }
                Slot::Missing(gather) if gather.is_complete() => {
                    self.held -= gather.held();
                    gather.write(&mut self.out);
                }
                Slot::Missing(_) => return,
            }
            self.pop();
        }
    }

    fn pop(&mut self) {
        self.waiting.pop_front();
        self.first += 1;
    }

    pub(crate) fn unsent(&self) -> &[u8] {
        &self.out[self.sent..]
    }

    /// So many bytes have been sent.
    pub(crate) fn sent(&mut self, bytes: usize) {
        self.sent += bytes;
        if self.sent == self.out.len() {
            self.sent = 0;
            self.out.clear();
            self.out.shrink_to(OUT_KEPT);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Replies;
    use crate::gather::Kind;

    #[test]
    fn answers_go_out_in_the_order_of_the_questions() {
        let mut replies = Replies::new();
        replies.write(|out| out.extend_from_slice(b"a"));
        let b = replies.promise(Kind::One, 1);
        replies.write(|out| out.extend_from_slice(b"c"));
        replies.write(|out| out.extend_from_slice(b"d"));
        let e = replies.promise(Kind::One, 1);
        let f = replies.promise(Kind::Sum, 2);
        replies.write(|out| out.extend_from_slice(b"g"));
        assert_eq!(replies.unsent(), b"a");
        replies.deliver(f, 1, b":1\r\n");
        replies.deliver(e, 0, b"e");
        assert_eq!((replies.unsent(), replies.owed()), (b"a".as_slice(), 5));
        replies.deliver(b, 0, b"b");
        assert_eq!((replies.unsent(), replies.owed()), (b"abcde".as_slice(), 6));
        replies.sent(5);
        replies.deliver(f, 0, b":2\r\n");
        assert_eq!((replies.unsent(), replies.owed()), (b":3\r\ng".as_slice(), 5));
        replies.sent(5);
        assert!(replies.is_empty());
    }

    #[test]
    fn what_was_never_asked_is_nobodys_answer() {
        let mut replies = Replies::new();
        replies.deliver(7, 0, b"x");
        assert!(replies.is_empty());
    }
}
