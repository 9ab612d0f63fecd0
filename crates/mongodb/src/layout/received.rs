//! The documents of received events.
//!
//! ```text
//! x-<scope>-event-log             the event, exactly as the Dolittle Runtime has it
//! x-<scope>-subscription-states   where each subscription stands, in the Runtime's layout as well
//! x-<scope>-annals-received       what those two have no room for: [`Arrival`]
//! ```
//!
//! The Runtime identifies microservices, tenants and streams by UUID. A name that is a UUID is used unchanged; any other becomes a UUIDv5.
//! INVARIANT: a subscription is identified by these UUIDs and its partition, so two spellings of one UUID can never receive an event
//! twice.

use std::sync::Arc;

use annals_core::{
    ByteString, IncomingEvent, ReceivedBatch, ReceivedFrom, SequenceNumber, StreamPosition, Subscription,
    SubscriptionState, Timestamp,
};
use mongodb::bson::{self, Bson, DateTime, Document, RawDocument, RawDocumentBuf, doc};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::event::{self, Context};
use super::fields::{boolean, inner, natural, read, whole};
use super::guid::{source_forms, uuid};
use super::mapping::{Kind, Mapping};
use super::names::uuid_of;
use super::writer::{Writer, decimal};

/// The position of each subscription, in the Dolittle Runtime's layout.
pub(crate) const SUBSCRIPTION_STATES: &str = "subscription-states";
/// Data that the Runtime's layout cannot store.
pub(crate) const RECEIVED: &str = "annals-received";

/// A subscription as the layout identifies it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) microservice: bson::Uuid,
    pub(crate) tenant: bson::Uuid,
    pub(crate) stream: bson::Uuid,
    pub(crate) partition: String,
}

impl Key {
    pub(crate) fn of(subscription: &Subscription) -> Self {
        let id = |kind, name: &str| bson::Uuid::from_bytes(uuid_of(kind, name).into_bytes());
        Self {
            microservice: id("microservice", &subscription.producer),
            tenant: id("tenant", &subscription.tenant),
            stream: id("stream", &subscription.stream),
            partition: subscription.partition.to_string(),
        }
    }

    /// Returns a filter for its state. An older Runtime wrote partitions that are UUIDs in binary form.
    pub(crate) fn of_state(&self) -> Document {
        doc! {
            "Microservice": self.microservice, "Tenant": self.tenant, "Stream": self.stream,
            "Partition": { "$in": source_forms(&self.partition) },
        }
    }

    /// Returns the fields of a new state.
    pub(crate) fn of_new_state(&self) -> Document {
        let Self { microservice, tenant, stream, partition } = self;
        doc! { "Microservice": *microservice, "Tenant": *tenant, "Stream": *stream, "Partition": partition }
    }

    /// Returns a filter for its arrivals.
    pub(crate) fn of_arrivals(&self) -> Document {
        let Self { microservice, tenant, stream, partition } = self;
        doc! { "microservice": *microservice, "tenant": *tenant, "stream": *stream, "partition": partition }
    }
}

/// The position of a subscription.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Standing {
    /// The `_id` of its document; `None` if there is none.
    pub(crate) id: Option<Bson>,
    pub(crate) position: StreamPosition,
    /// One past the sequence number of the last event in the producer's log; 0 if unknown.
    pub(crate) next_number: SequenceNumber,
}

impl Standing {
    pub(crate) fn state(&self) -> SubscriptionState {
        SubscriptionState { position: self.position, sequence_number: self.next_number.checked_sub(1) }
    }
}

/// Reads a state, which other software may have written.
///
/// # Errors
/// A sentence that names the field.
pub(crate) fn standing(document: &RawDocument) -> Result<Standing, String> {
    let id = document.get("_id").ok().flatten().and_then(|id| Bson::try_from(id).ok());
    let position = natural(document, "Position").ok_or("Position is missing or no whole number from 0")?;
    // Runtimes before version 9 did not store it.
    let next_number = natural(document, "EventLogSequence").unwrap_or(0);
    Ok(Standing { id, position, next_number })
}

/// Returns the update of a state after a batch has been received.
pub(crate) fn state_after(batch: &ReceivedBatch, at: Timestamp) -> Document {
    let at = DateTime::from_millis(at.as_millis());
    let next = batch.events.last().map_or(0, |last| last.sequence_number + 1);
    doc! {
        "Position": decimal(batch.next()), "EventLogSequence": decimal(next), "LastSuccessfullyProcessed": at,
        "RetryTime": at, "FailureReason": "", "ProcessingAttempts": 0_i32, "IsFailing": false,
    }
}

/// Writes the document of a received event.
pub(crate) fn event(
    batch: &ReceivedBatch,
    incoming: &IncomingEvent,
    number: SequenceNumber,
    at: Timestamp,
    mapping: &Mapping,
) -> Result<RawDocumentBuf, bson::error::Error> {
    let Subscription { producer, tenant, .. } = &batch.subscription;
    let correlation = incoming.correlation_id.as_deref().map_or(Uuid::nil(), |id| uuid_of("correlation", id));
    let context =
        Context { correlation, microservice: uuid_of("microservice", producer), tenant: uuid_of("tenant", tenant) };
    let mut out = Writer::with_capacity(incoming.data.as_bytes().len() + 640);
    out.decimal("_id", number);
    out.whole("Content", incoming.data.as_bytes());
    event::write_applied(&mut out, None);
    out.document("EventHorizon", |horizon| {
        horizon.boolean("FromEventHorizon", true);
        horizon.decimal("ExternalEventLogSequenceNumber", incoming.sequence_number);
        horizon.date("Received", at.as_millis());
        horizon.uuid("Consent", batch.consent);
    });
    out.document("ExecutionContext", |out| context.write(out));
    out.document("Metadata", |metadata| {
        metadata.date("Occurred", incoming.time.as_millis());
        metadata.text("EventSource", &incoming.source);
        metadata.uuid("TypeId", mapping.uuid(Kind::Event, &incoming.event_type));
        metadata.int64("TypeGeneration", incoming.generation.into());
        // A received event is not offered to others.
        metadata.boolean("Public", false);
    });
    out.raw()
}

/// Data of a received event that the Runtime's document cannot store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Arrival {
    /// The event's sequence number in the scope's log.
    #[serde(rename = "_id", deserialize_with = "whole")]
    pub(crate) number: i64,
    microservice: bson::Uuid,
    tenant: bson::Uuid,
    stream: bson::Uuid,
    partition: String,
    /// Its position in the producer's stream.
    #[serde(deserialize_with = "whole")]
    pub(crate) position: i64,
    /// Its sequence number in the producer's log.
    #[serde(deserialize_with = "whole")]
    pub(crate) external: i64,
    /// Its index in its batch, and the size of the batch.
    pub(crate) place: u32,
    pub(crate) count: u32,
    /// The names that their UUIDs would not be read back as.
    #[serde(default, skip_serializing_if = "Names::is_empty")]
    pub(crate) names: Names,
}

/// Names as they were received.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Names {
    #[serde(skip_serializing_if = "Option::is_none")]
    producer: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tenant: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stream: Option<String>,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub(crate) event_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) correlation: Option<String>,
}

impl Names {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    fn of(subscription: &Subscription, incoming: &IncomingEvent, mapping: &Mapping) -> Self {
        let kept = |kind, name: &str| {
            let uuid = uuid_of(kind, name);
            (uuid.is_nil() || uuid.hyphenated().to_string() != name).then(|| name.to_owned())
        };
        let event_type = &incoming.event_type;
        let read_as = mapping.name(Kind::Event, mapping.uuid(Kind::Event, event_type));
        Self {
            producer: kept("microservice", &subscription.producer),
            tenant: kept("tenant", &subscription.tenant),
            stream: kept("stream", &subscription.stream),
            event_type: (read_as != *event_type).then(|| event_type.to_string()),
            correlation: incoming.correlation_id.as_deref().and_then(|id| kept("correlation", id)),
        }
    }
}

impl Arrival {
    /// Returns the arrival of the event at `place` of a batch whose first event has the number `first`. The batch must be within the
    /// layout's limits.
    pub(crate) fn of(batch: &ReceivedBatch, key: &Key, place: usize, first: SequenceNumber, mapping: &Mapping) -> Self {
        let incoming = &batch.events[place];
        Self {
            number: (first + place as u64) as i64,
            microservice: key.microservice,
            tenant: key.tenant,
            stream: key.stream,
            partition: key.partition.clone(),
            position: incoming.position as i64,
            external: incoming.sequence_number as i64,
            place: place as u32,
            count: batch.events.len() as u32,
            names: Names::of(&batch.subscription, incoming, mapping),
        }
    }

    /// # Errors
    /// A sentence that names the field.
    pub(crate) fn read(document: &RawDocument) -> Result<Self, String> {
        read(document)
    }

    /// Returns where its event came from.
    pub(crate) fn received_from(&self, horizon: &Horizon) -> Arc<ReceivedFrom> {
        let name = |kept: &Option<String>, uuid: bson::Uuid| {
            let kept = kept.as_deref().map(ByteString::from);
            kept.unwrap_or_else(|| Uuid::from_bytes(uuid.bytes()).hyphenated().to_string().into())
        };
        let names = &self.names;
        Arc::new(ReceivedFrom {
            subscription: Subscription {
                producer: name(&names.producer, self.microservice),
                tenant: name(&names.tenant, self.tenant),
                stream: name(&names.stream, self.stream),
                partition: self.partition.as_str().into(),
            },
            sequence_number: self.external as u64,
            position: self.position as u64,
            consent: horizon.consent,
            at: horizon.at,
        })
    }
}

/// What an event's own document says about its reception.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Horizon {
    consent: Uuid,
    at: Timestamp,
}

/// Reads it; `None` for an event that was not received.
pub(crate) fn horizon(document: &RawDocument) -> Option<Horizon> {
    let horizon = inner(document, "EventHorizon").filter(|it| boolean(it, "FromEventHorizon").unwrap_or(false))?;
    let at = horizon.get_datetime("Received").ok()?;
    Some(Horizon { consent: uuid(horizon, "Consent")?, at: Timestamp::from_millis(at.timestamp_millis()) })
}
