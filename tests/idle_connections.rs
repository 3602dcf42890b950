//! The connection code of the example `idle_timeouts`, in virtual time on simulated sockets. Silent
//! connections close at their tick. The cost of a connection does not grow with the number of
//! connections.
#![cfg(feature = "std")]

#[path = "../examples/idle_timeouts/connections.rs"]
mod connections;

mod common;

use std::{cell::RefCell, collections::HashMap, rc::Rc, time::Duration};

use common::on_a_thread;
use connections::Connections;
use corewheel::{Cancel, Config, ManualClock, local_timer};

const IDLE_TICKS: u64 = 30_000;
/// The ticks of a run, enough for the last silent connection to close.
const TICKS: u64 = 92_000;

/// Connections per group. All groups act alike, so that runs of different sizes are comparable.
const GROUP: u64 = 1_000;
/// Ticks of a round, in which each connection acts once.
const ROUND: u64 = 10_000;
/// Ticks between the actions of two successive members of a group.
const STEP: u64 = ROUND / GROUP;

fn expected_closings(groups: u64) -> Vec<(u64, u64)> {
    let mut closings = Vec::new();
    for member in (0..GROUP).step_by(10) {
        let last_packet = member / 10 % 6 * ROUND + member * STEP;
        // The packet arrives after its tick has begun, so the deadline is rounded up to the next
        // tick.
        let tick = last_packet + 1 + IDLE_TICKS;
        closings.extend((0..groups).map(|group| (tick, group * GROUP + member)));
    }
    closings.sort_unstable();
    closings
}

/// The tick and the number of each connection that timed out.
type Closed = Rc<RefCell<Vec<(u64, u64)>>>;

/// Installs a wheel in virtual time. The socket of a connection is its number.
fn start_connections() -> (ManualClock, Connections<u64>, Closed) {
    let (clock, closed) = (ManualClock::new(), Closed::default());
    let config = Config::new().tick(Duration::from_millis(1)).clock(&clock);
    config.install().expect("a new thread");
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

/// A tenth of the connections falls silent after one to six rounds, a tenth hangs up, and the
/// others keep talking. Returns the number of relinked timers.
fn simulate(groups: u64) -> u64 {
    let (clock, connections, closed) = start_connections();
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
                _ => assert!(connections.on_packet(keys[&id]), "connection {id} has no timer"),
            }
        }
        clock.advance(Duration::from_micros(600));
        let turn = local_timer().turn();
        // Each deadline is one tick after a multiple of `STEP`.
        let is_empty = (tick + 1) % STEP != 1;
        assert!(!is_empty || (turn.fired, turn.relinked) == (0, 0), "{tick}: {turn:?}");
    }
    let mut closed = closed.take();
    closed.sort_unstable();
    assert!(closed == expected_closings(groups), "{groups} groups: wrong closings");
    let live = local_timer().counts().live;
    assert_eq!(live, groups * GROUP * 8 / 10, "the talking connections stay open");
    local_timer().counts().relinked
}

#[test]
fn silent_connections_close_at_their_tick_at_linear_cost() {
    let [small, large] = [1, 100].map(|groups| on_a_thread(|| simulate(groups)));
    assert!(large <= 100 * small, "{large} for {small}");
}

#[test]
fn a_connection_whose_timer_is_cancelled_stays_open() {
    on_a_thread(|| {
        let (clock, connections, _) = start_connections();
        let key = connections.accept(7);
        let handle = connections.idle_timer(key).expect("the connection is open");
        assert_eq!(on_a_thread(|| handle.cancel()), Cancel::Cancelled);
        assert!(!connections.on_packet(key), "a packet revived the timer");
        clock.advance(ticks(2 * IDLE_TICKS));
        assert_eq!(local_timer().turn().fired, 0);
        assert_eq!(connections.with_socket(key, |id| *id), Some(7));
        assert_eq!(connections.close(key), Some(7));
        assert_eq!(connections.close(key), None);
    });
}
