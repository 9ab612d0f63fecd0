//! Results of reading the view.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Timestamp;

/// A page of the view.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BrowsePage {
    /// The events, in the form of [`shown`](super::shown).
    pub items: Vec<Value>,
    /// The number of events that match the filter, on all pages.
    pub total: u64,
    /// Whether counting stopped at `total`, so that there are at least that many.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub total_is_bound: bool,
    /// Whether more events follow this page.
    pub has_more: bool,
    /// Where the next page begins; absent at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// The view's progress.
    pub view: ViewPosition,
}

impl BrowsePage {
    /// Decodes the events, each as a value of `T`: a struct with the fields of one event type, or an enum over `event_type`.
    ///
    /// # Errors
    /// Each event has a result of its own, so an event of an unknown type or a damaged document does not affect the others.
    pub fn typed<T: DeserializeOwned>(&self) -> impl Iterator<Item = Result<T, serde_json::Error>> {
        self.items.iter().map(T::deserialize)
    }
}

/// The view's progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ViewPosition {
    /// Every event below this sequence number is in the view.
    pub position: u64,
    /// The number of events in the log.
    pub head: u64,
}

/// An event and other events of its aggregate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EventDetail {
    /// The event, in the form of [`shown`](super::shown).
    pub event: Value,
    /// Up to ten other events of its aggregate, earliest first.
    pub related: Vec<EventSummary>,
    /// The first five of `related`.
    pub timeline: Vec<EventSummary>,
}

/// A summary of an event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventSummary {
    /// Its id.
    pub event_id: String,
    /// Its type.
    pub event_type: String,
    /// When it happened.
    pub timestamp: Option<Timestamp>,
    /// The id of its aggregate.
    pub aggregate_id: Option<String>,
    /// Its sequence number; absent in a document that other software wrote.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sequence_number: Option<u64>,
}

impl EventSummary {
    /// Summarizes a document of the view.
    pub fn of(document: &bson::Document) -> Self {
        let text = |name: &str| document.get_str(name).ok().map(str::to_owned);
        let time = document.get_datetime("timestamp").ok();
        Self {
            event_id: text("event_id").unwrap_or_default(),
            event_type: text("event_type").unwrap_or_default(),
            timestamp: time.map(|time| Timestamp::from_millis(time.timestamp_millis()).nearest_writable()),
            aggregate_id: text("aggregate_id"),
            sequence_number: document.get("_id").and_then(super::number_of),
        }
    }
}
