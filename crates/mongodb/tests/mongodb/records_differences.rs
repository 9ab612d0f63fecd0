//! Random documents of all types and random queries: the embedded store, with and without indexes, and a real mongod find the same records
//! in the same order; of every fourth they count how many there are and page through them, too.
//!
//! Every set of documents is asked many queries. What differs is made as small as it can be and printed as a line; lines that were found
//! stay in `differences.jsonl`. `ANNALS_DIFFERENCE_SET=n` runs one set, `ANNALS_SOAK_SECONDS=n` more sets than those of every run, for so
//! long.

mod changes;
mod documents;
mod groups;
mod in_order;
mod kept;
mod letters;
mod pair;
mod projections;
mod queries;
mod texts;
mod windows;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use annals_core::bson::{Bson, Document, doc};
use annals_core::{Condition, Index, RecordQuery};
use futures_util::stream::{self, StreamExt};
use proptest::strategy::{BoxedStrategy, Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use self::documents::Held;
use self::kept::Case;
use self::pair::{Answer, Loaded, Pair};

/// What is asked in every run: 20,160 queries.
const SETS: u64 = 84;
const QUERIES: usize = 240;
const DOCUMENTS: usize = 30;

/// Sets that are asked at once.
const AT_ONCE: usize = 6;

/// Some documents, their indexes, and how to make queries of them: all that follows from a number.
struct Set {
    documents: Vec<Document>,
    indexes: Vec<Index>,
    queries: BoxedStrategy<RecordQuery>,
    runner: TestRunner,
}

impl Set {
    fn new(number: u64) -> Self {
        Self::of(number, DOCUMENTS)
    }

    fn of(number: u64, count: usize) -> Self {
        let mut seed = [0; 32];
        seed[..8].copy_from_slice(&number.to_le_bytes());
        let random = TestRng::from_seed(RngAlgorithm::ChaCha, &seed);
        let mut runner = TestRunner::new_with_rng(Config { failure_persistence: None, ..Config::default() }, random);
        let documents = made(&documents::documents(count), &mut runner).current();
        let held = Held::by(&documents);
        let indexes = made(&queries::indexes(&held), &mut runner).current();
        Self { documents, indexes, queries: queries::query(&held), runner }
    }

    fn next_query(&mut self) -> Box<dyn ValueTree<Value = RecordQuery>> {
        made(&self.queries, &mut self.runner)
    }
}

fn made<V: std::fmt::Debug + 'static>(
    strategy: &BoxedStrategy<V>,
    runner: &mut TestRunner,
) -> Box<dyn ValueTree<Value = V>> {
    strategy.new_tree(runner).expect("a strategy without filters always makes one")
}

/// Queries by what they found, to see that they ask something.
#[derive(Default)]
struct Asked {
    none: AtomicU64,
    some: AtomicU64,
    all: AtomicU64,
    refused: AtomicU64,
}

impl Asked {
    fn add(&self, answer: &Answer, documents: usize) {
        let kind = match answer {
            Err(_) => &self.refused,
            Ok(found) if found.is_empty() => &self.none,
            Ok(found) if found.len() == documents => &self.all,
            Ok(_) => &self.some,
        };
        kind.fetch_add(1, Ordering::Relaxed);
    }

    fn numbers(&self) -> [u64; 4] {
        [&self.none, &self.some, &self.all, &self.refused].map(|kind| kind.load(Ordering::Relaxed))
    }
}

/// Asks all queries of a set. Answers the number of the first that is answered in different ways, and why; none is that of making it.
async fn differs(pair: Arc<Pair>, number: u64, asked: Arc<Asked>) -> Option<(Option<usize>, String)> {
    let (documents, indexes, queries) = {
        let mut set = Set::new(number);
        let queries: Vec<_> = (0..QUERIES).map(|_| set.next_query().current()).collect();
        (set.documents, set.indexes, queries)
    };
    let loaded = match pair.load(&format!("set-{number}"), &documents, &indexes).await {
        Ok(loaded) => loaded,
        Err(why) => return Some((None, why)),
    };
    for (n, query) in queries.iter().enumerate() {
        let answer = match n % 4 {
            0 => loaded.ask(query).await,
            _ => loaded.find(query).await,
        };
        match answer {
            Ok(answer) => asked.add(&answer, documents.len()),
            Err(why) => return Some((Some(n), why)),
        }
    }
    None
}

/// The smallest case that can be made of a query that is answered in different ways.
struct Shrinking<'p> {
    pair: &'p Pair,
    made: u32,
}

impl Shrinking<'_> {
    async fn of(&mut self, number: u64, query: usize) -> Case {
        let mut set = Set::new(number);
        let mut tree = (0..=query).map(|_| set.next_query()).last().expect("a query");
        let mut case = Case { documents: set.documents, indexes: set.indexes, query: tree.current() };
        let loaded = self.load(&case).await.expect("it was made before");
        let mut simpler = tree.simplify();
        while simpler {
            let query = tree.current();
            simpler = match loaded.ask(&query).await {
                Ok(_) => tree.complicate(),
                Err(_) => {
                    case.query = query;
                    tree.simplify()
                }
            };
        }
        self.without_indexes(&mut case).await;
        self.fewer_documents(&mut case).await;
        self.fewer_fields(&mut case).await;
        case
    }

    async fn without_indexes(&mut self, case: &mut Case) {
        for at in (0..case.indexes.len()).rev() {
            let mut fewer = case.clone();
            fewer.indexes.remove(at);
            self.take(case, fewer).await;
        }
    }

    async fn fewer_documents(&mut self, case: &mut Case) {
        for count in [20, 10, 5, 2, 1] {
            for at in (0..case.documents.len()).rev().step_by(count) {
                let mut fewer = case.clone();
                let first = at.saturating_sub(count - 1);
                fewer.documents.drain(first..=at.min(fewer.documents.len().saturating_sub(1)));
                self.take(case, fewer).await;
            }
        }
    }

    async fn fewer_fields(&mut self, case: &mut Case) {
        for document in 0..case.documents.len() {
            for name in case.documents[document].clone().keys().filter(|name| *name != "_id") {
                let mut fewer = case.clone();
                fewer.documents[document].remove(name);
                self.take(case, fewer).await;
            }
        }
    }

    /// Takes the other case if it is answered in different ways, too.
    async fn take(&mut self, case: &mut Case, other: Case) {
        if let Ok(loaded) = self.load(&other).await
            && loaded.ask(&other.query).await.is_err()
        {
            *case = other;
        }
    }

    async fn load(&mut self, case: &Case) -> Result<Loaded, String> {
        self.made += 1;
        self.pair.load(&format!("smaller-{}", self.made), &case.documents, &case.indexes).await
    }
}

/// Runs sets until one differs or the time is over; at least those of every run.
async fn run(pair: &Arc<Pair>, sets: std::ops::Range<u64>, asked: &Arc<Asked>) -> Result<(), String> {
    let running = sets.map(|number| {
        let set = differs(pair.clone(), number, asked.clone());
        async move { (number, tokio::spawn(set).await.expect("the set is asked")) }
    });
    let differing: Vec<_> = stream::iter(running)
        .buffer_unordered(AT_ONCE)
        .filter_map(async |(number, differs)| Some((number, differs?)))
        .collect()
        .await;
    let mut shrinking = Shrinking { pair, made: 0 };
    let mut report = String::new();
    for (number, (query, why)) in differing.into_iter().take(8) {
        report += &format!("set {number}, query {query:?} {why}\n");
        if let Some(query) = query {
            let case = shrinking.of(number, query).await;
            let why = match shrinking.load(&case).await {
                Ok(loaded) => loaded.ask(&case.query).await.err(),
                Err(why) => Some(why),
            };
            report += &format!("smallest: {}\n{}\n\n", why.unwrap_or_default(), case.written());
        }
    }
    if report.is_empty() { Ok(()) } else { Err(report) }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[expect(clippy::disallowed_methods, reason = "a longer run ends by the time that it was given")]
async fn random_queries_find_the_same_as_mongodb_in_the_same_order() {
    let pair = Arc::new(Pair::open().await);
    let asked = Arc::new(Asked::default());
    let begun = Instant::now();
    if let Some(one) = number("ANNALS_DIFFERENCE_SET") {
        run(&pair, one..one + 1, &asked).await.unwrap_or_else(|report| panic!("{report}"));
        return;
    }
    let longer = number("ANNALS_SOAK_SECONDS").map(Duration::from_secs);
    let mut first = 0;
    loop {
        run(&pair, first..first + SETS, &asked).await.unwrap_or_else(|report| panic!("{report}"));
        first += SETS;
        if longer.is_none_or(|longer| begun.elapsed() >= longer) {
            break;
        }
    }
    let [none, some, all, refused] = asked.numbers();
    let whole = none + some + all + refused;
    println!(
        "{whole} queries in {:?}: {none} find nothing, {some} something, {all} everything, {refused} are refused",
        begun.elapsed()
    );
    assert!(whole >= 20_000, "only {whole} queries were asked");
    assert!(
        some * 4 >= whole && refused * 4 <= whole,
        "{some} of {whole} queries tell documents apart, {refused} are refused"
    );
    Arc::into_inner(pair).expect("nobody asks any more").close().await;
}

/// More documents than a store looks at in one go, so that it goes on inside ranges and behind pages.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_sets_are_found_piece_by_piece_in_the_same_order() {
    const LARGE: usize = 1_200;
    let pair = Pair::open().await;
    for number in 0..2 {
        let mut set = Set::of(number, LARGE);
        let queries: Vec<_> = (0..24).map(|_| set.next_query().current()).collect();
        let loaded = pair.load(&format!("large-{number}"), &set.documents, &set.indexes).await.expect("loaded");
        let mut most = 0;
        for (n, query) in queries.into_iter().enumerate() {
            let query = query.limit([1_000, 400, 150][n % 3]);
            let answer = loaded.find(&query).await;
            let answer = answer.unwrap_or_else(|why| panic!("set {number}, query {n} {why}\n{query:?}"));
            most = most.max(answer.map_or(0, |found| found.len()));
        }
        assert!(most > 1_000, "no query finds more than {most}");
    }
    pair.close().await;
}

/// What was found, one case a line; empty lines and lines that begin with `#` say why.
const KEPT: &str = include_str!("records_differences/differences.jsonl");

#[tokio::test]
async fn cases_that_differed_once_do_not_any_more() {
    let pair = Pair::open().await;
    let lines = KEPT.lines().enumerate().filter(|(_, line)| line.starts_with('{'));
    for (n, line) in lines {
        let case = Case::read(line);
        assert_eq!(case.written(), line, "the line {} is written as it is read", n + 1);
        let loaded = pair.load(&format!("kept-{n}"), &case.documents, &case.indexes).await;
        let answer = loaded.unwrap_or_else(|why| panic!("line {}: {why}", n + 1)).ask(&case.query).await;
        answer.unwrap_or_else(|why| panic!("line {}: {why}\n{line}", n + 1)).ok();
    }
    pair.close().await;
}

/// Documents that the server would change or not take on the ordinary way come back as they were, inserted and replaced.
#[tokio::test]
async fn odd_documents_are_kept_as_they_are() {
    use annals_core::RecordChange;
    use annals_core::bson::RawDocumentBuf;

    let empty = Bson::Timestamp(annals_core::bson::Timestamp { time: 0, increment: 0 });
    let odd = vec![
        doc! { "_id": 1, "$set": { "a": 1 }, "t": empty.clone() },
        doc! { "z": "$a", "_id": { "x": 1 }, "t": empty },
    ];
    let pair = Pair::open().await;
    let loaded = pair.load("things", &odd, &[]).await.expect("loaded");
    for document in &odd {
        let document = RawDocumentBuf::try_from(document).expect("a document");
        loaded.mongodb().write(vec![RecordChange::put(loaded.collection(), document.clone())]).await.expect("replaced");
        let id = Bson::try_from(document.get("_id").expect("readable").expect("an id")).expect("a value");
        let found = loaded.mongodb().get(&loaded.collection(), &id).await.expect("read").expect("there");
        assert_eq!(found.document, document);
    }
    pair.close().await;
}

/// A condition that is nested too deep for the server, and a dollar in a list.
#[tokio::test]
async fn what_the_server_would_not_read_is_judged_all_the_same() {
    let documents: Vec<_> = (0..30).map(|id| doc! { "_id": id, "n": id % 3, "d": { "$x": id } }).collect();
    let pair = Pair::open().await;
    let loaded = pair.load("things", &documents, &[Index::on("n").into()]).await.expect("loaded");
    let deep = (0..90).fold(Condition::eq("n", 1), |inner, _| Condition::Nor(vec![inner]));
    let dollar = Condition::is_in("d", [Bson::Document(doc! { "$x": 4 }), Bson::Document(doc! { "$x": 9 })]);
    for condition in [deep, dollar] {
        let query = RecordQuery::new("").matching(condition).limit(4).descending("n");
        let found = loaded.ask(&query).await.unwrap_or_else(|why| panic!("{why}")).expect("found");
        assert!(!found.is_empty());
    }
    pair.close().await;
}
