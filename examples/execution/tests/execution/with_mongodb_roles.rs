//! Processes of one role each, on MongoDB, with Kafka and Redis beside them, of which two are killed.

use std::collections::BTreeMap;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use annals::queue::{ItemState, QueueDefinition};
use annals::sagas::saga_id;
use annals::{
    AggregateFilter, Broker, ByteString, DEFAULT_TENANT, Data, EventLog, Filter, GroupOffset, LogQuery, Message,
    NewCommit, NewEvent, ReadMessages, Store, TopicPartition, TopicSettings, limits,
};
use annals_example_execution::{
    AGGREGATE, COMPLETED, CREATE_POD, DELETE_POD, FAILED, NOTIFICATIONS_GROUP, QUEUE, RESULT_STORED, RESULTS_GROUP,
    Role, SAGA, STARTED, TIMEOUT, WORKER_GROUP,
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use crate::service::{Service, ended, log_of, memory, until, within};
use crate::streams::Client;
use crate::workflow::without_result;

/// How often Kafka or a process is asked again.
const AGAIN: Duration = Duration::from_millis(20);

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
        let mut again = tokio::time::interval(AGAIN);
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

    async fn cancel(&self, id: &str) {
        let sent = reqwest::Client::new().post(format!("{}/executions/{id}/cancel", self.address)).send();
        assert_eq!(within("the API", sent).await.expect("answers").status(), 202);
    }

    /// Waits until the saga of an execution has ended, and returns its state and the compensations that ran.
    async fn saga_over(&self, id: &str) -> (Value, Value) {
        let mut again = tokio::time::interval(AGAIN);
        within(&format!("the end of the saga of {id}"), async {
            loop {
                again.tick().await;
                let address = format!("{}/v1/sagas/{}", self.address, saga_id(SAGA, id));
                let saga: Value = reqwest::get(address).await.expect("answers").json().await.expect("JSON");
                if !["created", "running", "compensating"].contains(&saga["state"].as_str().expect("a state")) {
                    return (saga["state"].clone(), saga["compensated_steps"].clone());
                }
            }
        })
        .await
    }

    /// kill -9.
    async fn kill(mut self) {
        self.child.kill().await.expect("can be killed");
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

/// The Kafka of a store, with the names of its topics; none if the tests have no Kafka.
fn kafka(store: &str) -> Option<(Arc<dyn Broker>, TopicSettings)> {
    let address = std::env::var("ANNALS_TEST_KAFKA").ok()?;
    let settings = TopicSettings { prefix: prefix_of(store), ..TopicSettings::default() };
    let opened = annals::open_broker(&format!("kafka://{address}"), settings.clone()).expect("a URL of a Kafka");
    Some((opened.expect("Kafka is no embedded broker"), settings))
}

/// The messages of a topic from these offsets on, and of a partition without an offset from its beginning.
async fn messages(broker: &Arc<dyn Broker>, topic: &ByteString, offsets: &[GroupOffset]) -> Vec<Message> {
    let states = broker.topics(Some(std::slice::from_ref(topic))).await.expect("Kafka answers");
    let mut found = Vec::new();
    for partition in 0..states.first().map_or(0, |state| state.partitions()) {
        let at = TopicPartition { topic: topic.clone(), partition };
        let from = offsets.iter().find(|offset| offset.at == at).map_or(0, |offset| offset.offset);
        let page = broker.read(ReadMessages { at, from, limit: 1_000 }).await.expect("a page");
        found.extend(page.messages);
    }
    found
}

/// Waits until Kafka, if there is one, has a message of an aggregate on the topic of each of these types.
async fn published(store: &str, id: &str, types: &[&str]) {
    let Some((broker, settings)) = kafka(store) else { return };
    let mut again = tokio::time::interval(AGAIN);
    for event_type in types {
        let topic = settings.topic_of(event_type);
        within(&format!("a message of {id} on {topic}"), async {
            let is_of = |message: &Message| message.key.as_deref() == Some(id.as_bytes());
            while !messages(&broker, &topic, &[]).await.iter().any(is_of) {
                again.tick().await;
            }
        })
        .await;
    }
}

/// Checks that on Kafka, if there is one, the worker has not consumed what was published last to its two topics, and waits until the
/// other groups have consumed everything.
async fn only_the_worker_lags(store: &str) {
    let Some((broker, settings)) = kafka(store) else { return };
    let left = async |group: &str, event_type: &str| {
        let offsets = broker.group_offsets(&settings.topic_of(group)).await.expect("Kafka answers");
        messages(&broker, &settings.topic_of(event_type), &offsets).await.len()
    };
    let mut again = tokio::time::interval(AGAIN);
    for group in [RESULTS_GROUP, NOTIFICATIONS_GROUP] {
        for event_type in [COMPLETED, FAILED, TIMEOUT] {
            within(&format!("{group} has consumed {event_type}"), async {
                while left(group, event_type).await > 0 {
                    again.tick().await;
                }
            })
            .await;
        }
    }
    for command in [CREATE_POD, DELETE_POD] {
        assert!(left(WORKER_GROUP, command).await > 0, "nobody consumes {command}");
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

/// Lets an execution fail that nobody requested, so that results and notifications have something to do.
async fn fail_odd(log: &Arc<dyn EventLog>) {
    let data = json!({ "execution_id": "odd", "error_type": "system_error" });
    let event = NewEvent::new(FAILED, Data::from_value(&data).expect("an object"));
    log.commit(NewCommit::new(AGGREGATE, "odd").event(event)).await.expect("taken");
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
    for ((body, event_type), expected) in programs().into_iter().zip(&expected) {
        let id = api.submit(&body).await;
        until(&log, &id, &["pod_deleted"]).await;
        until(&log, &id, &[RESULT_STORED]).await;
        assert_eq!(ended(&log, &id).await.event_type, event_type);
        assert_eq!(history(&log, &id).await, *expected);
        published(&url, &id, &[CREATE_POD, STARTED, event_type]).await;
        assert_eq!(api.saga_over(&id).await, (json!("completed"), json!(["release_resources"])));
        published(&url, &saga_id(SAGA, &id), &["saga_started", "saga_completed"]).await;
    }

    // The worker is killed while a program runs. One execution is cancelled meanwhile, and one waits for its pod.
    let endless = json!({ "language": "sh", "script": "while :; do :; done", "timeout_seconds": 60 });
    let running = api.submit(&endless).await;
    until(&log, &running, &[STARTED]).await;
    holds_its_slot(&store, &running).await;
    processes.remove(&Role::Worker).expect("was started").kill().await;
    let cancelled = api.submit(&json!({ "language": "sh", "script": "echo never" })).await;
    until(&log, &cancelled, &[CREATE_POD]).await;
    api.cancel(&cancelled).await;
    let undone = (json!("cancelled"), json!(["delete_pod", "release_resources"]));
    assert_eq!(api.saga_over(&cancelled).await, undone);
    let [(fine, _), ..] = programs();
    let waiting = api.submit(&fine).await;
    until(&log, &waiting, &[CREATE_POD]).await;
    fail_odd(&log).await;
    until(&log, "odd", &[RESULT_STORED]).await;
    published(&url, &cancelled, &[CREATE_POD, DELETE_POD]).await;
    let told = ["saga_compensating", "saga_compensated", "saga_cancelled"];
    published(&url, &saga_id(SAGA, &cancelled), &told).await;
    published(&url, &waiting, &[CREATE_POD]).await;
    published(&url, "odd", &[FAILED]).await;
    only_the_worker_lags(&url).await;

    // The process of the sagas is killed as well. Others take over: the program that ran is ended, and the execution that waited has the
    // history that it would have had.
    processes.remove(&Role::Saga).expect("was started").kill().await;
    let stream = format!("{}/executions/{waiting}/stream", processes[&Role::Sse].address);
    let mut browser = Client::at(&stream, "demo", None).await;
    let status = browser.next().await.expect("a status");
    assert_eq!((status.name.as_str(), &status.data["status"]), ("status", &json!("scheduled")), "{status:?}");
    for role in [Role::Saga, Role::Worker] {
        processes.insert(role, Process::start(role, &url).await);
    }
    assert_eq!(ended(&log, &running).await.text("reason"), "interrupted");
    until(&log, &waiting, &["pod_deleted"]).await;
    assert_eq!(history(&log, &waiting).await, expected[0]);
    assert_eq!(api.saga_over(&waiting).await, (json!("completed"), json!(["release_resources"])));
    let events = browser.rest().await;
    let last = events.last().expect("an end");
    assert_eq!((last.name.as_str(), &last.data["result"]["stdout"]), (RESULT_STORED, &json!("fine\n")), "{events:?}");
    let late = Client::at(&stream, "demo", None).await.rest().await;
    assert_eq!((late.len(), &late[0].data["status"]), (1, &json!("completed")), "{late:?}");

    processes.insert(Role::Api, api);
    for process in processes.into_values() {
        process.kill().await;
    }
    store.close().await;
}
