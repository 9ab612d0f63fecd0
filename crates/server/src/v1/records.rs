//! `/v1/records`: documents in collections, and the batch that changes them. What happened to them is [`changes`](super::changes).

use std::sync::Arc;

use annals_core::bson::Bson;
use annals_core::wire::records as wire;
use annals_core::wire::records::Encoding;
use annals_core::{Code, Invalid, Record, RecordError, RecordQuery, Records, is_system_collection, limits};
use axum::extract::{Path, RawQuery, Request, State};
use axum::http::HeaderMap;
use axum::response::Response;

use crate::asked::{self, Asked};
use crate::body;
use crate::documents::answer;
use crate::problem::Problem;
use crate::query::Query;
use crate::router::Server;
use crate::source::tenant;

/// `GET /v1/records/collections`.
pub(crate) async fn list(
    State(server): State<Arc<Server>>,
    RawQuery(raw): RawQuery,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let query = Query::parse(raw.as_deref(), &["after", "limit"])?;
    let (after, limit) = (query.text("after")?.unwrap_or_default(), query.limit("limit")?);
    let limit = limit.unwrap_or(limits::PAGE_DEFAULT);
    if !(1..=limits::PAGE_MAX).contains(&limit) {
        return Err(Problem::query("limit", format!("is {limit}; 1 to {} are allowed", limits::PAGE_MAX)));
    }
    let mut all = records(&server, &headers)?.collections().await?;
    all.retain(|collection| collection.name.as_str() > after);
    all.truncate(limit);
    answer(&headers, wire::collections(&all)?).await
}

/// `GET /v1/records/collections/{collection}`.
pub(crate) async fn describe(
    State(server): State<Arc<Server>>,
    Path(name): Path<String>,
    RawQuery(raw): RawQuery,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    Query::parse(raw.as_deref(), &[])?;
    let all = records(&server, &headers)?.collections().await?;
    let found = all.iter().find(|collection| collection.name == name);
    answer(&headers, wire::collection(found.ok_or(RecordError::UnknownCollection(name))?)?).await
}

/// `PUT /v1/records/collections/{collection}`.
pub(crate) async fn declare(
    State(server): State<Arc<Server>>,
    Path(name): Path<String>,
    request: Request,
) -> Result<Response, Problem> {
    let open = not_of_the_system([name.as_str()]);
    let asked = read(&server, request, open, move |bytes, encoding| wire::read_collection(&name, bytes, encoding));
    let Asked { port: records, headers, read: declared, held: _held } = asked.await?;
    records.declare(declared.clone()).await?;
    answer(&headers, wire::collection(&declared)?).await
}

/// `POST /v1/records/collections/{collection}/find`.
pub(crate) async fn find(
    State(server): State<Arc<Server>>,
    Path(name): Path<String>,
    request: Request,
) -> Result<Response, Problem> {
    let Asked { port: records, headers, read: query, held: _held } = asked(&server, name, request).await?;
    let page = records.find(query).await?;
    answer(&headers, wire::page(&page)).await
}

/// `POST /v1/records/collections/{collection}/explain`: how the same query finds its page.
pub(crate) async fn explain(
    State(server): State<Arc<Server>>,
    Path(name): Path<String>,
    request: Request,
) -> Result<Response, Problem> {
    let Asked { port: records, headers, read: query, held: _held } = asked(&server, name, request).await?;
    answer(&headers, wire::explained(&records.explain(query).await?)).await
}

/// A query that is asked for.
async fn asked(
    server: &Arc<Server>,
    name: String,
    request: Request,
) -> Result<Asked<dyn Records, RecordQuery>, Problem> {
    let guard = server.options.query_guard;
    let read_query = move |bytes: &[u8], encoding| {
        let query = wire::read_query(&name, bytes, encoding)?;
        guard.check_raw(&query.condition)?;
        Ok(query)
    };
    read(server, request, Ok(()), read_query).await
}

/// `POST /v1/records/collections/{collection}/count`.
pub(crate) async fn count(
    State(server): State<Arc<Server>>,
    Path(name): Path<String>,
    request: Request,
) -> Result<Response, Problem> {
    let guard = server.options.query_guard;
    let read_condition = move |bytes: &[u8], encoding| {
        let condition = wire::read_condition(bytes, encoding)?;
        guard.check_raw(&condition)?;
        Ok(condition)
    };
    let Asked { port: records, headers, read, held: _held } = read(&server, request, Ok(()), read_condition).await?;
    answer(&headers, wire::count(records.count(&name, &read).await?)).await
}

/// `POST /v1/records/collections/{collection}/get`: the record of an id of any type.
pub(crate) async fn get(
    State(server): State<Arc<Server>>,
    Path(name): Path<String>,
    request: Request,
) -> Result<Response, Problem> {
    let Asked { port: records, headers, read: id, held: _held } = read(&server, request, Ok(()), wire::read_id).await?;
    answer(&headers, wire::record(&one(&*records, &name, &id).await?)).await
}

/// `GET /v1/records/collections/{collection}/ids/{id}`: the same of an id that is a text, or is written as one.
pub(crate) async fn get_by_text(
    State(server): State<Arc<Server>>,
    Path((name, id)): Path<(String, String)>,
    RawQuery(raw): RawQuery,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let query = Query::parse(raw.as_deref(), &["ejson"])?;
    let id = match query.switch("ejson")? {
        true => wire::extended_value(&id).map_err(|message| Invalid::new(Code::InvalidRecord, "id", message))?,
        false => Bson::String(id),
    };
    let records = records(&server, &headers)?;
    answer(&headers, wire::record(&one(&*records, &name, &id).await?)).await
}

async fn one(records: &dyn Records, collection: &str, id: &Bson) -> Result<Record, Problem> {
    records.get(collection, id).await?.ok_or_else(|| {
        let message = format!("{collection:?} has no record {id}");
        Problem::new(Code::UnknownRecord, message).fact("collection", collection)
    })
}

/// `POST /v1/records/changes`. Batches share the places of commits that are under way.
pub(crate) async fn write(State(server): State<Arc<Server>>, request: Request) -> Result<Response, Problem> {
    let Asked { port: records, headers, read: changes, held: _held } =
        read(&server, request, Ok(()), wire::read_changes).await?;
    not_of_the_system(changes.iter().map(|change| change.collection()))?;
    let _place = server.commits.try_acquire().map_err(|_| {
        Problem::new(Code::Overloaded, "too many commits are under way; nothing was changed, try again in a moment")
    })?;
    answer(&headers, wire::numbers(&records.write(changes).await?)).await
}

/// Refuses names that are not for records of one's own.
fn not_of_the_system<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<(), Problem> {
    match names.into_iter().find(|name| is_system_collection(name)) {
        None => Ok(()),
        Some(name) => {
            let message = format!("{name:?} is kept by Annals, and can only be read here");
            Err(Problem::new(Code::SystemCollection, message).fact("collection", name))
        }
    }
}

/// Reads a request, unless `open` refuses it before anything else.
async fn read<T: Send + 'static>(
    server: &Server,
    request: Request,
    open: Result<(), Problem>,
    read: impl FnOnce(&[u8], Encoding) -> Result<T, Invalid> + Send + 'static,
) -> Result<Asked<dyn Records, T>, Problem> {
    if let Err(problem) = open {
        body::discard(&server.options, request.into_body());
        return Err(problem);
    }
    let batch = request.uri().path() == super::changes::PATH;
    let bytes_max = if batch { server.options.record_changes_bytes_max } else { server.options.body_bytes_max };
    asked::read(server, request, |headers: &HeaderMap| records(server, headers), bytes_max, read).await
}

/// The records of the tenant that is named.
pub(super) fn records(server: &Server, headers: &HeaderMap) -> Result<Arc<dyn Records>, Problem> {
    Ok(server.store.records(tenant(headers)?)?)
}
