//! `annals demo` as two processes on one MongoDB: the worker, and every other part. They publish to the Kafka of the tests and hold their
//! queue in its Redis, if this program is built with them. The name of this file leaves it out where there is no MongoDB: see
//! CONTRIBUTING.md.

use std::time::Duration;

use annals::{AggregateFilter, Client, EventLog, Filter, LogQuery, limits};
use serde_json::{Value, json};

use crate::demo::Demo;
use crate::run::folder;
use crate::with_mongodb_serve::{Database, server};

/// Far longer than anything here takes on a busy machine.
const LIMIT: Duration = Duration::from_secs(240);
/// How often something is looked at again.
const AGAIN: Duration = Duration::from_millis(20);
/// Programs that end in different ways, each with the event of its end.
const PROGRAMS: [(&str, &str); 2] = [("echo fine", "execution_completed"), ("exit 3", "execution_failed")];

/// Submits a program before those that the demo submits itself, and returns its id. A demo listens before it answers.
async fn submit(address: &str, script: &str) -> String {
    let body = json!({ "language": "sh", "script": script, "timeout_seconds": 60, "priority": "critical" }).to_string();
    let mut again = tokio::time::interval(AGAIN);
    let submitted = async {
        loop {
            again.tick().await;
            let request = reqwest::Client::new().post(format!("{address}/executions"));
            let sent = request.header("content-type", "application/json").body(body.clone()).send().await;
            if let Ok(answer) = sent
                && answer.status() == 201
            {
                let answer = answer.bytes().await.expect("a body");
                let answer: Value = serde_json::from_slice(&answer).expect("JSON");
                return answer["execution_id"].as_str().expect("an id").to_owned();
            }
        }
    };
    tokio::time::timeout(LIMIT, submitted).await.expect("the demo answers in time")
}

fn client(address: &str) -> Client {
    Client::new(address, annals::DEFAULT_TENANT, annals::DEFAULT_SCOPE).expect("an address")
}

/// The types of the events that pass a filter, in order.
async fn types_of(client: &Client, filter: Filter) -> Vec<String> {
    let page = client.read(LogQuery { limit: limits::PAGE_MAX, filter, ..LogQuery::default() }).await.expect("read");
    page.events.iter().map(|event| event.event_type.to_string()).collect()
}

/// Waits until an execution has events of all of these types, and returns its history.
async fn until(client: &Client, id: &str, types: &[&str]) -> Vec<String> {
    let mut again = tokio::time::interval(AGAIN);
    let complete = async {
        loop {
            again.tick().await;
            let aggregate = Some(AggregateFilter { name: "execution".into(), id: Some(id.into()) });
            let history = types_of(client, Filter { aggregate, ..Filter::default() }).await;
            if types.iter().all(|wanted| history.iter().any(|event_type| event_type == wanted)) {
                return history;
            }
        }
    };
    tokio::time::timeout(LIMIT, complete).await.unwrap_or_else(|_| panic!("{types:?} of {id} in time"))
}

/// The whole history of an execution. The result is stored while the pod is deleted, so either may be first, and both are left out.
async fn whole(client: &Client, id: &str) -> Vec<String> {
    let apart = ["result_stored", "pod_deleted"];
    let history = until(client, id, &apart).await;
    history.into_iter().filter(|event_type| !apart.contains(&event_type.as_str())).collect()
}

/// What every part in one process makes of the programs, on the embedded defaults.
async fn expected(address: &str) -> Vec<Vec<String>> {
    let client = client(address);
    let mut histories = Vec::new();
    for (script, end) in PROGRAMS {
        let history = whole(&client, &submit(address, script).await).await;
        assert!(history.iter().any(|event_type| event_type == end), "{history:?}");
        histories.push(history);
    }
    histories
}

/// The options of the services beside MongoDB.
fn beside() -> Vec<String> {
    let mut options = Vec::new();
    if let Some(kafka) = kafka() {
        options.extend(["--broker".to_owned(), format!("kafka://{kafka}")]);
    }
    if cfg!(feature = "redis")
        && let Ok(redis) = std::env::var("ANNALS_TEST_REDIS")
    {
        options.extend(["--queue".to_owned(), redis]);
    }
    options
}

/// `host:port` of the Kafka.
fn kafka() -> Option<String> {
    if cfg!(feature = "kafka") { std::env::var("ANNALS_TEST_KAFKA").ok() } else { None }
}

/// Whether the worker's group follows the log. With a Kafka, it is known only there.
async fn follows_the_log(address: &str) -> bool {
    let group = reqwest::get(format!("{address}/v1/groups/k8s-worker")).await.expect("answers");
    assert!([200, 404].contains(&group.status().as_u16()), "{group:?}");
    group.status().is_success()
}

#[test]
fn a_worker_that_is_a_process_of_its_own_gives_the_histories_of_the_demo_in_one_process() {
    let (folder, database) = (folder(), Database::new());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("a runtime");
    let mut alone = Demo::start(folder.path(), &[]);
    let address = alone.address();
    let expected = runtime.block_on(expected(&address));
    alone.stop("TERM");

    let url = format!("mongodb://{}/{}?directConnection=true", server(), database.0);
    let beside = beside();
    let with = |roles: &[&str]| {
        let mut arguments = vec!["--store", url.as_str()];
        arguments.extend(beside.iter().map(String::as_str));
        arguments.extend(roles.iter().flat_map(|role| ["--role", *role]));
        let mut demo = Demo::start(folder.path(), &arguments);
        let address = demo.address();
        demo.wait_for(&format!("This process runs {}.", roles.join(", ")));
        (demo, address)
    };
    let (rest, address) = with(&["api", "saga-orchestrator", "result-processor", "notification-service", "sse-bridge"]);
    let client = client(&address);
    let ids = runtime.block_on(async {
        let mut ids = Vec::new();
        for (script, _) in PROGRAMS {
            let id = submit(&address, script).await;
            until(&client, &id, &["execution_queued"]).await;
            ids.push(id);
        }
        let pods = types_of(&client, Filter { types: vec!["pod_created".into()], ..Filter::default() }).await;
        assert!(pods.is_empty(), "no process is the worker");
        ids
    });
    let (worker, _) = with(&["worker"]);
    for (id, expected) in ids.iter().zip(expected) {
        assert_eq!(runtime.block_on(whole(&client, id)), expected);
    }
    assert_eq!(runtime.block_on(follows_the_log(&address)), kafka().is_none(), "the commands came from Kafka");
    worker.stop("TERM");
    rest.stop("TERM");
}
