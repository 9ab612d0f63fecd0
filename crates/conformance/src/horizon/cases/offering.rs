//! What a producer sends.

use annals_core::horizon::{Consent, OfferRequest};
use annals_core::{DEFAULT_SCOPE, Included, NewCommit, NewEvent, Reached, Verdicts};

use crate::horizon::words::{A, Bridge, STREAM, request};
use crate::sample::event;
use crate::{OTHER_TENANT, Subject};

/// The next page begins where the first one ended.
pub async fn a_page_has_at_most_as_many_events_as_the_consumer_has_credits(subject: &dyn Subject) {
    let bridge = Bridge::of(subject).await;
    bridge.consent().await;
    bridge.produce("placed", &["a", "b", "a", "a"]).await;
    bridge.has_entries(4).await;
    let first = bridge.offer(OfferRequest { credits: 2, ..request() }).await.expect("offered");
    assert_eq!(first.events.iter().map(|event| event.position).collect::<Vec<_>>(), [0, 2]);
    assert_eq!(first.head, 4);
    let second = bridge.offer(OfferRequest { credits: 2, from: first.next, ..request() }).await.expect("offered");
    assert_eq!(second.events.iter().map(|event| event.position).collect::<Vec<_>>(), [3]);
    let refused = bridge.offer(OfferRequest { credits: 1_001, ..request() }).await.expect_err("too many");
    assert_eq!(refused.code(), annals_core::Code::InvalidQuery);
}

/// It gets no event, and does not wait.
pub async fn a_request_without_credits_learns_who_the_producer_is(subject: &dyn Subject) {
    let bridge = Bridge::of(subject).await;
    bridge.consent().await;
    bridge.produce("placed", &["a"]).await;
    bridge.has_entries(1).await;
    let offered = bridge.offer(OfferRequest { credits: 0, wait_ms: 50_000, ..request() }).await.expect("offered");
    assert_eq!((offered.events.len(), offered.head, &*offered.microservice), (0, 1, "default"));
    let identity = bridge.it.store.identity(OTHER_TENANT).expect("declared");
    assert_eq!((offered.identity.store_id, offered.identity.incarnation), (identity.store_id, identity.incarnation));
}

/// Events of other partitions do not end it.
pub async fn a_request_waits_for_the_first_event_and_ends_without_one(subject: &dyn Subject) {
    let bridge = Bridge::of(subject).await;
    bridge.consent().await;
    let waits = bridge.offer(OfferRequest { wait_ms: 50_000, ..request() });
    let produces = async {
        tokio::task::yield_now().await;
        bridge.produce("placed", &["b", "a"]).await;
    };
    let (offered, ()) = tokio::join!(waits, produces);
    assert_eq!(offered.expect("offered").events.iter().map(|event| event.position).collect::<Vec<_>>(), [1]);
    let waits = async { bridge.offer(OfferRequest { from: 2, wait_ms: 50_000, ..request() }).await.expect("offered") };
    let passes = async {
        loop {
            bridge.pass().await;
            bridge.it.advance(1_000);
        }
    };
    let page = tokio::select! {
        page = waits => page,
        () = passes => unreachable!("time passes for ever"),
    };
    assert_eq!((page.events.len(), page.next), (0, 2));
}

/// This holds whatever the stream has.
pub async fn an_event_that_is_not_public_is_never_sent(subject: &dyn Subject) {
    let bridge = Bridge::of(subject).await;
    let (stream, all) = ("public-stream-by-hand", OfferRequest { partition: "".into(), ..request() });
    assert!(bridge.producer.put_consent(Consent::new("c", stream)).await.expect("given"));
    for public in [true, false, true] {
        bridge.produce_event("a", NewEvent { public, ..event("placed", 0) }).await;
    }
    let streams = bridge.it.store.streams(OTHER_TENANT, DEFAULT_SCOPE).expect("declared");
    let verdicts = (0..3).fold(Verdicts::new(stream, 0..3), |verdicts, n| verdicts.include(Included::new(n)));
    streams.append(Verdicts { public: true, ..verdicts }).await.expect("appended");
    let offered = bridge.offer(OfferRequest { stream: stream.into(), ..all }).await.expect("offered");
    let sent: Vec<_> = offered.events.iter().map(|event| (event.position, event.sequence_number)).collect();
    assert_eq!((sent, offered.next), (vec![(0, 0), (2, 2)], 3));
}

/// A partner learns nothing about requests, owners, tags and headers.
pub async fn what_belongs_to_the_commit_stays_with_the_producer(subject: &dyn Subject) {
    let bridge = Bridge::of(subject).await;
    bridge.consent().await;
    let public = NewEvent { public: true, tags: vec!["secret".into()], ..event("placed", 7) };
    let mut commit = NewCommit::new("order", "a").event(public).request_id("secret").wait_until(Reached::Logged);
    commit.header = vec![("secret".into(), "secret".into())];
    commit.correlation_id = Some("323bcdb2-5bbd-4f13-a7c3-b19bc2cc2452".into());
    bridge.produced.commit(commit).await.expect("committed");
    bridge.has_entries(1).await;
    let offered = bridge.offer(request()).await.expect("offered");
    assert!(!format!("{offered:?}").contains("secret"));
    let sent = &offered.events[0];
    assert_eq!((&*sent.event_type, &*sent.source, sent.sequence_number), ("placed", "a", 0));
    assert_eq!(sent.correlation_id.as_deref(), Some("323bcdb2-5bbd-4f13-a7c3-b19bc2cc2452"));
    assert_eq!((&*request().stream, &*request().partition), (STREAM, A));
}
