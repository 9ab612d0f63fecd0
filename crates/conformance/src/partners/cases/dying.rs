//! Processes that are killed, and clocks that jump.

use std::sync::Arc;

use annals_core::partners::{EventStatus, EventsQuery, PartnerEventView};
use annals_core::{Aggregate, DEFAULT_SCOPE, DEFAULT_TENANT};

use crate::Subject;
use crate::mortal::{Life, at_each_write};
use crate::partners::words::{Exchange, P, Reply, are, header, reason};

/// What a process writes for partners besides commits.
const STEPS: &[&str] = &["partner_events", "annals-partner"];

/// The case runs once for each write of a process that sends two events of an entity and receives one. The process is killed before the
/// write is applied, and in another run after. The next process completes whatever it leaves: every event arrives in order, with an
/// attempt on record for each request, and what was received is committed once.
pub async fn a_process_that_is_killed_between_any_two_steps_loses_nothing(subject: &dyn Subject) {
    let first = Exchange::with_partner(subject).await;
    first.it.host.drain().await;
    let kills = at_each_write(STEPS, async |life, run| killed_at(&first, &format!("e-{run}"), &life).await).await;
    assert!(kills >= 12, "a process makes more writes than {kills}");
}

/// Runs a process for this life, and the next one to the end. Returns whether the first one was killed before it was done.
async fn killed_at(first: &Exchange, entity: &str, life: &Arc<Life>) -> bool {
    let (store, clock) = (first.it.store.clone(), first.it.clock.clone());
    let dying = Exchange::on(life.store(&store), clock.clone(), first.scripted.clone());
    dying.it.host.start_defined();
    for _ in 0..2 {
        first.commit(entity).await;
    }
    let body = format!(r#"{{"type":"shipped","subject":"{entity}","data":{{}}}}"#);
    let answered = dying.receive(entity, &body).await;
    while !life.is_over() && !is_done(&dying, entity).await {
        dying.it.advance(100);
        tokio::task::yield_now().await;
    }
    let killed = life.is_over();
    dying.it.host.drain().await;
    let next = Exchange::on(store, clock, first.scripted.clone());
    next.it.host.start_defined();
    // A partner that got no response sends the request again.
    let again = next.receive(entity, &body).await.expect("accepted");
    if let Ok(answered) = answered {
        assert_eq!((answered.id, again.repeated), (again.id, true), "what was accepted is on record");
    }
    while !is_done(&next, entity).await {
        next.it.advance(100);
        tokio::task::yield_now().await;
    }
    every_event_arrived_once_committed_and_in_order(&next, entity).await;
    killed
}

async fn of_entity(exchange: &Exchange, entity: &str) -> Vec<PartnerEventView> {
    exchange.query(EventsQuery { entity_id: Some(entity.to_owned()), ..EventsQuery::default() }).await
}

async fn is_done(exchange: &Exchange, entity: &str) -> bool {
    let events = of_entity(exchange, entity).await;
    events.len() == 3 && are(&events, EventStatus::Success)
}

async fn every_event_arrived_once_committed_and_in_order(exchange: &Exchange, entity: &str) {
    let mut arrived = Vec::new();
    for request in exchange.scripted.requests() {
        let body: serde_json::Value = serde_json::from_slice(&request.body).expect("JSON");
        if body["aggregateid"] == entity {
            arrived.push((body["version"].as_str().map(str::to_owned), header(&request, "webhook-id").to_owned()));
        }
    }
    let versions: Vec<_> = arrived.iter().filter_map(|(version, _)| version.as_deref()).collect();
    assert!(versions.is_sorted() && versions.contains(&"1") && versions.contains(&"2"), "{entity}: {versions:?}");
    for event in of_entity(exchange, entity).await.iter().filter(|event| event.sequence_number.is_some()) {
        let requests = arrived.iter().filter(|(_, id)| *id == event.id).count();
        let on_record = usize::try_from(event.attempts).expect("a count");
        assert!((1..=on_record).contains(&requests), "{entity}: {requests} requests, {on_record} attempts on record");
    }
    let log = exchange.it.store.log(DEFAULT_TENANT, DEFAULT_SCOPE).expect("always there");
    let shipment = Aggregate::new("partner_event", format!("{P}/{entity}"));
    assert_eq!(log.aggregate_version(&shipment).await.expect("reads"), 1, "{entity}: it is committed once");
}

/// A clock that is set back only delays a retry until its promised time. A clock that is set ahead makes retries due early, but repeats
/// nothing that is in flight.
pub async fn a_clock_that_jumps_loses_nothing_and_sends_nothing_twice(subject: &dyn Subject) {
    let exchange = Exchange::with_partner(subject).await;
    exchange.scripted.script([Reply::Status(500)]);
    exchange.commit("a").await;
    let failed = exchange.until(|events| are(events, EventStatus::Failed)).await;
    exchange.advance_seconds(-3_600);
    exchange.commit("b").await;
    let success =
        |events: &[PartnerEventView]| events.iter().filter(|event| event.event_status == EventStatus::Success).count();
    let events = exchange.until(|events| success(events) == 1).await;
    assert_eq!(events.iter().find(|event| event.id == failed[0].id).and_then(|event| event.due_at), failed[0].due_at);
    exchange.partners.resend(&failed[0].id, reason()).await.expect("an operator need not wait");
    exchange.until(|events| success(events) == 2).await;

    exchange.scripted.script([Reply::Held]);
    exchange.commit("c").await;
    exchange.scripted.has_got(4).await;
    exchange.advance_seconds(48 * 3_600);
    exchange.commit("d").await;
    exchange.until(|events| success(events) == 3).await;
    assert_eq!(exchange.scripted.requests().len(), 5, "its lease has ended, and its process lives");
    exchange.scripted.let_go();
    let events = exchange.until(|events| success(events) == 4).await;
    let attempts: i32 = events.iter().map(|event| event.attempts).sum();
    assert_eq!((attempts, exchange.scripted.requests().len()), (5, 5));
}
