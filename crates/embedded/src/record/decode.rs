//! Decodes payloads in place: what is lent borrows from the payload.

use std::ops::ControlFlow;
use std::sync::Arc;

use annals_core::bson::raw::RawDocument;
use annals_core::{
    ByteString, CommitRef, DEFAULT_TENANT_ID, Data, EventRef, KeyChanges, KeyValue, ReceivedFrom, Release, Reserve,
    Subscription, Timestamp, TransactionPlace, Uuid,
};
use bytes::Bytes;

use super::{
    HAS_CAUSATION, HAS_COMMAND, HAS_CORRELATION, HAS_GENERATION, HAS_HEADER, HAS_ID, HAS_KEYS, HAS_METADATA, HAS_OWNER,
    HAS_RECEIVED, HAS_SPACE, HAS_TAGS, HAS_TENANT, HAS_TIME, HAS_TRANSACTION, IN_TRANSACTION, KNOWN_EVENT_FLAGS,
    KNOWN_FLAGS, PUBLIC, REQUEST_IS_COMMIT_ID, REQUEST_IS_UUID, derived_event_id,
};
use crate::varint::Cursor;

/// The length of a UUID's canonical text.
const UUID_TEXT: usize = 36;

/// Finds the transaction id of the commit at this place, which is at least 1, if its payload lacks that id; `None` if it cannot be found.
pub(crate) type Origin<'a> = dyn Fn(u32) -> Option<Uuid> + 'a;

/// Used by readers that process a segment frame by frame and do not need the id.
pub(crate) fn unknown_origin(_: u32) -> Option<Uuid> {
    Some(Uuid::nil())
}

/// The part of a payload before its events.
pub(super) struct Head<'a> {
    pub(super) digest: u128,
    pub(super) keys: KeyChanges,
    pub(super) commit: CommitRef<'a>,
    pub(super) events: u32,
}

/// Storage for the parts of a head that the payload does not hold in the form in which they are lent.
pub(super) struct Room<'p> {
    request_id: [u8; UUID_TEXT],
    header: Vec<(&'p str, &'p str)>,
    received: Option<Arc<ReceivedFrom>>,
}

impl Room<'_> {
    pub(super) fn new() -> Self {
        Self { request_id: [0; UUID_TEXT], header: Vec::new(), received: None }
    }
}

/// Decodes a payload whose checksum is valid, and lends each event to `take` until it breaks. Returns `None` if the payload is not a
/// commit.
pub(crate) fn visit(
    payload: &[u8],
    sequence_number: u64,
    version: u64,
    origin: &Origin<'_>,
    take: impl FnMut(EventRef<'_>) -> ControlFlow<()>,
) -> Option<ControlFlow<()>> {
    let mut cursor = Cursor(payload);
    let mut room = Room::new();
    let head = decode_head(&mut cursor, version, origin, &mut room)?;
    visit_events(cursor, &head, sequence_number, take)
}

pub(super) fn decode_head<'p: 'a, 'a>(
    cursor: &mut Cursor<'p>,
    version: u64,
    origin: &Origin<'_>,
    room: &'a mut Room<'p>,
) -> Option<Head<'a>> {
    let flags = cursor.number()?;
    if flags & !KNOWN_FLAGS != 0 {
        return None;
    }
    let commit_id = Uuid::from_bytes(cursor.fixed()?);
    let digest = u128::from_le_bytes(cursor.fixed()?);
    let mut commit = decode_commit(cursor, flags, commit_id, version, room)?;
    if flags & IN_TRANSACTION != 0 {
        commit.transaction = Some(decode_place(cursor, flags, commit_id, origin)?);
    } else if flags & HAS_TRANSACTION != 0 {
        return None;
    }
    let keys = if flags & HAS_KEYS != 0 { decode_keys(cursor)? } else { KeyChanges::default() };
    let events = u32::try_from(cursor.number()?).ok()?;
    // A frame without events changes keys and has no aggregate.
    let whole = if events == 0 { !keys.is_empty() && commit.aggregate_name.is_empty() } else { true };
    if !whole {
        return None;
    }
    Some(Head { digest, keys, commit, events })
}

fn decode_commit<'p: 'a, 'a>(
    cursor: &mut Cursor<'p>,
    flags: u64,
    commit_id: Uuid,
    version: u64,
    room: &'a mut Room<'p>,
) -> Option<CommitRef<'a>> {
    let time = Timestamp::from_millis(cursor.signed()?);
    let (aggregate_name, aggregate_id) = (cursor.text()?, cursor.text()?);
    let request_id: &str = if flags & REQUEST_IS_COMMIT_ID != 0 {
        commit_id.hyphenated().encode_lower(&mut room.request_id)
    } else if flags & REQUEST_IS_UUID != 0 {
        Uuid::from_bytes(cursor.fixed()?).hyphenated().encode_lower(&mut room.request_id)
    } else {
        cursor.text()?
    };
    // The inner `None` means that the flag is clear, the outer one that the bytes end early.
    let mut optional =
        |flag: u64| -> Option<Option<&'p str>> { if flags & flag == 0 { Some(None) } else { cursor.text().map(Some) } };
    let tenant_id = optional(HAS_TENANT)?.unwrap_or(DEFAULT_TENANT_ID);
    let owner_id = optional(HAS_OWNER)?.unwrap_or_default();
    let space_id = optional(HAS_SPACE)?.unwrap_or_default();
    let command_id = optional(HAS_COMMAND)?;
    let correlation_id = optional(HAS_CORRELATION)?;
    let causation_id = optional(HAS_CAUSATION)?;
    if flags & HAS_HEADER != 0 {
        for _ in 0..cursor.number()? {
            room.header.push((cursor.text()?, cursor.text()?));
        }
    }
    let was_received = flags & HAS_RECEIVED != 0;
    if was_received {
        room.received = Some(decode_received(cursor)?);
    }
    Some(CommitRef {
        commit_id,
        request_id: Some(request_id).filter(|_| !was_received),
        aggregate_name,
        aggregate_id,
        version: if was_received { 0 } else { version },
        time,
        tenant_id,
        owner_id,
        space_id,
        command_id,
        correlation_id,
        causation_id,
        header: &room.header,
        transaction: None,
        received: room.received.as_ref(),
    })
}

/// Few frames have this part, so it is copied rather than lent.
fn decode_received(cursor: &mut Cursor<'_>) -> Option<Arc<ReceivedFrom>> {
    let subscription = Subscription {
        producer: cursor.text()?.into(),
        tenant: cursor.text()?.into(),
        stream: cursor.text()?.into(),
        partition: cursor.text()?.into(),
    };
    let (sequence_number, position) = (cursor.number()?, cursor.number()?);
    let consent = Uuid::from_bytes(cursor.fixed()?);
    let at = Timestamp::from_millis(cursor.signed()?);
    Some(Arc::new(ReceivedFrom { subscription, sequence_number, position, consent, at }))
}

fn decode_place(cursor: &mut Cursor<'_>, flags: u64, commit_id: Uuid, origin: &Origin<'_>) -> Option<TransactionPlace> {
    let place = u32::try_from(cursor.number()?).ok()?;
    let count = u32::try_from(cursor.number()?).ok()?;
    if place >= count || count < 2 {
        return None;
    }
    let id = match (flags & HAS_TRANSACTION != 0, place) {
        (true, 0) => return None,
        (true, _) => Uuid::from_bytes(cursor.fixed()?),
        (false, 0) => commit_id,
        (false, _) => origin(place)?,
    };
    Some(TransactionPlace { id, place, count })
}

/// Takes the changes of prepare keys from the front. There are few, so they are copied rather than lent.
pub(crate) fn decode_keys(cursor: &mut Cursor<'_>) -> Option<KeyChanges> {
    let mut keys = KeyChanges::default();
    for _ in 0..cursor.number()? {
        let (name, key): (ByteString, ByteString) = (cursor.text()?.into(), cursor.text()?.into());
        let value = if decode_flag(cursor)? { Some(decode_value(cursor)?) } else { None };
        keys.release.push(Release { name, key, value });
    }
    for _ in 0..cursor.number()? {
        let (name, key): (ByteString, ByteString) = (cursor.text()?.into(), cursor.text()?.into());
        let value = decode_value(cursor)?;
        let ttl_at = if decode_flag(cursor)? { Some(Timestamp::from_millis(cursor.signed()?)) } else { None };
        keys.reserve.push(Reserve { name, key, value, ttl_at });
    }
    Some(keys)
}

fn decode_flag(cursor: &mut Cursor<'_>) -> Option<bool> {
    match cursor.fixed()? {
        [0] => Some(false),
        [1] => Some(true),
        _ => None,
    }
}

fn decode_value(cursor: &mut Cursor<'_>) -> Option<KeyValue> {
    Data::from_stored(Bytes::copy_from_slice(cursor.bytes()?)).ok().map(KeyValue::from_data)
}

/// Lends the events that follow a head. The first one has sequence number `first`.
// Inlined because it is called once per commit, so that `take` becomes part of the loop.
#[inline(always)]
pub(super) fn visit_events(
    mut cursor: Cursor<'_>,
    head: &Head<'_>,
    first: u64,
    mut take: impl FnMut(EventRef<'_>) -> ControlFlow<()>,
) -> Option<ControlFlow<()>> {
    let commit = &head.commit;
    let mut tags = Vec::new();
    // The previous type: adjacent events often share it, and equal bytes need not be validated again.
    let mut event_type = "";
    for ordinal in 0..head.events {
        let sequence_number = first.checked_add(u64::from(ordinal))?;
        let [flags] = cursor.fixed()?;
        if flags & !KNOWN_EVENT_FLAGS != 0 {
            return None;
        }
        let type_bytes = cursor.bytes()?;
        if type_bytes != event_type.as_bytes() {
            event_type = std::str::from_utf8(type_bytes).ok()?;
        }
        let time = if flags & HAS_TIME != 0 { Timestamp::from_millis(cursor.signed()?) } else { commit.time };
        let id = match flags & HAS_ID {
            0 => derived_event_id(commit.commit_id, ordinal),
            _ => Uuid::from_bytes(cursor.fixed()?),
        };
        let generation = if flags & HAS_GENERATION != 0 { u32::try_from(cursor.number()?).ok()? } else { 1 };
        tags.clear();
        if flags & HAS_TAGS != 0 {
            for _ in 0..cursor.number()? {
                tags.push(cursor.text()?);
            }
        }
        let metadata = match flags & HAS_METADATA {
            0 => None,
            _ => Some(RawDocument::from_bytes(cursor.bytes()?).ok()?),
        };
        let data = RawDocument::from_bytes(cursor.bytes()?).ok()?;
        let public = flags & PUBLIC != 0;
        let tags = &tags[..];
        let event = EventRef {
            sequence_number,
            ordinal,
            id,
            event_type,
            generation,
            data,
            tags,
            public,
            metadata,
            time,
            commit,
        };
        if take(event).is_break() {
            return Some(ControlFlow::Break(()));
        }
    }
    cursor.0.is_empty().then_some(ControlFlow::Continue(()))
}
