//! The definition of a subscription.

use std::fmt;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{ByteString, Code, DEFAULT_SCOPE, DEFAULT_TENANT, Invalid, Subscription, valid_id, valid_name};

/// The producer of a subscription to another tenant of the same store.
pub const LOCAL_PRODUCER: &str = "local:";
/// Maximum length of a producer's URL, in bytes.
const URL_BYTES_MAX: usize = 2_000;
/// Maximum length of a credential, in bytes.
const CREDENTIAL_BYTES_MAX: usize = 4_096;

/// The definition of what a scope receives: the body of `PUT /v1/subscriptions/{name}`, with the name.
///
/// ```json
/// {"producer": "http://orders.internal:4000", "tenant": "default", "stream": "public-orders", "partition": "north", "scope": "inbox"}
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct SubscriptionDefinition {
    /// Its name.
    pub name: ByteString,
    /// The URL of the producer's server, or [`LOCAL_PRODUCER`] for another tenant of the same store.
    pub producer: ByteString,
    /// The producer's tenant.
    pub tenant: ByteString,
    /// The producer's public stream.
    pub stream: ByteString,
    /// The partition of that stream; empty for entries without a partition.
    pub partition: ByteString,
    /// The scope whose log receives the events.
    pub scope: ByteString,
    /// The bearer token that is sent to the producer. It is never returned.
    pub credential: Option<ByteString>,
}

impl fmt::Debug for SubscriptionDefinition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SubscriptionDefinition").field("name", &self.name).field("body", &self.shown()).finish()
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Body {
    producer: ByteString,
    #[serde(default = "default_tenant")]
    tenant: ByteString,
    stream: ByteString,
    #[serde(default)]
    partition: ByteString,
    scope: ByteString,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    credential: Option<ByteString>,
}

fn default_tenant() -> ByteString {
    ByteString::from_static(DEFAULT_TENANT)
}

impl SubscriptionDefinition {
    /// Returns a subscription to the entries without a partition of a stream of the producer's default tenant.
    pub fn new(
        name: impl Into<ByteString>,
        producer: impl Into<ByteString>,
        stream: impl Into<ByteString>,
        scope: impl Into<ByteString>,
    ) -> Self {
        Self {
            name: name.into(),
            producer: producer.into(),
            tenant: default_tenant(),
            stream: stream.into(),
            partition: ByteString::new(),
            scope: scope.into(),
            credential: None,
        }
    }

    /// Receives from this tenant.
    #[must_use]
    pub fn from_tenant(self, tenant: impl Into<ByteString>) -> Self {
        Self { tenant: tenant.into(), ..self }
    }

    /// Receives this partition.
    #[must_use]
    pub fn of_partition(self, partition: impl Into<ByteString>) -> Self {
        Self { partition: partition.into(), ..self }
    }

    /// Sends this credential to the producer.
    #[must_use]
    pub fn with_credential(self, credential: impl Into<ByteString>) -> Self {
        Self { credential: Some(credential.into()), ..self }
    }

    /// Reads a definition from JSON.
    ///
    /// # Errors
    /// `not_json`, `invalid_body`, or as [`validate`](Self::validate).
    pub fn read(name: &str, json: &[u8]) -> Result<Self, Invalid> {
        let Body { producer, tenant, stream, partition, scope, credential } = crate::wire::parse_json(json)?;
        let definition = Self { name: name.into(), producer, tenant, stream, partition, scope, credential };
        definition.validate()?;
        Ok(definition)
    }

    fn body(&self, credential: Option<ByteString>) -> String {
        let Self { producer, tenant, stream, partition, scope, .. } = self.clone();
        // Strings always serialize to JSON.
        serde_json::to_string(&Body { producer, tenant, stream, partition, scope, credential }).unwrap_or_default()
    }

    /// Writes the definition as JSON, without its name and with its credential.
    pub fn write(&self) -> String {
        self.body(self.credential.clone())
    }

    /// Writes the definition as JSON, without its name and its credential.
    pub fn shown(&self) -> String {
        self.body(None)
    }

    /// Checks that a new definition has no secret where every reader sees it.
    ///
    /// # Errors
    /// `invalid_subscription`, with the path.
    pub fn validate_secrets(&self) -> Result<(), Invalid> {
        let authority = self.producer.split_once("://").and_then(|(_, rest)| rest.split(['/', '?', '#']).next());
        if authority.is_some_and(|authority| authority.contains('@')) {
            let message = "has a user or a password, which every reader would see; give a credential instead";
            return Err(Invalid::new(Code::InvalidSubscription, "producer", message));
        }
        Ok(())
    }

    /// Checks the names and the URL.
    ///
    /// # Errors
    /// `invalid_name`, `invalid_id` or `invalid_subscription`, with the path.
    pub fn validate(&self) -> Result<(), Invalid> {
        let invalid = |path: &str, message: &str| Err(Invalid::new(Code::InvalidSubscription, path, message));
        valid_name("name", &self.name)?;
        let is_url = self.producer.starts_with("http://") || self.producer.starts_with("https://");
        if !is_url && *self.producer != *LOCAL_PRODUCER || self.producer.len() > URL_BYTES_MAX {
            return invalid("producer", "is not the address of a server such as http://127.0.0.1:4000, nor local:");
        }
        valid_id("tenant", &self.tenant)?;
        valid_name("stream", &self.stream)?;
        if !self.partition.is_empty() {
            valid_id("partition", &self.partition)?;
        }
        valid_name("scope", &self.scope)?;
        let is_nil = Uuid::try_parse(&self.scope).is_ok_and(|id| id.is_nil());
        if *self.scope == *DEFAULT_SCOPE || is_nil {
            return invalid(
                "scope",
                "is the default scope, which cannot receive events; declare another under tenants.scopes",
            );
        }
        match &self.credential {
            Some(credential) if credential.is_empty() || credential.len() > CREDENTIAL_BYTES_MAX => {
                invalid("credential", "is not 1 to 4,096 bytes long; leave it out to send none")
            }
            Some(credential) if !credential.bytes().all(|byte| (0x21..0x7f).contains(&byte)) => {
                invalid("credential", "has a character that is not allowed in a bearer token")
            }
            _ => Ok(()),
        }
    }

    /// Returns what the scope receives, from a producer whose microservice is named `microservice`.
    pub fn subscription(&self, microservice: &ByteString) -> Subscription {
        Subscription {
            producer: microservice.clone(),
            tenant: self.tenant.clone(),
            stream: self.stream.clone(),
            partition: self.partition.clone(),
        }
    }

    /// Returns whether `other` receives the same events from the same producer, so that what is known of the producer applies to both.
    pub fn is_of_same_producer(&self, other: &Self) -> bool {
        self.shown() == other.shown()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_definition_is_read_as_it_is_written_and_shown_without_its_credential() {
        let definition = SubscriptionDefinition::new("s", "http://127.0.0.1:4000", "public-orders", "inbox")
            .from_tenant("acme")
            .of_partition("north")
            .with_credential("s3cret");
        assert_eq!(SubscriptionDefinition::read("s", definition.write().as_bytes()), Ok(definition.clone()));
        assert!(!definition.shown().contains("s3cret") && !format!("{definition:?}").contains("s3cret"));
    }

    #[test]
    fn a_new_definition_has_no_password_in_its_url() {
        let validated = |url: &str| SubscriptionDefinition::new("s", url, "public-orders", "inbox").validate_secrets();
        for url in ["local:", "http://a:4000", "https://a/b@c", "http://a?b@c"] {
            assert_eq!(validated(url), Ok(()), "{url}");
        }
        for url in ["http://user:word@a:4000", "https://token@a/b", "http://@a"] {
            assert_eq!(validated(url).map_err(|refused| refused.path), Err("producer".to_owned()), "{url}");
        }
    }

    #[test]
    fn a_definition_that_cannot_work_is_refused_with_its_path() {
        let base = |more: &str| format!(r#"{{"producer":"local:","stream":"s","scope":"inbox"{more}}}"#);
        assert!(SubscriptionDefinition::read("s", base("").as_bytes()).is_ok());
        for (json, path) in [
            (base(r#","credential":"""#), "credential"),
            (base(r#","credential":"a b""#), "credential"),
            (base(r#","tenant":"""#), "tenant"),
            (base(r#","x":1"#), "x"),
            (r#"{"producer":"ftp://a","stream":"s","scope":"inbox"}"#.to_owned(), "producer"),
            (r#"{"producer":"local:","stream":"s"}"#.to_owned(), ""),
            (r#"{"producer":"local:","stream":"s","scope":"default"}"#.to_owned(), "scope"),
            (
                r#"{"producer":"local:","stream":"s","scope":"00000000-0000-0000-0000-000000000000"}"#.to_owned(),
                "scope",
            ),
        ] {
            let refused = SubscriptionDefinition::read("s", json.as_bytes()).expect_err(&json);
            assert_eq!(refused.path, path, "{json}");
        }
    }
}
