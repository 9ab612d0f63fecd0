//! What is selected for a partner, and how often it is recorded.

use annals_core::partners::{EventStatus, EventsQuery, Format, SELECTION, SelectFrom, SelectionRecord};
use annals_core::{Condition, DEFAULT_TENANT, Expected, RecordChange, RecordType, TypedRecords};

use crate::Subject;
use crate::partners::words::{Exchange, P, are, header, placed_to, reason};

/// Behaviour statement 104: the key is partner and event. A selection from an earlier position has the same keys and records nothing.
pub async fn statement_104_an_event_is_recorded_once_for_a_partner(subject: &dyn Subject) {
    let exchange = Exchange::with_partner(subject).await;
    for id in ["a", "a", "b"] {
        exchange.commit(id).await;
    }
    exchange.until(|events| events.len() == 3 && are(events, EventStatus::Success)).await;
    let selection = TypedRecords::<SelectionRecord>::declared(exchange.records.clone());
    let position = async || selection.get(SELECTION).await.expect("reads").expect("stored").value.position;
    assert_eq!(position().await, 3);
    // Nobody selects while the position is set back.
    exchange.it.host.drain().await;
    let back =
        RecordChange::set_if(SelectionRecord::COLLECTION, SELECTION, [("position", 0_i64.into())], Expected::Present);
    exchange.records.write(vec![back]).await.expect("set back");
    let exchange = exchange.restarted().await;
    while position().await < 3 {
        crate::between_looks().await;
    }
    assert_eq!((exchange.stored().await.len(), exchange.scripted.requests().len()), (3, 3));
    exchange.commit("c").await;
    exchange.until(|events| events.len() == 4 && are(events, EventStatus::Success)).await;
    assert_eq!(exchange.scripted.requests().len(), 4);
}

/// Two hosts on one store record and send each event once.
pub async fn two_hosts_send_each_event_once(subject: &dyn Subject) {
    let one = Exchange::with_partner(subject).await;
    let other = one.beside();
    one.it.host.start_defined();
    other.it.host.start_defined();
    for id in ["a", "b", "c", "d"] {
        one.commit(id).await;
    }
    one.in_time(|events| events.len() == 4 && are(events, EventStatus::Success)).await;
    assert_eq!(one.scripted.requests().len(), 4);
}

/// Each partner has its own condition.
pub async fn each_partner_gets_what_it_selects(subject: &dyn Subject) {
    let exchange = Exchange::with_partner(subject).await;
    let select = Condition::and([Condition::eq("type", "paid"), Condition::eq("aggregate.id", "b")]);
    exchange.define(placed_to("q").sends("https://q.example/", select)).await;
    exchange.it.commit("placed", &["a"]).await;
    exchange.it.commit("paid", &["a", "b"]).await;
    exchange.until(|events| events.len() == 1 && are(events, EventStatus::Success)).await;
    loop {
        let events = exchange.partners.events("q", EventsQuery::default()).await.expect("listed").items;
        if are(&events, EventStatus::Success) {
            assert_eq!((events.len(), &*events[0].event_type), (1, "paid"));
            assert_eq!((&events[0].entity_metadata["entity_id"], events[0].sequence_number), (&"b".into(), Some(2)));
            break;
        }
        crate::between_looks().await;
    }
}

/// A definition may start earlier.
pub async fn a_partner_gets_events_from_its_definition_on(subject: &dyn Subject) {
    let exchange = Exchange::of(subject).await;
    exchange.commit("a").await;
    exchange.define(placed_to(P)).await;
    exchange.define(annals_core::partners::PartnerDefinition { start: SelectFrom::Beginning, ..placed_to("q") }).await;
    exchange.commit("b").await;
    let events = exchange.until(|events| are(events, EventStatus::Success)).await;
    assert_eq!((events.len(), events[0].sequence_number), (1, Some(1)));
    loop {
        let events = exchange.partners.events("q", EventsQuery::default()).await.expect("listed").items;
        if events.len() == 2 && are(&events, EventStatus::Success) {
            break;
        }
        crate::between_looks().await;
    }
}

/// They are new deliveries of the same events.
pub async fn a_replay_sends_a_range_again(subject: &dyn Subject) {
    let exchange = Exchange::with_partner(subject).await;
    for id in ["a", "b", "c"] {
        exchange.commit(id).await;
    }
    let sent = exchange.until(|events| events.len() == 3 && are(events, EventStatus::Success)).await;
    let replay = exchange.partners.replay(P, 1, Some(3), reason()).await.expect("begun");
    assert_eq!((replay.from, replay.to), (1, 3));
    let events = exchange.until(|events| events.len() == 5 && are(events, EventStatus::Success)).await;
    let again: Vec<_> = events.iter().filter(|event| event.replay.as_deref() == Some(&*replay.id)).collect();
    assert_eq!(again.len(), 2);
    for event in again {
        let first = sent.iter().find(|sent| sent.event_id == event.event_id).expect("it was sent before");
        assert_ne!(first.id, event.id, "it is another delivery");
    }
    for (from, to) in [(0, Some(9)), (2, Some(1))] {
        assert!(exchange.partners.replay(P, from, to, reason()).await.is_err(), "{from} {to:?}");
    }
    assert!(exchange.it.host.partners(DEFAULT_TENANT).is_ok());
}

/// The form is a CloudEvent, or the record.
pub async fn an_event_is_sent_in_the_form_that_is_configured(subject: &dyn Subject) {
    let exchange = Exchange::with_partner(subject).await;
    exchange.define(annals_core::partners::PartnerDefinition { format: Format::Record, ..placed_to("q") }).await;
    exchange.commit("a").await;
    let requests = exchange.scripted.has_got(2).await;
    for request in &requests {
        let body: serde_json::Value = serde_json::from_slice(&request.body).expect("JSON");
        if request.url.contains("p.example") {
            assert_eq!(header(request, "content-type"), "application/cloudevents+json");
            assert_eq!(
                (&body["specversion"], &body["type"], &body["subject"]),
                (&"1.0".into(), &"placed".into(), &"order/a".into())
            );
        } else {
            assert_eq!(header(request, "content-type"), "application/json");
            assert_eq!((&body["event_type"], &body["entity_metadata"]["entity_id"]), (&"placed".into(), &"a".into()));
        }
    }
}
