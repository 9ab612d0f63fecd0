//! Reading a broker's message as an event.

use std::sync::Arc;

use annals_core::relay::RelayedEvent;
use annals_core::{
    Aggregate, ByteString, CommitInfo, Content, DEFAULT_TENANT_ID, Data, Message, RecordedEvent, Timestamp,
    TopicPartition, Uuid, limits,
};
use serde_json::json;

/// The headers with the place of a message on the broker, as seen by its consumer and in its dead letter.
pub(crate) const PARTITION: &str = "broker-partition";
const OFFSET: &str = "broker-offset";
/// The most text of an unreadable message that its dead letter shows. The message itself stays on the topic.
const SHOWN_BYTES: usize = 8 * 1024;
/// Unreadable messages are numbered from here, far above every sequence number of a log.
const UNREADABLE_FROM: u64 = 1 << 62;

/// Reads the event of a message, which must be of the type that its topic carries.
///
/// Fields that a message does not carry are empty: the commit id, the request id and the tags.
pub(super) fn read(message: &Message, event_type: &str) -> Result<RecordedEvent, String> {
    let (headers, body) = match &message.content {
        Content::Event(event) => return Ok((**event).clone()),
        Content::Encoded { headers, body } => (headers, body),
    };
    let event = RelayedEvent::read(headers, body)?;
    if &*event.event_type != event_type {
        return Err(format!(
            "the message is an event of type {:?}, but its topic carries {event_type:?}",
            &*event.event_type
        ));
    }
    let aggregate = match event.aggregate {
        Some((name, id)) => Aggregate::new(name, id),
        None => Aggregate::of_source(key_of(message)),
    };
    let named = |(name, _): &&(ByteString, _)| {
        !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'))
    };
    let mut header: Vec<(ByteString, ByteString)> = headers
        .iter()
        .filter(named)
        .filter_map(|(name, value)| Some((name.clone(), ByteString::try_from(value.clone()).ok()?)))
        .collect();
    header.extend(place(message));
    let facts = Facts { id: event.id, number: event.sequence_number, version: event.version, time: event.time };
    let mut recorded = recorded(facts, event_type, aggregate, event.data, header);
    recorded.generation = event.generation;
    if let Some(commit) = Arc::get_mut(&mut recorded.commit) {
        (commit.correlation_id, commit.causation_id) = (event.correlation_id, event.causation_id);
    }
    Ok(recorded)
}

/// Returns a substitute event for a message that cannot be read: its place, and enough of its content for a person to recognise it.
pub(super) fn unreadable(message: &Message, event_type: &str) -> RecordedEvent {
    let text = |bytes: &[u8]| String::from_utf8_lossy(&bytes[..bytes.len().min(SHOWN_BYTES)]).into_owned();
    let (headers, body) = match &message.content {
        Content::Event(_) => (Vec::new(), String::new()),
        Content::Encoded { headers, body } => {
            let shown =
                headers.iter().take(50).map(|(name, value)| json!([&**name, text(&value[..value.len().min(200)])]));
            (shown.collect(), text(body))
        }
    };
    let TopicPartition { topic, partition } = &message.at;
    let shown = json!({
        "topic": &**topic, "partition": partition, "offset": message.offset, "key": &*key_of(message), "headers": headers, "body": body,
    });
    let data = Data::from_value(&shown).unwrap_or_else(|_| Data::empty());
    let digest = fingerprint(&message.at, message.offset);
    let facts = Facts {
        id: Uuid::from_u128(digest),
        number: UNREADABLE_FROM | (digest as u64 & (UNREADABLE_FROM - 1)),
        version: 0,
        time: message.time,
    };
    recorded(facts, event_type, Aggregate::of_source(key_of(message)), data, place(message).into())
}

/// Returns whether an event is a substitute for an unreadable message.
pub(super) fn is_unreadable(number: u64) -> bool {
    number >= UNREADABLE_FROM
}

/// Returns the key of a message as text. Other producers may use any key; a key that is not a valid aggregate id is replaced by its
/// digest.
pub(super) fn key_of(message: &Message) -> ByteString {
    let Some(key) = &message.key else { return ByteString::new() };
    match ByteString::try_from(key.clone()) {
        Ok(text) if text.len() <= limits::ID_BYTES_MAX && !text.contains(char::is_control) => text,
        _ => format!("{:032x}", digest(key)).into(),
    }
}

/// Returns the size of a message in memory.
pub(super) fn bytes_of(message: &Message) -> usize {
    match &message.content {
        Content::Event(event) => event.data.as_bytes().len(),
        Content::Encoded { headers, body } => {
            body.len() + headers.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>()
        }
    }
}

/// Returns the partition and the offset in the headers of a letter.
pub(super) fn place_in(header: &annals_core::bson::Document) -> Option<(u32, u64)> {
    let number = |name: &str| header.get_str(name).ok()?.parse::<u64>().ok();
    Some((u32::try_from(number(PARTITION)?).ok()?, number(OFFSET)?))
}

fn place(message: &Message) -> [(ByteString, ByteString); 2] {
    [(PARTITION.into(), message.at.partition.to_string().into()), (OFFSET.into(), message.offset.to_string().into())]
}

struct Facts {
    id: Uuid,
    number: u64,
    version: u64,
    time: Timestamp,
}

fn recorded(
    facts: Facts,
    event_type: &str,
    aggregate: Aggregate,
    data: Data,
    header: Vec<(ByteString, ByteString)>,
) -> RecordedEvent {
    let commit = CommitInfo {
        commit_id: Uuid::nil(),
        request_id: None,
        aggregate,
        version: facts.version,
        time: facts.time,
        tenant_id: DEFAULT_TENANT_ID.into(),
        owner_id: ByteString::new(),
        space_id: ByteString::new(),
        command_id: None,
        correlation_id: None,
        causation_id: None,
        header,
        transaction: None,
        received: None,
    };
    RecordedEvent {
        sequence_number: facts.number,
        ordinal: 0,
        id: facts.id,
        event_type: event_type.into(),
        generation: 1,
        data,
        tags: Vec::new(),
        public: false,
        metadata: None,
        time: facts.time,
        commit: Arc::new(commit),
    }
}

/// Returns 128 bits that identify a place on a broker, the same in every process.
fn fingerprint(at: &TopicPartition, offset: u64) -> u128 {
    digest(&[&at.topic.as_bytes()[..], &at.partition.to_be_bytes(), &offset.to_be_bytes()].concat())
}

/// Computes the FNV-1a hash of some bytes, in 128 bits.
fn digest(bytes: &[u8]) -> u128 {
    bytes.iter().fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d, |hash: u128, byte| {
        (hash ^ u128::from(*byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(key: &[u8], headers: &[(&str, &str)], body: &str) -> Message {
        let headers = headers.iter().map(|(name, value)| ((*name).into(), value.as_bytes().to_vec().into())).collect();
        Message {
            at: TopicPartition { topic: "a.placed".into(), partition: 2 },
            offset: 7,
            key: Some(key.to_vec().into()),
            time: Timestamp::from_millis(1_772_366_400_007),
            content: Content::Encoded { headers, body: body.as_bytes().to_vec().into() },
        }
    }

    fn of_relay() -> Message {
        let headers = [
            ("event_id", "0190b5d0-0000-7000-8000-000000000001"),
            ("event_type", "placed"),
            ("generation", "3"),
            ("sequence_number", "41"),
            ("aggregate_name", "order"),
            ("aggregate_id", "o-1"),
            ("version", "5"),
            ("time", "2026-03-01T12:00:00.007Z"),
            ("correlation_id", "c-1"),
            ("$odd.name", "left out"),
        ];
        message(b"o-1", &headers, r#"{"n": 1}"#)
    }

    #[test]
    fn an_event_of_the_relay_is_read_with_what_its_message_carries_and_its_place() {
        let event = read(&of_relay(), "placed").expect("a message of the relay");
        assert_eq!((event.sequence_number, event.generation, event.commit.version), (41, 3, 5));
        assert_eq!(event.commit.aggregate, Aggregate::new("order", "o-1"));
        assert_eq!(event.commit.correlation_id.as_deref(), Some("c-1"));
        let header = &event.commit.header;
        assert!(header.iter().all(|(name, _)| !name.starts_with('$')), "{header:?}");
        let stored = header.iter().map(|(name, value)| (name.to_string(), (&**value).into())).collect();
        assert_eq!(place_in(&stored), Some((2, 7)));
    }

    #[test]
    fn what_is_no_event_of_its_topic_is_refused_with_the_reason_and_shown_to_a_person() {
        assert!(read(&of_relay(), "paid").expect_err("another type").contains("\"placed\""));
        let foreign = message(b"\xff\x00", &[("content-type", "text/plain")], "hello");
        read(&foreign, "placed").expect_err("no event");
        let shown = unreadable(&foreign, "placed");
        assert!(is_unreadable(shown.sequence_number) && !is_unreadable(41));
        assert!(shown.sequence_number <= i64::MAX as u64, "it is stored as a signed number");
        let data: serde_json::Value = shown.data.decode().expect("JSON");
        assert_eq!((&data["partition"], &data["offset"], &data["body"]), (&2.into(), &7.into(), &"hello".into()));
        let same = unreadable(&foreign, "placed");
        assert_eq!((same.id, same.sequence_number), (shown.id, shown.sequence_number), "found again after a restart");
        let other = unreadable(&Message { offset: 8, ..foreign }, "placed");
        assert_ne!((other.id, other.sequence_number), (shown.id, shown.sequence_number));
    }

    #[test]
    fn a_key_that_is_no_id_is_named_by_its_digest() {
        assert_eq!(&*key_of(&message(b"o-1", &[], "")), "o-1");
        let long = vec![b'k'; 300];
        for key in [&b"\xff\x00"[..], b"a\nb", &long] {
            let named = key_of(&message(key, &[], ""));
            assert!(named.len() == 32 && named.chars().all(|c| c.is_ascii_hexdigit()), "{named}");
        }
        assert_eq!(&*key_of(&Message { key: None, ..message(b"", &[], "") }), "");
    }
}
