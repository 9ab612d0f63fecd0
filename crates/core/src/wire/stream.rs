//! An event of a stream as the API returns it. Entries, pages of entries and the state of a stream serialise without a view of their own.

use serde::{Serialize, Serializer, ser::SerializeStruct};

use super::EventView;
use crate::StreamEvent;

/// Writes an event of a stream as `/v1/streams/{name}` returns it.
pub struct StreamEventView<'a> {
    /// The event and its position.
    pub event: &'a StreamEvent,
    /// The tenant whose store it is in.
    pub tenant: &'a str,
    /// The scope whose stream it is in.
    pub scope: &'a str,
}

impl Serialize for StreamEventView<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut line = serializer.serialize_struct("StreamEvent", 3)?;
        line.serialize_field("position", &self.event.position)?;
        line.serialize_field("partition", &self.event.partition)?;
        let event = EventView { event: &self.event.event, tenant: self.tenant, scope: self.scope };
        line.serialize_field("event", &event)?;
        line.end()
    }
}
