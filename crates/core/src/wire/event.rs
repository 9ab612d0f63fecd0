//! Events and commits as the API returns them.

use std::sync::Arc;

use bytestring::ByteString;
use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize, Serializer};
use uuid::Uuid;

use crate::{
    Aggregate, CommitInfo, DEFAULT_TENANT_ID, Data, Metadata, ReceivedFrom, RecordedCommit, RecordedEvent, Timestamp,
    TransactionPlace,
};

/// Writes an event as `/v1/log` returns it. Optional fields that are empty are left out.
pub struct EventView<'a> {
    /// The event.
    pub event: &'a RecordedEvent,
    /// The tenant whose store it is in.
    pub tenant: &'a str,
    /// The scope whose log it is in.
    pub scope: &'a str,
}

impl Serialize for EventView<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let event = self.event;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("sequence_number", &event.sequence_number)?;
        map.serialize_entry("id", &event.id)?;
        map.serialize_entry("type", &event.event_type)?;
        map.serialize_entry("generation", &event.generation)?;
        map.serialize_entry("data", &event.data)?;
        map.serialize_entry("tags", &event.tags)?;
        match event.commit.aggregate.event_source() {
            None => map.serialize_entry("aggregate", &event.commit.aggregate)?,
            Some(source) => {
                map.serialize_entry("aggregate", &())?;
                map.serialize_entry("event_source", source)?;
            }
        }
        map.serialize_entry("version", &event.commit.version)?;
        map.serialize_entry("ordinal", &event.ordinal)?;
        map.serialize_entry("commit_id", &event.commit.commit_id)?;
        map.serialize_entry("request_id", &event.commit.request_id)?;
        map.serialize_entry("time", &event.time)?;
        map.serialize_entry("tenant", self.tenant)?;
        map.serialize_entry("scope", self.scope)?;
        map.serialize_entry("header", &Header(&event.commit.header))?;
        if event.public {
            map.serialize_entry("public", &true)?;
        }
        if let Some(metadata) = &event.metadata {
            map.serialize_entry("metadata", metadata)?;
        }
        attributes(&mut map, &event.commit)?;
        map.end()
    }
}

/// Writes a commit as `/v1/aggregates/{name}/{id}/commits` returns it.
pub struct CommitView<'a> {
    /// The commit.
    pub commit: &'a RecordedCommit,
    /// The tenant whose store it is in.
    pub tenant: &'a str,
    /// The scope whose log it is in.
    pub scope: &'a str,
}

impl Serialize for CommitView<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let info = &self.commit.info;
        let view = |event| EventView { event, tenant: self.tenant, scope: self.scope };
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("commit_id", &info.commit_id)?;
        map.serialize_entry("version", &info.version)?;
        map.serialize_entry("request_id", &info.request_id)?;
        map.serialize_entry("time", &info.time)?;
        map.serialize_entry("events", &self.commit.events.iter().map(view).collect::<Vec<_>>())?;
        attributes(&mut map, info)?;
        map.end()
    }
}

struct Header<'a>(&'a [(ByteString, ByteString)]);

impl Serialize for Header<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        super::commit::header::serialize(self.0, serializer)
    }
}

fn attributes<M: SerializeMap>(map: &mut M, info: &CommitInfo) -> Result<(), M::Error> {
    if info.tenant_id != DEFAULT_TENANT_ID {
        map.serialize_entry("tenant_id", &info.tenant_id)?;
    }
    for (key, value) in [("owner_id", &info.owner_id), ("space_id", &info.space_id)] {
        if !value.is_empty() {
            map.serialize_entry(key, value)?;
        }
    }
    for (key, value) in [
        ("command_id", &info.command_id),
        ("correlation_id", &info.correlation_id),
        ("causation_id", &info.causation_id),
    ] {
        if let Some(value) = value {
            map.serialize_entry(key, value)?;
        }
    }
    if let Some(transaction) = &info.transaction {
        map.serialize_entry("transaction", transaction)?;
    }
    if let Some(received) = &info.received {
        map.serialize_entry("received", &**received)?;
    }
    Ok(())
}

/// An event as a client parses it. Fields that a newer server adds are ignored.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct EventLine {
    sequence_number: u64,
    id: Uuid,
    #[serde(rename = "type")]
    event_type: ByteString,
    generation: u32,
    data: Data,
    #[serde(default)]
    tags: Vec<ByteString>,
    aggregate: Option<Aggregate>,
    /// Present instead of an aggregate.
    event_source: Option<ByteString>,
    version: u64,
    ordinal: u32,
    commit_id: Uuid,
    request_id: Option<ByteString>,
    time: Timestamp,
    #[serde(default, deserialize_with = "super::commit::header::deserialize")]
    header: Vec<(ByteString, ByteString)>,
    #[serde(default)]
    public: bool,
    #[serde(default, deserialize_with = "crate::metadata::optional")]
    metadata: Option<Metadata>,
    transaction: Option<TransactionPlace>,
    received: Option<ReceivedFrom>,
    tenant_id: Option<ByteString>,
    owner_id: Option<ByteString>,
    space_id: Option<ByteString>,
    command_id: Option<ByteString>,
    correlation_id: Option<ByteString>,
    causation_id: Option<ByteString>,
}

impl From<EventLine> for RecordedEvent {
    fn from(line: EventLine) -> Self {
        let commit = CommitInfo {
            commit_id: line.commit_id,
            request_id: line.request_id,
            aggregate: line.aggregate.unwrap_or_else(|| Aggregate::of_source(line.event_source.unwrap_or_default())),
            version: line.version,
            time: line.time,
            tenant_id: line.tenant_id.unwrap_or_else(|| DEFAULT_TENANT_ID.into()),
            owner_id: line.owner_id.unwrap_or_default(),
            space_id: line.space_id.unwrap_or_default(),
            command_id: line.command_id,
            correlation_id: line.correlation_id,
            causation_id: line.causation_id,
            header: line.header,
            transaction: line.transaction,
            received: line.received.map(Arc::new),
        };
        Self {
            sequence_number: line.sequence_number,
            ordinal: line.ordinal,
            id: line.id,
            event_type: line.event_type,
            generation: line.generation,
            data: line.data,
            tags: line.tags,
            public: line.public,
            metadata: line.metadata,
            time: line.time,
            commit: Arc::new(commit),
        }
    }
}
