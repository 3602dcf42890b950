//! Drives a thread's corewheel timer in any executor that can sleep. The packages for smol, monoio and glommio stand on it.

use std::{
    cell::OnceCell,
    convert::Infallible,
    future::poll_fn,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use atomic_waker::AtomicWaker;
use corewheel::{Config, ConfigError, local_timer};

/// How many entries a turn touches before other tasks are polled.
const BUDGET: usize = 1_024;

thread_local! {
    /// The bell of this thread's timer, once a driver has installed it.
    static BELL: OnceCell<Arc<Bell>> = const { OnceCell::new() };
}

/// The wake hook of a timer ends the sleep of its driver, from any thread.
#[derive(Debug, Default)]
struct Bell {
    sleeper: AtomicWaker,
    is_rung: AtomicBool,
}

impl Bell {
    fn ring(&self) {
        // Release: pairs with the swap in `poll`. The waker comes after it, so a driver that misses the flag is woken.
        self.is_rung.store(true, Ordering::Release);
        self.sleeper.wake();
    }

    fn poll(&self, cx: &Context<'_>) -> Poll<()> {
        self.sleeper.register(cx.waker());
        // Acquire: pairs with the store in `ring`.
        if self.is_rung.swap(false, Ordering::Acquire) { Poll::Ready(()) } else { Poll::Pending }
    }
}

/// Gives `config` the wake hook of this thread's driver, for whatever installs it on this thread later.
pub fn hook(config: Config) -> Config {
    let bell = BELL.with(|made| Arc::clone(made.get_or_init(Arc::default)));
    config.on_wake(move || bell.ring())
}

/// Returns a future that drives this thread's timer and never ends. `sleep` is how the executor sleeps.
///
/// A thread without a timer gets one as `config` says, with the hook. Later drivers of the thread go on with it.
///
/// # Errors
///
/// If the thread has a timer without the hook, or `config` cannot be used.
pub fn drive<F: Future>(
    config: Config,
    mut sleep: impl FnMut(Duration) -> F,
) -> Result<impl Future<Output = Infallible>, ConfigError> {
    let hooked = BELL.with(|made| made.get().cloned());
    let bell = match hooked {
        Some(bell) => bell,
        None => install(config)?,
    };
    Ok(async move {
        loop {
            local_timer().turn_within(BUDGET);
            let announced = local_timer().prepare_sleep();
            match announced.timeout() {
                Some(timeout) if timeout.is_zero() => yield_now().await,
                Some(timeout) => {
                    let mut slept = pin!(sleep(timeout));
                    poll_fn(|cx| match bell.poll(cx) {
                        Poll::Pending => slept.as_mut().poll(cx).map(drop),
                        Poll::Ready(()) => Poll::Ready(()),
                    })
                    .await;
                }
                None => poll_fn(|cx| bell.poll(cx)).await,
            }
        }
    })
}

fn install(config: Config) -> Result<Arc<Bell>, ConfigError> {
    let bell = Arc::<Bell>::default();
    let rung = Arc::clone(&bell);
    config.on_wake(move || rung.ring()).install()?;
    // Only now: a thread whose timer was made without the hook stays without.
    BELL.with(|made| Ok(Arc::clone(made.get_or_init(|| bell))))
}

/// Lets every other task have its turn.
async fn yield_now() {
    let mut has_yielded = false;
    poll_fn(|cx| {
        if has_yielded {
            return Poll::Ready(());
        }
        has_yielded = true;
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
