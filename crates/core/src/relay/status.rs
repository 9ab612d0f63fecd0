//! The status of a relay, for people, and its records in the store.

use bson::DateTime;
use serde::{Deserialize, Serialize};

use crate::{Fork, RecordType, SequenceNumber, Timestamp};

/// The state of a relay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RelayState {
    /// It has not reached the broker yet.
    #[default]
    Starting,
    /// Events are published as they are committed.
    Publishing,
    /// The broker cannot be reached, or refuses; commits continue, and the relay retries.
    Retrying,
    /// Another process publishes this store.
    Standby,
    /// It publishes nothing until a person intervenes.
    Stopped,
    /// Topics are views of the log: an event is on its topic as soon as it is in the log.
    Views,
}

impl RelayState {
    /// Returns its name in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Publishing => "publishing",
            Self::Retrying => "retrying",
            Self::Standby => "standby",
            Self::Stopped => "stopped",
            Self::Views => "views",
        }
    }
}

/// The status of a tenant's relay.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RelayStatus {
    /// The tenant.
    pub tenant: String,
    /// Its state.
    pub state: RelayState,
    /// Every event below it whose type had a topic is published or held.
    pub position: SequenceNumber,
    /// The number of events in the log.
    pub head: SequenceNumber,
    /// The number of events from the position to the head.
    pub lag: u64,
    /// The number of messages published since this process started.
    pub published: u64,
    /// The number of events that were left out because the broker refuses them.
    pub held: u64,
    /// Where the log diverged from what an earlier incarnation had published.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fork: Option<Fork>,
    /// The last failure, until the relay recovers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
}

/// The progress of a relay for other processes of its store. The authoritative position is the broker's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RelayRecord {
    /// `relay`.
    #[serde(rename = "_id")]
    pub id: String,
    /// The process that publishes.
    pub owner: String,
    /// The incarnation that it publishes.
    pub incarnation: i64,
    /// The position.
    pub position: i64,
}

impl RelayRecord {
    /// The id of the only record.
    pub const ID: &'static str = "relay";
}

impl RecordType for RelayRecord {
    const COLLECTION: &'static str = "annals-relay";
}

/// An event that the broker refuses. It stays in the log and is on no topic; the events after it are published.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldRecord {
    /// Its sequence number.
    #[serde(rename = "_id")]
    pub sequence_number: i64,
    /// Its id.
    pub event_id: String,
    /// Its type.
    #[serde(rename = "type")]
    pub event_type: String,
    /// The topic from which it is missing.
    pub topic: String,
    /// Its aggregate, as `name/id`.
    pub aggregate: String,
    /// Why the broker refuses it.
    pub reason: String,
    /// When it was left out.
    pub at: DateTime,
}

impl HeldRecord {
    /// Returns when it was left out.
    pub fn at(&self) -> Timestamp {
        Timestamp::from_millis(self.at.timestamp_millis())
    }
}

impl RecordType for HeldRecord {
    const COLLECTION: &'static str = "annals-relay-held";
}
