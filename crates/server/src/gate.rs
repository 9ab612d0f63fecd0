//! What every request passes: its limits are checked, it is measured, and a handler that panics still answers.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use annals_core::Code;
use axum::extract::{Request, State};
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

    fn check(&self, request: &Request) -> Result<(), Problem> {
        let target = request.uri().path_and_query().map_or(0, |target| target.as_str().len());
        let headers = request.headers().iter().map(|(name, value)| name.as_str().len() + value.len() + ": \r\n".len());
        let bytes = target + headers.sum::<usize>();
        if bytes > self.header_bytes_max {
            let message =
                format!("{bytes} bytes of request line and headers; at most {} are read", self.header_bytes_max);
            return Err(Problem::new(Code::HeadersTooLarge, message).closing());
        }
        if !path_is_encoded(request.uri().path()) {
            let message = format!("{:?} is not percent-encoded UTF-8; write a % itself as %25", request.uri().path());
            return Err(Problem::new(Code::InvalidPath, message));
        }
        Ok(())
    }
}

/// The middleware.
pub(crate) async fn gate(State(gate): State<Gate>, request: Request, next: Next) -> Response {
    let begun = Instant::now();
    let in_flight = gate.in_flight.enter();
    let response = match gate.check(&request) {
        Err(problem) => problem.into_response(),
        Ok(()) => {
            let path = request.uri().path().to_owned();
            match AssertUnwindSafe(next.run(request)).catch_unwind().await {
                Ok(response) => response,
                Err(_) => {
                    tracing::error!(path, "a handler panicked; the message stands above");
                    Problem::new(Code::Internal, format!("the handler of {path} failed")).into_response()
                }
            }
        }
    };
    drop(in_flight);
    gate.route.answered(response.status().as_u16(), begun.elapsed());
    response
}
