//! The log that a request addresses.

use std::sync::Arc;

use annals_core::{DEFAULT_SCOPE, EventLog, Identity, RecordedEvent, wire::EventView};

use crate::caller::{Caller, unknown_tenant};
use crate::problem::Problem;
use crate::state::Server;

/// A log, its caller, and the name of its scope.
#[derive(Clone)]
pub(crate) struct Source {
    pub log: Arc<dyn EventLog>,
    pub caller: Caller,
    pub scope: String,
}

impl Source {
    /// Returns the log that commits go to: the default scope of the caller's tenant.
    pub fn to_commit(server: &Server, caller: Caller) -> Result<Self, Problem> {
        Self::of(server, caller, DEFAULT_SCOPE)
    }

    /// Returns the log that is read: the scope of the caller's tenant that the query names, or the default one.
    pub fn to_read(server: &Server, caller: Caller, scope: Option<String>) -> Result<Self, Problem> {
        Self::of(server, caller, scope.as_deref().unwrap_or(DEFAULT_SCOPE))
    }

    fn of(server: &Server, caller: Caller, scope: &str) -> Result<Self, Problem> {
        let log = server.store.log(&caller.tenant, scope)?;
        Ok(Self { log, caller, scope: server.store.scope_name(scope).into_owned() })
    }

    /// Returns the identity of the tenant's store, for a reader that last saw incarnation `seen`, if any.
    pub fn identity(&self, server: &Server, seen: Option<u32>) -> Result<Identity, Problem> {
        let identity = server.store.identity_since(&self.caller.tenant, &self.scope, seen.unwrap_or(u32::MAX));
        identity.ok_or_else(|| unknown_tenant(&self.caller.tenant))
    }

    pub fn view<'a>(&'a self, event: &'a RecordedEvent) -> EventView<'a> {
        EventView { event, tenant: &self.caller.tenant, scope: &self.scope }
    }
}
