//! Resources whose definition names a scope, restricted to what a caller may see. If a caller's grant does not cover the scope of a
//! resource, the resource does not exist for it: lists leave it out, and all other calls report it as unknown.
//!
//! ```text
//!  route ─▶ ScopedHandlers, ScopedFilters, … ── scope of the stored definition granted? ──▶ port of the task host
//! ```
//!
//! INVARIANT: routes access these resources only through this module. Its types do not expose the underlying port, so every new route
//! needs a method here, which includes the check.

mod dead_letters;
mod filters;
mod handlers;
mod horizon;
mod replays;
mod visible;

use annals_core::handlers::HandlerError;
use annals_core::{Invalid, UnknownLog};
use annals_runtime::Host;

use crate::caller::{Caller, Principal};
use crate::state::Server;

pub(crate) use dead_letters::ScopedDeadLetters;
pub(crate) use filters::ScopedFilters;
pub(crate) use handlers::ScopedHandlers;
pub(crate) use horizon::ScopedHorizon;
pub(crate) use replays::ScopedReplays;

/// The scopes of a tenant that a caller may see.
struct Scopes {
    host: Host,
    tenant: String,
    principal: Principal,
}

impl Scopes {
    fn of(server: &Server, caller: &Caller) -> Self {
        Self { host: server.host.clone(), tenant: caller.tenant.clone(), principal: caller.principal.clone() }
    }

    /// Returns whether the caller may see every scope, so that nothing has to be looked up.
    fn are_all(&self) -> bool {
        self.principal.may_see_every_scope()
    }

    fn has(&self, scope: &str) -> bool {
        self.principal.may_see_scope(scope)
    }

    /// Checks the scope that a new definition names. The error is that of a scope which is not declared, so that callers cannot find out
    /// which scopes exist.
    fn check(&self, scope: &str) -> Result<(), Invalid> {
        if self.has(scope) {
            return Ok(());
        }
        let unknown = UnknownLog::Scope { tenant: self.tenant.clone(), scope: scope.to_owned() };
        Err(Invalid::new(unknown.code(), "scope", unknown.to_string()))
    }

    /// Returns whether the caller may see a handler. A handler that is not defined has no scope, so only callers of every scope see it.
    async fn has_handler(&self, name: &str) -> Result<bool, HandlerError> {
        if self.are_all() {
            return Ok(true);
        }
        match self.host.defined_scope(&self.tenant, name).await {
            Ok(scope) => Ok(self.has(&scope)),
            Err(HandlerError::Unknown(_)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Returns the names of the handlers that the caller may see, or `None` if it may see all of them.
    async fn handlers(&self) -> Result<Option<Vec<String>>, HandlerError> {
        if self.are_all() {
            return Ok(None);
        }
        let mut defined = self.host.defined_scopes(&self.tenant).await?;
        defined.retain(|(_, scope)| self.has(scope));
        Ok(Some(defined.into_iter().map(|(name, _)| name).collect()))
    }
}
