//! Random documents of all types, conditions, sorts and pages: the same records in the same order as in memory.
//!
//! `ANNALS_DIFFERENCE_SEED=n` runs one seed. What was found stays as a named case.

use std::sync::Arc;

use annals_conformance::records::RecordsModel;
use annals_core::bson::spec::BinarySubtype;
use annals_core::bson::{self, Bson, Document, RawDocumentBuf, doc};
use annals_core::order::Direction;
use annals_core::{
    Collection, Condition, DEFAULT_TENANT, Deletion, Fragment, Index, RecordChange, RecordError, RecordQuery, Records,
    SortBy, Store, Test,
};
use annals_mongodb::Options;
use fastrand::Rng;

use crate::server::Databases;

const COLLECTION: &str = "things";

fn pick<T: Clone>(random: &mut Rng, values: &[T]) -> T {
    values[random.usize(0..values.len())].clone()
}

fn number(random: &mut Rng) -> Bson {
    const INT64: [i64; 7] =
        [0, 5, 9_007_199_254_740_992, 9_007_199_254_740_993, -9_007_199_254_740_993, i64::MAX, i64::MIN];
    const DOUBLE: [f64; 12] = [
        0.0,
        -0.0,
        0.5,
        0.1,
        2.5,
        9_007_199_254_740_992.0,
        9_223_372_036_854_775_808.0,
        -1e300,
        5e-324,
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
    ];
    const DECIMAL: [&str; 10] = [
        "0",
        "0.1",
        "0.50",
        "1.000000000000000000000000000000001",
        "9223372036854775808",
        "NaN",
        "-Infinity",
        "1E+6000",
        "-1E-6000",
        "0.3",
    ];
    match random.u8(0..5) {
        0 => Bson::Int64(pick(random, &INT64)),
        1 => Bson::Double(pick(random, &DOUBLE)),
        2 => Bson::Decimal128(pick(random, &DECIMAL).parse().expect("a decimal")),
        _ => Bson::Int32(random.i32(-2..4)),
    }
}

fn scalar(random: &mut Rng) -> Bson {
    match random.u8(0..16) {
        0..=5 => number(random),
        6 => Bson::Null,
        7 | 8 => Bson::from(pick(random, &["", "a", "b", "ab", "Ab", "a\0b", "ä", "äB", "Z", "a.b", "b\n", "\n"])),
        9 => Bson::Boolean(random.bool()),
        10 => bson::DateTime::from_millis(pick(random, &[-5, 0, 5, 1_700_000_000_000])).into(),
        11 => Bson::Timestamp(bson::Timestamp { time: random.u32(0..2), increment: random.u32(0..3) }),
        12 => {
            let subtype = pick(random, &[BinarySubtype::Generic, BinarySubtype::UserDefined(0x80)]);
            Bson::Binary(bson::Binary {
                subtype,
                bytes: (0..random.usize(0..3)).map(|_| random.u8(0..2) * 200).collect(),
            })
        }
        13 => bson::oid::ObjectId::from_bytes([random.u8(0..2); 12]).into(),
        14 => pick(random, &[Bson::MinKey, Bson::MaxKey]),
        _ => Bson::from("a"),
    }
}

fn value(random: &mut Rng, depth: u8) -> Bson {
    match random.u8(0..10) {
        5 | 6 if depth > 0 => Bson::Document(document(random, depth - 1)),
        7..10 if depth > 0 => Bson::Array((0..random.usize(0..4)).map(|_| value(random, depth - 1)).collect()),
        _ => scalar(random),
    }
}

fn document(random: &mut Rng, depth: u8) -> Document {
    let mut names = vec!["a", "b", "c"];
    if random.u8(0..6) == 0 {
        names.push("0");
    }
    random.shuffle(&mut names);
    names
        .into_iter()
        .filter_map(|name| match random.u8(0..40) {
            0 => Some((name.to_owned(), expression(random))),
            1..24 => Some((name.to_owned(), value(random, depth))),
            _ => None,
        })
        .collect()
}

/// An expression as a value, which finds itself.
fn expression(random: &mut Rng) -> Bson {
    let text = |text: &str| text.try_into().expect("without NUL");
    let (pattern, options) = (pick(random, &["a", "^a", "a$", "^"]), pick(random, &["", "i"]));
    Bson::RegularExpression(bson::Regex { pattern: text(pattern), options: text(options) })
}

fn fragment(random: &mut Rng) -> Fragment {
    let fragment = Fragment::new(pick(random, &["", "a", "b", "A", "ab", ".", "Ä", "b\n", "\n"]));
    if random.u8(0..3) == 0 { fragment.ignoring_case() } else { fragment }
}

/// A filter document of MongoDB, of operators that are judged everywhere.
fn raw(random: &mut Rng, depth: u8) -> Document {
    if depth > 0 && random.u8(0..3) == 0 {
        let children: Vec<Bson> = (0..random.usize(1..3)).map(|_| raw(random, depth - 1).into()).collect();
        return doc! { pick(random, &["$and", "$or", "$nor"]): children };
    }
    let operator =
        pick(random, &["$eq", "$ne", "$gt", "$gte", "$lt", "$lte", "$in", "$nin", "$all", "$exists", "$elemMatch"]);
    let value = match operator {
        "$in" | "$nin" | "$all" => Bson::Array((0..random.usize(0..3)).map(|_| scalar(random)).collect()),
        "$exists" => pick(random, &[true.into(), false.into(), 0.into(), Bson::Null, 2.5.into()]),
        "$elemMatch" => raw(random, 0).into(),
        _ => scalar(random),
    };
    let tests = doc! { operator: value };
    let tests = if random.u8(0..4) == 0 {
        doc! { "$not": tests }
    } else {
        tests
    };
    let mut filter = doc! { path(random): tests };
    if random.u8(0..4) == 0 {
        filter.insert(path(random), scalar(random));
    }
    filter
}

fn path(random: &mut Rng) -> String {
    let more = (0..random.usize(0..3)).map(|_| pick(random, &["a", "b", "c", "a", "b", "0", "1"])).collect::<Vec<_>>();
    [vec![pick(random, &["a", "b", "c"])], more].concat().join(".")
}

fn condition(random: &mut Rng, depth: u8) -> Condition {
    if depth > 0 && random.u8(0..3) == 0 {
        let children = (0..random.usize(1..4)).map(|_| condition(random, depth - 1)).collect();
        return match random.u8(0..3) {
            0 => Condition::And(children),
            1 => Condition::Or(children),
            _ => Condition::Nor(children),
        };
    }
    let operand = |random: &mut Rng| {
        let depth = if random.u8(0..4) == 0 { 2 } else { 0 };
        value(random, depth)
    };
    let list = |random: &mut Rng| (0..random.usize(0..4)).map(|_| operand(random)).collect::<Vec<_>>();
    match random.u8(0..24) {
        0 => return Condition::Raw(raw(random, 2)),
        1 => return Condition::deleted(pick(random, &[Deletion::Active, Deletion::Deleted, Deletion::All])),
        _ => {}
    }
    let test = match random.u8(0..16) {
        0 | 1 => Test::Eq(operand(random)),
        2 => Test::Ne(operand(random)),
        3 => Test::Gt(operand(random)),
        4 => Test::Gte(operand(random)),
        5 => Test::Lt(operand(random)),
        6 => Test::Lte(operand(random)),
        7 => Test::In(list(random)),
        8 => Test::NotIn(list(random)),
        9 => Test::Between(operand(random), operand(random)),
        10 => Test::AllIn(list(random)),
        11 => Test::ElemMatch(Box::new(condition(random, depth.saturating_sub(1)))),
        12 => Test::Contains(fragment(random)),
        13 => Test::StartsWith(fragment(random)),
        14 => Test::EndsWith(fragment(random)),
        _ => Test::Exists(random.bool()),
    };
    Condition::field(path(random), test)
}

fn sort(random: &mut Rng) -> Vec<SortBy> {
    let mut sort: Vec<SortBy> = Vec::new();
    for _ in 0..random.usize(0..3) {
        let path = path(random).replace('0', "c").replace('1', "b");
        let apart = |by: &SortBy| !by.path.starts_with(&path) && !path.starts_with(&by.path);
        if sort.iter().all(apart) {
            sort.push(SortBy { path, direction: pick(random, &[Direction::Ascending, Direction::Descending]) });
        }
    }
    sort
}

struct Both {
    store: Arc<dyn Store>,
    records: Arc<dyn Records>,
    model: RecordsModel,
    _databases: Databases,
}

impl Both {
    async fn with(collection: Collection, documents: Vec<Document>) -> Self {
        let databases = Databases::new();
        let store: Arc<dyn Store> = Arc::new(databases.store(Options::default()).await);
        let records = store.records(DEFAULT_TENANT).expect("the tenant");
        let mut model = RecordsModel::default();
        records.declare(collection.clone()).await.expect("declared");
        model.declare(&collection).expect("declared");
        let raw = |document: &Document| RawDocumentBuf::try_from(document).expect("a document");
        let changes: Vec<_> =
            documents.iter().map(|document| RecordChange::insert(COLLECTION, raw(document))).collect();
        assert_eq!(records.write(changes.clone()).await, model.write(&changes));
        Self { store, records, model, _databases: databases }
    }

    /// All pages of a query, and the count of its condition.
    async fn same(&self, query: &RecordQuery) {
        let due = self.model.find(query);
        let found = self.pages(query).await;
        match (&found, &due) {
            (Ok(found), Ok(due)) => {
                let ids = |records: &[annals_core::Record]| -> Vec<Bson> {
                    records
                        .iter()
                        .map(|record| Document::try_from(&*record.document).expect("a document")["_id"].clone())
                        .collect()
                };
                assert_eq!(ids(found), ids(due), "{query:?}");
                assert!(found == due, "{query:?}");
            }
            (Err(found), Err(due)) => assert_eq!(found.code(), due.code(), "{query:?}"),
            _ => panic!("{query:?}: {found:?}, not {due:?}"),
        }
        let counted = self.records.count(COLLECTION, &query.condition).await;
        assert_eq!(counted, self.model.count(COLLECTION, &query.condition), "{query:?}");
    }

    async fn pages(&self, query: &RecordQuery) -> Result<Vec<annals_core::Record>, RecordError> {
        let mut query = query.clone();
        let mut all = Vec::new();
        loop {
            let page = self.records.find(query.clone()).await?;
            all.extend(page.records);
            match page.next {
                None => return Ok(all),
                Some(next) => query.after = Some(next),
            }
        }
    }
}

async fn seed(seed: u64) {
    let mut random = Rng::with_seed(seed);
    let documents = (0..60)
        .map(|id| {
            let mut whole = doc! { "_id": id };
            whole.extend(document(&mut random, 3));
            whole
        })
        .collect();
    let both = Both::with(Collection::new(COLLECTION), documents).await;
    for _ in 0..150 {
        let condition = if random.u8(0..4) == 0 { Condition::All } else { condition(&mut random, 2) };
        let limit = pick(&mut random, &[2, 7, 100]);
        both.same(
            &RecordQuery { sort: sort(&mut random), ..RecordQuery::new(COLLECTION) }.matching(condition).limit(limit),
        )
        .await;
    }
    both.store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_queries_find_the_same_in_the_same_order() {
    match std::env::var("ANNALS_DIFFERENCE_SEED") {
        Ok(one) => seed(one.parse().expect("a number")).await,
        Err(_) => {
            for one in 0..4 {
                seed(one).await;
            }
        }
    }
}

/// Documents that the server would change or not take on the ordinary way come back as they were, inserted and replaced.
#[tokio::test]
async fn odd_documents_are_kept_as_they_are() {
    let empty = Bson::Timestamp(bson::Timestamp { time: 0, increment: 0 });
    let odd = vec![
        doc! { "_id": 1, "$set": { "a": 1 }, "t": empty.clone() },
        doc! { "z": "$a", "_id": { "x": 1 }, "t": empty },
    ];
    let both = Both::with(Collection::new(COLLECTION), odd.clone()).await;
    for document in &odd {
        let document = RawDocumentBuf::try_from(document).expect("a document");
        both.records.write(vec![RecordChange::put(COLLECTION, document.clone())]).await.expect("replaced");
        let id = Bson::try_from(document.get("_id").expect("readable").expect("an id")).expect("a value");
        let found = both.records.get(COLLECTION, &id).await.expect("read").expect("there");
        assert_eq!(found.document, document);
    }
    both.store.close().await;
}

/// A condition that is nested too deep for the server, and a dollar in a list.
#[tokio::test]
async fn what_the_server_would_not_read_is_judged_all_the_same() {
    let documents = (0..30).map(|id| doc! { "_id": id, "n": id % 3, "d": { "$x": id } }).collect();
    let both = Both::with(Collection::new(COLLECTION).index(Index::on("n")), documents).await;
    let deep = (0..90).fold(Condition::eq("n", 1), |inner, _| Condition::Nor(vec![inner]));
    let dollar = Condition::is_in("d", [Bson::Document(doc! { "$x": 4 }), Bson::Document(doc! { "$x": 9 })]);
    for condition in [deep, dollar] {
        both.same(&RecordQuery::new(COLLECTION).matching(condition).limit(4).descending("n")).await;
    }
    both.store.close().await;
}
