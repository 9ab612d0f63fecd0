//! Words: documents with texts and searches of all kinds are found alike by the embedded store and a real mongod, and every character is
//! what the mongod says that it is: between words, in a word as it is or as another letter, or left out.

use std::sync::Arc;

use annals_core::bson::{Bson, Document, doc};
use annals_core::order::Direction::{Ascending, Descending};
use annals_core::{Condition, Index, RecordQuery, SortBy, TextSearch};
use futures_util::TryStreamExt;
use mongodb::Database;
use proptest::prelude::*;
use proptest::sample::{Index as Place, select};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use super::made;
use super::pair::Pair;
use crate::server::Databases;

/// What is asked in every run: 1,440 queries.
const SETS: u64 = 12;
const QUERIES: usize = 120;
const DOCUMENTS: usize = 30;

/// Words that are the same without case and accents, or just are not, and words that begin alike.
const WORDS: [&str; 38] = [
    "cafe",
    "Café",
    "CAFE\u{301}",
    "caf",
    "straße",
    "STRASSE",
    "ſtraße",
    "İstanbul",
    "istanbul",
    "Istanbul",
    "ı",
    "ΣΟΦΟΣ",
    "σοφος",
    "naïve",
    "naive",
    "e",
    "É",
    "a_b",
    "a",
    "b",
    "A",
    "日本",
    "日",
    "ﬁ",
    "Ǆ",
    "ǆ",
    "\u{301}",
    "\u{feff}a",
    "1",
    "5",
    "ё",
    "е",
    "Й",
    "й",
    "\u{1e9e}",
    "K",
    "k",
    "\u{345}",
];

/// What stands between words, or looks as if it did.
const BETWEEN: [&str; 24] = [
    " ", " ", " ", " ", "-", ", ", "'", "\"", "\t", "\n", "\u{a0}", "…", "—", ".", "_", "^", "`", "", "\u{b}", "≠",
    "=", "‐", "\u{2000}", " -",
];

fn word() -> BoxedStrategy<String> {
    let long = select(vec!["", "y", "ä"]).prop_map(|end| "x".repeat(255) + end);
    prop_oneof![12 => select(WORDS.as_slice()).prop_map(str::to_owned), 1 => long].boxed()
}

fn text() -> BoxedStrategy<String> {
    let pieces = prop::collection::vec((select(BETWEEN.as_slice()), word()), 0..6);
    let joined =
        pieces.prop_map(|pieces| pieces.into_iter().flat_map(|(between, word)| [between.to_owned(), word]).collect());
    (joined, 0..16_u8).prop_map(|(text, cut): (String, _)| if cut == 0 { format!("{text}\0b") } else { text }).boxed()
}

/// Texts and what is none, in documents and arrays.
fn value() -> BoxedStrategy<Bson> {
    let other = select(vec![Bson::Null, 5.into(), Bson::Symbol("a".to_owned())]);
    let leaf = prop_oneof![8 => text().prop_map(Bson::from), 1 => other];
    leaf.prop_recursive(3, 8, 3, |inner| {
        let fields = (inner.clone(), inner.clone(), any::<bool>());
        let document = fields.prop_map(|(a, b, both)| {
            if both {
                doc! { "a": a, "b": b }
            } else {
                doc! { "a": a }
            }
        });
        prop_oneof![
            2 => prop::collection::vec(inner, 0..3).prop_map(Bson::Array),
            2 => document.prop_map(Bson::Document),
        ]
    })
    .boxed()
}

fn documents() -> BoxedStrategy<Vec<Document>> {
    let document = (value(), value(), text(), 0..4_i32)
        .prop_map(|(t, u, x, n)| doc! { "t": t, "u": u, "t-x": x, "n": n, "language": "b" });
    let numbered = |documents: Vec<Document>| {
        let whole = |(id, fields): (usize, Document)| {
            let mut whole = doc! { "_id": format!("id-{id:02}") };
            whole.extend(fields);
            whole
        };
        documents.into_iter().enumerate().map(whole).collect()
    };
    prop::collection::vec(document, DOCUMENTS).prop_map(numbered).boxed()
}

/// The fields of an index. Not every one leads to texts, and in the order of bytes one stands between another and what is inside it.
fn paths() -> BoxedStrategy<Vec<&'static str>> {
    let sets = [
        vec!["t"],
        vec!["t", "u"],
        vec!["t", "t.a"],
        vec!["u.b", "t.a", "u"],
        vec!["t-x", "t.a", "u"],
        vec!["_id", "t", "t.a.b"],
    ];
    select(sets.to_vec()).boxed()
}

/// Every text that a document has.
fn texts(value: &Bson, found: &mut Vec<String>) {
    match value {
        Bson::String(text) => found.push(text.replace('\0', " ")),
        Bson::Array(values) => values.iter().for_each(|value| texts(value, found)),
        Bson::Document(inner) => inner.values().for_each(|value| texts(value, found)),
        _ => {}
    }
}

/// A piece of a text, from and to anywhere.
fn piece(held: &Arc<[String]>) -> BoxedStrategy<String> {
    let held = held.clone();
    (any::<Place>(), any::<Place>(), 1..12_usize)
        .prop_map(move |(text, from, count)| {
            let letters: Vec<char> = held[text.index(held.len())].chars().collect();
            let from = from.index(letters.len() + 1);
            letters.into_iter().skip(from).take(count).collect()
        })
        .boxed()
}

fn search(held: &Arc<[String]>) -> BoxedStrategy<String> {
    let words = prop::collection::vec((word(), select(BETWEEN.as_slice())), 1..3);
    let words = words.prop_map(|words| words.into_iter().map(|(word, between)| word + between).collect::<String>());
    let phrase = prop_oneof![2 => piece(held), 1 => words.clone()].prop_map(|phrase| format!("\"{phrase}\""));
    let part = prop_oneof![
        8 => words,
        4 => piece(held),
        3 => phrase.clone(),
        1 => word().prop_map(|word| format!("-{word}")),
        1 => phrase.prop_map(|phrase| format!("-{phrase}")),
        1 => select(vec!["-", "\"", "--a", "\"\"", "-\"", "- b"]).prop_map(str::to_owned),
    ];
    let blank = select(vec![" ", " ", " ", " ", "\n", "\t", ""]);
    prop::collection::vec((part, blank), 1..4)
        .prop_map(|parts| parts.into_iter().map(|(part, blank)| part + blank).collect())
        .boxed()
}

fn query(held: &Arc<[String]>) -> BoxedStrategy<RecordQuery> {
    let condition = (search(held), 0..6_i32).prop_map(|(search, n)| match n {
        0..3 => Condition::matching_text(search),
        3 => Condition::And(vec![Condition::eq("n", 1), Condition::matching_text(search)]),
        4 => Condition::And(vec![
            Condition::And(vec![Condition::matching_text(search)]),
            Condition::or([Condition::lt("n", 2), Condition::contains("t", "a")]),
        ]),
        _ => {
            Condition::And(vec![Condition::matching_text(search), Condition::ne("n", 0), Condition::gt("_id", "id-05")])
        }
    });
    let by = |path: &str, direction| vec![SortBy { path: path.to_owned(), direction }];
    let sort = select(vec![vec![], vec![], by("n", Ascending), by("n", Descending), by("_id", Descending)]);
    (condition, sort, select(vec![1_000_usize, 1_000, 7, 2]))
        .prop_map(|(condition, sort, limit)| RecordQuery {
            sort,
            ..RecordQuery::new("").matching(condition).limit(limit)
        })
        .boxed()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_searches_find_the_same_as_mongodb_in_the_same_order() {
    let pair = Pair::open().await;
    let [mut none, mut some, mut all] = [0; 3];
    for set in 0..SETS {
        let mut seed = [1; 32];
        seed[..8].copy_from_slice(&set.to_le_bytes());
        let random = TestRng::from_seed(RngAlgorithm::ChaCha, &seed);
        let mut runner = TestRunner::new_with_rng(Config { failure_persistence: None, ..Config::default() }, random);
        let documents = made(&documents(), &mut runner).current();
        let index = Index::text(made(&paths(), &mut runner).current());
        let mut held = Vec::new();
        documents.iter().for_each(|document| texts(&Bson::Document(document.clone()), &mut held));
        let queries = query(&held.into());
        let loaded = pair
            .load(&format!("texts-{set}"), &documents, &[index.clone().into(), Index::on("n").into()])
            .await
            .expect("loaded");
        for n in 0..QUERIES {
            let query = made(&queries, &mut runner).current();
            let answer = if n % 4 == 0 { loaded.ask(&query).await } else { loaded.find(&query).await };
            let answer =
                answer.unwrap_or_else(|why| panic!("set {set}, query {n} {why}\n{query:?}\n{index:?}\n{documents:#?}"));
            match answer.expect("it is not refused").len() {
                0 => none += 1,
                DOCUMENTS => all += 1,
                _ => some += 1,
            }
        }
    }
    println!("{none} searches find nothing, {some} something, {all} everything");
    assert!(
        none + some + all >= 1_000 && some * 2 >= none,
        "{some} searches tell documents apart, {none} find nothing"
    );
    pair.close().await;
}

/// Whatever else is asked, the documents that have one of the words are read, and no others.
#[tokio::test]
async fn a_search_reads_what_has_its_words() {
    let pair = Pair::open().await;
    let text = |id: i32| if id % 10 == 0 { "a needle in it" } else { "hay" };
    let documents: Vec<_> = (0..100).map(|id| doc! { "_id": id, "t": text(id), "n": id % 2 }).collect();
    let indexes = [Index::text(["t"]).into(), Index::on("n").into()];
    let loaded = pair.load("hay", &documents, &indexes).await.expect("loaded");
    let condition = Condition::and([Condition::eq("n", 0), Condition::matching_text("needle \"in it\" -hay")]);
    for records in [loaded.embedded(), loaded.mongodb()] {
        let query = RecordQuery::new(loaded.collection()).matching(condition.clone()).descending("n");
        let explained = records.explain(query).await.expect("it is explained");
        assert_eq!(explained.index.as_deref(), Some("t_text"));
        assert_eq!((explained.found, explained.sorted), (10, true));
        // The server reads a document once for its words and once for the rest of the condition.
        assert!(matches!(explained.documents_examined, 10 | 20), "{explained:?}");
    }
    pair.close().await;
}

/// All planes in which Unicode has characters, and some of those in which it has none.
fn characters() -> impl Iterator<Item = char> {
    (1..0x3_3000_u32).chain(0xE_0000..0xE_0200).chain(0x10_FF00..=0x10_FFFF).filter_map(char::from_u32)
}

/// The words that the server looks for.
async fn words_of(database: &Database, search: &str) -> Vec<String> {
    let find = doc! { "find": "words", "filter": { "$text": { "$search": search } } };
    let command = doc! { "explain": find, "verbosity": "queryPlanner" };
    let answer = database.run_command(command).await.expect("it is explained");
    let planner = answer.get_document("queryPlanner").expect("a planner");
    let mut stage = planner.get_document("winningPlan").expect("a plan");
    loop {
        if let Ok(parsed) = stage.get_document("parsedTextQuery") {
            let words = parsed.get_array("terms").expect("its words");
            return words.iter().map(|word| word.as_str().expect("a word").to_owned()).collect();
        }
        stage = stage.get_document("inputStage").expect("a plan looks for words");
    }
}

async fn with_text_index(database: &Database) {
    let index = doc! { "key": { "t": "text" }, "name": "t_text", "default_language": "none" };
    database.run_command(doc! { "createIndexes": "words", "indexes": [index] }).await.expect("an index");
}

#[tokio::test]
async fn every_character_is_in_a_word_what_mongodb_says() {
    let databases = Databases::new();
    let database = databases.database().await;
    with_text_index(&database).await;
    // Each between others that name it, so that nothing it does can be taken for another's doing.
    let around = |letter: char| format!("k{}m{letter}z", u32::from(letter));
    let all: Vec<char> = characters().collect();
    for some in all.chunks(500) {
        let search = some.iter().map(|letter| around(*letter) + " ").collect::<String>();
        let ours: Vec<String> = TextSearch::new(&search).words().map(str::to_owned).collect();
        let theirs = words_of(&database, &search).await;
        let differ: Vec<_> = ours.iter().filter(|word| !theirs.contains(word)).collect();
        assert!(ours == theirs, "{differ:?} are no words on MongoDB");
    }
}

/// A phrase with the letters that they are taken for is found in a text of all characters, one after the other.
#[tokio::test]
async fn every_character_is_in_a_phrase_what_mongodb_says() {
    let databases = Databases::new();
    let database = databases.database().await;
    with_text_index(&database).await;
    let all: Vec<char> = characters().filter(|letter| *letter != '"' && *letter != '＂').collect();
    let words = database.collection::<Document>("words");
    for (n, some) in all.chunks(2_000).enumerate() {
        let text = some.iter().map(|letter| format!("{letter}m")).collect::<String>();
        let phrase = TextSearch::new(&format!("\"{text}\"")).phrases().next().expect("a phrase").to_owned();
        words.insert_one(doc! { "_id": n as i64, "t": format!("k{n}k {text}") }).await.expect("inserted");
        let found = words.find(doc! { "$text": { "$search": format!("k{n}k \"{phrase}\"") } }).await.expect("searched");
        let found: Vec<Document> = found.try_collect().await.expect("searched");
        assert_eq!(found.len(), 1, "of {:?} to {:?}", some.first(), some.last());
    }
}
