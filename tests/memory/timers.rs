//! A timer takes few bytes, and none when it has gone; memory goes back in bounded steps.

use std::hint::black_box;

use corewheel::{Cancel, Config, Key, ManualClock, Shard, TimerHandle, Wheel, local_timer};

use crate::{
    alone_in_virtual_time, cancel_elsewhere,
    common::{TICK, in_virtual_time, operations},
    counting::{alone, held},
    signed,
};

type Payload = [u64; 3];

/// With the feature `origins` a shard remembers where each timer was added.
const ORIGIN: i64 = if cfg!(feature = "origins") { 16 } else { 0 };

/// A wheel, a shard, or the thread's timer.
trait Timers {
    type Handle: Copy + Send + Sync;

    /// What a live one may take.
    const BYTES: i64;

    fn add(&mut self, ticks: u32) -> Self::Handle;
    /// Whether it was live.
    fn cancel(&mut self, handle: Self::Handle) -> bool;
    /// A tick passes. How many have fired.
    fn turn(&mut self) -> usize;
    fn live(&self) -> usize;
}

#[derive(Default)]
struct OfWheel(Wheel<Payload>);

impl Timers for OfWheel {
    type Handle = Key;

    const BYTES: i64 = 64;

    fn add(&mut self, ticks: u32) -> Key {
        self.0.insert(self.0.now() + u64::from(ticks), [7; 3])
    }

    fn cancel(&mut self, handle: Key) -> bool {
        let value = self.0.remove(handle);
        assert!(value.is_none_or(|value| value == [7; 3]));
        value.is_some()
    }

    fn turn(&mut self) -> usize {
        let next = self.0.now() + 1;
        self.0.advance(next).count()
    }

    fn live(&self) -> usize {
        self.0.len()
    }
}

struct OfShard(Shard<Payload>, ManualClock);

impl Default for OfShard {
    fn default() -> Self {
        let clock = ManualClock::new();
        Self(Shard::with_config(Config::new().tick(TICK).clock(&clock)).expect("valid"), clock)
    }
}

impl Timers for OfShard {
    type Handle = TimerHandle;

    const BYTES: i64 = 96 + ORIGIN;

    fn add(&mut self, ticks: u32) -> TimerHandle {
        self.0.add(TICK * ticks, [7; 3])
    }

    fn cancel(&mut self, handle: TimerHandle) -> bool {
        self.0.cancel(handle).is_some()
    }

    fn turn(&mut self) -> usize {
        self.1.advance(TICK);
        self.0.turn();
        std::iter::from_fn(|| self.0.next_expired()).count()
    }

    fn live(&self) -> usize {
        self.0.len()
    }
}

struct OfThread(ManualClock);

impl Timers for OfThread {
    type Handle = TimerHandle;

    const BYTES: i64 = 96 + ORIGIN;

    fn add(&mut self, ticks: u32) -> TimerHandle {
        let captured: Payload = [7; 3];
        local_timer().add(TICK * ticks, move || _ = black_box(captured))
    }

    fn cancel(&mut self, handle: TimerHandle) -> bool {
        handle.cancel() == Cancel::Cancelled
    }

    fn turn(&mut self) -> usize {
        self.0.advance(TICK);
        local_timer().turn().fired
    }

    fn live(&self) -> usize {
        local_timer().len()
    }
}

/// Turns in which the memory of so many goes back, a page in each.
fn enough_turns(timers: usize) -> usize {
    timers / 512 * 2 + 100
}

/// A test for each of the three; that of the thread's timer on a thread of its own.
fn for_each_kind(test: &impl Test) {
    let _alone = alone();
    test.run(&mut OfWheel::default);
    test.run(&mut OfShard::default);
    in_virtual_time(|clock| test.run(&mut || OfThread(clock.clone())));
}

trait Test: Sync {
    fn run<T: Timers>(&self, make: &mut dyn FnMut() -> T);
}

/// A delay from 10 to 70 s.
fn any_delay(random: &mut fastrand::Rng) -> u32 {
    random.u32(10_000..70_000)
}

/// Bytes for `count` live timers, and after all of them were taken out by `cancel_all`.
fn fill_and_empty<T: Timers>(
    timers: &mut T,
    before: i64,
    count: usize,
    cancel_all: impl FnOnce(&mut T, &[T::Handle]),
) {
    let mut random = fastrand::Rng::with_seed(1);
    let mut handles = Vec::with_capacity(count);
    let own = signed(count * size_of::<T::Handle>());
    timers.turn();
    let empty = held() - before - own;
    handles.extend((0..count).map(|_| timers.add(any_delay(&mut random))));
    let full = held() - before - own;
    let most = T::BYTES * signed(count);
    assert!(full - empty <= most, "{} bytes for {count}", full - empty);
    assert!(count < 1_000_000 || full <= most, "{full} bytes for {count}, with the slots");
    cancel_all(timers, &handles);
    (0..enough_turns(count)).for_each(|_| _ = timers.turn());
    assert_eq!(timers.live(), 0);
    let left = held() - before - own;
    assert!(
        left - empty <= (full - empty) / 10,
        "{left} bytes left of {full}, with none it was {empty}"
    );
    assert!(count < 1_000_000 || left <= full / 10, "{left} bytes left of {full}");
}

/// The large one takes seconds unless the compiler helps.
fn sizes() -> &'static [usize] {
    if cfg!(debug_assertions) { &[100_000] } else { &[100_000, 1_000_000] }
}

struct OnItsCore;

impl Test for OnItsCore {
    fn run<T: Timers>(&self, make: &mut dyn FnMut() -> T) {
        for &count in sizes() {
            let before = held();
            fill_and_empty(&mut make(), before, count, |timers, handles| {
                assert!(handles.iter().all(|&handle| timers.cancel(handle)));
            });
        }
    }
}

#[test]
fn a_timer_takes_few_bytes_and_gives_them_back() {
    for_each_kind(&OnItsCore);
}

#[test]
fn what_was_cancelled_from_elsewhere_is_given_back_too() {
    let _alone = alone();
    for &count in sizes() {
        let before = held();
        fill_and_empty(&mut OfShard::default(), before, count, |_, handles| {
            cancel_elsewhere(handles);
        });
        in_virtual_time(|clock| {
            let before = held();
            fill_and_empty(&mut OfThread(clock.clone()), before, count, |_, handles| {
                cancel_elsewhere(handles);
            });
        });
    }
}

struct Churn;

impl Test for Churn {
    fn run<T: Timers>(&self, make: &mut dyn FnMut() -> T) {
        let mut random = fastrand::Rng::with_seed(1);
        let mut timers = make();
        let mut handles: Vec<_> = (0..20_000).map(|_| timers.add(any_delay(&mut random))).collect();
        let before = held();
        for pair in 0..operations(100_000) {
            let place = random.usize(..handles.len());
            timers.cancel(handles[place]);
            handles[place] = timers.add(any_delay(&mut random));
            if pair % 1_000 == 0 {
                timers.turn();
            }
        }
        assert!(held() - before < 20_000, "{} bytes more than before the churn", held() - before);
    }
}

#[test]
fn churn_takes_no_more_and_more() {
    for_each_kind(&Churn);
}

/// One goes and two come, again and again: the second finds room in a page that is there.
struct Growth;

impl Test for Growth {
    fn run<T: Timers>(&self, make: &mut dyn FnMut() -> T) {
        const GROWN: usize = 2_000;
        let before = held();
        let mut timers = make();
        let empty = held() - before;
        let mut going = timers.add(10_000);
        for _ in 0..GROWN {
            assert!(timers.cancel(going));
            going = timers.add(10_000);
            timers.add(10_000);
        }
        assert_eq!(timers.live(), GROWN + 1);
        let most = T::BYTES * signed(GROWN);
        assert!(held() - before - empty <= most, "{} bytes for {GROWN}", held() - before - empty);
    }
}

#[test]
fn growing_in_the_middle_of_churn_leaves_no_room_unused() {
    for_each_kind(&Growth);
}

struct Bursts;

impl Bursts {
    const BASE: usize = 1_000;
    const BURST: usize = 20_000;
}

impl Test for Bursts {
    fn run<T: Timers>(&self, make: &mut dyn FnMut() -> T) {
        let mut random = fastrand::Rng::with_seed(1);
        let (mut timers, mut gone) = (make(), Vec::with_capacity(6 * Self::BURST));
        let base: Vec<_> = (0..Self::BASE).map(|_| timers.add(60_000)).collect();
        // The first one may leave tables that the others find.
        let mut before = None;
        for burst in 0..6 {
            let first = gone.len();
            gone.extend((0..Self::BURST).map(|_| timers.add(any_delay(&mut random))));
            for handle in &gone[..first] {
                assert!(!timers.cancel(*handle), "a handle of an earlier burst found one of this");
            }
            gone[first..].iter().for_each(|&handle| assert!(timers.cancel(handle)));
            (0..enough_turns(Self::BURST)).for_each(|_| _ = timers.turn());
            let more = held() - *before.get_or_insert_with(held);
            assert!(more < 50_000, "{more} bytes more after burst {burst} than after the first");
        }
        assert_eq!(timers.live(), Self::BASE);
        assert!(base.into_iter().all(|handle| timers.cancel(handle)), "they have seen six bursts");
        assert!(
            !gone.into_iter().any(|handle| timers.cancel(handle)),
            "and nobody else has stayed"
        );
    }
}

#[test]
fn bursts_come_and_go() {
    for_each_kind(&Bursts);
}

/// Payloads of those cancelled here go at once; of those cancelled elsewhere, in the next turn.
#[test]
fn payloads_go_back_before_their_timers_memory_does() {
    alone_in_virtual_time(|clock| {
        let add = || {
            local_timer().add(TICK * 30_000, {
                let payload = vec![0_u8; 10_000];
                move || drop(payload)
            })
        };
        let mut handles: Vec<_> = (0..100).map(|_| add()).collect();
        let before = held();
        handles.drain(..50).for_each(|handle| assert_eq!(handle.cancel(), Cancel::Cancelled));
        assert!(held() - before <= -500_000);
        cancel_elsewhere(&handles);
        assert_eq!(local_timer().counts().held, 50);
        clock.advance(TICK);
        local_timer().turn();
        assert!(held() - before <= -990_000, "{} bytes", held() - before);
    });
}
