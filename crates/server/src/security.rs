//! Authentication and authorisation of callers. A caller is authenticated by an API key, a token of an issuer or a client certificate,
//! and may do what its grant allows.
//!
//! ```text
//!  Authorization: Bearer ─┬─ ann_… ─▶ credentials that the host follows ─┐
//!                         └─ a JWT ─▶ issuers.rs ─▶ jwt.rs, key_set.rs ──┼─▶ Access: grant, limits, end ─▶ the gate
//!  client certificate ─────────────▶ subjects that are configured ───────┘
//! ```

mod access;
mod claims;
mod governed;
mod issuers;
mod jwt;
mod key_set;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use annals_core::credentials::{ApiKey, CredentialState, EVERY, Grant, Rate, SYSTEM_TENANT};
use annals_core::{Code, DEFAULT_SCOPE, DEFAULT_TENANT, Store, UnknownLog};
use annals_runtime::{Audit, Host, LiveCredentials};
use axum::http::{HeaderMap, Uri, header};

use crate::caller::{tenant_header, unknown_tenant};
use crate::event_types;
use crate::granted_streams;
use crate::problem::Problem;
use crate::query::parameter;
use crate::reader::READER;
use crate::route::Permission;

pub(crate) use access::{Access, CHARGED_AHEAD_MAX, Limits};
pub(crate) use governed::governed;
use issuers::Issuers;
pub use issuers::{FetchKeys, Issuer, Keys};

/// How long the first requests wait for the credentials to be loaded.
const FIRST_READ_MAX: Duration = Duration::from_secs(5);

/// The settings for authenticating callers.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Security {
    /// The tenant that holds the credentials and the audit log; the store must declare it. Default: `system`.
    pub system_tenant: String,
    /// Requests per second of each caller; 0 for no limit.
    pub requests_per_second: u64,
    /// Bytes of request and response bodies per second of each caller; 0 for no limit.
    pub bytes_per_second: u64,
    /// The issuers whose tokens are accepted.
    pub issuers: Vec<Issuer>,
    /// The grants of clients with certificates, by subject, such as `CN=worker-1,O=acme`.
    pub certificates: BTreeMap<String, Grant>,
}

impl Default for Security {
    fn default() -> Self {
        Self {
            system_tenant: SYSTEM_TENANT.to_owned(),
            requests_per_second: 0,
            bytes_per_second: 0,
            issuers: Vec::new(),
            certificates: BTreeMap::new(),
        }
    }
}

/// The requirements of an operation, and which of them are checked here.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Needs {
    pub permission: Permission,
    /// Whether the scope of a request is checked here rather than by the handler.
    pub checks_scope: bool,
    /// Whether the handler checks event types. If not, callers that are restricted to some are refused.
    pub checks_event_types: bool,
    /// Whether the handler checks streams. If not, callers that are restricted to some are refused.
    pub checks_streams: bool,
}

impl Needs {
    /// Returns the requirements of an operation whose handler checks nothing.
    pub const fn new(permission: Permission) -> Self {
        Self { permission, checks_scope: true, checks_event_types: false, checks_streams: false }
    }

    /// Leaves the check of the scope to the handler.
    #[must_use]
    pub const fn without_scope(self) -> Self {
        Self { checks_scope: false, ..self }
    }

    /// Leaves the check of event types to the handler, and so admits callers that are restricted to some.
    #[must_use]
    pub const fn checking_event_types(self) -> Self {
        Self { checks_event_types: true, ..self }
    }

    /// Leaves the check of streams to the handler, and so admits callers that are restricted to some.
    #[must_use]
    pub const fn checking_streams(self) -> Self {
        Self { checks_streams: true, ..self }
    }
}

/// The guard of a server, which authenticates and authorises requests.
pub(crate) struct Guard {
    system_tenant: String,
    /// An error if the system tenant is not declared; then no caller is admitted.
    pub credentials: Result<Arc<LiveCredentials>, UnknownLog>,
    pub audit: Result<Audit, UnknownLog>,
    rates: (Rate, Rate),
    issuers: Issuers,
    /// By subject.
    certificates: HashMap<String, Arc<Access>>,
    /// Holders of keys, by the id of the key.
    holders: RwLock<HashMap<String, Arc<Access>>>,
}

impl Guard {
    /// Creates the guard of a server whose tasks run on `host`. Needs an async runtime.
    pub fn new(store: &dyn Store, host: &Host, security: Security) -> Self {
        let Security { system_tenant, requests_per_second, bytes_per_second, issuers, certificates } = security;
        let rates = (Rate(requests_per_second), Rate(bytes_per_second));
        let certified = certificates.into_iter().map(|(subject, grant)| {
            let access = Access::new(format!("certificate:{subject}"), None, grant, Arc::new(Limits::new(rates)));
            (subject, Arc::new(access))
        });
        Self {
            credentials: host.credentials(&system_tenant),
            audit: Audit::new(store, &system_tenant, Arc::clone(host.clock())),
            rates,
            issuers: Issuers::new(issuers, Arc::clone(host.clock()), rates),
            certificates: certified.collect(),
            holders: RwLock::default(),
            system_tenant,
        }
    }

    /// Checks that the caller may do what an operation requires, and counts the request against its limits. A request that needs no
    /// permission is admitted regardless of its caller.
    pub async fn admit(&self, headers: &HeaderMap, uri: &Uri, needs: Needs) -> Result<Option<Arc<Access>>, Problem> {
        let Needs { permission, checks_scope, checks_event_types, checks_streams } = needs;
        let found = self.authenticate(headers).await;
        if permission == Permission::Open {
            return Ok(found.unwrap_or_default());
        }
        let access = found?.ok_or_else(|| {
            unauthenticated("the request has no credential; send a key as `Authorization: Bearer KEY`")
        })?;
        self.allow(&access, headers, permission)?;
        if checks_scope && permission != Permission::Admin {
            allow_scope(&access.grant, headers, uri)?;
        }
        if !checks_event_types && !access.grant.covers_every_event_type() {
            return Err(event_types::not_checked(&access.who));
        }
        if !checks_streams && !access.grant.covers_every_stream() {
            return Err(granted_streams::not_checked(&access.who));
        }
        access.limits.admit(headers)?;
        Ok(Some(access))
    }

    /// Returns the caller of a page.
    pub async fn known(&self, headers: &HeaderMap) -> Result<Arc<Access>, Problem> {
        let found = self.authenticate(headers).await?;
        let access = found.ok_or_else(|| unauthenticated("sign in with a key of this server"))?;
        if access.is_ended() {
            return Err(unauthenticated("the credential was revoked or has expired"));
        }
        Ok(access)
    }

    /// Returns the caller, or `None` if the request has no credential.
    async fn authenticate(&self, headers: &HeaderMap) -> Result<Option<Arc<Access>>, Problem> {
        let mut values = headers.get_all(header::AUTHORIZATION).iter();
        let Some(value) = values.next() else { return Ok(self.certified()) };
        if values.next().is_some() {
            return Err(unauthenticated("the request has two Authorization headers; send one"));
        }
        let text = value.to_str().unwrap_or_default();
        let token = match text.split_once(' ') {
            Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => token.trim(),
            _ => return Err(unauthenticated("the Authorization header is not of the form `Bearer KEY`")),
        };
        match ApiKey::parse(token) {
            Some(key) => self.holder(&key).await.map(Some),
            None => self.issuers.verify(token).await.map(Some),
        }
    }

    /// Returns the holder of this connection's client certificate, if its subject is configured.
    fn certified(&self) -> Option<Arc<Access>> {
        if self.certificates.is_empty() {
            return None;
        }
        let subject = READER.try_with(|reader| reader.subject().map(str::to_owned)).ok().flatten()?;
        self.certificates.get(&subject).cloned()
    }

    async fn holder(&self, key: &ApiKey) -> Result<Arc<Access>, Problem> {
        let credentials = self
            .credentials
            .as_ref()
            .map_err(|error| Problem::new(Code::NotReady, format!("credentials cannot be read: {error}")))?;
        if !credentials.are_current() {
            let read = tokio::time::timeout(FIRST_READ_MAX, credentials.are_read()).await;
            if read.is_err() || !credentials.are_current() {
                let message = "credentials could not be read for 30 s, so no key can be checked; retry in a moment";
                return Err(Problem::new(Code::NotReady, message));
            }
        }
        let id = key.id();
        let known = credentials.find(&id).filter(|known| known.record.is_opened_by(key));
        let Some(known) = known else {
            return Err(unauthenticated(
                "the key is not known; an administrator creates one with `annals credential create`",
            ));
        };
        // Only a caller that holds the secret learns more than that the key is unknown.
        match known.record.state(credentials.now()) {
            _ if known.is_ended() => return Err(unauthenticated("the key was revoked; ask for a new one")),
            CredentialState::Active => {}
            CredentialState::Revoked => return Err(unauthenticated("the key was revoked; ask for a new one")),
            CredentialState::Expired => return Err(unauthenticated("the key has expired; ask for a new one")),
        }
        if let Some(access) = self.holders.read().unwrap_or_else(PoisonError::into_inner).get(&id)
            && access.is_of(&known)
        {
            return Ok(Arc::clone(access));
        }
        let mut holders = self.holders.write().unwrap_or_else(PoisonError::into_inner);
        let own = known.record.rates();
        let rates = (or_default(own.0, self.rates.0), or_default(own.1, self.rates.1));
        // Changing a credential does not reset what its limits have counted.
        let limits = match holders.get(&id) {
            Some(before) if before.limits.rates() == rates => Arc::clone(&before.limits),
            _ => Arc::new(Limits::new(rates)),
        };
        let access = Arc::new(Access::of_key(known, limits, Arc::clone(credentials.clock())));
        holders.insert(id, Arc::clone(&access));
        Ok(access)
    }

    /// Returns whether the holder of a grant may know that a tenant exists.
    pub fn may_see(&self, grant: &Grant, tenant: &str) -> bool {
        grant.covers_tenant(tenant) && (tenant != self.system_tenant || grant.administers_the_store())
    }

    /// Checks the role and the tenant of a request.
    fn allow(&self, access: &Access, headers: &HeaderMap, permission: Permission) -> Result<(), Problem> {
        let grant = &access.grant;
        if !permission.is_of(grant) {
            let every = if permission == Permission::Admin { ", in every tenant" } else { "" };
            let message = format!("the credential {} lacks the role {}{every}", access.who, permission.as_str());
            return Err(Problem::new(Code::Forbidden, message));
        }
        if permission == Permission::Admin {
            return Ok(());
        }
        let tenant = tenant_of(grant, headers)?;
        let tenant = tenant.as_str();
        // The error is that of an undeclared tenant, so that callers cannot find out which tenants exist.
        if !self.may_see(grant, tenant) {
            return Err(unknown_tenant(tenant));
        }
        // The server itself records acts; no caller may add any.
        if tenant == self.system_tenant && permission != Permission::Reader {
            let message =
                format!("the tenant {tenant:?} holds credentials and the audit log, and is read-only from outside");
            return Err(Problem::new(Code::Forbidden, message)
                .advise("Use `annals credential`, or another tenant for events and records of your own."));
        }
        Ok(())
    }
}

/// Returns the tenant of a request.
fn tenant_of(grant: &Grant, headers: &HeaderMap) -> Result<String, Problem> {
    let named = tenant_header(headers)?;
    Ok(named.unwrap_or_else(|| grant.only_tenant().unwrap_or(DEFAULT_TENANT).to_owned()))
}

/// Checks the scope that a request names, or the default scope. Operations whose definition names the scope check it themselves.
fn allow_scope(grant: &Grant, headers: &HeaderMap, uri: &Uri) -> Result<(), Problem> {
    if grant.scopes.iter().any(|scope| scope == EVERY) {
        return Ok(());
    }
    let scope = parameter(uri.query(), "scope").unwrap_or_else(|| DEFAULT_SCOPE.to_owned());
    if grant.covers_scope(&scope) {
        return Ok(());
    }
    Err(UnknownLog::Scope { tenant: tenant_of(grant, headers)?, scope }.into())
}

fn or_default(own: Rate, default: Rate) -> Rate {
    if own.0 > 0 { own } else { default }
}

/// Returns the error for a caller that cannot be authenticated.
pub(crate) fn unauthenticated(message: impl Into<String>) -> Problem {
    Problem::new(Code::Unauthenticated, message)
}

impl Permission {
    /// Returns whether a grant includes the permission.
    fn is_of(self, grant: &Grant) -> bool {
        use annals_core::credentials::Role;
        match self {
            Self::Open | Self::Reader => true,
            Self::Writer => grant.has(Role::Writer),
            Self::Operator => grant.has(Role::Operator),
            Self::Admin => grant.administers_the_store(),
        }
    }
}
