//! Scheme 1 of Varghese and Lauck, "straightforward": every tick counts every timer down, in the
//! order of memory. Right for a handful of timers, or where the hardware does the counting.

use super::{Scheme, Timers};

/// All timers in no order; `due` holds the ticks that remain, 0 for a free node.
#[derive(Debug)]
pub struct Countdown;

impl Scheme for Countdown {
    const NAME: &'static str = "1-countdown";
    const LINEAR_TICK: bool = true;

    fn new(_: &mut Timers) -> Self {
        Self
    }

    fn start(&mut self, timers: &mut Timers, index: u32) {
        timers.set_due(index, timers.due(index) - timers.now);
    }

    fn stop(&mut self, timers: &mut Timers, index: u32) {
        timers.release(index);
    }

    fn tick(&mut self, timers: &mut Timers, expire: &mut impl FnMut(u64)) {
        for index in timers.indices() {
            match timers.due(index) {
                0 => {}
                1 => expire(timers.release(index)),
                remaining => timers.set_due(index, remaining - 1),
            }
        }
    }
}
