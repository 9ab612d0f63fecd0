//! Whether a database holds what it must after whatever happened: read by the plain driver, compared with what writers were told.

use std::collections::{BTreeMap, HashMap};

use mongodb::Database;
use mongodb::bson::{Bson, Document, doc};

use crate::writers::Said;

/// A commit where the log has it.
struct Logged {
    first: u64,
    version: i64,
    request: String,
}

/// How much was compared, so that a test can see that it tested something.
#[derive(Debug, Clone, Copy)]
pub struct Compared {
    pub commits: usize,
    pub events: u64,
    pub acknowledged: usize,
    pub refused: usize,
    pub unknown: usize,
}

/// Compares the collections of commits, the entries and the log, and then both with what was told.
///
/// # Panics
/// When a promise is broken, with what it is.
pub async fn compare(database: &Database, said: &Said) -> Compared {
    let (logged, events) = logged(database).await;
    let mut by_request: HashMap<(&str, &str), &Logged> = HashMap::new();
    for ((aggregate, _), one) in &logged {
        let other = by_request.insert((&**aggregate, &*one.request), one);
        assert!(other.is_none(), "request {} is in the log twice", one.request);
    }
    let of_request: HashMap<&str, &Logged> = logged.values().map(|one| (&*one.request, one)).collect();
    let of_commit: HashMap<&str, &Logged> = logged.iter().map(|((_, commit), one)| (&**commit, one)).collect();
    let (mut newest, mut acknowledged) = (HashMap::new(), 0);
    for told in said.acknowledged() {
        acknowledged += 1;
        let one = of_commit.get(told["commit"].as_str().expect("text"));
        let one = one.unwrap_or_else(|| panic!("an acknowledged commit is not in the log: {told}"));
        assert_eq!(told["version"].as_i64(), Some(one.version), "{told}");
        // None when its time to wait for a number was up.
        assert!(told["first"].as_u64().is_none_or(|first| first == one.first), "{told}");
        assert_eq!(told["request"], one.request, "{told}");
        if told["duplicate"] == false {
            let before = newest.insert(told["caller"].to_string(), one.first);
            assert!(
                before.is_none_or(|before| before < one.first),
                "{told} stands before what was acknowledged before it"
            );
        }
    }
    let (mut refused, mut unknown) = (0, 0);
    for told in said.told.iter().filter(|told| told["code"].is_string()) {
        let request = told["request"].as_str().expect("text");
        match told["code"].as_str().expect("text") {
            "version_conflict" => assert!(!of_request.contains_key(request), "refused and stored: {told}"),
            "request_id_reused" => assert!(of_request.contains_key(request), "reused, and never used: {told}"),
            _ => {
                assert_eq!(told["store"], true, "{told}");
                unknown += 1;
                continue;
            }
        }
        refused += 1;
    }
    Compared { commits: logged.len(), events, acknowledged, refused, unknown }
}

/// What is in the log, by aggregate and commit, and the number of its events; seen to be without hole, repeat or half.
async fn logged(database: &Database) -> (BTreeMap<(String, String), Logged>, u64) {
    let numbers = ids(database, "event-log").await;
    assert_eq!(numbers, (0..numbers.len() as u64).collect::<Vec<_>>(), "the log is 0..n-1");
    let metadata = database.collection::<Document>("event-log-metadata");
    let next = metadata.find_one(doc! { "_id": "event-log" }).await.expect("read").expect("there");
    assert_eq!(number(next.get("NextEventOffset")), numbers.len() as u64, "the next number");
    let commits = all(database, "order_event_stream", doc! { "aggregateId": 1, "version": 1 }).await;
    let mut stored: HashMap<String, &Document> = HashMap::new();
    let mut before: Option<(&str, i32)> = None;
    for commit in &commits {
        let (aggregate, version) =
            (commit.get_str("aggregateId").expect("text"), commit.get_i32("version").expect("int"));
        let expected = before.map_or(1, |(other, version)| if other == aggregate { version + 1 } else { 1 });
        assert_eq!(version, expected, "the versions of {aggregate} are without a gap");
        before = Some((aggregate, version));
        stored.insert(commit.get_str("_id").expect("text").to_owned(), commit);
    }
    let entries = all(database, "event-log-commits", doc! { "_id": 1 }).await;
    assert_eq!(entries.len(), commits.len(), "the commits in the log are those that are stored");
    let (mut logged, mut next, mut heads) = (BTreeMap::new(), 0, HashMap::<String, i64>::new());
    for entry in &entries {
        let id = entry.get_str("commit").expect("text");
        let commit = stored.get(id).unwrap_or_else(|| panic!("the log holds {id}, which is not stored"));
        let aggregate = commit.get_str("aggregateId").expect("text").to_owned();
        let (first, version) = (number(entry.get("_id")), i64::from(commit.get_i32("version").expect("int")));
        assert_eq!(first, next, "entries stand one behind the other");
        next += commit.get_array("body").expect("events").len() as u64;
        let head = heads.entry(aggregate.clone()).or_default();
        assert_eq!(version, *head + 1, "{aggregate} stands in the order of its versions");
        *head = version;
        let request = commit.get_str("requestId").expect("text").to_owned();
        let other = logged.insert((aggregate, id.to_owned()), Logged { first, version, request });
        assert!(other.is_none(), "{id} is in the log twice");
    }
    assert_eq!(next, numbers.len() as u64, "the events of all entries are those of the log");
    let held = database.collection::<Document>("sequencer-held").count_documents(doc! {}).await.expect("counted");
    assert_eq!(held, 0, "nothing is held back");
    (logged, next)
}

/// Every document of a collection, in this order.
pub async fn all(database: &Database, collection: &str, order: Document) -> Vec<Document> {
    let mut cursor = database.collection::<Document>(collection).find(doc! {}).sort(order).await.expect("found");
    let mut all = Vec::new();
    while cursor.advance().await.expect("read") {
        all.push(cursor.deserialize_current().expect("a document"));
    }
    all
}

async fn ids(database: &Database, collection: &str) -> Vec<u64> {
    all(database, collection, doc! { "_id": 1 }).await.iter().map(|document| number(document.get("_id"))).collect()
}

fn number(value: Option<&Bson>) -> u64 {
    match value {
        Some(Bson::Decimal128(number)) => number.to_string().parse().expect("a whole number"),
        Some(Bson::Int64(number)) => u64::try_from(*number).expect("natural"),
        Some(Bson::Int32(number)) => u64::try_from(*number).expect("natural"),
        other => panic!("a number was due, not {other:?}"),
    }
}
