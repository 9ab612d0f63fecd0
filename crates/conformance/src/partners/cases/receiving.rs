//! Events that a partner sends.

use annals_core::partners::{
    Deduplicate, EventDirection, EventStatus, EventsQuery, Incoming, PartnerError, Signed, Unsigned,
};
use annals_core::{Clock, Code, Timestamp};

use crate::Subject;
use crate::partners::words::{Exchange, P, are, placed_to, secret};

const BODY: &str = r#"{"type":"order_shipped","subject":"s-1","data":{"parcel":7}}"#;

/// It is stored as IN before it is accepted, then committed to the configured aggregate.
pub async fn an_event_is_stored_and_then_committed_to_the_configured_aggregate(subject: &dyn Subject) {
    let exchange = Exchange::of(subject).await;
    exchange.define(placed_to(P).receives_into("shipment")).await;
    let accepted = exchange.receive("w-1", BODY).await.expect("accepted");
    assert!(!accepted.repeated);
    let stored = exchange.stored().await.remove(0);
    assert_eq!((stored.id.to_hex(), stored.event_direction), (accepted.id.clone(), EventDirection::In));
    assert_eq!((&*stored.created_by, &*stored.entity_metadata.entity_id), (P, "s-1"));
    let logged = exchange.has_logged(1).await;
    assert_eq!((&*logged[0].event_type, &*logged[0].commit.aggregate.id), ("order_shipped", "s-1"));
    assert_eq!(&*logged[0].commit.aggregate.name, "shipment");
    exchange.until(|events| are(events, EventStatus::Success)).await;
    let views = exchange.query(EventsQuery { direction: Some(EventDirection::In), ..EventsQuery::default() }).await;
    assert_eq!((&*views[0].id, views[0].attempts, views[0].webhook_id.as_deref()), (&*accepted.id, 1, Some("w-1")));
}

/// The repeat adds nothing.
pub async fn a_repeated_request_is_answered_with_the_first_id(subject: &dyn Subject) {
    let exchange = Exchange::with_partner(subject).await;
    let first = exchange.receive("w-1", BODY).await.expect("accepted");
    exchange.until(|events| are(events, EventStatus::Success)).await;
    exchange.advance_seconds(100);
    let again = exchange.receive("w-1", BODY).await.expect("accepted");
    assert_eq!((&again.id, again.repeated), (&first.id, true));
    let request = exchange.signed("w-2", BODY);
    let (one, other) =
        tokio::join!(exchange.partners.receive(P, request.clone()), exchange.partners.receive(P, request));
    assert_eq!(one.expect("accepted").id, other.expect("accepted").id, "also at the same time");
    exchange.until(|events| events.len() == 2 && are(events, EventStatus::Success)).await;
    assert_eq!(exchange.has_logged(2).await.len(), 2);
    let other = exchange.receive("w-1", r#"{"type":"other"}"#).await.expect_err("another body");
    assert_eq!(other, PartnerError::OtherContent("w-1".to_owned()));
}

/// Nothing of it is stored.
pub async fn a_request_that_is_not_signed_or_stale_is_refused(subject: &dyn Subject) {
    let exchange = Exchange::with_partner(subject).await;
    let good = exchange.signed("w", BODY);
    let now = exchange.it.clock.now();
    let signed_at = |seconds: i64| {
        let at = Timestamp::from_millis(now.as_millis() + seconds * 1_000);
        Signed::sign(&[secret(1)], "w", at, BODY.as_bytes())
    };
    for (signed, why) in [
        (Signed::default(), Unsigned::Headers),
        (Signed::sign(&[secret(9)], "w", now, BODY.as_bytes()), Unsigned::Signature),
        (Signed { id: "other".into(), ..good.signed.clone() }, Unsigned::Signature),
        (signed_at(-301), Unsigned::Stale),
        (signed_at(302), Unsigned::Stale),
    ] {
        let refused = exchange.partners.receive(P, Incoming { signed, body: good.body.clone() }).await;
        assert_eq!(refused.expect_err("refused"), PartnerError::Signature(why));
    }
    let unknown = exchange.partners.receive("nobody", good).await.expect_err("unknown");
    assert_eq!(unknown, PartnerError::Unknown("nobody".to_owned()));
    assert_eq!(exchange.all().await, []);
}

/// This holds even if it is signed.
pub async fn a_body_that_is_too_large_too_deep_or_no_event_is_refused(subject: &dyn Subject) {
    let exchange = Exchange::of(subject).await;
    let mut definition = placed_to(P);
    definition.limits.body_bytes = 1_000;
    exchange.define(definition).await;
    let deep = format!("{}1{}", r#"{"a":"#.repeat(150), "}".repeat(150));
    let large = format!(r#"{{"type":"a","data":{{"text":"{}"}}}}"#, "x".repeat(1_000));
    for (body, code) in [
        (&*large, Code::BodyTooLarge),
        (&*deep, Code::InvalidData),
        ("{", Code::NotJson),
        ("7", Code::InvalidData),
        (r#"{"type":"no name"}"#, Code::InvalidName),
    ] {
        assert_eq!(exchange.receive("w", body).await.expect_err("refused").code(), code, "{body:.40}");
    }
    assert_eq!(exchange.all().await, []);
    let accepted = exchange.receive("w", r#"{"type":"a","data":["any", "shape"]}"#).await;
    accepted.expect("its data may be of any shape");
    let logged = exchange.has_logged(1).await;
    let data: serde_json::Value = logged[0].data.decode().expect("JSON");
    assert_eq!(data, serde_json::json!({ "value": ["any", "shape"] }));
}

/// Both secrets are valid while both are configured.
pub async fn secrets_are_rotated_without_a_gap(subject: &dyn Subject) {
    let exchange = Exchange::with_partner(subject).await;
    let by = |byte: u8, id: &str| {
        let signed = Signed::sign(&[secret(byte)], id, exchange.it.clock.now(), BODY.as_bytes());
        Incoming { signed, body: BODY.into() }
    };
    let put = async |bytes: &[u8]| {
        let definition = placed_to(P).secrets(bytes.iter().map(|byte| secret(*byte).reveal()));
        exchange.partners.put(definition).await.expect("changed");
    };
    put(&[2, 1]).await;
    for (byte, id) in [(1, "old"), (2, "new")] {
        exchange.partners.receive(P, by(byte, id)).await.expect("both count");
    }
    exchange.commit("a").await;
    let sent = exchange.scripted.has_got(1).await;
    let signatures = crate::partners::words::header(&sent[0], "webhook-signature").split(' ').count();
    assert_eq!(signatures, 2, "the partner may know either");
    put(&[2]).await;
    let refused = exchange.partners.receive(P, by(1, "later")).await.expect_err("the old one is gone");
    assert_eq!(refused, PartnerError::Signature(Unsigned::Signature));
    exchange.partners.receive(P, by(2, "later")).await.expect("the new one counts");
}

/// The order is kept as for OUT events.
pub async fn events_of_an_entity_are_committed_in_the_order_of_their_arrival(subject: &dyn Subject) {
    let exchange = Exchange::with_partner(subject).await;
    for n in 0..8 {
        let body = format!(r#"{{"type":"moved","subject":"s","data":{{"n":{n}}}}}"#);
        exchange.receive(&format!("w-{n}"), &body).await.expect("accepted");
    }
    let logged = exchange.has_logged(8).await;
    let numbers: Vec<i64> = logged
        .iter()
        .map(|event| event.data.decode::<serde_json::Value>().expect("JSON")["n"].as_i64().expect("n"))
        .collect();
    assert_eq!(numbers, (0..8).collect::<Vec<_>>());
}

/// Events are the same by type, entity and data, or by type and entity. Without a setting, only the id decides.
pub async fn which_events_are_the_same_one_is_configured(subject: &dyn Subject) {
    let exchange = Exchange::of(subject).await;
    let body = |n: u8| format!(r#"{{"type":"moved","subject":"s","data":{{"n":{n}}}}}"#);
    for (how, due) in [(Deduplicate::WebhookId, 3), (Deduplicate::Content, 2), (Deduplicate::Entity, 1)] {
        let mut definition = placed_to("q");
        definition.receive.deduplicate = how;
        exchange.partners.put(definition).await.expect("defined");
        let mut ids = std::collections::BTreeSet::new();
        for (id, n) in [("first", 1), ("again", 1), ("later", 2), ("first", 1)] {
            let request = exchange.signed(&format!("{id}-{how:?}"), &body(n));
            let accepted = exchange.partners.receive("q", request).await.expect("accepted");
            assert_eq!(accepted.repeated, !ids.insert(accepted.id), "{how:?} {id}");
        }
        assert_eq!(ids.len(), due, "{how:?}");
    }
    let request = |id: &str| exchange.signed(id, r#"{"type":"moved","subject":"other"}"#);
    let (one, other) =
        tokio::join!(exchange.partners.receive("q", request("x")), exchange.partners.receive("q", request("y")));
    assert_eq!(one.expect("accepted").id, other.expect("accepted").id, "also at the same time");
    exchange.has_logged(7).await;
    assert_eq!(exchange.log().await.len(), 7);
}
