//! Chance: an episode from a seed.

use fastrand::Rng;

use super::{
    Act, At, CORES, How, Id, Moves, Nanos, PLACES, Plan, Script, Setting, Step, Way, With,
};

/// How many steps an episode has.
const STEPS: usize = 40_000;

/// Timers of a flood, at most: more than a turn takes in.
const FLOOD: u32 = 1_500;

const MILLISECOND: Nanos = 1_000_000;
const SECOND: Nanos = 1_000 * MILLISECOND;
const DAY: Nanos = 86_400 * SECOND;
const YEAR: Nanos = 365 * DAY;

/// Where most clocks begin at most, in years: there is room for those that pass.
const START_MAX: u64 = 100;

pub(crate) fn draw(seed: u64) -> Plan {
    let random = Rng::with_seed(seed);
    let mut draw =
        Draw { random, next: 0, ticks: [0; PLACES], core: 0, kept: [const { Vec::new() }; CORES] };
    let setting = draw.setting();
    draw.ticks = setting.ticks;
    let mut steps = Vec::with_capacity(STEPS + 300);
    while steps.len() < STEPS {
        draw.burst(&mut steps);
    }
    Plan { setting, steps, timers: draw.next as usize }
}

struct Draw {
    random: Rng,
    /// The number of the next timer.
    next: Id,
    ticks: [Nanos; PLACES],
    /// Whose steps are drawn.
    core: usize,
    /// The last timers of each core which only that core can name.
    kept: [Vec<Id>; CORES],
}

impl Draw {
    fn setting(&mut self) -> Setting {
        const TICKS: [Nanos; 6] = [1_000, 333_333, MILLISECOND, MILLISECOND, 7_300_000, SECOND];
        let random = &mut self.random;
        Setting {
            ticks: [(); PLACES].map(|()| TICKS[random.usize(..TICKS.len())]),
            limits: [(); PLACES]
                .map(|()| if random.u8(..3) == 0 { random.usize(5..200) } else { usize::MAX }),
            capacity: if random.u8(..4) == 0 { random.usize(..2_000) } else { 0 },
            starts: [(); CORES].map(|()| match random.u8(..32) {
                // Its end is near.
                0 => Nanos::MAX - (any_magnitude(random) >> 8),
                _ => any_magnitude(random) % (START_MAX * YEAR),
            }),
        }
    }

    /// One core does some things: few or many, so that the others find little or much.
    fn burst(&mut self, steps: &mut Vec<Step>) {
        self.core = self.random.usize(..CORES);
        let length = if self.random.u8(..4) == 0 { 1 } else { self.random.usize(1..320) };
        for _ in 0..length {
            let act = self.act();
            steps.push(Step { core: self.core, act });
        }
    }

    fn act(&mut self) -> Act {
        match self.random.u32(..1_000) {
            0..190 => self.add(),
            190..245 => self.add_elsewhere(),
            245..390 => Act::Cancel { id: self.any_id(), how: self.how() },
            390..570 => {
                Act::Reset { id: self.any_id(), delay: self.delay(), by_handle: self.random.bool() }
            }
            570..610 => Act::Ask { id: self.any_id() },
            610..620 => Act::Share { id: self.any_kept() },
            620..740 => self.turn(),
            740..780 => Act::Look { place: self.place(), at: self.at() },
            780..800 => Act::Sleep { place: self.place() },
            800..930 => Act::Clock { of: self.core(), moves: self.move_on() },
            930..945 => self.watch(),
            945..960 => Act::Event { key: self.key(), is_met: self.random.u8(..3) > 0 },
            960..965 => Act::Force { id: self.any_kept() },
            965..967 => Act::HandBack { key: self.key() },
            967..970 => Act::Exchange { place: self.other_place() },
            _ => self.fault(),
        }
    }

    fn fault(&mut self) -> Act {
        match self.random.u32(..300) {
            0..90 => Act::Clock { of: self.core(), moves: self.back() },
            90..150 => {
                Act::Clock { of: self.core(), moves: Moves::Jump(self.random.u64(SECOND..3 * DAY)) }
            }
            150..165 => {
                Act::Clock { of: self.core(), moves: Moves::Years(self.random.u64(DAY..YEAR)) }
            }
            165..225 => Act::Clock { of: self.core(), moves: Moves::Stall(self.random.u8(1..20)) },
            225..280 => Act::WakePanics { of: self.core() },
            280..284 => Act::DropShard { place: self.other_place() },
            284..287 => Act::Drain { place: self.other_place() },
            287..289 => Act::Exit,
            289..300 => self.flood(),
            _ => unreachable!("all is said"),
        }
    }

    fn add(&mut self) -> Act {
        let place = self.place();
        let way = match self.random.u8(..40) {
            0..16 => Way::Plain,
            16..18 => Way::At(false),
            18 => Way::At(true),
            19..22 => Way::Within,
            22..25 => Way::Spread,
            25 => Way::Periodic,
            26..32 => Way::Local,
            _ => Way::Try,
        };
        let (mut delay, more) = (self.delay(), self.delay());
        if way == Way::Periodic {
            // Else there would soon be nothing but their runs.
            delay = delay.saturating_mul(self.random.u64(1..1_000));
        }
        let id = self.new_id();
        if way == Way::Local {
            self.keep(id);
        }
        Act::Add { id, place, way, delay, more, script: self.script() }
    }

    fn add_elsewhere(&mut self) -> Act {
        let at_once = self.random.u8(..6) == 0;
        Act::AddElsewhere {
            id: self.new_id(),
            to: self.core(),
            at_once,
            delay: self.delay(),
            script: self.script(),
        }
    }

    fn watch(&mut self) -> Act {
        let id = self.new_id();
        self.keep(id);
        Act::Watch { id, key: self.key(), delay: self.delay(), script: self.script() }
    }

    fn turn(&mut self) -> Act {
        let (place, kind) = (self.place(), self.random.u8(..10));
        let budget = (kind < 3).then(|| self.random.usize(..8));
        let give_up = (kind == 3).then(|| self.random.usize(..4));
        Act::Turn { place, budget, give_up }
    }

    /// A flood is long enough to be more than a turn takes in, or short.
    fn flood(&mut self) -> Act {
        let count = if self.random.u8(..8) == 0 { FLOOD } else { self.random.u32(1..200) };
        let with = match self.random.u8(..8) {
            0..3 => With::Adds,
            3..6 => With::Cancels,
            _ => With::Resets,
        };
        let first = if with == With::Adds { self.next } else { self.next.saturating_sub(count) };
        if with == With::Adds {
            self.next += count;
        }
        Act::Flood { with, first, count, to: self.core(), delay: self.delay() }
    }

    fn script(&mut self) -> Script {
        match self.random.u8(..100) {
            0..3 => Script::Panic,
            3..6 => Script::DropPanic,
            6..8 => Script::DropCancel(self.any_id()),
            8..14 => Script::Add(self.new_id(), self.delay()),
            14..19 => Script::Cancel(self.any_id()),
            19..21 => Script::CancelSelf,
            21..26 => Script::Reset(self.any_id(), self.delay()),
            26..28 => Script::Turn,
            28..30 => Script::Pause,
            _ => Script::Nothing,
        }
    }

    fn move_on(&mut self) -> Moves {
        match self.random.u8(..20) {
            0 => Moves::On(any_magnitude(&mut self.random) >> 16),
            1..9 => Moves::ToNext(self.place()),
            _ => Moves::On(self.ticks(3)),
        }
    }

    fn back(&mut self) -> Moves {
        Moves::Back(match self.random.u8(..4) {
            0 => any_magnitude(&mut self.random) >> 8,
            _ => self.ticks(50),
        })
    }

    fn how(&mut self) -> How {
        match self.random.u8(..8) {
            0..3 => How::Own,
            3..6 => How::Handle,
            6 => How::Wait,
            _ => How::Guard,
        }
    }

    fn at(&mut self) -> At {
        match self.random.u8(..3) {
            0 => At::NextDeadline,
            1 => At::TimeUntilNext,
            _ => At::Counts,
        }
    }

    /// Any size: none, less than twenty ticks, more, and for ever.
    fn delay(&mut self) -> Nanos {
        match self.random.u8(..20) {
            0..2 => 0,
            2 => Nanos::MAX,
            3..7 => any_magnitude(&mut self.random),
            _ => self.ticks(20),
        }
    }

    /// Less than so many ticks of one of the places.
    fn ticks(&mut self, most: u64) -> Nanos {
        let tick = self.any_tick();
        self.random.u64(..most * tick)
    }

    fn any_tick(&mut self) -> Nanos {
        self.ticks[self.random.usize(..PLACES)]
    }

    fn new_id(&mut self) -> Id {
        self.next += 1;
        self.next - 1
    }

    /// One of the last timers, the later the likelier; or, at times, any.
    fn any_id(&mut self) -> Id {
        if self.random.u8(..16) == 0 {
            return self.random.u32(..self.next.max(1));
        }
        let back = self.random.u32(..200).min(self.random.u32(..400));
        self.next.saturating_sub(1 + back)
    }

    fn keep(&mut self, id: Id) {
        let kept = &mut self.kept[self.core];
        kept.truncate(7);
        kept.insert(0, id);
    }

    /// One of the last timers of this core which only it can name.
    fn any_kept(&mut self) -> Id {
        let kept = &self.kept[self.core];
        if kept.is_empty() { 0 } else { kept[self.random.usize(..kept.len())] }
    }

    fn core(&mut self) -> usize {
        self.random.usize(..CORES)
    }

    fn place(&mut self) -> usize {
        if self.random.bool() { 0 } else { self.other_place() }
    }

    fn other_place(&mut self) -> usize {
        self.random.usize(1..PLACES)
    }

    fn key(&mut self) -> u8 {
        self.random.u8(..4)
    }
}

/// A number whose size in bits is uniform.
fn any_magnitude(random: &mut Rng) -> u64 {
    random.u64(..) >> random.u32(..64)
}
