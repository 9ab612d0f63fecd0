//! Writes commits and their answers, with the fields of the JSON shapes in the same order.

use uuid::Uuid;

use crate::{AppendCondition, CommitOutcome, ExpectedVersion, KeyValue, NewCommit, NewEvent, Release, Reserve, Wait};

const STRING: u8 = 0x02;
pub(super) const DOCUMENT: u8 = 0x03;
pub(super) const ARRAY: u8 = 0x04;
const BINARY: u8 = 0x05;
const BOOLEAN: u8 = 0x08;
pub(super) const DATE: u8 = 0x09;
const INT64: u8 = 0x12;
/// The subtype of a UUID.
const UUID: u8 = 4;

/// Appends a commit to `out`. [`NewCommit::validate`] refuses a commit whose data exceeds the maximum size of BSON, not this function.
pub fn write_commit(commit: &NewCommit, out: &mut Vec<u8>) {
    let bytes: usize = commit.events.iter().map(|event| event.data.as_bytes().len() + 96).sum();
    out.reserve(256 + bytes);
    document(out, |out| {
        nested(out, DOCUMENT, "aggregate", |out| {
            string(out, "name", &commit.aggregate.name);
            string(out, "id", &commit.aggregate.id);
        });
        match commit.expected_version {
            ExpectedVersion::Any => {}
            // Clamped to int64. No aggregate has a greater version, so the expectation fails either way.
            ExpectedVersion::Exact(version) => {
                integer(out, "expected_version", i64::try_from(version).unwrap_or(i64::MAX))
            }
            ExpectedVersion::Empty => string(out, "expected_version", "empty"),
            ExpectedVersion::Exists => string(out, "expected_version", "exists"),
        }
        maybe(out, "request_id", commit.request_id.as_deref());
        maybe(out, "command_id", commit.command_id.as_deref());
        list(out, "events", &commit.events, |out, key, event| {
            nested(out, DOCUMENT, key, |out| write_event(event, out))
        });
        if !commit.header.is_empty() {
            nested(out, DOCUMENT, "header", |out| {
                for (key, value) in &commit.header {
                    string(out, key, value);
                }
            });
        }
        maybe(out, "tenant_id", commit.tenant_id.as_deref());
        maybe(out, "owner_id", commit.owner_id.as_deref());
        maybe(out, "space_id", commit.space_id.as_deref());
        maybe(out, "correlation_id", commit.correlation_id.as_deref());
        maybe(out, "causation_id", commit.causation_id.as_deref());
        if let Some(condition) = &commit.append_condition {
            nested(out, DOCUMENT, "append_condition", |out| write_condition(condition, out));
        }
        if !commit.keys.reserve.is_empty() {
            list(out, "reserve", &commit.keys.reserve, |out, key, reserve| {
                nested(out, DOCUMENT, key, |out| write_reserve(reserve, out));
            });
        }
        if !commit.keys.release.is_empty() {
            list(out, "release", &commit.keys.release, |out, key, release| {
                nested(out, DOCUMENT, key, |out| write_release(release, out));
            });
        }
        if commit.wait != Wait::default() {
            nested(out, DOCUMENT, "wait", |out| write_wait(&commit.wait, out));
        }
    });
}

fn write_wait(wait: &Wait, out: &mut Vec<u8>) {
    string(out, "for", wait.until.as_str());
    if let Some(time) = wait.at_most {
        integer(out, "timeout_ms", i64::try_from(time.as_millis()).unwrap_or(i64::MAX));
    }
}

fn write_condition(condition: &AppendCondition, out: &mut Vec<u8>) {
    list(out, "fail_if", &condition.fail_if, |out, key, pattern| {
        nested(out, DOCUMENT, key, |out| {
            list(out, "types", &pattern.types, |out, key, wanted| string(out, key, wanted));
            list(out, "tags", &pattern.tags, |out, key, tag| string(out, key, tag));
        });
    });
    if let Some(after) = condition.after {
        // Clamped to int64. No event has a greater number, so the condition finds nothing either way.
        integer(out, "after", i64::try_from(after).unwrap_or(i64::MAX));
    }
}

fn write_reserve(reserve: &Reserve, out: &mut Vec<u8>) {
    string(out, "name", &reserve.name);
    string(out, "key", &reserve.key);
    write_value(&reserve.value, out);
    if let Some(ttl_at) = reserve.ttl_at {
        begin(out, DATE, "ttl_at");
        out.extend_from_slice(&ttl_at.as_millis().to_le_bytes());
    }
}

fn write_release(release: &Release, out: &mut Vec<u8>) {
    string(out, "name", &release.name);
    string(out, "key", &release.key);
    if let Some(value) = &release.value {
        write_value(value, out);
    }
}

/// Writes the value: it is the only field of its document, and its element is copied unchanged.
fn write_value(value: &KeyValue, out: &mut Vec<u8>) {
    let document = value.data().as_bytes();
    out.extend_from_slice(&document[4..document.len() - 1]);
}

fn write_event(event: &NewEvent, out: &mut Vec<u8>) {
    string(out, "type", &event.event_type);
    begin(out, DOCUMENT, "data");
    out.extend_from_slice(event.data.as_bytes());
    if let Some(id) = event.id {
        uuid(out, "id", id);
    }
    if event.generation != 1 {
        integer(out, "generation", event.generation.into());
    }
    if !event.tags.is_empty() {
        list(out, "tags", &event.tags, |out, key, tag| string(out, key, tag));
    }
    if event.public {
        boolean(out, "public", true);
    }
    if let Some(metadata) = &event.metadata {
        begin(out, DOCUMENT, "metadata");
        out.extend_from_slice(metadata.data().as_bytes());
    }
    if let Some(time) = event.time {
        begin(out, DATE, "time");
        out.extend_from_slice(&time.as_millis().to_le_bytes());
    }
}

/// Appends the answer to a commit to `out`: the JSON shape, with ids as UUIDs.
pub fn write_outcome(outcome: &CommitOutcome, out: &mut Vec<u8>) {
    out.reserve(128 + 64 * outcome.event_ids.len());
    document(out, |out| {
        uuid(out, "commit_id", outcome.commit_id);
        integer(out, "version", outcome.version as i64);
        let events = (0..).zip(&outcome.event_ids);
        list(out, "events", events, |out, key, (place, id)| {
            nested(out, DOCUMENT, key, |out| {
                uuid(out, "id", *id);
                if let Some(first) = outcome.first_sequence_number {
                    integer(out, "sequence_number", (first + place) as i64);
                }
            });
        });
        boolean(out, "duplicate", outcome.duplicate);
        string(out, "reached", outcome.reached().as_str());
    });
}

/// Appends a refusal to `out`: a document with the single field `problem`, the problem document as JSON text.
pub fn write_refusal(problem: &str, out: &mut Vec<u8>) {
    document(out, |out| string(out, "problem", problem));
}

pub(super) fn document(out: &mut Vec<u8>, fields: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    fields(out);
    out.push(0);
    let length = (out.len() - start) as i32;
    out[start..start + 4].copy_from_slice(&length.to_le_bytes());
}

pub(super) fn begin(out: &mut Vec<u8>, bson_type: u8, key: &str) {
    out.push(bson_type);
    out.extend_from_slice(key.as_bytes());
    out.push(0);
}

pub(super) fn nested(out: &mut Vec<u8>, bson_type: u8, key: &str, fields: impl FnOnce(&mut Vec<u8>)) {
    begin(out, bson_type, key);
    document(out, fields);
}

fn list<T>(out: &mut Vec<u8>, key: &str, values: impl IntoIterator<Item = T>, write: impl Fn(&mut Vec<u8>, &str, T)) {
    const FEW: [&str; 10] = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"];
    nested(out, ARRAY, key, |out| {
        for (place, value) in values.into_iter().enumerate() {
            match FEW.get(place) {
                Some(key) => write(out, key, value),
                None => write(out, &place.to_string(), value),
            }
        }
    });
}

pub(super) fn string(out: &mut Vec<u8>, key: &str, value: &str) {
    begin(out, STRING, key);
    out.extend_from_slice(&(value.len() as i32 + 1).to_le_bytes());
    out.extend_from_slice(value.as_bytes());
    out.push(0);
}

pub(super) fn maybe(out: &mut Vec<u8>, key: &str, value: Option<&str>) {
    if let Some(value) = value {
        string(out, key, value);
    }
}

pub(super) fn integer(out: &mut Vec<u8>, key: &str, value: i64) {
    begin(out, INT64, key);
    out.extend_from_slice(&value.to_le_bytes());
}

pub(super) fn boolean(out: &mut Vec<u8>, key: &str, value: bool) {
    begin(out, BOOLEAN, key);
    out.push(u8::from(value));
}

pub(super) fn uuid(out: &mut Vec<u8>, key: &str, value: Uuid) {
    begin(out, BINARY, key);
    out.extend_from_slice(&16i32.to_le_bytes());
    out.push(UUID);
    out.extend_from_slice(value.as_bytes());
}
