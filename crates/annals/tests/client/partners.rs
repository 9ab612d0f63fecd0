//! Partners behind a server: the client, real requests in both directions, and a partner that fails on the way.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use annals::handlers::Reason;
use annals::partners::{
    EventDirection, EventStatus, EventsQuery, Incoming, PartnerDefinition, PartnerError, PartnerEventView, Partners,
    Signed, SigningSecret, Unsigned,
};
use annals::runtime::{HostOptions, PartnerKeys, PartnerOptions};
use annals::server::{Options, serve};
use annals::{
    Client, Clock, Code, Condition, DEFAULT_SCOPE, DEFAULT_TENANT, Data, EventLog, HttpSending, LogQuery, NewCommit,
    NewEvent, Store, SystemClock, Timestamp,
};
use annals_conformance::ManualClock;
use tokio::net::TcpListener;

use crate::partner_faults::{Behaviour, Receiver, status};

/// A server with a clock that a test moves.
pub struct Served {
    address: SocketAddr,
    pub clock: Arc<ManualClock>,
    pub client: Client,
    _store: Arc<dyn Store>,
}

pub async fn served() -> Served {
    let store = annals::open("memory:").await.expect("a store");
    let clock = Arc::new(ManualClock::at(SystemClock.now()));
    let sending = HttpSending::default().allowing(["127.0.0.0/8"]).expect("a network");
    let partners = PartnerOptions { sending: Arc::new(sending), keys: Some(PartnerKeys::for_development()) };
    let tasks = HostOptions { clock: clock.clone(), partners, ..HostOptions::default() };
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let mut options = Options::default();
    options.tasks = tasks;
    tokio::spawn(serve(listener, Arc::clone(&store), options, std::future::pending()));
    let client = Client::new(&format!("http://{address}"), DEFAULT_TENANT, DEFAULT_SCOPE).expect("an address");
    Served { address, clock, client, _store: store }
}

pub fn secret() -> SigningSecret {
    SigningSecret::of_bytes(vec![5; 32])
}

pub fn partner(url: &str) -> PartnerDefinition {
    PartnerDefinition::new("acme", "Acme").sends(url, Condition::eq("type", "placed")).secrets([secret().reveal()])
}

impl Served {
    pub async fn events(&self) -> Vec<PartnerEventView> {
        self.client.partners().events("acme", EventsQuery::default()).await.expect("listed").items
    }

    /// Waits until the events are as they should be, while the time of the retries passes.
    pub async fn in_time(&self, is: impl Fn(&[PartnerEventView]) -> bool) -> Vec<PartnerEventView> {
        let deadline = SystemClock.now().plus(Duration::from_secs(60));
        loop {
            let events = self.events().await;
            if is(&events) {
                return events;
            }
            assert!(SystemClock.now() < deadline, "{events:?}");
            self.clock.advance_millis(50);
        }
    }

    pub fn signed(&self, id: &str, body: &str, at: Timestamp) -> Incoming {
        let signed = Signed::sign(&[secret()], id, at, body.as_bytes());
        Incoming { signed, body: body.to_owned().into() }
    }
}

pub fn succeeded(events: &[PartnerEventView], count: usize) -> bool {
    events.len() == count && events.iter().all(|event| event.event_status == EventStatus::Success)
}

/// The times of the attempts of an event, in order.
pub fn times(event: &PartnerEventView) -> Vec<i64> {
    let map = &event.entity_metadata["resilienceAttemptCount"];
    let time = |n: i32| map[n.to_string()].as_str().and_then(|at| at.parse().ok()).expect("milliseconds");
    (1..=event.attempts).map(time).collect()
}

pub fn header<'a>(request: &'a str, name: &str) -> &'a str {
    let line = request.lines().find(|line| line.to_ascii_lowercase().starts_with(&format!("{name}:")));
    line.and_then(|line| line.split_once(':')).map_or("", |(_, value)| value.trim())
}

/// A reset, an answer lost after the partner acted, an error and a wish to wait, before it succeeds.
#[tokio::test(flavor = "multi_thread")]
async fn an_event_reaches_a_partner_that_fails_in_every_way_before_it_succeeds() {
    let busy = "HTTP/1.1 429 Busy\r\nretry-after: 60\r\ncontent-length: 0\r\n\r\n".to_owned();
    let behaviours = vec![
        Behaviour::Resets,
        Behaviour::LosesTheAnswer,
        status("500 Oops"),
        Behaviour::Answers(busy),
        status("200 OK"),
    ];
    let receiver = Receiver::start(behaviours).await;
    let it = served().await;
    assert!(it.client.partners().put(partner(&receiver.url())).await.expect("defined"));
    let data = Data::from_json(r#"{"total":12.5,"a":1}"#).expect("a document");
    let commit = NewCommit::new("order", "o-1").event(NewEvent::new("placed", data));
    it.client.commit(commit).await.expect("committed");
    let events = it.in_time(|events| succeeded(events, 1)).await;
    assert_eq!(events[0].attempts, 5);
    let times = times(&events[0]);
    let gaps: Vec<i64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(gaps.iter().zip([5_000, 10_000, 20_000, 60_000]).all(|(gap, due)| *gap >= due), "{gaps:?}");
    let requests = receiver.requests();
    assert_eq!(requests.len(), 4, "the reset one was not read");
    for request in &requests {
        let (_, body) = request.split_once("\r\n\r\n").expect("a body");
        let signed = Signed {
            id: header(request, "webhook-id").to_owned(),
            timestamp: header(request, "webhook-timestamp").to_owned(),
            signature: header(request, "webhook-signature").to_owned(),
        };
        assert_eq!(signed.id, events[0].id, "the partner can tell a repeat");
        let at = Timestamp::from_millis(signed.timestamp.parse::<i64>().expect("seconds") * 1_000);
        assert_eq!(signed.verify(&[secret()], at, body.as_bytes()), Ok(()));
        assert!(body.ends_with(r#""data":{"total":12.5,"a":1}}"#), "{body}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signed_request_is_accepted_once_stored_and_committed() {
    let it = served().await;
    let partners = it.client.partners();
    partners
        .put(PartnerDefinition { select: None, url: None, ..partner("http://127.0.0.1:9/").receives_into("parcel") })
        .await
        .expect("defined");
    let body = r#"{"type":"shipped","subject":"p-1","data":{"n":1}}"#;
    let now = it.clock.now();
    let first = partners.receive("acme", it.signed("w-1", body, now)).await.expect("accepted");
    assert!(!first.repeated);
    let again = partners.receive("acme", it.signed("w-1", body, now)).await.expect("accepted");
    assert_eq!((&again.id, again.repeated), (&first.id, true));
    let stale = Timestamp::from_millis(now.as_millis() - 400_000);
    for (request, error) in [
        (it.signed("w-2", body, stale), PartnerError::Signature(Unsigned::Stale)),
        (Incoming { signed: Signed::default(), body: body.into() }, PartnerError::Signature(Unsigned::Headers)),
        (Incoming { body: "{}".into(), ..it.signed("w-3", body, now) }, PartnerError::Signature(Unsigned::Signature)),
        (it.signed("w-1", "{}", now), PartnerError::OtherContent("w-1".to_owned())),
    ] {
        assert_eq!(partners.receive("acme", request).await.expect_err("refused"), error);
    }
    let large = format!(r#"{{"type":"a","data":{{"text":"{}"}}}}"#, "x".repeat(9 * 1024 * 1024));
    let deep = format!("{}1{}", r#"{"a":"#.repeat(5_000), "}".repeat(5_000));
    for (body, code) in [(large, Code::BodyTooLarge), (deep, Code::InvalidData)] {
        let refused = partners.receive("acme", it.signed("w-4", &body, now)).await.expect_err("refused");
        assert_eq!(refused.code(), code);
    }
    it.in_time(|events| succeeded(events, 1)).await;
    let logged = it.client.read(LogQuery::default()).await.expect("reads").events;
    assert_eq!((logged.len(), &*logged[0].commit.aggregate.name, &*logged[0].event_type), (1, "parcel", "shipped"));
    assert!(it.address.port() > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_manages_partners_and_their_events() {
    let receiver = Receiver::start(vec![status("404 Not Found"), status("200 OK")]).await;
    let it = served().await;
    let partners = it.client.partners();
    assert!(partners.put(partner(&receiver.url())).await.expect("defined"));
    let status = partners.get("acme").await.expect("defined");
    assert_eq!((&*status.partner, &status.definition["secrets"], &*status.state), ("acme", &1.into(), "running"));
    assert_eq!(partners.list(None, 10).await.expect("listed").items, [status]);
    it.client.commit(NewCommit::new("order", "o-1").event(NewEvent::new("placed", Data::empty()))).await.expect("ok");
    let events = it.in_time(|events| events.iter().any(|event| event.ended.is_some())).await;
    let reason = || Reason::from("a test");
    let resent = partners.resend(&events[0].id, reason()).await.expect("resent");
    assert_eq!(resent.id, events[0].id);
    let events = it.in_time(|events| succeeded(events, 1)).await;
    let refused = partners.cancel(&events[0].id, reason()).await.expect_err("it succeeded");
    assert_eq!(refused.code(), Code::PartnerEventState);
    assert_eq!(partners.event(&events[0].id).await.expect("there"), events[0]);
    let query = EventsQuery {
        direction: Some(EventDirection::Out),
        status: Some(EventStatus::Success),
        ..EventsQuery::default()
    };
    assert_eq!(partners.events("acme", query).await.expect("listed").items.len(), 1);
    let statistics = partners.statistics("acme").await.expect("counted");
    assert_eq!((statistics.total, statistics.success_rate), (1, Some(1.0)));
    let replay = partners.replay("acme", 0, None, reason()).await.expect("begun");
    assert_eq!((replay.from, replay.to), (0, 1));
    it.in_time(|events| succeeded(events, 2)).await;
    partners.delete("acme", reason()).await.expect("deleted");
    assert_eq!(partners.get("acme").await.expect_err("gone"), PartnerError::Unknown("acme".to_owned()));
    let private = partners.put(partner("https://10.0.0.1/")).await.expect_err("refused");
    assert_eq!(private.code(), Code::InvalidPartner);
}
