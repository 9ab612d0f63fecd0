//! Processes of one role each, on MongoDB, with Kafka and Redis beside them.

use std::collections::BTreeMap;
use std::process::Stdio;

use annals::queue::{ItemState, QueueDefinition};
use annals::{
    AggregateFilter, DEFAULT_TENANT, EventLog, Filter, LogQuery, ReadMessages, Store, TopicPartition, TopicSettings,
    limits,
};
use annals_example_execution::{COMPLETED, CREATE_POD, FAILED, QUEUE, Role, STARTED, TIMEOUT};
use serde_json::{Value, json};
use std::sync::Arc;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use crate::service::{Service, ended, log_of, memory, until, within};
use crate::workflow::without_result;

struct Process {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    address: String,
    _folder: TempDir,
}

impl Process {
    async fn start(role: Role, store: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let mut command = Command::new(env!("CARGO_BIN_EXE_execution-service"));
        command.arg(folder.path()).args(["127.0.0.1:0", role.name()]).kill_on_drop(true);
        command.env("STORE", store).env("NO_SAMPLES", "1").env("LEASE_SECONDS", "4");
        // Topics and groups of this store, not those of another run on the same Kafka.
        command.env("PREFIX", prefix_of(store));
        for (name, service, scheme) in [("QUEUE", "ANNALS_TEST_REDIS", ""), ("BROKER", "ANNALS_TEST_KAFKA", "kafka://")]
        {
            if let Ok(at) = std::env::var(service) {
                command.env(name, format!("{scheme}{at}"));
            }
        }
        let mut child = command.stdout(Stdio::piped()).spawn().expect("starts");
        let lines = BufReader::new(child.stdout.take().expect("is piped")).lines();
        let mut process = Self { child, lines, address: String::new(), _folder: folder };
        process.address = within(&format!("{role} starts"), async {
            loop {
                let line = process.lines.next_line().await.expect("can be read").expect("it goes on");
                if let Some(rest) = line.strip_prefix("Open ") {
                    return rest.split_whitespace().next().expect("an address").trim_end_matches('/').to_owned();
                }
            }
        })
        .await;
        process
    }

    async fn submit(&self, body: &Value) -> String {
        let mut again = tokio::time::interval(std::time::Duration::from_millis(20));
        let answer = within("the API", async {
            loop {
                again.tick().await;
                // It listens before it answers.
                let sent = reqwest::Client::new().post(format!("{}/executions", self.address)).json(body).send().await;
                if let Ok(answer) = sent
                    && answer.status() == 201
                {
                    return answer.json::<Value>().await.expect("JSON");
                }
            }
        });
        answer.await["execution_id"].as_str().expect("an id").to_owned()
    }
}

/// The URL of a store on MongoDB that this run of the tests has for itself.
pub fn mongodb(name: &str) -> String {
    let server = std::env::var("ANNALS_TEST_MONGODB").expect("`cargo xtask services` prints ANNALS_TEST_MONGODB");
    let (place, options) = server.split_once('?').unwrap_or((&server, ""));
    format!("{}/annals_test_{name}_{}?{options}", place.trim_end_matches('/'), std::process::id())
}

/// What begins the names of the topics of a store.
fn prefix_of(store: &str) -> String {
    let database = store.rsplit('/').next().and_then(|name| name.split('?').next()).unwrap_or_default();
    format!("{database}.")
}

/// Waits until Kafka, if there is one, has a message of an execution on the topic of each of these types.
async fn published(store: &str, id: &str, types: &[&str]) {
    let Ok(address) = std::env::var("ANNALS_TEST_KAFKA") else { return };
    let settings = TopicSettings { prefix: prefix_of(store), ..TopicSettings::default() };
    let opened = annals::open_broker(&format!("kafka://{address}"), settings.clone()).expect("a URL of a Kafka");
    let broker = opened.expect("Kafka is no embedded broker");
    let mut again = tokio::time::interval(std::time::Duration::from_millis(20));
    for event_type in types {
        let topic = settings.topic_of(event_type);
        within(&format!("a message of {id} on {topic}"), async {
            loop {
                again.tick().await;
                let states = broker.topics(Some(std::slice::from_ref(&topic))).await.expect("Kafka answers");
                for partition in 0..states.first().map_or(0, |state| state.partitions()) {
                    let at = TopicPartition { topic: topic.clone(), partition };
                    let page = broker.read(ReadMessages { at, from: 0, limit: 1_000 }).await.expect("a page");
                    if page.messages.iter().any(|message| message.key.as_deref() == Some(id.as_bytes())) {
                        return;
                    }
                }
            }
        })
        .await;
    }
}

/// Checks that Redis, if there is one, holds the slot of a running execution.
async fn holds_its_slot(store: &Arc<dyn Store>, id: &str) {
    let Ok(url) = std::env::var("ANNALS_TEST_REDIS") else { return };
    let redis = annals::open_queue(&url).expect("a URL of a Redis").expect("Redis is no embedded queue");
    let store_id = store.identity(DEFAULT_TENANT).expect("always there").store_id;
    let queue = redis.of(store_id, DEFAULT_TENANT);
    let item = queue.item(&QueueDefinition::new(QUEUE), id).await.expect("Redis holds the item");
    assert_eq!(item.state, ItemState::Active, "{item:?}");
}

fn programs() -> [(Value, &'static str); 3] {
    let body = |script: &str, timeout: u64| json!({ "language": "sh", "script": script, "timeout_seconds": timeout });
    [(body("echo fine", 30), COMPLETED), (body("exit 3", 30), FAILED), (body("while :; do :; done", 1), TIMEOUT)]
}

async fn history(log: &Arc<dyn EventLog>, id: &str) -> Vec<String> {
    let aggregate = Some(AggregateFilter { name: "execution".into(), id: Some(id.into()) });
    let query =
        LogQuery { limit: limits::PAGE_MAX, filter: Filter { aggregate, ..Filter::default() }, ..LogQuery::default() };
    let page = log.read(query).await.expect("can be read");
    without_result(page.events.iter().map(|event| event.event_type.to_string()).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn on_mongodb_kafka_and_redis_six_processes_give_the_histories_of_the_embedded_defaults() {
    let store = memory().await;
    let service = Service::start(&store).await;
    let mut expected = Vec::new();
    for (body, event_type) in programs() {
        let id = service.submit_with(body).await;
        until(&service.log, &id, &["pod_deleted"]).await;
        assert_eq!(ended(&service.log, &id).await.event_type, event_type);
        expected.push(history(&service.log, &id).await);
    }
    service.stop().await;

    let url = mongodb("roles");
    let mut processes = BTreeMap::new();
    for role in Role::ALL {
        processes.insert(role, Process::start(role, &url).await);
    }
    let store = annals::open(&url).await.expect("opens");
    let log = log_of(&store);
    let api = processes.remove(&Role::Api).expect("was started");
    let mut worker = processes.remove(&Role::Worker).expect("was started");
    for ((body, event_type), expected) in programs().into_iter().zip(expected) {
        let id = api.submit(&body).await;
        until(&log, &id, &["pod_deleted"]).await;
        until(&log, &id, &["result_stored"]).await;
        assert_eq!(ended(&log, &id).await.event_type, event_type);
        assert_eq!(history(&log, &id).await, expected);
        published(&url, &id, &[CREATE_POD, STARTED, event_type]).await;
    }
    // The worker is killed while a program runs: another one ends it, and continues.
    let endless = json!({ "language": "sh", "script": "while :; do :; done", "timeout_seconds": 60 });
    let running = api.submit(&endless).await;
    until(&log, &running, &[STARTED]).await;
    holds_its_slot(&store, &running).await;
    worker.child.kill().await.expect("can be killed");
    let other = Process::start(Role::Worker, &url).await;
    assert_eq!(ended(&log, &running).await.text("reason"), "interrupted");
    let after = api.submit(&json!({ "language": "sh", "script": "echo continues" })).await;
    assert_eq!(ended(&log, &after).await.text("stdout"), "continues\n");
    processes.extend([(Role::Api, api), (Role::Worker, other)]);
    for process in processes.values_mut() {
        process.child.kill().await.expect("can be killed");
    }
    store.close().await;
}
