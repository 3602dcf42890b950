//! Operations on several cores that watch keys of several cores, events from everywhere, and
//! timeouts, in real time.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use corewheel::{
    Completion, Config, Core, Cores, DelayedOperation, OperationId, Outcome, Purgatory,
    PurgatoryCounts, PurgatoryGroup, local_timer,
};

const CORES: usize = 3;
const KEYS: usize = 12;
const NOTIFIERS: usize = 2;

/// What all threads see.
#[derive(Default)]
struct World {
    /// How often there was an event on each key.
    levels: [AtomicU64; KEYS],
    /// Operations that were added, ended, and dropped.
    added: AtomicU64,
    ended: AtomicU64,
    dropped: AtomicU64,
    /// Patient operations that expired.
    lost: AtomicU64,
    adding_is_over: AtomicU64,
    events_are_over: AtomicBool,
    cores_are_empty: AtomicU64,
}

/// Waits until one of its keys has reached a level.
struct Op {
    world: Arc<World>,
    wanted: Vec<(usize, u64)>,
    is_patient: bool,
}

impl DelayedOperation for Op {
    fn try_complete(&mut self) -> bool {
        self.wanted
            .iter()
            .any(|&(key, level)| self.world.levels[key].load(Ordering::Relaxed) >= level)
    }

    fn on_complete(self, how: Completion) {
        self.world.ended.fetch_add(1, Ordering::Relaxed);
        if self.is_patient && how == Completion::Expired {
            self.world.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Op {
    fn drop(&mut self) {
        self.world.dropped.fetch_add(1, Ordering::Relaxed);
    }
}

/// The part of one core.
struct Site {
    world: Arc<World>,
    own: Purgatory<usize, Op>,
    random: fastrand::Rng,
    patience: Duration,
    known: Vec<OperationId>,
}

impl Site {
    fn add(&mut self) {
        let is_patient = self.random.bool();
        let keys: Vec<_> =
            (0..self.random.usize(1..4)).map(|_| self.random.usize(..KEYS)).collect();
        let mut level =
            |key: usize| self.world.levels[key].load(Ordering::Relaxed) + self.random.u64(1..4);
        let wanted = keys.iter().map(|&key| (key, level(key))).collect();
        let op = Op { world: Arc::clone(&self.world), wanted, is_patient };
        let brief = Duration::from_micros(self.random.u64(..3000));
        self.world.added.fetch_add(1, Ordering::Relaxed);
        let timeout = if is_patient { self.patience } else { brief };
        if let Outcome::Waits(id) =
            self.own.try_complete_else_watch(op, keys, timeout).expect("there is room")
        {
            self.known.push(id);
        }
    }

    fn step(&mut self) {
        match self.random.u32(..16) {
            // The cost of an event grows with the number of waiting operations.
            0..8 if self.own.len() < 200 => self.add(),
            8..12 => {
                let key = self.random.usize(..KEYS);
                self.world.levels[key].fetch_add(1, Ordering::Relaxed);
                self.own.notify(&key);
            }
            12 if !self.known.is_empty() => {
                let at = self.random.usize(..self.known.len());
                self.own.force_complete(self.known.swap_remove(at));
            }
            13 if self.random.u32(..50) == 0 => {
                let key = self.random.usize(..KEYS);
                let back = self.own.cancel_for_key(&key).len() as u64;
                self.world.ended.fetch_add(back, Ordering::Relaxed);
            }
            _ => _ = local_timer().turn(),
        }
    }

    /// Turns and sleeps until the condition holds.
    fn turn_until(&self, holds: impl Fn(&World) -> bool) {
        let until = Instant::now() + self.patience * 2;
        while !holds(&self.world) {
            assert!(Instant::now() < until, "waited in vain: {:?}", self.own.counts());
            let sleep = local_timer().prepare_sleep();
            let most = Duration::from_millis(1);
            thread::park_timeout(sleep.timeout().map_or(most, |timeout| timeout.min(most)));
            drop(sleep);
            let _ = local_timer().turn();
        }
    }

    fn live(mut self, steps: u64) -> PurgatoryCounts {
        // Fewer where everything takes long: on a busy machine, or under a sanitizer.
        let until = Instant::now() + self.patience / 3;
        (0..steps).take_while(|_| Instant::now() < until).for_each(|_| self.step());
        let _ = local_timer().turn();
        self.world.adding_is_over.fetch_add(1, Ordering::Relaxed);
        self.turn_until(|world| world.events_are_over.load(Ordering::Acquire));
        self.turn_until(|_| self.own.is_empty());
        self.world.cores_are_empty.fetch_add(1, Ordering::Relaxed);
        let everybody = CORES as u64;
        self.turn_until(|world| world.cores_are_empty.load(Ordering::Relaxed) >= everybody);
        self.turn_until(|_| self.own.counts().watches == 0);
        self.world.cores_are_empty.fetch_add(1, Ordering::Relaxed);
        self.turn_until(|world| world.cores_are_empty.load(Ordering::Relaxed) >= 2 * everybody);
        self.own.counts()
    }
}

/// Sends events until all operations have been added. Then notifier 0 raises each key above every
/// level that an operation waits for, and sends one event per key.
fn tell(number: usize, world: &World, group: &PurgatoryGroup<usize>, patience: Duration) {
    let until = Instant::now() + patience * 2;
    let mut random = fastrand::Rng::with_seed(number as u64);
    while world.adding_is_over.load(Ordering::Relaxed) < CORES as u64 {
        assert!(Instant::now() < until, "the cores do not come to an end");
        let key = random.usize(..KEYS);
        world.levels[key].fetch_add(1, Ordering::Relaxed);
        group.notify(&key);
        // A core needs longer to handle an event than this thread to send it.
        thread::sleep(Duration::from_micros(random.u64(..200)));
    }
    if number == 0 {
        for (key, level) in world.levels.iter().enumerate() {
            level.fetch_add(4, Ordering::Relaxed);
            group.notify(&key);
        }
        world.events_are_over.store(true, Ordering::Release);
    }
}

/// Each core adds some thousand operations, times `scale`. The timeout of a patient operation is
/// `patience`, and none of them may expire.
pub(crate) fn run(scale: u64, patience: Duration) {
    let (world, group) = (Arc::new(World::default()), PurgatoryGroup::by(|&key: &usize| key));
    let (shared, joined) = (Arc::clone(&world), group.clone());
    let live = move |core: Core| {
        let own = joined.join(core.index(), core.shards());
        let random = fastrand::Rng::with_seed(core.index() as u64);
        let site = Site { world: Arc::clone(&shared), own, random, patience, known: Vec::new() };
        site.live(3_000 * scale)
    };
    let config = |_| Config::new().tick(Duration::from_micros(100));
    let cores = Cores::builder().shards(CORES).config(config).start(live).expect("started");
    thread::scope(|scope| {
        for number in 0..NOTIFIERS {
            let (world, group) = (&world, &group);
            scope.spawn(move || tell(number, world, group, patience));
        }
    });
    for ended in cores.join() {
        let counts = ended.expect("no panic");
        let ends = counts.by_condition + counts.forced + counts.expired + counts.handed_back;
        assert_eq!(
            (counts.added, counts.live, counts.watches, counts.keys, counts.unsent),
            (ends, 0, 0, 0, 0)
        );
    }
    let [added, ended, dropped, lost] = [&world.added, &world.ended, &world.dropped, &world.lost]
        .map(|count| count.load(Ordering::Relaxed));
    assert_eq!((added, ended, lost), (added, added, 0));
    assert_eq!(added, dropped);
}
