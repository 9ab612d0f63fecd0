//! A page as lines of JSON, for people and for consumers other than Annals. Annals consumers read pages as BSON, which keeps all data
//! types.

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use super::Offered;
use crate::IncomingEvent;

pub use crate::wire::binary::{read_offered, write_offered};

/// Writes a page as lines: one per event, then one with the producer's identity and the end of the page. Without that last line, the page
/// is truncated.
pub struct OfferedView<'a>(pub &'a Offered);

impl OfferedView<'_> {
    /// Returns the lines.
    ///
    /// # Errors
    /// An error if stored data cannot be written as JSON.
    pub fn lines(&self) -> Result<Vec<u8>, serde_json::Error> {
        let mut out = Vec::new();
        for event in &self.0.events {
            serde_json::to_writer(&mut out, &EventLine(event))?;
            out.push(b'\n');
        }
        serde_json::to_writer(&mut out, &EndLine(self.0))?;
        out.push(b'\n');
        Ok(out)
    }
}

struct EventLine<'a>(&'a IncomingEvent);

impl Serialize for EventLine<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let event = self.0;
        let mut line = serializer.serialize_map(None)?;
        line.serialize_entry("position", &event.position)?;
        line.serialize_entry("sequence_number", &event.sequence_number)?;
        line.serialize_entry("type", &event.event_type)?;
        line.serialize_entry("generation", &event.generation)?;
        line.serialize_entry("data", &event.data)?;
        line.serialize_entry("time", &event.time)?;
        line.serialize_entry("source", &event.source)?;
        if let Some(id) = &event.correlation_id {
            line.serialize_entry("correlation_id", id)?;
        }
        line.end()
    }
}

struct EndLine<'a>(&'a Offered);

impl Serialize for EndLine<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Offered { consent, microservice, identity, next, head, .. } = self.0;
        let mut line = serializer.serialize_map(None)?;
        line.serialize_entry("next", next)?;
        line.serialize_entry("head", head)?;
        line.serialize_entry("consent", consent)?;
        line.serialize_entry("microservice", microservice)?;
        line.serialize_entry("store_id", &identity.store_id)?;
        line.serialize_entry("incarnation", &identity.incarnation)?;
        line.serialize_entry("incarnation_start", &identity.incarnation_start)?;
        line.end()
    }
}
