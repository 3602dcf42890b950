//! Runs an episode, with one thread per virtual core.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use corewheel::Shard;

use crate::core;
use crate::coverage::Coverage;
use crate::handover::{CoreChannels, Job};
use crate::model::Model;
use crate::plan::{Act, CORES, Plan, SHARDS_PER_CORE, Step};

const HANG_TIMEOUT: Duration = Duration::from_secs(60);

/// The failure of an episode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The number of the step that ran at the failure.
    pub step: usize,
    /// The violated expectation, with values.
    pub what: String,
    /// True if a core hangs. Every retry would hang too.
    pub hangs: bool,
}

struct Conductor {
    plan: Arc<Plan>,
    /// None while a core's thread has the model.
    model: Option<Box<Model>>,
    threads: Vec<Thread>,
}

struct Thread {
    jobs: Sender<(Box<Model>, Job)>,
    replies: Receiver<(Box<Model>, bool)>,
    handle: JoinHandle<()>,
    is_paused: bool,
}

struct CoreHangs;

pub(crate) fn run(plan: &Plan, plants_lost_cancels: bool) -> Result<Coverage, Failure> {
    number_shards_from_zero();
    let model = Some(Box::new(Model::new(plan, plants_lost_cancels)));
    let mut conductor = Conductor { plan: Arc::new(plan.clone()), model, threads: Vec::new() };
    for core in 0..CORES {
        let thread = conductor.start_thread(core);
        conductor.threads.push(thread);
    }
    if conductor.run_steps().is_err() {
        let step = plan.steps.len().saturating_sub(1);
        return Err(Failure { step, what: "a core does not answer".to_owned(), hangs: true });
    }
    conductor.end_transit_and_check()
}

impl Conductor {
    fn run_steps(&mut self) -> Result<(), CoreHangs> {
        let plan = Arc::clone(&self.plan);
        let mut from = 0;
        while from < plan.steps.len() && self.model().failure.is_none() {
            let Step { core, act, .. } = plan.steps[from];
            let same_core = |step: &&Step| step.core == core && step.act != Act::Exit;
            let to = from + plan.steps[from..].iter().take_while(same_core).count().max(1);
            self.resume(core)?;
            if act == Act::Exit {
                self.end_thread(core)?;
                self.model().coverage.count("thread exits");
                let thread = self.start_thread(core);
                self.threads.insert(core, thread);
            } else if self.model().failure.is_none() {
                self.run_job(core, Job::Steps(from..to))?;
            }
            from = to;
        }
        (0..CORES).try_for_each(|core| self.resume(core))?;
        // The cores end in reverse order, so that the next episode gets the same shard numbers.
        (0..CORES).rev().try_for_each(|core| self.end_thread(core))
    }

    fn model(&mut self) -> &mut Model {
        self.model.as_mut().expect("the model is here")
    }

    /// Gives the model to a core, and waits until the core gives it back.
    fn run_job(&mut self, core: usize, job: Job) -> Result<(), CoreHangs> {
        self.model().core = core;
        let model = self.model.take().expect("the model is here");
        let thread = &mut self.threads[core];
        thread.jobs.send((model, job)).map_err(|_| CoreHangs)?;
        let (model, is_paused) =
            thread.replies.recv_timeout(HANG_TIMEOUT).map_err(|_| CoreHangs)?;
        thread.is_paused = is_paused;
        self.model = Some(model);
        Ok(())
    }

    /// Lets a core that has paused in a callback finish its steps.
    fn resume(&mut self, core: usize) -> Result<(), CoreHangs> {
        while self.threads[core].is_paused {
            self.run_job(core, Job::Resume)?;
        }
        Ok(())
    }

    fn start_thread(&mut self, core: usize) -> Thread {
        let (jobs, received) = channel();
        let (answer, replies) = channel();
        let (shard_sender, shard_receiver) = channel();
        let model = self.model();
        let configs: Vec<_> =
            (0..SHARDS_PER_CORE).map(|shard_index| model.new_shard(core, shard_index)).collect();
        model.cores[core].own_shard = configs[0].0;
        let (channels, plan) =
            (CoreChannels { jobs: received, replies: answer }, Arc::clone(&self.plan));
        let handle =
            thread::spawn(move || core::run_thread(core, &plan, configs, channels, &shard_sender));
        self.model().cores[core].shard =
            Some(shard_receiver.recv().expect("the thread has a wheel"));
        Thread { jobs, replies, handle, is_paused: false }
    }

    fn end_thread(&mut self, core: usize) -> Result<(), CoreHangs> {
        self.run_job(core, Job::EndThread)?;
        let join_result = self.threads.remove(core).handle.join();
        let model = self.model();
        model.check(join_result.is_ok(), || format!("core {core} ended with a panic"));
        model.cores[core].ended_wheel = model.cores[core].shard.take();
        for shard in std::mem::take(&mut model.ending_shards) {
            model.check_end(shard);
        }
        Ok(())
    }

    fn end_transit_and_check(mut self) -> Result<Coverage, Failure> {
        let model = self.model();
        if let Some((number, shard)) = model.in_transit.take() {
            model.record_end(number);
            drop(shard);
            model.check_end(number);
        }
        model.check_timers_ended();
        let Model { failure, coverage, step, .. } = *self.model.take().expect("the model is here");
        failure.map_or(Ok(coverage), |what| Err(Failure { step, what, hangs: false }))
    }
}

/// Makes all episodes use the same shard numbers, on which spread timers depend. Frees the numbers
/// in descending order, because the library first reuses the number that was freed last.
fn number_shards_from_zero() {
    const SHARDS_MAX: usize = CORES * SHARDS_PER_CORE + 3;
    let mut shards: Vec<Shard<()>> = (0..SHARDS_MAX).map(|_| Shard::new()).collect();
    shards.sort_by_key(|shard| shard.metrics().number);
    while shards.pop().is_some() {}
}
