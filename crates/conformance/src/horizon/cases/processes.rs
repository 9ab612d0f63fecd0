//! Several processes on one store.

use std::time::Duration;

use annals_core::horizon::OfferRequest;
use annals_core::{Clock, Code};

use crate::Subject;
use crate::handlers::opened::Opened;
use crate::horizon::words::{Bridge, request};

/// The other process takes over within five seconds, and the time that the store takes.
pub async fn one_process_at_a_time_receives_and_another_takes_over_when_it_dies(subject: &dyn Subject) {
    let one = Bridge::connected(subject).await;
    one.produce("placed", &["a"]).await;
    one.has_received(1).await;
    let other = Bridge::on(Opened::on(subject.open().await, one.it.clock.clone()));
    other.it.host.start_defined();
    let owner = other.status().await.owner;
    assert_eq!(owner, one.status().await.owner, "the first one receives");
    // It dies: nothing is renewed and nothing is released.
    let Bridge { it: Opened { host, store, .. }, .. } = one;
    std::mem::forget(host);
    store.close().await;
    let died = other.it.clock.now();
    let taken = async {
        loop {
            let now = other.status().await.owner;
            if now.is_some() && now != owner {
                return;
            }
            crate::between_looks().await;
        }
    };
    tokio::select! {
        () = taken => {}
        never = other.it.let_time_pass_by_writes() => match never {},
    }
    let passed = other.it.clock.now().since(died);
    assert!(passed < Duration::from_secs(6), "it took {passed:?}");
    other.produce("placed", &["a"]).await;
    assert_eq!(other.numbers(2).await, [0, 1]);
}

/// The process that defined it has ended.
pub async fn a_subscription_that_another_process_defines_is_run(subject: &dyn Subject) {
    let one = Bridge::of(subject).await;
    one.it.host.start_defined();
    let other = Bridge::on(Opened::on(subject.open().await, one.it.clock.clone()));
    other.consent().await;
    other.subscribe().await;
    other.it.host.drain().await;
    one.produce("placed", &["a"]).await;
    assert_eq!(one.numbers(1).await, [0]);
}

/// The request ends within a second.
pub async fn a_consent_that_another_process_revokes_ends_a_request_that_waits(subject: &dyn Subject) {
    let one = Bridge::of(subject).await;
    one.consent().await;
    let other = Bridge::on(Opened::on(subject.open().await, one.it.clock.clone()));
    let waits = one.offer(OfferRequest { wait_ms: 50_000, ..request() });
    let revokes = async {
        tokio::task::yield_now().await;
        other.revoke("c").await;
        let clock = &one.it.clock;
        clock.advance_millis(1_000);
        std::future::pending::<()>().await;
    };
    let ended = tokio::select! {
        ended = waits => ended,
        () = revokes => unreachable!("it waits for ever"),
    };
    assert_eq!(ended.expect_err("the consent is gone").code(), Code::MissingConsent);
}
