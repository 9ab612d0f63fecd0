//! Stored records of credentials.

use bson::DateTime;
use serde::{Deserialize, Serialize};

use super::grant::every;
use super::{ApiKey, Credential, CredentialState, Grant, NewCredential, Rate, RevokeBody, Role, same_bytes};
use crate::{RecordType, Timestamp};

/// The collection of credentials, among the records of the system tenant.
pub const CREDENTIALS: &str = "annals-credentials";

/// A stored credential.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CredentialRecord {
    /// Its id, which is part of its key.
    #[serde(rename = "_id")]
    pub id: String,
    /// Its name, for people.
    pub name: String,
    /// The SHA-256 of its secret.
    #[serde(with = "hash")]
    hash: [u8; 32],
    /// The roles that it grants.
    pub roles: Vec<Role>,
    /// The tenants in which it grants them.
    pub tenants: Vec<String>,
    /// The scopes that may be read.
    pub scopes: Vec<String>,
    /// The event types that may be committed and read. Records of earlier versions lack this field and cover every type.
    #[serde(default = "every")]
    pub event_types: Vec<String>,
    /// The streams that may be read. Records of earlier versions lack this field and cover every stream.
    #[serde(default = "every")]
    pub streams: Vec<String>,
    /// Requests per second; 0 means the server's default limit.
    pub requests_per_second: i64,
    /// Bytes per second; 0 means the server's default limit.
    pub bytes_per_second: i64,
    /// When it was created.
    pub created: DateTime,
    /// When it expires; null means never.
    pub expires: Option<DateTime>,
    /// When it was revoked; null if it was not.
    pub revoked: Option<DateTime>,
    /// Why it was revoked.
    pub revoked_because: Option<String>,
}

impl RecordType for CredentialRecord {
    const COLLECTION: &'static str = CREDENTIALS;
    const FEED: bool = true;
}

impl CredentialRecord {
    /// Creates the record of a new credential with this key.
    pub fn new(new: NewCredential, key: &ApiKey, now: Timestamp) -> Self {
        let number = |number: Option<u64>| i64::try_from(number.unwrap_or(0)).unwrap_or(i64::MAX);
        Self {
            id: key.id(),
            name: new.name,
            hash: key.hash(),
            roles: new.roles,
            tenants: new.tenants,
            scopes: new.scopes,
            event_types: new.event_types,
            streams: new.streams,
            requests_per_second: number(new.requests_per_second),
            bytes_per_second: number(new.bytes_per_second),
            created: date(now),
            expires: new.expires_at.map(date),
            revoked: None,
            revoked_because: None,
        }
    }

    /// Returns whether this is its key. The comparison takes constant time.
    pub fn is_opened_by(&self, key: &ApiKey) -> bool {
        same_bytes(&self.hash, &key.hash())
    }

    /// Revokes it, unless it is revoked already.
    pub fn revoke(&mut self, now: Timestamp, why: RevokeBody) {
        if self.revoked.is_none() {
            self.revoked = Some(date(now));
            self.revoked_because = why.reason;
        }
    }

    /// Returns what it grants.
    pub fn grant(&self) -> Grant {
        Grant {
            roles: self.roles.clone(),
            tenants: self.tenants.clone(),
            scopes: self.scopes.clone(),
            event_types: self.event_types.clone(),
            streams: self.streams.clone(),
        }
    }

    /// Returns when it expires.
    pub fn expires_at(&self) -> Option<Timestamp> {
        self.expires.map(time)
    }

    /// Returns its own limits: requests and bytes per second.
    pub fn rates(&self) -> (Rate, Rate) {
        let rate = |number: i64| Rate(u64::try_from(number).unwrap_or(0));
        (rate(self.requests_per_second), rate(self.bytes_per_second))
    }

    /// Returns its state at `now`.
    pub fn state(&self, now: Timestamp) -> CredentialState {
        match (self.revoked, self.expires_at()) {
            (Some(_), _) => CredentialState::Revoked,
            (None, Some(expires)) if expires <= now => CredentialState::Expired,
            _ => CredentialState::Active,
        }
    }

    /// Returns its listed form at `now`.
    pub fn shown(&self, now: Timestamp) -> Credential {
        let limit = |Rate(number)| Some(number).filter(|number| *number > 0);
        let (requests, bytes) = self.rates();
        Credential {
            id: self.id.clone(),
            name: self.name.clone(),
            roles: self.roles.clone(),
            tenants: self.tenants.clone(),
            scopes: self.scopes.clone(),
            event_types: self.event_types.clone(),
            streams: self.streams.clone(),
            state: self.state(now),
            created_at: time(self.created),
            expires_at: self.expires_at(),
            revoked_at: self.revoked.map(time),
            revoked_because: self.revoked_because.clone(),
            requests_per_second: limit(requests),
            bytes_per_second: limit(bytes),
        }
    }
}

fn date(time: Timestamp) -> DateTime {
    DateTime::from_millis(time.as_millis())
}

fn time(date: DateTime) -> Timestamp {
    Timestamp::from_millis(date.timestamp_millis())
}

/// Serializes a hash as hexadecimal digits, which every tool can display.
mod hash {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(hash: &[u8; 32], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&hash.iter().map(|byte| format!("{byte:02x}")).collect::<String>())
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<[u8; 32], D::Error> {
        let text = String::deserialize(deserializer)?;
        let wrong = || D::Error::custom("a hash is 64 hexadecimal digits");
        let mut hash = [0; 32];
        if text.len() != 64 || !text.is_ascii() {
            return Err(wrong());
        }
        for (n, byte) in hash.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[2 * n..2 * n + 2], 16).map_err(|_| wrong())?;
        }
        Ok(hash)
    }
}
