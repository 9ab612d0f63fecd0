//! Replays that post events to a URL, behind a server: real requests, and a receiver that fails on the way.

use annals::browse::ReplayFilter;
use annals::replays::{OnError, ReplayAct, ReplayBody, ReplayState, ReplayStatus, ReplayTarget, Replays};
use annals::{Code, Data, EventLog, NewCommit, NewEvent, Reached};
use serde_json::Value;

use crate::partner_faults::{Behaviour, Receiver, status};
use crate::partners::{Served, header, served};

/// A server with three orders.
async fn with_orders() -> Served {
    let it = served().await;
    for n in 0..3 {
        let data = Data::from_json(&format!(r#"{{"n":{n}}}"#)).expect("a document");
        let commit = NewCommit::new("order", format!("o-{n}")).event(NewEvent::new("placed", data));
        it.client.commit(commit.wait_until(Reached::Logged)).await.expect("committed");
    }
    it
}

fn to(url: &str) -> ReplayBody {
    let filter = ReplayFilter { event_types: Some(vec!["placed".to_owned()]), ..ReplayFilter::default() };
    ReplayBody::new(filter, ReplayTarget::Webhook { url: url.to_owned() })
}

/// Starts a replay and waits until it is over, while the time of the retries passes.
async fn over(it: &Served, body: ReplayBody) -> ReplayStatus {
    let replays = it.client.replays();
    let created = replays.create(body).await.expect("created");
    replays.act(&created.session_id, ReplayAct::Start, "a test".into()).await.expect("started");
    loop {
        it.clock.advance_millis(500);
        let status = replays.get(&created.session_id).await.expect("known");
        if status.status.is_terminal() {
            return status;
        }
    }
}

/// In order, with the replay's id, and the same id of the event for each attempt.
#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_gets_each_event_with_the_id_of_the_replay() {
    let behaviours = vec![status("200 OK"), status("503 Busy"), Behaviour::LosesTheAnswer, status("200 OK")];
    let receiver = Receiver::start(behaviours).await;
    let it = with_orders().await;
    let over = over(&it, ReplayBody { retry_attempts: 3, ..to(&receiver.url()) }).await;
    assert_eq!((over.status, over.replayed, over.failed), (ReplayState::Completed, 3, 0));
    let requests = receiver.requests();
    let bodies: Vec<Value> = requests
        .iter()
        .map(|request| serde_json::from_str(request.split_once("\r\n\r\n").expect("a body").1).expect("JSON"))
        .collect();
    assert_eq!(bodies.iter().map(|it| it["n"].clone()).collect::<Vec<_>>(), [0, 1, 1, 1, 2]);
    assert!(bodies.iter().all(|body| body["replay"]["id"] == *over.replay_id));
    let ids: Vec<_> = requests.iter().map(|request| header(request, "webhook-id")).collect();
    assert_eq!((ids[1], ids[2], ids[3]), (ids[1], ids[1], ids[1]), "a receiver can tell a repetition");
    assert_ne!(ids[0], ids[1]);
    assert!(requests.iter().all(|request| header(request, "annals-replay") == over.replay_id));
}

/// The others are sent, or the replay ends; nothing is lost quietly.
#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_a_webhook_refuses_is_counted_and_listed() {
    let it = with_orders().await;
    let receiver = Receiver::start(vec![status("200 OK"), status("400 No"), status("200 OK")]).await;
    let skipping = over(&it, to(&receiver.url())).await;
    assert_eq!((skipping.status, skipping.replayed, skipping.failed), (ReplayState::Completed, 2, 1));
    assert!(skipping.errors[0].error.contains("answered 400"), "{:?}", skipping.errors);
    let receiver = Receiver::start(vec![status("200 OK"), Behaviour::Resets]).await;
    let stopping = over(&it, ReplayBody { on_error: OnError::Stop, ..to(&receiver.url()) }).await;
    assert_eq!((stopping.status, stopping.replayed, stopping.failed), (ReplayState::Failed, 1, 1));
}

/// As partners' addresses are.
#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_at_an_address_that_is_not_allowed_is_refused() {
    let it = with_orders().await;
    for url in ["http://10.0.0.1/", "https://169.254.169.254/latest", "ftp://example.com/", "nothing"] {
        let refused = it.client.replays().create(to(url)).await.expect_err(url);
        assert_eq!(refused.code(), Code::InvalidReplay, "{url}");
    }
}
