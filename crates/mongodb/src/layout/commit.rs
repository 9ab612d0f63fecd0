//! A commit as one document of `{aggregate}_event_stream`, as Wow's Mongo extension has it: every field, in its order.
//!
//! ```text
//! _id, contextName, aggregateName, header{}, aggregateId, tenantId, ownerId, spaceId, commandId, requestId, version int32,
//! body[{id, name, revision, bodyType, body{}, (tags), (public), (metadata{})}], createTime int64, (annals{}), size int32
//! ```
//!
//! Wow's reader ignores unknown fields, so what its layout lacks is stored in `body[i].tags`, `body[i].public`, `body[i].metadata` and one
//! sub-document `annals`, each written only if it has content.

use annals_core::{ExpectedVersion, KeyChanges, NewCommit, NewEvent, Timestamp};
use uuid::Uuid;

use super::writer::Writer;

/// The values that the store assigns to a commit.
pub(crate) struct Given<'a> {
    pub(crate) commit_id: &'a str,
    pub(crate) request_id: &'a str,
    pub(crate) context: &'a str,
    pub(crate) version: i32,
    pub(crate) event_ids: &'a [Uuid],
    /// The time of acceptance, for events without a time of their own.
    pub(crate) now: Timestamp,
}

/// The names of the fields of `annals`.
pub(crate) mod ours {
    pub(crate) const ROOT: &str = "annals";
    /// True if the commit had no expected version: its events are then not counted in versions that count events.
    pub(crate) const ANY: &str = "any";
    /// The command id, if it equals the request id; `commandId` alone would read as no command.
    pub(crate) const COMMAND: &str = "commandId";
    pub(crate) const CORRELATION: &str = "correlationId";
    pub(crate) const CAUSATION: &str = "causationId";
    /// The times of all events, if they differ from `createTime`.
    pub(crate) const TIMES: &str = "times";
    /// The prepare keys that the commit released and reserved, as `{name, key, (value), (ttlAt)}`.
    pub(crate) const RELEASE: &str = "release";
    pub(crate) const RESERVE: &str = "reserve";
}

/// Bytes of the document apart from the events' data: an upper estimate for most commits, so that there is a single allocation.
const AROUND_BYTES: usize = 640;
const AROUND_EVENT_BYTES: usize = 160;

pub(crate) fn write(commit: &NewCommit, given: &Given<'_>) -> Vec<u8> {
    let data: usize = commit.events.iter().map(bytes_of).sum();
    let mut out = Writer::with_capacity(AROUND_BYTES + data);
    let or = |value: &Option<annals_core::ByteString>, default: &str| value.as_deref().unwrap_or(default).to_owned();
    out.text("_id", given.commit_id);
    out.text("contextName", given.context);
    out.text("aggregateName", &commit.aggregate.name);
    out.document("header", |header| commit.header.iter().for_each(|(key, value)| header.text(key, value)));
    out.text("aggregateId", &commit.aggregate.id);
    out.text("tenantId", &or(&commit.tenant_id, annals_core::DEFAULT_TENANT_ID));
    out.text("ownerId", &or(&commit.owner_id, ""));
    out.text("spaceId", &or(&commit.space_id, ""));
    out.text("commandId", &or(&commit.command_id, given.request_id));
    out.text("requestId", given.request_id);
    out.int32("version", given.version);
    out.array("body", |body| write_events(body, commit, given.event_ids));
    out.int64("createTime", time_of(commit, 0, given.now));
    write_ours(&mut out, commit, given);
    out.int32("size", commit.events.len() as i32);
    out.finish()
}

fn bytes_of(event: &NewEvent) -> usize {
    let metadata = event.metadata.as_ref().map_or(0, |metadata| metadata.data().as_bytes().len());
    event.data.as_bytes().len() + metadata + AROUND_EVENT_BYTES
}

fn write_events(body: &mut Writer, commit: &NewCommit, ids: &[Uuid]) {
    let mut buffer = Uuid::encode_buffer();
    for (place, (event, id)) in commit.events.iter().zip(ids).enumerate() {
        body.document(&place.to_string(), |one| {
            one.text("id", id.hyphenated().encode_lower(&mut buffer));
            one.text("name", &event.event_type);
            one.text("revision", &format!("{}.0.0", event.generation));
            one.text("bodyType", &event.event_type);
            one.whole("body", event.data.as_bytes());
            if !event.tags.is_empty() {
                one.texts("tags", event.tags.iter().map(|tag| &**tag));
            }
            if event.public {
                one.boolean("public", true);
            }
            if let Some(metadata) = &event.metadata {
                one.whole("metadata", metadata.data().as_bytes());
            }
        });
    }
}

fn time_of(commit: &NewCommit, place: usize, now: Timestamp) -> i64 {
    commit.events.get(place).and_then(|event| event.time).unwrap_or(now).as_millis()
}

fn write_ours(out: &mut Writer, commit: &NewCommit, given: &Given<'_>) {
    let any = commit.expected_version == ExpectedVersion::Any;
    let command = commit.command_id.as_deref().filter(|command| *command == given.request_id);
    let first = time_of(commit, 0, given.now);
    let times = (0..commit.events.len()).any(|place| time_of(commit, place, given.now) != first);
    let ids = [
        (ours::COMMAND, command),
        (ours::CORRELATION, commit.correlation_id.as_deref()),
        (ours::CAUSATION, commit.causation_id.as_deref()),
    ];
    if !any && !times && commit.keys.is_empty() && ids.iter().all(|(_, id)| id.is_none()) {
        return;
    }
    out.document(ours::ROOT, |annals| {
        if any {
            annals.boolean(ours::ANY, true);
        }
        for (key, id) in ids {
            id.into_iter().for_each(|id| annals.text(key, id));
        }
        if times {
            annals.array(ours::TIMES, |array| {
                for place in 0..commit.events.len() {
                    array.int64(&place.to_string(), time_of(commit, place, given.now));
                }
            });
        }
        write_keys(annals, &commit.keys);
    });
}

fn write_keys(annals: &mut Writer, keys: &KeyChanges) {
    if !keys.release.is_empty() {
        annals.array(ours::RELEASE, |array| {
            for (place, release) in keys.release.iter().enumerate() {
                array.document(&place.to_string(), |one| {
                    one.text("name", &release.name);
                    one.text("key", &release.key);
                    release.value.iter().for_each(|value| one.only("value", value.data().as_bytes()));
                });
            }
        });
    }
    if !keys.reserve.is_empty() {
        annals.array(ours::RESERVE, |array| {
            for (place, reserve) in keys.reserve.iter().enumerate() {
                array.document(&place.to_string(), |one| {
                    one.text("name", &reserve.name);
                    one.text("key", &reserve.key);
                    one.only("value", reserve.value.data().as_bytes());
                    reserve.ttl_at.iter().for_each(|at| one.date("ttlAt", at.as_millis()));
                });
            }
        });
    }
}
