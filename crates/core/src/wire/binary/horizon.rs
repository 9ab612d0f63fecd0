//! A page of a public stream on its way to a consumer: a document for each event, then one that names its sender and says where the page
//! ends.
//!
//! ```text
//! {position, sequence_number, type, generation, data, time, source, correlation_id?} …
//! {next, head, consent, microservice, store_id, incarnation, incarnation_start}
//! ```

use bson::raw::{RawBsonRef, RawDocument};
use bson::spec::BinarySubtype;
use bytes::Bytes;
use uuid::Uuid;

use super::split_document;
use super::write::{DATE, DOCUMENT, begin, document, integer, maybe, string, uuid};
use crate::horizon::Offered;
use crate::{ByteString, Data, Identity, IncomingEvent, Timestamp};

/// Writes a page.
pub fn write_offered(offered: &Offered) -> Vec<u8> {
    let bytes: usize = offered.events.iter().map(|event| event.data.as_bytes().len() + 160).sum();
    let mut out = Vec::with_capacity(bytes + 256);
    for event in &offered.events {
        document(&mut out, |out| write_event(event, out));
    }
    document(&mut out, |out| {
        integer(out, "next", offered.next.cast_signed());
        integer(out, "head", offered.head.cast_signed());
        uuid(out, "consent", offered.consent);
        string(out, "microservice", &offered.microservice);
        uuid(out, "store_id", offered.identity.store_id);
        integer(out, "incarnation", offered.identity.incarnation.into());
        integer(out, "incarnation_start", offered.identity.incarnation_start.cast_signed());
    });
    out
}

fn write_event(event: &IncomingEvent, out: &mut Vec<u8>) {
    integer(out, "position", event.position.cast_signed());
    integer(out, "sequence_number", event.sequence_number.cast_signed());
    string(out, "type", &event.event_type);
    integer(out, "generation", event.generation.into());
    begin(out, DOCUMENT, "data");
    out.extend_from_slice(event.data.as_bytes());
    begin(out, DATE, "time");
    out.extend_from_slice(&event.time.as_millis().to_le_bytes());
    string(out, "source", &event.source);
    maybe(out, "correlation_id", event.correlation_id.as_deref());
}

/// Parses a page. Texts share the memory of `bytes`. Fields that a newer producer adds are ignored.
///
/// # Errors
/// A sentence, if the bytes have another form or are truncated.
pub fn read_offered(bytes: &Bytes) -> Result<Offered, String> {
    let mut events = Vec::new();
    let mut rest = &bytes[..];
    loop {
        let (first, behind) = split_document(rest)?.ok_or("a truncated page")?;
        let document = RawDocument::from_bytes(first).map_err(|error| error.to_string())?;
        let is_end = document.get("next").map_err(|error| error.to_string())?.is_some();
        match is_end {
            false => events.push(read_event(bytes, document)?),
            true if behind.is_empty() => return read_end(bytes, document, events),
            true => return Err("a page with bytes after its end".to_owned()),
        }
        rest = behind;
    }
}

fn read_event(bytes: &Bytes, document: &RawDocument) -> Result<IncomingEvent, String> {
    let mut event = IncomingEvent {
        position: 0,
        sequence_number: 0,
        event_type: ByteString::new(),
        generation: 1,
        data: Data::empty(),
        time: Timestamp::from_millis(0),
        source: ByteString::new(),
        correlation_id: None,
    };
    for element in document {
        let (key, value) = element.map_err(|error| error.to_string())?;
        let wrong = || format!("{key} is {value:?}");
        match key.as_str() {
            "position" => event.position = number(value).ok_or_else(wrong)?,
            "sequence_number" => event.sequence_number = number(value).ok_or_else(wrong)?,
            "type" => event.event_type = text(bytes, value).ok_or_else(wrong)?,
            "generation" => {
                event.generation = number(value).and_then(|number| u32::try_from(number).ok()).ok_or_else(wrong)?;
            }
            "data" => {
                let document = value.as_document().ok_or_else(wrong)?;
                // The data is validated, because a producer is not trusted to send valid documents.
                event.data = Data::from_bson(document.as_bytes())?;
            }
            "time" => {
                let time = value.as_datetime().ok_or_else(wrong)?;
                event.time = Timestamp::from_millis(time.timestamp_millis());
            }
            "source" => event.source = text(bytes, value).ok_or_else(wrong)?,
            "correlation_id" => event.correlation_id = Some(text(bytes, value).ok_or_else(wrong)?),
            _ => {}
        }
    }
    Ok(event)
}

fn read_end(bytes: &Bytes, document: &RawDocument, events: Vec<IncomingEvent>) -> Result<Offered, String> {
    let field = |key: &str| document.get(key).ok().flatten().ok_or_else(|| format!("a page without {key}"));
    let count = |key: &str| number(field(key)?).ok_or_else(|| format!("a page with an invalid {key}"));
    let id = |key: &str| {
        let found = field(key)?.as_binary().filter(|binary| binary.subtype == BinarySubtype::Uuid);
        let id = found.and_then(|binary| Uuid::from_slice(binary.bytes).ok());
        id.ok_or_else(|| format!("a page with an invalid {key}"))
    };
    Ok(Offered {
        consent: id("consent")?,
        microservice: text(bytes, field("microservice")?).ok_or("a page with an invalid microservice")?,
        identity: Identity {
            store_id: id("store_id")?,
            incarnation: u32::try_from(count("incarnation")?).map_err(|_| "a page with an invalid incarnation")?,
            incarnation_start: count("incarnation_start")?,
        },
        events,
        next: count("next")?,
        head: count("head")?,
    })
}

fn number(value: RawBsonRef<'_>) -> Option<u64> {
    value.as_i64().map(i64::cast_unsigned)
}

fn text(bytes: &Bytes, value: RawBsonRef<'_>) -> Option<ByteString> {
    match value.as_str()? {
        "" => Some(ByteString::new()),
        text => bytes.slice_ref(text.as_bytes()).try_into().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_read_as_it_is_written_and_a_part_of_it_is_not_a_page() {
        let date = bson::Bson::DateTime(bson::DateTime::from_millis(5));
        let data = Data::from_document(&bson::doc! { "at": date, "n": bson::Decimal128::from_bytes([7; 16]) });
        let event = |position: u64, correlation_id: Option<&'static str>| IncomingEvent {
            position,
            sequence_number: position + 7,
            event_type: "placed".into(),
            generation: 3,
            data: data.clone().expect("a document"),
            time: Timestamp::from_millis(1_772_366_400_007),
            source: "o-1".into(),
            correlation_id: correlation_id.map(Into::into),
        };
        let offered = Offered {
            consent: Uuid::from_u128(1),
            microservice: "orders".into(),
            identity: Identity { store_id: Uuid::from_u128(2), incarnation: 3, incarnation_start: u64::MAX },
            events: vec![event(4, None), event(6, Some("c"))],
            next: 9,
            head: 12,
        };
        let bytes = Bytes::from(write_offered(&offered));
        assert_eq!(read_offered(&bytes), Ok(offered));
        for length in 0..bytes.len() {
            assert!(read_offered(&bytes.slice(..length)).is_err(), "{length} bytes of {}", bytes.len());
        }
    }
}
