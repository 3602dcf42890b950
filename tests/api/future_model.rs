//! Random polls, resets and drops of sleeps, compared with a model that predicts every wake. The
//! sleeps use this thread's wheel, wheels of other threads, and worker wheels.

use std::{cell::RefCell, task::Poll, time::Duration};

use corewheel::{
    Config, ManualClock,
    future::{Backend, SharedWheel, Sleep, Timers, sleep},
    local_timer,
};

use crate::support::{Lockstep, Poller, TICK, in_virtual_time, nanos, on_a_thread, scaled, seeded};

const TASKS: usize = 4;
const SLEEPS: usize = 24;

struct ModelledSleep<H: Backend> {
    sleep: Sleep<H>,
    deadline: u64,
    state: SleepState,
    /// The sleep was reset to now or to an elapsed instant, and has not been polled since.
    is_reset_to_now: bool,
}

#[derive(Clone, Copy, PartialEq)]
enum SleepState {
    /// Never polled, with a delay above one second. The first poll does not read the clock.
    NeverPolled,
    /// The next poll reads the clock.
    Idle,
    /// The task with this index waits for a wake.
    Waits(usize),
    /// A turn has woken the task, and the sleep has not been polled or reset since.
    Fired,
    /// A poll has returned ready, and the sleep has not been reset since.
    ReturnedReady,
}

struct Model<'a, H: Backend> {
    clock: &'a ManualClock,
    turn: &'a dyn Fn(),
    make_sleep: &'a dyn Fn(Duration) -> Sleep<H>,
    poll: fn(&Poller, &mut Sleep<H>) -> Poll<()>,
    sleeps: Vec<ModelledSleep<H>>,
    tasks: [Poller; TASKS],
    expected_wakes: [usize; TASKS],
    /// Expected number of added timers: one per pending poll by a task that did not yet wait for
    /// the sleep.
    expected_adds: u64,
}

impl<H: Backend> Model<'_, H> {
    fn delay(random: &mut fastrand::Rng) -> Duration {
        match random.u32(..8) {
            0 => Duration::ZERO,
            1 => TICK * random.u32(..100_000),
            _ => Duration::from_nanos(random.u64(..20_000_000)),
        }
    }

    fn do_random_step(&mut self, random: &mut fastrand::Rng) {
        let index = random.usize(..=self.sleeps.len());
        match random.u32(..16) {
            _ if index == self.sleeps.len() && index < SLEEPS => {
                let (delay, now) = (Self::delay(random), nanos(self.clock.elapsed()));
                let (deadline, is_long) = (now + nanos(delay), delay > Duration::from_secs(1));
                let state = if is_long { SleepState::NeverPolled } else { SleepState::Idle };
                let sleep = (self.make_sleep)(delay);
                self.sleeps.push(ModelledSleep { sleep, deadline, state, is_reset_to_now: false });
            }
            _ if index == self.sleeps.len() => (),
            0..8 => self.poll(index, random.usize(..TASKS)),
            8..11 => self.reset(index, random),
            11..13 => drop(self.sleeps.swap_remove(index)),
            13 if random.u32(..50) == 0 => self.advance_and_turn(TICK * random.u32(..50_000)),
            _ => self.advance_and_turn(Duration::from_nanos(random.u64(..3_000_000))),
        }
        let woken = self.tasks.each_ref().map(Poller::wake_count);
        assert_eq!(woken, self.expected_wakes);
    }

    fn poll(&mut self, index: usize, task: usize) {
        let now = nanos(self.clock.elapsed());
        let modelled = &mut self.sleeps[index];
        let ready = match modelled.state {
            SleepState::Idle => now >= modelled.deadline,
            SleepState::NeverPolled => false,
            // A poll by another task reads the clock.
            SleepState::Waits(last) => {
                modelled.is_reset_to_now || last != task && now >= modelled.deadline
            }
            SleepState::Fired | SleepState::ReturnedReady => true,
        };
        let start = self.clock.now() - self.clock.elapsed();
        assert_eq!(modelled.sleep.deadline(), start + Duration::from_nanos(modelled.deadline));
        assert_eq!((self.poll)(&self.tasks[task], &mut modelled.sleep).is_ready(), ready);
        self.expected_adds += u64::from(!ready && modelled.state != SleepState::Waits(task));
        modelled.state = if ready { SleepState::ReturnedReady } else { SleepState::Waits(task) };
        modelled.is_reset_to_now = false;
        assert_eq!(modelled.sleep.is_elapsed(), ready);
    }

    /// Resets a sleep to a delay from now, or to an instant that may have passed.
    fn reset(&mut self, index: usize, random: &mut fastrand::Rng) {
        let (delay, now) = (Self::delay(random), nanos(self.clock.elapsed()));
        let modelled = &mut self.sleeps[index];
        modelled.deadline = now + nanos(delay);
        if random.bool() {
            modelled.sleep.reset_after(delay);
        } else {
            let nanos_ago = random.u64(..20_000_000).min(now) * random.u64(..2);
            modelled.sleep.reset(self.clock.now() + delay - Duration::from_nanos(nanos_ago));
            modelled.deadline -= nanos_ago;
        }
        modelled.is_reset_to_now = modelled.deadline <= now;
        if !matches!(modelled.state, SleepState::Waits(_)) {
            modelled.state = SleepState::Idle;
        }
    }

    /// Advances the clock and turns. Expects a wake for each waiting sleep that is due.
    fn advance_and_turn(&mut self, duration: Duration) {
        self.clock.advance(duration);
        (self.turn)();
        let tick = 1_000_000;
        for modelled in &mut self.sleeps {
            if let SleepState::Waits(task) = modelled.state
                && modelled.deadline.div_ceil(tick) <= nanos(self.clock.elapsed()) / tick
            {
                self.expected_wakes[task] += 1;
                modelled.state = SleepState::Fired;
            }
        }
    }

    /// Asserts that dropped sleeps keep no waker. Returns the expected number of added timers.
    fn drop_sleeps_and_assert_no_wakers(mut self) -> u64 {
        self.sleeps.clear();
        (self.turn)();
        (self.turn)();
        assert_eq!(self.tasks.each_ref().map(Poller::clones), [0; TASKS]);
        self.expected_adds
    }
}

/// Returns the expected number of added timers.
fn run_steps<H: Backend>(
    random: &mut fastrand::Rng,
    steps: u64,
    clock: &ManualClock,
    turn: &dyn Fn(),
    make_sleep: &dyn Fn(Duration) -> Sleep<H>,
    poll: fn(&Poller, &mut Sleep<H>) -> Poll<()>,
) -> u64 {
    let (sleeps, tasks) = (Vec::new(), [(); TASKS].map(|()| Poller::new()));
    let mut model = Model {
        clock,
        turn,
        make_sleep,
        poll,
        sleeps,
        tasks,
        expected_wakes: [0; TASKS],
        expected_adds: 0,
    };
    (0..steps).for_each(|_| model.do_random_step(random));
    model.drop_sleeps_and_assert_no_wakers()
}

#[test]
fn sleeps_of_this_thread_agree_with_the_model() {
    seeded(0..scaled(20), |random| {
        let mut random = random.fork();
        in_virtual_time(move |clock| {
            let turn = || _ = local_timer().turn();
            let added = run_steps(&mut random, 2_000, clock, &turn, &sleep, Poller::poll);
            assert_eq!(local_timer().counts().added, added);
        });
    });
}

#[test]
fn sleeps_of_timers_on_their_own_thread_agree_with_the_model() {
    seeded(100..100 + scaled(20), |random| {
        let mut random = random.fork();
        in_virtual_time(move |clock| {
            let timers = Timers::new(&[local_timer().shard_ref()]);
            let (turn, make_sleep) = (|| _ = local_timer().turn(), |delay| timers.sleep(delay));
            run_steps(&mut random, 2_000, clock, &turn, &make_sleep, Poller::poll);
        });
    });
}

/// With one wheel, this thread polls; with two wheels, each poll runs on a new thread.
#[test]
fn sleeps_of_other_threads_agree_with_the_model() {
    type Polls = fn(&Poller, &mut Sleep<SharedWheel>) -> Poll<()>;
    let poll_on_new_thread: Polls = |poller, sleep| on_a_thread(|| poller.poll(sleep));
    for (count, seeds, steps, poll) in
        [(1, 10, 1_000, Poller::poll as Polls), (2, 5, 400, poll_on_new_thread)]
    {
        seeded(200..200 + scaled(seeds), |random| {
            let cores: Lockstep<()> = Lockstep::start(count);
            let timers = Timers::new(&cores.shards);
            let turn = || cores.run_until_stalled();
            run_steps(random, steps, &cores.clock, &turn, &|delay| timers.sleep(delay), poll);
        });
    }
}

#[test]
fn sleeps_of_a_worker_wheel_agree_with_the_model() {
    seeded(400..400 + scaled(10), |random| {
        let clock = ManualClock::new();
        let config = |_| Config::new().clock(&clock);
        let (timers, driver) = Timers::per_worker_with(2, config).expect("valid");
        let driver = RefCell::new(driver);
        let turn = || driver.borrow_mut().turn();
        run_steps(random, 1_000, &clock, &turn, &|delay| timers.sleep(delay), Poller::poll);
    });
}
