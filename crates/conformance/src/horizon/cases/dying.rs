//! A producer or a consumer that is killed at each of its writes, while another process continues.

use std::sync::Arc;

use annals_core::filters::FilterDefinition;
use annals_core::horizon::{Consent, LOCAL_PRODUCER, SubscriptionDefinition};
use annals_core::{LogQuery, Subscription, limits};
use annals_runtime::HostOptions;

use crate::handlers::opened::Opened;
use crate::horizon::wire::{URL, Wire};
use crate::horizon::words::{Bridge, STREAM};
use crate::mortal::{Life, at_each_write};
use crate::receiving::SCOPE;
use crate::{OTHER_TENANT, Subject};

/// What a consumer writes besides received events: the subscription, its origin and its progress.
const STEPS_OF_A_CONSUMER: &[&str] = &["annals-subscription"];
/// What a producer writes besides the entries of its public stream: the filter and the consent.
const STEPS_OF_A_PRODUCER: &[&str] = &["annals-filter", "annals-consents"];
/// How much time passes with each durable write, in milliseconds. A lease lasts for several writes.
const PASSING_MS: i64 = 500;

/// Returns the sequence numbers, in the producer's log, of the events that a subscription received.
async fn numbers(bridge: &Bridge, of: &impl Fn(&Subscription) -> bool) -> Vec<u64> {
    let query = LogQuery { limit: limits::PAGE_MAX, ..LogQuery::default() };
    let events = bridge.received.read(query).await.expect("reads").events;
    let received = events.iter().filter_map(|event| event.commit.received.as_ref());
    received.filter(|from| of(&from.subscription)).map(|from| from.sequence_number).collect()
}

/// Waits until a subscription has received `count` events, or the process dies. Time passes meanwhile.
async fn until_received(
    bridge: &Bridge,
    of: &impl Fn(&Subscription) -> bool,
    count: usize,
    is_dead: impl Fn() -> bool,
) {
    let there = async {
        while !is_dead() && numbers(bridge, of).await.len() < count {
            crate::between_looks().await;
        }
    };
    tokio::select! {
        () = there => {}
        never = bridge.it.let_time_pass_by_writes_of(PASSING_MS) => match never {},
    }
}

/// The process is killed before the write is applied, and in another run after.
pub async fn each_event_is_received_once_whichever_write_the_consumer_dies_at(subject: &dyn Subject) {
    let first = Bridge::of(subject).await;
    let kills = at_each_write(STEPS_OF_A_CONSUMER, async |life, n| consumer_is_killed(&first, &life, n).await).await;
    assert!(kills >= 6, "a consumer makes more writes than {kills}");
}

/// Runs a consumer of a partition of its own for this life, and the next one to the end. `first` is the producer. Returns whether the
/// first consumer was killed before it had received everything.
async fn consumer_is_killed(first: &Bridge, life: &Arc<Life>, n: usize) -> bool {
    let name = format!("run-{n}");
    let partition = format!("order/{name}");
    let of = |subscription: &Subscription| *subscription.partition == *partition;
    let consent = Consent::new(name.clone(), STREAM).of_partition(partition.clone());
    assert!(first.producer.put_consent(consent).await.expect("given"));
    let subscription = SubscriptionDefinition::new(name.clone(), LOCAL_PRODUCER, STREAM, SCOPE);
    let subscription = subscription.from_tenant(OTHER_TENANT).of_partition(partition.clone());
    let begin = first.produced.head().await.expect("reads");
    first.produce("placed", &[name.as_str(); 3]).await;

    let dying = Bridge::on(Opened::on(life.store(&first.it.store), first.it.clock.clone()));
    let defined = dying.consumer.put_subscription(subscription.clone()).await;
    assert!(defined.is_ok() || life.is_over(), "{defined:?}");
    until_received(first, &of, 3, || life.is_over()).await;
    let killed = life.is_over();
    dying.it.host.drain().await;

    let next = Bridge::on(Opened::on(first.it.store.clone(), first.it.clock.clone()));
    next.consumer.put_subscription(subscription).await.expect("defined");
    first.produce("placed", &[name.as_str()]).await;
    until_received(first, &of, 4, || false).await;
    next.it.host.drain().await;
    assert_eq!(numbers(first, &of).await, (begin..begin + 4).collect::<Vec<_>>(), "{name}");
    killed
}

/// The process is killed before the write is applied, and in another run after. Its consumer is another process.
pub async fn each_event_is_received_once_whichever_write_the_producer_dies_at(subject: &dyn Subject) {
    let it = Opened::of(subject).await;
    it.host.drain().await;
    let kills = at_each_write(STEPS_OF_A_PRODUCER, async |life, n| producer_is_killed(&it, &life, n).await).await;
    assert!(kills >= 6, "a producer makes more writes than {kills}");
}

/// Offers a public stream of the event type of the same name. Returns whether the producer answered.
async fn offers(producer: &Bridge, stream: &str) -> bool {
    let filter = FilterDefinition::new(stream.to_owned()).types([stream.to_owned()]).public();
    let is_filled = producer.filters.put(filter).await.is_ok();
    is_filled && producer.producer.put_consent(Consent::new(stream.to_owned(), stream.to_owned())).await.is_ok()
}

/// Runs a producer of a stream of its own for this life, and the next one to the end. Returns whether the first one was killed before
/// everything was received.
async fn producer_is_killed(it: &Opened, life: &Arc<Life>, n: usize) -> bool {
    let stream = format!("run-{n}");
    let of = |subscription: &Subscription| *subscription.stream == *stream;
    let wire = Wire::new(it.clock.clone());
    let options = HostOptions { producers: Arc::new(wire.clone()), ..HostOptions::default() };
    let consumer = Bridge::on(Opened::with(it.store.clone(), it.clock.clone(), options));
    let subscription = SubscriptionDefinition::new(stream.clone(), URL, stream.clone(), SCOPE);
    let subscription = subscription.from_tenant(OTHER_TENANT);
    consumer.define(subscription.clone()).await;

    let dying = Bridge::on(Opened::on(life.store(&it.store), it.clock.clone()));
    wire.lead_to(Some(dying.offering.clone()));
    assert!(offers(&dying, &stream).await || life.is_over(), "it lives, and offers its stream");
    let begin = consumer.produced.head().await.expect("reads");
    consumer.produce(&stream, &["a"; 3]).await;
    until_received(&consumer, &of, 3, || life.is_over()).await;
    let killed = life.is_over();
    wire.lead_to(None);
    dying.it.host.drain().await;

    let next = Bridge::on(Opened::on(it.store.clone(), it.clock.clone()));
    wire.lead_to(Some(next.offering.clone()));
    assert!(offers(&next, &stream).await, "it is what was offered before");
    // It need not wait for its next attempt.
    consumer.consumer.put_subscription(subscription).await.expect("defined");
    consumer.produce(&stream, &["a"]).await;
    until_received(&consumer, &of, 4, || false).await;
    consumer.it.host.drain().await;
    next.it.host.drain().await;
    assert_eq!(numbers(&consumer, &of).await, (begin..begin + 4).collect::<Vec<_>>(), "{stream}");
    killed
}
