//! One core of the server: a runtime that drives the core's wheel, its keys, its connections, and
//! the requests that travel between the cores.
//!
//! ```text
//! core of the connection                        core of the keys
//!   requests of a batch -- ShardRef::try_run -->  executes them in order
//!   the connection's task <------ oneshot ------  all answers together
//! ```
//!
//! Turns have a budget, so requests are executed even while a million timers are due.

use std::cell::{Cell, OnceCell, RefCell};
use std::convert::identity;
use std::hash::{BuildHasher, RandomState};
use std::rc::Rc;
use std::time::Duration;
use std::{io, net};

use bytes::Bytes;
use corewheel::future::sleep;
use corewheel::{Cores, ShardRef};
use resp_rs::resp2::Frame;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::spawn_local;

use crate::commands::{self, Route, RunOnKeys};
use crate::common::server::{self, Server};
use crate::keys::Keys;
use crate::{Args, connection};

const TOO_MANY_CLIENTS: &[u8] = b"-ERR max number of clients reached\r\n";
const ACCEPT_RETRY_PAUSE: Duration = Duration::from_millis(10);

/// A command to one core, with the index of its answer.
struct Request {
    number: usize,
    words: Vec<Bytes>,
    run: RunOnKeys,
}

pub(crate) struct Worker {
    index: usize,
    keys: Rc<RefCell<Keys>>,
    /// Hashes keys with a secret to choose their core, so that no client can put all keys on one
    /// core.
    hasher: RandomState,
    shards: Vec<ShardRef>,
    /// The number of other cores' requests that this core has executed.
    served: Cell<u64>,
}

thread_local! {
    static WORKER: OnceCell<Rc<Worker>> = const { OnceCell::new() };
}

/// Starts a worker per core. Each worker returns the number of other cores' requests that it has
/// executed.
pub(crate) fn start(args: &Args, port: u16) -> io::Result<Server<u64>> {
    let (hasher, args) = (RandomState::new(), args.clone());
    let (address, listeners) = server::open_listeners(port, args.options.cores())?;
    Server::start(Cores::builder(), address, listeners, move |core, listener| {
        let keys = Keys::new(args.max_keys.div_ceil(core.shards().len()));
        let (index, shards, hasher) = (core.index(), core.shards().to_vec(), hasher.clone());
        let worker = Rc::new(Worker { index, keys, hasher, shards, served: Cell::new(0) });
        WORKER.with(|place| place.set(Rc::clone(&worker)).ok().expect("a new thread"));
        corewheel_tokio::run(async {
            tokio::select! {
                () = core.stopped() => Ok(worker.served.get()),
                end = accept(listener, &worker, &args) => end,
            }
        })?
    })
}

async fn accept(listener: net::TcpListener, worker: &Rc<Worker>, args: &Args) -> io::Result<u64> {
    let (listener, clients) = (TcpListener::from_std(listener)?, Rc::new(()));
    let idle = Duration::from_secs(args.idle_seconds);
    loop {
        // After a failed accept, the core continues to serve other clients.
        let Ok((mut stream, _)) = listener.accept().await else {
            sleep(ACCEPT_RETRY_PAUSE).await;
            continue;
        };
        let (worker, client) = (Rc::clone(worker), Rc::clone(&clients));
        let is_full =
            Rc::strong_count(&client) - 2 >= args.max_clients.div_ceil(worker.shards.len());
        spawn_local(async move {
            // Fails if the client has disconnected or was idle.
            let _ = if is_full {
                stream.write_all(TOO_MANY_CLIENTS).await
            } else {
                connection::serve(stream, &worker, idle).await
            };
            drop(client);
        });
    }
}

impl Worker {
    /// Executes each command on the cores of its [`Route`]. Returns the answers in order.
    pub(crate) async fn answer_commands(&self, commands: &[Vec<Bytes>]) -> Vec<Frame> {
        let cores = self.shards.len();
        let mut answers = vec![None; commands.len()];
        let mut outgoing: Vec<Vec<Request>> = self.shards.iter().map(|_| Vec::new()).collect();
        for (number, words) in commands.iter().enumerate() {
            let (cores, run) = match commands::route(words) {
                Err(refused) => {
                    answers[number] = Some(refused);
                    continue;
                }
                Ok(Route::ThisCore(run)) => {
                    answers[number] = Some(run(words));
                    continue;
                }
                Ok(Route::EveryCore(run)) => (0..cores, run),
                Ok(Route::Key(run)) => {
                    let hash = self.hasher.hash_one(&words[1]) >> 32;
                    let core = usize::try_from(hash).unwrap_or_default() % cores;
                    (core..core + 1, run)
                }
            };
            for core in cores {
                outgoing[core].push(Request { number, words: words.clone(), run });
            }
        }
        let mut pending = Vec::new();
        for (core, requests) in outgoing.into_iter().enumerate() {
            if core == self.index {
                merge_answers(&mut answers, self.execute_requests(requests));
            } else if !requests.is_empty() {
                let (sender, answered) = oneshot::channel();
                // Fails if the core has ended. All cores end at the same time.
                let _ = self.shards[core].try_run(move || serve_remote(requests, sender));
                pending.push(answered);
            }
        }
        for answered in pending {
            merge_answers(&mut answers, answered.await.unwrap_or_default());
        }
        answers.into_iter().flatten().collect()
    }

    fn execute_requests(&self, requests: Vec<Request>) -> Vec<(usize, Frame)> {
        let keys = &mut self.keys.borrow_mut();
        let answer =
            |Request { number, words, run }| (number, run(keys, &words).unwrap_or_else(identity));
        requests.into_iter().map(answer).collect()
    }
}

fn serve_remote(requests: Vec<Request>, answers: oneshot::Sender<Vec<(usize, Frame)>>) {
    WORKER.with(|worker| {
        let worker = worker.get().expect("set before the first turn");
        worker.served.update(|served| served + requests.len() as u64);
        // Fails if the client has disconnected.
        let _ = answers.send(worker.execute_requests(requests));
    });
}

/// Merges the answers of one core. Adds integers; other answers of several cores are equal.
fn merge_answers(answers: &mut [Option<Frame>], new_answers: Vec<(usize, Frame)>) {
    for (number, answer) in new_answers {
        answers[number] = Some(match (answers[number].take(), answer) {
            (Some(Frame::Integer(sum)), Frame::Integer(addend)) => Frame::Integer(sum + addend),
            (_, answer) => answer,
        });
    }
}
