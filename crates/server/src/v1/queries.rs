//! `/v1/query`: queries of snapshots and commits by their content, with the JSON of Wow's queries.

use std::sync::Arc;

use annals_core::bson::raw::RawDocument;
use annals_core::wire::queries as wire;
use annals_core::wire::records::{self as records, Encoding};
use annals_core::{
    ByteString, Code, Condition, DocumentQuery, DocumentView, Invalid, Pagination, QueryGuard, QuerySource,
};
use axum::extract::{Path, Request, State};
use axum::response::Response;

use crate::accept::Accept;
use crate::asked::{self, Asked};
use crate::caller::Caller;
use crate::documents::{answer, answer_as};
use crate::media;
use crate::payload::{Document, Payload};
use crate::problem::Problem;
use crate::route::{Feature, Operation, Permission, post};
use crate::schemas;
use crate::state::Server;

/// Returns the operations that query.
pub(crate) fn feature() -> Feature {
    const SNAPSHOTS: [(&str, &str, How); 5] = [
        ("/v1/query/{aggregate}/snapshots/single", "findSnapshot", How::Single),
        ("/v1/query/{aggregate}/snapshots/list", "listSnapshots", How::List),
        ("/v1/query/{aggregate}/snapshots/paged", "pageSnapshots", How::Paged),
        ("/v1/query/{aggregate}/snapshots/count", "countSnapshots", How::Count),
        ("/v1/query/{aggregate}/snapshots/explain", "explainSnapshots", How::Explain),
    ];
    const COMMITS: [(&str, &str, How); 5] = [
        ("/v1/query/{aggregate}/commits/single", "findCommit", How::Single),
        ("/v1/query/{aggregate}/commits/list", "listCommits", How::List),
        ("/v1/query/{aggregate}/commits/paged", "pageCommits", How::Paged),
        ("/v1/query/{aggregate}/commits/count", "countCommits", How::Count),
        ("/v1/query/{aggregate}/commits/explain", "explainCommits", How::Explain),
    ];
    let snapshots = SNAPSHOTS.map(|(path, id, how)| of(path, id, QuerySource::Snapshots, how));
    let commits = COMMITS.map(|(path, id, how)| of(path, id, QuerySource::Commits, how));
    Feature::new("Queries", snapshots.into_iter().chain(commits).collect::<Vec<_>>())
}

fn of(path: &'static str, id: &'static str, source: fn(ByteString) -> QuerySource, how: How) -> Operation {
    let ask = move |State(server): State<Arc<Server>>,
                    Path(name): Path<String>,
                    caller: Caller,
                    accept: Accept,
                    request: Request| async move {
        let asked = Wanted { source: source(name.into()), how, accept };
        ask(&server, caller, asked, request).await
    };
    let (summary, takes, answers) = match how {
        How::Single => (
            "Returns the first document that matches a condition.",
            Payload::asked::<schemas::SingleQuery>(),
            Payload::document::<Document>(),
        ),
        How::List => (
            "Returns the documents that match a condition; as BSON, in the field `list`.",
            Payload::asked::<schemas::ListQuery>(),
            Payload::json::<Vec<Document>>().or(media::BSON, "A document with the field `list`."),
        ),
        How::Paged => (
            "Returns one page of the documents that match a condition.",
            Payload::asked::<schemas::PageQuery>(),
            Payload::document::<schemas::PagedAnswer>(),
        ),
        How::Count => (
            "Counts the documents that match a condition.",
            Payload::asked::<schemas::CountQuery>(),
            Payload::json::<u64>().or(media::BSON, "A document with the field `count`."),
        ),
        How::Explain => (
            "Explains how the documents of a list are found.",
            Payload::asked::<schemas::ListQuery>(),
            Payload::document::<schemas::Explained>(),
        ),
    };
    let operation = post(path, Permission::Reader, ask).described(id, summary, answers).takes(takes);
    if how == How::Single { operation.refuses(&[Code::NothingFound]) } else { operation }
}

/// The kind of result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum How {
    Single,
    List,
    Paged,
    Count,
    Explain,
}

/// The target of a request and the format of the response.
struct Wanted {
    source: QuerySource,
    how: How,
    accept: Accept,
}

/// A query that was parsed and has passed the cost limits.
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

async fn ask(server: &Server, caller: Caller, wanted: Wanted, request: Request) -> Result<Response, Problem> {
    let Wanted { source, how, accept } = wanted;
    let guard = server.options.query_guard;
    let queries = server.store.queries(&caller.tenant)?;
    let read = move |bytes: &[u8], encoding| Question::read(how, bytes, encoding, &guard);
    let asked = asked::read(server, request, server.options.body_bytes_max, read).await?;
    let Asked { read: question, held: _held } = asked;
    source.validate()?;
    guard.check_every_commit(queries.reads_every_commit(&source, question.condition()))?;
    match question {
        Question::Single(query) => {
            let asked = source.clone();
            match server.query(async move { queries.single(&asked, query).await }).await? {
                Some(document) => answer(accept, document).await,
                None => Err(nothing_found(&source)),
            }
        }
        Question::List(query, limit) => {
            let documents = server.query(async move { queries.list(&source, query, limit).await }).await?;
            answer_as(accept, wire::write_documents(&documents), list_alone).await
        }
        Question::Paged(query, page) => {
            let paged = server.query(async move { queries.paged(&source, query, page).await }).await?;
            answer(accept, wire::write_paged(&paged)).await
        }
        Question::Count(condition) => {
            let count = server.query(async move { queries.count(&source, &condition).await }).await?;
            answer_as(accept, records::count(count), count_alone).await
        }
        Question::Explain(query, limit) => {
            let explained = server.query(async move { queries.explain(&source, query, limit).await }).await?;
            answer(accept, records::explained(&explained)).await
        }
    }
}

fn nothing_found(source: &QuerySource) -> Problem {
    let name = source.aggregate();
    let what = match source {
        QuerySource::Snapshots(_) => "snapshot",
        QuerySource::Commits(_) => "commit",
    };
    Problem::new(Code::NothingFound, format!("no {what} of {name} matches the condition"))
}

/// Writes the array of a list.
fn list_alone(document: &RawDocument) -> serde_json::Result<Vec<u8>> {
    let list = document.get_array("list").ok();
    let documents = list.into_iter().flatten().flatten().filter_map(|value| value.as_document().map(DocumentView));
    serde_json::to_vec(&documents.collect::<Vec<_>>())
}

/// Writes the number of a count.
fn count_alone(document: &RawDocument) -> serde_json::Result<Vec<u8>> {
    serde_json::to_vec(&document.get_i64("count").unwrap_or_default())
}
