//! What queries answer, as values.

use bson::RawBsonRef;
use bson::raw::{RawArray, RawDocument};
use bytestring::ByteString;
use serde::de::DeserializeOwned;

use crate::fields::whole;
use crate::snapshots::read_document;
use crate::{Aggregate, AggregateInfo, Data, Metadata, Timestamp, Version};

/// A snapshot that was found: the state of an aggregate, and what is known about it.
#[derive(Debug, Clone, PartialEq)]
pub struct MaterializedSnapshot<S> {
    /// Whose the aggregate is, Wow's bounded context.
    pub context_name: ByteString,
    /// What is known about the aggregate.
    pub info: AggregateInfo,
    /// Its state.
    pub state: S,
    /// When the snapshot was made.
    pub snapshot_time: Timestamp,
}

/// A commit that was found, as its document says. Ids are texts, because other software has others than UUIDs.
#[derive(Debug, Clone, PartialEq)]
pub struct QueriedCommit {
    /// Its id.
    pub id: ByteString,
    /// Whose the aggregate is, Wow's bounded context.
    pub context_name: ByteString,
    /// Whose events they are.
    pub aggregate: Aggregate,
    /// The aggregate's version after it.
    pub version: Version,
    /// The request it came from.
    pub request_id: ByteString,
    /// The command that led to it; the request's id where none was named.
    pub command_id: ByteString,
    /// The tenantId of the aggregate.
    pub tenant_id: ByteString,
    /// The owner of the aggregate, or empty.
    pub owner_id: ByteString,
    /// The space of the aggregate, or empty.
    pub space_id: ByteString,
    /// Free text for tools.
    pub header: Vec<(ByteString, ByteString)>,
    /// Groups everything that follows from one cause.
    pub correlation_id: Option<ByteString>,
    /// What directly caused it.
    pub causation_id: Option<ByteString>,
    /// The time of its first event.
    pub time: Timestamp,
    /// Its events, in their order.
    pub events: Vec<QueriedEvent>,
}

/// An event of a commit that was found.
#[derive(Debug, Clone, PartialEq)]
pub struct QueriedEvent {
    /// Its id.
    pub id: ByteString,
    /// Its type.
    pub event_type: ByteString,
    /// The revision of the type's schema, as the layout writes it: generation 2 is `2.0.0`.
    pub revision: ByteString,
    /// Its content.
    pub data: Data,
    /// Its tags.
    pub tags: Vec<ByteString>,
    /// Whether partners may see it.
    pub public: bool,
    /// What tools and operators noted about it.
    pub metadata: Option<Metadata>,
    /// When it happened.
    pub time: Timestamp,
}

impl<S: DeserializeOwned> MaterializedSnapshot<S> {
    /// Reads one from what a query answers.
    ///
    /// # Errors
    /// A sentence, when a field is missing or the state is another type's.
    pub fn of(answered: &RawDocument) -> Result<Self, String> {
        let aggregate = Aggregate::new(text(answered, "aggregateName")?, text(answered, "aggregateId")?);
        let missing = || "has no version, tenantId, state or deleted".to_owned();
        let read = read_document(&aggregate, answered).ok_or_else(missing)?;
        let state = read.state.decode().map_err(|error| format!("state: {error}"))?;
        Ok(Self {
            context_name: text_or_empty(answered, "contextName"),
            info: read.info,
            state,
            snapshot_time: read.time.unwrap_or(Timestamp::from_millis(0)),
        })
    }
}

impl QueriedCommit {
    /// Reads one from what a query answers.
    ///
    /// # Errors
    /// A sentence, when a field is missing.
    pub fn of(answered: &RawDocument) -> Result<Self, String> {
        let ours = answered.get_document("annals").ok();
        let our_id = |name: &str| ours.and_then(|ours| Some(ByteString::from(ours.get_str(name).ok()?)));
        let time = whole(field(answered, "createTime")?).ok_or("createTime is no number")?;
        let times: Vec<i64> = match ours.and_then(|ours| ours.get_array("times").ok()) {
            Some(times) => times.into_iter().flatten().filter_map(whole).collect(),
            None => Vec::new(),
        };
        let body = field(answered, "body")?.as_array().ok_or("body is not a list")?;
        let events = body.into_iter().enumerate().map(|(place, event)| {
            let event = event.map_err(|error| error.to_string())?;
            let event = event.as_document().ok_or("body has something that is no event")?;
            QueriedEvent::of(event, times.get(place).copied().unwrap_or(time))
        });
        let header = answered.get_document("header").ok();
        let header = header.into_iter().flat_map(RawDocument::iter).flatten();
        Ok(Self {
            id: text(answered, "id")?,
            context_name: text_or_empty(answered, "contextName"),
            aggregate: Aggregate::new(text(answered, "aggregateName")?, text(answered, "aggregateId")?),
            version: whole(field(answered, "version")?)
                .and_then(|version| version.try_into().ok())
                .ok_or("version is no whole number from 0")?,
            request_id: text_or_empty(answered, "requestId"),
            command_id: text_or_empty(answered, "commandId"),
            tenant_id: text(answered, "tenantId")?,
            owner_id: text_or_empty(answered, "ownerId"),
            space_id: text_or_empty(answered, "spaceId"),
            header: header.filter_map(|(key, value)| Some((key.as_str().into(), value.as_str()?.into()))).collect(),
            correlation_id: our_id("correlationId"),
            causation_id: our_id("causationId"),
            time: Timestamp::from_millis(time),
            events: events.collect::<Result<_, String>>()?,
        })
    }
}

impl QueriedEvent {
    fn of(event: &RawDocument, time: i64) -> Result<Self, String> {
        let data = field(event, "body")?.as_document().ok_or("the body of an event is no document")?;
        let tags = event.get_array("tags").ok();
        let tags = tags.into_iter().flat_map(|tags: &RawArray| tags.into_iter()).flatten();
        Ok(Self {
            id: text(event, "id")?,
            event_type: text(event, "name")?,
            revision: text_or_empty(event, "revision"),
            data: Data::of_raw(data),
            tags: tags.filter_map(|tag| tag.as_str().map(Into::into)).collect(),
            public: event.get_bool("public").unwrap_or(false),
            // Other software may keep something else under this name.
            metadata: event.get_document("metadata").ok().and_then(|it| Metadata::of(Data::of_raw(it)).ok().flatten()),
            time: Timestamp::from_millis(time),
        })
    }
}

fn field<'a>(document: &'a RawDocument, name: &str) -> Result<RawBsonRef<'a>, String> {
    document.get(name).map_err(|error| error.to_string())?.ok_or_else(|| format!("has no {name}"))
}

fn text(document: &RawDocument, name: &str) -> Result<ByteString, String> {
    field(document, name)?.as_str().map(Into::into).ok_or_else(|| format!("{name} is no text"))
}

/// What a layout may leave out.
fn text_or_empty(document: &RawDocument, name: &str) -> ByteString {
    document.get_str(name).map(Into::into).unwrap_or_default()
}
