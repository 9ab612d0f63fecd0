//! `/v1/projections`: records that are derived from the events of the log.

use std::sync::Arc;

use annals_core::bson::Bson;
use annals_core::bson::raw::RawDocument;
use annals_core::projections::{ProjectionAct, ProjectionDefinition, ProjectionError, Projections, PutProjection};
use annals_core::wire::records as wire;
use annals_core::{Code, Condition, Cursor, DocumentView, Invalid, RecordQuery};
use axum::extract::{Path, Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use utoipa::IntoParams;

use super::managed::{self, ListQuery, definition, deleted, page_length, reason};
use crate::accept::Accept;
use crate::answer::json;
use crate::asked::{self, Asked};
use crate::caller::Caller;
use crate::documents::{answer, answer_as};
use crate::payload::Payload;
use crate::problem::Problem;
use crate::query::{Limit, Query, Switch};
use crate::route::{self, Feature, Permission, get, post};
use crate::schemas;
use crate::state::Server;

const ONE: &str = "/v1/projections/{name}";
const RECORDS: &str = "/v1/projections/{name}/records";

/// Returns the operations on projections.
pub(crate) fn feature() -> Feature {
    const REFUSALS: &[Code] = &[Code::UnknownProjection, Code::StateConflict];
    let status = Payload::json::<schemas::ProjectionStatus>;
    let act = |draft: route::Draft, id, summary| {
        draft.described(id, summary, status()).takes(Payload::body::<schemas::Reason>()).refuses(REFUSALS)
    };
    let operator = Permission::Operator;
    let operations = vec![
        get("/v1/projections", Permission::Reader, list).described(
            "listProjections",
            "Lists projections and their state.",
            Payload::json::<schemas::ProjectionPage>(),
        ),
        get(ONE, Permission::Reader, one)
            .described("getProjection", "Returns the state of a projection.", status())
            .refuses(&[Code::UnknownProjection]),
        route::put(ONE, operator, put)
            .described(
                "putProjection",
                "Defines a projection, or builds a changed definition beside the live records.",
                status().created(),
            )
            .takes(Payload::body::<schemas::ProjectionDefinition>())
            .refuses(&[Code::InvalidProjection, Code::StateConflict]),
        route::delete(ONE, operator, delete)
            .described("deleteProjection", "Deletes a projection and its records.", Payload::json::<schemas::Deleted>())
            .takes(Payload::body::<schemas::Reason>())
            .refuses(&[Code::UnknownProjection]),
        get(RECORDS, Permission::Reader, records)
            .described(
                "listProjectedRecords",
                "Returns one page of the live records that match a condition.",
                Payload::document::<schemas::ProjectedRecords>(),
            )
            .refuses(&[Code::UnknownProjection]),
        post(RECORDS, Permission::Reader, find)
            .described(
                "findProjectedRecords",
                "Returns one page of the live records that match a query.",
                Payload::document::<schemas::ProjectedRecords>(),
            )
            .takes(Payload::asked::<schemas::FindQuery>())
            .refuses(&[Code::UnknownProjection]),
        get("/v1/projections/{name}/records/{key}", Permission::Reader, record)
            .described(
                "getProjectedRecord",
                "Returns the live record of a key.",
                Payload::document::<schemas::Record>(),
            )
            .refuses(&[Code::UnknownProjection, Code::UnknownRecord]),
        act(post("/v1/projections/{name}/pause", operator, pause), "pauseProjection", "Pauses a projection."),
        act(
            post("/v1/projections/{name}/resume", operator, resume),
            "resumeProjection",
            "Resumes a projection that is paused or blocked.",
        ),
        act(
            post("/v1/projections/{name}/rebuild", operator, rebuild),
            "rebuildProjection",
            "Rebuilds the records of a projection beside the live ones.",
        ),
        get("/v1/projections/{name}/acts", Permission::Reader, acts)
            .described(
                "listProjectionActs",
                "Lists the acts of operators on a projection, newest first, even after its deletion.",
                Payload::json::<schemas::HandlerActPage>(),
            )
            .refuses(&[Code::UnknownProjection]),
    ];
    Feature::new("Projections", operations)
}

/// The parameters of a page of records.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct RecordsQuery {
    /// The condition on the records, as text such as `state = 'paid' and total > 50`, or as JSON; all when absent.
    condition: Option<String>,
    /// The fields to sort by, with commas between; `-` before a field reverses its order. By key when absent.
    sort: Option<String>,
    /// The length of the page: 1 to 1,000, 100 when absent.
    #[param(inline)]
    limit: Option<Limit>,
    /// The `cursor` of the previous page.
    cursor: Option<String>,
}

/// The parameters of one record.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct KeyQuery {
    /// The key in the path is a value in Extended JSON rather than a text.
    #[param(inline)]
    ejson: Option<Switch>,
}

fn projections(server: &Server, caller: &Caller) -> Result<Arc<dyn Projections>, Problem> {
    Ok(server.host.projections(&caller.tenant)?)
}

/// `GET /v1/projections`.
async fn list(
    State(server): State<Arc<Server>>,
    Query(query): Query<ListQuery>,
    caller: Caller,
) -> Result<Response, Problem> {
    let (after, limit) = query.page()?;
    json(StatusCode::OK, &projections(&server, &caller)?.list(after, limit).await?)
}

/// `GET /v1/projections/{name}`.
async fn one(State(server): State<Arc<Server>>, Path(name): Path<String>, caller: Caller) -> Result<Response, Problem> {
    json(StatusCode::OK, &projections(&server, &caller)?.get(&name).await?)
}

/// `PUT /v1/projections/{name}`.
async fn put(
    State(server): State<Arc<Server>>,
    Path(name): Path<String>,
    caller: Caller,
    request: Request,
) -> Result<Response, Problem> {
    let projections = projections(&server, &caller)?;
    let held = definition(&server, request).await?;
    let put = projections.put(ProjectionDefinition::read(&name, &held.bytes)?).await?;
    managed::put(put == PutProjection::Created, &projections.get(&name).await?)
}

/// `DELETE /v1/projections/{name}`.
async fn delete(
    State(server): State<Arc<Server>>,
    Path(name): Path<String>,
    caller: Caller,
    request: Request,
) -> Result<Response, Problem> {
    let projections = projections(&server, &caller)?;
    projections.delete(&name, reason(&server, request).await?).await?;
    deleted()
}

/// `GET /v1/projections/{name}/records`.
async fn records(
    State(server): State<Arc<Server>>,
    Path(name): Path<String>,
    Query(query): Query<RecordsQuery>,
    caller: Caller,
    accept: Accept,
) -> Result<Response, Problem> {
    let condition = match query.condition.as_deref().map(str::trim) {
        None | Some("") => Condition::All,
        Some(json) if json.starts_with('{') => {
            let body = format!("{{\"condition\":{json}}}");
            wire::read_condition(body.as_bytes(), wire::Encoding::Json)?
        }
        Some(text) => Condition::parse(text)?,
    };
    server.options.query_guard.check(&condition)?;
    let mut asked = RecordQuery::new("").matching(condition).limit(page_length(query.limit)?);
    for field in query.sort.iter().flat_map(|sort| sort.split(',')).filter(|field| !field.is_empty()) {
        asked = match field.strip_prefix('-') {
            Some(field) => asked.descending(field),
            None => asked.ascending(field),
        };
    }
    asked.after = query.cursor.map(Cursor::new);
    found(&server, &caller, name, asked, accept).await
}

/// `POST /v1/projections/{name}/records`.
async fn find(
    State(server): State<Arc<Server>>,
    Path(name): Path<String>,
    caller: Caller,
    accept: Accept,
    request: Request,
) -> Result<Response, Problem> {
    let guard = server.options.query_guard;
    let read_query = move |bytes: &[u8], encoding| {
        let query = wire::read_query("", bytes, encoding)?;
        guard.check(&query.condition)?;
        Ok(query)
    };
    let Asked { read: query, held: _held } =
        asked::read(&server, request, server.options.body_bytes_max, read_query).await?;
    found(&server, &caller, name, query, accept).await
}

async fn found(
    server: &Server,
    caller: &Caller,
    name: String,
    query: RecordQuery,
    accept: Accept,
) -> Result<Response, Problem> {
    let projections = projections(server, caller)?;
    let page = server.query(async move { projections.find(&name, query).await }).await?;
    // In BSON it is a page of records, with their revisions.
    answer_as(accept, wire::page(&page), shown).await
}

fn shown(page: &RawDocument) -> serde_json::Result<Vec<u8>> {
    let records = page.get_array("records").ok().into_iter().flatten().flatten();
    let documents = records.filter_map(|record| record.as_document()?.get_document("document").ok());
    let items: Vec<_> = documents.map(DocumentView).collect();
    serde_json::to_vec(&Items { items, cursor: page.get_str("next").ok() })
}

#[derive(Serialize)]
struct Items<'a> {
    items: Vec<DocumentView<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cursor: Option<&'a str>,
}

/// `GET /v1/projections/{name}/records/{key}`.
async fn record(
    State(server): State<Arc<Server>>,
    Path((name, key)): Path<(String, String)>,
    Query(query): Query<KeyQuery>,
    caller: Caller,
    accept: Accept,
) -> Result<Response, Problem> {
    let key = match Switch::is_on(query.ejson) {
        true => wire::extended_value(&key).map_err(|message| Invalid::new(Code::InvalidRecord, "key", message))?,
        false => Bson::String(key),
    };
    let found = projections(&server, &caller)?.record(&name, &key).await?;
    let missing = || Problem::new(Code::UnknownRecord, format!("projection {name:?} has no record {key}"));
    answer(accept, wire::record(&found.ok_or_else(missing)?)).await
}

/// `GET /v1/projections/{name}/acts`.
async fn acts(
    State(server): State<Arc<Server>>,
    Path(name): Path<String>,
    Query(query): Query<ListQuery>,
    caller: Caller,
) -> Result<Response, Problem> {
    let (after, limit) = query.page()?;
    json(StatusCode::OK, &projections(&server, &caller)?.acts(&name, after, limit).await?)
}

macro_rules! projection_acts {
    ($($function:ident $act:ident)+) => {$(
        async fn $function(
            State(server): State<Arc<Server>>,
            Path(name): Path<String>,
            caller: Caller,
            request: Request,
        ) -> Result<Response, Problem> {
            act(&server, &caller, &name, ProjectionAct::$act, request).await
        }
    )+};
}

projection_acts! { pause Pause resume Resume rebuild Rebuild }

/// Performs an act of an operator, and responds with the resulting state of the projection.
async fn act(
    server: &Server,
    caller: &Caller,
    name: &str,
    act: ProjectionAct,
    request: Request,
) -> Result<Response, Problem> {
    let projections = projections(server, caller)?;
    let reason = reason(server, request).await?;
    projections.act(name, act, reason).await?;
    json(StatusCode::OK, &projections.get(name).await?)
}

impl From<ProjectionError> for Problem {
    fn from(error: ProjectionError) -> Self {
        let problem = Self::new(error.code(), error.to_string());
        match error {
            ProjectionError::Invalid(invalid) => invalid.into(),
            ProjectionError::Store(error) => annals_core::ReadError::Store(error).into(),
            ProjectionError::Unknown(name) => problem.fact("name", &*name),
            ProjectionError::NotAllowed { act, what, state } => {
                problem.fact("act", act).fact("what", what).fact("state", state)
            }
            _ => problem,
        }
    }
}
