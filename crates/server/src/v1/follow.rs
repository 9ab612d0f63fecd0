//! `GET /v1/log/follow`: server-sent events, first the existing events and then new ones.

use std::sync::Arc;

use annals_core::{Filter, Follower, Identity, ReadError, RecordedEvent, SequenceNumber, StoreError};
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
use super::portions::{Portion, Portions, Sharing, Wanted};
use crate::answer::not_written;
use crate::caller::Caller;
use crate::event_types;
use crate::following::{Followed, Following, Position, Step, log_follower};
use crate::media;
use crate::payload::Payload;
use crate::problem::Problem;
use crate::query::{From, List, Query, filter, number};
use crate::route::{Argument, Feature, Inputs, Permission, get};
use crate::source::Source;
use crate::state::Server;

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
        Some(position) => match position.resume(&identity, head) {
            (from, false) => (from, String::new()),
            (from, true) => (from, clamped(position, &identity, from)),
        },
    };
    let shared = Shared::join(&server.portions, &source, identity.incarnation, (from, wanted));
    let feed = Feed {
        following: Following::new(&server, shared)?,
        // The first comment shows that the stream is established.
        greeting: Some(format!(": from {from}, head {head}\n\n{greeting}").into()),
        incarnation: identity.incarnation,
        source,
        ended: false,
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

/// Returns an event that informs the client that it does not resume with the next number.
fn clamped(position: Position, identity: &Identity, from: SequenceNumber) -> String {
    let report = serde_json::json!({
        "position": format!("{}@{}", position.number, position.incarnation),
        "incarnation": identity.incarnation,
        "incarnation_start": identity.incarnation_start,
        "from": from,
    });
    format!("event: position_clamped\ndata: {report}\n\n")
}

struct Feed {
    source: Source,
    following: Following<Shared>,
    greeting: Option<Bytes>,
    incarnation: u32,
    ended: bool,
}

impl Feed {
    /// Returns the next events or a comment, or `None` at the end.
    async fn chunk(&mut self) -> Option<Bytes> {
        if let Some(greeting) = self.greeting.take() {
            return Some(greeting);
        }
        if self.ended {
            return None;
        }
        match self.following.step().await {
            Step::Events => {}
            Step::Quiet => return Some(Bytes::from_static(b": quiet\n\n")),
            Step::Stopped => return None,
            Step::Failed(error) => return self.end(error),
        }
        if let Some(portion) = self.following.followed.portion() {
            return Some(self.pass(portion));
        }
        let portion = self.encode();
        if self.ended {
            return Some(portion.bytes);
        }
        let portion = self.following.followed.share(portion);
        Some(self.pass(portion))
    }

    /// Encodes the beginning of the page. The events stay in the page.
    fn encode(&mut self) -> Portion {
        let mut chunk = Vec::with_capacity(4 * 1024);
        let mut events = self.following.page().iter();
        while chunk.len() < CHUNK_BYTES
            && let Some(event) = events.next()
        {
            if let Err(problem) = self.write(&mut chunk, event) {
                self.ended = true;
                chunk.extend_from_slice(last_word(&problem, &self.source.caller).as_bytes());
                break;
            }
        }
        let shared = &self.following.followed;
        let next = events.as_slice().first().map_or(shared.follower.position(), |event| event.sequence_number);
        chunk.shrink_to_fit();
        Portion { bytes: chunk.into(), next }
    }

    /// Moves past a portion and returns its bytes.
    fn pass(&mut self, portion: Portion) -> Bytes {
        self.following.skip_while(|event| event.sequence_number < portion.next);
        let is_all = self.following.page().is_empty();
        self.following.followed.pass(portion.next, is_all);
        self.following.rest();
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

/// A follower that shares what it reads with the other followers of the same events.
struct Shared {
    follower: Follower,
    sharing: Sharing,
    /// The number from which the page's next portion begins.
    from: SequenceNumber,
    /// What another follower has been sent from there on, found instead of a page.
    found: Option<Portion>,
}

impl Shared {
    fn join(portions: &Portions, source: &Source, incarnation: u32, (from, filter): (SequenceNumber, Filter)) -> Self {
        let (tenant, scope) = (source.caller.tenant.clone(), source.scope.clone());
        let sharing = portions.join(Wanted { tenant, scope, incarnation, filter: filter.clone() });
        Self { follower: log_follower(source, from, filter), sharing, from, found: None }
    }

    /// Returns what another follower has been sent from the page's next portion on.
    fn portion(&mut self) -> Option<Portion> {
        self.found.take().or_else(|| self.sharing.find(self.from))
    }

    fn share(&self, portion: Portion) -> Portion {
        self.sharing.share(self.from, portion)
    }

    /// Moves past the portion in front of `next`, with which the page may end.
    fn pass(&mut self, next: SequenceNumber, is_all: bool) {
        self.from = next;
        if is_all {
            self.follower.skip_to(next);
        }
    }
}

impl Followed for Shared {
    type Event = RecordedEvent;

    /// A page without events means that there is a portion.
    async fn page(&mut self) -> Result<Vec<RecordedEvent>, ReadError> {
        loop {
            // A commit wakes all followers at once. The first of them reads it, and the others find what that one was sent.
            self.follower.log_is_longer().await?;
            let from = self.follower.position();
            self.found = self.sharing.find(from);
            let events = if self.found.is_some() { Vec::new() } else { self.follower.step().await? };
            if self.found.is_some() || !events.is_empty() {
                self.from = from;
                return Ok(events);
            }
        }
    }

    /// It goes back to the number from which the page was read, because the other followers look for the portion that begins there.
    fn go_back_to(&mut self, _: &RecordedEvent) {
        self.follower.go_back_to(self.from);
    }

    fn position(&self) -> u64 {
        self.follower.position()
    }

    fn data_bytes(event: &RecordedEvent) -> usize {
        event.page_bytes()
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
