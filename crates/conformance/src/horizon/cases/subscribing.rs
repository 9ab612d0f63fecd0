//! The status of subscriptions, and what is refused.

use annals_core::handlers::ActRecord;
use annals_core::horizon::{HorizonError, IntakeState, NoProducers, Producers, SUBSCRIPTIONS, SubscriptionDefinition};
use annals_core::{Code, DEFAULT_TENANT, TypedRecords};

use crate::handlers::opened::Opened;
use crate::horizon::words::{Bridge, consent, reason, subscription};
use crate::unanswered::Unanswered;
use crate::{OTHER_TENANT, Subject};

/// Returns why the only subscription is not healthy.
async fn degraded(bridge: &Bridge) -> Option<String> {
    // A result is reused for a second.
    bridge.it.advance(1_000);
    let health = bridge.it.host.health().await.expect("the store can be read");
    let of = health.iter().find(|of| of.kind == "subscription").expect("defined");
    assert_eq!((&*of.tenant, &*of.name), (DEFAULT_TENANT, "s"));
    of.degraded.clone()
}

/// The status also shows how long ago an event was received.
pub async fn the_state_shows_position_head_and_lag(subject: &dyn Subject) {
    let bridge = Bridge::connected(subject).await;
    bridge.produce("placed", &["a", "a", "a"]).await;
    bridge.has_received(3).await;
    let status = bridge.until(|status| status.head == 3 && status.lag == 0 && status.last_progress.is_some()).await;
    assert_eq!((status.position, status.sequence_number, status.state), (3, Some(2), IntakeState::Running));
    assert_eq!((status.microservice.as_deref(), status.consent), (Some("default"), Some(consent("c").uuid())));
    assert!(status.owner.is_some() && status.last_reason.is_none() && status.attempts == 0);
    let last = status.last_progress.expect("an event was received");
    bridge.it.advance(3_000);
    bridge.until(|status| status.seconds_since_progress >= Some(3)).await;
    assert_eq!(degraded(&bridge).await, None);
    bridge.it.host.drain().await;
    let later = Bridge::on(Opened::on(bridge.it.store.clone(), bridge.it.clock.clone()));
    let stopped = later.status().await;
    assert_eq!((stopped.state, stopped.owner.as_deref(), stopped.position), (IntakeState::Stopped, None, 3));
    // The stored events of the owner are visible before the owner reports their time.
    assert!(stopped.head == 3 && stopped.last_progress >= Some(last), "it is noted when the owner ends: {stopped:?}");
}

/// The delay grows up to a cap, and the first success resets it.
pub async fn a_subscription_that_fails_is_attempted_again_later_each_time(subject: &dyn Subject) {
    let bridge = Bridge::of(subject).await;
    bridge.subscribe().await;
    let mut delays = Vec::new();
    for attempts in 1..=8 {
        let status = bridge.until(|status| status.attempts >= attempts).await;
        assert_eq!(status.attempts, attempts, "one attempt at a time");
        let at = status.retry_at.expect("it is attempted again");
        delays.push(at.since(annals_core::Clock::now(&*bridge.it.clock)).as_millis());
        if attempts == 8 {
            assert_eq!(degraded(&bridge).await, status.last_reason, "health names the subscription");
        }
    }
    assert!(delays[7] > 4 * delays[0] && delays[7] <= 15_000, "{delays:?}");
    bridge.consent().await;
    bridge.until(|status| status.state == IntakeState::Running && status.attempts == 0).await;
    bridge.revoke("c").await;
    let status = bridge.until(|status| status.state == IntakeState::Refused).await;
    assert!(status.attempts <= 3, "it begins with the first delay again: {status:?}");
}

/// An operator need not wait for the next attempt.
pub async fn putting_a_subscription_again_attempts_it_at_once(subject: &dyn Subject) {
    let bridge = Bridge::of(subject).await;
    bridge.produce("placed", &["a"]).await;
    bridge.subscribe().await;
    bridge.until(|status| status.attempts >= 8).await;
    bridge.consent().await;
    assert!(!bridge.consumer.put_subscription(subscription("s")).await.expect("unchanged"));
    // Time stands still.
    while bridge.status().await.position == 0 {
        crate::between_looks().await;
    }
    assert_eq!(bridge.numbers(1).await, [0]);
}

/// One task receives, both while it connects and afterwards.
pub async fn a_subscription_that_is_put_again_while_it_receives_goes_on(subject: &dyn Subject) {
    let bridge = Bridge::of(subject).await;
    let put = async || assert!(!bridge.consumer.put_subscription(subscription("s")).await.expect("unchanged"));
    bridge.subscribe().await;
    put().await;
    bridge.until(|status| status.state == IntakeState::Refused).await;
    bridge.consent().await;
    put().await;
    bridge.produce("placed", &["a"]).await;
    bridge.has_received(1).await;
    let owner = bridge.until(|status| status.state == IntakeState::Running).await.owner;
    for _ in 0..3 {
        put().await;
        bridge.produce("placed", &["a"]).await;
    }
    assert_eq!(bridge.numbers(4).await, [0, 1, 2, 3]);
    assert_eq!(bridge.status().await.owner, owner);
    let tasks = bridge.it.host.tasks();
    assert_eq!(tasks.iter().filter(|task| task.name.starts_with("subscription/")).count(), 1, "{tasks:?}");
}

/// Its owner is started.
pub async fn a_new_subscription_receives_although_the_caller_goes_away(subject: &dyn Subject) {
    let (store, unanswered) = Unanswered::before(subject.open().await, SUBSCRIPTIONS);
    let bridge = Bridge::over(Opened::on(store, subject.clock())).await;
    bridge.consent().await;
    bridge.produce("placed", &["a"]).await;
    unanswered.abandon(bridge.consumer.put_subscription(subscription("s"))).await;
    assert_eq!(bridge.numbers(1).await, [0]);
}

/// Its owner ends.
pub async fn a_subscription_is_deleted_whole_although_the_caller_goes_away(subject: &dyn Subject) {
    let (store, unanswered) = Unanswered::before(subject.open().await, SUBSCRIPTIONS);
    let bridge = Bridge::over(Opened::on(store, subject.clock())).await;
    bridge.consent().await;
    bridge.subscribe().await;
    bridge.produce("placed", &["a"]).await;
    bridge.has_received(1).await;
    unanswered.abandon(bridge.consumer.delete_subscription("s", reason())).await;
    while bridge.it.host.tasks().iter().any(|task| task.name.starts_with("subscription/")) {
        bridge.pass().await;
    }
    let unknown = bridge.consumer.subscription("s").await.expect_err("it is gone");
    assert_eq!(unknown, HorizonError::UnknownSubscription("s".to_owned()));
}

/// It is neither in the status nor in the list, and is removed with the definition that had it.
pub async fn a_credential_is_never_shown(subject: &dyn Subject) {
    let bridge = Bridge::of(subject).await;
    bridge.define(subscription("s").with_credential("s3cret")).await;
    let shown = serde_json::to_string(&bridge.status().await).expect("writes");
    assert!(bridge.status().await.credential && !shown.contains("s3cret"), "{shown}");
    let listed = bridge.consumer.subscriptions(None, 10).await.expect("listed");
    assert!(!serde_json::to_string(&listed).expect("writes").contains("s3cret"));
    assert!(!bridge.consumer.put_subscription(subscription("s")).await.expect("changed"));
    assert!(!bridge.status().await.credential);
}

/// The error says what is wrong.
pub async fn a_subscription_that_cannot_work_is_refused(subject: &dyn Subject) {
    let bridge = Bridge::of(subject).await;
    let valid = || subscription("s");
    for (definition, code) in [
        (SubscriptionDefinition { scope: "default".into(), ..valid() }, Code::InvalidSubscription),
        (
            SubscriptionDefinition { scope: "00000000-0000-0000-0000-000000000000".into(), ..valid() },
            Code::InvalidSubscription,
        ),
        (SubscriptionDefinition { scope: "nowhere".into(), ..valid() }, Code::UnknownScope),
        (valid().from_tenant("nobody"), Code::UnknownTenant),
        (SubscriptionDefinition { producer: "ftp://a".into(), ..valid() }, Code::InvalidSubscription),
        // The host of these cases reaches no other process.
        (SubscriptionDefinition { producer: "http://127.0.0.1:1".into(), ..valid() }, Code::InvalidSubscription),
        (SubscriptionDefinition { name: "a b".into(), ..valid() }, Code::InvalidName),
    ] {
        let refused = bridge.consumer.put_subscription(definition.clone()).await.expect_err("it cannot work");
        assert_eq!(refused.code(), code, "{definition:?}: {refused}");
    }
    assert!(NoProducers.producer("http://127.0.0.1:1", "t", None).is_err());
    for unknown in
        [bridge.consumer.subscription("s").await.map(drop), bridge.consumer.delete_subscription("s", reason()).await]
    {
        assert_eq!(unknown, Err(HorizonError::UnknownSubscription("s".to_owned())));
    }
}

/// Subscriptions are listed by name.
pub async fn subscriptions_are_listed_page_by_page(subject: &dyn Subject) {
    let bridge = Bridge::of(subject).await;
    for name in ["b", "a", "c"] {
        bridge.define(SubscriptionDefinition { name: name.into(), ..subscription("s") }).await;
    }
    let first = bridge.consumer.subscriptions(None, 2).await.expect("listed");
    let names = |page: &annals_core::horizon::SubscriptionPage| {
        page.items.iter().map(|item| item.name.to_string()).collect::<Vec<_>>()
    };
    assert_eq!((names(&first), first.cursor.as_deref()), (vec!["a".to_owned(), "b".to_owned()], Some("b")));
    let rest = bridge.consumer.subscriptions(Some("b"), 2).await.expect("listed");
    assert_eq!((names(&rest), rest.cursor), (vec!["c".to_owned()], None));
}

/// The record also has who acted.
pub async fn acts_are_recorded_with_their_reason(subject: &dyn Subject) {
    let bridge = Bridge::connected(subject).await;
    bridge.revoke("c").await;
    bridge.consumer.delete_subscription("s", reason()).await.expect("deleted");
    for (tenant, processor, act) in
        [(OTHER_TENANT, "consent/c", "revoke"), (DEFAULT_TENANT, "subscription/s", "delete")]
    {
        let records = bridge.it.store.records(tenant).expect("declared");
        let query = TypedRecords::<ActRecord>::query();
        let (acts, _) = TypedRecords::<ActRecord>::declared(records).find(query).await.expect("found");
        let found = acts.iter().map(|found| &found.value).find(|found| found.processor == processor).expect("recorded");
        assert_eq!((&*found.act, &*found.reason, found.by.as_deref()), (act, "a test", Some("eva")));
    }
}
