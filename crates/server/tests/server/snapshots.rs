//! `/v1/snapshots/…`: saved, loaded and deleted by clients in any language.

use annals_core::Code;
use reqwest::Method;
use serde_json::{Value, json};

use crate::running::{Answer, Running};

const ORDER: &str = "/v1/snapshots/order/o-1";

impl Running {
    async fn bare(&self, method: Method, path: &str) -> Answer {
        self.send(self.request(method, path)).await
    }
}

/// Commits until the order is at this version.
async fn reach(server: &Running, version: u64) {
    let at = async || server.get("/v1/aggregates/order/o-1/commits?last=true").await.json()["version"].as_u64();
    while at().await < Some(version) {
        server.commit_orders("o-1", 1).await;
    }
}

/// Saves a snapshot of a version that the order has reached.
async fn saved(server: &Running, snapshot: Value) -> Value {
    reach(server, snapshot["version"].as_u64().expect("a number")).await;
    server.put(ORDER, &snapshot).await.json()["saved"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_is_saved_unless_a_higher_version_is_there() {
    let server = Running::start().await;
    server.bare(Method::GET, ORDER).await.problem(Code::UnknownSnapshot);
    assert_eq!(saved(&server, json!({"version": 3, "state": {"status": "paid"}})).await, json!(true));
    assert_eq!(saved(&server, json!({"version": 2, "state": {"status": "placed"}})).await, json!(false));
    let full = json!({
        "version": 3, "state": {"status": "shipped", "lines": [1, 2.5, null]}, "deleted": true, "tenantId": "t",
        "ownerId": "eva", "spaceId": "s", "eventId": "e", "firstOperator": "a", "operator": "b", "firstEventTime": 1,
        "eventTime": 2, "snapshotTime": 3, "tags": {"region": ["eu"]}, "stateRevision": 2,
    });
    assert_eq!(saved(&server, full.clone()).await, json!(true));
    let loaded = server.bare(Method::GET, ORDER).await.json();
    let mut expected = full;
    expected["aggregateName"] = json!("order");
    expected["aggregateId"] = json!("o-1");
    assert_eq!(loaded, expected);
    // What was loaded can be saved again.
    assert_eq!(saved(&server, loaded).await, json!(true));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_ahead_of_its_log_is_refused_and_the_next_correct_one_is_saved() {
    let server = Running::start().await;
    let ahead = async |version: u64| {
        let problem = server.put(ORDER, &json!({"version": version, "state": {}})).await.problem(Code::SnapshotAhead);
        assert_eq!(problem["path"], "version");
        problem["detail"].as_str().expect("a sentence").to_owned()
    };
    assert!(ahead(1).await.contains("order/o-1") && ahead(1).await.contains("the aggregate's is 0"));
    server.bare(Method::GET, ORDER).await.problem(Code::UnknownSnapshot);
    reach(&server, 2).await;
    assert!(ahead(3).await.contains("the aggregate's is 2"));
    ahead(i32::MAX as u64).await;
    assert_eq!(server.put(ORDER, &json!({"version": 2, "state": {}})).await.json(), json!({"saved": true}));
    // Another aggregate's commits say nothing of this one.
    server.put("/v1/snapshots/order/o-2", &json!({"version": 1, "state": {}})).await.problem(Code::SnapshotAhead);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_is_deleted_if_it_is_of_the_version_that_is_named() {
    let server = Running::start().await;
    assert_eq!(server.bare(Method::DELETE, ORDER).await.json(), json!({"deleted": false}));
    saved(&server, json!({"version": 3, "state": {}})).await;
    let of_2 = format!("{ORDER}?version=2");
    assert_eq!(server.bare(Method::DELETE, &of_2).await.json(), json!({"deleted": false}));
    assert_eq!(server.bare(Method::DELETE, ORDER).await.json(), json!({"deleted": true}));
    server.bare(Method::GET, ORDER).await.problem(Code::UnknownSnapshot);
}

#[tokio::test(flavor = "multi_thread")]
async fn snapshots_are_found_as_records_by_the_indexes_that_are_declared() {
    let server = Running::start().await;
    let index = json!({"indexes": [{"fields": [{"field": "state.status"}]}, {"fields": [{"field": "spaceId"}], "hashed": true}]});
    let declared = server.put("/v1/snapshots/order", &index).await.json();
    let names: Vec<_> = declared["indexes"].as_array().expect("indexes").iter().map(|index| &index["name"]).collect();
    assert_eq!(names, ["state.status_1", "spaceId_hashed"]);
    saved(&server, json!({"version": 1, "state": {"status": "paid"}})).await;
    let collection = "/v1/records/collections/order_snapshot";
    assert_eq!(server.bare(Method::GET, collection).await.json()["indexes"].as_array().map(Vec::len), Some(6));
    let query = json!({"condition": {"field": "state.status", "operator": "EQ", "value": "paid"}});
    let found = server.ask(&format!("{collection}/find"), &query).await.json();
    assert_eq!(found["records"][0]["document"]["_id"], json!("o-1"));
    assert_eq!(found["records"][0]["document"]["contextName"], json!("annals"));
    // From outside it is written to here only.
    server.put(collection, &json!({"indexes": []})).await.problem(Code::SystemCollection);
}

#[tokio::test(flavor = "multi_thread")]
async fn snapshots_are_found_by_the_words_of_a_text_index() {
    let server = Running::start().await;
    saved(&server, json!({"version": 1, "state": {"title": "Black coffee, two sugars", "notes": ["to the café"]}}))
        .await;
    let words = |search: &str| json!({"condition": {"operator": "MATCH", "value": search}, "limit": 5});
    let list = "/v1/query/order/snapshots/list";
    server.ask(list, &words("coffee")).await.problem(Code::NoTextIndex);
    let fields = json!([{"field": "state.title"}, {"field": "state.notes"}]);
    let index = json!({"indexes": [{"fields": fields, "text": true}]});
    let declared = server.put("/v1/snapshots/order", &index).await.json();
    assert_eq!(declared["indexes"][0]["name"], json!("state.title_text_state.notes_text"));
    assert_eq!(declared["indexes"][0]["text"], json!(true));
    for (search, count) in [("Coffee", 1), ("cafe -tea", 1), ("\"two sugars\"", 1), ("sugar", 0), ("coffee -café", 0)]
    {
        let found = server.ask(list, &words(search)).await.json();
        assert_eq!(found.as_array().map(Vec::len), Some(count), "{search}");
    }
    let other = json!({"indexes": [{"fields": [{"field": "state.title"}], "text": true}]});
    server.put("/v1/snapshots/order", &other).await.problem(Code::IndexConflict);
    let of_one = json!([{"operator": "AGGREGATE_ID", "value": "o-1"}, {"operator": "MATCH", "value": "coffee"}]);
    let commits = json!({"condition": {"operator": "AND", "children": of_one}, "limit": 5});
    server.ask("/v1/query/order/commits/list", &commits).await.problem(Code::NoTextIndex);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_a_snapshot_is_refused_with_its_place() {
    let server = Running::start().await;
    for (body, code, path) in [
        (json!({"state": {}}), Code::InvalidBody, "version"),
        (json!({"version": 1}), Code::InvalidBody, "state"),
        (json!({"version": 1, "state": 5}), Code::InvalidData, "state"),
        (json!({"version": 1, "state": []}), Code::InvalidData, "state"),
        (json!({"version": 2_147_483_648_u64, "state": {}}), Code::InvalidBody, "version"),
        (json!({"version": 1, "state": {}, "status": "paid"}), Code::InvalidBody, "status"),
        (json!({"version": 1, "state": {}, "aggregateId": "o-2"}), Code::InvalidBody, "aggregateId"),
    ] {
        assert_eq!(server.put(ORDER, &body).await.problem(code)["path"], path, "{body}");
    }
    let plain = json!({"version": 1, "state": {}});
    let long = format!("/v1/snapshots/{}/o-1", "n".repeat(92));
    server.put(&long, &plain).await.problem(Code::InvalidName);
    server.bare(Method::GET, &long).await.problem(Code::InvalidName);
    server.bare(Method::GET, &format!("{ORDER}?x=1")).await.problem(Code::InvalidQuery);
    server.bare(Method::POST, ORDER).await.problem(Code::MethodNotAllowed);
}

/// A commit of an order that waits for its snapshot.
fn waiting(id: &str, timeout_ms: u64) -> Value {
    json!({"aggregate": {"name": "order", "id": id}, "events": [{"type": "placed", "data": {}}],
           "wait": {"for": "snapshot", "timeout_ms": timeout_ms}})
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_is_answered_when_its_snapshot_has_reached_it() {
    let server = Running::start().await;
    let saving = async {
        // Who makes snapshots follows the log; a snapshot of the version before is not enough.
        while server.head().await == 0 {
            tokio::task::yield_now().await;
        }
        server.put(ORDER, &json!({"version": 0, "state": {}})).await;
        assert_eq!(saved(&server, json!({"version": 1, "state": {"status": "placed"}})).await, json!(true));
    };
    let commit = waiting("o-1", 50_000);
    let (answer, ()) = tokio::join!(server.ask("/v1/commits", &commit), saving);
    assert_eq!(answer.status, 201);
    assert_eq!(answer.json()["reached"], json!("snapshot"));
    // Who waits in vain is told how far it came, and the commit stands.
    let answer = server.ask("/v1/commits", &waiting("o-1", 0)).await.json();
    assert_eq!((&answer["reached"], &answer["version"]), (&json!("logged"), &json!(2)));
    server.ask("/v1/commits", &waiting("o-1", 50_001)).await.problem(Code::InvalidWait);
    assert_eq!(server.head().await, 2);
    let part = |id: &str| json!({"aggregate": {"name": "order", "id": id}, "events": [{"type": "placed", "data": {}}]});
    let both = json!({"commits": [part("a"), part("b")], "wait": {"for": "snapshot"}});
    assert_eq!(server.ask("/v1/transactions", &both).await.problem(Code::InvalidWait)["path"], "wait.for");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_of_a_later_version_is_waited_for() {
    let server = Running::start().await;
    server.bare(Method::GET, &format!("{ORDER}?past=0&timeout_ms=0")).await.problem(Code::UnknownSnapshot);
    let saving = async { saved(&server, json!({"version": 3, "state": {}})).await };
    let path = format!("{ORDER}?past=2&timeout_ms=50000");
    let (answer, _) = tokio::join!(server.bare(Method::GET, &path), saving);
    assert_eq!(answer.json()["version"], json!(3));
    server.bare(Method::GET, &format!("{ORDER}?past=3&timeout_ms=50001")).await.problem(Code::InvalidQuery);
}
