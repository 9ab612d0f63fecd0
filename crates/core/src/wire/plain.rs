//! Parses a common commit body in a single pass over its text. Anything uncommon (a rarely used field, an escape in a key, unusual white
//! space, any error) yields `None`, and [`parse_commit`](super::parse_commit) then uses its general parser, which also produces the error
//! messages. Both parsers give a body the same meaning; a test compares them on many texts.

use bytes::Bytes;
use bytestring::ByteString;
use uuid::Uuid;

use crate::data::Documents;
use crate::json::cursor::Cursor;
use crate::{Aggregate, Data, ExpectedVersion, KeyChanges, NewCommit, NewEvent, Wait};

/// Parses a body, if it is common.
pub(super) fn commit(json: &[u8]) -> Option<NewCommit> {
    let mut cursor = Cursor::new(std::str::from_utf8(json).ok()?);
    let mut fields = Fields::default();
    cursor.object(|cursor, key| match key {
        b"aggregate" => once(&mut fields.aggregate, aggregate(cursor)?),
        b"expected_version" => once(&mut fields.expected_version, expected_version(cursor)?),
        b"events" => once(&mut fields.events, events(cursor)?),
        b"request_id" => once(&mut fields.request_id, text(cursor)?),
        b"command_id" => once(&mut fields.command_id, text(cursor)?),
        b"tenant_id" => once(&mut fields.tenant_id, text(cursor)?),
        b"owner_id" => once(&mut fields.owner_id, text(cursor)?),
        b"space_id" => once(&mut fields.space_id, text(cursor)?),
        b"correlation_id" => once(&mut fields.correlation_id, text(cursor)?),
        b"causation_id" => once(&mut fields.causation_id, text(cursor)?),
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
        wait: Wait::default(),
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

/// Sets a field, or returns `None` if it is already set.
fn once<T>(field: &mut Option<T>, value: T) -> Option<()> {
    field.replace(value).is_none().then_some(())
}

fn text(cursor: &mut Cursor<'_>) -> Option<ByteString> {
    text_like(cursor, None)
}

/// Parses a text, and shares the memory of `other` if both are equal, as they often are.
fn text_like(cursor: &mut Cursor<'_>, other: Option<&ByteString>) -> Option<ByteString> {
    let text = cursor.string()?;
    match other.filter(|other| other.as_bytes() == text.as_ref()) {
        Some(same) => Some(same.clone()),
        None => Bytes::from(text.into_owned()).try_into().ok(),
    }
}

fn aggregate(cursor: &mut Cursor<'_>) -> Option<Aggregate> {
    let (mut name, mut id) = (None, None);
    cursor.object(|cursor, key| match key {
        b"name" => once(&mut name, text(cursor)?),
        b"id" => once(&mut id, text(cursor)?),
        _ => None,
    })?;
    Some(Aggregate { name: name?, id: id? })
}

fn expected_version(cursor: &mut Cursor<'_>) -> Option<ExpectedVersion> {
    match cursor.peek()? {
        b'"' => match cursor.string()?.as_ref() {
            b"any" => Some(ExpectedVersion::Any),
            b"empty" => Some(ExpectedVersion::Empty),
            b"exists" => Some(ExpectedVersion::Exists),
            _ => None,
        },
        _ => cursor.natural().map(ExpectedVersion::Exact),
    }
}

fn events(cursor: &mut Cursor<'_>) -> Option<Vec<NewEvent>> {
    let mut events: Vec<NewEvent> = Vec::new();
    let mut documents = Documents::with_room_for(cursor.left());
    cursor.array(|cursor| {
        let event = event(cursor, &mut documents, events.last().map(|event| &event.event_type))?;
        events.push(event);
        Some(())
    })?;
    events.iter_mut().zip(documents.all()).for_each(|(event, data)| event.data = data);
    Some(events)
}

/// Parses an event except its data, which is added to `documents`.
fn event(cursor: &mut Cursor<'_>, documents: &mut Documents, last_type: Option<&ByteString>) -> Option<NewEvent> {
    let (mut event_type, mut data, mut id, mut generation, mut tags, mut public) = (None, None, None, None, None, None);
    cursor.object(|cursor, key| match key {
        b"type" => once(&mut event_type, text_like(cursor, last_type)?),
        b"data" => once(&mut data, documents.take(cursor)?),
        b"id" => once(&mut id, Uuid::try_parse_ascii(&cursor.string()?).ok()?),
        b"generation" => once(&mut generation, u32::try_from(cursor.natural()?).ok()?),
        b"tags" => once(&mut tags, texts(cursor)?),
        b"public" => once(&mut public, cursor.boolean()?),
        _ => None,
    })?;
    Some(NewEvent {
        event_type: event_type?,
        generation: generation.unwrap_or(1),
        data: data.map(|()| Data::empty())?,
        id,
        tags: tags.unwrap_or_default(),
        public: public.unwrap_or_default(),
        metadata: None,
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
