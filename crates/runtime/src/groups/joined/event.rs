//! A message of a broker as an event.

use std::sync::Arc;

use annals_core::relay::RelayedEvent;
use annals_core::{
    Aggregate, ByteString, CommitInfo, Content, DEFAULT_TENANT_ID, Data, Message, RecordedEvent, Timestamp,
    TopicPartition, Uuid,
};
use serde_json::json;

/// Where the message of an event is, among the headers that its consumer and its dead letter see.
const PARTITION: &str = "broker-partition";
const OFFSET: &str = "broker-offset";
/// Most text of an unreadable message that its dead letter shows. The message itself is on the topic.
const SHOWN_BYTES: usize = 8 * 1024;
/// Numbers of unreadable messages begin here, far above every number of a log.
const UNREADABLE_FROM: u64 = 1 << 62;

/// Reads the event of a message, which must be of the type that its topic carries.
///
/// What a message does not carry is empty: the commit id, the request id and the tags.
pub(super) fn read(message: &Message, event_type: &str) -> Result<RecordedEvent, String> {
    let (headers, body) = match &message.content {
        Content::Event(event) => return Ok((**event).clone()),
        Content::Encoded { headers, body } => (headers, body),
    };
    let event = RelayedEvent::read(headers, body)?;
    if &*event.event_type != event_type {
        return Err(format!("it is an event of type {:?}, and its topic carries {event_type:?}", &*event.event_type));
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

/// What stands for a message that cannot be read: its place, and as much of it as a person needs to recognise it.
pub(super) fn unreadable(message: &Message, event_type: &str) -> RecordedEvent {
    let text = |bytes: &[u8]| String::from_utf8_lossy(&bytes[..bytes.len().min(SHOWN_BYTES)]).into_owned();
    let (headers, body) = match &message.content {
        Content::Event(_) => (Vec::new(), String::new()),
        Content::Encoded { headers, body } => {
            let shown = headers.iter().take(50).map(|(name, value)| json!([&**name, text(&value[..value.len().min(200)])]));
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

/// Whether an event stands for a message that could not be read.
pub(super) fn is_unreadable(number: u64) -> bool {
    number >= UNREADABLE_FROM
}

/// The key of a message as text.
pub(super) fn key_of(message: &Message) -> ByteString {
    let Some(key) = &message.key else { return ByteString::new() };
    match ByteString::try_from(key.clone()) {
        Ok(text) => text,
        Err(_) => key.iter().map(|byte| format!("{byte:02x}")).collect::<String>().into(),
    }
}

/// The size of a message in memory.
pub(super) fn bytes_of(message: &Message) -> usize {
    match &message.content {
        Content::Event(event) => event.data.as_bytes().len(),
        Content::Encoded { headers, body } => {
            body.len() + headers.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>()
        }
    }
}

/// The partition and the offset that a header names.
pub(super) fn place_in(header: &annals_core::bson::Document) -> Option<(u32, u64)> {
    let number = |name: &str| header.get_str(name).ok()?.parse::<u64>().ok();
    Some((u32::try_from(number(PARTITION)?).ok()?, number(OFFSET)?))
}

fn place(message: &Message) -> [(ByteString, ByteString); 2] {
    [
        (PARTITION.into(), message.at.partition.to_string().into()),
        (OFFSET.into(), message.offset.to_string().into()),
    ]
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

/// Names a place on a broker by 128 bits, the same in every process: FNV-1a.
fn fingerprint(at: &TopicPartition, offset: u64) -> u128 {
    let bytes = [&at.topic.as_bytes()[..], &at.partition.to_be_bytes(), &offset.to_be_bytes()].concat();
    bytes.iter().fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d, |hash: u128, byte| {
        (hash ^ u128::from(*byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b)
    })
}
