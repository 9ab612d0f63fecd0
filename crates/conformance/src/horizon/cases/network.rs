//! Failures of the network between a consumer and its producer.

use std::sync::Arc;

use annals_core::horizon::{IntakeState, SubscriptionDefinition};
use annals_runtime::HostOptions;

use crate::Subject;
use crate::handlers::opened::Opened;
use crate::horizon::wire::{Network, URL, Wire};
use crate::horizon::words::{Bridge, subscription};

/// The network is cut, deaf or slow. A consumer without an answer reports this, and continues once the network works again.
pub async fn each_event_is_received_once_whatever_the_network_does(subject: &dyn Subject) {
    let producer = Bridge::of(subject).await;
    producer.consent().await;
    let (store, clock) = (producer.it.store.clone(), producer.it.clock.clone());
    let wire = Wire::new(clock.clone());
    wire.lead_to(Some(producer.offering.clone()));
    let options = HostOptions { producers: Arc::new(wire.clone()), ..HostOptions::default() };
    let consumer = Bridge::on(Opened::with(store, clock, options));
    consumer.define(SubscriptionDefinition { producer: URL.into(), ..subscription("s") }).await;
    let mut count = 0;
    for network in [Network::Cut, Network::Deaf, Network::Slow, Network::Deaf, Network::Cut] {
        producer.produce("placed", &["a", "a"]).await;
        count += 2;
        consumer.has_received(count).await;
        consumer.until(|status| status.state == IntakeState::Running && status.attempts == 0).await;
        wire.set(network);
        producer.produce("placed", &["a", "a", "a"]).await;
        if network != Network::Slow {
            let failing = consumer.until(|status| status.attempts >= 2).await;
            assert_eq!(failing.state, IntakeState::Failing, "{network:?}");
            // Fails unless there are as many as before.
            consumer.has_received(count).await;
            wire.set(Network::Whole);
        }
        count += 3;
        let due: Vec<_> = (0..count as u64).collect();
        assert_eq!(consumer.numbers(count).await, due, "{network:?}");
        wire.set(Network::Whole);
    }
}
