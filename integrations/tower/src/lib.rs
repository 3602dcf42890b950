//! A timeout layer for tower on corewheel's timers: [`TimeoutLayer`].
//!
//! ```
//! use corewheel_tokio::time;
//! use corewheel_tower::{TimeoutError, TimeoutLayer};
//! use std::{convert::Infallible, future, time::Duration};
//! use tower::{ServiceBuilder, ServiceExt, service_fn};
//!
//! # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
//! # runtime.block_on(async {
//! let service = ServiceBuilder::new()
//!     .layer(TimeoutLayer::new(time::timers(), Duration::from_millis(5)))
//!     .service(service_fn(|()| future::pending::<Result<(), Infallible>>()));
//! let error = service.oneshot(()).await.unwrap_err();
//! assert_eq!(error.downcast_ref(), Some(&TimeoutError::Elapsed));
//! # });
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! A request that is answered at its first poll touches no timer. In a current-thread runtime of
//! `corewheel_tokio::run`, `time::timers` returns the thread's own wheel. In a multi-thread
//! runtime, `time::timers` returns the wheels of [`Timers::per_worker`] by default. With another
//! executor, use [`Timers::per_worker`].
//!
//! # With axum
//!
//! The services of a `Router` cannot fail, so a `HandleErrorLayer` turns errors into responses:
//!
//! ```
//! use axum::{BoxError, Router, error_handling::HandleErrorLayer, http::StatusCode, routing::get};
//! use corewheel_tokio::time;
//! use corewheel_tower::{TimeoutError, TimeoutLayer};
//! use std::time::Duration;
//! use tower::ServiceBuilder;
//! # use axum::{body::Body, http::Request};
//! # use tower::ServiceExt;
//!
//! async fn answer(error: BoxError) -> StatusCode {
//!     match error.downcast_ref() {
//!         Some(TimeoutError::Elapsed) => StatusCode::REQUEST_TIMEOUT,
//!         Some(_) => StatusCode::SERVICE_UNAVAILABLE, // overload: no timer is available
//!         None => StatusCode::INTERNAL_SERVER_ERROR,
//!     }
//! }
//!
//! # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
//! # runtime.block_on(async {
//! let layers = ServiceBuilder::new()
//!     .layer(HandleErrorLayer::new(answer))
//!     .layer(TimeoutLayer::new(time::timers(), Duration::from_millis(5)));
//! let app = Router::new().route("/slow", get(std::future::pending::<()>)).layer(layers);
//! # let request = Request::get("/slow").body(Body::empty()).unwrap();
//! # assert_eq!(app.oneshot(request).await.unwrap().status(), StatusCode::REQUEST_TIMEOUT);
//! # });
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! `axum::serve` has no idle timeout for connections. For an idle timeout, serve each connection
//! with hyper's `http1::Builder`, the `Timer` of `corewheel-hyper`, and the service
//! `hyper_util::service::TowerToHyperService::new(app)`.

use std::{
    error::Error,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

pub use corewheel::future::TimeoutError;
use corewheel::future::{self, SharedWheel, Timers};
use pin_project_lite::pin_project;
use tower_layer::Layer;
use tower_service::Service;

/// The error of a [`Timeout`]: [`TimeoutError`], or the error of the inner service.
pub type BoxError = Box<dyn Error + Send + Sync>;

/// A layer that gives each request of a service a deadline.
#[derive(Clone, Debug)]
pub struct TimeoutLayer {
    timers: Timers,
    timeout: Duration,
}

impl TimeoutLayer {
    /// Creates a layer that ends requests after `timeout`.
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

/// A service whose requests have a deadline; created by [`TimeoutLayer`].
#[derive(Clone, Debug)]
pub struct Timeout<S> {
    inner: S,
    layer: TimeoutLayer,
}

impl<S> Timeout<S> {
    /// Returns the inner service.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }

    /// Returns a mutable reference to the inner service.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// Returns the inner service without the timeout.
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
    /// The response future of a [`Timeout`].
    #[derive(Debug)]
    #[must_use = "futures do nothing unless polled"]
    pub struct ResponseFuture<F> {
        #[pin]
        response: future::Timeout<F, SharedWheel>,
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
