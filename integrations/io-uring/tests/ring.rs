//! A loop over `io_uring` that sleeps until its timers are due. If the kernel refuses `io_uring`,
//! the tests that need a ring print a message and pass.
#![cfg(target_os = "linux")]

#[path = "../../../tests/common/implements.rs"]
mod implements;
#[path = "../../../tests/common/wake_ups.rs"]
mod wake_ups;

use std::{
    io, panic,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    task::{Context, Waker},
    thread,
    time::{Duration, Instant},
};

use corewheel::{Config, ConfigError, future::sleep, local_timer};
use corewheel_io_uring::Driver;
use implements::implements;
use io_uring::{IoUring, opcode};

const HOUR: Duration = Duration::from_secs(3_600);

struct Loop {
    ring: IoUring,
    driver: Driver,
    /// The user data of completions that do not belong to the driver.
    other_user_data: Vec<u64>,
}

impl Loop {
    fn new(entries: u32) -> Option<Self> {
        let ring = match IoUring::new(entries) {
            Err(error) if corewheel_io_uring::is_io_uring_unavailable(&error) => {
                println!("skipped: the kernel refuses io_uring: {error}");
                return None;
            }
            ring => ring.expect("a ring"),
        };
        let driver =
            Driver::install(Config::new().tick(Duration::from_micros(20))).expect("a fresh thread");
        Some(Self { ring, driver, other_user_data: Vec::new() })
    }

    /// Waits once, and then turns. Returns the number of timers that fired.
    fn wait_and_turn(&mut self) -> usize {
        self.driver.submit_and_wait(&mut self.ring).expect("a wait");
        for completion in self.ring.completion() {
            if !self.driver.process_completion(&completion) {
                self.other_user_data.push(completion.user_data());
            }
        }
        local_timer().turn().fired
    }

    #[allow(unsafe_code)]
    fn push_nop(&mut self, user_data: u64) {
        // SAFETY: the entry refers to no memory.
        unsafe { self.ring.submission().push(&opcode::Nop::new().build().user_data(user_data)) }
            .expect("room in the queue");
    }
}

fn on_a_thread(test: impl FnOnce() + Send + 'static) {
    thread::spawn(test).join().expect("no panic");
}

#[test]
fn a_driver_stays_on_its_thread() {
    assert!(!implements!(Driver: Send));
}

#[test]
fn a_future_panics_after_its_driver_is_dropped() {
    on_a_thread(|| {
        let poll = || {
            let mut late = pin!(sleep(HOUR));
            late.as_mut().poll(&mut Context::from_waker(Waker::noop()))
        };
        let driver = Driver::install(Config::new()).expect("a fresh thread");
        assert!(poll().is_pending());
        local_timer().turn();
        drop(driver);
        assert!(panic::catch_unwind(poll).is_err(), "a driver is left");
    });
}

#[test]
fn a_ring_that_polls_for_completions_is_refused() {
    let mut ring = match IoUring::builder().setup_iopoll().build(8) {
        Err(error) if corewheel_io_uring::is_io_uring_unavailable(&error) => {
            println!("skipped: the kernel refuses io_uring: {error}");
            return;
        }
        ring => ring.expect("a ring"),
    };
    let mut driver = Driver::install(Config::new()).expect("a fresh thread");
    let refused = driver.submit_and_wait(&mut ring).expect_err("it cannot poll the eventfd");
    assert_eq!(refused.kind(), io::ErrorKind::Unsupported);
}

#[test]
fn the_wait_ends_at_the_deadline() {
    on_a_thread(|| {
        let Some(mut uring) = Loop::new(8) else { return };
        for delay in [Duration::ZERO, Duration::from_micros(300), Duration::from_millis(25)] {
            let start = Instant::now();
            local_timer().add(delay, || ());
            let mut wait_count = 0;
            while uring.wait_and_turn() == 0 {
                wait_count += 1;
            }
            assert!(start.elapsed() >= delay, "early: {delay:?}");
            assert!(wait_count < 5, "{wait_count} idle waits");
        }
    });
}

#[test]
fn completions_end_a_wait_and_far_deadlines_do_not() {
    on_a_thread(|| {
        let Some(mut uring) = Loop::new(8) else { return };
        local_timer().add(Duration::MAX, || unreachable!("the end of time"));
        local_timer().add(HOUR * 24 * 365 * 400, || unreachable!("in 400 years"));
        uring.push_nop(7);
        uring.wait_and_turn();
        assert_eq!(uring.other_user_data, [7]);
        let shard = local_timer().shard_ref();
        let waker = thread::spawn(move || {
            thread::sleep(Duration::from_millis(50));
            shard.run(|| ());
        });
        let mut wait_count = 1;
        while uring.wait_and_turn() == 0 {
            wait_count += 1;
        }
        assert!(wait_count < 5, "{wait_count} idle waits");
        waker.join().expect("no panic");
    });
}

#[test]
fn submit_and_wait_works_with_a_full_submission_queue() {
    on_a_thread(|| {
        let Some(mut uring) = Loop::new(4) else { return };
        local_timer().add(HOUR, || unreachable!("in an hour"));
        (0..4).for_each(|number| uring.push_nop(number));
        while uring.other_user_data.len() < 4 {
            uring.wait_and_turn();
        }
    });
}

#[test]
fn no_wake_up_is_lost() {
    let (sender, shard) = mpsc::channel();
    let over = Arc::new(AtomicBool::new(false));
    let until = Arc::clone(&over);
    let owner = thread::spawn(move || {
        let Some(mut uring) = Loop::new(8) else { return };
        local_timer().add(HOUR, || unreachable!("in an hour"));
        sender.send(local_timer().shard_ref()).expect("the test receives");
        while !until.load(Ordering::Relaxed) {
            uring.wait_and_turn();
        }
    });
    if let Ok(shard) = shard.recv() {
        wake_ups::assert_no_wake_up_is_lost(&shard, 1, 3_000);
        shard.run(move || over.store(true, Ordering::Relaxed));
    }
    owner.join().expect("no panic");
}

#[test]
fn install_fails_on_a_thread_that_has_a_wheel() {
    on_a_thread(|| {
        local_timer().add(Duration::ZERO, || ());
        let refused = Driver::install(Config::new()).expect_err("the thread has a wheel");
        assert_eq!(refused.kind(), io::ErrorKind::AlreadyExists);
        let reason = refused.get_ref().and_then(|error| error.downcast_ref::<ConfigError>());
        assert_eq!(reason, Some(&ConfigError::ThreadHasWheel));
    });
}

#[test]
fn is_io_uring_unavailable_recognizes_eperm_eacces_and_enosys() {
    for (errno, refused) in [(1, true), (13, true), (38, true), (22, false), (12, false)] {
        let error = io::Error::from_raw_os_error(errno);
        assert_eq!(corewheel_io_uring::is_io_uring_unavailable(&error), refused, "{error}");
    }
}
