//! Which log a request is about.

use std::sync::Arc;

use annals_core::{Code, DEFAULT_SCOPE, DEFAULT_TENANT, EventLog, Identity, RecordedEvent, wire::EventView};
use axum::http::HeaderMap;

use crate::problem::Problem;
use crate::query::Query;
use crate::router::Server;

const TENANT_HEADER: &str = "annals-tenant";

/// A log, and under which names it was asked for.
#[derive(Clone)]
pub(crate) struct Source {
    pub log: Arc<dyn EventLog>,
    pub tenant: String,
    pub scope: String,
}

impl Source {
    /// The log that commits go to: the tenant's default scope.
    pub fn to_commit(server: &Server, headers: &HeaderMap) -> Result<Self, Problem> {
        Self::of(server, tenant(headers)?, DEFAULT_SCOPE)
    }

    /// The log that is read: the tenant's scope that the query names.
    pub fn to_read(server: &Server, headers: &HeaderMap, query: &Query) -> Result<Self, Problem> {
        Self::of(server, tenant(headers)?, query.text("scope")?.unwrap_or(DEFAULT_SCOPE))
    }

    fn of(server: &Server, tenant: &str, scope: &str) -> Result<Self, Problem> {
        let log = server.store.log(tenant, scope)?;
        Ok(Self { log, tenant: tenant.to_owned(), scope: server.store.scope_name(scope).into_owned() })
    }

    /// Who the tenant's store is for a reader who comes from incarnation `seen`, or from none.
    pub fn identity(&self, server: &Server, seen: Option<u32>) -> Result<Identity, Problem> {
        let identity = server.store.identity_since(&self.tenant, &self.scope, seen.unwrap_or(u32::MAX));
        identity.ok_or_else(|| unknown_tenant(&self.tenant))
    }

    pub fn view<'a>(&'a self, event: &'a RecordedEvent) -> EventView<'a> {
        EventView { event, tenant: &self.tenant, scope: &self.scope }
    }
}

/// The tenant that the request names.
pub(crate) fn tenant(headers: &HeaderMap) -> Result<&str, Problem> {
    let mut values = headers.get_all(TENANT_HEADER).iter();
    let Some(value) = values.next() else { return Ok(DEFAULT_TENANT) };
    if values.next().is_some() {
        return Err(Problem::query("Annals-Tenant", "the header is given twice; give it once"));
    }
    std::str::from_utf8(value.as_bytes()).map_err(|_| unknown_tenant(&String::from_utf8_lossy(value.as_bytes())))
}

pub(crate) fn unknown_tenant(tenant: &str) -> Problem {
    Problem::new(Code::UnknownTenant, annals_core::UnknownLog::Tenant(tenant.to_owned()).to_string())
}
