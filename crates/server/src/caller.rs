//! The caller of a request, and the tenant it addresses.

use std::fmt;
use std::sync::Arc;

use annals_core::credentials::{EVERY, Grant};
use annals_core::trace::{TRACEPARENT, TraceContext};
use annals_core::{Code, DEFAULT_TENANT};
use axum::extract::FromRequestParts;
use axum::http::HeaderMap;
use axum::http::request::Parts;

use crate::problem::Problem;
use crate::security::Access;

/// The header that names the tenant.
pub(crate) const TENANT_HEADER: &str = "annals-tenant";

/// The caller of a request. The scope is a query parameter; [`Source`](crate::source::Source) combines the two.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    pub tenant: String,
    pub principal: Principal,
    /// The caller's span, if it sent one that can be parsed.
    pub trace: Option<TraceContext>,
}

/// The identity under which the gate admitted a caller.
#[derive(Clone)]
pub(crate) enum Principal {
    /// A caller without credentials. At a server without [`Options::security`](crate::Options::security) it holds every permission, and
    /// only `Options::callers` restricts access to the server. At other servers it can use operations that need no permission.
    Anonymous,
    /// A caller whose credential the gate has checked for this operation and tenant.
    Known(Arc<Access>),
}

impl fmt::Debug for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Anonymous => f.write_str("anonymous"),
            Self::Known(access) => write!(f, "{access:?}"),
        }
    }
}

impl Principal {
    /// Returns the principal that the gate attached to a request.
    pub fn of(parts: &Parts) -> Self {
        parts.extensions.get().cloned().unwrap_or(Self::Anonymous)
    }

    /// Returns whether it may see every scope, including those declared later.
    pub fn may_see_every_scope(&self) -> bool {
        match self {
            Self::Anonymous => true,
            Self::Known(access) => access.grant.scopes.iter().any(|scope| scope == EVERY),
        }
    }

    /// Returns the grant of a caller that is restricted to event types, or `None` if it may commit and read all of them.
    pub fn restricted_to_types(&self) -> Option<&Grant> {
        match self {
            Self::Known(access) if !access.grant.covers_every_event_type() => Some(&access.grant),
            _ => None,
        }
    }

    /// Returns the grant of a caller that is restricted to streams, or `None` if it may use everything.
    pub fn restricted_to_streams(&self) -> Option<&Grant> {
        match self {
            Self::Known(access) if !access.grant.covers_every_stream() => Some(&access.grant),
            _ => None,
        }
    }

    /// Returns whether it may see a scope other than the one in the query.
    pub fn may_see_scope(&self, scope: &str) -> bool {
        match self {
            Self::Anonymous => true,
            Self::Known(access) => access.grant.covers_scope(scope),
        }
    }
}

impl Caller {
    /// Reads the caller from the headers of a request that passed the gate.
    pub fn of(headers: &HeaderMap, principal: Principal) -> Result<Self, Problem> {
        let only = match &principal {
            Principal::Anonymous => None,
            Principal::Known(access) => access.grant.only_tenant(),
        };
        let tenant = match tenant_header(headers)? {
            Some(named) => named,
            None => only.unwrap_or(DEFAULT_TENANT).to_owned(),
        };
        Ok(Self { tenant, principal, trace: trace_of(headers) })
    }

    /// Logs that a response to this caller ended before it was complete.
    pub fn warn_broken_off(&self, code: Code, answer: &str) {
        let (trace_id, span_id) = self.trace.as_ref().map_or(("", ""), |trace| (trace.trace_id(), trace.span_id()));
        let (tenant, principal, code) = (&*self.tenant, &self.principal, code.as_str());
        tracing::warn!(code, tenant, ?principal, trace_id, span_id, "aborted {answer}");
    }
}

impl<S: Sync> FromRequestParts<S> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        Self::of(&parts.headers, Principal::of(parts))
    }
}

/// Returns the tenant that a request names.
pub(crate) fn tenant_header(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    let mut values = headers.get_all(TENANT_HEADER).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(Problem::query("Annals-Tenant", "the header is repeated; send it once"));
    }
    let text = std::str::from_utf8(value.as_bytes());
    text.map(|text| Some(text.to_owned())).map_err(|_| unknown_tenant(&String::from_utf8_lossy(value.as_bytes())))
}

/// Returns the error for a tenant that is not declared.
pub(crate) fn unknown_tenant(tenant: &str) -> Problem {
    Problem::new(Code::UnknownTenant, annals_core::UnknownLog::Tenant(tenant.to_owned()).to_string())
}

/// Parses the caller's span. A header that is repeated or malformed counts as absent.
pub(crate) fn trace_of(headers: &HeaderMap) -> Option<TraceContext> {
    let mut values = headers.get_all(TRACEPARENT).iter();
    let value = values.next().filter(|_| values.next().is_none())?;
    TraceContext::parse(value.to_str().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(values: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in values {
            headers.append(*name, value.parse().expect("a header value"));
        }
        headers
    }

    fn caller(values: &[(&'static str, &str)]) -> Result<Caller, Problem> {
        Caller::of(&headers(values), Principal::Anonymous)
    }

    #[test]
    fn the_tenant_is_named_once_or_is_the_default() {
        assert_eq!(caller(&[]).expect("valid").tenant, "default");
        assert_eq!(caller(&[(TENANT_HEADER, "a")]).expect("valid").tenant, "a");
        let twice = caller(&[(TENANT_HEADER, "a"), (TENANT_HEADER, "b")]).expect_err("given twice");
        assert_eq!(twice.code(), Code::InvalidQuery);
        let mut invalid = HeaderMap::new();
        invalid.insert(TENANT_HEADER, axum::http::HeaderValue::from_bytes(b"\xff").expect("a header value"));
        let refused = Caller::of(&invalid, Principal::Anonymous).expect_err("not UTF-8");
        assert_eq!(refused.code(), Code::UnknownTenant);
    }

    #[test]
    fn a_trace_context_is_read_or_ignored() {
        let valid = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let trace = caller(&[(TRACEPARENT, valid)]).expect("valid").trace.expect("it can be read");
        assert_eq!((trace.trace_id(), trace.span_id()), (&valid[3..35], &valid[36..52]));
        assert_eq!(caller(&[(TRACEPARENT, "00")]).expect("valid").trace, None);
        assert_eq!(caller(&[(TRACEPARENT, valid), (TRACEPARENT, valid)]).expect("valid").trace, None);
    }
}
