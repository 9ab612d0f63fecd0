//! What every request passes: its limits are checked, it is measured, and a handler that panics still answers.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use annals_core::Code;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;
use tokio::time::Instant;

use crate::metrics::{Gauge, RouteMetrics};
use crate::problem::Problem;
use crate::query::path_is_encoded;
use crate::router::Server;

/// The gate of one route.
#[derive(Clone)]
pub(crate) struct Gate {
    route: Arc<RouteMetrics>,
    in_flight: Gauge,
    header_bytes_max: usize,
}

impl Gate {
    /// The gate of the route at `place`.
    pub fn new(server: &Server, place: usize) -> Self {
        Self {
            route: server.metrics.route(place),
            in_flight: server.metrics.in_flight.clone(),
            header_bytes_max: server.options.header_bytes_max,
        }
    }

    fn check(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), Problem> {
        let target = uri.path_and_query().map_or(0, |target| target.as_str().len());
        let headers = headers.iter().map(|(name, value)| name.as_str().len() + value.len() + ": \r\n".len());
        let bytes = target + headers.sum::<usize>();
        if bytes > self.header_bytes_max {
            let message =
                format!("{bytes} bytes of request line and headers; at most {} are read", self.header_bytes_max);
            return Err(Problem::new(Code::HeadersTooLarge, message).closing());
        }
        if !path_is_encoded(uri.path()) {
            let message = format!("{:?} is not percent-encoded UTF-8; write a % itself as %25", uri.path());
            return Err(Problem::new(Code::InvalidPath, message));
        }
        Ok(())
    }

    /// Lets `request` pass to `handler` if its limits are kept.
    pub async fn pass<B, F>(
        &self,
        request: axum::http::Request<B>,
        handler: impl FnOnce(axum::http::Request<B>) -> F,
    ) -> Response
    where
        F: Future<Output = Response>,
    {
        let begun = Instant::now();
        let in_flight = self.in_flight.enter();
        let response = match self.check(request.uri(), request.headers()) {
            Err(problem) => problem.into_response(),
            Ok(()) => match AssertUnwindSafe(handler(request)).catch_unwind().await {
                Ok(response) => response,
                Err(_) => {
                    let path = self.route.path();
                    tracing::error!(path, "a handler panicked; the message stands above");
                    Problem::new(Code::Internal, format!("the handler of {path} failed")).into_response()
                }
            },
        };
        drop(in_flight);
        self.route.answered(response.status().as_u16(), begun.elapsed());
        response
    }
}

/// The middleware.
pub(crate) async fn gate(State(gate): State<Gate>, request: Request, next: Next) -> Response {
    gate.pass(request, |request| next.run(request)).await
}
