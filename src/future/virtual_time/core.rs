//! A virtual core: a thread with a wheel and tasks. Only one core at a time takes a step.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, HashSet},
    mem,
    panic::{self, AssertUnwindSafe},
    pin::Pin,
    rc::Rc,
    sync::{
        Arc, Mutex,
        mpsc::{Receiver, Sender, channel},
    },
    task::{Context, Wake, Waker},
    thread,
    time::Duration,
};

use super::{super::timers::set_wheel_selector, JoinHandle, Scheduler};
use crate::{
    clock::ManualClock,
    config::Config,
    local::{ShardRef, ThreadWheel, local_timer},
    util::sync::lock,
};

/// A step of a core.
#[derive(Clone, Copy)]
pub(super) enum Step {
    /// Polls the ready task at this position, modulo the number of ready tasks.
    Poll(usize),
    Turn,
}

/// The state of a core after a step.
#[derive(Clone, Copy)]
pub(super) struct StepResult {
    /// True if the step may have had an effect: the core may need another turn, and other cores may
    /// have new messages.
    pub(super) had_effect: bool,
    /// The time until the core's wheel next needs a turn.
    pub(super) time_until_next: Option<Duration>,
    /// The number of unfinished tasks.
    pub(super) task_count: usize,
}

type Job = Box<dyn FnOnce(&Tasks) + Send>;

/// The executor's handle to a core.
pub(super) struct VirtualCore {
    index: usize,
    /// Sends jobs to the core's thread. Dropping the sender ends the thread.
    job_sender: Option<Sender<Job>>,
    thread: Option<thread::JoinHandle<()>>,
}

/// The tasks of a core, used only by the core's thread.
struct Tasks {
    /// A `BTreeMap`, so that each run drops the tasks in the same order.
    unfinished_by_id: RefCell<BTreeMap<usize, UnfinishedTask>>,
    next_task_id: Cell<usize>,
    ready_set: Arc<ReadySet>,
}

/// A spawned task that has not finished.
struct UnfinishedTask {
    future: Pin<Box<dyn Future<Output = ()>>>,
    waker: Waker,
}

/// The ready tasks of a core.
#[derive(Default)]
pub(super) struct ReadySet(Mutex<ReadyIds>);

/// The ids of a core's ready tasks.
#[derive(Default)]
struct ReadyIds {
    ids: Vec<usize>,
    /// The elements of `ids` as a set, for fast lookups.
    id_set: HashSet<usize>,
}

/// A waker that adds its task to the core's ready tasks.
struct TaskWaker {
    ready_set: Arc<ReadySet>,
    id: usize,
}

thread_local! {
    /// The tasks of this thread, if it is a virtual core.
    static THREAD_TASKS: RefCell<Option<Rc<Tasks>>> = const { RefCell::new(None) };
}

/// Spawns a task on the core of this thread. Returns `None` if the thread is not a virtual core.
pub(super) fn spawn_on_current_core<F: Future + 'static>(
    future: F,
) -> Option<JoinHandle<F::Output>> {
    let tasks = THREAD_TASKS.try_with(|tasks| tasks.borrow().clone()).ok().flatten()?;
    Some(tasks.spawn(future))
}

impl VirtualCore {
    /// Starts the core's thread, and adds the core to the scheduler.
    pub(super) fn start(
        index: usize,
        clock: &ManualClock,
        scheduler: &mut Scheduler,
    ) -> (Self, ShardRef) {
        let (job_sender, job_receiver) = channel();
        let ready_set = Arc::new(ReadySet::default());
        let config = Config::new().clock(clock);
        let ready_set_of_thread = Arc::clone(&ready_set);
        let run_thread = move || {
            config.install().expect("a new thread");
            // Marks the wheel as driven.
            let _ = local_timer().time_until_next();
            set_wheel_selector(index + 1);
            run_jobs(&job_receiver, ready_set_of_thread);
        };
        let thread = thread::Builder::new().name(format!("virtual core {index}")).spawn(run_thread);
        let thread = Some(thread.expect("a thread for a core"));
        let core = Self { index, job_sender: Some(job_sender), thread };
        let shard = core.run_on_core(|_| local_timer().shard_ref());
        scheduler.add_core(ready_set, shard.clone());
        (core, shard)
    }

    /// Takes the step `first_step`, and then more steps of this core, until the scheduler chooses
    /// another core. Returns the next step of another core, or `None` if no step is possible.
    pub(super) fn take_steps(
        &self,
        first_step: Step,
        scheduler: &Arc<Mutex<Scheduler>>,
    ) -> Option<(usize, Step)> {
        let (index, scheduler) = (self.index, Arc::clone(scheduler));
        self.run_on_core(move |tasks| {
            let mut step = first_step;
            loop {
                let result = tasks.take_step(step);
                let mut scheduler = lock(&scheduler);
                match scheduler.finish_step(index, result) {
                    Some((core, next_step)) if core == index => step = next_step,
                    next => return next,
                }
            }
        })
    }

    pub(super) fn spawn<F>(
        &self,
        make_future: impl FnOnce() -> F + Send + 'static,
    ) -> JoinHandle<F::Output>
    where
        F: Future<Output: Send> + 'static,
    {
        self.run_on_core(move |tasks| tasks.spawn(make_future()))
    }

    pub(super) fn task_count(&self) -> usize {
        self.run_on_core(|tasks| tasks.unfinished_by_id.borrow().len())
    }

    /// Runs a job on the core's thread and waits for the result. A panic of the job propagates to
    /// the calling thread.
    fn run_on_core<R: Send + 'static>(&self, job: impl FnOnce(&Tasks) -> R + Send + 'static) -> R {
        let (result_sender, result_receiver) = channel::<thread::Result<R>>();
        let job = move |tasks: &Tasks| {
            let _ = result_sender.send(panic::catch_unwind(AssertUnwindSafe(|| job(tasks))));
        };
        let job_sender = self.job_sender.as_ref().expect("the core has not ended");
        job_sender.send(Box::new(job)).expect("the thread takes jobs until the core is dropped");
        let result = result_receiver.recv().expect("the thread answers");
        result.unwrap_or_else(|panic| panic::resume_unwind(panic))
    }
}

impl Drop for VirtualCore {
    fn drop(&mut self) {
        self.job_sender = None;
        // Ignores a panic of the thread. The thread can panic only at its start, which makes
        // `VirtualCore::start` panic too.
        let _ = self.thread.take().map(thread::JoinHandle::join);
    }
}

fn run_jobs(job_receiver: &Receiver<Job>, ready_set: Arc<ReadySet>) {
    let tasks = Rc::new(Tasks {
        unfinished_by_id: RefCell::default(),
        next_task_id: Cell::new(0),
        ready_set,
    });
    THREAD_TASKS.set(Some(Rc::clone(&tasks)));
    for job in job_receiver {
        job(&tasks);
    }
    THREAD_TASKS.set(None);
    // Drops the tasks while the thread still has its wheel, and while `tasks.unfinished_by_id` is
    // not borrowed.
    let unfinished_by_id = mem::take(&mut *tasks.unfinished_by_id.borrow_mut());
    ThreadWheel::drop_each_catching_panic(unfinished_by_id.into_values());
}

impl Tasks {
    fn spawn<F: Future + 'static>(&self, future: F) -> JoinHandle<F::Output> {
        let (task, future) = JoinHandle::new(future);
        let id = self.next_task_id.replace(self.next_task_id.get() + 1);
        let waker = Waker::from(Arc::new(TaskWaker { ready_set: Arc::clone(&self.ready_set), id }));
        self.unfinished_by_id
            .borrow_mut()
            .insert(id, UnfinishedTask { future: Box::pin(future), waker });
        self.ready_set.push(id);
        task
    }

    fn take_step(&self, step: Step) -> StepResult {
        let had_effect = match step {
            Step::Poll(position) => self.try_poll_task(position),
            Step::Turn => {
                // If this turn sends purgatory messages, other cores need a turn to receive them.
                let flush_is_pending =
                    || ThreadWheel::with(|wheel| wheel.flush_is_requested.get()) == Ok(true);
                let sends_messages = flush_is_pending();
                let turn = local_timer().turn();
                sends_messages
                    || turn.fired + turn.collected > 0
                    || turn.behind
                    || flush_is_pending()
            }
        };
        let time_until_next = local_timer().time_until_next();
        StepResult { had_effect, time_until_next, task_count: self.unfinished_by_id.borrow().len() }
    }

    /// Polls the ready task at `position`, modulo the number of ready tasks. Returns false if no
    /// task is ready.
    fn try_poll_task(&self, position: usize) -> bool {
        let Some(id) = self.ready_set.pop(position) else { return false };
        // Removes the task from `unfinished_by_id`, which must not be borrowed while the task runs.
        let task = self.unfinished_by_id.borrow_mut().remove(&id);
        if let Some(mut task) = task
            && task.future.as_mut().poll(&mut Context::from_waker(&task.waker)).is_pending()
        {
            self.unfinished_by_id.borrow_mut().insert(id, task);
        }
        true
    }
}

impl ReadySet {
    pub(super) fn ready_count(&self) -> usize {
        lock(&self.0).ids.len()
    }

    fn push(&self, id: usize) {
        let mut ready_ids = lock(&self.0);
        if ready_ids.id_set.insert(id) {
            ready_ids.ids.push(id);
        }
    }

    fn pop(&self, position: usize) -> Option<usize> {
        let mut ready_ids = lock(&self.0);
        let index = position.checked_rem(ready_ids.ids.len())?;
        let id = ready_ids.ids.swap_remove(index);
        ready_ids.id_set.remove(&id);
        Some(id)
    }
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.ready_set.push(self.id);
    }
}
