//! `GET /v1/log/follow`: server-sent events, first the existing events and then new ones.

use std::sync::Arc;
use std::time::Duration;

use annals_core::{Follower, Identity, ReadError, RecordedEvent, SequenceNumber, StoreError};
use annals_system::sleep;
use axum::body::Body;
use axum::extract::{FromRequestParts, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream;
use serde::Deserialize;
use utoipa::IntoParams;

use super::lines::CHUNK_BYTES;
use super::portions::{Followed, Portion, Sharing};
use crate::answer::{data_bytes, not_written};
use crate::caller::Caller;
use crate::event_types;
use crate::media;
use crate::metrics::Counted;
use crate::options::Stop;
use crate::payload::Payload;
use crate::problem::Problem;
use crate::query::{From, List, Query, filter, number};
use crate::route::{Argument, Feature, Inputs, Permission, get};
use crate::source::Source;
use crate::state::Server;
use crate::unread::{HeldBytes, Unread};

/// Returns the operation that follows the log.
pub(crate) fn feature() -> Feature {
    let follow = get("/v1/log/follow", Permission::Reader, follow).described(
        "followLog",
        "Follows the log as server-sent events: existing events first, then new ones.",
        Payload::raw(media::EVENTS, "One server-sent event per event of the log; its id is the sequence number."),
    );
    Feature::new("Log", [follow.checking_event_types()])
}

/// The parameters of a follower.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct FollowQuery {
    /// The first sequence number, or `end` for the head; 0 when absent. `Last-Event-ID` takes precedence.
    #[param(value_type = Option<String>, pattern = "^([0-9]+|end)$")]
    from: Option<From>,
    /// Events of any of these types.
    #[param(inline)]
    types: Option<List>,
    /// Events with all of these tags.
    #[param(inline)]
    tags: Option<List>,
    /// Events of the aggregates of this name, or of one aggregate as `name/id`.
    aggregate: Option<String>,
    /// The scope to read; `default` when absent.
    scope: Option<String>,
}

const LAST_EVENT_ID: &str = "Last-Event-ID";

/// The most events that a follower reads at once. It keeps those that its client has not taken. A commit with more is read several times.
const PAGE: usize = 256;

/// `GET /v1/log/follow`.
async fn follow(
    State(server): State<Arc<Server>>,
    Query(query): Query<FollowQuery>,
    LastEventId(position): LastEventId,
    caller: Caller,
) -> Result<Response, Problem> {
    let source = Source::to_read(&server, caller, query.scope)?;
    let identity = source.identity(&server, position.map(|position| position.incarnation))?;
    let wanted = filter(query.types, query.tags, query.aggregate.as_deref())?;
    let wanted = event_types::narrow(&source.caller.principal, wanted)?;
    let head = source.log.head().await?;
    let from = match query.from {
        None => 0,
        Some(From::Number(number)) => number,
        Some(From::End) => head,
    };
    let (from, greeting) = match position {
        None => (from, String::new()),
        Some(position) => position.resume(&identity, head),
    };
    let sharing = server.portions.join(Followed {
        tenant: source.caller.tenant.clone(),
        scope: source.scope.clone(),
        incarnation: identity.incarnation,
        filter: wanted.clone(),
    });
    let feed = Feed {
        follower: Follower::new(Arc::clone(&source.log), from, wanted).in_pages_of(PAGE),
        sharing,
        page: Vec::new().into_iter(),
        from,
        held: None,
        unread: server.options.unread.clone(),
        unread_max: server.options.answer_bytes_in_flight_max,
        // The first comment shows that the stream is established.
        greeting: Some(format!(": from {from}, head {head}\n\n{greeting}").into()),
        incarnation: identity.incarnation,
        comment_interval: server.options.comment_interval,
        stop: server.options.stop.clone(),
        source,
        ended: false,
        _counted: server.follower()?,
    };
    let chunks = stream::unfold(feed, |mut feed| async move {
        let chunk = feed.chunk().await?;
        Some((Ok::<_, std::convert::Infallible>(chunk), feed))
    });
    Ok(event_stream(Body::from_stream(chunks)))
}

/// Returns a response that streams events.
pub(super) fn event_stream(events: Body) -> Response {
    let headers = [
        (header::CONTENT_TYPE, media::EVENTS),
        (header::CACHE_CONTROL, "no-cache"),
        // A proxy that buffers responses would delay the events.
        (header::HeaderName::from_static("x-accel-buffering"), "no"),
    ];
    (headers, events).into_response()
}

/// An event that the client has seen: its number, and the incarnation from which the client received it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Position {
    pub(super) number: SequenceNumber,
    pub(super) incarnation: u32,
}

/// The last event that the client has seen, if it resumes.
pub(super) struct LastEventId(pub Option<Position>);

impl Argument for LastEventId {
    fn describe(inputs: &mut Inputs) {
        inputs.header(LAST_EVENT_ID, "The id of the last event that the client has seen; the stream resumes after it.");
    }
}

impl<S: Sync> FromRequestParts<S> for LastEventId {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        last_event_id(&parts.headers).map(Self)
    }
}

fn last_event_id(headers: &HeaderMap) -> Result<Option<Position>, Problem> {
    // A browser that has not received an id yet sends no header, or an empty one.
    let Some(value) = headers.get(LAST_EVENT_ID).filter(|value| !value.is_empty()) else { return Ok(None) };
    let text = value.to_str().unwrap_or_default();
    let (seen, incarnation) = text.split_once('@').unwrap_or((text, "0"));
    let parsed =
        number(LAST_EVENT_ID, seen).and_then(|seen| Ok((seen, u32::try_from(number(LAST_EVENT_ID, incarnation)?))));
    match parsed {
        Ok((number, Ok(incarnation))) => Ok(Some(Position { number, incarnation })),
        _ => {
            let message = format!("{value:?} is not the id of an event, such as 17 or 17@1");
            Err(Problem::query(LAST_EVENT_ID, message))
        }
    }
}

impl Position {
    /// Returns the sequence number at which to resume, and an event that informs the client if that is not the next number.
    ///
    /// Up to the number at which an incarnation starts, its log equals that of the previous incarnation. What another incarnation stored
    /// from there on is not in this log. Nor is an event past the head, which only another store can have delivered.
    fn resume(self, identity: &Identity, head: SequenceNumber) -> (SequenceNumber, String) {
        let after = self.number.saturating_add(1);
        let other = self.incarnation != identity.incarnation;
        let from = if other { after.min(identity.incarnation_start) } else { after }.min(head);
        // Below the fork the incarnations share one log, so this reader has lost nothing. A later incarnation is not an ancestor.
        if from == after && self.incarnation <= identity.incarnation {
            return (from, String::new());
        }
        let report = serde_json::json!({
            "position": format!("{}@{}", self.number, self.incarnation),
            "incarnation": identity.incarnation,
            "incarnation_start": identity.incarnation_start,
            "from": from,
        });
        (from, format!("event: position_clamped\ndata: {report}\n\n"))
    }
}

struct Feed {
    source: Source,
    follower: Follower,
    sharing: Sharing,
    /// The rest of the page that was read last.
    page: std::vec::IntoIter<RecordedEvent>,
    /// The number from which the page's next portion begins.
    from: SequenceNumber,
    /// The guard that counts the page's bytes as unread.
    held: Option<HeldBytes>,
    unread: Unread,
    unread_max: usize,
    greeting: Option<Bytes>,
    incarnation: u32,
    comment_interval: Duration,
    stop: Stop,
    ended: bool,
    _counted: Counted,
}

impl Feed {
    /// Returns the next events or a comment, or `None` at the end.
    async fn chunk(&mut self) -> Option<Bytes> {
        if let Some(greeting) = self.greeting.take() {
            return Some(greeting);
        }
        if self.ended || self.stop.is_stopped() {
            return None;
        }
        if self.page.as_slice().is_empty() {
            let (unread, max) = (&self.unread, self.unread_max);
            let next = async {
                unread.room(max).await;
                what_follows(&mut self.follower, &self.sharing).await
            };
            tokio::select! {
                biased;
                () = self.stop.stopped() => return None,
                next = next => match next {
                    Ok(Next::Portion(portion)) => return Some(self.pass(portion)),
                    Ok(Next::Page { from, events }) => {
                        self.held = Some(self.unread.hold(data_bytes(&events)));
                        self.page = events.into_iter();
                        self.from = from;
                    }
                    Err(error) => return self.end(error),
                },
                () = sleep(self.comment_interval) => return Some(Bytes::from_static(b": quiet\n\n")),
            }
        } else if let Some(portion) = self.sharing.find(self.from) {
            return Some(self.pass(portion));
        }
        let portion = self.encode();
        if self.ended {
            return Some(portion.bytes);
        }
        let portion = self.sharing.share(self.from, portion);
        Some(self.pass(portion))
    }

    /// Encodes the beginning of the page. The events stay in the page.
    fn encode(&mut self) -> Portion {
        let mut chunk = Vec::with_capacity(4 * 1024);
        let mut events = self.page.as_slice().iter();
        while chunk.len() < CHUNK_BYTES
            && let Some(event) = events.next()
        {
            if let Err(problem) = self.write(&mut chunk, event) {
                self.ended = true;
                chunk.extend_from_slice(last_word(&problem, &self.source.caller).as_bytes());
                break;
            }
        }
        let next = events.as_slice().first().map_or(self.follower.position(), |event| event.sequence_number);
        chunk.shrink_to_fit();
        Portion { bytes: chunk.into(), next }
    }

    /// Moves past a portion and returns its bytes.
    fn pass(&mut self, portion: Portion) -> Bytes {
        while self.page.as_slice().first().is_some_and(|event| event.sequence_number < portion.next) {
            self.page.next();
        }
        self.from = portion.next;
        if self.page.as_slice().is_empty() {
            self.follower.skip_to(portion.next);
            // While it waits, a follower keeps neither events nor their memory.
            self.page = Vec::new().into_iter();
            self.held = None;
        }
        portion.bytes
    }

    fn write(&self, chunk: &mut Vec<u8>, event: &RecordedEvent) -> Result<(), Problem> {
        let begun = chunk.len();
        chunk.extend_from_slice(format!("id: {}", event.sequence_number).as_bytes());
        if self.incarnation > 0 {
            chunk.extend_from_slice(format!("@{}", self.incarnation).as_bytes());
        }
        // JSON escapes line breaks, so the data is one line.
        chunk.extend_from_slice(b"\ndata: ");
        if let Err(error) = serde_json::to_writer(&mut *chunk, &self.source.view(event)) {
            chunk.truncate(begun);
            return Err(not_written(error));
        }
        chunk.extend_from_slice(b"\n\n");
        Ok(())
    }

    /// Ends the stream, with an event that gives the reason unless the server is stopping.
    fn end(&mut self, error: ReadError) -> Option<Bytes> {
        self.ended = true;
        match error {
            ReadError::Store(StoreError::Closed) => None,
            error => Some(last_word(&error.into(), &self.source.caller).into()),
        }
    }
}

/// What a follower is sent next.
enum Next {
    /// Another follower has been sent it.
    Portion(Portion),
    /// It was read for this one.
    Page { from: SequenceNumber, events: Vec<RecordedEvent> },
}

/// Waits for what follows the position of `follower`. Cancelling loses nothing.
async fn what_follows(follower: &mut Follower, sharing: &Sharing) -> Result<Next, ReadError> {
    loop {
        // A commit wakes all followers at once. The first of them reads it, and the others find what that one was sent.
        follower.log_is_longer().await?;
        let from = follower.position();
        if let Some(portion) = sharing.find(from) {
            return Ok(Next::Portion(portion));
        }
        let events = follower.step().await?;
        if !events.is_empty() {
            return Ok(Next::Page { from, events });
        }
    }
}

/// Returns the event that ends a stream which cannot continue.
pub(super) fn last_word(problem: &Problem, caller: &Caller) -> String {
    caller.warn_broken_off(problem.code(), "an event stream");
    format!("event: problem\ndata: {}\n\n", serde_json::to_string(problem).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resumed(number: u64, incarnation: u32, at: Identity, head: u64) -> (u64, bool) {
        let (from, report) = Position { number, incarnation }.resume(&at, head);
        (from, report.contains("position_clamped"))
    }

    #[test]
    fn a_position_below_the_fork_is_resumed_without_a_report() {
        let fork = Identity { store_id: annals_core::Uuid::nil(), incarnation: 1, incarnation_start: 10 };
        assert_eq!(resumed(4, 0, fork, 20), (5, false));
    }

    #[test]
    fn a_position_of_another_incarnation_is_clamped_to_where_this_one_starts_and_reported() {
        let first = Identity { store_id: annals_core::Uuid::nil(), incarnation: 0, incarnation_start: 0 };
        let second = Identity { incarnation: 1, incarnation_start: 10, ..first };
        assert_eq!(resumed(4, 0, first, 20), (5, false));
        assert_eq!(resumed(14, 1, second, 20), (15, false));
        assert_eq!(resumed(14, 0, second, 20), (10, true));
        assert_eq!(resumed(9, 0, second, 20), (10, false));
        assert_eq!(resumed(10, 0, second, 20), (10, true));
        assert_eq!(resumed(4, 2, second, 20), (5, true));
        assert_eq!(resumed(u64::MAX, 0, second, 20), (10, true));
        assert_eq!(resumed(20, 0, first, 20), (20, true));
        assert_eq!(resumed(19, 0, first, 20), (20, false));
    }

    #[test]
    fn the_last_event_id_is_a_number_with_or_without_its_incarnation() {
        let read = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(LAST_EVENT_ID, text.parse().expect("a header value"));
            last_event_id(&headers)
        };
        assert_eq!(read("").expect("valid"), None);
        assert_eq!(read("17").expect("valid"), Some(Position { number: 17, incarnation: 0 }));
        assert_eq!(read("17@3").expect("valid"), Some(Position { number: 17, incarnation: 3 }));
        for bad in ["x", "17@", "@1", "17@x", "-1", "17@4294967296", "1 7"] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
