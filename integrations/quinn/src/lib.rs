//! corewheel as the timer of quinn's QUIC connections: [`Runtime`] is a [`quinn::Runtime`] with
//! tasks and sockets from tokio.
//!
//! A QUIC connection resets its timer with nearly every packet. In corewheel, a reset to a
//! later deadline usually sends no message.
//!
//! ```
//! use corewheel_quinn::Runtime;
//! use corewheel_tokio::time;
//! use quinn::{Endpoint, EndpointConfig};
//! use std::{net::UdpSocket, sync::Arc};
//!
//! # let tokio = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
//! # let _guard = tokio.enter();
//! let runtime = Arc::new(Runtime::new(time::timers()));
//! let socket = UdpSocket::bind("127.0.0.1:0")?;
//! let endpoint = Endpoint::new(EndpointConfig::default(), None, socket, runtime)?;
//! # drop(endpoint);
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! While [no timer is available](corewheel::future#without-a-timer), a connection has no timeouts.
//! The connection requests a timer again with its next packet. On a thread [without a
//! driver](corewheel::future#without-a-driver), each request panics, and this package catches the
//! panic.

use std::{
    io,
    net::UdpSocket,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Instant,
};

use corewheel::future::{SharedWheel, Sleep, Timers};
use quinn::{AsyncTimer, AsyncUdpSocket, TokioRuntime};

/// Implements quinn's runtime with corewheel's timers and tokio's tasks and sockets.
#[derive(Clone, Debug)]
pub struct Runtime(Timers);

impl Runtime {
    /// Creates a runtime for quinn. Clones share `timers`.
    pub fn new(timers: Timers) -> Self {
        Self(timers)
    }
}

impl quinn::Runtime for Runtime {
    fn new_timer(&self, deadline: Instant) -> Pin<Box<dyn AsyncTimer>> {
        Box::pin(Timer(self.0.sleep_until(deadline)))
    }

    fn spawn(&self, future: Pin<Box<dyn Future<Output = ()> + Send>>) {
        TokioRuntime.spawn(future);
    }

    fn wrap_udp_socket(&self, socket: UdpSocket) -> io::Result<Arc<dyn AsyncUdpSocket>> {
        TokioRuntime.wrap_udp_socket(socket)
    }

    fn now(&self) -> Instant {
        self.0.now()
    }
}

#[derive(Debug)]
struct Timer(Sleep<SharedWheel>);

impl AsyncTimer for Timer {
    fn reset(mut self: Pin<&mut Self>, deadline: Instant) {
        self.0.reset(deadline);
    }

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        // An uncaught panic would poison the connection's mutex, and the connection's destructor
        // would abort the process.
        match catch_unwind(AssertUnwindSafe(|| self.0.poll_elapsed(cx))) {
            Ok(Poll::Ready(Ok(()))) => Poll::Ready(()),
            _ => Poll::Pending,
        }
    }
}
