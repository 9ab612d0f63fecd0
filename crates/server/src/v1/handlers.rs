//! `/v1/handlers`: programs in any language that process events in order per partition. They pull deliveries and settle them.

use std::sync::Arc;

use annals_core::handlers::{
    ActBody, Delivery, HandlerDefinition, HandlerError, PullBody, SettleBody, SettleResult, write_deliveries,
};
use annals_core::wire::EventView;
use annals_core::{ByteString, Code};
use axum::extract::{Path, Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize, Serializer};
use utoipa::IntoParams;

use super::managed::{self, ListQuery, definition, deleted, page_length, read, reason, while_serving};
use crate::accept::Accept;
use crate::answer::{data_bytes, json, json_of_events, written};
use crate::caller::Caller;
use crate::media;
use crate::payload::Payload;
use crate::problem::Problem;
use crate::query::{Limit, Query};
use crate::route::{self, Feature, Operation, Permission, get, post};
use crate::schemas;
use crate::scoped::ScopedHandlers;
use crate::state::Server;

const ONE: &str = "/v1/handlers/{name}";

/// Returns the operations on handlers.
pub(crate) fn feature() -> Feature {
    let mut operations = vec![
        get("/v1/handlers", Permission::Reader, list).described(
            "listHandlers",
            "Lists handlers and their state.",
            Payload::json::<schemas::HandlerPage>(),
        ),
        get(ONE, Permission::Reader, one)
            .described("getHandler", "Returns the state of a handler.", Payload::json::<schemas::HandlerStatus>())
            .refuses(&[Code::UnknownHandler]),
        route::put(ONE, Permission::Operator, put)
            .described(
                "putHandler",
                "Defines a handler, or changes how it hands out events.",
                Payload::json::<schemas::HandlerStatus>().created(),
            )
            .takes(Payload::body::<schemas::HandlerDefinition>())
            .refuses(&[Code::InvalidHandler, Code::HandlerChanged]),
        route::delete(ONE, Permission::Operator, delete)
            .described(
                "deleteHandler",
                "Deletes a handler with its position, failing partitions and parked events.",
                Payload::json::<schemas::Deleted>(),
            )
            .takes(Payload::body::<schemas::Reason>())
            .refuses(&[Code::UnknownHandler]),
        post("/v1/handlers/{name}/pull", Permission::Writer, pull)
            .described("pullHandler", "Pulls deliveries of a handler.", Payload::document::<schemas::Deliveries>())
            .takes(Payload::body::<schemas::Pull>())
            .refuses(&[Code::UnknownHandler]),
        post("/v1/handlers/{name}/settle", Permission::Writer, settle)
            .described("settleHandler", "Settles deliveries of a handler.", Payload::json::<schemas::Settled>())
            .takes(Payload::body::<schemas::Settlements>())
            .refuses(&[Code::UnknownHandler, Code::HandlerOwnedElsewhere]),
        get("/v1/handlers/{name}/partitions", Permission::Reader, partitions)
            .described(
                "listFailingPartitions",
                "Lists the failing partitions of a handler.",
                Payload::json::<schemas::FailingPartitionPage>(),
            )
            .refuses(&[Code::UnknownHandler]),
        get("/v1/handlers/{name}/acts", Permission::Reader, listed_acts)
            .described(
                "listHandlerActs",
                "Lists the acts of operators on a handler, newest first, even after its deletion.",
                Payload::json::<schemas::HandlerActPage>(),
            )
            .refuses(&[Code::UnknownHandler]),
    ];
    operations.extend(acts());
    let operations: Vec<_> = operations.into_iter().map(Operation::with_scope_in_definition).collect();
    Feature::new("Handlers", operations)
}

fn acts() -> [Operation; 7] {
    const REFUSALS: &[Code] =
        &[Code::UnknownHandler, Code::UnknownPartition, Code::StateConflict, Code::HandlerOwnedElsewhere];
    let done = |draft: route::Draft, id, summary| {
        draft.described(id, summary, Payload::json::<schemas::HandlerStatus>()).refuses(REFUSALS)
    };
    let act = |draft, id, summary| done(draft, id, summary).takes(Payload::body::<schemas::Reason>());
    let on_event = |draft, id, summary| done(draft, id, summary).takes(Payload::body::<schemas::EventAct>());
    let operator = Permission::Operator;
    [
        act(
            post("/v1/handlers/{name}/pause", operator, pause),
            "pauseHandler",
            "Stops handing out events of a handler; those in flight can still be settled.",
        ),
        act(
            post("/v1/handlers/{name}/resume", operator, resume),
            "resumeHandler",
            "Resumes handing out events of a handler.",
        ),
        done(
            post("/v1/handlers/{name}/move", operator, moved),
            "moveHandler",
            "Moves a handler to another position of its source.",
        )
        .takes(Payload::body::<schemas::HandlerMove>()),
        done(
            post("/v1/handlers/{name}/replay", operator, replay),
            "replayHandler",
            "Redelivers events that the handler has passed; their deliveries are marked as replays.",
        )
        .takes(Payload::body::<schemas::HandlerReplay>()),
        act(
            post("/v1/handlers/{name}/partitions/{partition}/retry", operator, retry),
            "retryPartition",
            "Retries the event of a failing partition immediately, and restarts its retry policy.",
        ),
        on_event(
            post("/v1/handlers/{name}/partitions/{partition}/skip", operator, skip),
            "skipEvent",
            "Skips the event of a failing partition, and records the act.",
        ),
        on_event(
            post("/v1/handlers/{name}/partitions/{partition}/park", operator, park),
            "parkEvent",
            "Parks the event of a failing partition, so that the partition continues.",
        ),
    ]
}

/// The parameters of a list of partitions.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct PartitionsQuery {
    /// Only `failing`, which is also the default.
    state: Option<String>,
    /// The length of the page: 1 to 1,000, 100 when absent.
    #[param(inline)]
    limit: Option<Limit>,
    /// The `cursor` of the previous page.
    cursor: Option<String>,
}

fn handlers(server: &Server, caller: &Caller) -> Result<ScopedHandlers, Problem> {
    ScopedHandlers::of(server, caller)
}

/// `GET /v1/handlers`.
async fn list(
    State(server): State<Arc<Server>>,
    Query(query): Query<ListQuery>,
    caller: Caller,
) -> Result<Response, Problem> {
    let (after, limit) = query.page()?;
    json(StatusCode::OK, &handlers(&server, &caller)?.list(after, limit).await?)
}

/// `GET /v1/handlers/{name}`.
async fn one(State(server): State<Arc<Server>>, Path(name): Path<String>, caller: Caller) -> Result<Response, Problem> {
    json(StatusCode::OK, &handlers(&server, &caller)?.get(&name).await?)
}

/// `PUT /v1/handlers/{name}`.
async fn put(
    State(server): State<Arc<Server>>,
    Path(name): Path<String>,
    caller: Caller,
    request: Request,
) -> Result<Response, Problem> {
    let handlers = handlers(&server, &caller)?;
    let held = definition(&server, request).await?;
    let definition = HandlerDefinition::read(&name, &held.bytes)?;
    let new = handlers.put(definition).await?;
    managed::put(new, &handlers.get(&name).await?)
}

/// `DELETE /v1/handlers/{name}`.
async fn delete(
    State(server): State<Arc<Server>>,
    Path(name): Path<String>,
    caller: Caller,
    request: Request,
) -> Result<Response, Problem> {
    let handlers = handlers(&server, &caller)?;
    handlers.delete(&name, reason(&server, request).await?).await?;
    deleted()
}

/// `POST /v1/handlers/{name}/pull`. If the caller disconnects before the response, it has taken nothing.
async fn pull(
    State(server): State<Arc<Server>>,
    Path(name): Path<String>,
    caller: Caller,
    accept: Accept,
    request: Request,
) -> Result<Response, Problem> {
    let handlers = handlers(&server, &caller)?;
    let pull: PullBody = read(&server, request).await?;
    let deliveries = while_serving(&server, handlers.pull(&name, pull), "pull").await?;
    let scope = server.host.handler_scope(&caller.tenant, &name);
    delivered(deliveries, (caller.tenant, scope), &accept).await
}

/// Responds to a pull with deliveries of events from a scope of a tenant.
pub(super) async fn delivered(
    deliveries: Vec<Delivery>,
    (tenant, scope): (String, String),
    accept: &Accept,
) -> Result<Response, Problem> {
    if accept.bson {
        let mut response = written(StatusCode::OK, write_deliveries(&deliveries));
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media::BSON));
        return Ok(response);
    }
    let bytes = data_bytes(deliveries.iter().map(|delivery| &delivery.event));
    json_of_events(bytes, Deliveries { deliveries, tenant, scope }).await
}

/// `POST /v1/handlers/{name}/settle`.
async fn settle(
    State(server): State<Arc<Server>>,
    Path(name): Path<String>,
    caller: Caller,
    request: Request,
) -> Result<Response, Problem> {
    #[derive(Serialize)]
    struct Settled {
        results: Vec<SettleResult>,
    }
    let handlers = handlers(&server, &caller)?;
    let settle: SettleBody = read(&server, request).await?;
    json(StatusCode::OK, &Settled { results: handlers.settle(&name, settle).await? })
}

/// `GET /v1/handlers/{name}/partitions`.
async fn partitions(
    State(server): State<Arc<Server>>,
    Path(name): Path<String>,
    Query(query): Query<PartitionsQuery>,
    caller: Caller,
) -> Result<Response, Problem> {
    if let Some(other) = query.state.as_deref().filter(|state| *state != "failing") {
        return Err(Problem::query("state", format!("{other:?} cannot be listed; use failing")));
    }
    let limit = page_length(query.limit)?;
    json(StatusCode::OK, &handlers(&server, &caller)?.partitions(&name, query.cursor.as_deref(), limit).await?)
}

/// `GET /v1/handlers/{name}/acts`.
async fn listed_acts(
    State(server): State<Arc<Server>>,
    Path(name): Path<String>,
    Query(query): Query<ListQuery>,
    caller: Caller,
) -> Result<Response, Problem> {
    let (after, limit) = query.page()?;
    json(StatusCode::OK, &handlers(&server, &caller)?.acts(&name, after, limit).await?)
}

macro_rules! handler_acts {
    ($($function:ident $act:literal)+) => {$(
        async fn $function(
            State(server): State<Arc<Server>>,
            Path(name): Path<String>,
            caller: Caller,
            request: Request,
        ) -> Result<Response, Problem> {
            act(&server, &caller, &name, ($act, None), request).await
        }
    )+};
}

macro_rules! partition_acts {
    ($($function:ident $act:literal)+) => {$(
        async fn $function(
            State(server): State<Arc<Server>>,
            Path((name, partition)): Path<(String, String)>,
            caller: Caller,
            request: Request,
        ) -> Result<Response, Problem> {
            act(&server, &caller, &name, ($act, Some(partition.into())), request).await
        }
    )+};
}

handler_acts! { pause "pause" resume "resume" moved "move" replay "replay" }
partition_acts! { retry "retry" skip "skip" park "park" }

/// Performs an act of an operator, and responds with the resulting state of the handler.
async fn act(
    server: &Server,
    caller: &Caller,
    name: &str,
    (act, partition): (&str, Option<ByteString>),
    request: Request,
) -> Result<Response, Problem> {
    let handlers = handlers(server, caller)?;
    let body: ActBody = read(server, request).await?;
    let (act, reason) = body.read(act, partition)?;
    handlers.act(name, act, reason).await?;
    json(StatusCode::OK, &handlers.get(name).await?)
}

struct Deliveries {
    deliveries: Vec<Delivery>,
    tenant: String,
    scope: String,
}

impl Serialize for Deliveries {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let views: Vec<_> = self
            .deliveries
            .iter()
            .map(|delivery| DeliveryView { delivery, source: (&self.tenant, &self.scope) })
            .collect();
        let mut map = serializer.serialize_map(Some(1))?;
        map.serialize_entry("deliveries", &views)?;
        map.end()
    }
}

struct DeliveryView<'a> {
    delivery: &'a Delivery,
    /// Tenant and scope.
    source: (&'a str, &'a str),
}

impl Serialize for DeliveryView<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let delivery = self.delivery;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("token", &delivery.token)?;
        let event = EventView { event: &delivery.event, tenant: self.source.0, scope: self.source.1 };
        map.serialize_entry("event", &event)?;
        map.serialize_entry("position", &delivery.position)?;
        if let Some(partition) = &delivery.partition {
            map.serialize_entry("partition", partition)?;
        }
        map.serialize_entry("attempt", &delivery.attempt)?;
        if let Some(reason) = &delivery.last_reason {
            map.serialize_entry("last_reason", reason)?;
        }
        map.serialize_entry("until", &delivery.until)?;
        if let Some(replay) = &delivery.replay {
            map.serialize_entry("replay", replay)?;
        }
        if let Some(topic) = &delivery.topic {
            map.serialize_entry("topic", topic)?;
        }
        if let Some(trace) = &delivery.trace {
            map.serialize_entry("traceparent", &format_args!("{trace}"))?;
        }
        map.end()
    }
}

impl From<HandlerError> for Problem {
    fn from(error: HandlerError) -> Self {
        let problem = Self::new(error.code(), error.to_string());
        match error {
            HandlerError::Invalid(invalid) => invalid.into(),
            HandlerError::Store(error) => annals_core::ReadError::Store(error).into(),
            HandlerError::Unknown(name) => problem.fact("name", &*name),
            HandlerError::UnknownPartition { handler, partition } => {
                problem.fact("name", &*handler).fact("partition", &*partition)
            }
            HandlerError::Changed { name, setting } => problem.fact("name", &*name).fact("setting", setting),
            HandlerError::NotAllowed { act, what, state } => {
                problem.fact("act", act).fact("what", what).fact("state", state)
            }
            HandlerError::OwnedElsewhere { name, owner } => problem.fact("name", &*name).fact("owner", owner),
            _ => problem,
        }
    }
}
