//! `GET /v1/records/changes` and what is below it: what happened to records, as pages and as server-sent events.

use std::sync::Arc;

use annals_core::wire::records as wire;
use annals_core::{ChangeFollower, ChangeNumber, ChangesError, DocumentView, RecordedChange, StoreError, limits};
use axum::body::Body;
use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream;
use tokio::time::{Duration, sleep};

use super::follow::{event_stream, last_event_id, last_word};
use super::lines::CHUNK_BYTES;
use super::records::records;
use super::wait::Wait;
use crate::answer::{json, not_written};
use crate::documents::answer;
use crate::metrics::Counted;
use crate::options::Stop;
use crate::problem::Problem;
use crate::query::Query;
use crate::router::Server;
use crate::source::{tenant, unknown_tenant};

/// The address.
pub(crate) const PATH: &str = "/v1/records/changes";

/// `GET /v1/records/changes`.
pub(crate) async fn page(
    State(server): State<Arc<Server>>,
    RawQuery(raw): RawQuery,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let query = Query::parse(raw.as_deref(), &["after", "limit"])?;
    let after = query.number("after")?.unwrap_or(0);
    let limit = query.limit("limit")?.unwrap_or(limits::PAGE_DEFAULT);
    let changes = records(&server, &headers)?.changes(after, limit).await?;
    answer(&headers, wire::changes_page(&changes, after)?).await
}

/// `GET /v1/records/changes/last`: at once, or when there is a newer one than the caller knows of.
pub(crate) async fn last(
    State(server): State<Arc<Server>>,
    RawQuery(raw): RawQuery,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let query = Query::parse(raw.as_deref(), &["past", "timeout_ms"])?;
    let records = records(&server, &headers)?;
    if let Some(wait) = Wait::of(&query)? {
        wait.until(&server, records.wait_past_change(wait.past)).await?;
    }
    json(StatusCode::OK, &serde_json::json!({ "number": records.last_change().await? }))
}

/// `GET /v1/records/changes/follow`: first what is kept, then what comes.
pub(crate) async fn follow(
    State(server): State<Arc<Server>>,
    RawQuery(raw): RawQuery,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let query = Query::parse(raw.as_deref(), &["after", "collection"])?;
    let records = records(&server, &headers)?;
    let tenant = tenant(&headers)?;
    let identity = server.store.identity(tenant).ok_or_else(|| unknown_tenant(tenant))?;
    let last = records.last_change().await?;
    let after = match last_event_id(&headers)? {
        // What an incarnation before this one wrote behind its backup is not here, so its numbers mean other changes.
        Some(seen) if seen.incarnation != identity.incarnation => {
            return Err(ChangesError::Unknown { after: seen.number, last }.into());
        }
        Some(seen) => seen.number,
        None => query.number("after")?.unwrap_or(0),
    };
    // Refused as an answer rather than in the stream, when that can be known now.
    records.changes(after, 1).await?;
    let feed = Feed {
        follower: ChangeFollower::new(records, after),
        page: Vec::new().into_iter(),
        // A first comment shows that the stream stands.
        greeting: Some(format!(": after {after}, last {last}\n\n").into()),
        collection: query.text("collection")?.map(str::to_owned),
        incarnation: identity.incarnation,
        comment_interval: server.options.comment_interval,
        stop: server.options.stop.clone(),
        ended: false,
        _counted: server.metrics.followers.enter(),
    };
    let chunks = stream::unfold(feed, |mut feed| async move {
        let chunk = feed.chunk().await?;
        Some((Ok::<_, std::convert::Infallible>(chunk), feed))
    });
    Ok(event_stream(Body::from_stream(chunks)))
}

struct Feed {
    follower: ChangeFollower,
    /// What is left of the page that was read last.
    page: std::vec::IntoIter<RecordedChange>,
    greeting: Option<Bytes>,
    /// Changes of other collections are left out.
    collection: Option<String>,
    incarnation: u32,
    comment_interval: Duration,
    stop: Stop,
    ended: bool,
    _counted: Counted,
}

impl Feed {
    /// The next changes or comment; none at the end.
    async fn chunk(&mut self) -> Option<Bytes> {
        if let Some(greeting) = self.greeting.take() {
            return Some(greeting);
        }
        if self.ended || self.stop.is_stopped() {
            return None;
        }
        while self.page.as_slice().is_empty() {
            tokio::select! {
                biased;
                () = self.stop.stopped() => return None,
                page = self.follower.next_page() => match page {
                    Ok(changes) => self.page = self.wanted(changes),
                    Err(error) => return self.end(error),
                },
                () = sleep(self.comment_interval) => return Some(Bytes::from_static(b": quiet\n\n")),
            }
        }
        let mut chunk = Vec::with_capacity(4 * 1024);
        while chunk.len() < CHUNK_BYTES
            && let Some(change) = self.page.next()
        {
            match self.write(&change) {
                Ok(text) => chunk.extend_from_slice(text.as_bytes()),
                Err(problem) => {
                    self.ended = true;
                    chunk.extend_from_slice(last_word(&problem).as_bytes());
                    break;
                }
            }
        }
        Some(chunk.into())
    }

    fn wanted(&self, mut changes: Vec<RecordedChange>) -> std::vec::IntoIter<RecordedChange> {
        if let Some(wanted) = &self.collection {
            changes.retain(|change| change.collection == *wanted);
        }
        changes.into_iter()
    }

    fn write(&self, change: &RecordedChange) -> Result<String, Problem> {
        let document = wire::change(change)?;
        // JSON escapes line breaks, so the data is one line.
        let json = serde_json::to_string(&DocumentView(&document)).map_err(not_written)?;
        Ok(format!("id: {}\ndata: {json}\n\n", position(change.number, self.incarnation)))
    }

    /// Ends the stream, with the reason unless that is only that the server stops.
    fn end(&mut self, error: ChangesError) -> Option<Bytes> {
        self.ended = true;
        match error {
            ChangesError::Store(StoreError::Closed) => None,
            error => Some(last_word(&error.into()).into()),
        }
    }
}

fn position(number: ChangeNumber, incarnation: u32) -> String {
    if incarnation > 0 { format!("{number}@{incarnation}") } else { number.to_string() }
}
