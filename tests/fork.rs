//! A process that forks, as `src/guide/shutdown.md` says: each process has its own copy of the
//! timers. The child has one thread; the timers of the others answer there and never fire.
#![cfg(all(feature = "std", target_os = "linux", not(miri)))]
#![allow(unsafe_code, reason = "fork is not safe")]

mod common;

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use common::{HOUR, alone, on_a_thread};
use corewheel::{Cancel, Core, Cores, Counts, ShardRef, TimerHandle, local_timer};

/// The failure of a child. A child must not panic, because printing takes locks.
type Found = Result<(), &'static str>;

fn check(holds: bool, what: &'static str) -> Found {
    if holds { Ok(()) } else { Err(what) }
}

fn in_a_child(child: impl FnOnce() -> Found) {
    // SAFETY: the child touches nothing that a missing thread could have left half-done, except the
    // subject of the tests. The allocator of glibc works after a fork.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "it forks");
    if pid == 0 {
        // SAFETY: sets a timer of the process. A child that hangs is killed.
        unsafe { libc::alarm(20) };
        let found = catch_unwind(AssertUnwindSafe(child)).unwrap_or(Err("it panicked"));
        if let Err(what) = found {
            // SAFETY: `what` is readable for its length.
            unsafe { libc::write(2, what.as_ptr().cast(), what.len()) };
        }
        // SAFETY: ends the process at once, and with it all borrows.
        unsafe { libc::_exit(i32::from(found.is_err())) };
    }
    let mut status = 0;
    // SAFETY: `status` is valid for writes.
    let waited = unsafe { libc::waitpid(pid, &raw mut status, 0) };
    assert_eq!((waited, status), (pid, 0), "the child has found something wrong, or hung");
}

/// Runs `test` on a new thread, with other threads that turn their wheels. Tests run one at a time:
/// no thread may create or end a wheel while another one forks.
fn beside_others(test: impl FnOnce(&[ShardRef]) + Send) {
    let _alone = alone();
    on_a_thread(|| {
        let turns = |core: Core| local_timer().run_until(|| core.is_stopping());
        let others = Cores::builder().shards(3).start(turns).expect("started");
        test(others.shards());
        others.stop();
        assert!(others.join().into_iter().all(|thread| thread.is_ok()));
    });
}

/// The child's permitted uses of a timer of a missing thread.
fn use_a_timer_of_nobody(shard: &ShardRef, handle: TimerHandle) -> Found {
    check(handle.is_pending(), "it is pending in both")?;
    check(handle.reset(Duration::ZERO) && handle.reset(HOUR), "it can be moved")?;
    let more = shard.try_add(Duration::ZERO, || {}).map_err(|_| "it can be added to")?;
    thread::sleep(Duration::from_millis(5));
    check(more.is_pending(), "no thread turns it")?;
    check(more.cancel_wait() == Ok(Cancel::Cancelled), "what is added can be cancelled")?;
    check(handle.cancel() == Cancel::Cancelled, "it can be cancelled")?;
    check(!handle.is_pending() && !handle.reset(HOUR), "and then it has ended")?;
    check(handle.cancel_wait() == Ok(Cancel::Ended), "and then it has ended")
}

/// The child's permitted uses of the wheel of its only thread.
fn use_the_own_timer(handle: TimerHandle) -> Found {
    let ran = Arc::new(AtomicUsize::new(0));
    let count = || {
        let ran = Arc::clone(&ran);
        move || _ = ran.fetch_add(1, Ordering::Relaxed)
    };
    local_timer().add(Duration::from_millis(2), count());
    let periodic = local_timer().add_periodic(Duration::from_millis(1), count());
    local_timer().run_until(|| ran.load(Ordering::Relaxed) >= 4);
    check(periodic.cancel() == Cancel::Cancelled, "new ones run")?;
    check(handle.reset(Duration::ZERO) && handle.is_pending(), "old ones can be moved")?;
    local_timer().run_until(|| !handle.is_pending());
    check(handle.cancel() == Cancel::Ended, "and run")?;
    let Counts { added, live, fired, cancelled, handed_back, .. } = local_timer().counts();
    check(added == live + fired + cancelled + handed_back, "the sum")
}

/// The child may create wheels, because no other thread created or ended one at the moment of the
/// fork.
fn use_new_wheels() -> Found {
    let own = local_timer().add(HOUR, || {});
    for _ in 0..20 {
        let thread = thread::spawn(|| {
            let (ran, runs) = mpsc::channel();
            let shard = local_timer().shard_ref();
            let add = thread::spawn(move || shard.add(Duration::ZERO, move || _ = ran.send(())));
            local_timer().run_until(|| runs.try_recv().is_ok());
            add.join().is_ok_and(|handle| handle.cancel() == Cancel::Ended)
        });
        check(thread.join().is_ok_and(|ran| ran), "a thread of the child's has a timer")?;
    }
    check(own.is_pending(), "they have not got in the way of what was there")
}

#[test]
fn each_process_has_its_own_copy() {
    beside_others(|others| {
        let there: Vec<_> = others.iter().map(|shard| shard.add(HOUR, || {})).collect();
        let ran = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&ran);
        let own = local_timer().add(HOUR, move || _ = count.fetch_add(1, Ordering::Relaxed));
        in_a_child(|| {
            for (shard, &handle) in others.iter().zip(&there) {
                use_a_timer_of_nobody(shard, handle)?;
            }
            use_the_own_timer(own)?;
            check(ran.load(Ordering::Relaxed) == 1, "the child's copy ran in the child")?;
            use_new_wheels()
        });
        // The parent's copies are unchanged.
        assert_eq!((ran.load(Ordering::Relaxed), local_timer().len()), (0, 1));
        assert!(own.is_pending() && there.iter().all(|handle| handle.is_pending()));
        assert!(own.reset(Duration::ZERO));
        local_timer().run_until(|| !own.is_pending());
        assert_eq!(ran.load(Ordering::Relaxed), 1);
        assert!(there.into_iter().all(|handle| handle.cancel() == Cancel::Cancelled));
    });
}

/// A callback that runs on another thread continues in the parent, and never ends in the child.
#[test]
fn a_callback_that_runs_elsewhere_runs_for_ever_in_the_child() {
    beside_others(|others| {
        let ((run, runs), (end, ended)) = (mpsc::channel(), mpsc::channel::<()>());
        let handle = others[1].add(Duration::ZERO, move || {
            run.send(()).expect("the test listens");
            let _ = ended.recv();
        });
        runs.recv().expect("it runs");
        in_a_child(|| {
            check(!handle.is_pending() && !handle.reset(HOUR), "it runs")?;
            check([(); 3].map(|()| handle.cancel()) == [Cancel::Running; 3], "and will")
        });
        drop(end);
        assert!(handle.cancel_wait().is_ok());
        assert_eq!(handle.cancel(), Cancel::Ended);
    });
}
