//! Runs an episode: one thread per virtual core, of which one runs at a time, the one that has the world.

use std::{
    sync::{
        Arc,
        mpsc::{Receiver, Sender, channel},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use corewheel::{Shard, ShardRef};

use crate::{
    bug::Bug,
    core,
    coverage::{Coverage, Fault},
    here::{Job, Link, Reply},
    model::World,
    plan::{Act, CORES, PLACES, Plan, Step},
};

/// Longer than any steps take: whoever has not answered by then never will.
const PATIENCE: Duration = Duration::from_secs(60);

/// What was wrong in an episode, and how far it had come.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The number of the step.
    pub step: usize,
    /// What was expected, and what was found.
    pub what: String,
    /// It hangs: there is no use in trying again.
    pub hangs: bool,
}

struct Conductor {
    plan: Arc<Plan>,
    /// None while a core has it.
    world: Option<Box<World>>,
    cores: Vec<Option<Thread>>,
}

struct Thread {
    jobs: Sender<Job>,
    replies: Receiver<Reply>,
    joins: JoinHandle<()>,
    is_paused: bool,
}

/// Nobody answers.
struct Hangs;

/// Runs an episode to its end, or to what is wrong.
pub(crate) fn run(plan: &Plan, bug: Option<Bug>) -> Result<Coverage, Failure> {
    number_shards_from_zero();
    let world = Box::new(World::new(plan, bug));
    let mut conductor =
        Conductor { plan: Arc::new(plan.clone()), world: Some(world), cores: Vec::new() };
    for core in 0..CORES {
        let thread = conductor.start(core);
        conductor.cores.push(Some(thread));
    }
    let done = conductor.conduct();
    let step = conductor.world.as_ref().map_or(0, |world| world.step);
    if done.is_err() {
        return Err(Failure { step, what: "a core does not answer".to_owned(), hangs: true });
    }
    conductor.finish()
}

impl Conductor {
    fn conduct(&mut self) -> Result<(), Hangs> {
        let plan = Arc::clone(&self.plan);
        let mut from = 0;
        while from < plan.steps.len() && !self.is_wrong() {
            let Step { core, act } = plan.steps[from];
            let same = |step: &&Step| step.core == core && step.act != Act::Exit;
            let to = from + plan.steps[from..].iter().take_while(same).count().max(1);
            self.resume(core)?;
            if act == Act::Exit {
                self.end(core)?;
                self.world().fault(Fault::ThreadExit, core);
                self.cores[core] = Some(self.start(core));
            } else if !self.is_wrong() {
                self.tell(core, |world| Job::Steps(world, from..to))?;
            }
            from = to;
        }
        for core in 0..CORES {
            self.resume(core)?;
        }
        // The numbers of the shards come back in the order in which they are wanted.
        (0..CORES).rev().try_for_each(|core| self.end(core))
    }

    fn world(&mut self) -> &mut World {
        self.world.as_mut().expect("the world is here")
    }

    fn is_wrong(&mut self) -> bool {
        self.world().wrong.is_some()
    }

    /// Gives the world to a core, and waits until it comes back.
    fn tell(&mut self, core: usize, job: impl FnOnce(Box<World>) -> Job) -> Result<(), Hangs> {
        let Some(thread) = &mut self.cores[core] else { return Ok(()) };
        let world = self.world.take().expect("the world is here");
        thread.jobs.send(job(world)).map_err(|_| Hangs)?;
        let (world, is_paused) = match thread.replies.recv_timeout(PATIENCE) {
            Ok(Reply::Done(world)) => (world, false),
            Ok(Reply::Paused(world)) => (world, true),
            Err(_) => return Err(Hangs),
        };
        thread.is_paused = is_paused;
        self.world = Some(world);
        Ok(())
    }

    /// A core that has paused in a callback comes to the end of what it was told.
    fn resume(&mut self, core: usize) -> Result<(), Hangs> {
        while self.cores[core].as_ref().is_some_and(|thread| thread.is_paused) {
            self.tell(core, Job::GoOn)?;
        }
        Ok(())
    }

    fn start(&mut self, core: usize) -> Thread {
        let (jobs, received) = channel();
        let (answer, replies) = channel();
        let (refer, referred): (Sender<ShardRef>, _) = channel();
        let world = self.world();
        let configs: Vec<_> = (0..PLACES).map(|place| world.new_life(core, place)).collect();
        world.cores[core].lives[0] = configs[0].0;
        let (link, plan) = (Link { jobs: received, replies: answer }, Arc::clone(&self.plan));
        let thread = thread::spawn(move || core::live(core, &plan, configs, link, &refer));
        self.world().cores[core].shard = Some(referred.recv().expect("it has a timer"));
        Thread { jobs, replies, joins: thread, is_paused: false }
    }

    /// Ends a core's thread, with all that it has.
    fn end(&mut self, core: usize) -> Result<(), Hangs> {
        self.tell(core, Job::Leave)?;
        let Some(Thread { jobs, joins, .. }) = self.cores[core].take() else { return Ok(()) };
        drop(jobs);
        let ended = joins.join();
        let world = self.world();
        world.expect(ended.is_ok(), || format!("core {core} ended with a panic"));
        world.cores[core].gone = world.cores[core].shard.take();
        for life in std::mem::take(&mut world.ending) {
            world.expect_nothing_left(life);
        }
        Ok(())
    }

    /// What was done, if all was right.
    fn finish(mut self) -> Result<Coverage, Failure> {
        let world = self.world();
        if let Some((life, shard)) = world.luggage.take() {
            world.ends(life);
            drop(shard);
            world.expect_nothing_left(life);
        }
        world.expect_the_end();
        world.coverage.virtual_time = world.virtual_time().into();
        let World { wrong, coverage, step, .. } = *self.world.take().expect("the world is here");
        wrong.map_or(Ok(coverage), |what| Err(Failure { step, what, hangs: false }))
    }
}

/// Gives the shards of each episode the same numbers, by which spread timers are spread: the number that came back last is
/// given first.
fn number_shards_from_zero() {
    const MOST: usize = CORES * PLACES + 3;
    let number = |shard: &Shard<()>| -> u32 {
        let text = format!("{shard:?}");
        let digits =
            text.chars().skip_while(|c| !c.is_ascii_digit()).take_while(char::is_ascii_digit);
        digits.collect::<String>().parse().unwrap_or(0)
    };
    let mut shards: Vec<Shard<()>> = (0..MOST).map(|_| Shard::new()).collect();
    shards.sort_by_key(number);
    while shards.pop().is_some() {}
}
