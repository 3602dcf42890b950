//! tokio's `Sleep`. Each is kept pinned in a slot that is used again, so that nothing is allocated for it in the steady
//! state; it is polled once when it is added. In virtual time its waker says which one fired, as its task's would; by the
//! machine's clock the waker does nothing, which is the least it can be, and nobody looks at what has fired until it is
//! cancelled.

use std::{
    cell::RefCell,
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
    time::Duration,
};

use tokio::{
    runtime::{Builder, EnterGuard, Runtime},
    time::{Instant, Sleep, sleep, sleep_until},
};

use super::handle::Handle;
use crate::timers::{Payload, Timers};

thread_local! {
    /// Which slots were woken: the driver runs on the thread that adds.
    static WOKEN: RefCell<Vec<u32>> = const { RefCell::new(Vec::new()) };
}

/// Wakes by saying which slot it is.
struct SlotWaker(u32);

impl Wake for SlotWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        WOKEN.with_borrow_mut(|woken| woken.push(self.0));
    }
}

struct Slot {
    sleep: Pin<Box<Option<Sleep>>>,
    waker: Waker,
    payload: Payload,
    /// Odd while the timer is live.
    generation: u32,
}

/// Pinned sleeps with handles.
#[derive(Default)]
struct Sleeps {
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// Whether anybody wants to know what fires.
    tell: bool,
}

impl Sleeps {
    fn take_slot(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            let index = self.slots.len() as u32;
            let waker =
                if self.tell { Arc::new(SlotWaker(index)).into() } else { Waker::noop().clone() };
            self.slots.push(Slot { sleep: Box::pin(None), waker, payload: [0; 3], generation: 0 });
            index
        })
    }

    fn add(&mut self, sleep: Sleep, payload: Payload) -> Handle {
        let index = self.take_slot();
        let slot = &mut self.slots[index as usize];
        slot.sleep.set(Some(sleep));
        slot.payload = payload;
        slot.generation = slot.generation.wrapping_add(1);
        let generation = slot.generation;
        if let Some(sleep) = slot.sleep.as_mut().as_pin_mut() {
            // It is not due yet: registering it is what the poll is for.
            let _: Poll<()> = sleep.poll(&mut Context::from_waker(&slot.waker));
        }
        Handle { index, generation }
    }

    fn end(&mut self, index: u32) {
        let slot = &mut self.slots[index as usize];
        slot.sleep.set(None);
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(index);
    }

    fn cancel(&mut self, handle: Handle) -> bool {
        let live = self.slots[handle.index as usize].generation == handle.generation;
        if live {
            self.end(handle.index);
        }
        live
    }

    fn reset(&mut self, handle: Handle, deadline: Instant) -> bool {
        let slot = &mut self.slots[handle.index as usize];
        let live = slot.generation == handle.generation;
        if let Some(sleep) = slot.sleep.as_mut().as_pin_mut()
            && live
        {
            sleep.reset(deadline);
        }
        live
    }

    /// Ends what was woken and has elapsed.
    fn fire(&mut self, mut on_fire: impl FnMut(Payload)) {
        while let Some(index) = WOKEN.with_borrow_mut(Vec::pop) {
            let elapsed = self.slots[index as usize]
                .sleep
                .as_ref()
                .as_pin_ref()
                .is_some_and(|sleep| sleep.is_elapsed());
            if elapsed {
                self.end(index);
                on_fire(self.slots[index as usize].payload);
            }
        }
    }
}

/// A current-thread runtime whose clock stands still until it is moved; entered for good.
pub(super) struct PausedRuntime {
    runtime: &'static Runtime,
    _entered: EnterGuard<'static>,
    start: Instant,
    now: u64,
}

impl PausedRuntime {
    pub(super) fn new() -> Self {
        let runtime = Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("a runtime");
        // One per run or test, for as long as it takes.
        let runtime: &'static Runtime = Box::leak(Box::new(runtime));
        let entered = runtime.enter();
        Self { runtime, _entered: entered, start: Instant::now(), now: 0 }
    }

    pub(super) fn instant(&self, tick: u64) -> Instant {
        self.start + Duration::from_millis(tick)
    }

    /// Moves the clock and lets the driver look at it.
    pub(super) fn advance(&mut self, now: u64) {
        self.runtime.block_on(tokio::time::advance(Duration::from_millis(now - self.now)));
        self.now = now;
    }
}

/// `tokio-sleep`, in virtual time.
pub struct TokioSleep {
    sleeps: Sleeps,
    runtime: PausedRuntime,
}

impl Timers for TokioSleep {
    type Handle = Handle;

    fn new() -> Self {
        Self { sleeps: Sleeps { tell: true, ..Sleeps::default() }, runtime: PausedRuntime::new() }
    }

    fn add(&mut self, deadline: u64, payload: Payload) -> Handle {
        self.sleeps.add(sleep_until(self.runtime.instant(deadline)), payload)
    }

    fn cancel(&mut self, handle: &Handle) -> bool {
        self.sleeps.cancel(*handle)
    }

    fn reset(&mut self, handle: &mut Handle, deadline: u64) -> bool {
        self.sleeps.reset(*handle, self.runtime.instant(deadline))
    }

    fn advance(&mut self, now: u64, on_fire: impl FnMut(Payload)) {
        self.runtime.advance(now);
        self.sleeps.fire(on_fire);
    }
}

/// tokio's `Sleep` by the machine's clock, on whichever runtime its task runs. The task yields after each tick, so that
/// the driver has its turn.
pub struct TokioSleepRealTime {
    sleeps: Sleeps,
    now: u64,
}

impl TokioSleepRealTime {
    fn delay(&self, deadline: u64) -> Duration {
        Duration::from_millis(deadline - self.now)
    }
}

impl Timers for TokioSleepRealTime {
    type Handle = Handle;

    fn new() -> Self {
        Self { sleeps: Sleeps::default(), now: 0 }
    }

    fn add(&mut self, deadline: u64, payload: Payload) -> Handle {
        self.sleeps.add(sleep(self.delay(deadline)), payload)
    }

    fn cancel(&mut self, handle: &Handle) -> bool {
        self.sleeps.cancel(*handle)
    }

    fn reset(&mut self, handle: &mut Handle, deadline: u64) -> bool {
        self.sleeps.reset(*handle, Instant::now() + self.delay(deadline))
    }

    fn advance(&mut self, now: u64, _: impl FnMut(Payload)) {
        self.now = now;
    }
}

impl fmt::Debug for TokioSleep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokioSleep")
            .field("slots", &self.sleeps.slots.len())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for TokioSleepRealTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokioSleepRealTime")
            .field("slots", &self.sleeps.slots.len())
            .finish_non_exhaustive()
    }
}
