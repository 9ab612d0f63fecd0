//! The workflow as a whole: request, saga, queue, command, worker, pod, result. The numbers are those of docs/integr8scode-workflow.md.

use std::sync::Arc;

use annals::bson::{Bson, RawDocumentBuf, doc};
use annals::sagas::{SAGAS, saga_id};
use annals::{Code, DEFAULT_TENANT, Data, NewCommit, NewEvent, RecordChange, Store};
use annals_example_execution::{
    AGGREGATE, CANCELLED, COMPLETED, CREATE_POD, DELETE_POD, FAILED, POD, QUEUE, REQUESTED, RESULT_STORED, Role, SAGA,
    STARTED, TIMEOUT,
};
use reqwest::Method;
use serde_json::{Value, json};

use crate::clock::Standing;
use crate::machine::{marker, until_running};
use crate::service::{Service, ended, history, history_of, memory, started, until};

/// All that happens to an execution that ends well.
pub const WHOLE: [&str; 13] = [
    REQUESTED,
    "execution_queued",
    "allocate_resources_command",
    CREATE_POD,
    "pod_created",
    "pod_scheduled",
    "pod_running",
    STARTED,
    "pod_succeeded",
    "pod_terminated",
    COMPLETED,
    "pod_deleted",
    RESULT_STORED,
];

pub fn without_result(history: Vec<String>) -> Vec<String> {
    // The result is stored while the pod is deleted, so either may be first.
    history.into_iter().filter(|it| it != RESULT_STORED && it != "pod_deleted").collect()
}

/// A record as it is in the store.
async fn stored(store: &Arc<dyn Store>, collection: &str, id: &str) -> RawDocumentBuf {
    let records = store.records(DEFAULT_TENANT).expect("always there");
    let found = records.get(collection, &Bson::from(id)).await.expect("can be read");
    found.unwrap_or_else(|| panic!("{collection} has no {id}")).document
}

/// Waits until the allocation of an execution is released.
async fn until_released(store: &Arc<dyn Store>, id: &str) {
    let mut again = tokio::time::interval(std::time::Duration::from_millis(20));
    crate::service::within(&format!("the release of {id}"), async {
        while stored(store, "resource_allocations", id).await.get_str("status").expect("a status") != "released" {
            again.tick().await;
        }
    })
    .await;
}

/// What an execution held is released, and it is stored when.
async fn is_released(store: &Arc<dyn Store>, id: &str) {
    let allocation = stored(store, "resource_allocations", id).await;
    assert_eq!(allocation.get_str("status").expect("a status"), "released");
    let (allocated, released) = (allocation.get_datetime("allocated_at"), allocation.get_datetime("released_at"));
    assert!(released.expect("a time") >= allocated.expect("a time"));
}

#[tokio::test(flavor = "multi_thread")]
async fn statement_79_a_request_goes_through_saga_queue_command_worker_and_pod_to_its_result() {
    let store = memory().await;
    let service = Service::start(&store).await;
    let id = service.submit("sh", "echo out; echo err >&2").await;
    until(&service.log, &id, &[RESULT_STORED]).await;
    until(&service.log, &id, &["pod_deleted"]).await;
    let history = history_of(&service.log, &id, &[]).await;
    assert_eq!(without_result(history), without_result(WHOLE.map(str::to_owned).to_vec()));
    let saga = service.saga(&id, |saga| saga["state"] == "completed").await;
    let done = ["validate_execution", "allocate_resources", "create_pod", "await_result"];
    assert_eq!(saga["completed_steps"], json!(done), "{saga}");
    assert_eq!(saga["compensated_steps"], json!(["release_resources"]), "84: {saga}");
    is_released(&store, &id).await;
    let commits = service.get(&format!("/v1/aggregates/saga/{}/commits", saga["id"].as_str().expect("an id"))).await;
    assert_eq!(commits["commits"][0]["events"][0]["type"], "saga_started", "{commits}");
    let result = service.get(&format!("/executions/{id}/result")).await;
    assert_eq!(
        (&result["stdout"], &result["stderr"], &result["status"]),
        (&json!("out\n"), &json!("err\n"), &json!("completed"))
    );
    let shown = service.get(&format!("/executions/{id}")).await;
    assert_eq!(
        (&shown["status"], &shown["exit_code"], &shown["user_id"]),
        (&json!("completed"), &json!(0), &json!("demo"))
    );
    let queue = service.until("a free queue", &format!("/v1/queues/{QUEUE}"), |queue| queue["active"] == 0).await;
    assert_eq!(queue["pending"]["normal"], 0, "{queue}");
    let told =
        service.until("the notification", "/v1/log?types=notification_created", |page| page["events"][0].is_object());
    assert_eq!(told.await["events"][0]["data"]["user_id"], "demo");
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_pod_event_is_emitted() {
    let store = memory().await;
    let service = Service::start(&store).await;
    let (good, bad) = (service.submit("sh", "exit 0").await, service.submit("sh", "exit 3").await);
    let mut seen = Vec::new();
    for id in [&good, &bad] {
        until(&service.log, id, &["pod_deleted"]).await;
        seen.extend(history_of(&service.log, id, &POD).await);
    }
    assert!(POD.iter().all(|pod| seen.iter().any(|it| it == pod)), "{seen:?}");
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn statements_29_and_80_a_repeated_request_is_one_execution_with_one_saga() {
    let store = memory().await;
    let service = Service::start(&store).await;
    let submit = async |key: &str, user: &str, script: &str| {
        let request = reqwest::Client::new().post(service.url("/executions")).header("idempotency-key", key);
        let request = request.header("x-user", user).json(&json!({ "language": "sh", "script": script }));
        let answer = request.send().await.expect("answers");
        (answer.status().as_u16(), answer.json::<Value>().await.expect("JSON"))
    };
    let (status, first) = submit("k-1", "eva", "echo once").await;
    assert_eq!(status, 201);
    let id = first["execution_id"].as_str().expect("an id").to_owned();
    assert_eq!(ended(&service.log, &id).await.event_type, COMPLETED);
    let (status, again) = submit("k-1", "eva", "echo once").await;
    assert_eq!((status, &again["execution_id"], &again["duplicate"]), (200, &first["execution_id"], &json!(true)));
    let (status, other) = submit("k-1", "eva", "echo other").await;
    assert_eq!((status, &other["code"]), (409, &json!("request_id_reused")));
    let (_, of_another) = submit("k-1", "max", "echo once").await;
    assert_ne!(of_another["execution_id"], first["execution_id"], "a key is of its user");
    assert_eq!(history(&service.log, &id).await, [REQUESTED, STARTED, COMPLETED]);
    assert_eq!(history_of(&service.log, &id, &[CREATE_POD]).await.len(), 1);
    service.stop().await;
}

/// A request that did not come through the API of the service.
fn request(id: &str, script: &str, timeout: i64) -> NewCommit {
    let data = json!({
        "execution_id": id, "script": script, "language": "sh", "language_version": "any", "timeout_seconds": timeout,
        "runtime_image": "local", "runtime_command": ["sh"], "runtime_filename": "main.sh",
        "cpu_limit": "1", "memory_limit": "128Mi", "cpu_request": "1", "memory_request": "128Mi"
    });
    let event = NewEvent::new(REQUESTED, Data::from_value(&data).expect("an object"));
    NewCommit::new(AGGREGATE, id).event(event)
}

#[tokio::test(flavor = "multi_thread")]
async fn statement_81_a_request_over_the_limits_of_the_saga_fails_and_holds_nothing() {
    let store = memory().await;
    let service = Service::start(&store).await;
    for (id, script, timeout) in [("slow", "echo".to_owned(), 301), ("long", "x".repeat(1024 * 1024 + 1), 10)] {
        service.log.commit(request(id, &script, timeout)).await.expect("taken");
        let end = ended(&service.log, id).await;
        assert_eq!(end.event_type, FAILED, "{end:?}");
        let saga = service.saga(id, |saga| saga["state"] == "failed").await;
        assert_eq!((&saga["completed_steps"], &saga["compensated_steps"]), (&json!([]), &json!([])), "{saga}");
        assert!(!saga["cause"].as_str().expect("a cause").is_empty());
    }
    assert_eq!(service.get(&format!("/v1/queues/{QUEUE}")).await["active"], 0);
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn statement_82_a_refused_create_pod_command_fails_the_execution_with_its_cause_and_frees_its_slot() {
    /// As the definition of the saga has it.
    const ATTEMPTS: usize = 10;
    let store = memory().await;
    let clock = Arc::new(Standing::at_present());
    let tasks = Arc::clone(&clock);
    // No pod is asked for, so that nobody is to run one.
    let service = Service::start_with(&store, move |settings| {
        settings.roles.remove(&Role::Worker);
        settings.tasks.clock = tasks;
    });
    let service = service.await;
    let (id, saga) = ("refused", saga_id(SAGA, "refused"));
    // The request id of each attempt is taken, so the log refuses the command each time.
    for attempt in 1..=ATTEMPTS {
        let data = Data::from_value(&json!({ "attempt": attempt })).expect("an object");
        let taken = NewCommit::new(AGGREGATE, id).event(NewEvent::new("request_id_taken", data));
        let taken = taken.request_id(format!("saga/{saga}/create_pod/action/{attempt}/0"));
        service.log.commit(taken).await.expect("taken");
    }
    service.log.commit(request(id, "echo never", 10)).await.expect("taken");
    let path = format!("/v1/sagas/{saga}");
    let passing = |_: u16, saga: &Value| {
        // It pauses before each further attempt.
        if saga["due"].is_string() {
            clock.advance(std::time::Duration::from_secs(1));
        }
        saga["state"] == "failed"
    };
    service.until_answered("the end of the saga", &path, passing).await;
    let shown = service.get(&path).await;
    assert_eq!(shown["completed_steps"], json!(["validate_execution", "allocate_resources"]), "{shown}");
    assert_eq!(shown["compensated_steps"], json!(["release_resources"]), "{shown}");
    assert_eq!(shown["retry_count"], ATTEMPTS - 1, "{shown}");
    let record = stored(&store, SAGAS, &saga).await;
    let cause = record.get_str("error_message").expect("a cause");
    assert!(cause.starts_with("create_pod_command was refused: request id"), "{cause}");
    is_released(&store, id).await;
    let end = ended(&service.log, id).await;
    assert_eq!((end.event_type.as_str(), end.text("error_type"), end.text("reason")), (FAILED, "system_error", cause));
    let shown = service.get(&format!("/executions/{id}")).await;
    assert_eq!(shown["status"], "failed", "{shown}");
    assert!(history_of(&service.log, id, &[CREATE_POD]).await.is_empty());
    service.until("a free slot", &format!("/v1/queues/{QUEUE}"), |queue| queue["active"] == 0).await;
    service.stop().await;
}

/// The insertion of an active allocation.
fn allocation(id: &str) -> RecordChange {
    let document = doc! {
        "_id": id, "allocation_id": id, "execution_id": id, "language": "sh", "cpu_request": "1", "memory_request": "1",
        "cpu_limit": "1", "memory_limit": "1", "status": "active", "allocated_at": annals::bson::DateTime::from_millis(0),
        "released_at": null,
    };
    let document = annals::bson::serialize_to_raw_document_buf(&document).expect("a document");
    RecordChange::insert("resource_allocations", document)
}

#[tokio::test(flavor = "multi_thread")]
async fn statement_83_beyond_100_allocations_of_a_language_an_execution_fails() {
    let store = memory().await;
    let service = Service::start(&store).await;
    let records = store.records(DEFAULT_TENANT).expect("always there");
    records.write((0..100).map(|n| allocation(&format!("held-{n}"))).collect()).await.expect("written");
    let end = service.result_of("sh", "echo never").await;
    assert_eq!((end.event_type.as_str(), end.text("error_type")), (FAILED, "resource_limit"), "{end:?}");
    assert_eq!(service.result_of("bash", "echo other languages run").await.event_type, COMPLETED);
    service.until("free slots", &format!("/v1/queues/{QUEUE}"), |queue| queue["active"] == 0).await;
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn statement_85_a_cancelled_saga_deletes_the_pod_and_a_second_cancel_is_refused() {
    let store = memory().await;
    let service = Service::start(&store).await;
    let marker = marker();
    let id = service
        .submit_with(json!({ "language": "sh", "script": format!("exec sleep {marker}"), "timeout_seconds": 60 }))
        .await;
    until_running(&marker, 1).await;
    let saga = service.saga(&id, |saga| saga["current_step"] == "await_result").await;
    let path = format!("/v1/sagas/{}/cancel", saga["id"].as_str().expect("an id"));
    let cancel =
        async || service.call("demo", Method::POST, &path, Some(&json!({ "reason": "no longer wanted" }))).await;
    assert_eq!(cancel().await.0, 200);
    until_running(&marker, 0).await;
    let saga = service.saga(&id, |saga| saga["state"] == "cancelled").await;
    assert_eq!(saga["compensated_steps"], json!(["delete_pod", "release_resources"]), "{saga}");
    assert_eq!(cancel().await.0, 409);
    assert_eq!(ended(&service.log, &id).await.event_type, CANCELLED);
    let told = service.get("/v1/log?types=saga_cancelled,delete_pod_command").await;
    assert_eq!(told["events"].as_array().map(Vec::len), Some(2), "{told}");
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn statement_86_a_cancelled_execution_is_compensated_the_same_way_wherever_it_is() {
    let store = memory().await;
    let service = Service::start_with(&store, |settings| settings.at_once = 1).await;
    let marker = marker();
    let body = json!({ "language": "sh", "script": format!("exec sleep {marker}"), "timeout_seconds": 60 });
    let running = service.submit_with(body).await;
    // Which of two enters the queue first is open, so the other one is submitted when this one runs.
    until_running(&marker, 1).await;
    let waiting = service.submit("sh", "echo never").await;
    until(&service.log, &waiting, &["execution_queued"]).await;
    // As if it had allocated, and the answer of the store had been lost.
    let records = store.records(DEFAULT_TENANT).expect("always there");
    records.write(vec![allocation(&waiting)]).await.expect("written");
    for id in [&waiting, &running] {
        let path = format!("/executions/{id}/cancel");
        let (status, answer) =
            service.call("demo", Method::POST, &path, Some(&json!({ "reason": "changed my mind" }))).await;
        assert_eq!((status, &answer["status"]), (202, &json!("cancelled")), "{answer}");
        let (status, answer) = service.call("demo", Method::POST, &path, None).await;
        assert_eq!((status, &answer["code"], &answer["state"]), (409, &json!("state_conflict"), &json!("cancelled")));
    }
    until_running(&marker, 0).await;
    let saga = service.saga(&running, |saga| saga["state"] == "cancelled").await;
    assert_eq!(saga["compensated_steps"], json!(["delete_pod", "release_resources"]), "{saga}");
    service.saga(&waiting, |saga| saga["state"] == "cancelled").await;
    for id in [&waiting, &running] {
        until_released(&store, id).await;
    }
    until(&service.log, &running, &["pod_deleted"]).await;
    assert_eq!(history(&service.log, &running).await, [REQUESTED, STARTED, CANCELLED]);
    assert_eq!(history(&service.log, &waiting).await, [REQUESTED, CANCELLED]);
    assert_eq!(history_of(&service.log, &running, &[DELETE_POD]).await.len(), 1);
    assert_eq!(service.result_of("sh", "echo the slot is free").await.event_type, COMPLETED);
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn statement_87_an_execution_of_301_seconds_times_out_is_compensated_and_frees_its_slot() {
    let store = memory().await;
    let clock = Arc::new(Standing::at_present());
    let tasks = Arc::clone(&clock);
    // Nobody runs the pod.
    let service = Service::start_with(&store, move |settings| {
        settings.roles.remove(&Role::Worker);
        settings.tasks.clock = tasks;
    });
    let service = service.await;
    let id = service.submit("sh", "echo never").await;
    let saga = service.saga(&id, |saga| saga["current_step"] == "await_result").await;
    assert_eq!(saga["completed_steps"], json!(["validate_execution", "allocate_resources", "create_pod"]), "{saga}");
    clock.advance(std::time::Duration::from_secs(301));
    let saga = service.saga(&id, |saga| saga["state"] == "timeout").await;
    assert_eq!(saga["compensated_steps"], json!(["delete_pod", "release_resources"]), "{saga}");
    assert_eq!(ended(&service.log, &id).await.event_type, TIMEOUT);
    service.until("a free slot", &format!("/v1/queues/{QUEUE}"), |queue| queue["active"] == 0).await;
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn statement_90_critical_executions_run_before_those_that_were_submitted_earlier() {
    let store = memory().await;
    let service = Service::start_with(&store, |settings| settings.at_once = 1).await;
    let marker = marker();
    let gate = format!("until [ -e /tmp/{marker} ]; do sleep 0.01; done; rm /tmp/{marker}");
    let first = service.submit_with(json!({ "language": "sh", "script": gate, "timeout_seconds": 60 })).await;
    started(&service.log, &first).await;
    let mut ids = Vec::new();
    for priority in ["background", "normal", "critical"] {
        let id = service.submit_with(json!({ "language": "sh", "script": "echo", "priority": priority })).await;
        until(&service.log, &id, &["execution_queued"]).await;
        ids.push(id);
    }
    std::fs::write(format!("/tmp/{marker}"), "").expect("can be written");
    let mut order = Vec::new();
    for id in &ids {
        order.push((started(&service.log, id).await, id));
    }
    order.sort();
    let order: Vec<_> = order.into_iter().map(|(_, id)| id).collect();
    assert_eq!(order, [&ids[2], &ids[1], &ids[0]]);
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn statement_95_a_user_with_too_many_waiting_executions_is_refused_with_the_limit_and_others_are_not() {
    let store = memory().await;
    let service = Service::start_with(&store, |settings| settings.at_once = 1).await;
    let limited = json!({ "cap": 1, "pending_max_per_user": 1 });
    let (status, answer) = service.call("admin", Method::PUT, &format!("/v1/queues/{QUEUE}"), Some(&limited)).await;
    assert_eq!(status, 200, "{answer}");
    let submit = async |user: &str, script: &str| {
        let body = json!({ "language": "sh", "script": script, "timeout_seconds": 60 });
        let (status, answer) = service.call(user, Method::POST, "/executions", Some(&body)).await;
        assert_eq!(status, 201, "{answer}");
        answer["execution_id"].as_str().expect("an id").to_owned()
    };
    let marker = marker();
    let running = submit("max", &format!("until [ -e /tmp/{marker} ]; do sleep 0.01; done; rm /tmp/{marker}")).await;
    started(&service.log, &running).await;
    let first = submit("eva", "echo first").await;
    until(&service.log, &first, &["execution_queued"]).await;
    let end = ended(&service.log, &submit("eva", "echo second").await).await;
    assert_eq!((end.event_type.as_str(), end.text("error_type")), (FAILED, "resource_limit"), "{end:?}");
    assert!(end.text("reason").contains("user \"eva\" has 1 pending items; at most 1"), "{end:?}");
    let other = submit("max", "echo other").await;
    until(&service.log, &other, &["execution_queued"]).await;
    std::fs::write(format!("/tmp/{marker}"), "").expect("can be written");
    for id in [&running, &first, &other] {
        assert_eq!(ended(&service.log, id).await.event_type, COMPLETED);
    }
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_execution_is_listed_for_its_owner_and_run_again_only_once_it_is_over() {
    let store = memory().await;
    let service = Service::start(&store).await;
    let marker = marker();
    let body = json!({ "language": "sh", "script": format!("exec sleep {marker}"), "timeout_seconds": 60 });
    let (status, submitted) = service.call("eva", Method::POST, "/executions", Some(&body)).await;
    assert_eq!(status, 201);
    let id = submitted["execution_id"].as_str().expect("an id").to_owned();
    until_running(&marker, 1).await;
    let retry = format!("/executions/{id}/retry");
    let (status, answer) = service.call("eva", Method::POST, &retry, None).await;
    assert_eq!((status, &answer["state"]), (409, &json!("running")), "{answer}");
    let (status, answer) = service.call("eva", Method::GET, &format!("/executions/{id}/result"), None).await;
    assert_eq!((status, &answer["code"]), (409, &json!(Code::StateConflict.as_str())), "{answer}");
    assert_eq!(service.call("max", Method::GET, &format!("/executions/{id}"), None).await.0, 403);
    assert_eq!(service.call("max", Method::POST, &format!("/executions/{id}/cancel"), None).await.0, 403);
    assert_eq!(service.call("max", Method::GET, "/executions/nothing", None).await.0, 404);
    assert_eq!(service.call("admin", Method::POST, &format!("/executions/{id}/cancel"), None).await.0, 202);
    let again = async || {
        let request = reqwest::Client::new().post(service.url(&retry)).header("x-user", "eva");
        let answer = request.header("idempotency-key", "again").send().await.expect("answers");
        (answer.status().as_u16(), answer.json::<Value>().await.expect("JSON"))
    };
    let (status, first) = again().await;
    assert_eq!(status, 201, "{first}");
    let (status, repeated) = again().await;
    assert_eq!((status, &repeated["execution_id"]), (200, &first["execution_id"]), "the same retry is one execution");
    let other = first["execution_id"].as_str().expect("an id").to_owned();
    assert_ne!(other, id);
    started(&service.log, &other).await;
    service.call("eva", Method::POST, &format!("/executions/{other}/cancel"), None).await;
    let listed = async |user: &str, more: &str| {
        let path = format!("/executions?status=cancelled&{more}");
        let (status, page) = service.call(user, Method::GET, &path, None).await;
        assert_eq!(status, 200, "{page}");
        let items = page["items"].as_array().expect("items").iter();
        let ids: Vec<_> = items.map(|it| it["execution_id"].as_str().expect("an id").to_owned()).collect();
        (ids, page["cursor"].as_str().map(str::to_owned))
    };
    let mut looked = tokio::time::interval(std::time::Duration::from_millis(20));
    crate::service::within("the list", async {
        while listed("eva", "limit=10").await.0.len() != 2 {
            looked.tick().await;
        }
    })
    .await;
    for (user, more, count) in [("max", "", 0), ("admin", "", 2), ("admin", "user=eva", 2), ("admin", "user=max", 0)] {
        assert_eq!(listed(user, &format!("limit=10&{more}")).await.0.len(), count, "{user} {more}");
    }
    assert!(listed("max", "limit=10&user=eva").await.0.is_empty(), "only an administrator may name a user");
    // Page by page, the newest first.
    let (newest, cursor) = listed("eva", "limit=1").await;
    let (oldest, end) = listed("eva", &format!("limit=1&cursor={}", cursor.expect("there is more"))).await;
    assert_eq!((newest, oldest, end), (vec![other], vec![id], None));
    assert_eq!(service.call("eva", Method::GET, "/executions?limit=0", None).await.0, 422);
    assert_eq!(service.call("eva", Method::GET, "/executions?nice=1", None).await.0, 422);
    service.stop().await;
}
