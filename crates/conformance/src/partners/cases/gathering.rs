//! Deliveries that are due at the same time, whose claims and ends share batches.

use std::sync::Arc;

use annals_core::partners::{EventStatus, EventsQuery, PartnerDefinition, PartnerEventView};

use crate::Subject;
use crate::partners::gate::Gate;
use crate::partners::words::{Exchange, P, Reply, Scripted, are, placed_to};
use crate::tap::TappedStore;

async fn behind(gate: &Arc<Gate>, subject: &dyn Subject) -> Exchange {
    let store = TappedStore::new(subject.open().await).with_records(gate);
    Exchange::on(Arc::new(store), subject.clock(), Scripted::new())
}

/// Ten entities each have two events for four partners. Claims and ends that arrive while a batch is being written go into the next one,
/// across partners and entities.
pub async fn deliveries_that_are_due_together_share_their_batches(subject: &dyn Subject) {
    // Some of them wait for others whose entities have the same lock, so the gates open before the last ones have arrived.
    let gate = Gate::opening_after(30, 80 + 30);
    let exchange = behind(&gate, subject).await;
    exchange.scripted.usually(".example", Reply::Held);
    let partners = ["p", "q", "r", "s"];
    for id in partners {
        let mut definition = placed_to(id);
        definition.limits.concurrency = 20;
        exchange.define(definition).await;
    }
    for n in 0..10 {
        exchange.commit(&format!("e-{n}")).await;
    }
    // No delivery ends before all are claimed, and each is followed by another one that waits for it.
    exchange.scripted.has_got(40).await;
    for n in 0..10 {
        exchange.commit(&format!("e-{n}")).await;
    }
    gate.has_seen(80).await;
    exchange.scripted.let_go();
    for id in partners {
        loop {
            let events = exchange.partners.events(id, EventsQuery::default()).await.expect("listed").items;
            if events.len() == 20 && are(&events, EventStatus::Success) {
                assert!(events.iter().all(|event| event.attempts == 1), "{events:?}");
                break;
            }
            crate::between_looks().await;
        }
    }
    assert_eq!(exchange.scripted.requests().len(), 80);
    for sizes in [gate.claims(), gate.ends()] {
        assert_eq!(sizes.iter().sum::<usize>(), 80, "{sizes:?}");
        // Of the first 40 at least 28 share two batches. The others may come one by one.
        assert!(sizes.len() <= 60, "{sizes:?}");
    }
}

/// A partner with one request at a time gets the next one before the end of the previous one is stored. A delivery that nothing follows
/// ends without a look-up.
pub async fn the_next_delivery_is_attempted_while_the_end_of_the_last_one_is_stored(subject: &dyn Subject) {
    // The first end waits until two deliveries have looked up the order of their entities.
    let gate = Gate::opening_after(0, 2);
    let exchange = behind(&gate, subject).await;
    let mut definition = placed_to(P);
    definition.limits.concurrency = 1;
    exchange.define(definition).await;
    for id in ["a", "b"] {
        exchange.commit(id).await;
    }
    exchange.until(|events| events.len() == 2 && are(events, EventStatus::Success)).await;
    assert_eq!((gate.look_ups(), exchange.scripted.requests().len()), (2, 2));
}

/// The events of all deliveries that a partner takes at a time are read together.
pub async fn the_events_of_deliveries_that_are_due_together_are_read_together(subject: &dyn Subject) {
    let gate = Gate::opening_after(0, 0);
    let exchange = behind(&gate, subject).await;
    let mut definition = placed_to(P);
    definition.limits.concurrency = 8;
    exchange.define(PartnerDefinition { paused: true, ..definition.clone() }).await;
    for n in 0..8 {
        exchange.commit(&format!("e-{n}")).await;
    }
    exchange.until(|events| events.len() == 8 && are(events, EventStatus::Pending)).await;
    assert!(!exchange.partners.put(definition).await.expect("changed"));
    exchange.until(|events| are(events, EventStatus::Success)).await;
    assert_eq!((gate.reads(), exchange.scripted.requests().len()), (1, 8));
}

/// Every other delivery of the batch is claimed and sent. The one that another process has claimed stays with it until its lease has
/// ended.
pub async fn a_claim_that_another_process_won_stops_no_other_of_its_batch(subject: &dyn Subject) {
    let gate = Gate::opening_after(8, 0);
    gate.expect_rival();
    let exchange = behind(&gate, subject).await;
    let mut definition = placed_to(P);
    definition.limits.concurrency = 12;
    exchange.define(definition).await;
    for n in 0..12 {
        exchange.commit(&format!("e-{n}")).await;
    }
    let success = |event: &&PartnerEventView| event.event_status == EventStatus::Success;
    let events = exchange.until(|events| events.len() == 12 && events.iter().filter(success).count() == 11).await;
    let theirs = events.iter().find(|event| !success(event)).expect("one is another process's");
    assert_eq!((theirs.event_status, theirs.attempts), (EventStatus::Processing, 1));
    assert_eq!(exchange.scripted.requests().len(), 11, "what another process has claimed is not sent");

    exchange.advance_seconds(30);
    exchange.commit("e-12").await;
    let events = exchange.until(|events| events.len() == 13 && are(events, EventStatus::Success)).await;
    let theirs = events.iter().find(|event| event.id == theirs.id).expect("it is there");
    assert_eq!((theirs.attempts, exchange.scripted.requests().len()), (2, 13));
}
