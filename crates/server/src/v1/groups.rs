//! `/v1/groups`: groups of consumers of topics, in any language. They pull deliveries and settle them, as handlers do.

use std::sync::Arc;

use annals_core::groups::{GroupDefinition, GroupError, Groups};
use annals_core::handlers::{ActBody, PullBody, SettleBody, SettleResult};
use annals_core::{ByteString, Code, DEFAULT_SCOPE};
use axum::extract::{Path, Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde::Serialize;

use super::handlers::delivered;
use super::managed::{self, ListQuery, definition, deleted, read, reason, while_serving};
use crate::accept::Accept;
use crate::answer::json;
use crate::caller::Caller;
use crate::payload::Payload;
use crate::problem::Problem;
use crate::query::Query;
use crate::route::{self, Feature, Operation, Permission, get, post};
use crate::schemas;
use crate::state::Server;

const ONE: &str = "/v1/groups/{group}";

/// Returns the operations on groups.
pub(crate) fn feature() -> Feature {
    let status = Payload::json::<schemas::GroupStatus>;
    let mut operations = vec![
        get("/v1/groups", Permission::Reader, list).described(
            "listGroups",
            "Lists consumer groups and their state.",
            Payload::json::<schemas::ConsumerGroupPage>(),
        ),
        get(ONE, Permission::Reader, one)
            .described("getGroup", "Returns the state of a consumer group.", status())
            .refuses(&[Code::UnknownGroup]),
        route::put(ONE, Permission::Operator, put)
            .described(
                "putGroup",
                "Defines a consumer group, or changes how it hands out messages.",
                status().created(),
            )
            .takes(Payload::body::<schemas::GroupDefinition>())
            .refuses(&[Code::InvalidGroup, Code::GroupChanged]),
        route::delete(ONE, Permission::Operator, delete)
            .described("deleteGroup", "Deletes a consumer group with its offsets.", Payload::json::<schemas::Deleted>())
            .takes(Payload::body::<schemas::Reason>())
            .refuses(&[Code::UnknownGroup]),
        post("/v1/groups/{group}/pull", Permission::Writer, pull)
            .described("pullGroup", "Pulls deliveries of a group.", Payload::document::<schemas::Deliveries>())
            .takes(Payload::body::<schemas::Pull>())
            .refuses(&[Code::UnknownGroup]),
        post("/v1/groups/{group}/settle", Permission::Writer, settle)
            .described("settleGroup", "Settles deliveries of a group.", Payload::json::<schemas::Settled>())
            .takes(Payload::body::<schemas::Settlements>())
            .refuses(&[Code::UnknownGroup, Code::HandlerOwnedElsewhere]),
        get("/v1/groups/{group}/partitions", Permission::Reader, partitions)
            .described(
                "listFailingKeys",
                "Lists the failing keys of a group.",
                Payload::json::<schemas::FailingPartitionPage>(),
            )
            .refuses(&[Code::UnknownGroup]),
    ];
    operations.extend(acts());
    Feature::new("Groups", operations)
}

fn acts() -> [Operation; 5] {
    const REFUSALS: &[Code] =
        &[Code::UnknownGroup, Code::UnknownPartition, Code::StateConflict, Code::HandlerOwnedElsewhere];
    let done = |draft: route::Draft, id, summary| {
        draft.described(id, summary, Payload::json::<schemas::GroupStatus>()).refuses(REFUSALS)
    };
    let act = |draft, id, summary| done(draft, id, summary).takes(Payload::body::<schemas::Reason>());
    let on_event = |draft, id, summary| done(draft, id, summary).takes(Payload::body::<schemas::EventAct>());
    let operator = Permission::Operator;
    [
        act(post("/v1/groups/{group}/pause", operator, pause), "pauseGroup", "Stops handing out messages of a group."),
        act(
            post("/v1/groups/{group}/resume", operator, resume),
            "resumeGroup",
            "Resumes handing out messages of a group.",
        ),
        act(
            post("/v1/groups/{group}/partitions/{partition}/retry", operator, retry),
            "retryKey",
            "Retries the message of a failing key immediately, and restarts its retry policy.",
        ),
        on_event(
            post("/v1/groups/{group}/partitions/{partition}/skip", operator, skip),
            "skipMessage",
            "Skips the message of a failing key, and records the act.",
        ),
        on_event(
            post("/v1/groups/{group}/partitions/{partition}/park", operator, park),
            "parkMessage",
            "Parks the message of a failing key, so that the key continues.",
        ),
    ]
}

fn groups(server: &Server, caller: &Caller) -> Result<Arc<dyn Groups>, Problem> {
    Ok(server.host.groups(&caller.tenant)?)
}

/// `GET /v1/groups`.
async fn list(
    State(server): State<Arc<Server>>,
    Query(query): Query<ListQuery>,
    caller: Caller,
) -> Result<Response, Problem> {
    let (after, limit) = query.page()?;
    json(StatusCode::OK, &groups(&server, &caller)?.list(after, limit).await?)
}

/// `GET /v1/groups/{group}`.
async fn one(State(server): State<Arc<Server>>, Path(name): Path<String>, caller: Caller) -> Result<Response, Problem> {
    json(StatusCode::OK, &groups(&server, &caller)?.get(&name).await?)
}

/// `PUT /v1/groups/{group}`.
async fn put(
    State(server): State<Arc<Server>>,
    Path(name): Path<String>,
    caller: Caller,
    request: Request,
) -> Result<Response, Problem> {
    let groups = groups(&server, &caller)?;
    let held = definition(&server, request).await?;
    let new = groups.put(GroupDefinition::read(&name, &held.bytes)?).await?;
    managed::put(new, &groups.get(&name).await?)
}

/// `DELETE /v1/groups/{group}`.
async fn delete(
    State(server): State<Arc<Server>>,
    Path(name): Path<String>,
    caller: Caller,
    request: Request,
) -> Result<Response, Problem> {
    let groups = groups(&server, &caller)?;
    groups.delete(&name, reason(&server, request).await?).await?;
    deleted()
}

/// `POST /v1/groups/{group}/pull`. If the caller disconnects before the response, it has taken nothing.
async fn pull(
    State(server): State<Arc<Server>>,
    Path(name): Path<String>,
    caller: Caller,
    accept: Accept,
    request: Request,
) -> Result<Response, Problem> {
    let groups = groups(&server, &caller)?;
    let pull: PullBody = read(&server, request).await?;
    let deliveries = while_serving(&server, groups.pull(&name, pull), "pull").await?;
    delivered(deliveries, (caller.tenant, DEFAULT_SCOPE.to_owned()), &accept).await
}

/// `POST /v1/groups/{group}/settle`.
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
    let groups = groups(&server, &caller)?;
    let settle: SettleBody = read(&server, request).await?;
    json(StatusCode::OK, &Settled { results: groups.settle(&name, settle).await? })
}

/// `GET /v1/groups/{group}/partitions`.
async fn partitions(
    State(server): State<Arc<Server>>,
    Path(name): Path<String>,
    Query(query): Query<ListQuery>,
    caller: Caller,
) -> Result<Response, Problem> {
    let (after, limit) = query.page()?;
    json(StatusCode::OK, &groups(&server, &caller)?.partitions(&name, after, limit).await?)
}

macro_rules! group_acts {
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

macro_rules! key_acts {
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

group_acts! { pause "pause" resume "resume" }
key_acts! { retry "retry" skip "skip" park "park" }

/// Performs an act of an operator, and responds with the resulting state of the group.
async fn act(
    server: &Server,
    caller: &Caller,
    name: &str,
    (act, partition): (&str, Option<ByteString>),
    request: Request,
) -> Result<Response, Problem> {
    let groups = groups(server, caller)?;
    let body: ActBody = read(server, request).await?;
    let (act, reason) = body.read(act, partition)?;
    groups.act(name, act, reason).await?;
    json(StatusCode::OK, &groups.get(name).await?)
}

impl From<GroupError> for Problem {
    fn from(error: GroupError) -> Self {
        let problem = Self::new(error.code(), error.to_string());
        match error {
            GroupError::Invalid(invalid) => invalid.into(),
            GroupError::Processor(error) => error.into(),
            GroupError::Broker(error) => error.into(),
            GroupError::Unknown(name) => problem.fact("name", &*name),
            GroupError::Changed { name, setting } => problem.fact("name", &*name).fact("setting", setting),
            _ => problem,
        }
    }
}
