//! Runs random tasks with `tokio::time` and with `corewheel_tokio::time`, in virtual time, and
//! compares the times and results of all steps.
#![cfg(any(target_os = "linux", target_os = "android"))]

mod common;

/// The task, the name of the step, the milliseconds since the start, and the result.
type Step = (u64, &'static str, u128, u128);
type Log = common::Log<Step>;

/// Defines a module whose `run` runs the tasks of a seed on `$time`, and logs their steps.
macro_rules! tasks_of {
    ($module:ident, $time:path) => {
        mod $module {
            use std::{
                future::poll_fn,
                pin::{Pin, pin},
                sync::Arc,
                task::Poll,
            };

            use fastrand::Rng;
            use tokio::task;
            use $time as time;
            use $time::{Duration, Instant, Interval, MissedTickBehavior};

            use super::Log;

            struct Task {
                number: u64,
                start: Instant,
                /// True if no other task runs. Only a lone task advances the clock, because the
                /// order in which several tasks run after an advance is not specified.
                is_alone: bool,
                random: Rng,
                log: Log,
            }

            pub(crate) async fn run(seed: u64, log: Log) {
                let start = Instant::now();
                let tasks = if seed % 2 == 0 { 6 } else { 1 };
                let tasks: Vec<_> = (0..tasks)
                    .map(|number| {
                        let (random, log) = (Rng::with_seed(seed << 8 | number), Arc::clone(&log));
                        let is_alone = tasks == 1;
                        let mut task = Task { number, start, is_alone, random, log };
                        task::spawn(async move {
                            for _ in 0..12 {
                                task.step().await;
                            }
                        })
                    })
                    .collect();
                for task in tasks {
                    task.await.expect("no panic");
                }
                log.lock().unwrap().sort_by_key(|step| step.0);
            }

            async fn poll_once<F: Future + ?Sized>(mut future: Pin<&mut F>) -> bool {
                poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx).is_ready())).await
            }

            impl Task {
                fn delay(&mut self) -> Duration {
                    Duration::from_millis(match self.random.u8(0..10) {
                        0 => 0,
                        1 => 1,
                        2..8 => self.random.u64(1..60),
                        _ => self.random.u64(60..5_000),
                    })
                }

                /// Returns an instant that is sometimes in the past.
                fn instant(&mut self) -> Instant {
                    let instant = Instant::now() + self.delay();
                    instant
                        - Duration::from_millis(self.random.u64(0..30)).min(instant - self.start)
                }

                fn log(&self, step: &'static str, result: u128) {
                    let millis = self.start.elapsed().as_millis();
                    self.log.lock().unwrap().push((self.number, step, millis, result));
                }

                /// Logs the end of a timeout. Leaves out the result if both the timeout and its
                /// future were late: tokio may then time out, although it polls the future first.
                fn log_timeout(&self, limit: Instant, work: Instant, in_time: bool) {
                    let both_late = limit.max(work) < Instant::now();
                    self.log("timeout", if both_late { 2 } else { in_time.into() });
                }

                async fn step(&mut self) {
                    match self.random.u8(0..8) {
                        0 if self.is_alone => time::advance(self.delay()).await,
                        0 | 1 => {
                            time::sleep(self.delay()).await;
                            self.log("sleep", 0);
                        }
                        2 => {
                            time::sleep_until(self.instant()).await;
                            self.log("sleep_until", 0);
                        }
                        3 | 4 => self.reset_sleep().await,
                        5 => {
                            let (limit, work) = (self.delay(), self.delay());
                            let now = Instant::now();
                            let result = time::timeout(limit, time::sleep(work)).await;
                            self.log_timeout(now + limit, now + work, result.is_ok());
                        }
                        6 => {
                            let (limit, work) = (self.instant(), self.instant());
                            let result = time::timeout_at(limit, time::sleep_until(work)).await;
                            self.log_timeout(limit, work, result.is_ok());
                        }
                        _ => self.ticks().await,
                    }
                }

                async fn reset_sleep(&mut self) {
                    let mut sleep = pin!(time::sleep(self.delay()));
                    for _ in 0..self.random.u8(1..5) {
                        match self.random.u8(0..4) {
                            0 => {
                                let ready = poll_once(sleep.as_mut()).await;
                                // tokio may notice a passed deadline one poll later.
                                if sleep.deadline() > Instant::now() {
                                    self.log("poll", ready.into());
                                    self.log("is_elapsed", sleep.is_elapsed().into());
                                }
                            }
                            1 => sleep.as_mut().reset(self.instant()),
                            2 => time::sleep(self.delay()).await,
                            _ => {
                                sleep.as_mut().await;
                                self.log("awaited", sleep.is_elapsed().into());
                            }
                        }
                        let deadline = sleep.deadline().duration_since(self.start);
                        self.log("deadline", deadline.as_millis());
                    }
                    if self.random.bool() {
                        sleep.await;
                        self.log("awaited", 1);
                    }
                }

                async fn ticks(&mut self) {
                    let period = self.delay().max(Duration::from_millis(1));
                    let mut interval: Interval = if self.random.bool() {
                        time::interval(period)
                    } else {
                        time::interval_at(self.instant(), period)
                    };
                    interval.set_missed_tick_behavior(match self.random.u8(0..3) {
                        0 => MissedTickBehavior::Burst,
                        1 => MissedTickBehavior::Delay,
                        _ => MissedTickBehavior::Skip,
                    });
                    for _ in 0..self.random.u8(1..8) {
                        match self.random.u8(0..12) {
                            0 => interval.reset(),
                            1 => interval.reset_immediately(),
                            2 => interval.reset_after(self.delay()),
                            3 => interval.reset_at(self.instant()),
                            4 | 5 => time::sleep(self.delay()).await,
                            6 => {
                                let limit = self.delay();
                                let in_time = time::timeout(limit, interval.tick()).await.is_ok();
                                self.log("tick in time", in_time.into());
                            }
                            _ => {
                                let tick = interval.tick().await.duration_since(self.start);
                                self.log("tick", tick.as_millis());
                            }
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
fn random_tasks_run_as_with_tokio() {
    for seed in 0..200 {
        common::assert_equal_logs(seed, corewheel::run, tokio_time::run, Step::eq);
    }
}
