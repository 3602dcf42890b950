//! The plan of an episode, which is a deterministic run: its settings and its steps. The steps name
//! timers by number, so that any step can be left out.

pub(crate) const CORES: usize = 4;

/// Number of shards of a core: the thread's own wheel at index 0, and shards of payloads at the
/// other indices.
pub(crate) const SHARDS_PER_CORE: usize = 3;

/// The length of a long flood: more requests than a turn consumes.
const LONG_FLOOD: u64 = 1_500;

/// The largest distance between the bounds of a reading.
pub(crate) const READING_WIDTH_MAX: Nanos = 10_000;

const MILLISECOND: Nanos = 1_000_000;
const SECOND: Nanos = 1_000 * MILLISECOND;
const DAY: Nanos = 86_400 * SECOND;
const YEAR: Nanos = 365 * DAY;

pub(crate) type Id = u32;

pub(crate) type Nanos = u64;

/// Returns a number below its argument, from a seeded generator or from the bytes of a fuzzer.
pub type Choose<'a> = dyn FnMut(u64) -> u64 + 'a;

#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) setting: Setting,
    pub(crate) steps: Vec<Step>,
    /// The number of timers, at least 1: an episode that adds no timer still has steps that name
    /// timer 0.
    pub(crate) timers: usize,
}

/// The constants of an episode.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    pub(crate) ticks: [Nanos; SHARDS_PER_CORE],
    pub(crate) limits: [usize; SHARDS_PER_CORE],
    /// Number of timers for which each shard reserves memory.
    pub(crate) capacity: usize,
    /// The first reading of each core's clock.
    pub(crate) first_readings: [Nanos; CORES],
    /// True if the clocks are inexact, so that [`ClockMove::Blur`] has an effect.
    pub(crate) is_inexact: bool,
}

/// One act of one core, and arguments, of which each act uses some.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) core: usize,
    pub(crate) act: Act,
    pub(crate) id: Id,
    pub(crate) shard_index: usize,
    /// The core that the act affects: its clock moves, it gets a remote timer, or its wake hook
    /// will panic.
    pub(crate) target_core: usize,
    pub(crate) delay: Nanos,
    /// The slack or the spread of a timer.
    pub(crate) window: Nanos,
    /// The budget of a turn, or the length of an abandoned pass, a flood or a stall.
    pub(crate) count: usize,
    pub(crate) script: Script,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    Add(AddMethod),
    /// `AddRemote`, `AddPeriodicRemote` and `Run` add through a `ShardRef`; `Run` has no delay.
    AddRemote,
    AddPeriodicRemote,
    Run,
    Cancel(CancelMethod),
    Reset,
    /// Resets through the timer's `Shard` if this core has it, and otherwise through a handle.
    ShardReset,
    SetPeriod,
    IsPending,
    Share,
    /// Creates a `ReusableTimer`. The next four acts use one of this core's `ReusableTimer`s.
    CreateReusable,
    Arm(AddMethod),
    CancelReusable,
    ShareReusable,
    DropReusable,
    Turn,
    TurnWithin,
    /// Turns at an instant that is later than the clock's time if `count` is 0, and otherwise
    /// earlier.
    TurnAt,
    /// Begins a turn and takes at most `count` expired payloads.
    AbandonPass,
    Inspect,
    Sleep,
    Drain,
    DropShard,
    /// Puts a shard in transit between cores. Takes the shard that was in transit, or makes a new
    /// one if there was none.
    SwapWithTransit,
    Clock(ClockMove),
    /// Repeats an act for many timers.
    Flood(&'static Act),
    WakePanics,
    Exit,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AddMethod {
    Plain,
    At,
    AtPast,
    Slack,
    Spread,
    Periodic,
    Local,
    Try,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CancelMethod {
    /// Cancels through the timer's `Shard` if this core has it, and otherwise through a handle.
    Shard,
    Handle,
    Wait,
    Guard,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClockMove {
    Forward,
    Far,
    /// Moves to the time of a shard's next turn.
    ToNext,
    Back,
    Jump,
    Years,
    /// Makes the clock ignore its next `count` forward moves.
    Stall,
    /// Makes owners read only bounds on the time, as with `Clock::fast`. The bounds are `delay`
    /// before and `window` after the time.
    Blur,
}

/// The action of a callback, or of the loop that receives a payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Script {
    #[default]
    Nothing,
    Panic,
    DropPanic,
    DropCancel(Id),
    Add(Id, Nanos),
    Cancel(Id),
    CancelSelf,
    Reset(Id, Nanos),
    Turn,
    /// In the callback of a `ReusableTimer`, arms this timer; elsewhere, arms one of the core's
    /// `ReusableTimer`s.
    Arm(Id, Nanos),
    /// In the callback of a `ReusableTimer`, drops this timer; elsewhere, drops one of the core's
    /// `ReusableTimer`s.
    DropReusable(Id, Nanos),
    /// Runs other cores in the middle of the callback.
    Pause,
}

/// The weight of each act. Acts on shards of payloads have twice the weight, because half of the
/// steps name the thread's own wheel.
const ACTS: [(u64, Act); 52] = [
    (760, Act::Add(AddMethod::Plain)),
    (95, Act::Add(AddMethod::At)),
    (47, Act::Add(AddMethod::AtPast)),
    (142, Act::Add(AddMethod::Slack)),
    (142, Act::Add(AddMethod::Spread)),
    (48, Act::Add(AddMethod::Periodic)),
    (285, Act::Add(AddMethod::Local)),
    (380, Act::Add(AddMethod::Try)),
    (450, Act::AddRemote),
    (24, Act::AddPeriodicRemote),
    (92, Act::Run),
    (530, Act::Cancel(CancelMethod::Shard)),
    (530, Act::Cancel(CancelMethod::Handle)),
    (180, Act::Cancel(CancelMethod::Wait)),
    (180, Act::Cancel(CancelMethod::Guard)),
    (890, Act::Reset),
    (890, Act::ShardReset),
    (200, Act::SetPeriod),
    (400, Act::IsPending),
    (100, Act::Share),
    (60, Act::CreateReusable),
    (170, Act::Arm(AddMethod::Plain)),
    (30, Act::Arm(AddMethod::At)),
    (30, Act::Arm(AddMethod::AtPast)),
    (50, Act::Arm(AddMethod::Slack)),
    (50, Act::Arm(AddMethod::Spread)),
    (80, Act::Arm(AddMethod::Try)),
    (80, Act::CancelReusable),
    (120, Act::ShareReusable),
    (30, Act::DropReusable),
    (720, Act::Turn),
    (360, Act::TurnWithin),
    (240, Act::TurnAt),
    (120, Act::AbandonPass),
    (400, Act::Inspect),
    (200, Act::Sleep),
    (6, Act::Drain),
    (8, Act::DropShard),
    (60, Act::SwapWithTransit),
    (715, Act::Clock(ClockMove::Forward)),
    (65, Act::Clock(ClockMove::Far)),
    (520, Act::Clock(ClockMove::ToNext)),
    (90, Act::Clock(ClockMove::Back)),
    (60, Act::Clock(ClockMove::Jump)),
    (15, Act::Clock(ClockMove::Years)),
    (60, Act::Clock(ClockMove::Stall)),
    (60, Act::Clock(ClockMove::Blur)),
    (4, Act::Flood(&Act::AddRemote)),
    (4, Act::Flood(&Act::Cancel(CancelMethod::Handle))),
    (3, Act::Flood(&Act::Reset)),
    (65, Act::WakePanics),
    (2, Act::Exit),
];

impl Plan {
    pub(crate) fn draw(length: usize, choose: &mut Choose<'_>) -> Self {
        let mut draw = Draw {
            choose,
            timers: 0,
            ticks: [0; SHARDS_PER_CORE],
            local_timers: Default::default(),
        };
        let setting = draw.setting();
        draw.ticks = setting.ticks;
        let mut steps = Vec::with_capacity(length);
        // A core takes one step or many steps in a row, so that other cores find few or many
        // messages.
        let burst_max = (length / 16).clamp(4, 320);
        while steps.len() < length {
            let core = draw.index(CORES);
            let burst = if draw.below(4) == 0 { 1 } else { 1 + draw.index(burst_max) };
            (steps.len()..length).take(burst).for_each(|_| steps.push(draw.step(core)));
        }
        Self { setting, steps, timers: draw.timers.max(1) as usize }
    }

    /// Returns an upper bound of the number of shards that the episode makes.
    pub(crate) fn shards(&self) -> usize {
        let shards_made = |step: &Step| match step.act {
            Act::Exit => SHARDS_PER_CORE,
            Act::Drain | Act::DropShard | Act::SwapWithTransit => 1,
            _ => 0,
        };
        CORES * SHARDS_PER_CORE + self.steps.iter().map(shards_made).sum::<usize>()
    }
}

struct Draw<'a, 'choose> {
    choose: &'a mut Choose<'choose>,
    timers: Id,
    ticks: [Nanos; SHARDS_PER_CORE],
    /// For each core, the recent timers that it adds with `add_local`.
    local_timers: [Vec<Id>; CORES],
}

impl Draw<'_, '_> {
    fn below(&mut self, bound: u64) -> u64 {
        (self.choose)(bound)
    }

    fn index(&mut self, bound: usize) -> usize {
        usize::try_from(self.below(bound as u64)).expect("below a usize")
    }

    fn setting(&mut self) -> Setting {
        const TICKS: [Nanos; 6] = [1_000, 333_333, MILLISECOND, MILLISECOND, 7_300_000, SECOND];
        Setting {
            ticks: [(); SHARDS_PER_CORE].map(|()| TICKS[self.index(TICKS.len())]),
            limits: [(); SHARDS_PER_CORE].map(|()| match self.below(3) {
                0 => 5 + self.index(195),
                _ => usize::MAX,
            }),
            capacity: if self.below(4) == 0 { self.index(2_000) } else { 0 },
            first_readings: [(); CORES].map(|()| match self.below(32) {
                0 => Nanos::MAX - (self.log_uniform() >> 8),
                _ => self.log_uniform() % (100 * YEAR),
            }),
            is_inexact: self.below(2) == 0,
        }
    }

    fn step(&mut self, core: usize) -> Step {
        let mut remaining_weight = self.below(ACTS.iter().map(|(weight, _)| weight).sum());
        let is_chosen = |&&(weight, _): &&(u64, Act)| {
            let is_within_weight = remaining_weight < weight;
            remaining_weight = remaining_weight.saturating_sub(weight);
            is_within_weight
        };
        let act = ACTS.iter().find(is_chosen).expect("less than the total").1;
        let count = match act {
            Act::Flood(_) if self.below(8) == 0 => LONG_FLOOD,
            Act::Flood(_) => 1 + self.below(199),
            Act::Clock(ClockMove::Stall) => 1 + self.below(19),
            Act::TurnWithin => self.below(8),
            _ => self.below(4),
        };
        let id = match act {
            Act::Flood(Act::AddRemote) => self.new_ids(count),
            Act::Flood(_) => self.timers.saturating_sub(Id::try_from(count).expect("a flood")),
            Act::Add(_)
            | Act::AddRemote
            | Act::AddPeriodicRemote
            | Act::Run
            | Act::CreateReusable
            | Act::Arm(_) => self.new_ids(1),
            Act::Share if !self.local_timers[core].is_empty() => {
                let index = self.index(self.local_timers[core].len());
                self.local_timers[core][index]
            }
            _ => self.any_id(),
        };
        if let Act::Add(AddMethod::Local) = act {
            self.local_timers[core].truncate(7);
            self.local_timers[core].insert(0, id);
        }
        let delay = match act {
            Act::Clock(ClockMove::Forward) | Act::TurnAt => self.time_below_ticks(3),
            Act::Clock(ClockMove::Far) => self.log_uniform() >> 16,
            Act::Clock(ClockMove::Back) if self.below(4) == 0 => self.log_uniform() >> 8,
            Act::Clock(ClockMove::Back) => self.time_below_ticks(50),
            Act::Clock(ClockMove::Jump) => SECOND + self.below(3 * DAY - SECOND),
            Act::Clock(ClockMove::Blur) => self.below(READING_WIDTH_MAX + 1),
            Act::Clock(ClockMove::Years) => DAY + self.below(YEAR - DAY),
            // Periods are up to 999 times as long as delays: otherwise most of the work would be
            // periodic runs.
            Act::Add(AddMethod::Periodic) | Act::AddPeriodicRemote | Act::SetPeriod => {
                self.delay().saturating_mul(1 + self.below(999))
            }
            _ => self.delay(),
        };
        let script = if let Act::Arm(_) = act {
            self.draw_script_of_reusable_timer()
        } else {
            self.draw_script()
        };
        let shard_index = self.below(2) * (1 + self.below(SHARDS_PER_CORE as u64 - 1));
        Step {
            core,
            act,
            id,
            shard_index: usize::try_from(shard_index).expect("a shard index"),
            target_core: self.index(CORES),
            delay,
            window: match act {
                Act::Clock(ClockMove::Blur) => self.below(READING_WIDTH_MAX - delay + 1),
                _ => self.delay(),
            },
            count: usize::try_from(count).expect("a flood"),
            script,
        }
    }

    fn draw_script(&mut self) -> Script {
        match self.below(100) {
            66..69 => Script::Arm(self.new_ids(1), self.delay()),
            69 => Script::DropReusable(self.new_ids(1), self.delay()),
            70..73 => Script::Panic,
            73..76 => Script::DropPanic,
            76..78 => Script::DropCancel(self.any_id()),
            78..84 => Script::Add(self.new_ids(1), self.delay()),
            84..89 => Script::Cancel(self.any_id()),
            89..91 => Script::CancelSelf,
            91..96 => Script::Reset(self.any_id(), self.delay()),
            96..98 => Script::Turn,
            98.. => Script::Pause,
            _ => Script::Nothing,
        }
    }

    fn draw_script_of_reusable_timer(&mut self) -> Script {
        match self.below(8) {
            0..2 => Script::Arm(self.new_ids(1), self.delay()),
            2 => Script::DropReusable(self.new_ids(1), self.delay()),
            _ => self.draw_script(),
        }
    }

    /// Returns a delay: zero, less than twenty ticks, any size, or the maximum.
    fn delay(&mut self) -> Nanos {
        match self.below(20) {
            0..2 => 0,
            2 => Nanos::MAX,
            3..7 => self.log_uniform(),
            _ => self.time_below_ticks(20),
        }
    }

    /// Returns a random time below `ticks` ticks of a random shard.
    fn time_below_ticks(&mut self, ticks: u64) -> Nanos {
        let tick = self.ticks[self.index(SHARDS_PER_CORE)];
        self.below(ticks * tick)
    }

    /// Returns a random number whose length in bits is nearly uniform.
    fn log_uniform(&mut self) -> u64 {
        self.below(u64::MAX) >> self.below(64)
    }

    fn new_ids(&mut self, count: u64) -> Id {
        let first = self.timers;
        self.timers += Id::try_from(count).expect("few timers");
        first
    }

    /// Returns a random timer, most often a recent one.
    fn any_id(&mut self) -> Id {
        let timers = u64::from(self.timers.max(1));
        let distance = match self.below(16) {
            0 => self.below(timers),
            _ => self.below(timers.min(200)).min(self.below(timers.min(400))),
        };
        self.timers.saturating_sub(1 + Id::try_from(distance).expect("below the timers"))
    }
}

impl Step {
    /// Functions that each simplify one argument of a step.
    pub(crate) const SIMPLER: [fn(&mut Self); 8] = [
        |step| step.script = Script::Nothing,
        |step| step.delay = 0,
        |step| step.window = 0,
        |step| step.count = 0,
        |step| step.count = step.count.min(1),
        |step| step.target_core = 0,
        |step| step.shard_index = 0,
        |step| step.id = 0,
    ];
}
