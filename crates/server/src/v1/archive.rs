//! `/v1/retention`, `/v1/holds` and the archive below `/v1/events`.

use std::sync::Arc;

use annals_core::Code;
use annals_core::archive::{Archive, ArchiveError, HoldBody, RetentionBody};
use axum::extract::{Path, Request, State};
use axum::http::StatusCode;
use axum::response::Response;

use super::browse::PageQuery;
use super::managed::{ListQuery, deleted, put as answer_put, read, reason};
use crate::answer::json;
use crate::caller::Caller;
use crate::payload::Payload;
use crate::problem::Problem;
use crate::query::Query;
use crate::route::{self, Feature, Permission, get, post, put};
use crate::schemas;
use crate::state::Server;

/// Returns the operations on retention, holds and the archive.
pub(crate) fn feature() -> Feature {
    let operator = Permission::Operator;
    let why = Payload::body::<schemas::Reason>;
    let operations = vec![
        get("/v1/retention", Permission::Reader, rules).described(
            "listRetention",
            "Lists the retention of categories and types, with the state of the archive.",
            Payload::json::<schemas::RetentionPage>(),
        ),
        put("/v1/retention/{name}", operator, put_rule)
            .described(
                "putRetention",
                "Sets how long events of a category or a type are kept, and where they go afterwards.",
                Payload::json::<schemas::RetentionStatus>().created(),
            )
            .takes(Payload::body::<schemas::RetentionBody>()),
        route::delete("/v1/retention/{name}", operator, remove_rule)
            .described(
                "deleteRetention",
                "Removes the retention of a category or a type.",
                Payload::json::<schemas::Deleted>(),
            )
            .takes(why())
            .refuses(&[Code::UnknownRetention]),
        get("/v1/holds", Permission::Reader, holds).described(
            "listHolds",
            "Lists the holds.",
            Payload::json::<schemas::HoldPage>(),
        ),
        get("/v1/holds/{name}", Permission::Reader, hold)
            .described("getHold", "Returns a hold.", Payload::json::<schemas::HoldStatus>())
            .refuses(&[Code::UnknownHold]),
        put("/v1/holds/{name}", operator, put_hold)
            .described(
                "putHold",
                "Protects the events that a filter selects.",
                Payload::json::<schemas::HoldStatus>().created(),
            )
            .takes(Payload::body::<schemas::HoldBody>()),
        route::delete("/v1/holds/{name}", operator, remove_hold)
            .described("deleteHold", "Removes a hold.", Payload::json::<schemas::Deleted>())
            .takes(why())
            .refuses(&[Code::UnknownHold]),
        get("/v1/events/archive", Permission::Reader, page).described(
            "listArchivedEvents",
            "Returns one page of archived events.",
            Payload::json::<schemas::ArchivePage>(),
        ),
        get("/v1/events/archive/files", Permission::Reader, files).described(
            "listArchiveFiles",
            "Lists the files of the archive.",
            Payload::json::<schemas::ArchiveFilePage>(),
        ),
        route::delete("/v1/events/{event_id}", operator, delete)
            .described(
                "deleteEvent",
                "Moves an event from the browse view into the archive.",
                Payload::json::<schemas::DeletedEvent>(),
            )
            .takes(why())
            .refuses(&[Code::BrowseViewOff, Code::UnknownEvent, Code::StateConflict]),
        post("/v1/events/{event_id}/restore", operator, restore)
            .described(
                "restoreEvent",
                "Puts an archived event back into the browse view.",
                Payload::json::<schemas::BrowsedEvent>(),
            )
            .takes(why())
            .refuses(&[Code::BrowseViewOff, Code::UnknownArchivedEvent, Code::StateConflict]),
    ];
    Feature::new("Retention", operations)
}

fn archive(server: &Server, caller: &Caller) -> Result<Arc<dyn Archive>, Problem> {
    Ok(server.host.archive(&caller.tenant)?)
}

/// `GET /v1/retention`.
async fn rules(
    State(server): State<Arc<Server>>,
    Query(query): Query<ListQuery>,
    caller: Caller,
) -> Result<Response, Problem> {
    let (after, limit) = query.page()?;
    json(StatusCode::OK, &archive(&server, &caller)?.rules(after, limit).await?)
}

/// `PUT /v1/retention/{name}`.
async fn put_rule(
    State(server): State<Arc<Server>>,
    Path(name): Path<String>,
    caller: Caller,
    request: Request,
) -> Result<Response, Problem> {
    let archive = archive(&server, &caller)?;
    let body: RetentionBody = read(&server, request).await?;
    let is_new = !body.dry_run;
    let put = archive.put_rule(&name, body).await?;
    answer_put(put.created && is_new, &put)
}

/// `DELETE /v1/retention/{name}`.
async fn remove_rule(
    State(server): State<Arc<Server>>,
    Path(name): Path<String>,
    caller: Caller,
    request: Request,
) -> Result<Response, Problem> {
    let archive = archive(&server, &caller)?;
    archive.remove_rule(&name, reason(&server, request).await?).await?;
    deleted()
}

/// `GET /v1/holds`.
async fn holds(
    State(server): State<Arc<Server>>,
    Query(query): Query<ListQuery>,
    caller: Caller,
) -> Result<Response, Problem> {
    let (after, limit) = query.page()?;
    json(StatusCode::OK, &archive(&server, &caller)?.holds(after, limit).await?)
}

/// `GET /v1/holds/{name}`.
async fn hold(
    State(server): State<Arc<Server>>,
    Path(name): Path<String>,
    caller: Caller,
) -> Result<Response, Problem> {
    json(StatusCode::OK, &archive(&server, &caller)?.hold(&name).await?)
}

/// `PUT /v1/holds/{name}`.
async fn put_hold(
    State(server): State<Arc<Server>>,
    Path(name): Path<String>,
    caller: Caller,
    request: Request,
) -> Result<Response, Problem> {
    let archive = archive(&server, &caller)?;
    let body: HoldBody = read(&server, request).await?;
    let (hold, created) = archive.put_hold(&name, body).await?;
    answer_put(created, &hold)
}

/// `DELETE /v1/holds/{name}`.
async fn remove_hold(
    State(server): State<Arc<Server>>,
    Path(name): Path<String>,
    caller: Caller,
    request: Request,
) -> Result<Response, Problem> {
    let archive = archive(&server, &caller)?;
    archive.remove_hold(&name, reason(&server, request).await?).await?;
    deleted()
}

/// `GET /v1/events/archive`.
async fn page(
    State(server): State<Arc<Server>>,
    Query(query): Query<PageQuery>,
    caller: Caller,
) -> Result<Response, Problem> {
    let (archive, query) = (archive(&server, &caller)?, query.of_page()?);
    json(StatusCode::OK, &server.query(async move { archive.page(query).await }).await?)
}

/// `GET /v1/events/archive/files`.
async fn files(
    State(server): State<Arc<Server>>,
    Query(query): Query<ListQuery>,
    caller: Caller,
) -> Result<Response, Problem> {
    let (after, limit) = query.page()?;
    json(StatusCode::OK, &archive(&server, &caller)?.files(after, limit).await?)
}

/// `DELETE /v1/events/{event_id}`.
async fn delete(
    State(server): State<Arc<Server>>,
    Path(id): Path<String>,
    caller: Caller,
    request: Request,
) -> Result<Response, Problem> {
    let archive = archive(&server, &caller)?;
    json(StatusCode::OK, &archive.delete(&id, reason(&server, request).await?).await?)
}

/// `POST /v1/events/{event_id}/restore`.
async fn restore(
    State(server): State<Arc<Server>>,
    Path(id): Path<String>,
    caller: Caller,
    request: Request,
) -> Result<Response, Problem> {
    let archive = archive(&server, &caller)?;
    json(StatusCode::OK, &archive.restore(&id, reason(&server, request).await?).await?)
}

impl From<ArchiveError> for Problem {
    fn from(error: ArchiveError) -> Self {
        let problem = Self::new(error.code(), error.to_string());
        match error {
            ArchiveError::Invalid(invalid) => invalid.into(),
            ArchiveError::Store(error) => annals_core::ReadError::Store(error).into(),
            ArchiveError::UnknownEvent(name)
            | ArchiveError::NotArchived(name)
            | ArchiveError::UnknownRule(name)
            | ArchiveError::UnknownHold(name) => problem.fact("name", name),
            ArchiveError::NotAllowed { act, what, state } => {
                problem.fact("act", act).fact("what", what).fact("state", state)
            }
            _ => problem,
        }
    }
}
