//! `GET /v1/records/changes` and what is below it: what happened to records, as pages and as server-sent events.

use std::sync::Arc;

use annals_core::wire::records as wire;
use annals_core::{ChangeFollower, ChangeNumber, ChangesError, Code, DocumentView, RecordedChange, StoreError};
use axum::body::Body;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream;
use serde::Deserialize;
use tokio::time::{Duration, sleep};
use utoipa::{IntoParams, ToSchema};

use super::follow::{LastEventId, event_stream, last_word};
use super::lines::CHUNK_BYTES;
use super::wait::{Wait, WaitQuery};
use crate::accept::Accept;
use crate::answer::{json, not_written};
use crate::caller::{Caller, unknown_tenant};
use crate::documents::answer;
use crate::media;
use crate::metrics::Counted;
use crate::options::Stop;
use crate::payload::Payload;
use crate::problem::Problem;
use crate::query::{Limit, Number, Query};
use crate::route::{Feature, Permission, get};
use crate::schemas;
use crate::state::Server;
use crate::unread::{HeldBytes, Unread};

/// The operations on the feed of changes.
pub(crate) fn feature() -> Feature {
    Feature::new(
        "Record changes",
        [
            get("/v1/records/changes", Permission::Reader, page)
                .described(
                    "readChanges",
                    "Returns one page of the changes of records.",
                    Payload::document::<schemas::ChangePage>(),
                )
                .refuses(&[Code::ChangesGone, Code::UnknownChange]),
            get("/v1/records/changes/last", Permission::Reader, last).described(
                "lastChange",
                "Returns the number of the last change, at once or when there is a newer one.",
                Payload::json::<LastChange>(),
            ),
            get("/v1/records/changes/follow", Permission::Reader, follow)
                .described(
                    "followChanges",
                    "Follows the changes of records as server-sent events.",
                    Payload::raw(media::EVENTS, "One event a change; its id is the number of the change."),
                )
                .refuses(&[Code::ChangesGone, Code::UnknownChange]),
        ],
    )
}

/// The parameters of a page of changes.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct PageQuery {
    /// Resumes after this change; 0 when absent.
    #[param(inline)]
    after: Option<Number>,
    /// The length of the page: 1 to 1,000, 100 when absent.
    #[param(inline)]
    limit: Option<Limit>,
}

/// The parameters of a feed of changes.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct FollowQuery {
    /// Resumes after this change; 0 when absent. `Last-Event-ID` goes before it.
    #[param(inline)]
    after: Option<Number>,
    /// Changes of this collection only.
    collection: Option<String>,
}

/// The number of the last change.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes what `last` answers")]
struct LastChange {
    number: u64,
}

/// `GET /v1/records/changes`.
async fn page(
    State(server): State<Arc<Server>>,
    Query(query): Query<PageQuery>,
    caller: Caller,
    accept: Accept,
) -> Result<Response, Problem> {
    let (after, limit) = (query.after.map_or(0, |after| after.0), Limit::or_default(query.limit));
    let changes = server.store.records(&caller.tenant)?.changes(after, limit).await?;
    answer(accept, wire::changes_page(&changes, after)?).await
}

/// `GET /v1/records/changes/last`: at once, or when there is a newer one than the caller knows of.
async fn last(
    State(server): State<Arc<Server>>,
    Query(query): Query<WaitQuery>,
    caller: Caller,
) -> Result<Response, Problem> {
    let records = server.store.records(&caller.tenant)?;
    if let Some(wait) = Wait::of(query.past, query.timeout_ms)? {
        wait.until(&server, records.wait_past_change(wait.past)).await?;
    }
    json(StatusCode::OK, &serde_json::json!({ "number": records.last_change().await? }))
}

/// `GET /v1/records/changes/follow`: first what is kept, then what comes.
async fn follow(
    State(server): State<Arc<Server>>,
    Query(query): Query<FollowQuery>,
    LastEventId(position): LastEventId,
    caller: Caller,
) -> Result<Response, Problem> {
    let records = server.store.records(&caller.tenant)?;
    let identity = server.store.identity(&caller.tenant).ok_or_else(|| unknown_tenant(&caller.tenant))?;
    let last = records.last_change().await?;
    let after = match position {
        // What an incarnation before this one wrote behind its backup is not here, so its numbers mean other changes.
        Some(seen) if seen.incarnation != identity.incarnation => {
            return Err(ChangesError::Unknown { after: seen.number, last }.into());
        }
        Some(seen) => seen.number,
        None => query.after.map_or(0, |after| after.0),
    };
    // Refused as an answer rather than in the stream, when that can be known now.
    records.changes(after, 1).await?;
    let feed = Feed {
        follower: ChangeFollower::new(records, after),
        page: Vec::new().into_iter(),
        held: None,
        unread: server.options.unread.clone(),
        unread_max: server.options.answer_bytes_in_flight_max,
        // A first comment shows that the stream stands.
        greeting: Some(format!(": after {after}, last {last}\n\n").into()),
        collection: query.collection,
        caller,
        told: after,
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
    /// The page's bytes count among the unread ones.
    held: Option<HeldBytes>,
    unread: Unread,
    unread_max: usize,
    greeting: Option<Bytes>,
    /// Changes of other collections are left out.
    collection: Option<String>,
    caller: Caller,
    /// The number that the reader has as its last id.
    told: ChangeNumber,
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
        // One pause for all pages without a wanted change, so that changes of other collections hold no comment up.
        let quiet = sleep(self.comment_interval);
        tokio::pin!(quiet);
        while self.page.as_slice().is_empty() {
            let (unread, max) = (&self.unread, self.unread_max);
            let next = async {
                unread.room(max).await;
                self.follower.next_page().await
            };
            tokio::select! {
                biased;
                () = self.stop.stopped() => return None,
                () = &mut quiet => return Some(self.comment()),
                page = next => match page {
                    Ok(changes) => {
                        self.page = self.wanted(changes);
                        self.held = Some(self.unread.hold(size_of_val(self.page.as_slice())));
                    }
                    Err(error) => return self.end(error),
                },
            }
        }
        let mut chunk = Vec::with_capacity(4 * 1024);
        while chunk.len() < CHUNK_BYTES
            && let Some(change) = self.page.next()
        {
            self.told = change.number;
            match self.write(&change) {
                Ok(text) => chunk.extend_from_slice(text.as_bytes()),
                Err(problem) => {
                    self.ended = true;
                    chunk.extend_from_slice(last_word(&problem, &self.caller).as_bytes());
                    break;
                }
            }
        }
        if self.page.as_slice().is_empty() {
            // A follower that waits keeps neither changes nor the room they had.
            self.page = Vec::new().into_iter();
            self.held = None;
        }
        chunk.shrink_to_fit();
        Some(chunk.into())
    }

    /// A comment. Where changes of other collections were passed over it has an id, so that a reader that comes again resumes after them.
    fn comment(&mut self) -> Bytes {
        let position = self.follower.position();
        if position == self.told {
            return Bytes::from_static(b": quiet\n\n");
        }
        self.told = position;
        format!(": quiet\nid: {}\n\n", id_of(position, self.incarnation)).into()
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
        Ok(format!("id: {}\ndata: {json}\n\n", id_of(change.number, self.incarnation)))
    }

    /// Ends the stream, with the reason unless that is only that the server stops.
    fn end(&mut self, error: ChangesError) -> Option<Bytes> {
        self.ended = true;
        match error {
            ChangesError::Store(StoreError::Closed) => None,
            error => Some(last_word(&error.into(), &self.caller).into()),
        }
    }
}

fn id_of(number: ChangeNumber, incarnation: u32) -> String {
    if incarnation > 0 { format!("{number}@{incarnation}") } else { number.to_string() }
}
