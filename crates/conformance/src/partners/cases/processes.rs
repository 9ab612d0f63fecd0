//! Several processes on one store.

use annals_core::partners::EventStatus;

use crate::Subject;
use crate::handlers::opened::Opened;
use crate::partners::words::{Exchange, P, are};

/// The other process takes over once the lease has ended.
pub async fn one_process_at_a_time_sends_and_another_takes_over_when_it_dies(subject: &dyn Subject) {
    let one = Exchange::with_partner(subject).await;
    one.commit("a").await;
    one.until(|events| are(events, EventStatus::Success)).await;
    let other = Exchange::on(subject.open().await, one.it.clock.clone(), one.scripted.clone());
    other.it.host.start_defined();
    // It dies: nothing is renewed and nothing is released.
    let Exchange { it: Opened { host, store, .. }, .. } = one;
    std::mem::forget(host);
    store.close().await;
    other.commit("b").await;
    other.in_time(|events| events.len() == 2 && are(events, EventStatus::Success)).await;
    assert_eq!(other.scripted.requests().len(), 2);
}

/// This holds for every combination of the process that receives and the process that commits.
pub async fn an_event_that_another_process_receives_is_committed(subject: &dyn Subject) {
    let one = Exchange::with_partner(subject).await;
    one.commit("a").await;
    one.until(|events| are(events, EventStatus::Success)).await;
    let other = Exchange::on(subject.open().await, one.it.clock.clone(), one.scripted.clone());
    other.receive("w", r#"{"type":"shipped","subject":"s"}"#).await.expect("accepted");
    one.has_logged(2).await;
    assert!(other.partners.get(P).await.is_ok());
}
