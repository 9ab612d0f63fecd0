//! The streams of the bridge: of an execution, of a user's notifications, and of a replay session.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;

use annals::replays::ReplayStatus;
use annals::server::Problem;
use annals::{AggregateFilter, DEFAULT_TENANT, Filter, LogQuery, ReadError, RecordedEvent, SequenceNumber, limits};
use axum::Router;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use futures_util::stream;
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};

use super::{Bridge, LAST, Topic, types};
use crate::events::{AGGREGATE, NOTIFICATION_CREATED, RESULT_STORED};
use crate::execution::Execution;
use crate::records::{ResultRecord, typed};
use crate::scheduler::stopped;

/// Returns the routes of the bridge.
pub(crate) fn routes(bridge: Arc<Bridge>) -> Router {
    Router::new()
        .route("/executions/{id}/stream", get(of_execution))
        .route("/notifications/stream", get(of_user))
        .route("/replays/{id}/stream", get(of_replay))
        .with_state(bridge)
}

/// `GET /executions/{id}/stream`: sends the status, then events, until the last one.
async fn of_execution(
    State(bridge): State<Arc<Bridge>>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let caller = bridge.users.caller(&headers)?;
    // Subscribe before reading, so that no event is missed.
    let live = bridge.hub.subscribe(Topic::Execution(id.clone()));
    let execution = Execution::of_caller(&*bridge.log, &id, &caller).await?;
    let last = last_event_id(&headers)?;
    let filter = Filter {
        types: types(),
        aggregate: Some(AggregateFilter { name: AGGREGATE.into(), id: Some(id.as_str().into()) }),
        ..Filter::default()
    };
    let mut events =
        Events { after: last, live: Some(live), read: VecDeque::new(), filter, topic: Topic::Execution(id) };
    let first = if last.is_none() {
        // The status already contains the events before it.
        events.pass_to_head(&bridge).await?;
        Some(status(&bridge, &execution_now(&bridge, &events, execution).await?).await?)
    } else {
        while events.read_page(&bridge).await? {}
        // A client that has the last event learns that nothing follows it.
        let state = status(&bridge, &execution).await?;
        Some(state).filter(|(_, is_last)| *is_last && events.read.is_empty())
    };
    Ok(Stream { bridge, events, first, ended: false, kind: Kind::Execution }.answer())
}

/// Reads an execution again, so that its status is at least as recent as the events that the stream has skipped.
async fn execution_now(bridge: &Bridge, events: &Events, before: Execution) -> Result<Execution, Problem> {
    let Topic::Execution(id) = &events.topic else { return Ok(before) };
    Ok(Execution::read(&*bridge.log, id).await?.unwrap_or(before))
}

/// `GET /notifications/stream`: sends the notifications of the caller, without an end.
async fn of_user(State(bridge): State<Arc<Bridge>>, headers: HeaderMap) -> Result<Response, Problem> {
    let caller = bridge.users.caller(&headers)?;
    let topic = Topic::User(caller.user);
    let live = bridge.hub.subscribe(topic.clone());
    let (after, live) = match last_event_id(&headers)? {
        // The stream reads from the log, then subscribes again.
        Some(after) => (Some(after), None),
        // Earlier notifications are in the log and in lists, and were not requested.
        None => (bridge.log.head().await?.checked_sub(1), Some(live)),
    };
    let filter = Filter { types: vec![NOTIFICATION_CREATED.into()], ..Filter::default() };
    let events = Events { after, live, read: VecDeque::new(), filter, topic };
    Ok(Stream { bridge, events, first: None, ended: false, kind: Kind::Notifications }.answer())
}

/// `GET /replays/{id}/stream`: sends the states of a replay session until it is over.
async fn of_replay(
    State(bridge): State<Arc<Bridge>>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    bridge.users.caller(&headers)?.must_be_admin()?;
    let replays = bridge.host.replays(DEFAULT_TENANT)?;
    let first = replays.get(&id).await?;
    let state = (bridge, replays, id, Some(first), None::<ReplayStatus>);
    let chunks = stream::unfold(state, |(bridge, replays, id, first, seen)| async move {
        if seen.as_ref().is_some_and(|seen| seen.status.is_terminal()) {
            return None;
        }
        let mut stopping = bridge.stopping.clone();
        let status = match first {
            Some(first) => Ok(first),
            None => tokio::select! {
                () = stopped(&mut stopping) => return None,
                status = replays.changed(&id, seen.as_ref()) => status,
                () = bridge.host.clock().sleep(bridge.ping) => {
                    return Some((Ok::<_, Infallible>(PING.to_owned()), (bridge, replays, id, None, seen)));
                }
            },
        };
        let status = status.ok()?;
        let text = written("status", None, &serde_json::to_value(&status).unwrap_or_default());
        Some((Ok(text), (bridge, replays, id, None, Some(status))))
    });
    Ok(event_stream(Body::from_stream(chunks)))
}

/// A comment, which keeps the connection alive.
const PING: &str = ": ping\n\n";

fn event_stream(body: Body) -> Response {
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-cache"),
        // Proxies that buffer responses would delay events.
        (header::HeaderName::from_static("x-accel-buffering"), "no"),
    ];
    (headers, body).into_response()
}

/// Returns the number of the last event that the client has.
fn last_event_id(headers: &HeaderMap) -> Result<Option<SequenceNumber>, Problem> {
    let Some(value) = headers.get("last-event-id") else { return Ok(None) };
    let number = value.to_str().ok().and_then(|text| text.parse().ok());
    let refused = || {
        Problem::query(
            "Last-Event-ID",
            format!("{value:?} is not an id of this stream; send the last id that you received"),
        )
    };
    number.map(Some).ok_or_else(refused)
}

/// Returns an event of a stream in the form in which it is sent.
fn written(name: &str, id: Option<SequenceNumber>, data: &Value) -> String {
    let id = id.map(|id| format!("id: {id}\n")).unwrap_or_default();
    format!("{id}event: {name}\ndata: {data}\n\n")
}

/// The events of a stream: those of the log after a number, then live ones.
struct Events {
    /// Every event up to this number was passed on or is in `read`; `None` before the first event.
    after: Option<SequenceNumber>,
    /// `None` while the stream reads from the log, because it is starting or has lagged too far.
    live: Option<mpsc::Receiver<Arc<RecordedEvent>>>,
    read: VecDeque<RecordedEvent>,
    filter: Filter,
    topic: Topic,
}

impl Events {
    /// Reads a page of the log. Returns whether it had any events. Cancelling it changes nothing.
    async fn read_page(&mut self, bridge: &Bridge) -> Result<bool, ReadError> {
        let from = Some(self.after.map_or(0, |after| after + 1));
        let query = LogQuery { from, limit: limits::PAGE_MAX, filter: self.filter.clone(), ..LogQuery::default() };
        let page = bridge.log.read(query).await?;
        let Some(last) = page.events.last().map(|event| event.sequence_number) else { return Ok(false) };
        self.after = Some(last);
        let topic = &self.topic;
        self.read.extend(page.events.into_iter().filter(|event| super::topic_of(event).as_ref() == Some(topic)));
        Ok(true)
    }

    /// Skips all events that are in the log now.
    async fn pass_to_head(&mut self, bridge: &Bridge) -> Result<(), ReadError> {
        while self.read_page(bridge).await? {
            self.read.clear();
        }
        Ok(())
    }

    /// Returns the next event. Cancelling it loses none.
    async fn next(&mut self, bridge: &Bridge) -> Result<RecordedEvent, ReadError> {
        loop {
            if let Some(event) = self.read.pop_front() {
                return Ok(event);
            }
            match &mut self.live {
                None => {
                    // Subscribe before reading the log, so that no event in between is missed.
                    let live = bridge.hub.subscribe(self.topic.clone());
                    if !self.read_page(bridge).await? {
                        self.live = Some(live);
                    }
                }
                Some(live) => match live.recv().await {
                    Some(event) if self.after.is_none_or(|after| event.sequence_number > after) => {
                        self.after = Some(event.sequence_number);
                        return Ok((*event).clone());
                    }
                    Some(_) => {}
                    None => self.live = None,
                },
            }
        }
    }
}

enum Kind {
    Execution,
    Notifications,
}

struct Stream {
    bridge: Arc<Bridge>,
    events: Events,
    /// The first message, and whether it is also the last.
    first: Option<(Value, bool)>,
    ended: bool,
    kind: Kind,
}

impl Stream {
    fn answer(self) -> Response {
        let chunks = stream::unfold(self, |mut stream| async move {
            let chunk = stream.chunk().await?;
            Some((Ok::<_, Infallible>(chunk), stream))
        });
        event_stream(Body::from_stream(chunks))
    }

    /// Returns the next event or comment; `None` at the end.
    async fn chunk(&mut self) -> Option<String> {
        if self.ended {
            return None;
        }
        if let Some((status, is_last)) = self.first.take() {
            self.ended = is_last;
            return Some(written("status", self.events.after, &status));
        }
        let mut stopping: watch::Receiver<bool> = self.bridge.stopping.clone();
        let event = tokio::select! {
            biased;
            () = stopped(&mut stopping) => return None,
            event = self.events.next(&self.bridge) => event,
            () = self.bridge.host.clock().sleep(self.bridge.ping) => return Some(PING.to_owned()),
        };
        // The client reconnects with the number of the last event.
        let event = event.ok()?;
        match self.kind {
            Kind::Notifications => {
                let data: Value = event.data.decode().unwrap_or_default();
                Some(written("notification", Some(event.sequence_number), &data))
            }
            Kind::Execution => {
                self.ended = LAST.contains(&&*event.event_type);
                let data = payload(&self.bridge, &event).await;
                Some(written(&event.event_type, Some(event.sequence_number), &data))
            }
        }
    }
}

/// Returns an event in the form of Integr8sCode: with all six keys, null where they do not apply.
async fn payload(bridge: &Bridge, event: &RecordedEvent) -> Value {
    let id = &*event.commit.aggregate.id;
    let result = match &*event.event_type {
        RESULT_STORED => result(bridge, id).await,
        _ => Value::Null,
    };
    json!({
        "event_type": &*event.event_type, "execution_id": id, "timestamp": event.time.to_string(),
        "event_id": event.id.to_string(), "status": null, "result": result,
    })
}

/// Returns the status of an execution as an event of the stream, and whether it is the last one.
async fn status(bridge: &Bridge, execution: &Execution) -> Result<(Value, bool), Problem> {
    let last = execution.events.iter().rev().find(|event| LAST.contains(&&*event.event_type));
    let id = &*execution.request().commit.aggregate.id;
    let newest = execution.events.last().unwrap_or_else(|| execution.request());
    let value = json!({
        "event_type": "status", "execution_id": id, "timestamp": newest.time.to_string(), "event_id": newest.id.to_string(),
        "status": execution.status().name(), "result": result(bridge, id).await,
    });
    Ok((value, last.is_some()))
}

async fn result(bridge: &Bridge, id: &str) -> Value {
    let found = typed::<ResultRecord>(&bridge.records).get(id).await;
    found.ok().flatten().map_or(Value::Null, |found| found.value.shown())
}

#[cfg(test)]
mod tests;
