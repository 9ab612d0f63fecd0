//! Pages in the order of an index that does not end in `_id`: what they read, and that equal records come by `_id` all the same.

use annals_core::bson::spec::BinarySubtype;
use annals_core::bson::{Binary, Bson, DateTime, Document, Regex, Timestamp, doc, oid::ObjectId, rawdoc};
use annals_core::order::Direction::{self, Ascending, Descending};
use annals_core::{Collection, Condition, Index, RecordChange, RecordQuery, Records, SortBy, Store};
use annals_mongodb::Options;

use super::pair::Pair;
use crate::records_writers::records_of;
use crate::server::Databases;

const DELIVERIES: &str = "deliveries";
const LIMIT: usize = 100;

fn lane_due() -> Index {
    Index::ordered([("lane", Ascending), ("due", Ascending)]).into()
}

/// The pending deliveries of a lane by when they are due, as the worker of partners asks for them.
fn due(lane: &str, direction: Direction) -> RecordQuery {
    let due = Condition::gte("due", DateTime::from_millis(0));
    let sort = vec![SortBy { path: "due".to_owned(), direction }];
    let condition = Condition::and([Condition::eq("lane", lane), due]);
    RecordQuery { sort, ..RecordQuery::new(DELIVERIES).matching(condition).limit(LIMIT) }
}

async fn write(records: &dyn Records, documents: impl Iterator<Item = (i64, &'static str, i64)>) {
    let documents = documents.map(|(id, lane, due)| {
        let document = rawdoc! { "_id": id, "lane": lane, "due": DateTime::from_millis(due) };
        RecordChange::insert(DELIVERIES, document)
    });
    records.write(documents.collect()).await.expect("written");
}

#[tokio::test]
async fn a_page_in_the_order_of_an_index_reads_little_more_than_itself() {
    const ALL: i64 = 2_000;
    let databases = Databases::new();
    let store = databases.store(Options::default()).await;
    let records = records_of(&store);
    records.declare(Collection::new(DELIVERIES).index(lane_due())).await.expect("declared");
    // Three are due at once, and come into the index in the opposite order of their ids.
    for first in (0..ALL).step_by(1_000) {
        write(&*records, (first..first + 1_000).map(|n| (ALL - n, "OUT/acme", n / 3))).await;
    }
    write(&*records, (0..500).map(|n| (ALL + 500 - n, "OUT/same", 7))).await;
    let mut expected: Vec<_> = (0..ALL).map(|n| (n / 3, ALL - n)).collect();
    for direction in [Ascending, Descending] {
        expected.sort_unstable();
        if direction == Descending {
            expected.reverse();
        }
        let mut query = due("OUT/acme", direction);
        let mut found = Vec::new();
        loop {
            let explained = records.explain(query.clone()).await.expect("explained");
            assert_eq!(explained.index.as_deref(), Some("lane_1_due_1"), "{explained:?}");
            let most = LIMIT as u64 + 20;
            assert!(explained.entries_examined <= most && explained.documents_examined <= most, "{explained:?}");
            let page = records.find(query.clone()).await.expect("found");
            assert_eq!(explained.found, page.records.len() as u64);
            found.extend(page.records.iter().map(|record| record.document.get_i64("_id").expect("an id")));
            match page.next {
                Some(next) => query.after = Some(next),
                None => break,
            }
        }
        assert_eq!(found, expected.iter().map(|(_, id)| *id).collect::<Vec<_>>());
    }
    // All are equal: the server sorts them by `_id`, as it must.
    let query = due("OUT/same", Ascending);
    let explained = records.explain(query.clone()).await.expect("explained");
    assert!(explained.entries_examined <= 500 + LIMIT as u64 + 20, "{explained:?}");
    let next = records.find(query.clone()).await.expect("found").next.expect("a cursor");
    let page = records.find(query.after(next)).await.expect("found");
    let ids: Vec<_> = page.records.iter().map(|record| record.document.get_i64("_id").expect("an id")).collect();
    assert_eq!(ids, (ALL + 101..=ALL + 200).collect::<Vec<_>>());
    store.close().await;
}

/// Values of all types, some of which are equal although their types differ.
fn values() -> Vec<Option<Bson>> {
    let regex = Regex { pattern: "a".try_into().expect("without NUL"), options: "".try_into().expect("without NUL") };
    vec![
        None,
        Some(Bson::Null),
        Some(1_i32.into()),
        Some(1_i64.into()),
        Some(1.0.into()),
        Some(Bson::Decimal128("1.0".parse().expect("a decimal"))),
        Some(2.into()),
        Some(f64::NAN.into()),
        Some(Bson::Decimal128("NaN".parse().expect("a decimal"))),
        Some(f64::NEG_INFINITY.into()),
        Some("".into()),
        Some("a".into()),
        Some("a".into()),
        Some(Bson::Symbol("a".to_owned())),
        Some(doc! { "x": 1 }.into()),
        Some(doc! { "x": 2 }.into()),
        Some(Binary { subtype: BinarySubtype::Generic, bytes: vec![1] }.into()),
        Some(ObjectId::from_bytes([7; 12]).into()),
        Some(true.into()),
        Some(DateTime::from_millis(5).into()),
        Some(DateTime::from_millis(6).into()),
        Some(Timestamp { time: 1, increment: 1 }.into()),
        Some(regex.into()),
        Some(Bson::MinKey),
        Some(Bson::MaxKey),
    ]
}

/// Many documents with equal values, whose ids are in another order.
fn documents(values: &[Option<Bson>]) -> Vec<Document> {
    const COUNT: usize = 75;
    let document = |n: usize| {
        let id = n * 37 % COUNT;
        let mut document =
            doc! { "_id": id as i32, "lane": if n.is_multiple_of(5) { "b" } else { "a" }, "n": (n % 3) as i32 };
        if let Some(due) = &values[n % values.len()] {
            document.insert("due", due.clone());
        }
        document
    };
    (0..COUNT).map(document).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn equal_records_come_by_id_in_the_order_of_an_index() {
    let pair = Pair::open().await;
    let mut with_arrays = values();
    let arrays = [
        Bson::Array(Vec::new()),
        Bson::Array(vec![1.into(), "a".into()]),
        Bson::Array(vec![Bson::Null, 2.into()]),
        Bson::Array(vec![Bson::Array(vec![1.into()]), DateTime::from_millis(5).into()]),
    ];
    with_arrays.extend(arrays.map(Some));
    let indexes = [
        lane_due(),
        Index::ordered([("due", Descending), ("n", Ascending)]).into(),
        Index::ordered([("n", Ascending)]).into(),
    ];
    for (name, values) in [("plain-values", values()), ("with-arrays", with_arrays)] {
        let documents = documents(&values);
        let loaded = pair.load(name, &documents, &indexes).await.expect("loaded");
        let in_lane = Condition::eq("lane", "a");
        let from_one = Condition::and([in_lane.clone(), Condition::gte("due", 1)]);
        for (condition, sort) in [
            (in_lane.clone(), vec![("due", Ascending)]),
            (in_lane.clone(), vec![("due", Descending)]),
            (in_lane, vec![("lane", Descending), ("due", Ascending)]),
            (from_one, vec![("due", Descending)]),
            (Condition::All, vec![("due", Descending), ("n", Ascending)]),
            (Condition::All, vec![("due", Ascending), ("n", Descending)]),
            (Condition::All, vec![("n", Descending)]),
        ] {
            let sort: Vec<_> =
                sort.iter().map(|(path, way)| SortBy { path: (*path).to_owned(), direction: *way }).collect();
            for limit in [3, 8] {
                let query = RecordQuery { sort: sort.clone(), ..RecordQuery::new("").matching(condition.clone()) };
                let query = query.limit(limit);
                let found = loaded.find(&query).await.unwrap_or_else(|why| panic!("{name}: {query:?} {why}"));
                assert!(found.expect("found").len() > limit, "{name}: {query:?}");
            }
        }
    }
    pair.close().await;
}
