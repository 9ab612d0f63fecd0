//! An event of a stream as the API answers it. Entries, pages of them and the state of a stream are written as they are.

use serde::{Serialize, Serializer, ser::SerializeStruct};

use super::EventView;
use crate::StreamEvent;

/// Writes an event of a stream the way `/v1/streams/{name}` answers it.
pub struct StreamEventView<'a> {
    /// The event and its place.
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
