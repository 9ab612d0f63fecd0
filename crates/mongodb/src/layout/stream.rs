//! An entry of a stream as a document, exactly in the Dolittle Runtime's layout: the event as in the log, with its position as `_id`, its
//! sequence number and its partition.

use annals_core::bson::raw::cstr;
use annals_core::{ByteString, SequenceNumber, StreamEntry, StreamPosition};
use mongodb::bson::{Document, RawBsonRef, RawDocument, RawDocumentBuf, doc};

use super::fields::{inner, natural, text};
use super::writer::decimal;

/// The value that represents no partition.
pub(crate) const NO_PARTITION: &str = "00000000-0000-0000-0000-000000000000";
/// The field of an entry's partition.
pub(crate) const PARTITION: &str = "Partition";
/// The field of the event's sequence number.
pub(crate) const SEQUENCE_NUMBER: &str = "Metadata.EventLogSequenceNumber";

/// Writes the entry of an event, given the log's document. The field of a redaction is omitted, because the Runtime's reader of streams
/// does not know it.
///
/// # Errors
/// A sentence that says what is wrong.
pub(crate) fn write(
    event: &RawDocument,
    position: StreamPosition,
    partition: Option<&str>,
) -> Result<RawDocumentBuf, String> {
    let number = natural(event, "_id").ok_or("event-log: an event's _id is no whole number")?;
    let mut out = RawDocumentBuf::new();
    out.append(cstr!("_id"), decimal(position));
    out.append(cstr!("Partition"), partition.unwrap_or(NO_PARTITION));
    let mut has_metadata = false;
    for field in event.iter() {
        let (key, value) = field.map_err(|error| format!("event-log: event {number}: {error}"))?;
        match (key.as_str(), value) {
            ("_id" | PARTITION | "RedactedBy", _) => {}
            ("Metadata", RawBsonRef::Document(metadata)) => {
                out.append(cstr!("Metadata"), numbered(metadata, number)?);
                has_metadata = true;
            }
            (_, value) => out.append(key, value),
        }
    }
    if has_metadata { Ok(out) } else { Err(format!("event-log: event {number} has no Metadata")) }
}

fn numbered(metadata: &RawDocument, number: SequenceNumber) -> Result<RawDocumentBuf, String> {
    let mut out = RawDocumentBuf::new();
    out.append(cstr!("EventLogSequenceNumber"), decimal(number));
    for field in metadata.iter() {
        let (key, value) = field.map_err(|error| format!("event-log: event {number}: {error}"))?;
        if key.as_str() != "EventLogSequenceNumber" {
            out.append(key, value);
        }
    }
    Ok(out)
}

/// Returns the projection that [`read`] needs.
pub(crate) fn projection() -> Document {
    doc! { PARTITION: 1, SEQUENCE_NUMBER: 1 }
}

/// Reads an entry. Other software may have written its partition as a binary UUID.
///
/// # Errors
/// A sentence that names the invalid field.
pub(crate) fn read(document: &RawDocument) -> Result<StreamEntry, String> {
    let position = natural(document, "_id").ok_or("an entry's _id is no whole number")?;
    let number = inner(document, "Metadata").and_then(|metadata| natural(metadata, "EventLogSequenceNumber"));
    let sequence_number = number.ok_or_else(|| format!("entry {position} has no {SEQUENCE_NUMBER}"))?;
    let partition = match document.get(PARTITION) {
        Ok(Some(RawBsonRef::Binary(binary))) => uuid::Uuid::from_slice(binary.bytes).ok().map(|id| id.to_string()),
        _ => text(document, PARTITION).map(str::to_owned),
    };
    let partition = partition.ok_or_else(|| format!("entry {position} has no {PARTITION}"))?;
    let partition = Some(partition).filter(|partition| partition != NO_PARTITION).map(ByteString::from);
    Ok(StreamEntry { position, sequence_number, partition })
}

#[cfg(test)]
mod tests {
    use super::*;
    use mongodb::bson::Bson;

    fn raw(document: &Document) -> RawDocumentBuf {
        RawDocumentBuf::try_from(document).expect("encodes")
    }

    #[test]
    fn an_entry_is_its_event_under_another_number() {
        let event = doc! {
            "_id": decimal(7), "Content": { "a": 1 }, "Aggregate": { "Version": decimal(0) },
            "Metadata": { "EventSource": "o-1", "Public": true }, "RedactedBy": [9_i64],
        };
        let entry = write(&raw(&event), 2, Some("o-1")).expect("written");
        let expected = doc! {
            "_id": decimal(2), "Partition": "o-1", "Content": { "a": 1 }, "Aggregate": { "Version": decimal(0) },
            "Metadata": { "EventLogSequenceNumber": decimal(7), "EventSource": "o-1", "Public": true },
        };
        let written = Document::try_from(&*entry).expect("a document");
        assert_eq!(Bson::from(written), Bson::from(expected));
        let read_back = read(&entry).expect("read");
        assert_eq!(read_back, StreamEntry { position: 2, sequence_number: 7, partition: Some("o-1".into()) });
        let without = write(&raw(&event), 3, None).expect("written");
        assert_eq!(text(&without, PARTITION), Some(NO_PARTITION));
        assert_eq!(read(&without).expect("read").partition, None);
    }

    #[test]
    fn what_is_no_entry_is_named() {
        for (broken, what) in [
            (doc! { "_id": "x" }, "_id"),
            (doc! { "_id": 1, "Partition": "p" }, "Metadata.EventLogSequenceNumber"),
            (doc! { "_id": 1, "Metadata": { "EventLogSequenceNumber": 4 } }, "Partition"),
        ] {
            let why = read(&raw(&broken)).expect_err("it is broken");
            assert!(why.contains(what), "{why}");
        }
        assert!(write(&raw(&doc! { "_id": 3 }), 0, None).expect_err("no event").contains("Metadata"));
    }
}
