//! Typed results of queries.

use bson::RawBsonRef;
use bson::raw::{RawArray, RawDocument};
use bytestring::ByteString;
use serde::de::DeserializeOwned;

use crate::fields::whole;
use crate::snapshots::read_document;
use crate::{Aggregate, AggregateInfo, Data, Metadata, Timestamp, Version};

/// A snapshot that was found: the state of an aggregate, with its metadata.
#[derive(Debug, Clone, PartialEq)]
pub struct MaterializedSnapshot<S> {
    /// Wow's bounded context, to which the aggregate belongs.
    pub context_name: ByteString,
    /// The metadata of the aggregate.
    pub info: AggregateInfo,
    /// Its state.
    pub state: S,
    /// When the snapshot was taken.
    pub snapshot_time: Timestamp,
}

/// A commit that was found. Its ids are strings, because other software does not only use UUIDs.
#[derive(Debug, Clone, PartialEq)]
pub struct QueriedCommit {
    /// Its id.
    pub id: ByteString,
    /// Wow's bounded context, to which the aggregate belongs.
    pub context_name: ByteString,
    /// The aggregate of its events.
    pub aggregate: Aggregate,
    /// The aggregate's version after this commit.
    pub version: Version,
    /// The request that stored it.
    pub request_id: ByteString,
    /// The command that produced it; the request's id if no command was named.
    pub command_id: ByteString,
    /// The tenantId of the aggregate.
    pub tenant_id: ByteString,
    /// The owner of the aggregate, or empty.
    pub owner_id: ByteString,
    /// The space of the aggregate, or empty.
    pub space_id: ByteString,
    /// Free-form strings for tools.
    pub header: Vec<(ByteString, ByteString)>,
    /// The operation that it belongs to.
    pub correlation_id: Option<ByteString>,
    /// Its direct cause.
    pub causation_id: Option<ByteString>,
    /// The time of its first event.
    pub time: Timestamp,
    /// Its events, in order.
    pub events: Vec<QueriedEvent>,
}

/// An event of a commit that was found.
#[derive(Debug, Clone, PartialEq)]
pub struct QueriedEvent {
    /// Its id.
    pub id: ByteString,
    /// Its type.
    pub event_type: ByteString,
    /// The revision of the type's schema in the layout's form: generation 2 is `2.0.0`.
    pub revision: ByteString,
    /// Its content.
    pub data: Data,
    /// Its tags.
    pub tags: Vec<ByteString>,
    /// Whether partners may see it.
    pub public: bool,
    /// Its metadata, for tools and operators.
    pub metadata: Option<Metadata>,
    /// When it happened.
    pub time: Timestamp,
}

impl<S: DeserializeOwned> MaterializedSnapshot<S> {
    /// Converts a document from a query's result.
    ///
    /// # Errors
    /// A sentence, if a field is missing or the state is of another type.
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
    /// Converts a document from a query's result.
    ///
    /// # Errors
    /// A sentence, if a field is missing.
    pub fn of(answered: &RawDocument) -> Result<Self, String> {
        let ours = answered.get_document("annals").ok();
        let our_id = |name: &str| ours.and_then(|ours| Some(ByteString::from(ours.get_str(name).ok()?)));
        let time = whole(field(answered, "createTime")?).ok_or("createTime is not a number")?;
        let times: Vec<i64> = match ours.and_then(|ours| ours.get_array("times").ok()) {
            Some(times) => times.into_iter().flatten().filter_map(whole).collect(),
            None => Vec::new(),
        };
        let body = field(answered, "body")?.as_array().ok_or("body is not a list")?;
        let events = body.into_iter().enumerate().map(|(place, event)| {
            let event = event.map_err(|error| error.to_string())?;
            let event = event.as_document().ok_or("body has an element that is not an event")?;
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
                .ok_or("version is not a whole number from 0")?,
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
        let data = field(event, "body")?.as_document().ok_or("the body of an event is not a document")?;
        let tags = event.get_array("tags").ok();
        let tags = tags.into_iter().flat_map(|tags: &RawArray| tags.into_iter()).flatten();
        Ok(Self {
            id: text(event, "id")?,
            event_type: text(event, "name")?,
            revision: text_or_empty(event, "revision"),
            data: Data::of_raw(data),
            tags: tags.filter_map(|tag| tag.as_str().map(Into::into)).collect(),
            public: event.get_bool("public").unwrap_or(false),
            // Other software may use this name for something else.
            metadata: event.get_document("metadata").ok().and_then(|it| Metadata::of(Data::of_raw(it)).ok().flatten()),
            time: Timestamp::from_millis(time),
        })
    }
}

fn field<'a>(document: &'a RawDocument, name: &str) -> Result<RawBsonRef<'a>, String> {
    document.get(name).map_err(|error| error.to_string())?.ok_or_else(|| format!("has no {name}"))
}

fn text(document: &RawDocument, name: &str) -> Result<ByteString, String> {
    field(document, name)?.as_str().map(Into::into).ok_or_else(|| format!("{name} is not a string"))
}

/// Returns a text that the layout allows to be absent.
fn text_or_empty(document: &RawDocument, name: &str) -> ByteString {
    document.get_str(name).map(Into::into).unwrap_or_default()
}
