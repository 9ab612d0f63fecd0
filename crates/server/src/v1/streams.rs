//! `GET /v1/streams` and what is below it: filtered sequences of the log, with positions of their own.

use std::sync::Arc;

use annals_core::wire::{PositionAnswer, StreamEventView};
use annals_core::{
    ByteString, Partitions, StreamEvents, StreamInfo, StreamPosition, StreamQuery, Streams, StreamsQuery, limits,
};
use axum::extract::{Path, RawQuery, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use serde::Serialize;

use super::wait::Wait;
use crate::answer::{data_bytes, json, json_of_events};
use crate::problem::Problem;
use crate::query::{Query, number};
use crate::router::Server;
use crate::source::Source;

/// What a page is asked with.
const PAGE: &[&str] = &["from", "to", "limit", "partition", "without_partition", "scope"];

/// `GET /v1/streams`.
pub(crate) async fn list(
    State(server): State<Arc<Server>>,
    RawQuery(raw): RawQuery,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    #[derive(Serialize)]
    struct List {
        streams: Vec<StreamInfo>,
        next: Option<ByteString>,
    }
    let query = Query::parse(raw.as_deref(), &["after", "limit", "scope"])?;
    let (_, streams) = found(&server, &headers, &query)?;
    let wanted = StreamsQuery {
        after: query.text("after")?.map(Into::into),
        limit: query.limit("limit")?.unwrap_or(limits::PAGE_DEFAULT),
    };
    let streams = streams.list(wanted).await?;
    let next = streams.last().map(|last| last.name.clone());
    json(StatusCode::OK, &List { streams, next })
}

/// `GET /v1/streams/{name}`: entries with their events.
pub(crate) async fn events(
    State(server): State<Arc<Server>>,
    Path(name): Path<String>,
    RawQuery(raw): RawQuery,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let query = Query::parse(raw.as_deref(), PAGE)?;
    let (source, streams) = found(&server, &headers, &query)?;
    let found = streams.read_events(page(name, &query)?).await?;
    let bytes = data_bytes(found.events.iter().map(|event| &event.event));
    json_of_events(bytes, Events { found, source }).await
}

/// `GET /v1/streams/{name}/entries`: the same without the events.
pub(crate) async fn entries(
    State(server): State<Arc<Server>>,
    Path(name): Path<String>,
    RawQuery(raw): RawQuery,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let query = Query::parse(raw.as_deref(), PAGE)?;
    let (_, streams) = found(&server, &headers, &query)?;
    json(StatusCode::OK, &streams.read(page(name, &query)?).await?)
}

/// `GET /v1/streams/{name}/state`: at once, or when there is more than the caller knows of.
pub(crate) async fn state(
    State(server): State<Arc<Server>>,
    Path(name): Path<String>,
    RawQuery(raw): RawQuery,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let query = Query::parse(raw.as_deref(), &["past", "timeout_ms", "scope"])?;
    let (_, streams) = found(&server, &headers, &query)?;
    if let Some(wait) = Wait::of(&query)? {
        wait.until(&server, streams.wait_past(&name, wait.past)).await?;
    }
    json(StatusCode::OK, &streams.stream(&name).await?)
}

/// `GET /v1/streams/{name}/positions/{sequence_number}`.
pub(crate) async fn position(
    State(server): State<Arc<Server>>,
    Path((name, sequence_number)): Path<(String, String)>,
    RawQuery(raw): RawQuery,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let query = Query::parse(raw.as_deref(), &["scope"])?;
    let (_, streams) = found(&server, &headers, &query)?;
    let position = streams.position_of(&name, number("sequence_number", &sequence_number)?).await?;
    json(StatusCode::OK, &PositionAnswer { position })
}

fn found(server: &Server, headers: &HeaderMap, query: &Query) -> Result<(Source, Arc<dyn Streams>), Problem> {
    let source = Source::to_read(server, headers, query)?;
    let streams = server.store.streams(&source.tenant, &source.scope)?;
    Ok((source, streams))
}

fn page(name: String, query: &Query) -> Result<StreamQuery, Problem> {
    let partitions = match (query.text("partition")?, query.switch("without_partition")?) {
        (None, false) => Partitions::All,
        (None, true) => Partitions::Without,
        (Some(partition), false) => Partitions::One(partition.into()),
        (Some(_), true) => {
            return Err(Problem::query("partition", "stands beside without_partition; give one of both"));
        }
    };
    let wanted = StreamQuery {
        from: query.number("from")?.unwrap_or(0),
        to: query.number("to")?.unwrap_or(StreamPosition::MAX),
        limit: query.limit("limit")?.unwrap_or(limits::PAGE_DEFAULT),
        partitions,
        ..StreamQuery::new(name)
    };
    wanted.validate()?;
    Ok(wanted)
}

struct Events {
    found: StreamEvents,
    source: Source,
}

impl Serialize for Events {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct;
        let (tenant, scope) = (&*self.source.tenant, &*self.source.scope);
        let view = |event| StreamEventView { event, tenant, scope };
        let mut answer = serializer.serialize_struct("Events", 3)?;
        answer.serialize_field("events", &self.found.events.iter().map(view).collect::<Vec<_>>())?;
        answer.serialize_field("next", &self.found.next)?;
        answer.serialize_field("head", &self.found.head)?;
        answer.end()
    }
}
