//! `/v1/query`: snapshots and commits, asked by what they say, with the JSON of Wow's queries.

use std::sync::Arc;

use annals_core::bson::raw::RawDocument;
use annals_core::wire::queries as wire;
use annals_core::wire::records::{self as records, Encoding};
use annals_core::{
    ByteString, Code, Condition, DocumentQuery, DocumentView, Invalid, Pagination, Queries, QueryGuard, QuerySource,
};
use axum::extract::{Path, Request, State};
use axum::http::HeaderMap;
use axum::response::Response;
use axum::routing::{MethodRouter, post};

use crate::asked::{self, Asked};
use crate::documents::{answer, answer_as};
use crate::problem::Problem;
use crate::router::Server;
use crate::source::tenant;

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
enum Question {
    Single(DocumentQuery),
    List(DocumentQuery, u64),
    Paged(DocumentQuery, Pagination),
    Count(Condition),
    Explain(DocumentQuery, u64),
}

impl Question {
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
    let port = |headers: &HeaderMap| queries(server, headers);
    let read = move |bytes: &[u8], encoding| Question::read(how, bytes, encoding, &guard);
    let asked = asked::read(server, request, port, server.options.body_bytes_max, read).await?;
    let Asked { port: queries, headers, read: question, held: _held } = asked;
    source.validate()?;
    guard.check_every_commit(queries.reads_every_commit(&source, question.condition()))?;
    match question {
        Question::Single(query) => match queries.single(&source, query).await? {
            Some(document) => answer(&headers, document).await,
            None => Err(nothing_found(&source)),
        },
        Question::List(query, limit) => {
            let documents = queries.list(&source, query, limit).await?;
            answer_as(&headers, wire::write_documents(&documents), list_alone).await
        }
        Question::Paged(query, page) => {
            answer(&headers, wire::write_paged(&queries.paged(&source, query, page).await?)).await
        }
        Question::Count(condition) => {
            let count = queries.count(&source, &condition).await?;
            answer_as(&headers, records::count(count), count_alone).await
        }
        Question::Explain(query, limit) => {
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

/// The queries of the tenant that is named.
fn queries(server: &Server, headers: &HeaderMap) -> Result<Arc<dyn Queries>, Problem> {
    Ok(server.store.queries(tenant(headers)?)?)
}
