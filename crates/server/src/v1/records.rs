//! `/v1/records`: documents in collections, and the batch that changes them. The feed of changes is in [`changes`](super::changes).

use std::sync::Arc;

use annals_core::bson::Bson;
use annals_core::wire::records as wire;
use annals_core::wire::records::Encoding;
use annals_core::{
    Code, Invalid, Record, RecordError, RecordQuery, Records, is_secret_collection, is_system_collection, limits,
};
use axum::extract::{Path, Request, State};
use axum::response::Response;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::accept::Accept;
use crate::asked::{self, Asked};
use crate::caller::Caller;
use crate::documents::answer;
use crate::payload::Payload;
use crate::problem::Problem;
use crate::query::{Limit, ListQuery, Query, Switch};
use crate::route::{self, Feature, Permission, post};
use crate::schemas;
use crate::state::Server;

/// Returns the operations on collections and their records.
pub(crate) fn feature() -> Feature {
    const COLLECTION: &str = "/v1/records/collections/{collection}";
    Feature::new(
        "Records",
        [
            route::get("/v1/records/collections", Permission::Reader, list).described(
                "listCollections",
                "Lists the collections of records, in order of their names.",
                Payload::document::<schemas::Collections>(),
            ),
            route::get(COLLECTION, Permission::Reader, describe)
                .described(
                    "describeCollection",
                    "Returns a collection with its indexes.",
                    Payload::document::<schemas::Collection>(),
                )
                .refuses(&[Code::UnknownCollection]),
            route::put(COLLECTION, Permission::Writer, declare)
                .described(
                    "declareCollection",
                    "Declares a collection, its indexes and its feed of changes.",
                    Payload::document::<schemas::Collection>(),
                )
                .takes(Payload::asked::<schemas::Declaration>())
                .refuses(&[Code::IndexConflict, Code::SystemCollection, Code::NotSupportedByStore]),
            post("/v1/records/collections/{collection}/find", Permission::Reader, find)
                .described(
                    "findRecords",
                    "Returns one page of the records that match a condition.",
                    Payload::document::<schemas::RecordPage>(),
                )
                .takes(Payload::asked::<schemas::FindQuery>())
                .refuses(&[Code::UnknownCollection]),
            post("/v1/records/collections/{collection}/explain", Permission::Reader, explain)
                .described(
                    "explainRecords",
                    "Explains how a page of records would be found.",
                    Payload::document::<schemas::Explained>(),
                )
                .takes(Payload::asked::<schemas::FindQuery>())
                .refuses(&[Code::UnknownCollection]),
            post("/v1/records/collections/{collection}/count", Permission::Reader, count)
                .described(
                    "countRecords",
                    "Counts the records that match a condition.",
                    Payload::document::<schemas::Count>(),
                )
                .takes(Payload::asked::<schemas::CountQuery>())
                .refuses(&[Code::UnknownCollection]),
            post("/v1/records/collections/{collection}/group", Permission::Reader, group)
                .described(
                    "groupRecords",
                    "Returns one page of the groups of the records that match a condition.",
                    Payload::document::<schemas::GroupPage>(),
                )
                .takes(Payload::asked::<schemas::GroupQuery>())
                .refuses(&[Code::UnknownCollection]),
            post("/v1/records/collections/{collection}/get", Permission::Reader, get)
                .described(
                    "getRecord",
                    "Returns the record with an id of any type.",
                    Payload::document::<schemas::Record>(),
                )
                .takes(Payload::asked::<schemas::RecordId>())
                .refuses(&[Code::UnknownCollection, Code::UnknownRecord]),
            route::get("/v1/records/collections/{collection}/ids/{id}", Permission::Reader, get_by_text)
                .described(
                    "getRecordByText",
                    "Returns the record with a string id.",
                    Payload::document::<schemas::Record>(),
                )
                .refuses(&[Code::UnknownCollection, Code::UnknownRecord]),
            post("/v1/records/changes", Permission::Writer, write)
                .described(
                    "changeRecords",
                    "Changes records, all or none.",
                    Payload::document::<schemas::ChangeNumbers>(),
                )
                .takes(Payload::asked::<schemas::Changes>())
                .refuses(&[Code::UnknownCollection, Code::RecordConflict, Code::DuplicateKey, Code::SystemCollection]),
        ],
    )
}

/// The parameters of one record.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct IdQuery {
    /// The id in the path is a value in Extended JSON rather than a text.
    #[param(inline)]
    ejson: Option<Switch>,
}

/// `GET /v1/records/collections`.
async fn list(
    State(server): State<Arc<Server>>,
    Query(query): Query<ListQuery>,
    caller: Caller,
    accept: Accept,
) -> Result<Response, Problem> {
    let (after, limit) = (query.after.unwrap_or_default(), Limit::or_default(query.limit));
    if !(1..=limits::PAGE_MAX).contains(&limit) {
        return Err(Problem::query("limit", format!("is {limit}; 1 to {} are allowed", limits::PAGE_MAX)));
    }
    let mut all = server.store.records(&caller.tenant)?.collections().await?;
    all.retain(|collection| collection.name > after);
    all.truncate(limit);
    answer(accept, wire::collections(&all)?).await
}

/// `GET /v1/records/collections/{collection}`.
async fn describe(
    State(server): State<Arc<Server>>,
    Path(name): Path<String>,
    caller: Caller,
    accept: Accept,
) -> Result<Response, Problem> {
    let all = server.store.records(&caller.tenant)?.collections().await?;
    let found = all.iter().find(|collection| collection.name == name);
    answer(accept, wire::collection(found.ok_or(RecordError::UnknownCollection(name))?)?).await
}

/// `PUT /v1/records/collections/{collection}`.
async fn declare(
    State(server): State<Arc<Server>>,
    Path(name): Path<String>,
    caller: Caller,
    accept: Accept,
    request: Request,
) -> Result<Response, Problem> {
    not_of_the_system([name.as_str()])?;
    let records = server.store.records(&caller.tenant)?;
    let read_collection = move |bytes: &[u8], encoding| wire::read_collection(&name, bytes, encoding);
    let Asked { read: declared, held: _held } = read(&server, request, read_collection).await?;
    records.declare(declared.clone()).await?;
    answer(accept, wire::collection(&declared)?).await
}

/// `POST /v1/records/collections/{collection}/find`.
async fn find(
    State(server): State<Arc<Server>>,
    Path(name): Path<String>,
    caller: Caller,
    accept: Accept,
    request: Request,
) -> Result<Response, Problem> {
    let records = readable(&server, &caller, &name)?;
    let Asked { read: query, held: _held } = asked(&server, name, request).await?;
    let page = server.query(async move { records.find(query).await }).await?;
    answer(accept, wire::page(&page)).await
}

/// `POST /v1/records/collections/{collection}/explain`: how that query would find its page.
async fn explain(
    State(server): State<Arc<Server>>,
    Path(name): Path<String>,
    caller: Caller,
    accept: Accept,
    request: Request,
) -> Result<Response, Problem> {
    let records = readable(&server, &caller, &name)?;
    let Asked { read: query, held: _held } = asked(&server, name, request).await?;
    let explained = server.query(async move { records.explain(query).await }).await?;
    answer(accept, wire::explained(&explained)).await
}

/// Reads a query and checks its cost limits, which are the same for every store. A condition that exceeds them never reaches the store.
async fn asked(server: &Arc<Server>, name: String, request: Request) -> Result<Asked<RecordQuery>, Problem> {
    let guard = server.options.query_guard;
    let read_query = move |bytes: &[u8], encoding| {
        let query = wire::read_query(&name, bytes, encoding)?;
        guard.check(&query.condition)?;
        Ok(query)
    };
    read(server, request, read_query).await
}

/// `POST /v1/records/collections/{collection}/count`.
async fn count(
    State(server): State<Arc<Server>>,
    Path(name): Path<String>,
    caller: Caller,
    accept: Accept,
    request: Request,
) -> Result<Response, Problem> {
    let guard = server.options.query_guard;
    let read_condition = move |bytes: &[u8], encoding| {
        let condition = wire::read_condition(bytes, encoding)?;
        guard.check(&condition)?;
        Ok(condition)
    };
    let records = readable(&server, &caller, &name)?;
    let Asked { read: condition, held: _held } = read(&server, request, read_condition).await?;
    let count = server.query(async move { records.count(&name, &condition).await }).await?;
    answer(accept, wire::count(count)).await
}

/// `POST /v1/records/collections/{collection}/group`.
async fn group(
    State(server): State<Arc<Server>>,
    Path(name): Path<String>,
    caller: Caller,
    accept: Accept,
    request: Request,
) -> Result<Response, Problem> {
    let guard = server.options.query_guard;
    let records = readable(&server, &caller, &name)?;
    let read_group = move |bytes: &[u8], encoding| {
        let query = wire::read_group(&name, bytes, encoding)?;
        guard.check(&query.condition)?;
        Ok(query)
    };
    let Asked { read: query, held: _held } = read(&server, request, read_group).await?;
    let asked = query.clone();
    let page = server.query(async move { records.group(asked).await }).await?;
    answer(accept, wire::group_page(&query, &page)?).await
}

/// `POST /v1/records/collections/{collection}/get`: the record with an id of any type.
async fn get(
    State(server): State<Arc<Server>>,
    Path(name): Path<String>,
    caller: Caller,
    accept: Accept,
    request: Request,
) -> Result<Response, Problem> {
    let records = readable(&server, &caller, &name)?;
    let Asked { read: id, held: _held } = read(&server, request, wire::read_id).await?;
    answer(accept, wire::record(&one(&*records, &name, &id).await?)).await
}

/// `GET /v1/records/collections/{collection}/ids/{id}`: the record whose id is a text, or is written as one.
async fn get_by_text(
    State(server): State<Arc<Server>>,
    Path((name, id)): Path<(String, String)>,
    Query(query): Query<IdQuery>,
    caller: Caller,
    accept: Accept,
) -> Result<Response, Problem> {
    let id = match Switch::is_on(query.ejson) {
        true => wire::extended_value(&id).map_err(|message| Invalid::new(Code::InvalidRecord, "id", message))?,
        false => Bson::String(id),
    };
    let records = readable(&server, &caller, &name)?;
    answer(accept, wire::record(&one(&*records, &name, &id).await?)).await
}

async fn one(records: &dyn Records, collection: &str, id: &Bson) -> Result<Record, Problem> {
    records.get(collection, id).await?.ok_or_else(|| {
        let message = format!("{collection:?} has no record {id}");
        Problem::new(Code::UnknownRecord, message).fact("collection", collection)
    })
}

/// `POST /v1/records/changes`. Batches share the places of commits in flight.
async fn write(
    State(server): State<Arc<Server>>,
    caller: Caller,
    accept: Accept,
    request: Request,
) -> Result<Response, Problem> {
    let records = server.store.records(&caller.tenant)?;
    let bytes_max = server.options.record_changes_bytes_max;
    let guard = server.options.query_guard;
    let read_changes = move |bytes: &[u8], encoding| {
        let changes = wire::read_changes(bytes, encoding)?;
        for (n, condition) in changes.iter().enumerate().filter_map(|(n, change)| Some((n, change.condition()?))) {
            guard.check_one(condition).map_err(|error| error.inside(&format!("changes[{n}]")))?;
        }
        Ok(changes)
    };
    let Asked { read: changes, held: _held } = asked::read(&server, request, bytes_max, read_changes).await?;
    not_of_the_system(changes.iter().map(|change| change.collection()))?;
    let _place = server.place("nothing was changed; retry in a moment")?;
    answer(accept, wire::numbers(&records.write(changes).await?)).await
}

/// Returns the records of the caller's tenant, for reading a collection that is not secret. Annals' own collections contain records of
/// every scope, such as parked events, so only callers of every scope may read them.
pub(super) fn readable(server: &Server, caller: &Caller, collection: &str) -> Result<Arc<dyn Records>, Problem> {
    if is_secret_collection(collection) {
        let message = format!("{collection:?} holds secrets of Annals and cannot be read");
        return Err(Problem::new(Code::SystemCollection, message).fact("collection", collection));
    }
    if is_system_collection(collection) && !caller.principal.may_see_every_scope() {
        let message = format!(
            "{collection:?} is a system collection for every scope, but the credential is limited to some scopes"
        );
        return Err(Problem::new(Code::SystemCollection, message).fact("collection", collection));
    }
    Ok(server.store.records(&caller.tenant)?)
}

/// Refuses names of Annals' own collections.
fn not_of_the_system<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<(), Problem> {
    match names.into_iter().find(|name| is_system_collection(name)) {
        None => Ok(()),
        Some(name) => {
            let message = format!("{name:?} is a system collection of Annals, which can only be read");
            Err(Problem::new(Code::SystemCollection, message).fact("collection", name))
        }
    }
}

/// Reads a document within the usual size limit.
async fn read<T: Send + 'static>(
    server: &Server,
    request: Request,
    read: impl FnOnce(&[u8], Encoding) -> Result<T, Invalid> + Send + 'static,
) -> Result<Asked<T>, Problem> {
    asked::read(server, request, server.options.body_bytes_max, read).await
}
