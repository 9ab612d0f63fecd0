//! Deliveries that are due at the same time, whose claims and ends share batches.

use std::sync::Arc;

use annals_core::partners::{EventStatus, EventsQuery, PartnerEventView};

use crate::Subject;
use crate::partners::gate::Gate;
use crate::partners::words::{Exchange, P, Reply, Scripted, are, placed_to};
use crate::tap::TappedStore;

async fn behind(gate: &Arc<Gate>, subject: &dyn Subject) -> Exchange {
    let store = TappedStore::new(subject.open().await).with_records(gate);
    Exchange::on(Arc::new(store), subject.clock(), Scripted::new())
}

/// Ten entities, each with an event for four partners. What is claimed or ended while a batch is being written goes into the next one,
/// across partners and entities.
pub async fn deliveries_that_are_due_together_share_their_batches(subject: &dyn Subject) {
    // Some of them wait for others whose entities have the same lock, so the gates open before the last ones have come.
    let gate = Gate::opening_after(30, 40 + 30);
    let exchange = behind(&gate, subject).await;
    exchange.scripted.usually(".example", Reply::Held);
    let partners = ["p", "q", "r", "s"];
    for id in partners {
        let mut definition = placed_to(id);
        definition.limits.concurrency = 10;
        exchange.define(definition).await;
    }
    for n in 0..10 {
        exchange.commit(&format!("e-{n}")).await;
    }
    // No delivery ends before all are claimed.
    exchange.scripted.has_got(40).await;
    exchange.scripted.let_go();
    for id in partners {
        loop {
            let events = exchange.partners.events(id, EventsQuery::default()).await.expect("listed").items;
            if events.len() == 10 && are(&events, EventStatus::Success) {
                assert!(events.iter().all(|event| event.attempts == 1), "{events:?}");
                break;
            }
            crate::between_looks().await;
        }
    }
    assert_eq!(exchange.scripted.requests().len(), 40);
    for sizes in [gate.claims(), gate.ends()] {
        assert_eq!(sizes.iter().sum::<usize>(), 40, "{sizes:?}");
        // At least 28 of them share two batches.
        assert!(sizes.len() <= 20, "{sizes:?}");
    }
}

/// Every other delivery of the batch is claimed and sent. The one that another process has is left to it until its lease has ended.
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
