//! Order for each entity, and independence of everything else.

use annals_core::partners::{Ending, EventStatus, EventsQuery};

use crate::Subject;
use crate::partners::words::{Exchange, P, Reply, are, placed_to, reason};

/// The next event of an entity waits until the previous one is final.
pub async fn events_of_an_entity_are_sent_in_order(subject: &dyn Subject) {
    let exchange = Exchange::with_partner(subject).await;
    exchange.scripted.script([Reply::Status(500)]);
    exchange.commit("a").await;
    exchange.until(|events| are(events, EventStatus::Failed)).await;
    for _ in 0..5 {
        exchange.commit("a").await;
    }
    exchange.in_time(|events| events.len() == 6 && are(events, EventStatus::Success)).await;
    let sequence = |request: &annals_core::partners::Outgoing| {
        let body: serde_json::Value = serde_json::from_slice(&request.body).expect("JSON");
        body["sequence"].as_str().expect("a number").parse::<u64>().expect("a number")
    };
    let sent: Vec<_> = exchange.scripted.requests().iter().map(sequence).collect();
    assert_eq!(sent, [0, 0, 1, 2, 3, 4, 5]);
}

/// An entity whose event fails delays no other entity.
pub async fn a_failing_entity_delays_no_other(subject: &dyn Subject) {
    let exchange = Exchange::with_partner(subject).await;
    exchange.scripted.script([Reply::Status(500)]);
    exchange.commit("a").await;
    exchange.until(|events| are(events, EventStatus::Failed)).await;
    for id in ["a", "b", "c"] {
        exchange.commit(id).await;
    }
    let events = exchange
        .until(|events| events.iter().filter(|event| event.event_status == EventStatus::Success).count() == 2)
        .await;
    assert_eq!(events.len(), 4);
}

/// A partner that does not answer delays no other partner.
pub async fn a_silent_partner_delays_no_other(subject: &dyn Subject) {
    let exchange = Exchange::with_partner(subject).await;
    exchange.scripted.usually("q.example", Reply::Held);
    let mut silent = placed_to("q");
    silent.limits.concurrency = 2;
    exchange.define(silent).await;
    for id in ["a", "b", "c", "d", "e", "f"] {
        exchange.commit(id).await;
    }
    exchange.until(|events| events.len() == 6 && are(events, EventStatus::Success)).await;
    let silent = exchange.scripted.requests().iter().filter(|request| request.url.contains("q.example")).count();
    assert!(silent <= 2, "{silent} are in flight");
    exchange.scripted.let_go();
}

/// An event that was refused or cancelled lets the next event of its entity proceed.
pub async fn an_event_that_is_final_holds_up_nothing(subject: &dyn Subject) {
    let exchange = Exchange::with_partner(subject).await;
    exchange.scripted.script([Reply::Status(404), Reply::Status(500)]);
    exchange.commit("a").await;
    exchange.until(|events| are(events, EventStatus::Failed)).await;
    exchange.commit("a").await;
    let failing =
        |events: &[annals_core::partners::PartnerEventView]| events.iter().find(|it| it.due_at.is_some()).cloned();
    let events =
        exchange.until(|events| failing(events).is_some_and(|it| it.event_status == EventStatus::Failed)).await;
    exchange.commit("a").await;
    let second = failing(&events).expect("it is retried");
    let cancelled = exchange.partners.cancel(&second.id, reason()).await.expect("cancelled");
    assert_eq!((cancelled.ended, cancelled.event_status), (Some(Ending::Cancelled), EventStatus::Failed));
    let events = exchange.until(|events| events.iter().any(|event| event.event_status == EventStatus::Success)).await;
    let ended: Vec<_> = events.iter().filter_map(|event| event.ended).collect();
    assert!(ended.contains(&Ending::Refused) && ended.contains(&Ending::Cancelled), "{ended:?}");
}

/// Nothing is sent, and everything is recorded, until it is resumed.
pub async fn a_paused_partner_gets_its_events_later(subject: &dyn Subject) {
    let exchange = Exchange::of(subject).await;
    let paused = annals_core::partners::PartnerDefinition { paused: true, ..placed_to(P) };
    exchange.define(paused).await;
    for id in ["a", "b"] {
        exchange.commit(id).await;
    }
    exchange.until(|events| events.len() == 2 && are(events, EventStatus::Pending)).await;
    assert_eq!(exchange.query(EventsQuery { due: true, ..EventsQuery::default() }).await.len(), 2);
    assert_eq!(exchange.scripted.requests().len(), 0);
    assert!(!exchange.partners.put(placed_to(P)).await.expect("changed"));
    exchange.until(|events| are(events, EventStatus::Success)).await;
}
