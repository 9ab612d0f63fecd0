//! The spans of requests. If spans are recorded, a request's span is a child of its caller's, and the commits of the request belong to
//! the request's span.

use std::sync::Arc;

use annals_core::trace::{BegunSpan, EndedSpan, SpanKind, SpanValue, Spans, TRACEPARENT};
use axum::http::{HeaderValue, Method, Request, StatusCode};

use crate::caller::{TENANT_HEADER, trace_of};
use crate::route::Permission;

/// The recorder of the spans of requests to a route.
#[derive(Clone)]
pub(crate) struct Traced {
    spans: Option<Arc<dyn Spans>>,
    route: &'static str,
    /// Whether a request without a span of its caller begins a trace. Reads and pulls do not: they are frequent, and most of them find
    /// nothing.
    begins: bool,
}

/// The span of a request in flight.
pub(crate) struct RequestSpan {
    spans: Arc<dyn Spans>,
    begun: BegunSpan,
    method: Method,
    route: &'static str,
    tenant: Option<String>,
}

impl Traced {
    /// Creates the recorder of a route. Operations that need no permission, such as health checks and documents, are not traced.
    pub fn new(spans: Option<&Arc<dyn Spans>>, route: &'static str, permission: Permission) -> Self {
        let spans = spans.filter(|_| permission != Permission::Open).cloned();
        Self { spans, route, begins: permission != Permission::Reader && !route.ends_with("/pull") }
    }

    /// Begins the span of a request, and passes it on to the handler.
    pub fn begin<B>(&self, request: &mut Request<B>) -> Option<RequestSpan> {
        let spans = self.spans.as_ref()?;
        let parent = trace_of(request.headers());
        if parent.is_none() && !self.begins {
            return None;
        }
        let begun = spans.begin(parent)?;
        let value = HeaderValue::from_str(&begun.context.to_string()).ok()?;
        let tenant = request.headers().get(TENANT_HEADER).and_then(|tenant| tenant.to_str().ok()).map(str::to_owned);
        let method = request.method().clone();
        request.headers_mut().insert(TRACEPARENT, value);
        Some(RequestSpan { spans: Arc::clone(spans), begun, method, route: self.route, tenant })
    }
}

impl RequestSpan {
    /// Ends the span with the response. Only server errors count as failures.
    pub fn end(self, status: StatusCode) {
        let text = |text: &str| SpanValue::Text(text.into());
        let mut attributes = vec![
            ("http.request.method", text(self.method.as_str())),
            ("http.route", text(self.route)),
            ("http.response.status_code", SpanValue::Number(status.as_u16().into())),
        ];
        attributes.extend(self.tenant.as_deref().map(|tenant| ("annals.tenant", text(tenant))));
        self.spans.end(EndedSpan {
            begun: self.begun,
            name: format!("{} {}", self.method, self.route),
            kind: SpanKind::Server,
            attributes,
            failure: status.is_server_error().then(|| status.to_string()),
        });
    }
}
