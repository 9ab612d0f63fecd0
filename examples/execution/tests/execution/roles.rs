//! Each role is a process of its own. Here they are services on one store, which they share.

use std::collections::BTreeMap;

use annals_example_execution::{
    COMPLETED, CREATE_POD, DELETE_POD, FAILED, NOTIFICATIONS_GROUP, RESULT_STORED, RESULTS_GROUP, Role, WORKER_GROUP,
};
use reqwest::Method;
use serde_json::{Value, json};

use crate::service::{Service, ended, log_of, until};
use crate::several_processes::shared_memory;

async fn with(store: &std::sync::Arc<dyn annals::Store>, roles: &[Role]) -> Service {
    let roles = roles.iter().copied().collect();
    Service::start_with(store, move |settings| {
        settings.roles = roles;
        settings.lease = std::time::Duration::from_secs(5);
    })
    .await
}

/// The lag of a group, by topic.
fn lags(group: &Value) -> BTreeMap<String, u64> {
    let topics = group["topics"].as_array().expect("topics");
    topics
        .iter()
        .map(|it| (it["topic"].as_str().expect("a name").to_owned(), it["lag"].as_u64().expect("a number")))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn six_processes_of_one_role_each_do_what_one_process_of_all_roles_does() {
    let store = shared_memory().await;
    let mut services = BTreeMap::new();
    for role in Role::ALL {
        services.insert(role, with(&store, &[role]).await);
    }
    let api = &services[&Role::Api];
    let id = api.submit("sh", "echo far away").await;
    until(&api.log, &id, &[RESULT_STORED]).await;
    assert_eq!(ended(&api.log, &id).await.text("stdout"), "far away\n");
    assert_eq!(api.get(&format!("/executions/{id}/result")).await["stdout"], "far away\n");
    let stream = format!("/executions/{id}/stream");
    let (status, _) = api.call("demo", Method::GET, &stream, None).await;
    assert_eq!(status, 404, "the API streams nothing");
    let events = crate::streams::Client::connect(&services[&Role::Sse], "demo", &stream, None).await.rest().await;
    assert_eq!(events[0].data["status"], "completed");
    for (_, service) in services {
        service.crash().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn statement_17_without_a_worker_only_its_two_topics_lag() {
    let store = shared_memory().await;
    let rest = with(&store, &[Role::Api, Role::Saga, Role::Results, Role::Notifications, Role::Sse]).await;
    let worker = with(&store, &[Role::Worker]).await;
    assert_eq!(rest.result_of("sh", "echo once").await.event_type, COMPLETED);
    worker.crash().await;
    // One waits for its pod, one is cancelled, and one is refused, which the other groups hear of.
    let waiting = rest.submit("sh", "echo later").await;
    until(&rest.log, &waiting, &[CREATE_POD]).await;
    let cancelled = rest.submit("sh", "echo never").await;
    until(&rest.log, &cancelled, &[CREATE_POD]).await;
    rest.call("demo", Method::POST, &format!("/executions/{cancelled}/cancel"), None).await;
    until(&rest.log, &cancelled, &[DELETE_POD]).await;
    let refused = rest.submit("sh", "echo refused").await;
    rest.call("demo", Method::POST, &format!("/executions/{refused}/cancel"), None).await;
    let log = log_of(&store);
    let event = annals::NewEvent::new(
        FAILED,
        annals::Data::from_value(&json!({ "execution_id": "odd", "error_type": "system_error" })).expect("an object"),
    );
    log.commit(annals::NewCommit::new("execution", "odd").event(event)).await.expect("taken");
    until(&log, "odd", &[RESULT_STORED]).await;
    for group in [RESULTS_GROUP, NOTIFICATIONS_GROUP] {
        let path = format!("/v1/groups/{group}");
        let shown = rest
            .until(&format!("{group} without a lag"), &path, |group| lags(group).values().all(|lag| *lag == 0))
            .await;
        assert_eq!(lags(&shown).len(), 3);
    }
    rest.until("sagas without a lag", "/v1/saga-definitions/execution_saga", |saga| saga["lag"] == 0).await;
    let group = rest.get(&format!("/v1/groups/{WORKER_GROUP}")).await;
    let lags = lags(&group);
    assert_eq!(lags.keys().collect::<Vec<_>>(), [CREATE_POD, DELETE_POD]);
    assert!(lags[CREATE_POD] >= 2 && lags[DELETE_POD] >= 1, "{group}");
    // It continues where it was.
    let worker = with(&store, &[Role::Worker]).await;
    assert_eq!(ended(&log, &waiting).await.text("stdout"), "later\n");
    rest.until("no lag", &format!("/v1/groups/{WORKER_GROUP}"), |group| group["lag"] == 0).await;
    worker.crash().await;
    rest.crash().await;
}

/// Why there are no others is in docs/execution.md.
#[tokio::test(flavor = "multi_thread")]
async fn the_parts_that_share_work_are_consumer_groups_and_the_sagas_have_a_lag_of_their_own() {
    let store = shared_memory().await;
    let service = with(&store, &Role::ALL).await;
    let listed = service.get("/v1/groups").await;
    let groups = listed["items"].as_array().expect("items");
    let names: Vec<_> = groups.iter().map(|group| group["name"].as_str().expect("a name")).collect();
    assert_eq!(names, [WORKER_GROUP, NOTIFICATIONS_GROUP, RESULTS_GROUP]);
    let saga = service.get("/v1/saga-definitions/execution_saga").await;
    assert!(saga["lag"].is_u64(), "{saga}");
    service.crash().await;
}
