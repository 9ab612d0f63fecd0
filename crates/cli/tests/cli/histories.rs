//! The histories of executions that demos in different processes and on different brokers have in common.

use std::time::Duration;

use annals::{AggregateFilter, Client, EventLog, Filter, LogQuery, limits};
use serde_json::{Value, json};

/// Far longer than anything here takes on a busy machine.
pub const LIMIT: Duration = Duration::from_secs(240);
/// How often something is looked at again.
pub const AGAIN: Duration = Duration::from_millis(20);
/// Programs that end in different ways, each with the event of its end.
pub const PROGRAMS: [(&str, &str); 2] = [("echo fine", "execution_completed"), ("exit 3", "execution_failed")];

/// Submits a program before those that the demo submits itself, and returns its id. A demo listens before it answers.
pub async fn submit(address: &str, script: &str) -> String {
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

pub fn client(address: &str) -> Client {
    Client::new(address, annals::DEFAULT_TENANT, annals::DEFAULT_SCOPE).expect("an address")
}

/// The types of the events that pass a filter, in order.
pub async fn types_of(client: &Client, filter: Filter) -> Vec<String> {
    let page = client.read(LogQuery { limit: limits::PAGE_MAX, filter, ..LogQuery::default() }).await.expect("read");
    page.events.iter().map(|event| event.event_type.to_string()).collect()
}

/// Waits until an execution has events of all of these types, and returns its history.
pub async fn until(client: &Client, id: &str, types: &[&str]) -> Vec<String> {
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
pub async fn whole(client: &Client, id: &str) -> Vec<String> {
    let apart = ["result_stored", "pod_deleted"];
    let history = until(client, id, &apart).await;
    history.into_iter().filter(|event_type| !apart.contains(&event_type.as_str())).collect()
}

/// What every part in one process makes of the programs, on the embedded defaults.
pub async fn expected(address: &str) -> Vec<Vec<String>> {
    let client = client(address);
    let mut histories = Vec::new();
    for (script, end) in PROGRAMS {
        let history = whole(&client, &submit(address, script).await).await;
        assert!(history.iter().any(|event_type| event_type == end), "{history:?}");
        histories.push(history);
    }
    histories
}
