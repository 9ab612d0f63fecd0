//! Resources whose definition names a scope, as a caller sees them: for a caller, a resource of a scope that its grant does not cover does
//! not exist. Lists leave it out, and every other call is answered as for one that is absent.
//!
//! ```text
//!  route ─▶ ScopedHandlers, ScopedFilters, … ── scope of the stored definition granted? ──▶ port of the task host
//! ```
//!
//! INVARIANT: routes get these resources from here and nowhere else. A type of this module does not lend its port, so that a new route
//! needs a method here, with the check.

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

    /// Whether the caller may see every scope, so that there is nothing to look up.
    fn are_all(&self) -> bool {
        self.principal.may_see_every_scope()
    }

    fn has(&self, scope: &str) -> bool {
        self.principal.may_see_scope(scope)
    }

    /// Checks the scope that a new definition names. The refusal is that of a scope which is not declared, so that nobody learns which
    /// scopes there are.
    fn check(&self, scope: &str) -> Result<(), Invalid> {
        if self.has(scope) {
            return Ok(());
        }
        let unknown = UnknownLog::Scope { tenant: self.tenant.clone(), scope: scope.to_owned() };
        Err(Invalid::new(unknown.code(), "scope", unknown.to_string()))
    }

    /// Whether the caller may see a handler. A handler that is not defined has no scope, and is seen by callers of every scope only.
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

    /// The names of the handlers that the caller may see; none for a caller that may see all of them.
    async fn handlers(&self) -> Result<Option<Vec<String>>, HandlerError> {
        if self.are_all() {
            return Ok(None);
        }
        let mut defined = self.host.defined_scopes(&self.tenant).await?;
        defined.retain(|(_, scope)| self.has(scope));
        Ok(Some(defined.into_iter().map(|(name, _)| name).collect()))
    }
}
