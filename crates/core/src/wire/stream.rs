//! An event of a stream as the API answers it. Entries, pages of them and the state of a stream are written as they are.

use bytestring::ByteString;
use serde::{Deserialize, Serialize, Serializer, ser::SerializeStruct};

use super::{EventLine, EventView};
use crate::{StreamEvent, StreamPosition};

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

/// An event of a stream as a client reads it back from the API. Fields that a newer server adds are ignored.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct StreamEventLine {
    position: StreamPosition,
    partition: Option<ByteString>,
    event: EventLine,
}

impl From<StreamEventLine> for StreamEvent {
    fn from(line: StreamEventLine) -> Self {
        Self { position: line.position, partition: line.partition, event: line.event.into() }
    }
}
