//! Which process attempts an event, and what happens when it dies.

use annals_core::bson::Bson;
use annals_core::partners::{
    DELIVERIES, DeliveryRecord, Ending, EventStatus, PARTNER_EVENTS, PartnerEventRecord, epoch_millis,
};
use annals_core::{Clock, Expected, RecordChange, TypedRecords};

use crate::Subject;
use crate::partners::words::{Exchange, Reply, are, header};

/// Returns the only delivery, and the changes with which a process that dies claims it for the attempt with this number. The lease lasts
/// 30 s.
async fn claim(exchange: &Exchange, attempt: i32) -> (DeliveryRecord, Vec<RecordChange>) {
    let deliveries = TypedRecords::<DeliveryRecord>::declared(exchange.records.clone());
    let (mut found, _) = deliveries.find(TypedRecords::<DeliveryRecord>::query()).await.expect("found");
    let delivery = found.remove(0).value;
    let now = exchange.it.clock.now();
    let lease = now.plus(std::time::Duration::from_secs(30));
    let due = annals_core::bson::DateTime::from_millis(lease.as_millis());
    let claimed: [(&str, Bson); 3] = [("attempt", attempt.into()), ("leased", true.into()), ("due", due.into())];
    let path = PartnerEventRecord::attempt_path(attempt);
    let processing: [(&str, Bson); 2] = [("event_status", "PROCESSING".into()), (&path, epoch_millis(now).into())];
    let changes = vec![
        RecordChange::set_if(DELIVERIES, delivery.key.as_str(), claimed, Expected::Matching(delivery.unchanged())),
        RecordChange::set_if(PARTNER_EVENTS, delivery.event, processing, Expected::Present),
    ];
    (delivery, changes)
}

/// Behaviour statement 106: an event that a process was attempting when it died is attempted again once its lease has ended, with the
/// same id.
pub async fn statement_106_a_record_in_processing_is_claimed_again_after_its_lease(subject: &dyn Subject) {
    let exchange = Exchange::with_partner(subject).await;
    exchange.scripted.script([Reply::Status(500)]);
    exchange.commit("a").await;
    exchange.until(|events| are(events, EventStatus::Failed)).await;
    exchange.it.host.drain().await;
    // A process claims it, and dies.
    let (delivery, changes) = claim(&exchange, 2).await;
    exchange.records.write(changes.clone()).await.expect("claimed");
    assert!(exchange.records.write(changes).await.is_err(), "another worker cannot claim it too");

    let exchange = exchange.restarted().await;
    exchange.commit("b").await;
    exchange.until(|events| events.iter().any(|event| event.event_status == EventStatus::Success)).await;
    exchange.advance_seconds(29);
    exchange.commit("c").await;
    let success = |events: &[annals_core::partners::PartnerEventView]| {
        events.iter().filter(|event| event.event_status == EventStatus::Success).count()
    };
    let events = exchange.until(|events| success(events) == 2).await;
    assert!(events.iter().any(|event| event.event_status == EventStatus::Processing), "its lease has not ended");
    exchange.advance_seconds(1);
    let events = exchange.until(|events| success(events) == 3).await;
    let again = events.iter().find(|event| event.id == delivery.event.to_hex()).expect("it is there");
    assert_eq!(again.attempts, 3, "the attempt of the dead process counts");
    let of = exchange.scripted.requests().iter().filter(|request| header(request, "webhook-id") == again.id).count();
    assert_eq!(of, 2);
}

/// The fifth attempt may have reached the partner, so there is no sixth. The event waits for a person, and the next one of its entity is
/// sent.
pub async fn an_event_whose_owner_died_in_the_fifth_attempt_is_exhausted(subject: &dyn Subject) {
    let exchange = Exchange::with_partner(subject).await;
    exchange.scripted.script([Reply::Status(500)]);
    exchange.commit("a").await;
    exchange.until(|events| are(events, EventStatus::Failed)).await;
    exchange.it.host.drain().await;
    let (delivery, changes) = claim(&exchange, 5).await;
    exchange.records.write(changes).await.expect("claimed");

    let exchange = exchange.restarted().await;
    for id in ["a", "b"] {
        exchange.commit(id).await;
    }
    let success = |events: &[annals_core::partners::PartnerEventView]| {
        events.iter().filter(|event| event.event_status == EventStatus::Success).count()
    };
    exchange.until(|events| success(events) == 1).await;
    exchange.advance_seconds(30);
    let events = exchange.until(|events| success(events) == 2).await;
    let dead = events.iter().find(|event| event.id == delivery.event.to_hex()).expect("it is there");
    assert_eq!((dead.event_status, dead.ended), (EventStatus::Failed, Some(Ending::Exhausted)));
    assert_eq!((dead.attempts, dead.due_at), (5, None));
    assert!(dead.last_reason.as_deref().is_some_and(|why| why.contains("the last attempt")), "{dead:?}");
    let of = exchange.scripted.requests().iter().filter(|request| header(request, "webhook-id") == dead.id).count();
    assert_eq!(of, 1, "only the first attempt was made here");
}

/// The outcomes of requests in flight when a host is drained are stored before the host ends.
pub async fn a_host_that_is_drained_stores_what_is_in_flight(subject: &dyn Subject) {
    let exchange = Exchange::with_partner(subject).await;
    exchange.scripted.script([Reply::Held]);
    exchange.commit("a").await;
    exchange.scripted.has_got(1).await;
    let goes = async {
        tokio::task::yield_now().await;
        exchange.scripted.let_go();
    };
    tokio::join!(exchange.it.host.drain(), goes);
    let exchange = exchange.restarted().await;
    assert!(are(&exchange.all().await, EventStatus::Success));
    assert_eq!(exchange.scripted.requests().len(), 1);
}

/// The next event of its entity is sent after it.
pub async fn an_attempt_that_panics_is_made_again_after_its_lease(subject: &dyn Subject) {
    let exchange = Exchange::with_partner(subject).await;
    exchange.scripted.script([Reply::Panic]);
    exchange.commit("a").await;
    exchange.commit("a").await;
    exchange.scripted.has_got(1).await;
    while exchange.scripted.requests().len() < 2 {
        exchange.it.advance(100);
        crate::between_looks().await;
    }
    let events = exchange.until(|events| events.len() == 2 && are(events, EventStatus::Success)).await;
    let mut attempts: Vec<_> = events.iter().map(|event| event.attempts).collect();
    attempts.sort_unstable();
    assert_eq!(attempts, [1, 2]);
}
