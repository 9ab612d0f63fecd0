//! `GET /v1/streams` and the routes below it: filtered sequences of the log, with positions of their own.

use std::sync::Arc;

use annals_core::wire::{PositionAnswer, StreamEventView};
use annals_core::{
    ByteString, Partitions, StreamEvents, StreamInfo, StreamPosition, StreamQuery, Streams, StreamsQuery,
};
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use utoipa::IntoParams;

use super::documents;
use super::wait::Wait;
use crate::accept::Accept;
use crate::answer::{data_bytes, json, json_of_page};
use crate::caller::Caller;
use crate::granted_streams;
use crate::media;
use crate::payload::Payload;
use crate::problem::Problem;
use crate::query::{Limit, Number, Query, ScopeQuery, Switch, number};
use crate::route::{Feature, Operation, Permission, get};
use crate::schemas;
use crate::source::Source;
use crate::state::Server;

/// Returns the operations that read streams.
pub(crate) fn feature() -> Feature {
    let operations = [
        get("/v1/streams", Permission::Reader, list).described(
            "listStreams",
            "Lists the streams, in order of their names.",
            Payload::json::<schemas::StreamList>(),
        ),
        get("/v1/streams/{name}", Permission::Reader, events).described(
            "readStream",
            "Returns one page of a stream, with its events.",
            Payload::json::<schemas::StreamPage>()
                .or(media::BSON, "One document per event, then one with the next position."),
        ),
        get("/v1/streams/{name}/entries", Permission::Reader, entries).described(
            "readStreamEntries",
            "Returns one page of a stream without its events.",
            Payload::json::<schemas::EntryPage>(),
        ),
        get("/v1/streams/{name}/positions/{sequence_number}", Permission::Reader, position).described(
            "streamPosition",
            "Returns the position of an event in a stream.",
            Payload::json::<schemas::Position>(),
        ),
        get("/v1/streams/{name}/state", Permission::Reader, state).described(
            "streamState",
            "Returns the current state of a stream, immediately or once it has moved.",
            Payload::json::<schemas::StreamInfo>(),
        ),
    ];
    Feature::new("Streams", operations.map(Operation::checking_streams))
}

/// The parameters of a list of streams.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct ListQuery {
    /// Resumes after the stream of this name.
    after: Option<String>,
    /// The length of the page: 1 to 1,000, 100 when absent.
    #[param(inline)]
    limit: Option<Limit>,
    /// The scope to read; `default` when absent.
    scope: Option<String>,
}

/// The parameters of a page of a stream.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct PageQuery {
    /// The first position; 0 when absent.
    #[param(inline)]
    from: Option<Number>,
    /// The last position.
    #[param(inline)]
    to: Option<Number>,
    /// The length of the page: 1 to 1,000, 100 when absent.
    #[param(inline)]
    limit: Option<Limit>,
    /// Entries of this partition only.
    partition: Option<String>,
    /// Entries without a partition only.
    #[param(inline)]
    without_partition: Option<Switch>,
    /// The scope to read; `default` when absent.
    scope: Option<String>,
}

/// The parameters of the state of a stream.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct StateQuery {
    /// Waits until the stream has moved past this.
    #[param(inline)]
    past: Option<Number>,
    /// How long to wait, in milliseconds: at most 50,000, 20,000 when absent.
    #[param(inline)]
    timeout_ms: Option<Number>,
    /// The scope to read; `default` when absent.
    scope: Option<String>,
}

/// `GET /v1/streams`.
async fn list(
    State(server): State<Arc<Server>>,
    Query(query): Query<ListQuery>,
    caller: Caller,
) -> Result<Response, Problem> {
    #[derive(Serialize)]
    struct List {
        streams: Vec<StreamInfo>,
        next: Option<ByteString>,
    }
    let (source, streams) = found(&server, caller, query.scope)?;
    let wanted = StreamsQuery { after: query.after.map(Into::into), limit: Limit::or_default(query.limit) };
    let streams = granted_streams::list(&source.caller.principal, &*streams, wanted).await?;
    let next = streams.last().map(|last| last.name.clone());
    json(StatusCode::OK, &List { streams, next })
}

/// `GET /v1/streams/{name}`: entries with their events.
async fn events(
    State(server): State<Arc<Server>>,
    Path(name): Path<String>,
    Query(query): Query<PageQuery>,
    caller: Caller,
    accept: Accept,
) -> Result<Response, Problem> {
    let (source, streams) = named(&server, caller, query.scope.clone(), &name)?;
    let found = streams.read_events(page(name, query)?).await?;
    if accept.bson {
        return Ok(documents::stream(&found));
    }
    let bytes = data_bytes(found.events.iter().map(|event| &event.event));
    json_of_page(bytes, Events { found, source }).await
}

/// `GET /v1/streams/{name}/entries`: entries without their events.
async fn entries(
    State(server): State<Arc<Server>>,
    Path(name): Path<String>,
    Query(query): Query<PageQuery>,
    caller: Caller,
) -> Result<Response, Problem> {
    let (_, streams) = named(&server, caller, query.scope.clone(), &name)?;
    json(StatusCode::OK, &streams.read(page(name, query)?).await?)
}

/// `GET /v1/streams/{name}/state`: at once, or when the stream has moved past what the caller knows.
async fn state(
    State(server): State<Arc<Server>>,
    Path(name): Path<String>,
    Query(query): Query<StateQuery>,
    caller: Caller,
) -> Result<Response, Problem> {
    let (_, streams) = named(&server, caller, query.scope, &name)?;
    if let Some(wait) = Wait::of(query.past, query.timeout_ms)? {
        wait.until(&server, streams.wait_past(&name, wait.past)).await?;
    }
    json(StatusCode::OK, &streams.stream(&name).await?)
}

/// `GET /v1/streams/{name}/positions/{sequence_number}`.
async fn position(
    State(server): State<Arc<Server>>,
    Path((name, sequence_number)): Path<(String, String)>,
    Query(query): Query<ScopeQuery>,
    caller: Caller,
) -> Result<Response, Problem> {
    let (_, streams) = named(&server, caller, query.scope, &name)?;
    let position = streams.position_of(&name, number("sequence_number", &sequence_number)?).await?;
    json(StatusCode::OK, &PositionAnswer { position })
}

/// Returns the streams that a request addresses, of which it reads one.
pub(crate) fn named(
    server: &Server,
    caller: Caller,
    scope: Option<String>,
    name: &str,
) -> Result<(Source, Arc<dyn Streams>), Problem> {
    granted_streams::may_use(&caller.principal, name)?;
    found(server, caller, scope)
}

/// Returns the streams that a request addresses.
pub(crate) fn found(
    server: &Server,
    caller: Caller,
    scope: Option<String>,
) -> Result<(Source, Arc<dyn Streams>), Problem> {
    let source = Source::to_read(server, caller, scope)?;
    let streams = server.store.streams(&source.caller.tenant, &source.scope)?;
    Ok((source, streams))
}

fn page(name: String, query: PageQuery) -> Result<StreamQuery, Problem> {
    let partitions = match (query.partition, Switch::is_on(query.without_partition)) {
        (None, false) => Partitions::All,
        (None, true) => Partitions::Without,
        (Some(partition), false) => Partitions::One(partition.into()),
        (Some(_), true) => {
            return Err(Problem::query("partition", "cannot be combined with without_partition; give one of them"));
        }
    };
    let wanted = StreamQuery {
        from: query.from.map_or(0, |from| from.0),
        to: query.to.map_or(StreamPosition::MAX, |to| to.0),
        limit: Limit::or_default(query.limit),
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
        let (tenant, scope) = (&*self.source.caller.tenant, &*self.source.scope);
        let view = |event| StreamEventView { event, tenant, scope };
        let mut answer = serializer.serialize_struct("Events", 3)?;
        answer.serialize_field("events", &self.found.events.iter().map(view).collect::<Vec<_>>())?;
        answer.serialize_field("next", &self.found.next)?;
        answer.serialize_field("head", &self.found.head)?;
        answer.end()
    }
}
