//! Records and streams moved from one backend to another, with the events they are about.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use annals::bson::raw::RawDocumentBuf;
use annals::bson::{Bson, DateTime, Decimal128, Document, doc, oid::ObjectId};
use annals::operations::{EXPORT_VERSION, check};
use annals::order::Direction;
use annals::{
    Code, Collection, Condition, DEFAULT_SCOPE, DEFAULT_TENANT, Included, Index, NewCommit, NewEvent, Partitions,
    RecordQuery, Store, StreamEntry, StreamInfo, StreamQuery, Verdicts,
};

use crate::moving::{content, exported, filled, imported, open};

/// A date long gone: whatever has it expires at once.
const LONG_GONE: i64 = 1_000;

fn raw(document: &Document) -> RawDocumentBuf {
    RawDocumentBuf::try_from(document).expect("a document")
}

fn things() -> Collection {
    Collection::new("things")
        .index(Index::on("name").unique())
        .index(Index::on("until").expires_after_seconds(1_000))
        .index(Index::ordered([("kind", Direction::Ascending), ("n", Direction::Descending)]))
        .index(Index::on("rare").sparse().partial(Condition::gt("n", 1.5)).named("a rare one"))
}

/// Documents of every type that JSON has and has not.
fn documents() -> Vec<Document> {
    let decimal: Decimal128 = "1.50".parse().expect("a decimal");
    let ids: [Bson; 7] = [
        1.into(),
        2_i64.into(),
        2.5.into(),
        "text".into(),
        Bson::ObjectId(ObjectId::from_bytes([7; 12])),
        Bson::DateTime(DateTime::from_millis(9)),
        Bson::Document(doc! { "b": 1, "a": 2 }),
    ];
    let body = |(n, id): (usize, Bson)| {
        doc! {
            "_id": id, "name": format!("name-{n}"), "kind": "k", "n": n as i32, "wide": n as i64, "half": 0.5,
            "decimal": decimal, "none": Bson::Null, "list": [1, "x", { "y": 2_i64 }], "rare": true,
            "text": "\u{1}é\"\\", "$odd.key": { "$date": "no date" }, "not_a_number": f64::NAN,
        }
    };
    ids.into_iter().enumerate().map(body).collect()
}

/// Adds records and streams to two tenants of a store with events.
async fn fill_maps(store: &Arc<dyn Store>) {
    for tenant in [DEFAULT_TENANT, "other"] {
        let records = store.records(tenant).expect("it is declared");
        records.declare(things()).await.expect("it is declared");
        records.declare(Collection::new("many")).await.expect("it is declared");
        records.declare(Collection::new("none")).await.expect("it is declared");
        for document in documents() {
            records.insert("things", raw(&document)).await.expect("it is inserted");
        }
        for n in 0..700 {
            records.insert("many", raw(&doc! { "_id": n, "n": i64::from(n) })).await.expect("it is inserted");
        }
        for scope in [DEFAULT_SCOPE, "partner"] {
            let streams = store.streams(tenant, scope).expect("it is declared");
            let head = store.log(tenant, scope).expect("it is declared").head().await.expect("a head");
            for (name, partitioned) in [("plain", false), ("parted", true)] {
                let judged = (0..head - 1).filter(|number| number % 3 > 0).map(|number| match partitioned {
                    true => Included::of(number, format!("p/{} é", number % 4)),
                    false => Included::new(number),
                });
                let all = judged.fold(Verdicts::new(name, 0..head - 1), Verdicts::include);
                streams.append(all).await.expect("it is appended");
            }
            streams.append(Verdicts::new("nothing", 0..2)).await.expect("it is appended");
        }
    }
}

async fn whole(commits: usize) -> Arc<dyn Store> {
    let store = filled("memory:", commits).await;
    fill_maps(&store).await;
    store
}

async fn records(store: &Arc<dyn Store>, tenant: &str, collection: &str) -> Vec<RawDocumentBuf> {
    let records = store.records(tenant).expect("it is declared");
    let mut query = RecordQuery::new(collection);
    let mut all = Vec::new();
    loop {
        let page = records.find(query.clone()).await.expect("it is read");
        all.extend(page.records.into_iter().map(|record| record.document));
        match page.next {
            Some(next) => query.after = Some(next),
            None => return all,
        }
    }
}

async fn stream(store: &Arc<dyn Store>, tenant: &str, scope: &str, name: &str) -> (StreamInfo, Vec<StreamEntry>) {
    let streams = store.streams(tenant, scope).expect("it is declared");
    let mut query = StreamQuery { limit: 1_000, partitions: Partitions::All, ..StreamQuery::new(name.to_owned()) };
    let mut all = Vec::new();
    loop {
        let page = streams.read(query.clone()).await.expect("it is read");
        if page.entries.is_empty() {
            return (streams.stream(name).await.expect("it is looked up"), all);
        }
        query.from = page.next;
        all.extend(page.entries);
    }
}

#[tokio::test]
async fn records_and_streams_are_moved_from_one_backend_to_another_and_back() {
    let folder = tempfile::tempdir().expect("a folder");
    let url = format!("embedded:{}/store", folder.path().display());
    let (first, second, third) = (whole(60).await, open(&url).await, open("memory:").await);
    let bytes = exported(&first).await;
    let moved = imported(&bytes, &second).await.expect("it is imported");
    assert_eq!((moved.logs.len(), moved.collections.len(), moved.streams.len()), (4, 6, 12));
    let back = exported(&second).await;
    assert!(content(&back) == content(&bytes), "what is exported again is the same");
    assert_eq!(imported(&back, &third).await.expect("it is imported"), moved);
    for store in [&second, &third] {
        for tenant in [DEFAULT_TENANT, "other"] {
            for collection in ["things", "many", "none"] {
                let due = records(&first, tenant, collection).await;
                assert!(records(store, tenant, collection).await == due, "{tenant} {collection}");
            }
            for scope in [DEFAULT_SCOPE, "partner"] {
                for name in ["plain", "parted", "nothing"] {
                    let due = stream(&first, tenant, scope, name).await;
                    assert_eq!(stream(store, tenant, scope, name).await, due, "{tenant} {scope} {name}");
                }
            }
            // Indexes mean there what they meant here.
            let there = store.records(tenant).expect("it is declared");
            there.declare(things()).await.expect("they are the same");
            let again = there.insert("things", raw(&doc! { "_id": "new", "name": "name-3" })).await;
            assert_eq!(again.expect_err("the name is taken").code(), Code::DuplicateKey);
        }
    }
    second.close().await;
    drop(second);
    let report = check(&url, &mut |_, _| {}).expect("it can be checked");
    assert!(report.is_sound(), "{report:#?}");
    assert_eq!(report.maps.len(), 2);
}

#[tokio::test]
async fn an_import_that_ended_anywhere_goes_on_there() {
    let bytes = exported(&whole(12).await).await;
    let target = open("memory:").await;
    for part in (1..40).map(|n| bytes.len() * n / 40) {
        let error = imported(&bytes[..part], &target).await.expect_err("it ends early");
        assert_eq!(error.code, Code::InvalidBackup, "{error}");
        assert!(error.message.contains("truncated"), "{error}");
    }
    imported(&bytes, &target).await.expect("it is finished");
    imported(&bytes, &target).await.expect("once more changes nothing");
    assert!(content(&exported(&target).await) == content(&bytes));
}

/// A stream that is there was judged to somewhere within what is appended at once.
#[tokio::test]
async fn verdicts_that_are_there_in_other_runs_are_compared_and_gone_on_from() {
    let first = whole(12).await;
    let bytes = exported(&first).await;
    let head = first.log(DEFAULT_TENANT, DEFAULT_SCOPE).expect("a log").head().await.expect("a head");
    for (to, same) in [(1, true), (5, true), (head - 1, true), (5, false)] {
        let target = filled("memory:", 0).await;
        let error = imported(&bytes[..bytes.len() - 30], &target).await.expect_err("it ends early");
        assert_eq!(error.code, Code::InvalidBackup);
        let other = open("memory:").await;
        let streams = other.streams(DEFAULT_TENANT, DEFAULT_SCOPE).expect("it is declared");
        let log = other.log(DEFAULT_TENANT, DEFAULT_SCOPE).expect("it is declared");
        let copies = first.log(DEFAULT_TENANT, DEFAULT_SCOPE).expect("a log").read_copies(0).await.expect("copies");
        log.store_copies(copies).await.expect("they are in order");
        let judged = (0..to).filter(|number| if same { number % 3 > 0 } else { number % 2 > 0 });
        let all = judged.fold(Verdicts::new("plain", 0..to), |all, number| all.include(Included::new(number)));
        streams.append(all).await.expect("it is appended");
        match imported(&bytes, &other).await {
            Ok(_) => {
                assert!(same);
                assert!(content(&exported(&other).await) == content(&bytes));
            }
            Err(error) => assert!(!same && error.code == Code::VerdictsDiffer && error.message.contains("plain")),
        }
    }
}

#[tokio::test]
async fn a_collection_that_holds_other_records_is_left_alone() {
    let bytes = exported(&whole(3).await).await;
    let changed = doc! { "_id": 5, "n": 77 };
    let more = doc! { "_id": -1, "n": 77 };
    for document in [changed, more] {
        let target = open("memory:").await;
        let there = target.records(DEFAULT_TENANT).expect("it is declared");
        there.declare(Collection::new("many")).await.expect("it is declared");
        there.insert("many", raw(&document)).await.expect("it is inserted");
        let error = imported(&bytes, &target).await.expect_err("it holds other records");
        assert_eq!(error.code, Code::OtherRecords, "{error}");
        assert!(error.message.contains("many"), "{error}");
        let id = document.get("_id").expect("an id");
        let found = there.get("many", id).await.expect("it is looked up").expect("it is there");
        assert_eq!(found.document, raw(&document));
    }
    // An index of the same name that is something else.
    let target = open("memory:").await;
    let there = target.records(DEFAULT_TENANT).expect("it is declared");
    there.declare(Collection::new("things").index(Index::on("name"))).await.expect("it is declared");
    assert_eq!(imported(&bytes, &target).await.expect_err("it is another").code, Code::IndexConflict);
}

#[tokio::test]
async fn what_was_altered_left_out_or_given_twice_is_refused_with_its_line() {
    let text = String::from_utf8(exported(&whole(5).await).await).expect("UTF-8");
    let lines: Vec<&str> = text.lines().collect();
    let at = |beginning: &str| lines.iter().position(|line| line.starts_with(beginning)).expect("there is one");
    let joined = |lines: &[&str]| lines.join("\n") + "\n";
    let mut wrong = vec![
        // In the bytes, "name-3" becomes "name-9".
        text.replacen("6e616d652d33", "6e616d652d39", 1),
        text.replacen("\"progress\":", "\"progress\":1", 1),
    ];
    for beginning in [
        "{\"record\"",
        "{\"collection_end\"",
        "{\"records_end\"",
        "{\"log\"",
        "{\"position\"",
        "{\"stream_end\"",
        "{\"streams_end\"",
    ] {
        let at = at(beginning);
        wrong.push(joined(&[&lines[..at], &lines[at + 1..]].concat()));
        wrong.push(joined(&[&lines[..=at], &lines[at..]].concat()));
    }
    // A whole collection, and a whole stream.
    let whole = |from: &str, to: &str| {
        let (from, to) = (at(from), at(to));
        joined(&[&lines[..from], &lines[to + 1..]].concat())
    };
    wrong.push(whole("{\"collection\"", "{\"collection_end\""));
    wrong.push(whole("{\"stream\"", "{\"stream_end\""));
    for wrong in wrong {
        assert!(wrong != text);
        let error = imported(wrong.as_bytes(), &open("memory:").await).await.expect_err("it was altered");
        let known = [Code::InvalidBackup, Code::OtherRecords, Code::DuplicateKey];
        assert!(known.contains(&error.code), "{}: {error}", error.code.as_str());
        assert!(error.code != Code::InvalidBackup || error.message.starts_with("line "), "{error}");
    }
}

/// The first version had neither records nor streams, and the second no keys behind them.
#[tokio::test]
async fn exports_of_earlier_versions_are_read_as_they_were() {
    let store = filled("memory:", 20).await;
    let text = String::from_utf8(exported(&store).await).expect("UTF-8");
    let later = ["{\"keys_end\"", "{\"records_end\"", "{\"log\"", "{\"streams_end\""];
    for (version, later) in [(1, &later[..]), (2, &later[..1])] {
        let this = format!("\"annals_export\":{EXPORT_VERSION}");
        let before = text.replacen(&this, &format!("\"annals_export\":{version}"), 1);
        let before = before.lines().filter(|line| !later.iter().any(|beginning| line.starts_with(beginning)));
        let before = before.collect::<Vec<_>>().join("\n") + "\n";
        let target = open("memory:").await;
        imported(before.as_bytes(), &target).await.expect("it is imported");
        assert_eq!(content(&exported(&target).await), content(text.as_bytes()));
    }
}

/// Records with an index that lets them expire are compared before anything of them is deleted.
#[tokio::test]
async fn records_that_have_expired_are_moved_and_then_deleted() {
    let store = open("memory:").await;
    let records_here = store.records(DEFAULT_TENANT).expect("it is declared");
    // Without the index they stay.
    let bare = Collection::new("gone").index(Index::on("n"));
    records_here.declare(bare.clone()).await.expect("it is declared");
    for n in 0..20 {
        let until = DateTime::from_millis(if n % 2 == 0 { LONG_GONE } else { i64::MAX });
        records_here.insert("gone", raw(&doc! { "_id": n, "n": n, "until": until })).await.expect("it is inserted");
    }
    let text = String::from_utf8(exported(&store).await).expect("UTF-8");
    let index = serde_json::to_string(&Index::from(Index::on("until").expires_after_seconds(60))).expect("JSON");
    let expiring =
        text.replacen("\"name\":\"gone\",\"indexes\":[", &format!("\"name\":\"gone\",\"indexes\":[{index},"), 1);
    assert!(expiring != text);
    let target = open("memory:").await;
    for _ in 0..2 {
        let moved = imported(expiring.as_bytes(), &target).await.expect("it is imported");
        assert_eq!(moved.collections[0].records, 20);
    }
    let there = target.records(DEFAULT_TENANT).expect("it is declared");
    let known = there.collections().await.expect("they are listed");
    assert!(known[0].indexes.iter().any(|index| index.expires_after_seconds() == Some(60)));
    let left = there.count("gone", &Condition::eq("until", DateTime::from_millis(i64::MAX))).await.expect("a count");
    assert_eq!(left, 10);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_export_under_load_knows_of_no_event_that_it_does_not_have() {
    let store = open("memory:").await;
    let stop = Arc::new(AtomicBool::new(false));
    let follower = tokio::spawn({
        let (store, stop) = (store.clone(), stop.clone());
        async move {
            let log = store.log(DEFAULT_TENANT, DEFAULT_SCOPE).expect("it is declared");
            let records = store.records(DEFAULT_TENANT).expect("it is declared");
            let streams = store.streams(DEFAULT_TENANT, DEFAULT_SCOPE).expect("it is declared");
            records.declare(Collection::new("positions")).await.expect("it is declared");
            while !stop.load(Ordering::Relaxed) {
                let commit = NewCommit::new("order", "o-1").event(NewEvent::new("t", annals::Data::empty()));
                let number = log.commit(commit).await.expect("it is accepted").first_sequence_number.expect("a number");
                let position = raw(&doc! { "_id": "p", "next": number as i64 + 1 });
                records.write(vec![annals::RecordChange::put("positions", position)]).await.expect("it is written");
                let verdicts = Verdicts::new("s", number..number + 1).include(Included::new(number));
                streams.append(verdicts).await.expect("it is appended");
            }
        }
    });
    let log = store.log(DEFAULT_TENANT, DEFAULT_SCOPE).expect("it is declared");
    for _ in 0..5 {
        log.wait_past(log.head().await.expect("a head") + 3).await.expect("it grows");
        let bytes = exported(&store).await;
        let target = open("memory:").await;
        imported(&bytes, &target).await.expect("it is imported");
        let head = target.log(DEFAULT_TENANT, DEFAULT_SCOPE).expect("a log").head().await.expect("a head");
        let position = &records(&target, DEFAULT_TENANT, "positions").await[0];
        assert!(position.get_i64("next").expect("a number") as u64 <= head);
        let (info, entries) = stream(&target, DEFAULT_TENANT, DEFAULT_SCOPE, "s").await;
        assert!(info.progress <= head && entries.len() as u64 == info.progress);
    }
    stop.store(true, Ordering::Relaxed);
    follower.await.expect("it ends");
}
