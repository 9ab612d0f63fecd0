//! A Redis that is killed, away, emptied, or has forgotten the script.

use std::sync::Arc;
use std::time::Duration;

use annals_conformance::queue::Holding;
use annals_conformance::{Subject, run};
use annals_core::queue::{ItemsBody, NewItem, QueueDefinition, QueueError, Queues, RenewBody, TakeBody};
use annals_core::{Code, DEFAULT_TENANT, Store};
use annals_runtime::{Host, HostOptions};

use crate::redis_process::Redis;
use crate::suite::{Defined, InRedis};

struct Opened {
    _host: Host,
    store: Arc<dyn Store>,
    queues: Arc<dyn Queues>,
}

/// A queue `q` with a cap of 2 and items `a`, `b` and `c`.
async fn opened(subject: &dyn Subject, url: String) -> Opened {
    let store = subject.open().await;
    let options = HostOptions {
        clock: subject.clock(),
        queues: InRedis(url).backend(&subject.clock()),
        ..HostOptions::default()
    };
    let host = Host::start(Arc::clone(&store), options);
    let queues = host.queues(DEFAULT_TENANT).expect("declared");
    queues.put(QueueDefinition::new("q").capped(2)).await.expect("defined");
    Opened { _host: host, store, queues }
}

async fn add(queues: &dyn Queues, ids: &[&str]) {
    for id in ids {
        queues.enqueue("q", NewItem::new(*id)).await.expect("enqueued");
    }
}

/// Repeats a call until Redis is back, as a caller does.
async fn until_back<T>(call: impl AsyncFn() -> Result<T, QueueError>) -> T {
    let back = async {
        loop {
            match call().await {
                Ok(answer) => return answer,
                Err(error) => assert_eq!(error.code(), Code::QueueUnavailable, "{error}"),
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), back).await.expect("it comes back")
}

async fn asked(url: &str, command: &[&str]) -> redis::Value {
    let client = redis::Client::open(url).expect("a URL");
    let mut connection = client.get_multiplexed_async_connection().await.expect("connected");
    let mut ask = redis::cmd(command[0]);
    ask.arg(&command[1..]);
    ask.query_async(&mut connection).await.expect("answered")
}

#[test]
fn a_redis_that_was_killed_comes_back_with_everything_that_it_had_answered() {
    run(Defined::new(), async |subject: &dyn Subject| {
        let mut redis = Redis::start().await;
        let it = opened(subject, redis.url()).await;
        add(&*it.queues, &["a", "b", "c"]).await;
        let taken = it.queues.take("q", TakeBody::up_to(10)).await.expect("taken").items;
        assert_eq!(taken.len(), 2);
        let before = it.queues.get("q").await.expect("read");
        redis.kill();
        let away = it.queues.take("q", TakeBody::up_to(1)).await.map_err(|error| error.code());
        assert_eq!(away, Err(Code::QueueUnavailable));
        redis.start_again().await;
        let after = until_back(async || it.queues.get("q").await).await;
        assert_eq!(after, before);
        let mine = ItemsBody::of([taken[0].reference()]);
        let done = until_back(async || it.queues.done("q", mine.clone()).await).await;
        assert!(done[0].accepted, "its token is known: {done:?}");
        let next = until_back(async || it.queues.take("q", TakeBody::up_to(10)).await).await.items;
        assert_eq!(next.iter().map(|item| &*item.id).collect::<Vec<_>>(), ["c"]);
    });
}

#[test]
fn a_redis_that_was_emptied_has_an_empty_queue_with_its_cap_and_workers_are_told() {
    run(Defined::new(), async |subject: &dyn Subject| {
        let redis = Redis::start().await;
        let it = opened(subject, redis.url()).await;
        add(&*it.queues, &["a", "b", "c"]).await;
        let taken = it.queues.take("q", TakeBody::up_to(1)).await.expect("taken").items;
        asked(&redis.url(), &["FLUSHALL"]).await;
        asked(&redis.url(), &["SCRIPT", "FLUSH"]).await;
        let status = it.queues.get("q").await.expect("it is defined in the store");
        assert_eq!((status.definition.cap, status.counts.active, status.counts.taken_total), (2, 0, 0));
        let renewed = it.queues.renew("q", RenewBody::of([taken[0].reference()], 1_000)).await.expect("answered");
        assert_eq!(renewed[0].error.as_deref(), Some("lease_lost"));
        // Whoever has the items enqueues them again; an earlier token is not the new hand-out's.
        subject.clock().advance_millis(1);
        add(&*it.queues, &["a", "b", "c"]).await;
        let again = it.queues.take("q", TakeBody::up_to(10)).await.expect("taken").items;
        assert_eq!(again.len(), 2, "the cap holds");
        let late = it.queues.done("q", ItemsBody::of([taken[0].reference()])).await.expect("answered");
        assert!(!late[0].accepted, "{late:?}");
    });
}

#[test]
fn a_redis_that_is_away_is_reported_and_queues_can_be_defined_all_the_same() {
    run(Defined::new(), async |subject: &dyn Subject| {
        let mut redis = Redis::start().await;
        redis.kill();
        let it = opened(subject, redis.url()).await;
        let away = it.queues.enqueue("q", NewItem::new("a")).await.expect_err("it is away");
        assert_eq!(away.code(), Code::QueueUnavailable, "{away}");
        redis.start_again().await;
        until_back(async || it.queues.enqueue("q", NewItem::new("a")).await).await;
        assert_eq!(it.queues.take("q", TakeBody::up_to(1)).await.expect("taken").items.len(), 1);
    });
}

#[test]
fn every_key_of_a_queue_is_in_one_hash_slot_and_goes_with_the_queue() {
    run(Defined::new(), async |subject: &dyn Subject| {
        let redis = Redis::start().await;
        let it = opened(subject, redis.url()).await;
        let store_id = it.store.identity(DEFAULT_TENANT).expect("declared").store_id;
        for (n, user) in ["", "a", "b"].into_iter().enumerate() {
            it.queues.enqueue("q", NewItem::new(n.to_string()).user(user)).await.expect("enqueued");
        }
        it.queues.take("q", TakeBody::up_to(1)).await.expect("taken");
        let keys = async || match asked(&redis.url(), &["KEYS", "*"]).await {
            redis::Value::Array(keys) => keys.len(),
            other => panic!("{other:?}"),
        };
        let slot = format!("annals:{{{store_id}/default/q}}:*");
        let redis::Value::Array(in_slot) = asked(&redis.url(), &["KEYS", &slot]).await else { panic!("no keys") };
        assert!(in_slot.len() > 8);
        assert_eq!(in_slot.len(), keys().await);
        it.queues.delete("q", annals_core::handlers::Reason::from("the test ends")).await.expect("deleted");
        assert_eq!(keys().await, 0);
    });
}
