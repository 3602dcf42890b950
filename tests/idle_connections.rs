//! The problem of the idle connections, in virtual time: the connection code of the example
//! `idle_timeouts`, on simulated sockets. Every silent connection is found at its tick, and neither
//! a packet nor an empty tick is more work with a hundred thousand connections than with a
//! thousand.
#![cfg(feature = "std")]

#[path = "../examples/idle_timeouts/connections.rs"]
mod connections;

use std::cell::RefCell;
use std::rc::Rc;
use std::thread;
use std::time::Duration;

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

/// A connection's action at its tick of a round.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Act {
    Connects,
    Talks,
    HangsUp,
    StaysSilent,
}

/// A tenth talks for one to six rounds and is silent from then on, a tenth hangs up, the others
/// keep talking.
fn act(member: u64, round: u64) -> Act {
    let last_round = member / 10 % 6;
    match member % 10 {
        _ if round == 0 => Act::Connects,
        0 if round > last_round => Act::StaysSilent,
        1 if round > last_round + 1 => Act::StaysSilent,
        1 if round == last_round + 1 => Act::HangsUp,
        _ => Act::Talks,
    }
}

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

/// Entries touched by something: how often it was done, by all of it together, and at most by one.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
struct Work {
    times: u64,
    touched: u64,
    most: u64,
}

impl Work {
    fn note(&mut self, touched: u64) {
        self.times += 1;
        self.touched += touched;
        self.most = self.most.max(touched);
    }

    /// Scales the counts to this many more connections, at the same cost for each.
    fn times_over(self, factor: u64) -> Self {
        Self { times: self.times * factor, touched: self.touched * factor, ..self }
    }
}

/// The results of a run.
#[derive(Debug)]
struct Found {
    /// (tick, connection) of every one that was closed for being silent.
    closed: Vec<(u64, u64)>,
    packets: Work,
    empty_ticks: Work,
    /// All that was touched since the start: arming, packets, hanging up, turns.
    touched: u64,
    live: u64,
}

/// A server of simulated connections; the socket of a connection is its number.
struct Simulation {
    clock: ManualClock,
    connections: Connections<u64>,
    keys: Vec<usize>,
    closed: Rc<RefCell<Vec<(u64, u64)>>>,
    packets: Work,
    empty_ticks: Work,
}

impl Simulation {
    fn new(groups: u64) -> Self {
        let clock = ManualClock::new();
        let config = Config::new().tick(Duration::from_millis(1)).clock(&clock);
        config.install().expect("a fresh thread has no timer yet");
        let closed = Rc::new(RefCell::new(Vec::new()));
        Self {
            connections: connections_noting_closings(&clock, &closed),
            clock,
            keys: vec![usize::MAX; index(groups * GROUP)],
            closed,
            packets: Work::default(),
            empty_ticks: Work::default(),
        }
    }

    fn run(mut self, groups: u64) -> Found {
        for tick in 0..TICKS {
            self.clock.advance(Duration::from_micros(400));
            if tick % STEP == 0 {
                let member = tick % ROUND / STEP;
                let act = act(member, tick / ROUND);
                (0..groups).for_each(|group| self.perform(act, group * GROUP + member));
            }
            self.clock.advance(Duration::from_micros(600));
            self.turn(tick + 1);
        }
        let counts = local_timer().counts();
        Found {
            closed: self.closed.take(),
            packets: self.packets,
            empty_ticks: self.empty_ticks,
            touched: counts.touched,
            live: counts.live,
        }
    }

    fn perform(&mut self, act: Act, id: u64) {
        let key = self.keys[index(id)];
        match act {
            Act::Connects => self.keys[index(id)] = self.connections.accept(id),
            Act::HangsUp => assert_eq!(self.connections.close(key), Some(id)),
            Act::StaysSilent => {}
            Act::Talks => {
                let before = local_timer().counts().touched;
                assert!(self.connections.packet(key), "the timer of {id} was not there");
                self.packets.note(local_timer().counts().touched - before);
            }
        }
    }

    /// Deadlines lie one past a multiple of `STEP`, so every other tick is an empty one.
    fn turn(&mut self, tick: u64) {
        let turn = local_timer().turn();
        if tick % STEP != 1 {
            assert_eq!(turn.fired, 0, "tick {tick} is an empty one");
            self.empty_ticks.note(turn.touched);
        }
    }
}

fn connections_noting_closings(
    clock: &ManualClock,
    closed: &Rc<RefCell<Vec<(u64, u64)>>>,
) -> Connections<u64> {
    let (clock, closed) = (clock.clone(), Rc::clone(closed));
    Connections::new(ticks(IDLE_TICKS), move |id, silent_for| {
        assert_eq!(silent_for, ticks(IDLE_TICKS) + Duration::from_micros(600), "connection {id}");
        let tick = u64::try_from(clock.elapsed().as_millis()).expect("a run is short");
        closed.borrow_mut().push((tick, id));
    })
}

fn ticks(count: u64) -> Duration {
    Duration::from_millis(count)
}

fn index(id: u64) -> usize {
    usize::try_from(id).expect("a connection's number is small")
}

/// On a new thread, because a thread has one wheel whose clock is chosen once.
fn simulate(groups: u64) -> Found {
    let run = thread::spawn(move || Simulation::new(groups).run(groups));
    let mut found = run.join().expect("the simulation panicked");
    found.closed.sort_unstable();
    found
}

/// With a thousand connections and with a hundred thousand.
#[test]
fn each_silent_connection_is_found_at_its_tick_and_costs_the_same_among_any_number() {
    let [small, large] = [1, 100].map(|groups| {
        let found = simulate(groups);
        let is_expected = found.closed == expected_closings(groups);
        assert!(is_expected, "{groups} groups: not the closings expected");
        assert_eq!(found.live, groups * GROUP * 8 / 10, "the talking ones are still there");
        found
    });
    assert_eq!(small.packets.most, 1, "a packet moves one entry");
    assert_eq!(small.packets.touched, small.packets.times);
    assert_eq!(small.empty_ticks.touched, 0, "an empty tick touches none");

    assert_eq!(large.packets, small.packets.times_over(100));
    assert_eq!(large.empty_ticks, small.empty_ticks);
    // Nor is there work anywhere else that grows faster than the number of connections.
    assert!(large.touched <= 100 * small.touched, "{} for {}", large.touched, small.touched);
}

#[test]
fn a_connection_whose_timer_was_cancelled_from_elsewhere_stays_open() {
    let run = thread::spawn(|| {
        let simulation = Simulation::new(1);
        let key = simulation.connections.accept(7);
        let handle = simulation.connections.idle_timer(key).expect("it is open");
        let remote = thread::spawn(move || handle.cancel());
        assert_eq!(remote.join().expect("the canceller panicked"), Cancel::Cancelled);

        assert!(!simulation.connections.packet(key), "a packet must not bring the timer back");
        simulation.clock.advance(ticks(2 * IDLE_TICKS));
        assert_eq!(local_timer().turn().fired, 0);
        assert_eq!(simulation.connections.with(key, |id| *id), Some(7));
        assert_eq!(simulation.connections.close(key), Some(7));
        assert_eq!(simulation.connections.close(key), None);
    });
    run.join().expect("the simulation panicked");
}
