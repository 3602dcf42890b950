//! Runs random tasks that share and move sleeps with `tokio::time` and with
//! `corewheel_tokio::time`, in virtual time, and compares the order of all steps of all tasks.
#![cfg(any(target_os = "linux", target_os = "android"))]

mod common;

/// The milliseconds since the start, the task, the name of the step, and the result.
type Step = (u128, u64, &'static str, u64);
type Log = common::Log<Step>;

/// Defines a module whose `run` runs the tasks of a seed on `$time`, and logs their steps.
macro_rules! tasks_of {
    ($module:ident, $time:path) => {
        mod $module {
            use std::{
                collections::HashSet,
                future::poll_fn,
                pin::Pin,
                sync::{Arc, Mutex},
                task::Poll,
            };

            use fastrand::Rng;
            use tokio::{
                sync::Notify,
                task::{AbortHandle, JoinSet},
            };
            use $time as time;
            use $time::{Duration, Instant, Sleep};

            use super::Log;

            type BoxedSleep = Pin<Box<Sleep>>;

            /// The part of the tasks that all tasks share.
            struct Shared {
                start: Instant,
                /// The milliseconds of all deadlines. Each deadline has its own millisecond,
                /// because the order within a millisecond is unspecified.
                used_millis: Mutex<HashSet<u128>>,
                /// Sleeps that any task may take, await or drop.
                idle_sleeps: Mutex<Vec<BoxedSleep>>,
                /// Sleeps that a task awaits, and that other tasks reset.
                awaited_sleeps: Mutex<Vec<Arc<Mutex<BoxedSleep>>>>,
                notify: Notify,
                log: Log,
            }

            struct Task {
                number: u64,
                random: Rng,
                shared: Arc<Shared>,
                is_local: bool,
            }

            pub(crate) async fn run(seed: u64, log: Log) {
                let shared = Arc::new(Shared {
                    start: Instant::now(),
                    used_millis: Mutex::default(),
                    idle_sleeps: Mutex::default(),
                    awaited_sleeps: Mutex::default(),
                    notify: Notify::new(),
                    log,
                });
                let mut tasks = JoinSet::new();
                for number in 0..8 {
                    let (random, shared) = (Rng::with_seed(seed << 8 | number), Arc::clone(&shared));
                    let mut task = Task { number, random, shared, is_local: seed % 2 == 0 };
                    let is_local = task.is_local;
                    let steps = async move {
                        for _ in 0..15 {
                            task.step().await;
                        }
                        task.number
                    };
                    spawn(&mut tasks, is_local, steps);
                }
                tasks.join_all().await;
            }

            fn spawn(
                tasks: &mut JoinSet<u64>,
                is_local: bool,
                task: impl Future<Output = u64> + Send + 'static,
            ) -> AbortHandle {
                if is_local { tasks.spawn_local(task) } else { tasks.spawn(task) }
            }

            async fn poll_shared(sleep: &Mutex<BoxedSleep>) {
                poll_fn(|cx| sleep.lock().unwrap().as_mut().poll(cx)).await;
            }

            impl Task {
                fn log(&self, step: &'static str, result: u64) {
                    let millis = self.shared.start.elapsed().as_millis();
                    self.shared.log.lock().unwrap().push((millis, self.number, step, result));
                }

                /// Returns an instant in the future that no other deadline has.
                fn instant(&mut self) -> Instant {
                    let longest = [10, 100, 100, 5_000, 100_000][self.random.usize(0..5)];
                    let now = self.shared.start.elapsed().as_millis();
                    let mut delay = self.random.u64(1..longest);
                    let mut used_millis = self.shared.used_millis.lock().unwrap();
                    while !used_millis.insert(now + u128::from(delay)) {
                        delay += 1;
                    }
                    Instant::now() + Duration::from_millis(delay)
                }

                fn sleep(&mut self) -> BoxedSleep {
                    Box::pin(time::sleep(self.instant() - Instant::now()))
                }

                async fn step(&mut self) {
                    match self.random.u8(0..10) {
                        0 => {
                            self.sleep().await;
                            self.log("sleep", 0);
                        }
                        1 => {
                            let (limit, work) = (self.instant(), self.sleep());
                            let result = time::timeout_at(limit, work).await;
                            self.log("timeout", result.is_ok().into());
                        }
                        2 => {
                            let limit = self.instant() - Instant::now();
                            let shared = Arc::clone(&self.shared);
                            let result = time::timeout(limit, shared.notify.notified()).await;
                            self.log("notified", result.is_ok().into());
                        }
                        3 => self.shared.notify.notify_one(),
                        4 => self.select().await,
                        5 => self.join().await,
                        6 | 7 => self.take_idle().await,
                        8 => {
                            let sleep = Arc::new(Mutex::new(self.sleep()));
                            self.shared.awaited_sleeps.lock().unwrap().push(Arc::clone(&sleep));
                            poll_shared(&sleep).await;
                            self.log("awaited", sleep.lock().unwrap().is_elapsed().into());
                        }
                        _ => {
                            let instant = self.instant();
                            let awaited_sleeps = self.shared.awaited_sleeps.lock().unwrap();
                            if !awaited_sleeps.is_empty() {
                                let index = self.random.usize(0..awaited_sleeps.len());
                                awaited_sleeps[index].lock().unwrap().as_mut().reset(instant);
                            }
                        }
                    }
                }

                async fn select(&mut self) {
                    let [mut first, mut second, mut third] = [(); 3].map(|()| self.sleep());
                    for _ in 0..self.random.u8(1..6) {
                        let selected = tokio::select! {
                            () = &mut first => { first.as_mut().reset(self.instant()); 1 }
                            () = &mut second => { second = self.sleep(); 2 }
                            () = &mut third => { second.as_mut().reset(self.instant()); third = self.sleep(); 3 }
                        };
                        self.log("select", selected);
                    }
                    self.shared.idle_sleeps.lock().unwrap().push(first);
                }

                async fn join(&mut self) {
                    let (mut tasks, mut aborts) = (JoinSet::new(), Vec::new());
                    for number in 0..self.random.u64(1..6) {
                        let sleep = self.sleep();
                        let task = async move {
                            sleep.await;
                            number
                        };
                        aborts.push(spawn(&mut tasks, self.is_local, task));
                    }
                    while !tasks.is_empty() {
                        match time::timeout_at(self.instant(), tasks.join_next()).await {
                            Ok(joined) => self.log("joined", joined.unwrap().unwrap_or(u64::MAX)),
                            Err(_) => aborts[self.random.usize(0..aborts.len())].abort(),
                        }
                    }
                }

                /// Takes an idle sleep, which another task may have polled, or makes one.
                async fn take_idle(&mut self) {
                    let idle = self.shared.idle_sleeps.lock().unwrap().pop();
                    let mut sleep = idle.unwrap_or_else(|| self.sleep());
                    if self.random.bool() || sleep.deadline() <= Instant::now() {
                        sleep.as_mut().reset(self.instant());
                    }
                    if self.random.bool() {
                        let is_ready = |poll: Poll<()>| Poll::Ready(poll.is_ready());
                        let ready = poll_fn(|cx| is_ready(sleep.as_mut().poll(cx))).await;
                        self.log("polled", ready.into());
                    }
                    match self.random.u8(0..3) {
                        0 => drop(sleep),
                        1 => self.shared.idle_sleeps.lock().unwrap().push(sleep),
                        _ => {
                            sleep.await;
                            self.log("taken", 0);
                        }
                    }
                }
            }
        }
    };
}

tasks_of!(corewheel, corewheel_tokio::time);
tasks_of!(tokio_time, tokio::time);

#[test]
fn random_tasks_run_in_the_order_of_tokio() {
    for seed in 0..100 {
        common::assert_equal_logs(seed, corewheel::run, tokio_time::run, Step::eq);
    }
}
