//! The usual commit, read in one pass over its text. What is not usual (a field that few use, an escape in a key, white space that
//! is none, any mistake) is `None`, and [`parse_commit`](super::parse_commit) then reads it the careful way, which also words the
//! refusals. What is taken here means the same there; a test compares both on many texts.

use bytestring::ByteString;
use uuid::Uuid;

use crate::json::cursor::Cursor;
use crate::{Aggregate, Data, ExpectedVersion, KeyChanges, NewCommit, NewEvent};

/// Reads a body, if it is usual.
pub(super) fn commit(json: &[u8]) -> Option<NewCommit> {
    let mut cursor = Cursor::new(std::str::from_utf8(json).ok()?);
    let mut fields = Fields::default();
    cursor.object(|cursor, key| match key {
        "aggregate" => once(&mut fields.aggregate, aggregate(cursor)?),
        "expected_version" => once(&mut fields.expected_version, expected_version(cursor)?),
        "events" => once(&mut fields.events, events(cursor)?),
        "request_id" => once(&mut fields.request_id, text(cursor)?),
        "command_id" => once(&mut fields.command_id, text(cursor)?),
        "tenant_id" => once(&mut fields.tenant_id, text(cursor)?),
        "owner_id" => once(&mut fields.owner_id, text(cursor)?),
        "space_id" => once(&mut fields.space_id, text(cursor)?),
        "correlation_id" => once(&mut fields.correlation_id, text(cursor)?),
        "causation_id" => once(&mut fields.causation_id, text(cursor)?),
        _ => None,
    })?;
    let commit = NewCommit {
        aggregate: fields.aggregate?,
        expected_version: fields.expected_version.unwrap_or_default(),
        request_id: fields.request_id,
        command_id: fields.command_id,
        events: fields.events?,
        header: Vec::new(),
        tenant_id: fields.tenant_id,
        owner_id: fields.owner_id,
        space_id: fields.space_id,
        correlation_id: fields.correlation_id,
        causation_id: fields.causation_id,
        append_condition: None,
        keys: KeyChanges::default(),
    };
    cursor.at_end().then_some(commit)
}

#[derive(Default)]
struct Fields {
    aggregate: Option<Aggregate>,
    expected_version: Option<ExpectedVersion>,
    events: Option<Vec<NewEvent>>,
    request_id: Option<ByteString>,
    command_id: Option<ByteString>,
    tenant_id: Option<ByteString>,
    owner_id: Option<ByteString>,
    space_id: Option<ByteString>,
    correlation_id: Option<ByteString>,
    causation_id: Option<ByteString>,
}

/// Sets a field that must not have been set.
fn once<T>(field: &mut Option<T>, value: T) -> Option<()> {
    field.replace(value).is_none().then_some(())
}

fn text(cursor: &mut Cursor<'_>) -> Option<ByteString> {
    Some(cursor.string()?.as_ref().into())
}

fn aggregate(cursor: &mut Cursor<'_>) -> Option<Aggregate> {
    let (mut name, mut id) = (None, None);
    cursor.object(|cursor, key| match key {
        "name" => once(&mut name, text(cursor)?),
        "id" => once(&mut id, text(cursor)?),
        _ => None,
    })?;
    Some(Aggregate { name: name?, id: id? })
}

fn expected_version(cursor: &mut Cursor<'_>) -> Option<ExpectedVersion> {
    match cursor.peek()? {
        b'"' => match cursor.string()?.as_ref() {
            "any" => Some(ExpectedVersion::Any),
            "empty" => Some(ExpectedVersion::Empty),
            "exists" => Some(ExpectedVersion::Exists),
            _ => None,
        },
        _ => cursor.natural().map(ExpectedVersion::Exact),
    }
}

fn events(cursor: &mut Cursor<'_>) -> Option<Vec<NewEvent>> {
    let mut events = Vec::new();
    cursor.array(|cursor| {
        events.push(event(cursor)?);
        Some(())
    })?;
    Some(events)
}

fn event(cursor: &mut Cursor<'_>) -> Option<NewEvent> {
    let (mut event_type, mut data, mut id, mut generation, mut tags, mut public) = (None, None, None, None, None, None);
    cursor.object(|cursor, key| match key {
        "type" => once(&mut event_type, text(cursor)?),
        "data" => once(&mut data, Data::take(cursor)?),
        "id" => once(&mut id, Uuid::try_parse(&cursor.string()?).ok()?),
        "generation" => once(&mut generation, u32::try_from(cursor.natural()?).ok()?),
        "tags" => once(&mut tags, texts(cursor)?),
        "public" => once(&mut public, cursor.boolean()?),
        _ => None,
    })?;
    Some(NewEvent {
        event_type: event_type?,
        generation: generation.unwrap_or(1),
        data: data?,
        id,
        tags: tags.unwrap_or_default(),
        public: public.unwrap_or_default(),
        time: None,
    })
}

fn texts(cursor: &mut Cursor<'_>) -> Option<Vec<ByteString>> {
    let mut texts = Vec::new();
    cursor.array(|cursor| {
        texts.push(text(cursor)?);
        Some(())
    })?;
    Some(texts)
}

#[cfg(test)]
mod tests;
