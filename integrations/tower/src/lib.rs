//! A timeout layer for tower whose deadlines are corewheel's: [`TimeoutLayer`].
//!
//! ```
//! use corewheel::future::Timers;
//! use corewheel_tower::{TimeoutError, TimeoutLayer};
//! use std::{convert::Infallible, future, time::Duration};
//! use tower::{ServiceBuilder, ServiceExt, service_fn};
//!
//! # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
//! # runtime.block_on(async {
//! let service = ServiceBuilder::new()
//!     .layer(TimeoutLayer::new(Timers::start(1)?, Duration::from_millis(5)))
//!     .service(service_fn(|()| future::pending::<Result<(), Infallible>>()));
//! let error = service.oneshot(()).await.unwrap_err();
//! assert!(error.is::<TimeoutError>());
//! # Ok::<(), std::io::Error>(())
//! # })?;
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! A request that is answered at its first poll touches no timer. With a current-thread runtime per
//! core, take the timers of `corewheel_tokio::time::timers`: the deadlines are then on the core's
//! own wheel.

use std::{
    error::Error,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

pub use corewheel::future::TimeoutError;
use corewheel::future::{self, Remote, Timers};
use pin_project_lite::pin_project;
use tower_layer::Layer;
use tower_service::Service;

/// The error of a [`Timeout`]: [`TimeoutError`], or the error of the service inside.
pub type BoxError = Box<dyn Error + Send + Sync>;

/// Gives each request of a service a deadline.
#[derive(Clone, Debug)]
pub struct TimeoutLayer {
    timers: Timers,
    timeout: Duration,
}

impl TimeoutLayer {
    /// Makes a layer whose requests end after `timeout`, on `timers`.
    pub fn new(timers: Timers, timeout: Duration) -> Self {
        Self { timers, timeout }
    }
}

impl<S> Layer<S> for TimeoutLayer {
    type Service = Timeout<S>;

    fn layer(&self, service: S) -> Timeout<S> {
        Timeout { inner: service, layer: self.clone() }
    }
}

/// A service whose requests have a deadline; from [`TimeoutLayer`].
#[derive(Clone, Debug)]
pub struct Timeout<S> {
    inner: S,
    layer: TimeoutLayer,
}

impl<S> Timeout<S> {
    /// Returns the service inside.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }

    /// Returns the service inside, to be changed.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// Returns the service inside alone.
    pub fn into_inner(self) -> S {
        self.inner
    }
}

impl<S, Request> Service<Request> for Timeout<S>
where
    S: Service<Request, Error: Into<BoxError>>,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = ResponseFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: Request) -> Self::Future {
        let response = self.inner.call(request);
        ResponseFuture { response: self.layer.timers.timeout(self.layer.timeout, response) }
    }
}

pin_project! {
    /// The answer of a [`Timeout`].
    #[derive(Debug)]
    #[must_use = "futures do nothing unless polled"]
    pub struct ResponseFuture<F> {
        #[pin]
        response: future::Timeout<F, Remote>,
    }
}

impl<F, Response, E> Future for ResponseFuture<F>
where
    F: Future<Output = Result<Response, E>>,
    E: Into<BoxError>,
{
    type Output = Result<Response, BoxError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(ready!(self.project().response.poll(cx))?.map_err(Into::into))
    }
}
