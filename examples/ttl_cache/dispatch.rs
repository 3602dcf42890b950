//! Sends each command where it belongs: to the keys of this core, to those of others, or to no keys at all.

use std::hash::{BuildHasher, RandomState};

use crate::commands::{self, Request, Route, Run};
use crate::crossing::{Address, Crossing};
use crate::gather::Kind;
use crate::keys::Keys;
use crate::replies::Replies;
use crate::reply::{Refused, Reply};
use crate::resp::Words;
use crate::session::{After, Service};

/// What the commands of a connection need.
pub(crate) struct Dispatch<'a> {
    pub(crate) keys: &'a mut Keys,
    pub(crate) crossing: &'a mut Crossing,
    pub(crate) hasher: &'a RandomState,
    pub(crate) service: &'a Service,
    /// Whose they are: its key, and who it is.
    pub(crate) connection: (usize, u64),
}

impl Dispatch<'_> {
    /// Whether there is room for another request to whichever core.
    pub(crate) fn has_room(&self) -> bool {
        self.crossing.has_room()
    }

    /// Carries a command out as far as that can be done here; the answer comes to `replies`, now or later.
    pub(crate) fn command(&mut self, words: Words<'_>, replies: &mut Replies) -> After {
        if words.len() == 0 {
            return After::Stay;
        }
        match commands::find(words).map(|command| command.route) {
            Err(refused) => refuse(&refused, replies),
            Ok(Route::Here(run)) => {
                let mut after = Ok(After::Stay);
                replies.write(|out| after = run(self.service, words, &mut Reply(out)));
                return after.unwrap_or_else(|refused| {
                    refuse(&refused, replies);
                    After::Stay
                });
            }
            Ok(Route::Key(run)) => self.about_key(run, words, replies),
            Ok(Route::EachKey(run, step, kind)) => {
                self.about_each_key(run, step, kind, words, replies)
            }
            Ok(Route::EveryCore(run, kind)) => self.about_every_core(run, kind, words, replies),
        }
        After::Stay
    }

    fn about_key(&mut self, run: Run, words: Words<'_>, replies: &mut Replies) {
        let request = self.request(words);
        match self.crossing.elsewhere(request.hash) {
            None => replies.write(|out| commands::answer(run, self.keys, &request, out)),
            Some(core) => {
                let to = self.address(replies.promise(Kind::One, 1), 0);
                self.crossing.push(core, run, &request, to);
            }
        }
    }

    fn about_each_key(
        &mut self,
        run: Run,
        step: usize,
        kind: Kind,
        words: Words<'_>,
        replies: &mut Replies,
    ) {
        let (name, rest) = (words.spans()[0], &words.spans()[1..]);
        let answer = replies.promise(kind, rest.len() / step);
        for (part, spans) in rest.chunks_exact(step).enumerate() {
            let mut own = [name; 3];
            own[1..=step].copy_from_slice(spans);
            let request = self.request(words.with(&own[..=step]));
            match self.crossing.elsewhere(request.hash) {
                None => self.answer_here(run, &request, replies, (answer, part)),
                Some(core) => self.crossing.push(core, run, &request, self.address(answer, part)),
            }
        }
    }

    fn about_every_core(&mut self, run: Run, kind: Kind, words: Words<'_>, replies: &mut Replies) {
        let answer = replies.promise(kind, self.crossing.cores());
        let request = Request { words, hash: 0 };
        for (core, part) in self.crossing.others().zip(1..) {
            self.crossing.push(core, run, &request, self.address(answer, part));
        }
        self.answer_here(run, &request, replies, (answer, 0));
    }

    /// A part of an answer that other cores have parts of.
    fn answer_here(
        &mut self,
        run: Run,
        request: &Request<'_>,
        replies: &mut Replies,
        to: (u64, usize),
    ) {
        let mut bytes = Vec::new();
        commands::answer(run, self.keys, request, &mut bytes);
        replies.deliver(to.0, to.1, &bytes);
    }

    fn request<'a>(&self, words: Words<'a>) -> Request<'a> {
        Request { words, hash: self.hasher.hash_one(words.word(1)) }
    }

    fn address(&self, answer: u64, part: usize) -> Address {
        let (connection, id) = self.connection;
        Address { connection, id, answer, part }
    }
}

fn refuse(refused: &Refused, replies: &mut Replies) {
    replies.write(|out| Reply(out).error(refused));
}
