//! Faults beside kill -9, which `killed` tests: races, repetitions, and a lease of the queue that ends while its owner works.

use std::sync::Arc;
use std::time::Duration;

use annals::queue::{ItemRef, ItemsBody};
use annals::runtime::{Host, HostOptions};
use annals::{DEFAULT_TENANT, Data, NewCommit, NewEvent, Store};
use annals_example_execution::{
    AGGREGATE, CANCELLED, COMPLETED, CREATE_POD, QUEUE, RESULT_STORED, SLOT_GRANTED, TERMINAL,
};
use reqwest::Method;
use serde_json::json;

use crate::machine::marker;
use crate::service::{Service, ended, history_of, memory, started, until};

#[tokio::test(flavor = "multi_thread")]
async fn statement_89_of_a_cancel_and_a_completion_one_is_the_end_of_the_execution() {
    cancel_meets_completion(&memory().await).await;
}

/// Cancels executions while they complete, on a store of any kind.
pub async fn cancel_meets_completion(store: &Arc<dyn Store>) {
    let service = Service::start_with(store, |settings| settings.at_once = 4).await;
    let mut ends = Vec::new();
    for n in 0..16 {
        let id = service.submit("sh", "exit 0").await;
        if n % 2 == 0 {
            started(&service.log, &id).await;
        }
        let (status, answer) = service.call("demo", Method::POST, &format!("/executions/{id}/cancel"), None).await;
        let end = ended(&service.log, &id).await;
        let wanted = if status == 202 { CANCELLED } else { COMPLETED };
        assert_eq!(end.event_type, wanted, "{answer}");
        ends.push((id, wanted));
    }
    for (id, wanted) in ends {
        let saga = service
            .saga(&id, |saga| ["completed", "cancelled", "failed"].contains(&saga["state"].as_str().unwrap_or("")))
            .await;
        assert_eq!(history_of(&service.log, &id, &TERMINAL).await, [wanted], "{saga}");
    }
    service.until("free slots", &format!("/v1/queues/{QUEUE}"), |queue| queue["active"] == 0).await;
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn events_that_come_again_or_out_of_order_change_nothing() {
    let store = memory().await;
    let service = Service::start(&store).await;
    let id = service.submit("sh", "echo once").await;
    until(&service.log, &id, &[RESULT_STORED]).await;
    service.saga(&id, |saga| saga["state"] == "completed").await;
    for event_type in [SLOT_GRANTED, COMPLETED] {
        let data = json!({ "execution_id": id, "exit_code": 0, "cpu_request": "", "memory_request": "" });
        let event = NewEvent::new(event_type, Data::from_value(&data).expect("an object"));
        service.log.commit(NewCommit::new(AGGREGATE, id.as_str()).event(event)).await.expect("taken");
    }
    assert_eq!(service.result_of("sh", "echo after it").await.event_type, COMPLETED);
    service.until("no lag", "/v1/groups/result-processor", |group| group["lag"] == 0).await;
    assert_eq!(history_of(&service.log, &id, &[RESULT_STORED, CREATE_POD]).await, [CREATE_POD, RESULT_STORED]);
    assert_eq!(service.get(&format!("/executions/{id}/result")).await["stdout"], "once\n");
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slot_is_kept_for_as_long_as_its_program_runs_and_given_back_if_its_lease_was_lost() {
    slot_is_kept(&memory().await, Duration::from_secs(1)).await;
}

/// Lets a program run for longer than its leases, and then takes its slot away, on a store of any kind.
pub async fn slot_is_kept(store: &Arc<dyn Store>, lease: Duration) {
    let service = Service::start_with(store, |settings| {
        settings.at_once = 1;
        settings.lease = lease;
    });
    let service = service.await;
    let gate = marker();
    let script = format!("until [ -e /tmp/{gate} ]; do sleep 0.01; done; rm /tmp/{gate}");
    let first = service.submit_with(json!({ "language": "sh", "script": script, "timeout_seconds": 60 })).await;
    started(&service.log, &first).await;
    let second = service.submit("sh", "echo second").await;
    until(&service.log, &second, &["execution_queued"]).await;
    // Three leases pass: what is renewed has moved on from where it was.
    let path = format!("/v1/queues/{QUEUE}/items/{first}");
    let until_of = |item: &serde_json::Value| item["lease_until"].as_str().unwrap_or_default().to_owned();
    let mut lease = until_of(&service.get(&path).await);
    for _ in 0..3 {
        let before = lease.clone();
        lease = until_of(&service.until("a renewed lease", &path, |item| until_of(item) > before).await);
    }
    assert!(history_of(&service.log, &second, &[SLOT_GRANTED]).await.is_empty(), "the slot was never free");
    // As if its lease had been lost: the slot is free for a moment, and whoever gets it, each runs once.
    let host = Host::start(Arc::clone(store), HostOptions::default());
    let queues = host.queues(DEFAULT_TENANT).expect("declared");
    queues.release(QUEUE, ItemsBody::of([ItemRef::current(first.as_str())])).await.expect("released");
    std::fs::write(format!("/tmp/{gate}"), "").expect("can be written");
    for id in [&first, &second] {
        assert_eq!(ended(&service.log, id).await.event_type, COMPLETED);
        assert_eq!(history_of(&service.log, id, &[CREATE_POD, "pod_running"]).await, [CREATE_POD, "pod_running"]);
    }
    service.until("free slots", &format!("/v1/queues/{QUEUE}"), |queue| queue["active"] == 0).await;
    service.stop().await;
}
