//! `GET /v1/records/collections/{collection}/changes` and the routes below it: the changes to the records of a collection with a feed, as
//! pages and as server-sent events.

use std::sync::Arc;
use std::time::Duration;

use annals_core::wire::records as wire;
use annals_core::{ChangeFollower, ChangeNumber, ChangesError, Code, DocumentView, RecordedChange, StoreError};
use annals_system::sleep;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream;
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};

use super::follow::{LastEventId, event_stream, last_word};
use super::lines::CHUNK_BYTES;
use super::records::readable;
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
use crate::room::Room;
use crate::route::{Feature, Permission, get};
use crate::schemas;
use crate::state::Server;
use crate::unread::HeldBytes;

/// The refusals of an operation that reads a feed.
const REFUSES: [Code; 2] = [Code::UnknownCollection, Code::NoFeed];
/// The refusals of an operation that resumes after a change.
const RESUMING_REFUSES: [Code; 4] = [Code::UnknownCollection, Code::NoFeed, Code::ChangesGone, Code::UnknownChange];

/// Returns the operations on the feed of a collection.
pub(crate) fn feature() -> Feature {
    const CHANGES: &str = "/v1/records/collections/{collection}/changes";
    Feature::new(
        "Record changes",
        [
            get(CHANGES, Permission::Reader, page)
                .described(
                    "readChanges",
                    "Returns one page of the changes of a collection.",
                    Payload::document::<schemas::ChangePage>(),
                )
                .refuses(&RESUMING_REFUSES),
            get("/v1/records/collections/{collection}/changes/last", Permission::Reader, last)
                .described(
                    "lastChange",
                    "Returns the number of a collection's last change, immediately or once there is a newer one.",
                    Payload::json::<LastChange>(),
                )
                .refuses(&REFUSES),
            get("/v1/records/collections/{collection}/changes/follow", Permission::Reader, follow)
                .described(
                    "followChanges",
                    "Follows the changes of a collection as server-sent events.",
                    Payload::raw(media::EVENTS, "One event per change; its id is the number of the change."),
                )
                .refuses(&RESUMING_REFUSES),
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
    /// Resumes after this change; 0 when absent. `Last-Event-ID` takes precedence.
    #[param(inline)]
    after: Option<Number>,
}

/// The number of the last change.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes what `last` answers")]
struct LastChange {
    number: u64,
}

/// `GET /v1/records/collections/{collection}/changes`.
async fn page(
    State(server): State<Arc<Server>>,
    Path(collection): Path<String>,
    Query(query): Query<PageQuery>,
    caller: Caller,
    accept: Accept,
) -> Result<Response, Problem> {
    let (after, limit) = (query.after.map_or(0, |after| after.0), Limit::or_default(query.limit));
    let changes = readable(&server, &caller, &collection)?.changes(&collection, after, limit).await?;
    answer(accept, wire::changes_page(&changes, after)?).await
}

/// `GET /v1/records/collections/{collection}/changes/last`: at once, or when there is a newer change than the caller knows.
async fn last(
    State(server): State<Arc<Server>>,
    Path(collection): Path<String>,
    Query(query): Query<WaitQuery>,
    caller: Caller,
) -> Result<Response, Problem> {
    let records = readable(&server, &caller, &collection)?;
    if let Some(wait) = Wait::of(query.past, query.timeout_ms)? {
        wait.until(&server, records.wait_past_change(&collection, wait.past)).await?;
    }
    json(StatusCode::OK, &serde_json::json!({ "number": records.last_change(&collection).await? }))
}

/// `GET /v1/records/collections/{collection}/changes/follow`: first the stored changes, then new ones.
async fn follow(
    State(server): State<Arc<Server>>,
    Path(collection): Path<String>,
    Query(query): Query<FollowQuery>,
    LastEventId(position): LastEventId,
    caller: Caller,
) -> Result<Response, Problem> {
    let records = readable(&server, &caller, &collection)?;
    let identity = server.store.identity(&caller.tenant).ok_or_else(|| unknown_tenant(&caller.tenant))?;
    let last = records.last_change(&collection).await?;
    let after = match position {
        // What an earlier incarnation wrote after its backup is missing here, so its numbers denote other changes.
        Some(seen) if seen.incarnation != identity.incarnation => {
            return Err(ChangesError::Unknown { after: seen.number, last }.into());
        }
        Some(seen) => seen.number,
        None => query.after.map_or(0, |after| after.0),
    };
    // If the refusal can be known now, it is a response rather than an event in the stream.
    records.changes(&collection, after, 1).await?;
    let feed = Feed {
        follower: ChangeFollower::new(records, collection, after),
        page: Vec::new().into_iter(),
        held: None,
        room: Room::of(&server.options),
        // The first comment shows that the stream is established.
        greeting: Some(format!(": after {after}, last {last}\n\n").into()),
        caller,
        incarnation: identity.incarnation,
        comment_interval: server.options.comment_interval,
        stop: server.options.stop.clone(),
        ended: false,
        _counted: server.follower()?,
    };
    let chunks = stream::unfold(feed, |mut feed| async move {
        let chunk = feed.chunk().await?;
        Some((Ok::<_, std::convert::Infallible>(chunk), feed))
    });
    Ok(event_stream(Body::from_stream(chunks)))
}

struct Feed {
    follower: ChangeFollower,
    /// The rest of the page that was read last.
    page: std::vec::IntoIter<RecordedChange>,
    /// The guard that counts the page's bytes as unread.
    held: Option<HeldBytes>,
    room: Room,
    greeting: Option<Bytes>,
    caller: Caller,
    incarnation: u32,
    comment_interval: Duration,
    stop: Stop,
    ended: bool,
    _counted: Counted,
}

impl Feed {
    /// Returns the next changes or a comment, or `None` at the end.
    async fn chunk(&mut self) -> Option<Bytes> {
        if let Some(greeting) = self.greeting.take() {
            return Some(greeting);
        }
        if self.ended || self.stop.is_stopped() {
            return None;
        }
        if self.page.as_slice().is_empty() {
            let room = &self.room;
            let next = async {
                room.open().await;
                self.follower.next_page().await
            };
            tokio::select! {
                biased;
                () = self.stop.stopped() => return None,
                page = next => match page {
                    Ok(changes) => {
                        self.page = changes.into_iter();
                        self.held = Some(self.room.hold(size_of_val(self.page.as_slice())));
                    }
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
                    chunk.extend_from_slice(last_word(&problem, &self.caller).as_bytes());
                    break;
                }
            }
        }
        if self.page.as_slice().is_empty() {
            // While it waits, a follower keeps neither changes nor their memory.
            self.page = Vec::new().into_iter();
            self.held = None;
        }
        chunk.shrink_to_fit();
        Some(chunk.into())
    }

    fn write(&self, change: &RecordedChange) -> Result<String, Problem> {
        let document = wire::change(change)?;
        // JSON escapes line breaks, so the data is one line.
        let json = serde_json::to_string(&DocumentView(&document)).map_err(not_written)?;
        Ok(format!("id: {}\ndata: {json}\n\n", id_of(change.number, self.incarnation)))
    }

    /// Ends the stream, with an event that gives the reason unless the server is stopping.
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
