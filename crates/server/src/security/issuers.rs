//! The issuers whose tokens are accepted, and what the tokens grant here.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use annals_core::Clock;
use annals_core::credentials::{Rate, Role};
use annals_system::Instant;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use sha2::{Digest, Sha256};

use super::access::Limits;
use super::jwt::{Algorithm, Token};
use super::key_set::KeySet;
use super::{Access, claims, unauthenticated};
use crate::problem::Problem;

/// Most verified tokens that are cached, and most callers whose limits are.
const REMEMBERED_MAX: usize = 10_000;
/// How long a verified token is cached.
const REMEMBERED_FOR: Duration = Duration::from_secs(60);

/// Fetches the keys of an issuer over HTTPS. The server itself has no HTTP client.
pub trait FetchKeys: Send + Sync + 'static {
    /// Returns the document at `url`, or a sentence with the reason why it could not be fetched.
    fn fetch(&self, url: &str) -> BoxFuture<'_, Result<Bytes, String>>;
}

/// The source of an issuer's keys.
#[derive(Clone)]
pub enum Keys {
    /// The key set (JWKS) at this URL.
    Url(String, Arc<dyn FetchKeys>),
    /// The location in the issuer's `/.well-known/openid-configuration`.
    Discovered(Arc<dyn FetchKeys>),
    /// A file with a key set.
    File(PathBuf),
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Url(url, _) => f.debug_tuple("Url").field(url).finish(),
            Self::Discovered(_) => f.write_str("Discovered"),
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
        }
    }
}

/// An issuer whose tokens are accepted.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Issuer {
    /// The `iss` of its tokens.
    pub issuer: String,
    /// The value that their `aud` must contain.
    pub audience: String,
    /// The source of its keys. Without one, no token of it can be verified.
    pub keys: Option<Keys>,
    /// The algorithms that are accepted. Default: RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384 and EdDSA.
    pub algorithms: Vec<String>,
    /// The claim with the roles, such as `realm_access.roles`. Default: `roles`.
    pub roles_claim: String,
    /// The claim with the tenants. Default: `tenants`.
    pub tenants_claim: String,
    /// The claim with the scopes that may be read. A token without it grants nothing. Default: none, and every scope may be read.
    pub scopes_claim: Option<String>,
    /// The claim with the event types that may be committed and read. A token without it grants nothing. Default: none, and every type is
    /// granted.
    pub event_types_claim: Option<String>,
    /// The claim with the streams that may be read. A token without it grants nothing. Default: none, and every stream is granted.
    pub streams_claim: Option<String>,
    /// The roles that the values of the roles claim map to. If empty, a value is itself the name of a role.
    pub roles: BTreeMap<String, Role>,
    /// The tenants of all of its tokens, instead of a claim.
    pub tenants: Vec<String>,
    /// The tolerated difference between the clocks. Default: 60 s.
    pub leeway: Duration,
    /// The minimum time between fetches of the keys for tokens with unknown keys. Default: 30 s, or 1 s for a file.
    pub fetch_pace: Option<Duration>,
}

impl Issuer {
    /// Creates an issuer with the audience that its tokens must have. It also needs [`keys`](Self::keys).
    pub fn new(issuer: impl Into<String>, audience: impl Into<String>) -> Self {
        Self {
            issuer: issuer.into(),
            audience: audience.into(),
            keys: None,
            algorithms: Vec::new(),
            roles_claim: "roles".to_owned(),
            tenants_claim: "tenants".to_owned(),
            scopes_claim: None,
            event_types_claim: None,
            streams_claim: None,
            roles: BTreeMap::new(),
            tenants: Vec::new(),
            leeway: Duration::from_secs(60),
            fetch_pace: None,
        }
    }

    /// Checks that its tokens can be verified.
    ///
    /// # Errors
    /// Returns a sentence that names the invalid setting.
    pub fn validate(&self) -> Result<(), String> {
        if self.issuer.is_empty() || self.audience.is_empty() {
            return Err("issuer and audience must both be set".to_owned());
        }
        match self.algorithms.iter().find(|name| Algorithm::named(name).is_none()) {
            Some(name) => {
                let known: Vec<_> = Algorithm::ALL.iter().map(|(name, _)| *name).collect();
                Err(format!("algorithms: {name:?} is not accepted; use {}", known.join(", ")))
            }
            None => Ok(()),
        }
    }

    /// Returns the reasons why a token may grant nothing.
    fn nothing_granted(&self) -> String {
        let mut message = format!(
            "the token grants nothing on this server: its claim {:?} has no known role, or its claim {:?} no tenant",
            self.roles_claim, self.tenants_claim
        );
        if let Some(claim) = &self.scopes_claim {
            message.push_str(&format!(", or {claim:?} no scope"));
        }
        if let Some(claim) = &self.event_types_claim {
            message.push_str(&format!(", or {claim:?} no event types to which its roles can be limited"));
        }
        if let Some(claim) = &self.streams_claim {
            message.push_str(&format!(", or {claim:?} no streams to which its roles can be limited"));
        }
        message
    }

    fn accepts(&self, algorithm: Algorithm) -> bool {
        self.algorithms.is_empty() || self.algorithms.iter().any(|name| Algorithm::named(name) == Some(algorithm))
    }
}

/// Verified tokens by their SHA-256, with the time of verification.
type Checked = HashMap<[u8; 32], (Arc<Access>, Instant)>;

/// The issuers of a server.
pub(super) struct Issuers {
    issuers: Vec<(Issuer, KeySet)>,
    clock: Arc<dyn Clock>,
    rates: (Rate, Rate),
    checked: Mutex<Checked>,
    limits: Mutex<HashMap<String, Arc<Limits>>>,
}

impl Issuers {
    pub fn new(issuers: Vec<Issuer>, clock: Arc<dyn Clock>, rates: (Rate, Rate)) -> Self {
        let with_keys = |issuer: Issuer| {
            let keys = KeySet::new(&issuer);
            (issuer, keys)
        };
        let issuers = issuers.into_iter().map(with_keys).collect();
        Self { issuers, clock, rates, checked: Mutex::default(), limits: Mutex::default() }
    }

    /// Verifies a token and returns its caller.
    pub async fn verify(&self, token: &str) -> Result<Arc<Access>, Problem> {
        if self.issuers.is_empty() {
            return Err(unauthenticated("the credential is not a key of this server"));
        }
        let digest: [u8; 32] = Sha256::digest(token).into();
        if let Some(access) = self.remembered(&digest) {
            return Ok(access);
        }
        let token = Token::parse(token).map_err(unauthenticated)?;
        let issued_by = token.text("iss").unwrap_or_default();
        let found = self.issuers.iter().find(|(issuer, _)| issuer.issuer == issued_by);
        let Some((issuer, keys)) = found else {
            return Err(unauthenticated("the issuer of the token is not accepted by this server"));
        };
        if !issuer.accepts(token.algorithm) {
            return Err(unauthenticated("the token's algorithm is not accepted"));
        }
        if !keys.signed(&token).await? {
            return Err(unauthenticated("the signature of the token does not match a key of its issuer"));
        }
        let ends = claims::check(issuer, &token.claims, self.clock.now()).map_err(unauthenticated)?;
        let Some(grant) = claims::grant(issuer, &token.claims) else {
            return Err(Problem::new(annals_core::Code::Forbidden, issuer.nothing_granted()));
        };
        let who = format!("jwt:{issued_by}/{}", token.text("sub").unwrap_or("(no subject)"));
        let name = ["name", "email", "preferred_username"].iter().find_map(|claim| token.text(claim));
        let limits = self.limits_of(&who);
        let access = Access::new(who, name.map(str::to_owned), grant, limits).until(ends, Arc::clone(&self.clock));
        let access = Arc::new(access);
        self.remember(digest, &access);
        Ok(access)
    }

    fn remembered(&self, digest: &[u8; 32]) -> Option<Arc<Access>> {
        let checked = self.checked.lock().unwrap_or_else(PoisonError::into_inner);
        let (access, at) = checked.get(digest)?;
        (at.elapsed() < REMEMBERED_FOR && !access.is_ended()).then(|| Arc::clone(access))
    }

    fn remember(&self, digest: [u8; 32], access: &Arc<Access>) {
        let mut checked = self.checked.lock().unwrap_or_else(PoisonError::into_inner);
        if checked.len() >= REMEMBERED_MAX {
            checked.retain(|_, (_, at)| at.elapsed() < REMEMBERED_FOR);
        }
        if checked.len() >= REMEMBERED_MAX {
            checked.clear();
        }
        checked.insert(digest, (Arc::clone(access), Instant::now()));
    }

    fn limits_of(&self, who: &str) -> Arc<Limits> {
        let mut limits = self.limits.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = limits.get(who) {
            return Arc::clone(known);
        }
        if limits.len() >= REMEMBERED_MAX {
            limits.retain(|_, limits| Arc::strong_count(limits) > 1);
        }
        let new = Arc::new(Limits::new(self.rates));
        limits.insert(who.to_owned(), Arc::clone(&new));
        new
    }
}
