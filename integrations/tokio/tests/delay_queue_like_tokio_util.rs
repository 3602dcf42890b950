//! Calls `DelayQueue` and tokio-util's `DelayQueue` at random, in virtual time, and compares the
//! results. Also checks that both queues wake the polling task when it must poll again.
#![cfg(any(target_os = "linux", target_os = "android"))]

mod common;
#[path = "../../../tests/common/polling.rs"]
mod polling;

/// The name of the step, the milliseconds since the start, and the result.
type Step = (&'static str, u128, u128);
type Log = common::Log<Step>;

/// A logged result of tokio-util that equals any result of corewheel.
const ANY_RESULT: u128 = u128::MAX;

/// Defines a module whose `run` makes the calls of a seed, and logs their results.
macro_rules! calls_of {
    ($module:ident, $time:path, $delay_queue:path) => {
        mod $module {
            use std::{
                panic::{AssertUnwindSafe, catch_unwind},
                task::Poll,
            };

            use fastrand::Rng;
            use $delay_queue::{DelayQueue, Expired, Key};
            use $time as time;
            use $time::{Duration, Instant};

            use super::{ANY_RESULT, Log, polling::Poller};

            struct Entry {
                value: u128,
                key: Key,
                when: Instant,
                /// The millisecond of `when`, or the later one that a poll had reached when the
                /// entry was set.
                millis: u128,
            }

            struct RandomCaller {
                start: Instant,
                random: Rng,
                log: Log,
                queue: DelayQueue<u128>,
                live: Vec<Entry>,
                stale: Vec<Key>,
                /// True if entries may expire in the same millisecond, in any order.
                has_equal_deadlines: bool,
                /// The millisecond that the latest poll has reached.
                reached_millis: u128,
                /// The poller that made the latest poll.
                poller: Poller,
                is_pending: bool,
                /// True if the latest poll returned `Ready(None)`.
                returned_none: bool,
            }

            pub(crate) async fn run(seed: u64, log: Log) {
                let mut caller = RandomCaller {
                    start: Instant::now(),
                    random: Rng::with_seed(seed),
                    log,
                    queue: DelayQueue::new(),
                    live: Vec::new(),
                    stale: Vec::new(),
                    has_equal_deadlines: seed % 2 == 0,
                    reached_millis: 0,
                    poller: Poller::new(),
                    is_pending: false,
                    returned_none: false,
                };
                // The order of deadlines before the first call is unspecified.
                caller.take();
                // One queue lives longer than the others.
                let steps = if seed == 1 { 2_000 } else { 60 };
                for value in 0..steps {
                    caller.step(value).await;
                    // Lets the timers fire.
                    time::advance(Duration::ZERO).await;
                    assert_eq!(caller.queue.is_empty(), caller.live.is_empty());
                    caller.log("len", caller.queue.len() as u128);
                }
            }

            fn panics<R>(call: impl FnOnce() -> R) -> bool {
                catch_unwind(AssertUnwindSafe(call)).is_err()
            }

            impl RandomCaller {
                fn log(&self, step: &'static str, result: u128) {
                    let millis = self.start.elapsed().as_millis();
                    self.log.lock().unwrap().push((step, millis, result));
                }

                /// Returns a deadline, which is sometimes in the past, and its `millis`.
                fn deadline(&mut self) -> (Instant, u128) {
                    loop {
                        let delay = match self.random.u8(0..8) {
                            0..4 => self.random.u64(0..20_000),
                            4 => self.random.u64(0..300) * 1_000,
                            5 => self.random.u64(0..6_000_000),
                            6 => self.random.u64(0..31_536_000_000_000),
                            _ => 0,
                        };
                        let past = Duration::from_millis(self.random.u64(0..50));
                        let mut when = Instant::now() + Duration::from_micros(delay);
                        if self.random.u8(0..4) == 0 {
                            when -= past.min(when - self.start);
                        }
                        let millis = (when - self.start).as_micros().div_ceil(1_000);
                        let millis = millis.max(self.reached_millis);
                        if self.has_equal_deadlines
                            || self.live.iter().all(|entry| entry.millis != millis)
                        {
                            return (when, millis);
                        }
                    }
                }

                /// Polls with another waker. Checks that the waker of the latest poll was called if
                /// its task had to poll again.
                fn poll(&mut self) -> Poll<Option<Expired<u128>>> {
                    let was_woken = self.poller.wake_count() > 0;
                    self.poller = Poller::new();
                    let poll = self.queue.poll_expired(&mut self.poller.context());
                    let must_wake = self.is_pending && poll.is_ready()
                        || self.returned_none && !matches!(poll, Poll::Ready(None));
                    assert!(was_woken || !must_wake, "not woken before {poll:?}");
                    self.is_pending = poll.is_pending();
                    self.returned_none = matches!(poll, Poll::Ready(None));
                    poll
                }

                /// Takes an entry. Logs its millisecond and, unless deadlines can be equal, its
                /// value. Returns false if no entry has expired.
                fn take(&mut self) -> bool {
                    let poll = self.poll();
                    let Poll::Ready(Some(expired)) = poll else {
                        self.reached_millis = self.start.elapsed().as_millis();
                        self.log("nothing", poll.is_pending().into());
                        return false;
                    };
                    let is_taken = |entry: &Entry| entry.key == expired.key();
                    let index = self.live.iter().position(is_taken).expect("a live key");
                    let entry = self.live.remove(index);
                    assert_eq!(entry.value, expired.into_inner());
                    assert!(entry.when <= Instant::now(), "early");
                    assert!(self.live.iter().all(|other| entry.millis <= other.millis), "order");
                    self.reached_millis = entry.millis;
                    self.stale.push(entry.key);
                    self.log("millis", entry.millis);
                    if !self.has_equal_deadlines {
                        self.log("value", entry.value);
                    }
                    true
                }

                fn call_with_stale_key(&mut self, key: Key) {
                    let (call, queue) = (self.random.u8(0..16), &mut self.queue);
                    let is_rejected = match call {
                        _ if self.live.iter().any(|entry| entry.key == key) => ANY_RESULT,
                        0 => panics(|| queue.remove(&key)).into(),
                        1 => panics(|| queue.reset(&key, Duration::ZERO)).into(),
                        _ => queue.try_remove(&key).is_none().into(),
                    };
                    self.log("stale", is_rejected);
                }

                async fn step(&mut self, value: u128) {
                    let chosen = self.random.usize(0..self.live.len().max(1));
                    let chosen_key = self.live.get(chosen).map(|entry| entry.key);
                    match (self.random.u8(0..20), chosen_key) {
                        (0..6, _) => {
                            let (when, millis) = self.deadline();
                            let key = match when.checked_duration_since(Instant::now()) {
                                Some(delay) => self.queue.insert(value, delay),
                                None => self.queue.insert_at(value, when),
                            };
                            self.live.push(Entry { value, key, when, millis });
                        }
                        (6 | 7, Some(key)) => {
                            let (when, millis) = self.deadline();
                            self.queue.reset_at(&key, when);
                            (self.live[chosen].when, self.live[chosen].millis) = (when, millis);
                        }
                        (8, Some(key)) => {
                            assert_eq!(self.queue.remove(&key).key(), key);
                            self.live.remove(chosen);
                            self.stale.push(key);
                        }
                        (9, _) if value % 8 == 0 => {
                            self.queue.clear();
                            self.stale.extend(self.live.drain(..).map(|entry| entry.key));
                        }
                        (9 | 10, _) => {
                            let first = self.queue.peek();
                            let first = self.live.iter().find(|entry| Some(entry.key) == first);
                            self.log("peek", first.map_or(ANY_RESULT, |entry| entry.millis));
                        }
                        (11, _) => self.queue.compact(),
                        (12, _) if !self.stale.is_empty() => {
                            let key = self.stale[self.random.usize(0..self.stale.len())];
                            self.call_with_stale_key(key);
                        }
                        (13 | 14, _) if !self.has_equal_deadlines => _ = self.take(),
                        (13..17, _) => while self.take() {},
                        (17, _) => {
                            let seconds = 1 << self.random.u32(0..24);
                            time::advance(Duration::from_secs(self.random.u64(0..seconds))).await;
                        }
                        _ => time::advance(Duration::from_millis(self.random.u64(0..40))).await,
                    }
                }
            }
        }
    };
}

calls_of!(corewheel, corewheel_tokio::time, corewheel_tokio::time::delay_queue);
calls_of!(tokio_util_queue, tokio::time, tokio_util::time::delay_queue);

#[test]
fn random_queue_calls_give_the_results_of_tokio_util() {
    let is_equal = |ours: &Step, theirs: &Step| ours == theirs || theirs.2 == ANY_RESULT;
    for seed in 0..100 {
        common::assert_equal_logs(seed, corewheel::run, tokio_util_queue::run, is_equal);
    }
}
