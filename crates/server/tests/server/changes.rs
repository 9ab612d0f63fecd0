//! `GET /v1/records/changes` and what is below it.

use std::sync::Arc;
use std::time::Duration;

use annals_core::Code;
use annals_embedded::disk::MemoryDisk;
use annals_server::Options;
use reqwest::Method;
use serde_json::{Value, json};

use crate::follow::Events;
use crate::records::{CHANGES, insert, serving};
use crate::running::{Answer, Running, store_on};

fn shown(number: u64, collection: &str, id: Value, what: &str) -> Value {
    json!({"number": number, "collection": collection, "id": id, "what": what})
}

/// A server whose changes are two insertions, a replacement and a deletion.
async fn changed() -> (Running, Vec<Value>) {
    let server = serving().await;
    server.put("/v1/records/collections/others", &json!({})).await.json();
    let other = json!({"insert": {"collection": "others", "document": {"_id": 2}}});
    let replace = json!({"replace": {"collection": "orders", "document": {"_id": "a"}, "expected": "present"}});
    let delete = json!({"delete": {"collection": "orders", "id": "a", "expected": "present"}});
    let numbers = server.write(json!([insert(json!({"_id": "a"})), other, replace, delete])).await;
    let happened = [
        ("orders", json!("a"), "inserted"),
        ("others", json!(2), "inserted"),
        ("orders", json!("a"), "replaced"),
        ("orders", json!("a"), "deleted"),
    ];
    let changes =
        numbers.iter().zip(happened).map(|(number, (collection, id, what))| shown(*number, collection, id, what));
    let changes = changes.collect();
    (server, changes)
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_are_read_page_by_page() {
    let (server, changes) = changed().await;
    let numbers: Vec<_> = changes.iter().map(|change| change["number"].as_u64().expect("a number")).collect();
    let page = server.get(CHANGES).await.json();
    assert_eq!(page, json!({"changes": changes, "next": numbers[3]}));
    let page = server.get(&format!("{CHANGES}?after={}&limit=2", numbers[0])).await.json();
    assert_eq!(page, json!({"changes": changes[1..3], "next": numbers[2]}));
    let end = server.get(&format!("{CHANGES}?after={}", numbers[3])).await.json();
    assert_eq!(end, json!({"changes": [], "next": numbers[3]}));
    let unknown = server.get(&format!("{CHANGES}?after={}", numbers[3] + 1)).await.problem(Code::UnknownChange);
    assert_eq!(unknown["last"], numbers[3]);
    for query in ["limit=0", "limit=1001", "after=x", "from=1"] {
        server.get(&format!("{CHANGES}?{query}")).await.problem(Code::InvalidQuery);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_comes_too_late_is_told_what_is_left() {
    let options = annals_embedded::Options { record_changes_kept: 10, ..annals_embedded::Options::default() };
    let server = Running::over(store_on(Arc::new(MemoryDisk::default()), options), Options::default()).await;
    server.put("/v1/records/collections/orders", &json!({})).await.json();
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
    let last = changes[3]["number"].as_u64().expect("a number");
    let number = |answer: Answer| answer.json()["number"].as_u64().expect("a number");
    assert_eq!(number(server.get(&format!("{CHANGES}/last")).await), last);
    assert_eq!(number(server.get(&format!("{CHANGES}/last?past={}", last - 1)).await), last);
    assert_eq!(number(server.get(&format!("{CHANGES}/last?past={last}&timeout_ms=1")).await), last);
    let address = format!("{CHANGES}/last?past={last}&timeout_ms=50000");
    let (waited, written) = tokio::join!(server.get(&address), server.write(json!([insert(json!({"_id": "b"}))])));
    assert_eq!(vec![number(waited)], written);
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
    let mut others = Events::open(&server, &format!("{CHANGES}/follow?collection=others"), None).await;
    assert_eq!(next(&mut others).await, changes[1]);
    let seen = changes[1]["number"].to_string();
    let mut resumed = Events::open(&server, &format!("{CHANGES}/follow?after=0"), Some(&seen)).await;
    assert_eq!(next(&mut resumed).await, changes[2]);
    let numbers = server
        .write(json!([insert(json!({"_id": {"$oid": "x"}})), {"insert": {"collection": "others", "document": {"_id": 3}}}]))
        .await;
    assert_eq!(next(&mut all).await, shown(numbers[0], "orders", json!({"$oid": "x"}), "inserted"));
    assert_eq!(next(&mut all).await, shown(numbers[1], "others", json!(3), "inserted"));
    assert_eq!(next(&mut others).await, shown(numbers[1], "others", json!(3), "inserted"));
    server.begin_stop();
    while all.block().await.is_some() {}
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quiet_stream_of_changes_sends_comments() {
    let mut options = Options::default();
    options.comment_interval = Duration::from_millis(20);
    let server = Running::start_with(options).await;
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
}

/// Changes of other collections hold no comment up, and its id lets a reader that comes again resume after them.
#[tokio::test(flavor = "multi_thread")]
async fn a_stream_of_one_collection_sends_comments_with_the_position_that_it_has_read() {
    let mut options = Options::default();
    options.comment_interval = Duration::from_millis(20);
    let server = Running::start_with(options).await;
    for collection in ["orders", "others"] {
        server.put(&format!("/v1/records/collections/{collection}"), &json!({})).await.json();
    }
    let mut others = Events::open(&server, &format!("{CHANGES}/follow?collection=others"), None).await;
    assert!(others.block().await.expect("a greeting").comment.is_some());
    let numbers = server.write(json!([insert(json!({"_id": 1})), insert(json!({"_id": 2}))])).await;
    let mut seen = String::new();
    while seen != numbers[1].to_string() {
        let block = others.block().await.expect("a comment");
        assert_eq!((block.data.as_str(), block.comment.as_deref()), ("", Some("quiet")));
        // Each position is told once.
        assert!(block.id.as_ref().is_none_or(|id| *id != seen), "{block:?}");
        seen = block.id.unwrap_or(seen);
    }
    let other = json!({"insert": {"collection": "others", "document": {"_id": 3}}});
    let number = server.write(json!([other])).await[0];
    let mut resumed = Events::open(&server, &format!("{CHANGES}/follow?collection=others"), Some(&seen)).await;
    for events in [&mut others, &mut resumed] {
        assert_eq!(events.next().await.id, Some(number.to_string()));
    }
}
