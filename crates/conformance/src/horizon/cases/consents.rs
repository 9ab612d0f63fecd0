//! Nothing leaves a tenant without its consent.

use annals_core::Code;
use annals_core::filters::FilterDefinition;
use annals_core::horizon::{CONSENTS, Consent, HorizonError, IntakeState, OfferRequest};

use crate::Subject;
use crate::handlers::opened::Opened;
use crate::horizon::words::{A, Bridge, STREAM, consent, reason, request};
use crate::unanswered::Unanswered;

/// The status of the subscription says what is missing.
pub async fn without_a_consent_nothing_is_received_until_there_is_one(subject: &dyn Subject) {
    let bridge = Bridge::of(subject).await;
    bridge.produce("placed", &["a"]).await;
    bridge.subscribe().await;
    let refused = bridge.until(|status| status.state == IntakeState::Refused).await;
    let reason = refused.last_reason.expect("a reason");
    assert!(reason.contains("no consent") && reason.contains(STREAM), "{reason}");
    assert!(refused.retry_at.is_some() && refused.attempts > 0);
    assert_eq!(bridge.has_received(0).await, []);
    bridge.consent().await;
    assert_eq!(bridge.numbers(1).await, [0]);
    bridge.until(|status| status.state == IntakeState::Running && status.last_reason.is_none()).await;
}

/// Sent events stay, and nothing is lost.
pub async fn a_revoked_consent_stops_the_flow_and_a_new_one_continues_it(subject: &dyn Subject) {
    let bridge = Bridge::connected(subject).await;
    bridge.produce("placed", &["a"]).await;
    let first = bridge.has_received(1).await;
    bridge.revoke("c").await;
    bridge.until(|status| status.state == IntakeState::Refused).await;
    bridge.produce("placed", &["a", "a"]).await;
    bridge.has_entries(3).await;
    let attempts = bridge.status().await.attempts;
    bridge.until(|status| status.attempts > attempts + 1).await;
    assert_eq!(bridge.has_received(1).await.len(), 1);
    assert!(bridge.producer.put_consent(consent("other")).await.expect("given"));
    let events = bridge.has_received(3).await;
    let of = |n: usize| events[n].commit.received.as_ref().expect("received").consent;
    assert_eq!(of(0), first[0].commit.received.as_ref().expect("received").consent);
    assert_eq!(
        (of(1), of(2)),
        (consent("other").uuid(), consent("other").uuid()),
        "events have the consent of their time"
    );
    assert_ne!(of(0), of(1));
}

/// No later event is sent.
pub async fn a_revoked_consent_ends_a_request_that_waits(subject: &dyn Subject) {
    let bridge = Bridge::of(subject).await;
    bridge.consent().await;
    let waits = bridge.offer(OfferRequest { wait_ms: 50_000, ..request() });
    let revokes = async {
        tokio::task::yield_now().await;
        bridge.revoke("c").await;
        bridge.produce("placed", &["a"]).await;
    };
    let (ended, ()) = tokio::join!(waits, revokes);
    assert_eq!(ended.expect_err("the consent is gone").code(), Code::MissingConsent);
}

/// The request ends at once: time stands still.
pub async fn a_revoked_consent_ends_a_request_that_waits_although_the_caller_goes_away(subject: &dyn Subject) {
    let (store, unanswered) = Unanswered::before(subject.open().await, CONSENTS);
    let bridge = Bridge::over(Opened::on(store, subject.clock())).await;
    bridge.consent().await;
    let waits = bridge.offer(OfferRequest { wait_ms: 50_000, ..request() });
    let revokes = async {
        tokio::task::yield_now().await;
        unanswered.abandon(bridge.producer.revoke_consent("c", reason())).await;
    };
    let (ended, ()) = tokio::join!(waits, revokes);
    assert_eq!(ended.expect_err("the consent is gone").code(), Code::MissingConsent);
}

/// Every part must be equal.
pub async fn a_consent_is_for_one_consumer_one_stream_and_one_partition(subject: &dyn Subject) {
    let bridge = Bridge::of(subject).await;
    bridge.consent().await;
    assert!(bridge.offer(request()).await.is_ok());
    for other in [
        OfferRequest { microservice: "other".into(), ..request() },
        OfferRequest { tenant: "other".into(), ..request() },
        OfferRequest { stream: "other".into(), ..request() },
        OfferRequest { partition: "order/b".into(), ..request() },
        OfferRequest { partition: "".into(), ..request() },
    ] {
        let refused = bridge.offer(other.clone()).await.expect_err("another one");
        assert!(matches!(refused, HorizonError::MissingConsent { .. }), "{other:?}: {refused}");
    }
}

/// Consents are in the order of their ids.
pub async fn the_first_of_several_consents_is_sent_with_the_events(subject: &dyn Subject) {
    let bridge = Bridge::of(subject).await;
    for id in ["b", "a"] {
        assert!(bridge.producer.put_consent(consent(id)).await.expect("given"));
    }
    let offered = bridge.offer(request()).await.expect("offered");
    assert!([consent("a").uuid(), consent("b").uuid()].contains(&offered.consent));
    bridge.revoke("a").await;
    assert_eq!(bridge.offer(request()).await.expect("offered").consent, consent("b").uuid());
    let id = "323bcdb2-5bbd-4f13-a7c3-b19bc2cc2452";
    assert!(bridge.producer.put_consent(consent(id)).await.expect("given"));
    bridge.revoke("b").await;
    assert_eq!(bridge.offer(request()).await.expect("offered").consent.to_string(), id, "a UUID is sent as it is");
}

/// This holds even with a consent for it.
pub async fn a_stream_that_is_not_public_is_refused(subject: &dyn Subject) {
    let bridge = Bridge::of(subject).await;
    assert!(bridge.filters.put(FilterDefinition::new("private").types(["placed"])).await.expect("defined"));
    for stream in ["private", "nothing"] {
        assert!(bridge.producer.put_consent(Consent::new(stream, stream)).await.expect("given"));
        let wanted = OfferRequest { stream: stream.into(), partition: "".into(), ..request() };
        let refused = bridge.offer(wanted).await.expect_err("it is private");
        assert_eq!(refused, HorizonError::NotPublic(stream.to_owned()));
    }
}

/// A consent is a record of its own.
pub async fn consents_are_given_changed_listed_and_revoked(subject: &dyn Subject) {
    let bridge = Bridge::of(subject).await;
    let producer = &bridge.producer;
    assert_eq!(producer.consents(None, 10).await.expect("listed").items, []);
    let ids = ["c-1", "c-2", "c-3"];
    for id in ids {
        assert!(producer.put_consent(consent(id)).await.expect("given"));
        assert!(!producer.put_consent(consent(id)).await.expect("unchanged"));
    }
    let changed = consent("c-2").of_partition("order/b");
    assert!(!producer.put_consent(changed.clone()).await.expect("changed"));
    assert_eq!(producer.consent("c-2").await.expect("found"), changed);
    let page = producer.consents(None, 2).await.expect("listed");
    assert_eq!((page.items, page.cursor.as_deref()), (vec![consent("c-1"), changed], Some("c-2")));
    let rest = producer.consents(Some("c-2"), 2).await.expect("listed");
    assert_eq!((rest.items, rest.cursor), (vec![consent("c-3")], None));
    bridge.revoke("c-2").await;
    for unknown in [producer.consent("c-2").await.map(drop), producer.revoke_consent("c-2", reason()).await] {
        assert_eq!(unknown, Err(HorizonError::UnknownConsent("c-2".to_owned())));
    }
    let silent = annals_core::handlers::Reason { reason: " ".to_owned(), by: None };
    assert_eq!(producer.revoke_consent("c-1", silent).await.expect_err("why?").code(), Code::InvalidBody);
}

/// The error names the wrong part.
pub async fn a_consent_that_cannot_work_is_refused(subject: &dyn Subject) {
    let bridge = Bridge::of(subject).await;
    for (consent, code) in [
        (Consent::new("a b", STREAM), Code::InvalidName),
        (Consent::new("c", "a b"), Code::InvalidName),
        (Consent::new("c", STREAM).to("", "t"), Code::InvalidId),
        (Consent::new("c", STREAM).to("m", "t\0"), Code::InvalidId),
        (Consent::new("c", "00000000-0000-0000-0000-000000000000").of_partition(A), Code::InvalidConsent),
    ] {
        assert_eq!(
            bridge.producer.put_consent(consent.clone()).await.expect_err("refused").code(),
            code,
            "{consent:?}"
        );
    }
}
