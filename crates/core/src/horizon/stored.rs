//! Stored records of consents and subscriptions. The position of a subscription is in the log of its scope.

use bson::DateTime;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{Consent, IntakeState, Origin, Progress, SubscriptionDefinition};
use crate::order::Direction;
use crate::{Code, Index, Invalid, RecordType, Subscription, Timestamp};

/// The collection of consents.
pub const CONSENTS: &str = "annals-consents";
/// The collection of subscriptions.
pub const SUBSCRIPTIONS: &str = "annals-subscriptions";
/// The collection of credentials that are sent to producers. It cannot be read from outside.
pub const SUBSCRIPTION_CREDENTIALS: &str = "annals-subscription-credentials";

/// The stored form of a consent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ConsentRecord {
    /// Its id.
    #[serde(rename = "_id")]
    pub id: String,
    /// The consumer's microservice.
    pub microservice: String,
    /// The consumer's tenant.
    pub tenant: String,
    /// The public stream.
    pub stream: String,
    /// The partition; empty for entries without a partition.
    pub partition: String,
    /// When it was first given.
    pub given: DateTime,
    /// When it was last changed.
    pub changed: DateTime,
}

/// The definition of a subscription.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SubscriptionRecord {
    /// Its name.
    #[serde(rename = "_id")]
    pub name: String,
    /// The body of its definition without the credential, as JSON.
    pub definition: String,
    /// When it was first defined.
    pub defined: DateTime,
    /// When it was last changed.
    pub changed: DateTime,
}

/// The bearer token that is sent to a producer.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct CredentialRecord {
    /// The subscription.
    #[serde(rename = "_id")]
    pub name: String,
    /// The token.
    pub credential: String,
}

/// The origin of a subscription's events. It outlives the definition, as the position does.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OriginRecord {
    /// An id that is derived from the scope and the subscription.
    #[serde(rename = "_id")]
    pub key: String,
    /// The scope.
    pub scope: String,
    /// The producer's microservice.
    pub producer: String,
    /// The producer's tenant.
    pub tenant: String,
    /// The stream.
    pub stream: String,
    /// The partition.
    pub partition: String,
    /// The producer's store.
    #[serde(rename = "storeId")]
    pub store_id: String,
    /// Its incarnation.
    pub incarnation: i64,
}

/// The progress of a subscription, which its owner stores for other processes to read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProgressRecord {
    /// The subscription.
    #[serde(rename = "_id")]
    pub name: String,
    /// The definition that the progress belongs to. For any other definition it is ignored.
    pub definition: String,
    /// What the subscription is doing.
    pub state: IntakeState,
    /// The position up to which the producer's stream has no more events for it.
    pub examined: i64,
    /// The number of entries of the producer's stream.
    pub head: i64,
    /// The number of failures in a row.
    pub attempts: i64,
    /// When it retries.
    #[serde(rename = "retryAt")]
    pub retry_at: Option<DateTime>,
    /// The reason of the last failure.
    #[serde(rename = "lastReason")]
    pub last_reason: Option<String>,
    /// When an event was last stored.
    #[serde(rename = "lastProgress")]
    pub last_progress: Option<DateTime>,
    /// The consent under which the producer sends.
    pub consent: Option<String>,
    /// The name that the producer's microservice gives itself.
    pub microservice: Option<String>,
    /// An observation about the producer.
    pub notice: Option<String>,
}

impl RecordType for ConsentRecord {
    const COLLECTION: &'static str = CONSENTS;

    fn indexes() -> Vec<Index> {
        let ascending = |field| (field, Direction::Ascending);
        vec![Index::ordered(["stream", "partition", "microservice", "tenant"].map(ascending)).into()]
    }
}

impl RecordType for SubscriptionRecord {
    const COLLECTION: &'static str = SUBSCRIPTIONS;
    // The process that follows a producer also follows changes that other processes make to the definition.
    const FEED: bool = true;
}

impl RecordType for CredentialRecord {
    const COLLECTION: &'static str = SUBSCRIPTION_CREDENTIALS;
}

impl RecordType for OriginRecord {
    const COLLECTION: &'static str = "annals-subscription-origins";
}

impl RecordType for ProgressRecord {
    const COLLECTION: &'static str = "annals-subscription-progress";
}

fn date(time: Timestamp) -> DateTime {
    DateTime::from_millis(time.as_millis())
}

fn time(date: DateTime) -> Timestamp {
    Timestamp::from_millis(date.timestamp_millis())
}

impl ConsentRecord {
    /// Returns the record of a consent that is given or changed now.
    pub fn of(consent: &Consent, given: Option<DateTime>, now: Timestamp) -> Self {
        Self {
            id: consent.id.to_string(),
            microservice: consent.microservice.to_string(),
            tenant: consent.tenant.to_string(),
            stream: consent.stream.to_string(),
            partition: consent.partition.to_string(),
            given: given.unwrap_or(date(now)),
            changed: date(now),
        }
    }

    /// Converts the record to a consent.
    pub fn read(self) -> Consent {
        Consent {
            id: self.id.into(),
            microservice: self.microservice.into(),
            tenant: self.tenant.into(),
            stream: self.stream.into(),
            partition: self.partition.into(),
        }
    }
}

impl SubscriptionRecord {
    /// Returns the record of a subscription that is defined or changed now.
    pub fn of(definition: &SubscriptionDefinition, defined: Option<DateTime>, now: Timestamp) -> Self {
        Self {
            name: definition.name.to_string(),
            definition: definition.shown(),
            defined: defined.unwrap_or(date(now)),
            changed: date(now),
        }
    }

    /// Reads the definition without its credential.
    ///
    /// # Errors
    /// `invalid_subscription` if other software made it invalid.
    pub fn read(&self) -> Result<SubscriptionDefinition, Invalid> {
        SubscriptionDefinition::read(&self.name, self.definition.as_bytes()).map_err(|error| {
            let path = format!("{SUBSCRIPTIONS}/{}", self.name);
            Invalid::new(Code::InvalidSubscription, path, format!("the stored definition is invalid: {error}"))
        })
    }
}

impl OriginRecord {
    /// Returns the key of what a scope receives. It is short, however long the parts are.
    pub fn key(scope: &str, subscription: &Subscription) -> String {
        let Subscription { producer, tenant, stream, partition } = subscription;
        // Strings always serialize to JSON.
        let parts = serde_json::to_string(&(scope, producer, tenant, stream, partition)).unwrap_or_default();
        // The name is JSON, so it cannot be a UUID itself.
        crate::names::uuid_of("origin", &parts).to_string()
    }

    /// Returns the record of the origin of a subscription's events.
    pub fn of(scope: &str, subscription: &Subscription, origin: &Origin) -> Self {
        Self {
            key: Self::key(scope, subscription),
            scope: scope.to_owned(),
            producer: subscription.producer.to_string(),
            tenant: subscription.tenant.to_string(),
            stream: subscription.stream.to_string(),
            partition: subscription.partition.to_string(),
            store_id: origin.store_id.to_string(),
            incarnation: origin.incarnation.into(),
        }
    }

    /// Reads the origin.
    ///
    /// # Errors
    /// A sentence, if other software made it invalid.
    pub fn read(&self) -> Result<Origin, String> {
        let wrong = |field: &str| format!("{}/{} has an invalid {field}", Self::COLLECTION, self.key);
        Ok(Origin {
            store_id: Uuid::try_parse(&self.store_id).map_err(|_| wrong("storeId"))?,
            incarnation: u32::try_from(self.incarnation).map_err(|_| wrong("incarnation"))?,
        })
    }
}

impl ProgressRecord {
    /// Converts the progress of a subscription to its record.
    pub fn of(definition: &SubscriptionDefinition, progress: &Progress) -> Self {
        Self {
            name: definition.name.to_string(),
            definition: definition.shown(),
            state: progress.state,
            examined: progress.examined.cast_signed(),
            head: progress.head.cast_signed(),
            attempts: progress.attempts.into(),
            retry_at: progress.retry_at.map(date),
            last_reason: progress.last_reason.clone(),
            last_progress: progress.last_progress.map(date),
            consent: progress.consent.map(|id| id.to_string()),
            microservice: progress.microservice.as_ref().map(ToString::to_string),
            notice: progress.notice.clone(),
        }
    }

    /// Returns the progress of a subscription with this definition.
    pub fn read(self, definition: &SubscriptionDefinition) -> Progress {
        if self.definition != definition.shown() {
            return Progress::default();
        }
        Progress {
            state: self.state,
            examined: self.examined.cast_unsigned(),
            head: self.head.cast_unsigned(),
            attempts: u32::try_from(self.attempts).unwrap_or(u32::MAX),
            retry_at: self.retry_at.map(time),
            last_reason: self.last_reason,
            last_progress: self.last_progress.map(time),
            consent: self.consent.and_then(|id| Uuid::try_parse(&id).ok()),
            microservice: self.microservice.map(Into::into),
            notice: self.notice,
        }
    }
}
