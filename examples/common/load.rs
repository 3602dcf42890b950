//! A load generator: two threads that simulate thousands of users of a server. Each user is a task.
//!
//! The users wait with tokio's timer, because the library must not time its own test.

use std::cell::Cell;
use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tokio::runtime::Builder;
use tokio::task::{LocalSet, spawn_local};

const THREAD_COUNT: usize = 2;
/// A thread repeatedly sleeps for this long, and measures how much longer the sleep lasted.
const PROBE_SLEEP: Duration = Duration::from_millis(5);

/// Each user keeps a clone of the token while the user has actions left. So the load is over when
/// no user's clone exists.
pub(crate) type ActiveToken = Arc<()>;

/// The users of a thread, and the longest time by which the machine delayed the thread.
type UsersAndDelay<U> = (Vec<U>, Duration);

pub(crate) struct Load<U> {
    threads: Vec<JoinHandle<io::Result<UsersAndDelay<U>>>>,
    active_token: ActiveToken,
}

impl<U: Send + 'static> Load<U> {
    /// Starts a task for each user. `run` gets the user's number, the start of the run, and an
    /// [`ActiveToken`].
    pub(crate) fn start<F: Future<Output = io::Result<U>> + 'static>(
        users: u32,
        run: impl Fn(u32, (Instant, ActiveToken)) -> F + Clone + Send + 'static,
    ) -> Self {
        let (active_token, start) = (ActiveToken::default(), Instant::now());
        let start = |thread| {
            let (run, active_token) = (run.clone(), Arc::clone(&active_token));
            // Each thread gets groups of ten consecutive users, which have different roles.
            let user_ids = (0..users).filter(move |id| *id as usize / 10 % THREAD_COUNT == thread);
            let user = move |id| run(id, (start, Arc::clone(&active_token)));
            thread::spawn(move || simulate(user_ids.map(user)))
        };
        Self { threads: (0..THREAD_COUNT).map(start).collect(), active_token }
    }

    pub(crate) fn is_over(&self) -> bool {
        Arc::strong_count(&self.active_token) == 1
    }

    /// Waits for the users, which end when the server has closed their connections. Returns the
    /// users, and the longest delay that the machine caused to a thread.
    pub(crate) fn join(self) -> io::Result<UsersAndDelay<U>> {
        let (mut all_users, mut longest_delay) = (Vec::new(), Duration::ZERO);
        for thread in self.threads {
            let (users, delay) =
                thread.join().map_err(|_| io::Error::other("the load panicked"))??;
            all_users.extend(users);
            longest_delay = longest_delay.max(delay);
        }
        Ok((all_users, longest_delay))
    }
}

fn simulate<U: 'static, F: Future<Output = io::Result<U>> + 'static>(
    users: impl Iterator<Item = F>,
) -> io::Result<UsersAndDelay<U>> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    LocalSet::new().block_on(&runtime, async {
        let users: Vec<_> = users.map(spawn_local).collect();
        let longest_delay = Cell::new(Duration::ZERO);
        let measure = async {
            loop {
                let asleep = Instant::now();
                tokio::time::sleep(PROBE_SLEEP).await;
                longest_delay
                    .set(longest_delay.get().max(asleep.elapsed().saturating_sub(PROBE_SLEEP)));
            }
        };
        let ended = async {
            let mut all = Vec::new();
            for user in users {
                all.push(user.await??);
            }
            Ok((all, longest_delay.get()))
        };
        tokio::select! {
            never = measure => never,
            ended = ended => ended,
        }
    })
}
