//! The state of a subscription, as the API returns it.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{IntakeState, Progress, SubscriptionDefinition};
use crate::{ByteString, SequenceNumber, StreamPosition, SubscriptionState, Timestamp};

/// The state of a subscription. The position comes from the log of the scope; facts that only the producer knows come from its last
/// response.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SubscriptionStatus {
    /// Its name.
    pub name: ByteString,
    /// The producer's URL.
    pub producer: ByteString,
    /// The producer's tenant.
    pub tenant: ByteString,
    /// The producer's stream.
    pub stream: ByteString,
    /// The partition of that stream.
    pub partition: ByteString,
    /// The scope that receives.
    pub scope: ByteString,
    /// Whether a credential is sent to the producer.
    pub credential: bool,
    /// What the subscription is doing.
    pub state: IntakeState,
    /// The position in the producer's stream: every event of the partition below it has been received.
    pub position: StreamPosition,
    /// The sequence number of the last received event in the producer's log; absent before the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sequence_number: Option<SequenceNumber>,
    /// The number of entries of the producer's stream, according to its last response.
    pub head: StreamPosition,
    /// An upper bound on the number of entries still to be received: entries before `head` may belong to other partitions.
    pub lag: u64,
    /// When an event was last received; absent before the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_progress: Option<Timestamp>,
    /// The number of seconds since then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds_since_progress: Option<u64>,
    /// The number of failures in a row.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub attempts: u32,
    /// When it retries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_at: Option<Timestamp>,
    /// The reason of the last failure; absent once it succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_reason: Option<String>,
    /// The consent under which the producer sends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub consent: Option<Uuid>,
    /// The name that the producer's microservice gives itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub microservice: Option<ByteString>,
    /// An observation about the producer, such as a restore that affects no received event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notice: Option<String>,
    /// The process that follows the producer; absent if none does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// A page of subscriptions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SubscriptionPage {
    /// The subscriptions, by name.
    pub items: Vec<SubscriptionStatus>,
    /// The cursor of the next page; absent on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<ByteString>,
}

impl SubscriptionStatus {
    /// Combines what is stored of a subscription. Without an owner it is stopped, whatever state its last owner stored.
    pub fn of(
        definition: SubscriptionDefinition,
        progress: Progress,
        stored: SubscriptionState,
        owner: Option<String>,
        now: Timestamp,
    ) -> Self {
        let reached = stored.position.max(progress.examined);
        let head = progress.head.max(stored.position);
        Self {
            credential: definition.credential.is_some(),
            name: definition.name,
            producer: definition.producer,
            tenant: definition.tenant,
            stream: definition.stream,
            partition: definition.partition,
            scope: definition.scope,
            state: if owner.is_some() { progress.state } else { IntakeState::Stopped },
            position: stored.position,
            sequence_number: stored.sequence_number,
            head,
            lag: head.saturating_sub(reached),
            seconds_since_progress: progress.last_progress.map(|at| now.since(at).as_secs()),
            last_progress: progress.last_progress,
            attempts: progress.attempts,
            retry_at: progress.retry_at,
            last_reason: progress.last_reason,
            consent: progress.consent,
            microservice: progress.microservice,
            notice: progress.notice,
            owner,
        }
    }
}
