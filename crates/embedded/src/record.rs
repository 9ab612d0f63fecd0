//! The payload of a frame: one commit.
//!
//! The caller encodes it before queuing, so that the log writer only adds a header. Sequence numbers and the version are in the frame's
//! header. Ids that the store generated are not stored individually: an event's id is its commit's id plus its ordinal plus one.
//!
//! ```text
//! payload   flags · commit id (16) · digest (16) · time · aggregate name · aggregate id · request id? · tenant? · owner? · space? ·
//!           command? · correlation? · causation? · header? · received? · (place · count)? · transaction id (16)? ·
//!           changes of prepare keys? · number of events · event …
//! received  producer · tenant · stream · partition · sequence number · position · consent (16) · time
//! event     flags (1) · type · time? · id (16)? · generation? · tags? · metadata? · data
//! ```
//!
//! Numbers have variable length; texts, documents and lists are preceded by their length. A part marked `?` is present if its flag is
//! set. A commit at place 0 has the transaction's id as its own. A later commit in a store that an early 0.1.0 wrote lacks that id, which
//! is then read from the commit at place 0.
//!
//! An event received over the event horizon has no aggregate, and neither a version nor a request id of its own. Those in the frame's
//! header and in the index are the subscription's ([`Record::filed_under`]).

mod decode;
mod own;

use std::borrow::Cow;
use std::sync::Arc;

use annals_core::{
    Aggregate, ByteString, DEFAULT_TENANT_ID, EventsHash, ExpectedVersion, KeyChanges, Metadata, NewCommit, NewEvent,
    ReceivedFrom, RecordedCommit, Release, Reserve, SequenceNumber, Subscription, Timestamp, TransactionPlace, Uuid,
    Version,
};

use crate::varint::{put, put_bytes, put_signed};

pub(crate) use self::decode::{decode_keys, unknown_origin, visit};
pub(crate) use self::own::{Owner, decode};

pub(crate) const REQUEST_IS_COMMIT_ID: u64 = 1;
pub(crate) const REQUEST_IS_UUID: u64 = 1 << 1;
pub(crate) const HAS_TENANT: u64 = 1 << 2;
pub(crate) const HAS_OWNER: u64 = 1 << 3;
pub(crate) const HAS_SPACE: u64 = 1 << 4;
pub(crate) const HAS_COMMAND: u64 = 1 << 5;
pub(crate) const HAS_CORRELATION: u64 = 1 << 6;
pub(crate) const HAS_CAUSATION: u64 = 1 << 7;
pub(crate) const HAS_HEADER: u64 = 1 << 8;
/// The commit named an expected version other than `any`. Recorded because other layouts store it.
const NAMED_VERSION: u64 = 1 << 9;
/// The commit is part of a transaction.
pub(crate) const IN_TRANSACTION: u64 = 1 << 10;
/// The commit changes prepare keys.
pub(crate) const HAS_KEYS: u64 = 1 << 11;
/// The id of the commit's transaction is stored.
pub(crate) const HAS_TRANSACTION: u64 = 1 << 12;
/// The commit was received over the event horizon.
pub(crate) const HAS_RECEIVED: u64 = 1 << 13;
pub(crate) const KNOWN_FLAGS: u64 = (1 << 14) - 1;

const PUBLIC: u8 = 1;
pub(crate) const HAS_TIME: u8 = 1 << 1;
pub(crate) const HAS_ID: u8 = 1 << 2;
pub(crate) const HAS_GENERATION: u8 = 1 << 3;
pub(crate) const HAS_TAGS: u8 = 1 << 4;
pub(crate) const HAS_METADATA: u8 = 1 << 5;
pub(crate) const KNOWN_EVENT_FLAGS: u8 = (1 << 6) - 1;

pub(crate) use annals_core::event_uuid as derived_event_id;

/// What the store adds to a commit before its place in the log is known.
pub(crate) struct Stamp {
    pub(crate) commit_id: Uuid,
    /// The digest of its content, which distinguishes a repeat from a reused request id. In the first commit of a transaction, the digest
    /// of the whole transaction.
    pub(crate) digest: u128,
    /// When it was accepted. This is the time of those of its events that have none of their own.
    pub(crate) now: Timestamp,
    pub(crate) transaction: Option<TransactionPlace>,
    pub(crate) received: Option<Arc<ReceivedFrom>>,
}

/// Encodes a valid commit, or a commit without aggregate and events that only changes prepare keys.
pub(crate) fn encode(commit: &NewCommit, stamp: &Stamp) -> Vec<u8> {
    let Stamp { commit_id, digest, now, transaction, ref received } = *stamp;
    let time = commit.events.first().and_then(|event| event.time).unwrap_or(now);
    let data: usize = commit.events.iter().map(|event| event.data.as_bytes().len() + 64).sum();
    let mut out = Vec::with_capacity(data + 192);
    let request_uuid = commit.request_id.as_deref().and_then(canonical_uuid);
    let in_transaction = match transaction {
        None => 0,
        Some(TransactionPlace { place: 0, .. }) => IN_TRANSACTION,
        Some(_) => IN_TRANSACTION | HAS_TRANSACTION,
    };
    let was_received = if received.is_some() { HAS_RECEIVED } else { 0 };
    put(&mut out, flags(commit, request_uuid.is_some()) | in_transaction | was_received);
    out.extend_from_slice(commit_id.as_bytes());
    out.extend_from_slice(&digest.to_le_bytes());
    put_signed(&mut out, time.as_millis());
    put_bytes(&mut out, commit.aggregate.name.as_bytes());
    put_bytes(&mut out, commit.aggregate.id.as_bytes());
    match (&commit.request_id, request_uuid) {
        (_, Some(uuid)) => out.extend_from_slice(uuid.as_bytes()),
        (Some(text), None) => put_bytes(&mut out, text.as_bytes()),
        (None, None) => {}
    }
    for text in [
        non_default_tenant(commit),
        non_empty(&commit.owner_id),
        non_empty(&commit.space_id),
        commit.command_id.as_ref(),
        commit.correlation_id.as_ref(),
        commit.causation_id.as_ref(),
    ] {
        text.iter().for_each(|text| put_bytes(&mut out, text.as_bytes()));
    }
    if !commit.header.is_empty() {
        put(&mut out, commit.header.len() as u64);
        for (key, value) in &commit.header {
            put_bytes(&mut out, key.as_bytes());
            put_bytes(&mut out, value.as_bytes());
        }
    }
    if let Some(from) = received {
        encode_received(&mut out, from);
    }
    if let Some(TransactionPlace { id, place, count }) = transaction {
        put(&mut out, u64::from(place));
        put(&mut out, u64::from(count));
        if place > 0 {
            out.extend_from_slice(id.as_bytes());
        }
    }
    if !commit.keys.is_empty() {
        encode_keys(&mut out, &commit.keys);
    }
    put(&mut out, commit.events.len() as u64);
    commit.events.iter().for_each(|event| encode_event(&mut out, event, time, now));
    out
}

fn encode_received(out: &mut Vec<u8>, from: &ReceivedFrom) {
    let Subscription { producer, tenant, stream, partition } = &from.subscription;
    [producer, tenant, stream, partition].iter().for_each(|part| put_bytes(out, part.as_bytes()));
    put(out, from.sequence_number);
    put(out, from.position);
    out.extend_from_slice(from.consent.as_bytes());
    put_signed(out, from.at.as_millis());
}

/// The name of the aggregates under which received events are filed. It is not a valid name, so nothing can be committed to them.
pub(crate) const RECEIVED: &str = "received:";

/// Returns the aggregate under which the events of a subscription are filed. The parts contain no control characters.
pub(crate) fn aggregate_of(subscription: &Subscription) -> Aggregate {
    let Subscription { producer, tenant, stream, partition } = subscription;
    Aggregate::new(
        ByteString::from_static(RECEIVED),
        format!("{producer}\u{1f}{tenant}\u{1f}{stream}\u{1f}{partition}"),
    )
}

fn flags(commit: &NewCommit, request_is_uuid: bool) -> u64 {
    let flag = |set: bool, flag: u64| if set { flag } else { 0 };
    flag(commit.request_id.is_none(), REQUEST_IS_COMMIT_ID)
        | flag(request_is_uuid, REQUEST_IS_UUID)
        | flag(non_default_tenant(commit).is_some(), HAS_TENANT)
        | flag(non_empty(&commit.owner_id).is_some(), HAS_OWNER)
        | flag(non_empty(&commit.space_id).is_some(), HAS_SPACE)
        | flag(commit.command_id.is_some(), HAS_COMMAND)
        | flag(commit.correlation_id.is_some(), HAS_CORRELATION)
        | flag(commit.causation_id.is_some(), HAS_CAUSATION)
        | flag(!commit.header.is_empty(), HAS_HEADER)
        | flag(!commit.keys.is_empty(), HAS_KEYS)
        | flag(commit.expected_version != ExpectedVersion::Any, NAMED_VERSION)
}

fn encode_keys(out: &mut Vec<u8>, keys: &KeyChanges) {
    put(out, keys.release.len() as u64);
    for Release { name, key, value } in &keys.release {
        put_bytes(out, name.as_bytes());
        put_bytes(out, key.as_bytes());
        out.push(u8::from(value.is_some()));
        value.iter().for_each(|value| put_bytes(out, value.data().as_bytes()));
    }
    put(out, keys.reserve.len() as u64);
    for Reserve { name, key, value, ttl_at } in &keys.reserve {
        put_bytes(out, name.as_bytes());
        put_bytes(out, key.as_bytes());
        put_bytes(out, value.data().as_bytes());
        out.push(u8::from(ttl_at.is_some()));
        ttl_at.iter().for_each(|ttl_at| put_signed(out, ttl_at.as_millis()));
    }
}

/// Parses the canonical text of a UUID, so that 16 bytes can be stored instead of 36.
fn canonical_uuid(text: &str) -> Option<Uuid> {
    let uuid = (text.len() == 36).then(|| Uuid::try_parse(text).ok()).flatten()?;
    let mut buffer = Uuid::encode_buffer();
    (&*uuid.as_hyphenated().encode_lower(&mut buffer) == text).then_some(uuid)
}

fn non_default_tenant(commit: &NewCommit) -> Option<&ByteString> {
    commit.tenant_id.as_ref().filter(|tenant| **tenant != DEFAULT_TENANT_ID)
}

fn non_empty(text: &Option<ByteString>) -> Option<&ByteString> {
    text.as_ref().filter(|text| !text.is_empty())
}

fn encode_event(out: &mut Vec<u8>, event: &NewEvent, commit_time: Timestamp, now: Timestamp) {
    let time = Some(event.time.unwrap_or(now)).filter(|time| *time != commit_time);
    let flag = |set: bool, flag: u8| if set { flag } else { 0 };
    out.push(
        flag(event.public, PUBLIC)
            | flag(time.is_some(), HAS_TIME)
            | flag(event.id.is_some(), HAS_ID)
            | flag(event.generation != 1, HAS_GENERATION)
            | flag(!event.tags.is_empty(), HAS_TAGS)
            | flag(event.metadata.is_some(), HAS_METADATA),
    );
    put_bytes(out, event.event_type.as_bytes());
    if let Some(time) = time {
        put_signed(out, time.as_millis());
    }
    if let Some(id) = event.id {
        out.extend_from_slice(id.as_bytes());
    }
    if event.generation != 1 {
        put(out, u64::from(event.generation));
    }
    if !event.tags.is_empty() {
        put(out, event.tags.len() as u64);
        event.tags.iter().for_each(|tag| put_bytes(out, tag.as_bytes()));
    }
    if let Some(metadata) = event.metadata.as_ref().map(Metadata::data) {
        put_bytes(out, metadata.as_bytes());
    }
    put_bytes(out, event.data.as_bytes());
}

/// A decoded payload. One without events has no aggregate and only changes prepare keys.
pub(crate) struct Record {
    /// The sequence number of its first event, or the next one if it has no events.
    pub(crate) first: SequenceNumber,
    /// From the frame's header: the version of the aggregate under which it is filed.
    pub(crate) version: Version,
    pub(crate) commit: RecordedCommit,
    /// As in [`Stamp`].
    pub(crate) digest: u128,
    pub(crate) keys: KeyChanges,
}

/// Returns whether a commit continues the transaction that starts with `first` and of which `begun` commits have been read, or stands
/// alone if none has begun. Ids that were not looked up are nil.
pub(crate) fn goes_on(first: Option<&Record>, begun: usize, record: &Record) -> bool {
    match (first.map(Record::transaction), record.transaction()) {
        (None, place) => place.is_none_or(|it| it.place == 0),
        (Some(first), Some(it)) => {
            let same = |first: TransactionPlace| first.count == it.count && (it.id == first.id || it.id.is_nil());
            it.place as usize == begun && first.is_some_and(same)
        }
        (Some(_), None) => false,
    }
}

impl Record {
    /// Returns the aggregate whose versions and request ids include this commit: its own, or the one that represents its subscription.
    pub(crate) fn filed_under(&self) -> Cow<'_, Aggregate> {
        match &self.commit.info.received {
            None => Cow::Borrowed(&self.commit.info.aggregate),
            Some(from) => Cow::Owned(aggregate_of(&from.subscription)),
        }
    }

    /// Returns the request id under which it is filed there.
    pub(crate) fn request(&self) -> Cow<'_, str> {
        match &self.commit.info.received {
            None => Cow::Borrowed(self.commit.info.request_id.as_deref().unwrap_or_default()),
            Some(from) => Cow::Owned(from.sequence_number.to_string()),
        }
    }

    /// Returns its place in a transaction.
    pub(crate) fn transaction(&self) -> Option<TransactionPlace> {
        self.commit.info.transaction
    }

    /// Returns whether it is a commit, rather than only a change of prepare keys.
    pub(crate) fn is_commit(&self) -> bool {
        !self.commit.events.is_empty()
    }

    /// Returns the sequence number after its last event.
    pub(crate) fn next(&self) -> SequenceNumber {
        self.first + self.commit.events.len() as u64
    }

    /// Adds the commit to a log's events' hash.
    pub(crate) fn add_to(&self, hash: &mut EventsHash) {
        if !self.is_commit() {
            return;
        }
        hash.add_commit(&self.commit.events, &self.keys);
    }
}

#[cfg(test)]
mod tests;
