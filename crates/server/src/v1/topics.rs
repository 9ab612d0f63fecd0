//! `/v1/topics`: the topics on which the broker carries event types.

use std::sync::Arc;

use annals_core::{BrokerError, Code, Topics};
use axum::extract::{Path, Request, State};
use axum::http::StatusCode;
use axum::response::Response;

use super::managed::{ListQuery, reason};
use crate::answer::json;
use crate::caller::Caller;
use crate::payload::Payload;
use crate::problem::Problem;
use crate::query::Query;
use crate::route::{Feature, Permission, get, post};
use crate::schemas;
use crate::state::Server;

/// Returns the operations on topics.
pub(crate) fn feature() -> Feature {
    let operations = [
        get("/v1/topics", Permission::Reader, list).described(
            "listTopics",
            "Lists topics.",
            Payload::json::<schemas::TopicPage>(),
        ),
        get("/v1/topics/{name}", Permission::Reader, one)
            .described(
                "getTopic",
                "Returns a topic with the groups that read it.",
                Payload::json::<schemas::TopicStatus>(),
            )
            .refuses(&[Code::UnknownTopic, Code::BrokerUnavailable]),
        post("/v1/topics/{name}/apply", Permission::Operator, apply)
            .described(
                "applyTopic",
                "Applies the configured partitions and retention to a topic.",
                Payload::json::<schemas::TopicStatus>(),
            )
            .takes(Payload::body::<schemas::Reason>())
            .refuses(&[Code::UnknownTopic, Code::StateConflict, Code::BrokerUnavailable]),
    ];
    Feature::new("Topics", operations)
}

fn topics(server: &Server, caller: &Caller) -> Result<Arc<dyn Topics>, Problem> {
    Ok(server.host.topics(&caller.tenant)?)
}

/// `GET /v1/topics`.
async fn list(
    State(server): State<Arc<Server>>,
    Query(query): Query<ListQuery>,
    caller: Caller,
) -> Result<Response, Problem> {
    let (after, limit) = query.page()?;
    json(StatusCode::OK, &topics(&server, &caller)?.list(after, limit).await?)
}

/// `GET /v1/topics/{name}`.
async fn one(State(server): State<Arc<Server>>, Path(name): Path<String>, caller: Caller) -> Result<Response, Problem> {
    json(StatusCode::OK, &topics(&server, &caller)?.get(&name).await?)
}

/// `POST /v1/topics/{name}/apply`.
async fn apply(
    State(server): State<Arc<Server>>,
    Path(name): Path<String>,
    caller: Caller,
    request: Request,
) -> Result<Response, Problem> {
    let topics = topics(&server, &caller)?;
    json(StatusCode::OK, &topics.apply(&name, reason(&server, request).await?).await?)
}

impl From<BrokerError> for Problem {
    fn from(error: BrokerError) -> Self {
        let problem = Self::new(error.code(), error.to_string());
        match error {
            BrokerError::Invalid(invalid) => invalid.into(),
            BrokerError::Store(error) => annals_core::ReadError::Store(error).into(),
            BrokerError::UnknownTopic(name) => problem.fact("name", &*name),
            BrokerError::Refused(reason) | BrokerError::Unavailable(reason) => problem.fact("reason", reason),
            _ => problem,
        }
    }
}
