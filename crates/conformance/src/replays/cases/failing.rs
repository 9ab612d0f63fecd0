//! Events that cannot be sent.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use annals_core::browse::{BrowseQuery, EVENTS, ViewSwitch, browse_id};
use annals_core::bson::{Document, RawDocumentBuf, doc};
use annals_core::groups::GroupDefinition;
use annals_core::handlers::{HandlerDefinition, HandlerError, PullBody, SettleBody, Settlement};
use annals_core::partners::{Answered, Outgoing, Sending};
use annals_core::processing::PartitionBy;
use annals_core::replays::{
    OnError, REPLAY_SESSIONS, ReplayAct, ReplayBody, ReplayError, ReplayState, ReplayTarget, of_token,
};
use annals_core::{Clock, DEFAULT_TENANT, GroupStart, RecordChange, Timestamp};
use annals_runtime::{HostOptions, PartnerOptions};
use async_trait::async_trait;
use tokio::sync::Notify;

use super::{numbers, to_handler, to_nowhere};
use crate::browse::opened::{Browsed, of_type};
use crate::handlers::opened::Opened;
use crate::{ManualClock, Subject};

async fn with_events(subject: &dyn Subject, count: usize) -> Browsed {
    let it = Browsed::of(subject).await;
    it.commit_many("placed", count).await;
    it.handler(PartitionBy::None).await;
    it
}

/// The other events are sent.
pub async fn a_failed_event_is_counted_and_listed(subject: &dyn Subject) {
    let it = with_events(subject, 5).await;
    let id = it.begin(to_handler()).await;
    let mut failed = None;
    for _ in 0..5 {
        let delivery = it.it.pull("again").await.remove(0);
        if numbers(std::slice::from_ref(&delivery)) == [2] {
            it.it.fail("again", &delivery).await;
            failed = Some(delivery.event.id.to_string());
        } else {
            it.it.done("again", &delivery).await;
        }
    }
    let over = it.over(&id).await;
    assert_eq!((over.status, over.replayed, over.failed), (ReplayState::Completed, 4, 1));
    assert_eq!((over.errors.len(), &over.errors[0].event_id, &*over.errors[0].error), (1, &failed, "down"));
    assert_eq!(over.errors[0].error_type, None, "it is a failure of an event, not of the session");
    assert!((over.progress - 100.0).abs() < 0.001);
}

/// None is left out, and each counts once.
pub async fn every_event_is_sent_where_all_fail_in_two_groups(subject: &dyn Subject) {
    let it = Browsed::of(subject).await;
    let groups = it.it.host.groups(DEFAULT_TENANT).expect("declared");
    it.commit_many("placed", 4).await;
    for name in ["a", "b"] {
        let definition = GroupDefinition::new(name, ["placed"]);
        groups.put(GroupDefinition { start: GroupStart::Latest, ..definition }).await.expect("defined");
    }
    let to_topic = ReplayBody::new(of_type("placed"), ReplayTarget::Topic { name: None, topics: Default::default() });
    let id = it.begin(ReplayBody { rate: Some(1.0), ..to_topic }).await;
    let mut failed = [Vec::new(), Vec::new()];
    let over = loop {
        for (name, failed) in ["a", "b"].into_iter().zip(&mut failed) {
            let pull = PullBody { max: 100, ..PullBody::default() };
            let pulled = groups.pull(name, pull).await.expect("pulled");
            let results = pulled.iter().map(|it| Settlement::failed(it.token.clone(), "down")).collect();
            let settled = groups.settle(name, SettleBody { results }).await.expect("settled");
            assert!(settled.iter().all(|it| it.settled), "{settled:?}");
            failed.extend(numbers(&pulled));
        }
        let status = it.replays.get(&id).await.expect("known");
        if status.status.is_terminal() {
            break status;
        }
        it.it.clock.advance_millis(1_000);
        crate::between_looks().await;
    };
    for mut numbers in failed {
        numbers.sort_unstable();
        assert_eq!(numbers, [0, 1, 2, 3]);
    }
    assert_eq!((over.status, over.total, over.replayed, over.failed), (ReplayState::Completed, 4, 0, 4), "{over:?}");
}

/// It is not settled for another handler, and not before it was delivered.
pub async fn a_delivery_is_settled_for_its_own_handler_only(subject: &dyn Subject) {
    let it = with_events(subject, 2).await;
    it.it.define(HandlerDefinition::new("other")).await;
    let id = it.begin(to_handler()).await;
    let delivery = it.it.pull("again").await.remove(0);
    let record = of_token(&delivery.token).expect("a delivery of a replay").id;
    let (replay, _) = record.rsplit_once('|').expect("a place");
    let undelivered = format!("replay|0|0|{replay}|{:020}", 1);
    let guessed = [format!("replay|1|{record}"), format!("replay|1|0|{record}")].map(|token| ("again", token));
    let others = [("other", delivery.token.clone()), ("again", undelivered)];
    for (handler, token) in others.into_iter().chain(guessed) {
        let forged = it.it.settle(handler, vec![Settlement::done(token)]).await;
        assert_eq!((forged[0].settled, forged[0].error.as_deref()), (false, Some("lease_lost")), "{handler}");
    }
    it.it.done("again", &delivery).await;
    assert_eq!(numbers(&it.handled(1).await), [1]);
    assert_eq!(it.over(&id).await.replayed, 2);
}

/// Later events are not sent.
pub async fn a_replay_that_stops_on_errors_fails_after_the_first(subject: &dyn Subject) {
    let it = with_events(subject, 8).await;
    let id = it.begin(ReplayBody { on_error: OnError::Stop, ..to_handler() }).await;
    it.handled(2).await;
    let delivery = it.it.pull("again").await.remove(0);
    it.it.fail("again", &delivery).await;
    let over = it.over(&id).await;
    assert_eq!((over.status, over.failed), (ReplayState::Failed, 1));
    assert!(over.error.is_some_and(|error| error.contains(&delivery.event.id.to_string())));
    assert!(it.it.pull_now("again").await.is_empty());
}

/// A pause precedes each attempt.
pub async fn a_failed_event_is_sent_again_as_often_as_asked(subject: &dyn Subject) {
    let it = with_events(subject, 2).await;
    let id = it.begin(ReplayBody { retry_attempts: 2, ..to_handler() }).await;
    for attempt in 1..=3 {
        let delivery = it.it.pull("again").await.remove(0);
        assert_eq!((numbers(std::slice::from_ref(&delivery)), delivery.attempt), (vec![0], attempt));
        it.it.fail("again", &delivery).await;
        if attempt < 3 {
            assert!(it.it.pull_now("again").await.is_empty());
            it.it.clock.advance_millis(1_000 * i64::from(attempt));
        }
    }
    assert_eq!(numbers(&it.handled(1).await), [1]);
    let over = it.over(&id).await;
    assert_eq!((over.replayed, over.failed), (1, 1));
}

/// It is delivered again if there is an attempt left.
pub async fn a_delivery_whose_lease_ended_is_not_settled(subject: &dyn Subject) {
    let it = with_events(subject, 1).await;
    let id = it.begin(ReplayBody { retry_attempts: 1, ..to_handler() }).await;
    let first = it.it.pull("again").await.remove(0);
    assert!(it.it.pull_now("again").await.is_empty());
    it.it.clock.advance_millis(30_000);
    let second = it.it.pull("again").await.remove(0);
    assert_eq!((second.attempt, second.event.id), (2, first.event.id));
    let late = it.it.settle("again", vec![Settlement::done(first.token)]).await;
    assert_eq!((late[0].settled, late[0].error.as_deref()), (false, Some("lease_lost")));
    it.it.done("again", &second).await;
    assert_eq!(it.over(&id).await.replayed, 1);
}

fn sending_to(receiver: Arc<dyn Sending>) -> HostOptions {
    HostOptions { partners: PartnerOptions { sending: receiver, keys: None }, ..HostOptions::default() }
}

/// Opens a view of five events of the type `placed`, and a replay of them to a webhook whose requests `receiver` gets.
async fn with_webhook(subject: &dyn Subject, receiver: Arc<dyn Sending>) -> (Browsed, ReplayBody) {
    let it = Browsed::with(subject.open().await, subject.clock(), sending_to(receiver));
    it.switch(Some(ViewSwitch::Auto)).await;
    it.commit_many("placed", 5).await;
    let target = ReplayTarget::Webhook { url: "https://receiver.example/".to_owned() };
    (it, ReplayBody::new(of_type("placed"), target))
}

/// A receiver that refuses the event whose field `n` is 1, and notes every request.
#[derive(Default)]
struct Refusing(Mutex<Vec<Outgoing>>);

#[async_trait]
impl Sending for Refusing {
    async fn send(&self, request: Outgoing) -> Result<Answered, String> {
        let body: serde_json::Value = serde_json::from_slice(&request.body).expect("JSON");
        let status = if body["n"] == 1 { 400 } else { 200 };
        self.0.lock().expect("no panic").push(request);
        Ok(Answered { status, retry_after: None, said: String::new() })
    }

    fn check(&self, _: &str) -> Result<(), String> {
        Ok(())
    }
}

/// Each request has the id of the replay, and the other events are sent.
pub async fn a_webhook_is_called_for_each_event_and_what_it_refuses_is_counted(subject: &dyn Subject) {
    let receiver = Arc::new(Refusing::default());
    let (it, body) = with_webhook(subject, receiver.clone()).await;
    let id = it.begin(body).await;
    let over = it.over(&id).await;
    assert_eq!((over.status, over.replayed, over.failed), (ReplayState::Completed, 4, 1));
    assert!(over.errors.len() == 1 && over.errors[0].error.contains("answered 400"), "{:?}", over.errors);
    let requests = receiver.0.lock().expect("no panic");
    let bodies: Vec<serde_json::Value> =
        requests.iter().map(|request| serde_json::from_slice(&request.body).expect("JSON")).collect();
    assert_eq!(bodies.iter().map(|body| body["n"].clone()).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
    assert!(bodies.iter().all(|body| body["replay"]["id"] == *over.replay_id));
    assert_eq!(over.errors[0].event_id.as_deref(), bodies[1]["event_id"].as_str());
    let marked = |request: &Outgoing| request.headers.contains(&("annals-replay", over.replay_id.clone()));
    assert!(requests.iter().all(marked));
}

/// A receiver that accepts two events, is down until a time, and accepts everything from then on.
struct Interrupted {
    clock: Arc<ManualClock>,
    until: Timestamp,
    /// The field `n` of what it accepted, and how often it was called while it was down.
    taken: Mutex<(Vec<i64>, u64)>,
}

#[async_trait]
impl Sending for Interrupted {
    async fn send(&self, request: Outgoing) -> Result<Answered, String> {
        let mut taken = self.taken.lock().expect("no panic");
        if taken.0.len() < 2 || self.clock.now() >= self.until {
            let body: serde_json::Value = serde_json::from_slice(&request.body).expect("JSON");
            taken.0.push(body["n"].as_i64().expect("a number"));
            return Ok(Answered { status: 200, retry_after: None, said: String::new() });
        }
        taken.1 += 1;
        match taken.1 % 2 {
            1 => Err("connection refused".to_owned()),
            _ => Ok(Answered { status: 503, retry_after: None, said: String::new() }),
        }
    }

    fn check(&self, _: &str) -> Result<(), String> {
        Ok(())
    }
}

/// The status says what the replay waits for, and the replay keeps running.
pub async fn a_webhook_that_is_down_for_an_hour_gets_every_event_once_and_in_order(subject: &dyn Subject) {
    let clock = subject.clock();
    let until = clock.now().plus(Duration::from_secs(60 * 60));
    let receiver = Arc::new(Interrupted { clock, until, taken: Mutex::default() });
    let (it, body) = with_webhook(subject, receiver.clone()).await;
    let id = it.begin(body).await;
    let waiting = it.until_replay(&id, |status| status.error.is_some()).await;
    assert_eq!((waiting.status, waiting.replayed, waiting.failed), (ReplayState::Running, 2, 0));
    assert_eq!(waiting.error.as_deref(), Some("waits for its target: connection refused"));
    let over = loop {
        it.it.clock.advance_millis(5_000);
        let status = it.replays.get(&id).await.expect("known");
        if status.status.is_terminal() {
            break status;
        }
        crate::between_looks().await;
    };
    assert_eq!((over.status, over.replayed, over.failed), (ReplayState::Completed, 5, 0));
    assert!(over.error.is_none() && over.errors.is_empty(), "{over:?}");
    let taken = receiver.taken.lock().expect("no panic");
    assert_eq!(taken.0, [0, 1, 2, 3, 4]);
    assert!(taken.1 > 2, "it was attempted again and again");
}

/// A receiver that answers its first request when a case allows it, and notes the field `n` of every request.
#[derive(Default)]
struct Slow {
    posted: Mutex<Vec<i64>>,
    begun: Notify,
    answer: Notify,
}

#[async_trait]
impl Sending for Slow {
    async fn send(&self, request: Outgoing) -> Result<Answered, String> {
        let body: serde_json::Value = serde_json::from_slice(&request.body).expect("JSON");
        let is_first = {
            let mut posted = self.posted.lock().expect("no panic");
            posted.push(body["n"].as_i64().expect("a number"));
            posted.len() == 1
        };
        if is_first {
            self.begun.notify_one();
            self.answer.notified().await;
        }
        Ok(Answered { status: 200, retry_after: None, said: String::new() })
    }

    fn check(&self, _: &str) -> Result<(), String> {
        Ok(())
    }
}

/// The replay is resumed after the pause.
pub async fn an_event_that_is_posted_during_a_pause_is_not_posted_again(subject: &dyn Subject) {
    let receiver = Arc::new(Slow::default());
    let (it, body) = with_webhook(subject, receiver.clone()).await;
    let id = it.begin(body).await;
    receiver.begun.notified().await;
    it.act(&id, ReplayAct::Pause).await;
    receiver.answer.notify_one();
    it.act(&id, ReplayAct::Resume).await;
    let over = it.over(&id).await;
    assert_eq!((over.status, over.replayed, over.failed), (ReplayState::Completed, 5, 0));
    assert_eq!(*receiver.posted.lock().expect("no panic"), [0, 1, 2, 3, 4]);
}

/// It is the last one that is sent.
pub async fn an_event_that_is_posted_when_a_replay_is_cancelled_is_counted(subject: &dyn Subject) {
    let receiver = Arc::new(Slow::default());
    let (it, body) = with_webhook(subject, receiver.clone()).await;
    let id = it.begin(body).await;
    receiver.begun.notified().await;
    assert_eq!(it.act(&id, ReplayAct::Cancel).await.replayed, 0);
    receiver.answer.notify_one();
    let counted = it.until_replay(&id, |status| status.replayed == 1).await;
    assert_eq!(counted.status, ReplayState::Cancelled);
    assert_eq!(*receiver.posted.lock().expect("no panic"), [0]);
}

/// The process waits for the answer and stores it.
pub async fn an_event_that_is_posted_when_its_process_ends_is_not_posted_again(subject: &dyn Subject) {
    let receiver = Arc::new(Slow::default());
    let (it, body) = with_webhook(subject, receiver.clone()).await;
    let id = it.begin(body).await;
    receiver.begun.notified().await;
    let Browsed { it: Opened { store, host, clock, .. }, replays, .. } = it;
    let answer = async {
        // A host that ends refuses requests.
        while replays.get(&id).await.is_ok() {
            crate::between_looks().await;
        }
        receiver.answer.notify_one();
    };
    tokio::join!(host.drain(), answer);
    drop(host);
    let it = Browsed::with(store, clock, sending_to(receiver.clone()));
    let over = loop {
        let status = it.replays.get(&id).await.expect("known");
        if status.status.is_terminal() {
            break status;
        }
        it.it.clock.advance_millis(500);
        crate::between_looks().await;
    };
    assert_eq!((over.status, over.replayed, over.failed), (ReplayState::Completed, 5, 0));
    assert_eq!(*receiver.posted.lock().expect("no panic"), [0, 1, 2, 3, 4]);
}

/// It is refused when the replay is created.
pub async fn an_unknown_handler_is_refused(subject: &dyn Subject) {
    let it = with_events(subject, 1).await;
    let body = ReplayBody::new(of_type("placed"), ReplayTarget::Handler { name: "nobody".into() });
    let refused = it.replays.create(body).await;
    assert_eq!(refused, Err(ReplayError::Handler(HandlerError::Unknown("nobody".into()))));
    let to_file = ReplayBody::new(of_type("placed"), ReplayTarget::File { name: "events.jsonl".to_owned() });
    assert!(matches!(it.replays.create(to_file).await, Err(ReplayError::Invalid(_))), "there is no folder");
}

/// It is a failure of the session itself, not of an event.
pub async fn a_replay_that_cannot_continue_has_an_error_with_its_type(subject: &dyn Subject) {
    let it = with_events(subject, 3).await;
    let paused = async |body: ReplayBody| {
        let id = it.begin(ReplayBody { rate: Some(1.0), ..body }).await;
        it.until_replay(&id, |status| status.replayed == 1).await;
        it.act(&id, ReplayAct::Pause).await;
        id
    };
    let (to_deleted, of_view) = (paused(to_handler()).await, paused(to_nowhere()).await);
    it.it.handlers.delete("again", "a test".into()).await.expect("deleted");
    it.act(&to_deleted, ReplayAct::Resume).await;
    it.over(&to_deleted).await;
    it.switch(Some(ViewSwitch::Off)).await;
    it.act(&of_view, ReplayAct::Resume).await;
    it.over(&of_view).await;
    for (id, error_type) in [(to_deleted, "target_unavailable"), (of_view, "browse_view_unavailable")] {
        let over = it.replays.get(&id).await.expect("known");
        assert_eq!(over.status, ReplayState::Failed, "{over:?}");
        let error = over.errors.iter().find(|it| it.error_type.is_some()).expect("an error of the session");
        assert_eq!((error.error_type.as_deref(), error.event_id.as_deref()), (Some(error_type), None), "{over:?}");
        assert_eq!(over.error.as_ref(), Some(&error.error), "why it failed");
    }
}

/// A document that other software wrote at the place of an event is not treated as that event, which the filter might not select.
pub async fn a_damaged_document_is_counted_as_failed_and_the_others_are_sent(subject: &dyn Subject) {
    let it = with_events(subject, 3).await;
    it.browse.page(BrowseQuery::default()).await.expect("a page");
    let damaged = doc! {"_id": browse_id(1), "event_id": "x-1", "event_type": "placed", "timestamp": 7};
    let damaged = RecordChange::put(EVENTS, RawDocumentBuf::try_from(&damaged).expect("BSON"));
    // A replay sends only documents whose `_id` is below that of the head of the log.
    let foreign = doc! {"_id": "0", "event_id": "x-2", "event_type": "placed"};
    let foreign = RecordChange::put(EVENTS, RawDocumentBuf::try_from(&foreign).expect("BSON"));
    it.records.write(vec![damaged, foreign]).await.expect("written");
    let id = it.begin(to_handler()).await;
    assert_eq!(numbers(&it.handled(2).await), [0, 2]);
    let over = it.over(&id).await;
    assert_eq!((over.status, over.total, over.replayed, over.failed), (ReplayState::Completed, 3, 2, 1), "{over:?}");
    assert_eq!((over.errors.len(), over.errors[0].event_id.as_deref()), (1, Some("x-1")));
}

/// That document comes first, and those with a time after it.
pub async fn a_replay_is_resumed_after_a_document_whose_time_is_a_number(subject: &dyn Subject) {
    let it = with_events(subject, 3).await;
    it.browse.page(BrowseQuery::default()).await.expect("a page");
    let damaged = doc! {"_id": browse_id(1), "event_id": "x-1", "event_type": "placed", "timestamp": 7};
    let damaged = RecordChange::put(EVENTS, RawDocumentBuf::try_from(&damaged).expect("BSON"));
    it.records.write(vec![damaged]).await.expect("written");
    let id = it.begin(ReplayBody { rate: Some(1.0), ..to_nowhere() }).await;
    it.until_replay(&id, |status| status.failed == 1).await;
    it.act(&id, ReplayAct::Pause).await;
    it.act(&id, ReplayAct::Resume).await;
    let over = loop {
        it.it.clock.advance_millis(1_000);
        let status = it.replays.get(&id).await.expect("known");
        if status.status.is_terminal() {
            break status;
        }
        crate::between_looks().await;
    };
    assert_eq!((over.status, over.replayed, over.failed), (ReplayState::Completed, 2, 1));
}

/// Stored and shown are counters, times and errors, of a running session and of a finished one.
pub async fn the_stored_session_is_what_is_shown(subject: &dyn Subject) {
    let it = with_events(subject, 3).await;
    let id = it.begin(to_handler()).await;
    let delivery = it.it.pull("again").await.remove(0);
    it.it.fail("again", &delivery).await;
    it.handled(2).await;
    let over = it.over(&id).await;
    let stored = it.records.get(REPLAY_SESSIONS, &id.as_str().into()).await.expect("read").expect("stored");
    let stored = Document::try_from(&*stored.document).expect("a document");
    let number = |name: &str| stored.get_i64(name).ok().map(i64::cast_unsigned);
    assert_eq!(number("total_events"), Some(over.total));
    assert_eq!((number("replayed_events"), number("failed_events")), (Some(over.replayed), Some(over.failed)));
    assert_eq!((over.replayed, over.failed), (2, 1));
    assert_eq!(stored.get_str("status").ok(), Some("completed"));
    assert_eq!(stored.get_str("replay_id").ok(), Some(&*over.replay_id));
    for name in ["created_at", "started_at", "completed_at", "last_event_at"] {
        assert!(stored.get_datetime(name).is_ok(), "{name}");
    }
    assert_eq!(stored.get_array("errors").map(Vec::len).ok(), Some(over.errors.len()));
}
