//! Parses commits and their answers. Every refusal has the path of the value.

mod extras;

use bson::raw::{RawBsonRef, RawDocument};
use bson::spec::BinarySubtype;
use uuid::Uuid;

use crate::fields::{body, boolean, fields, integer, list, nested, text, unknown};
use crate::wire::reached_stage;
use crate::{Aggregate, Code, CommitOutcome, Data, ExpectedVersion, Invalid, Metadata, NewCommit, NewEvent, Timestamp};

/// Parses a commit. The rules of [`NewCommit::validate`] are not checked here.
///
/// # Errors
/// `invalid_body`, `invalid_data`, `invalid_metadata`, `invalid_id`, `invalid_time`, `invalid_version`, `invalid_header`, as for JSON.
pub fn read_commit(bytes: &[u8]) -> Result<NewCommit, Invalid> {
    let mut commit = NewCommit::new("", "");
    let (mut aggregate, mut events) = (false, false);
    fields(document(bytes)?, "", |key, path, value| {
        match key {
            "aggregate" => {
                aggregate = true;
                commit.aggregate = read_aggregate(nested(path, value)?)?;
            }
            "expected_version" => commit.expected_version = expected_version(path, value)?,
            "events" => {
                events = true;
                for (place, event) in list(path, value)?.into_iter().enumerate() {
                    commit.events.push(read_event(place, event.map_err(|error| body(path, error))?)?);
                }
            }
            "header" => {
                fields(nested(path, value)?, path, |key, path, value| {
                    let text =
                        value.as_str().ok_or_else(|| Invalid::new(Code::InvalidHeader, path, "is not a string"))?;
                    commit.header.push((key.into(), text.into()));
                    Ok(())
                })?;
            }
            "request_id" => commit.request_id = Some(text(path, value)?),
            "command_id" => commit.command_id = Some(text(path, value)?),
            "tenant_id" => commit.tenant_id = Some(text(path, value)?),
            "owner_id" => commit.owner_id = Some(text(path, value)?),
            "space_id" => commit.space_id = Some(text(path, value)?),
            "correlation_id" => commit.correlation_id = Some(text(path, value)?),
            "causation_id" => commit.causation_id = Some(text(path, value)?),
            "append_condition" => commit.append_condition = Some(extras::condition(nested(path, value)?)?),
            "reserve" => commit.keys.reserve = extras::each(path, value, extras::reserve)?,
            "release" => commit.keys.release = extras::each(path, value, extras::release)?,
            "wait" => commit.wait = extras::wait(nested(path, value)?)?,
            _ => return Err(unknown(path)),
        }
        Ok(())
    })?;
    match (aggregate, events) {
        (true, true) => Ok(commit),
        (true, false) => Err(body("events", "is missing")),
        (false, _) => Err(body("aggregate", "is missing")),
    }
}

fn read_aggregate(document: &RawDocument) -> Result<Aggregate, Invalid> {
    let (mut name, mut id) = (None, None);
    fields(document, "aggregate", |key, path, value| {
        match key {
            "name" => name = Some(text(path, value)?),
            "id" => id = Some(text(path, value)?),
            _ => return Err(unknown(path)),
        }
        Ok(())
    })?;
    match (name, id) {
        (Some(name), Some(id)) => Ok(Aggregate { name, id }),
        _ => Err(body("aggregate", "has not both a name and an id")),
    }
}

fn read_event(place: usize, value: RawBsonRef<'_>) -> Result<NewEvent, Invalid> {
    let RawBsonRef::Document(document) = value else {
        return Err(body(&format!("events[{place}]"), "is not a document"));
    };
    let mut event = NewEvent::new("", Data::empty());
    let (mut event_type, mut data) = (false, false);
    let read = fields(document, "", |key, path, value| {
        match key {
            "type" => {
                event_type = true;
                event.event_type = text(path, value)?;
            }
            "data" => {
                data = true;
                let invalid = |message: String| Invalid::new(Code::InvalidData, path, message);
                let document = value.as_document().ok_or_else(|| invalid("is not a document".to_owned()))?;
                event.data = Data::from_bson(document.as_bytes()).map_err(invalid)?;
            }
            "id" => event.id = Some(id(value).ok_or_else(|| Invalid::new(Code::InvalidId, path, "is not a UUID"))?),
            "generation" => {
                let generation = integer(value).and_then(|generation| u32::try_from(generation).ok());
                event.generation = generation.ok_or_else(|| body(path, "is not a number from 1"))?;
            }
            "tags" => {
                for tag in list(path, value)? {
                    event.tags.push(text(path, tag.map_err(|error| body(path, error))?)?);
                }
            }
            "public" => event.public = boolean(path, value)?,
            "metadata" => {
                let invalid = |message: String| Invalid::new(Code::InvalidMetadata, path, message);
                let document = value.as_document().ok_or_else(|| invalid("is not a document".to_owned()))?;
                event.metadata = Data::from_bson(document.as_bytes()).and_then(Metadata::of).map_err(invalid)?;
            }
            "time" => event.time = Some(time(path, value)?),
            _ => return Err(unknown(path)),
        }
        Ok(())
    });
    read.map_err(|invalid| Invalid { path: format!("events[{place}].{}", invalid.path), ..invalid })?;
    match (event_type, data) {
        (true, true) => Ok(event),
        (false, _) => Err(body(&format!("events[{place}].type"), "is missing")),
        (true, false) => Err(body(&format!("events[{place}].data"), "is missing")),
    }
}

/// Parses the answer to a commit: its outcome, or the problem document as JSON text.
///
/// # Errors
/// A sentence, if it is neither.
pub fn read_reply(bytes: &[u8]) -> Result<Result<CommitOutcome, String>, String> {
    let document = RawDocument::from_bytes(bytes).map_err(|error| error.to_string())?;
    let mut outcome = CommitOutcome {
        commit_id: Uuid::nil(),
        version: 0,
        first_sequence_number: None,
        event_ids: Vec::new(),
        duplicate: false,
        stage: None,
    };
    for element in document {
        let (key, value) = element.map_err(|error| error.to_string())?;
        let wrong = || format!("{key} is {value:?}");
        match key.as_str() {
            "problem" => return value.as_str().map(|problem| Err(problem.to_owned())).ok_or_else(wrong),
            "commit_id" => outcome.commit_id = id(value).ok_or_else(wrong)?,
            "version" => outcome.version = integer(value).ok_or_else(wrong)? as u64,
            "reached" => outcome.stage = reached_stage(value.as_str().ok_or_else(wrong)?),
            "duplicate" => outcome.duplicate = value.as_bool().ok_or_else(wrong)?,
            "events" => {
                for event in value.as_array().ok_or_else(wrong)? {
                    let event = event.map_err(|error| error.to_string())?.as_document().ok_or_else(wrong)?;
                    read_committed(event, &mut outcome)?;
                }
            }
            // A newer server may add fields.
            _ => {}
        }
    }
    if outcome.version == 0 || outcome.event_ids.is_empty() {
        return Err("a commit without version or events".to_owned());
    }
    Ok(Ok(outcome))
}

fn read_committed(event: &RawDocument, outcome: &mut CommitOutcome) -> Result<(), String> {
    for element in event {
        let (key, value) = element.map_err(|error| error.to_string())?;
        let wrong = || format!("{key} is {value:?}");
        match key.as_str() {
            "sequence_number" if outcome.event_ids.len() <= 1 => {
                outcome.first_sequence_number = Some(integer(value).ok_or_else(wrong)? as u64);
            }
            "id" => outcome.event_ids.push(id(value).ok_or_else(wrong)?),
            _ => {}
        }
    }
    Ok(())
}

fn document(bytes: &[u8]) -> Result<&RawDocument, Invalid> {
    RawDocument::from_bytes(bytes).map_err(|error| body("", error))
}

fn id(value: RawBsonRef<'_>) -> Option<Uuid> {
    match value {
        RawBsonRef::Binary(binary) if binary.subtype == BinarySubtype::Uuid => Uuid::from_slice(binary.bytes).ok(),
        RawBsonRef::String(text) => Uuid::try_parse(text).ok(),
        _ => None,
    }
}

fn expected_version(path: &str, value: RawBsonRef<'_>) -> Result<ExpectedVersion, Invalid> {
    match value.as_str() {
        Some("any") => Some(ExpectedVersion::Any),
        Some("empty") => Some(ExpectedVersion::Empty),
        Some("exists") => Some(ExpectedVersion::Exists),
        Some(_) => None,
        None => integer(value).map(|version| ExpectedVersion::Exact(version as u64)),
    }
    .ok_or_else(|| {
        let message = "is not a whole number from 0, \"any\", \"empty\" or \"exists\"";
        Invalid::new(Code::InvalidVersion, path, message)
    })
}

fn time(path: &str, value: RawBsonRef<'_>) -> Result<Timestamp, Invalid> {
    let time = value.as_datetime().map(|time| Timestamp::from_millis(time.timestamp_millis()));
    time.filter(|time| time.is_writable())
        .ok_or_else(|| Invalid::new(Code::InvalidTime, path, "is not a date that RFC 3339 can represent"))
}
