//! The problem of the idle connections, in virtual time: the connection code of the example
//! `idle_timeouts`, on simulated sockets. Every silent connection is found at its tick, and neither
//! a packet nor an empty tick is more work with a hundred thousand connections than with a
//! thousand.
#![cfg(feature = "std")]

#[path = "../examples/idle_timeouts/connections.rs"]
mod connections;

mod common;

use std::{cell::RefCell, collections::HashMap, rc::Rc, time::Duration};

use common::on_a_thread;
use connections::Connections;
use corewheel::{Cancel, Config, ManualClock, local_timer};

const IDLE_TICKS: u64 = 30_000;
/// Long enough for the last of the silent ones, and beyond tick 65 536, where a wheel of 16 bits
/// begins a revolution.
const TICKS: u64 = 92_000;

/// Connections come in groups of a thousand that act at the same time. So a larger run repeats the
/// smaller one, and their work can be compared exactly.
const GROUP: u64 = 1_000;
/// Each connection of a group acts once in this number of ticks, ...
const ROUND: u64 = 10_000;
/// ... always at its own tick of the round. Nine idle ticks lie between two of them.
const STEP: u64 = ROUND / GROUP;

/// The tick at which each silent connection must be found, by the schedule alone.
fn expected_closings(groups: u64) -> Vec<(u64, u64)> {
    let mut closings = Vec::new();
    for member in (0..GROUP).step_by(10) {
        let last_packet = member / 10 % 6 * ROUND + member * STEP;
        // A packet arrives within a tick, and a deadline is rounded up to the next one.
        let tick = last_packet + 1 + IDLE_TICKS;
        closings.extend((0..groups).map(|group| (tick, group * GROUP + member)));
    }
    closings.sort_unstable();
    closings
}

/// The tick and the number of every connection that was closed for being silent.
type Closed = Rc<RefCell<Vec<(u64, u64)>>>;

/// The connections of a thread in virtual time, their clock, and the list of those that were
/// closed. The socket of a connection is its number.
fn connections() -> (ManualClock, Connections<u64>, Closed) {
    let (clock, closed) = (ManualClock::new(), Closed::default());
    let config = Config::new().tick(Duration::from_millis(1)).clock(&clock);
    config.install().expect("a new thread has no timer yet");
    let (time, closings) = (clock.clone(), Rc::clone(&closed));
    let connections = Connections::new(ticks(IDLE_TICKS), move |id, silent_for| {
        assert_eq!(silent_for, ticks(IDLE_TICKS) + Duration::from_micros(600), "connection {id}");
        let tick = u64::try_from(time.elapsed().as_millis()).expect("a run is short");
        closings.borrow_mut().push((tick, id));
    });
    (clock, connections, closed)
}

fn ticks(count: u64) -> Duration {
    Duration::from_millis(count)
}

fn touched() -> u64 {
    local_timer().counts().touched
}

/// A tenth talks for one to six rounds and is silent from then on, a tenth hangs up, the others
/// keep talking. Returns all that was touched since the start: arming, packets, hanging up, turns.
fn simulate(groups: u64) -> u64 {
    let (clock, connections, closed) = connections();
    let mut keys = HashMap::new();
    for tick in 0..TICKS {
        clock.advance(Duration::from_micros(400));
        let (member, round) = (tick % ROUND / STEP, tick / ROUND);
        let last_round = member / 10 % 6;
        for id in (0..groups).map(|group| group * GROUP + member) {
            match member % 10 {
                _ if tick % STEP != 0 => break,
                _ if round == 0 => _ = keys.insert(id, connections.accept(id)),
                0 if round > last_round => (),
                1 if round > last_round + 1 => (),
                1 if round > last_round => assert_eq!(connections.close(keys[&id]), Some(id)),
                _ => {
                    let before = touched();
                    assert!(connections.packet(keys[&id]), "the timer of {id} was not there");
                    assert_eq!(touched() - before, 1, "a packet moves one entry");
                }
            }
        }
        clock.advance(Duration::from_micros(600));
        let turn = local_timer().turn();
        // Deadlines lie one past a multiple of `STEP`, so every other tick is an empty one.
        let is_empty = (tick + 1) % STEP != 1;
        assert!(!is_empty || (turn.fired, turn.touched) == (0, 0), "{tick}: {turn:?}");
    }
    let mut closed = closed.take();
    closed.sort_unstable();
    assert!(closed == expected_closings(groups), "{groups} groups: not the closings expected");
    let live = local_timer().counts().live;
    assert_eq!(live, groups * GROUP * 8 / 10, "the talking ones are still there");
    touched()
}

/// With a thousand connections and with a hundred thousand.
#[test]
fn each_silent_connection_is_found_at_its_tick_and_costs_the_same_among_any_number() {
    let [small, large] = [1, 100].map(|groups| on_a_thread(|| simulate(groups)));
    // Nor is there work anywhere else that grows faster than the number of connections.
    assert!(large <= 100 * small, "{large} for {small}");
}

#[test]
fn a_connection_whose_timer_was_cancelled_from_elsewhere_stays_open() {
    on_a_thread(|| {
        let (clock, connections, _) = connections();
        let key = connections.accept(7);
        let handle = connections.idle_timer(key).expect("it is open");
        assert_eq!(on_a_thread(|| handle.cancel()), Cancel::Cancelled);
        assert!(!connections.packet(key), "a packet must not bring the timer back");
        clock.advance(ticks(2 * IDLE_TICKS));
        assert_eq!(local_timer().turn().fired, 0);
        assert_eq!(connections.with(key, |id| *id), Some(7));
        assert_eq!(connections.close(key), Some(7));
        assert_eq!(connections.close(key), None);
    });
}
