//! `/v1/query`: snapshots and commits, asked by what they say, with the JSON of Wow's queries.

use std::sync::Arc;

use annals_core::bson::raw::RawDocument;
use annals_core::wire::queries as wire;
use annals_core::wire::records::{self as records, Encoding};
use annals_core::{
    ByteString, Code, Condition, DocumentQuery, DocumentView, Invalid, Pagination, Queries, QueryGuard, QuerySource,
};
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, header};
use axum::response::Response;
use axum::routing::{MethodRouter, post};

use super::commits::read as parse;
use crate::body::{self, Taken, media_type};
use crate::documents::{answer, answer_as};
use crate::problem::Problem;
use crate::query::Query;
use crate::router::Server;
use crate::source::tenant;

/// The media types of requests.
const TAKEN: &[&str] = &[Encoding::Json.media_type(), Encoding::ExtendedJson.media_type(), Encoding::Bson.media_type()];

/// What is wanted of the documents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    Single,
    List,
    Paged,
    Count,
    Explain,
}

/// `POST /v1/query/{aggregate}/snapshots/…`.
pub(crate) fn snapshots(how: How) -> MethodRouter<Arc<Server>> {
    of(QuerySource::Snapshots, how)
}

/// `POST /v1/query/{aggregate}/commits/…`.
pub(crate) fn commits(how: How) -> MethodRouter<Arc<Server>> {
    of(QuerySource::Commits, how)
}

fn of(source: fn(ByteString) -> QuerySource, how: How) -> MethodRouter<Arc<Server>> {
    post(move |State(server): State<Arc<Server>>, Path(name): Path<String>, request: Request| async move {
        ask(&server, source(name.into()), how, request).await
    })
}

/// A question that was read and may be asked.
enum Asked {
    Single(DocumentQuery),
    List(DocumentQuery, u64),
    Paged(DocumentQuery, Pagination),
    Count(Condition),
    Explain(DocumentQuery, u64),
}

impl Asked {
    fn read(how: How, bytes: &[u8], encoding: Encoding, guard: &QueryGuard) -> Result<Self, Invalid> {
        let bounded = |query: DocumentQuery| query.bytes_max(guard.answer_bytes_max);
        Ok(match how {
            How::Single => {
                let query = wire::read_single_query(bytes, encoding)?;
                guard.check(&query.condition)?;
                Self::Single(bounded(query))
            }
            How::List | How::Explain => {
                let (query, limit) = wire::read_list_query(bytes, encoding)?;
                guard.check(&query.condition)?;
                guard.check_limit(limit)?;
                let make = if how == How::List { Self::List } else { Self::Explain };
                make(bounded(query), limit)
            }
            How::Paged => {
                let (query, page) = wire::read_paged_query(bytes, encoding)?;
                guard.check_many(&query.condition)?;
                guard.check_page(page.index, page.size)?;
                Self::Paged(bounded(query), page)
            }
            How::Count => {
                let condition = wire::read_count_query(bytes, encoding)?;
                guard.check_many(&condition)?;
                Self::Count(condition)
            }
        })
    }

    fn condition(&self) -> &Condition {
        match self {
            Self::Single(query) | Self::List(query, _) | Self::Paged(query, _) | Self::Explain(query, _) => {
                &query.condition
            }
            Self::Count(condition) => condition,
        }
    }
}

async fn ask(server: &Server, source: QuerySource, how: How, request: Request) -> Result<Response, Problem> {
    let guard = server.options.query_guard;
    let read = read(server, request, move |bytes, encoding| Asked::read(how, bytes, encoding, &guard)).await?;
    let Read { queries, headers, asked, _held } = read;
    source.validate()?;
    guard.check_every_commit(queries.reads_every_commit(&source, asked.condition()))?;
    match asked {
        Asked::Single(query) => match queries.single(&source, query).await? {
            Some(document) => answer(&headers, document).await,
            None => Err(nothing_found(&source)),
        },
        Asked::List(query, limit) => {
            let documents = queries.list(&source, query, limit).await?;
            answer_as(&headers, wire::write_documents(&documents), list_alone).await
        }
        Asked::Paged(query, page) => {
            answer(&headers, wire::write_paged(&queries.paged(&source, query, page).await?)).await
        }
        Asked::Count(condition) => {
            let count = queries.count(&source, &condition).await?;
            answer_as(&headers, records::count(count), count_alone).await
        }
        Asked::Explain(query, limit) => {
            answer(&headers, records::explained(&queries.explain(&source, query, limit).await?)).await
        }
    }
}

fn nothing_found(source: &QuerySource) -> Problem {
    let name = source.aggregate();
    let what = match source {
        QuerySource::Snapshots(_) => "snapshot",
        QuerySource::Commits(_) => "commit",
    };
    Problem::new(Code::NothingFound, format!("no {what} of {name} passes the condition"))
}

/// The array of a list.
fn list_alone(document: &RawDocument) -> serde_json::Result<Vec<u8>> {
    let list = document.get_array("list").ok();
    let documents = list.into_iter().flatten().flatten().filter_map(|value| value.as_document().map(DocumentView));
    serde_json::to_vec(&documents.collect::<Vec<_>>())
}

/// The number of a count.
fn count_alone(document: &RawDocument) -> serde_json::Result<Vec<u8>> {
    serde_json::to_vec(&document.get_i64("count").unwrap_or_default())
}

/// A request that was read.
struct Read {
    queries: Arc<dyn Queries>,
    headers: HeaderMap,
    asked: Asked,
    /// Its bytes count as held until it is answered.
    _held: body::Held,
}

/// Reads a request, unless it is to be refused anyway.
async fn read(
    server: &Server,
    request: Request,
    read: impl FnOnce(&[u8], Encoding) -> Result<Asked, Invalid> + Send + 'static,
) -> Result<Read, Problem> {
    let (parts, body) = request.into_parts();
    let found = Query::parse(parts.uri.query(), &[]).and_then(|_| queries(server, &parts.headers));
    let queries = match found {
        Ok(queries) => queries,
        Err(problem) => {
            body::discard(&server.options, body);
            return Err(problem);
        }
    };
    let named = parts.headers.get(header::CONTENT_TYPE).map(media_type);
    let encoding = named.and_then(Encoding::of).unwrap_or(Encoding::Json);
    let taken = Taken { media_types: TAKEN, bytes_max: server.options.body_bytes_max };
    let held = body::read_taken(server, &parts, body, taken).await?;
    let bytes = held.bytes.clone();
    let asked = parse(held.bytes.len(), move || read(&bytes, encoding)).await??;
    Ok(Read { queries, headers: parts.headers, asked, _held: held })
}

/// The queries of the tenant that is named.
fn queries(server: &Server, headers: &HeaderMap) -> Result<Arc<dyn Queries>, Problem> {
    Ok(server.store.queries(tenant(headers)?)?)
}
