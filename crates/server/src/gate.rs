//! The gate that every request passes: it checks limits and the caller, records metrics, and turns a panic of the handler into a
//! response.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use annals_core::Code;
use annals_system::Instant;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;

use crate::audited::audited;
use crate::body::{Drain, Drained, RequestBody};
use crate::caller::Principal;
use crate::metrics::{Gauge, RouteMetrics};
use crate::problem::Problem;
use crate::query::{self, path_is_encoded};
use crate::route::Permission;
use crate::security::{Access, Needs, governed, unauthenticated};
use crate::state::Server;
use crate::traced::Traced;
use crate::unread::ChangedNothing;

/// The gate of one operation.
#[derive(Clone)]
pub(crate) struct Gate {
    route: Arc<RouteMetrics>,
    in_flight: Gauge,
    header_bytes_max: usize,
    drain: Arc<Drain>,
    needs: Needs,
    /// Whether the handler reads the query. If not, the gate refuses a query string.
    reads_query: bool,
    /// The server whose guard checks credentials, if it has one.
    guarded: Option<Arc<Server>>,
    /// The operation's name in the audit log, if its uses are recorded.
    audited: Option<&'static str>,
    traced: Traced,
}

impl Gate {
    /// Creates the gate of an operation, whose requests are counted under `label`.
    pub fn new(server: &Arc<Server>, label: &'static str, needs: Needs, reads_query: bool) -> Self {
        Self {
            route: server.metrics.route(label),
            in_flight: server.metrics.in_flight.clone(),
            header_bytes_max: server.options.header_bytes_max,
            drain: Arc::new(Drain::new(&server.options)),
            needs,
            reads_query,
            guarded: server.guard.is_some().then(|| Arc::clone(server)),
            audited: None,
            traced: Traced::new(server.host.spans(), label, needs.permission),
        }
    }

    /// Records each use of the operation in the audit log.
    pub fn auditing(self, operation: &'static str) -> Self {
        Self { audited: Some(operation), ..self }
    }

    /// Wraps the body of `request` so that it drains itself.
    pub fn draining<B: RequestBody>(&self, request: axum::http::Request<B>) -> axum::http::Request<Drained<B>> {
        let (parts, body) = request.into_parts();
        let body = Drained::new(body, &parts.headers, &self.drain);
        axum::http::Request::from_parts(parts, body)
    }

    fn check(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), Problem> {
        let target = uri.path_and_query().map_or(0, |target| target.as_str().len());
        let lines = headers.iter().map(|(name, value)| name.as_str().len() + value.len() + ": \r\n".len());
        let bytes = target + lines.sum::<usize>();
        if bytes > self.header_bytes_max {
            let message = format!(
                "the request line and headers have {bytes} bytes; at most {} are allowed",
                self.header_bytes_max
            );
            return Err(Problem::new(Code::HeadersTooLarge, message).closing());
        }
        if !path_is_encoded(uri.path()) {
            let message = format!("{:?} is not percent-encoded UTF-8; write a % itself as %25", uri.path());
            return Err(Problem::new(Code::InvalidPath, message));
        }
        Ok(())
    }

    /// Checks a request before its handler sees it, and returns the caller's access.
    async fn admit(&self, uri: &Uri, headers: &HeaderMap) -> Result<Option<Arc<Access>>, Problem> {
        self.check(uri, headers)?;
        let access = match self.guarded.as_ref().and_then(|server| server.guard.as_ref()) {
            Some(guard) => guard.admit(headers, uri, self.needs).await?,
            None => None,
        };
        if !self.reads_query {
            query::none(uri.query())?;
        }
        Ok(access)
    }

    /// Runs a handler for a known caller. If the credential ends while a read waits, the read is aborted; a write always gets its
    /// outcome.
    async fn run(&self, access: &Arc<Access>, handled: impl Future<Output = Response>) -> Response {
        let waits_to_read = self.needs.permission == Permission::Reader || self.route.path().ends_with("/pull");
        if !waits_to_read {
            return governed(handled.await, access);
        }
        tokio::select! {
            biased;
            response = handled => governed(response, access),
            () = access.ended() => {
                unauthenticated("the credential was revoked or has expired").into_response()
            }
        }
    }

    /// Passes `request` to `handler` if it keeps the limits and its caller is admitted.
    pub async fn pass<B, F>(
        &self,
        mut request: axum::http::Request<B>,
        handler: impl FnOnce(axum::http::Request<B>) -> F,
    ) -> Response
    where
        F: Future<Output = Response>,
    {
        let begun = Instant::now();
        let in_flight = self.in_flight.enter();
        let span = self.traced.begin(&mut request);
        let response = match self.admit(request.uri(), request.headers()).await {
            Err(problem) => problem.into_response(),
            Ok(access) => {
                let handled = match access {
                    None => AssertUnwindSafe(handler(request)).catch_unwind().await,
                    Some(access) => {
                        request.extensions_mut().insert(Principal::Known(Arc::clone(&access)));
                        AssertUnwindSafe(self.run(&access, handler(request))).catch_unwind().await
                    }
                };
                match handled {
                    Ok(mut response) => {
                        if matches!(self.needs.permission, Permission::Reader) {
                            response.extensions_mut().insert(ChangedNothing);
                        }
                        response
                    }
                    Err(_) => {
                        let path = self.route.path();
                        tracing::error!(path, "a request handler panicked; see the message above");
                        Problem::new(Code::Internal, format!("the request handler of {path} panicked")).into_response()
                    }
                }
            }
        };
        drop(in_flight);
        self.route.answered(response.status().as_u16(), begun.elapsed());
        if let Some(span) = span {
            span.end(response.status());
        }
        response
    }
}

/// Runs the gate as axum middleware.
pub(crate) async fn gate(State(gate): State<Gate>, request: Request, next: Next) -> Response {
    let request =
        if hyper::body::Body::is_end_stream(request.body()) { request } else { gate.draining(request).map(Body::new) };
    let acts = gate.audited.zip(gate.guarded.as_ref());
    gate.pass(request, |request| async {
        match acts {
            Some((operation, server)) => audited(server, operation, request, next).await,
            None => next.run(request).await,
        }
    })
    .await
}
