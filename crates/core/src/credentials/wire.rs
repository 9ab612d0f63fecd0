//! Credentials in requests and responses.

use serde::{Deserialize, Serialize};

use super::grant::{every, invalid};
use super::{Grant, Role};
use crate::limits::REASON_BYTES_MAX;
use crate::{ByteString, Invalid, Timestamp};

const NAME_BYTES_MAX: usize = 100;

/// A credential to create.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewCredential {
    /// Its name, for people.
    pub name: String,
    /// The roles that it grants.
    pub roles: Vec<Role>,
    /// The tenants in which it grants them; `*` alone stands for every tenant.
    pub tenants: Vec<String>,
    /// The scopes that may be read; every scope if absent.
    #[serde(default = "every")]
    pub scopes: Vec<String>,
    /// The event types that may be committed and read; every type if absent.
    #[serde(default = "every")]
    pub event_types: Vec<String>,
    /// The streams that may be read; every stream if absent.
    #[serde(default = "every")]
    pub streams: Vec<String>,
    /// When it expires; never if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// Requests per second; the server's default limit if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests_per_second: Option<u64>,
    /// Bytes of requests and responses per second; the server's default limit if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_per_second: Option<u64>,
    /// The reason, for the audit log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Who requested it, for the audit log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

impl NewCredential {
    /// Creates a credential with this grant that does not expire.
    pub fn new(name: impl Into<String>, grant: Grant) -> Self {
        let Grant { roles, tenants, scopes, event_types, streams } = grant;
        Self {
            name: name.into(),
            roles,
            tenants,
            scopes,
            event_types,
            streams,
            expires_at: None,
            requests_per_second: None,
            bytes_per_second: None,
            reason: None,
            by: None,
        }
    }

    /// Checks the rules that need no store.
    ///
    /// # Errors
    /// `invalid_credential`, with the field that breaks a rule.
    pub fn validate(&self) -> Result<(), Invalid> {
        let name = &self.name;
        if name.trim().is_empty() || name.len() > NAME_BYTES_MAX || name.chars().any(char::is_control) {
            return Err(invalid("name", "must have 1 to 100 bytes of UTF-8 without control characters"));
        }
        for (path, limit) in
            [("requests_per_second", self.requests_per_second), ("bytes_per_second", self.bytes_per_second)]
        {
            if limit.is_some_and(|limit| limit == 0 || i64::try_from(limit).is_err()) {
                return Err(invalid(path, "must be a number from 1; leave it out for the server's own limit"));
            }
        }
        let grant = Grant {
            roles: self.roles.clone(),
            tenants: self.tenants.clone(),
            scopes: self.scopes.clone(),
            event_types: self.event_types.clone(),
            streams: self.streams.clone(),
        };
        grant.validate()
    }
}

/// The body of a request to revoke a credential.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RevokeBody {
    /// The reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Who revokes it, as stated by the operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

impl RevokeBody {
    /// Checks the lengths of its texts.
    ///
    /// # Errors
    /// `invalid_credential` at `reason` or `by`.
    pub fn validate(&self) -> Result<(), Invalid> {
        for (path, text) in [("reason", &self.reason), ("by", &self.by)] {
            if text.as_ref().is_some_and(|text| text.len() > REASON_BYTES_MAX) {
                return Err(invalid(path, "is longer than 4 KiB"));
            }
        }
        Ok(())
    }
}

/// The state of a credential.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CredentialState {
    /// It can be used.
    Active,
    /// It has expired.
    Expired,
    /// An administrator revoked it.
    Revoked,
}

impl CredentialState {
    /// Returns its name in the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Expired => "expired",
            Self::Revoked => "revoked",
        }
    }
}

/// A credential in a list: everything but its key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Credential {
    /// Its id, which is part of its key.
    pub id: String,
    /// Its name.
    pub name: String,
    /// The roles that it grants.
    pub roles: Vec<Role>,
    /// The tenants in which it grants them.
    pub tenants: Vec<String>,
    /// The scopes that may be read.
    pub scopes: Vec<String>,
    /// The event types that may be committed and read.
    #[serde(default = "every")]
    pub event_types: Vec<String>,
    /// The streams that may be read.
    #[serde(default = "every")]
    pub streams: Vec<String>,
    /// Whether it can be used.
    pub state: CredentialState,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it expires; never if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// When it was revoked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_at: Option<Timestamp>,
    /// Why it was revoked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_because: Option<String>,
    /// Its own limit of requests per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests_per_second: Option<u64>,
    /// Its own limit of bytes per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_per_second: Option<u64>,
}

/// A new credential with its key. Its `Debug` form omits the key.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreatedCredential {
    /// The key, which cannot be read again.
    pub key: String,
    /// The credential.
    #[serde(flatten)]
    pub credential: Credential,
}

impl std::fmt::Debug for CreatedCredential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CreatedCredential").field("credential", &self.credential).finish_non_exhaustive()
    }
}

/// A page of credentials.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CredentialPage {
    /// The credentials, by id.
    pub items: Vec<Credential>,
    /// Where the next page begins; absent at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<ByteString>,
}
