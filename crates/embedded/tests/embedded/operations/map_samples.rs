//! Records under every kind of index, and streams with and without partitions, for these tests.

use std::sync::Arc;

use annals_core::bson::{Bson, DateTime, Document, RawDocumentBuf, doc};
use annals_core::order::Direction;
use annals_core::{
    Collection, Condition, DEFAULT_SCOPE, DEFAULT_TENANT, Included, Index, Partitions, RecordChange, RecordQuery,
    Records, Store, StreamEntry, StreamQuery, Verdicts,
};

pub const THINGS: &str = "things";
/// A date in the year 2200: nothing of these expires.
const FAR_AWAY: i64 = 7_258_118_400_000;

/// A collection with an index of every kind.
pub fn things() -> Collection {
    Collection::new(THINGS)
        .with_feed()
        .index(Index::on("name").unique())
        .index(Index::ordered([("kind", Direction::Ascending), ("rank", Direction::Descending)]))
        .index(Index::on("rare").sparse())
        .index(Index::on("kind").partial(Condition::gt("rank", 5)).named("high"))
        .index(Index::on("tags"))
        .index(Index::on("until").expires_after_seconds(60))
}

/// The collections of the sample; the second has no index.
pub fn collections() -> [Collection; 2] {
    [things(), Collection::new("notes")]
}

pub fn raw(document: &Document) -> RawDocumentBuf {
    RawDocumentBuf::try_from(document).expect("a document")
}

/// A record of every shape, by its number.
pub fn thing(n: i32) -> Document {
    let id: Bson = match n % 4 {
        0 => n.into(),
        1 => format!("id-{n}").into(),
        2 => Bson::Document(doc! { "part": n }),
        _ => Bson::DateTime(DateTime::from_millis(i64::from(n))),
    };
    let kind = ["a", "b", "c"][n as usize % 3];
    let mut document = doc! {
        "_id": id, "name": format!("name-{n}"), "kind": kind, "rank": n % 11,
        "until": DateTime::from_millis(FAR_AWAY + i64::from(n)), "text": "x".repeat(n as usize * 37 % 400),
    };
    if n % 5 == 0 {
        document.insert("rare", f64::from(n) / 2.0);
    }
    if n % 3 == 0 {
        document.insert("tags", vec![n, n + 1, n % 2]);
    }
    document
}

/// Records and streams in the default tenant; in the other one nothing is ever written.
pub async fn fill_maps(store: &dyn Store, numbers: std::ops::Range<i32>) {
    let records = store.records(DEFAULT_TENANT).expect("it is declared");
    for collection in collections() {
        records.declare(collection).await.expect("it is declared");
    }
    for n in numbers {
        let note = doc! { "_id": n, "of": n };
        let batch = vec![
            RecordChange::put(THINGS, raw(&thing(n))),
            RecordChange::put("notes", raw(&note)),
            RecordChange::put(THINGS, raw(&thing((n - 3).max(0)))),
        ];
        records.write(batch).await.expect("it is accepted");
    }
    for scope in [DEFAULT_SCOPE, "partner"] {
        let streams = store.streams(DEFAULT_TENANT, scope).expect("it is declared");
        let head = store.log(DEFAULT_TENANT, scope).expect("it is declared").head().await.expect("a head");
        for stream in ["plain", "parted"] {
            let from = streams.stream(stream).await.expect("it is looked up").progress;
            if from == head {
                continue;
            }
            let judged = (from..head).filter(|number| number % 3 > 0).map(|number| match stream {
                "parted" => Included::of(number, format!("p-{}", number % 4)),
                _ => Included::new(number),
            });
            let all = judged.fold(Verdicts::new(stream, from..head), Verdicts::include);
            streams.append(all).await.expect("it is appended");
        }
    }
}

/// Every record of the sample's collections, in the order of their ids.
pub async fn all_records(store: &dyn Store) -> Vec<(String, RawDocumentBuf, u64)> {
    let records = store.records(DEFAULT_TENANT).expect("it is declared");
    let mut all = Vec::new();
    for collection in collections() {
        all.extend(records_of(&records, &collection.name).await);
    }
    all
}

pub async fn records_of(records: &Arc<dyn Records>, collection: &str) -> Vec<(String, RawDocumentBuf, u64)> {
    let mut all = Vec::new();
    let mut query = RecordQuery::new(collection);
    loop {
        let page = records.find(query.clone()).await.unwrap_or_else(|error| panic!("{error}"));
        all.extend(page.records.into_iter().map(|it| (collection.to_owned(), it.document, it.revision)));
        match page.next {
            Some(next) => query.after = Some(next),
            None => return all,
        }
    }
}

/// Every entry of a stream, and how far it was judged.
pub async fn all_entries(store: &dyn Store, scope: &str, stream: &str) -> (u64, Vec<StreamEntry>) {
    let streams = store.streams(DEFAULT_TENANT, scope).expect("it is declared");
    let mut query = StreamQuery { limit: 1_000, partitions: Partitions::All, ..StreamQuery::new(stream.to_owned()) };
    let mut all = Vec::new();
    loop {
        let page = streams.read(query.clone()).await.expect("it is read");
        if page.entries.is_empty() {
            return (streams.stream(stream).await.expect("it is looked up").progress, all);
        }
        query.from = page.next;
        all.extend(page.entries);
    }
}
