//! The streams of the SSE bridge. The numbers are those of docs/integr8scode-workflow.md.

use std::time::Duration;

use annals_example_execution::{COMPLETED, FAILED, REQUESTED, RESULT_STORED, Role, STARTED, TIMEOUT, Users};
use reqwest::Method;
use serde_json::{Value, json};

use crate::machine::{marker, until_running};
use crate::service::{Service, ended, memory, started, until, within};
use crate::several_processes::shared_memory;

/// An event of a stream.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    pub id: Option<u64>,
    pub name: String,
    pub data: Value,
}

/// A client of a stream.
pub struct Client {
    answer: reqwest::Response,
    text: String,
}

impl Client {
    /// Connects as a user, after the event with this number if one is given.
    pub async fn connect(service: &Service, user: &str, path: &str, last: Option<u64>) -> Self {
        Self::at(&service.url(path), user, last).await
    }

    /// Does the same at a URL.
    pub async fn at(url: &str, user: &str, last: Option<u64>) -> Self {
        let request = reqwest::Client::new().get(url).header("x-user", user);
        let request = match last {
            Some(last) => request.header("last-event-id", last),
            None => request,
        };
        let answer = within("the stream", request.send()).await.expect("answers");
        assert_eq!(answer.status(), 200);
        assert_eq!(answer.headers()["content-type"], "text/event-stream");
        Self { answer, text: String::new() }
    }

    /// The next event or comment; none at the end of the stream.
    async fn block(&mut self) -> Option<String> {
        loop {
            if let Some((block, rest)) = self.text.split_once("\n\n") {
                let (block, rest) = (block.to_owned(), rest.to_owned());
                self.text = rest;
                return Some(block);
            }
            let chunk = within("an event", self.answer.chunk()).await.expect("can be read")?;
            self.text.push_str(std::str::from_utf8(&chunk).expect("UTF-8"));
        }
    }

    /// The next event; none at the end of the stream.
    pub async fn next(&mut self) -> Option<Event> {
        loop {
            let block = self.block().await?;
            let field = |name: &str| block.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
            let Some(data) = field("data") else { continue };
            return Some(Event {
                id: field("id").and_then(|id| id.parse().ok()),
                name: field("event").expect("a name").to_owned(),
                data: serde_json::from_str(data).expect("JSON"),
            });
        }
    }

    /// Everything up to the end.
    pub async fn rest(mut self) -> Vec<Event> {
        let mut events = Vec::new();
        while let Some(event) = self.next().await {
            events.push(event);
        }
        events
    }
}

fn names(events: &[Event]) -> Vec<&str> {
    events.iter().map(|event| event.name.as_str()).collect()
}

fn stream(id: &str) -> String {
    format!("/executions/{id}/stream")
}

/// A program that runs until a file is there.
fn gated(gate: &str) -> Value {
    let script = format!("until [ -e /tmp/{gate} ]; do sleep 0.01; done; rm /tmp/{gate}");
    json!({ "language": "sh", "script": script, "timeout_seconds": 60 })
}

fn open(gate: &str) {
    std::fs::write(format!("/tmp/{gate}"), "").expect("can be written");
}

#[tokio::test(flavor = "multi_thread")]
async fn statements_96_and_98_the_status_comes_first_then_what_happens_and_the_result_ends_the_stream() {
    let store = memory().await;
    let service = Service::start(&store).await;
    let gate = marker();
    let id = service.submit_with(gated(&gate)).await;
    started(&service.log, &id).await;
    let mut client = Client::connect(&service, "demo", &stream(&id), None).await;
    let status = client.next().await.expect("a status");
    assert_eq!((status.name.as_str(), &status.data["status"]), ("status", &json!("running")), "{status:?}");
    open(&gate);
    let events = client.rest().await;
    let keys = ["event_type", "execution_id", "timestamp", "event_id", "status", "result"];
    for event in events.iter().chain([&status]) {
        let data = event.data.as_object().expect("an object");
        assert!(data.len() == keys.len() && keys.iter().all(|key| data.contains_key(*key)), "{event:?}");
    }
    let last = events.last().expect("at least one");
    assert_eq!((last.name.as_str(), &last.data["result"]["exit_code"]), (RESULT_STORED, &json!(0)), "{events:?}");
    assert!(names(&events).contains(&"pod_succeeded") && names(&events).contains(&COMPLETED), "{events:?}");
    assert!(events.windows(2).all(|two| two[0].id < two[1].id), "in the order of the log: {events:?}");
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn statement_97_strangers_and_unknown_executions_are_refused_before_any_byte_of_a_stream() {
    let store = memory().await;
    let users = [("eva", "t-eva", false), ("max", "t-max", false), ("root", "t-root", true)];
    let users = Users::known(users.map(|(name, token, admin)| (name.to_owned(), token.to_owned(), admin)));
    let service = Service::start_with(&store, |settings| settings.users = users).await;
    let gate = marker();
    let call = async |token: &str, method: Method, path: &str, body: Option<Value>| {
        let request = reqwest::Client::new().request(method, service.url(path)).bearer_auth(token);
        let request = body.iter().fold(request, |request, body| request.json(body));
        within(path, request.send()).await.expect("answers")
    };
    let submitted = call("t-eva", Method::POST, "/executions", Some(gated(&gate))).await;
    let submitted: Value = submitted.json().await.expect("JSON");
    let path = stream(submitted["execution_id"].as_str().expect("an id"));
    for (token, path, status) in [
        ("t-max", path.as_str(), 403),
        ("t-nobody", path.as_str(), 401),
        ("t-eva", "/executions/nothing/stream", 404),
        ("t-eva", "/replays/nothing/stream", 403),
        ("t-root", "/replays/nothing/stream", 404),
    ] {
        let answer = call(token, Method::GET, path, None).await;
        assert_eq!(answer.status().as_u16(), status, "{token} {path}");
        assert_eq!(answer.headers()["content-type"], "application/problem+json");
    }
    for token in ["t-eva", "t-root"] {
        let mut answer = call(token, Method::GET, &path, None).await;
        assert_eq!(answer.status(), 200);
        assert!(answer.chunk().await.expect("can be read").expect("a status").starts_with(b"id: ") || token == "t-eva");
    }
    open(&gate);
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn statements_98_and_99_what_is_over_is_a_status_and_an_end_also_after_a_cancel() {
    let store = memory().await;
    let service = Service::start(&store).await;
    let (good, bad) = (service.submit("sh", "echo fine").await, service.submit("sh", "exit 3").await);
    until(&service.log, &good, &[RESULT_STORED]).await;
    assert_eq!(ended(&service.log, &bad).await.event_type, FAILED);
    let marker = marker();
    let body = json!({ "language": "sh", "script": format!("exec sleep {marker}"), "timeout_seconds": 60 });
    let cancelled = service.submit_with(body).await;
    until_running(&marker, 1).await;
    let live = Client::connect(&service, "demo", &stream(&cancelled), None).await;
    service.call("demo", Method::POST, &format!("/executions/{cancelled}/cancel"), None).await;
    let live = live.rest().await;
    assert_eq!(live.last().expect("an event").name, "execution_cancelled", "{live:?}");
    for (id, state) in [(&good, "completed"), (&bad, "failed"), (&cancelled, "cancelled")] {
        let events = Client::connect(&service, "demo", &stream(id), None).await.rest().await;
        assert_eq!((names(&events), &events[0].data["status"]), (vec!["status"], &json!(state)), "{events:?}");
        let again = Client::connect(&service, "demo", &stream(id), Some(1_000_000)).await.rest().await;
        assert_eq!(names(&again), ["status"], "a client that has everything learns that nothing follows");
    }
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn statement_98_a_failure_and_a_timeout_end_the_stream_of_a_client_that_is_connected() {
    let store = memory().await;
    let service = Service::start(&store).await;
    let gate = marker();
    let script = format!("until [ -e /tmp/{gate} ]; do sleep 0.01; done; rm /tmp/{gate}; exit 3");
    let failing = json!({ "language": "sh", "script": script, "timeout_seconds": 60 });
    let failing = service.submit_with(failing).await;
    // Long enough to connect before it ends.
    let endless = json!({ "language": "sh", "script": "while :; do sleep 1; done", "timeout_seconds": 5 });
    let endless = service.submit_with(endless).await;
    let mut failure = Client::connect(&service, "demo", &stream(&failing), None).await;
    let mut timeout = Client::connect(&service, "demo", &stream(&endless), None).await;
    for client in [&mut failure, &mut timeout] {
        let status = client.next().await.expect("a status");
        assert!(["queued", "scheduled", "running"].iter().any(|it| status.data["status"] == *it), "{status:?}");
    }
    open(&gate);
    for (client, last) in [(failure, FAILED), (timeout, TIMEOUT)] {
        let events = client.rest().await;
        assert_eq!(names(&events).last(), Some(&last), "{events:?}");
        assert!(!names(&events).contains(&COMPLETED), "{events:?}");
    }
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn statement_100_whenever_a_client_connects_it_sees_each_event_once() {
    let store = memory().await;
    let service = Service::start(&store).await;
    let mut running = Vec::new();
    for n in 0..12 {
        let id = service.submit("sh", &format!("echo {n}")).await;
        // While the events of this and of earlier executions are being published.
        running.push((Client::connect(&service, "demo", &stream(&id), None).await.rest(), id));
    }
    for (client, id) in running {
        let events = client.await;
        assert_eq!(events[0].name, "status");
        let mut ids: Vec<_> = events.iter().filter_map(|event| event.id).collect();
        let seen = ids.len();
        ids.dedup();
        assert_eq!(ids.len(), seen, "none twice: {events:?}");
        // Whatever the status did not tell has come after it.
        let whole = Client::connect(&service, "demo", &stream(&id), Some(0)).await.rest().await;
        let all: Vec<_> = whole.iter().filter_map(|event| event.id).collect();
        let first = events[0].id.unwrap_or(0);
        let expected: Vec<_> = all.into_iter().filter(|id| *id > first).collect();
        if events.len() > 1 {
            assert_eq!(events[1..].iter().filter_map(|event| event.id).collect::<Vec<_>>(), expected, "{events:?}");
        } else {
            assert_eq!(events[0].data["status"], "completed", "{events:?}");
        }
    }
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_resumes_after_the_last_event_that_it_has() {
    let store = memory().await;
    let service = Service::start(&store).await;
    let id = service.submit("sh", "echo once").await;
    until(&service.log, &id, &[RESULT_STORED]).await;
    let begun = started(&service.log, &id).await;
    let events = Client::connect(&service, "demo", &stream(&id), Some(begun)).await.rest().await;
    assert!(events.iter().all(|event| event.id > Some(begun)), "{events:?}");
    assert_eq!(names(&events).last(), Some(&RESULT_STORED));
    assert!(names(&events).contains(&"pod_terminated") && !names(&events).contains(&STARTED), "{events:?}");
    let refused = reqwest::Client::new().get(service.url(&stream(&id))).header("last-event-id", "seven").send().await;
    assert_eq!(refused.expect("answers").status(), 422);
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_resumes_while_a_program_runs_gets_what_it_missed_and_then_what_happens() {
    let store = memory().await;
    let service = Service::start(&store).await;
    let gate = marker();
    let id = service.submit_with(gated(&gate)).await;
    let begun = started(&service.log, &id).await;
    let requested = until(&service.log, &id, &[REQUESTED]).await.sequence_number;
    let mut client = Client::connect(&service, "demo", &stream(&id), Some(requested)).await;
    let mut events = Vec::new();
    while events.last().is_none_or(|event: &Event| event.id < Some(begun)) {
        events.push(client.next().await.expect("it goes on"));
    }
    assert_eq!(names(&events).last(), Some(&STARTED), "from the log");
    open(&gate);
    events.extend(client.rest().await);
    let whole = Client::connect(&service, "demo", &stream(&id), Some(0)).await.rest().await;
    let after: Vec<_> = whole.into_iter().filter(|event| event.id > Some(requested)).collect();
    assert_eq!(events, after, "each event once, and none is missing");
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn statement_101_clients_of_two_processes_get_every_event_and_a_quiet_stream_is_kept_alive() {
    let store = shared_memory().await;
    let one = Service::start(&store).await;
    let other = Service::start_with(&store, |settings| {
        settings.roles = [Role::Sse].into();
        settings.ping = Duration::from_millis(50);
    });
    let other = other.await;
    let gate = marker();
    let id = one.submit_with(gated(&gate)).await;
    started(&one.log, &id).await;
    let here = Client::connect(&one, "demo", &stream(&id), None).await;
    let mut there = Client::connect(&other, "demo", &stream(&id), None).await;
    assert!(there.block().await.expect("a status").contains("event: status"));
    assert_eq!(there.block().await.as_deref(), Some(": ping"));
    open(&gate);
    let (here, there) = (here.rest().await, there.rest().await);
    assert_eq!(names(&here)[1..], names(&there)[..], "both get all of it");
    assert_eq!(there.last().expect("an end").name, RESULT_STORED);
    one.crash().await;
    other.crash().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_is_notified_of_the_ends_of_their_own_executions_only() {
    let store = memory().await;
    let service = Service::start(&store).await;
    let mut eva = Client::connect(&service, "eva", "/notifications/stream", None).await;
    for (user, script) in [("max", "echo"), ("eva", "exit 3")] {
        let body = json!({ "language": "sh", "script": script });
        let (status, answer) = service.call(user, Method::POST, "/executions", Some(&body)).await;
        assert_eq!(status, 201);
        ended(&service.log, answer["execution_id"].as_str().expect("an id")).await;
    }
    let told = eva.next().await.expect("a notification");
    assert_eq!((told.name.as_str(), &told.data["user_id"]), ("notification", &json!("eva")), "{told:?}");
    assert!(told.data["body"].as_str().expect("text").contains("failed with exit code 3"), "{told:?}");
    drop(eva);
    let id = told.id.expect("an id");
    let mut again = Client::connect(&service, "eva", "/notifications/stream", Some(id - 1)).await;
    assert_eq!(again.next().await.as_ref(), Some(&told), "it resumes from the log");
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replay_session_is_followed_to_its_end_by_an_administrator() {
    let store = memory().await;
    let service = Service::start(&store).await;
    assert_eq!(service.result_of("sh", "echo").await.event_type, COMPLETED);
    let body =
        json!({ "replay_type": "event_type", "filter": { "event_types": [COMPLETED] }, "target": { "kind": "test" } });
    let (status, replay) = service.call("admin", Method::POST, "/v1/replays", Some(&body)).await;
    assert_eq!(status, 200, "{replay}");
    let id = replay["session_id"].as_str().expect("an id").to_owned();
    let mut client = Client::connect(&service, "admin", &format!("/replays/{id}/stream"), None).await;
    assert_eq!(client.next().await.expect("a status").data["status"], "created");
    let (status, _) = service
        .call(
            "admin",
            Method::POST,
            &format!("/v1/replays/{id}/start"),
            Some(&json!({ "reason": "a test follows it" })),
        )
        .await;
    assert_eq!(status, 200);
    let events = client.rest().await;
    assert_eq!(events.last().expect("an end").data["status"], "completed", "{events:?}");
    let late = Client::connect(&service, "admin", &format!("/replays/{id}/stream"), None).await.rest().await;
    assert_eq!(late.len(), 1, "it is closed at once: {late:?}");
    service.stop().await;
}
