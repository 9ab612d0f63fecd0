//! What readers of the view get.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Timestamp;

/// A page of the view.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BrowsePage {
    /// The events, as [`shown`](super::shown).
    pub items: Vec<Value>,
    /// How many events meet the filter, on whatever page they are.
    pub total: u64,
    /// Whether counting stopped there, so that there are at least so many.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub total_is_bound: bool,
    /// Whether more of them follow this page.
    pub has_more: bool,
    /// Where the next page begins; absent at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// How far the view is.
    pub view: ViewPosition,
}

/// How far the view is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ViewPosition {
    /// Every event below this sequence number is in the view.
    pub position: u64,
    /// The number of events in the log.
    pub head: u64,
}

/// An event with others of its aggregate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EventDetail {
    /// The event, as [`shown`](super::shown).
    pub event: Value,
    /// Up to ten other events of its aggregate, the earliest first.
    pub related: Vec<EventSummary>,
    /// The first five of those.
    pub timeline: Vec<EventSummary>,
}

/// An event in a few words.
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
    /// Its place in the log; absent in a document that other software wrote.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sequence_number: Option<u64>,
}

impl EventSummary {
    /// Sums a document of the view up.
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
