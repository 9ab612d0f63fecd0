//! `GET /v1/records/collections/{collection}/changes` and what is below it.

use std::sync::Arc;
use std::time::Duration;

use annals_core::Code;
use annals_embedded::disk::MemoryDisk;
use annals_server::Options;
use reqwest::Method;
use serde_json::{Value, json};

use crate::follow::Events;
use crate::records::{insert, serving};
use crate::running::{Answer, Running, store_on};

/// The changes of the collection "orders".
const CHANGES: &str = "/v1/records/collections/orders/changes";

fn shown(number: u64, collection: &str, id: Value, what: &str) -> Value {
    json!({"number": number, "collection": collection, "id": id, "what": what})
}

/// A server where "orders" has three changes, beside one of "others".
async fn changed() -> (Running, Vec<Value>) {
    let server = serving().await;
    for collection in ["orders", "others"] {
        server.put(&format!("/v1/records/collections/{collection}"), &json!({"feed": true})).await.json();
    }
    let other = json!({"insert": {"collection": "others", "document": {"_id": 2}}});
    let replace = json!({"replace": {"collection": "orders", "document": {"_id": "a"}, "expected": "present"}});
    let delete = json!({"delete": {"collection": "orders", "id": "a", "expected": "present"}});
    server.write(json!([insert(json!({"_id": "a"})), other, replace, delete])).await;
    let page = server.get(CHANGES).await.json();
    let changes = page["changes"].as_array().expect("changes").clone();
    (server, changes)
}

fn numbers(changes: &[Value]) -> Vec<u64> {
    changes.iter().map(|change| change["number"].as_u64().expect("a number")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_are_read_page_by_page() {
    let (server, changes) = changed().await;
    let numbers = numbers(&changes);
    assert!(numbers.is_sorted_by(|one, next| one < next), "{numbers:?}");
    let what = ["inserted", "replaced", "deleted"];
    let due: Vec<_> = numbers.iter().zip(what).map(|(n, what)| shown(*n, "orders", json!("a"), what)).collect();
    assert_eq!(changes, due);
    let page = server.get(CHANGES).await.json();
    assert_eq!(page, json!({"changes": changes, "next": numbers[2]}));
    let page = server.get(&format!("{CHANGES}?after={}&limit=1", numbers[0])).await.json();
    assert_eq!(page, json!({"changes": changes[1..2], "next": numbers[1]}));
    let end = server.get(&format!("{CHANGES}?after={}", numbers[2])).await.json();
    assert_eq!(end, json!({"changes": [], "next": numbers[2]}));
    let unknown = server.get(&format!("{CHANGES}?after={}", numbers[2] + 1)).await.problem(Code::UnknownChange);
    assert_eq!(unknown["last"], numbers[2]);
    for query in ["limit=0", "limit=1001", "after=x", "from=1"] {
        server.get(&format!("{CHANGES}?{query}")).await.problem(Code::InvalidQuery);
    }
    let others = server.get("/v1/records/collections/others/changes").await.json();
    assert_eq!(others["changes"].as_array().map(Vec::len), Some(1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collection_that_does_not_ask_for_a_feed_has_none() {
    let server = serving().await;
    for below in ["", "/last", "/follow"] {
        let refused = server.get(&format!("{CHANGES}{below}")).await.problem(Code::NoFeed);
        assert_eq!(refused["collection"], "orders");
        let address = format!("/v1/records/collections/nothing/changes{below}");
        let refused = server.get(&address).await.problem(Code::UnknownCollection);
        assert_eq!(refused["collection"], "nothing");
    }
    let declared = server.put("/v1/records/collections/orders", &json!({"feed": true})).await.json();
    assert_eq!(declared, json!({"name": "orders", "indexes": [], "feed": true}));
    // Declared again without it, it keeps it.
    server.put("/v1/records/collections/orders", &json!({})).await.json();
    assert_eq!(server.get("/v1/records/collections/orders").await.json()["feed"], true);
    server.write(json!([insert(json!({"_id": "a"}))])).await;
    assert_eq!(server.get(CHANGES).await.json()["changes"].as_array().map(Vec::len), Some(1));
    let wrong = server.put("/v1/records/collections/orders", &json!({"feed": 1})).await;
    assert_eq!(wrong.problem(Code::InvalidBody)["path"], "feed");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_comes_too_late_is_told_what_is_left() {
    let options = annals_embedded::Options { record_changes_kept: 10, ..annals_embedded::Options::default() };
    let server = Running::over(store_on(Arc::new(MemoryDisk::default()), options), Options::default()).await;
    server.put("/v1/records/collections/orders", &json!({"feed": true})).await.json();
    for n in 0..25 {
        server.write(json!([insert(json!({ "_id": n }))])).await;
    }
    let gone = server.get(CHANGES).await.problem(Code::ChangesGone);
    assert_eq!(gone["oldest"], 16);
    server.get(&format!("{CHANGES}/follow")).await.problem(Code::ChangesGone);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_newest_change_is_answered_when_there_is_one() {
    let (server, changes) = changed().await;
    let last = numbers(&changes)[2];
    let number = |answer: Answer| answer.json()["number"].as_u64().expect("a number");
    assert_eq!(number(server.get(&format!("{CHANGES}/last")).await), last);
    assert_eq!(number(server.get(&format!("{CHANGES}/last?past={}", last - 1)).await), last);
    assert_eq!(number(server.get(&format!("{CHANGES}/last?past={last}&timeout_ms=1")).await), last);
    let address = format!("{CHANGES}/last?past={last}&timeout_ms=50000");
    let (waited, _) = tokio::join!(server.get(&address), server.write(json!([insert(json!({"_id": "b"}))])));
    let waited = number(waited);
    assert!(waited > last, "{waited}");
    assert_eq!(number(server.get(&format!("{CHANGES}/last")).await), waited);
    for query in ["timeout_ms=5", "past=1&timeout_ms=50001", "past=x"] {
        server.get(&format!("{CHANGES}/last?{query}")).await.problem(Code::InvalidQuery);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_gets_what_is_kept_and_then_what_comes() {
    let (mut server, changes) = changed().await;
    let next = async |events: &mut Events| {
        let block = events.next().await;
        let change: Value = serde_json::from_str(&block.data).expect("JSON");
        assert_eq!(block.id, Some(change["number"].to_string()));
        change
    };
    let mut all = Events::open(&server, &format!("{CHANGES}/follow"), None).await;
    for change in &changes {
        assert_eq!(next(&mut all).await, *change);
    }
    let mut others = Events::open(&server, "/v1/records/collections/others/changes/follow", None).await;
    let other = next(&mut others).await;
    assert_eq!((&other["collection"], &other["id"]), (&json!("others"), &json!(2)));
    let seen = changes[1]["number"].to_string();
    let mut resumed = Events::open(&server, &format!("{CHANGES}/follow?after=0"), Some(&seen)).await;
    assert_eq!(next(&mut resumed).await, changes[2]);
    let other = json!({"insert": {"collection": "others", "document": {"_id": 3}}});
    server.write(json!([other, insert(json!({"_id": {"$oid": "x"}}))])).await;
    let came = next(&mut all).await;
    let number = came["number"].as_u64().expect("a number");
    assert_eq!(came, shown(number, "orders", json!({"$oid": "x"}), "inserted"));
    assert_eq!(next(&mut resumed).await, came);
    assert_eq!(next(&mut others).await["id"], 3);
    server.begin_stop();
    while all.block().await.is_some() {}
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quiet_stream_of_changes_sends_comments() {
    let mut options = Options::default();
    options.comment_interval = Duration::from_millis(20);
    let server = Running::start_with(options).await;
    server.put("/v1/records/collections/orders", &json!({"feed": true})).await.json();
    let mut events = Events::open(&server, &format!("{CHANGES}/follow"), None).await;
    assert_eq!(events.block().await.and_then(|block| block.comment).as_deref(), Some("after 0, last 0"));
    assert_eq!(events.block().await.and_then(|block| block.comment).as_deref(), Some("quiet"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_number_of_another_store_is_refused_as_an_answer() {
    let (server, _) = changed().await;
    let follow = async |id: &str| {
        let request = server.request(Method::GET, &format!("{CHANGES}/follow")).header("last-event-id", id);
        server.send(request).await
    };
    follow("99").await.problem(Code::UnknownChange);
    follow("1@1").await.problem(Code::UnknownChange);
    follow("x").await.problem(Code::InvalidQuery);
    server.get(&format!("{CHANGES}/follow?after=99")).await.problem(Code::UnknownChange);
    server.get(&format!("{CHANGES}/follow?limit=1")).await.problem(Code::InvalidQuery);
    server.get(&format!("{CHANGES}/follow?collection=orders")).await.problem(Code::InvalidQuery);
}

/// Changes of other collections neither hold a comment up nor show; comments go on after a change.
#[tokio::test(flavor = "multi_thread")]
async fn a_stream_sends_comments_while_only_other_collections_change() {
    let mut options = Options::default();
    options.comment_interval = Duration::from_millis(20);
    let server = Running::start_with(options).await;
    for collection in ["orders", "others"] {
        server.put(&format!("/v1/records/collections/{collection}"), &json!({"feed": true})).await.json();
    }
    let mut others = Events::open(&server, "/v1/records/collections/others/changes/follow", None).await;
    assert!(others.block().await.expect("a greeting").comment.is_some());
    for n in 0..3 {
        server.write(json!([insert(json!({ "_id": n }))])).await;
        let block = others.block().await.expect("a comment");
        assert_eq!((block.data.as_str(), block.comment.as_deref(), block.id), ("", Some("quiet"), None));
    }
    server.write(json!([{"insert": {"collection": "others", "document": {"_id": 3}}}])).await;
    let change = others.next().await;
    assert!(change.data.contains("others"), "{change:?}");
    assert_eq!(others.block().await.and_then(|block| block.comment).as_deref(), Some("quiet"));
}
