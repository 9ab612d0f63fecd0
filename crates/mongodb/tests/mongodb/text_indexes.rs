//! Text indexes on the server: how they are made, and those that are there already.

use annals_core::bson::{Bson, Document, RawDocumentBuf, doc};
use annals_core::{
    Code, Collection, Condition, DEFAULT_TENANT, Index, RecordChange, RecordQuery, Records, Store, TextLanguage,
};
use annals_mongodb::Options;
use futures_util::TryStreamExt;

use crate::server::Databases;

/// The text indexes of a collection, as the server lists them.
async fn listed(databases: &Databases, collection: &str) -> Vec<Document> {
    let database = databases.database().await;
    let indexes = database.run_command(doc! { "listIndexes": collection }).await.expect("listed");
    let batch = indexes.get_document("cursor").and_then(|cursor| cursor.get_array("firstBatch")).expect("indexes");
    let indexes = batch.iter().filter_map(Bson::as_document);
    indexes.filter(|index| index.contains_key("weights")).cloned().collect()
}

fn notes(paths: &[&str]) -> Collection {
    Collection::new("notes").index(Index::text(paths.iter().copied()))
}

async fn found(records: &dyn Records, search: &str) -> Vec<i32> {
    let query = RecordQuery::new("notes").matching(Condition::matching_text(search));
    let page = records.find(query).await.expect("found");
    page.records.iter().map(|record| record.document.get_i32("_id").expect("an id")).collect()
}

/// Words are what stands in a text, whatever a document says about its language.
#[tokio::test]
async fn a_text_index_has_no_language() {
    let databases = Databases::new();
    let store = databases.store(Options::default()).await;
    let records = store.records(DEFAULT_TENANT).expect("the tenant is declared");
    for _ in 0..2 {
        records.declare(notes(&["title", "body.text"])).await.expect("declared");
    }
    let there = listed(&databases, "notes").await;
    assert_eq!(there.len(), 1);
    let due = [
        ("name", Bson::from("title_text_body.text_text")),
        ("weights", doc! { "body.text": 1, "title": 1 }.into()),
        ("default_language", "none".into()),
        ("textIndexVersion", 3.into()),
    ];
    due.iter().for_each(|(name, due)| assert_eq!(there[0].get(name), Some(due), "{name}"));
    let note =
        |document: Document| RecordChange::insert("notes", RawDocumentBuf::try_from(&document).expect("encodes"));
    let changes = vec![
        note(doc! { "_id": 1, "title": "The orders of the day", "language": "english" }),
        note(doc! { "_id": 2, "title": "the order", "language": 5 }),
        note(doc! { "_id": 3, "body": [{ "text": "orders", "language": "klingon" }] }),
    ];
    records.write(changes).await.expect("written");
    assert_eq!(found(&*records, "orders").await, [1, 3]);
    assert_eq!(found(&*records, "the").await, [1, 2]);
    store.close().await;
}

/// With a language the server compares the stems of words and leaves out its stop words, and documents do not choose another.
#[tokio::test]
async fn a_text_index_with_a_language_finds_words_by_their_stems() {
    let databases = Databases::new();
    let store = databases.store(Options::default()).await;
    let records = store.records(DEFAULT_TENANT).expect("the tenant is declared");
    let english = || Collection::new("notes").index(Index::text(["title"]).language(TextLanguage::English));
    for _ in 0..2 {
        records.declare(english()).await.expect("declared");
    }
    assert_eq!(listed(&databases, "notes").await[0].get("default_language"), Some(&Bson::from("english")));
    let note =
        |document: Document| RecordChange::insert("notes", RawDocumentBuf::try_from(&document).expect("encodes"));
    let changes = vec![
        note(doc! { "_id": 1, "title": "The orders of the day", "language": "german" }),
        note(doc! { "_id": 2, "title": "ordering is the rule" }),
        note(doc! { "_id": 3, "title": "disorder" }),
    ];
    records.write(changes).await.expect("written");
    assert_eq!(found(&*records, "order").await, [1, 2]);
    assert_eq!(found(&*records, "the").await, [0; 0]);
    let collections = records.collections().await.expect("listed");
    assert_eq!(collections[0].text_index().map(|index| index.language), Some(TextLanguage::English));
    let error = records.declare(notes(&["title"])).await.expect_err("it has a language");
    assert_eq!(error.code(), Code::IndexConflict);
    store.close().await;
}

/// One that is the same serves under the name that it has. One that is another is not replaced, and it is said.
#[tokio::test]
async fn a_text_index_of_other_software_is_used_or_refused() {
    let databases = Databases::new();
    let database = databases.database().await;
    let store = databases.store(Options::default()).await;
    let records = store.records(DEFAULT_TENANT).expect("the tenant is declared");
    records.declare(notes(&["b", "a"])).await.expect("declared");
    let made = listed(&databases, "notes").await.remove(0);
    let key = || doc! { "b": "text", "a": "text" };
    let same = doc! {
        "key": key(), "name": "words", "default_language": "none",
        "language_override": made.get_str("language_override").expect("a name"),
    };
    let others = [
        doc! { "key": key(), "name": "b_text_a_text" },
        doc! { "key": key(), "name": "words" },
        doc! { "key": key(), "name": "words", "weights": { "a": 2 }, "default_language": "none" },
        doc! { "key": { "n": 1, "a": "text", "b": "text" }, "name": "words", "default_language": "none" },
    ];
    for (n, index) in [same].into_iter().chain(others).enumerate() {
        let name = format!("other-{n}");
        let make = doc! { "createIndexes": &name, "indexes": [index] };
        database.run_command(make).await.expect("made");
        let declared = records.declare(Collection { name: name.clone(), ..notes(&["b", "a"]) }).await;
        match n {
            0 => declared.expect("it is the same"),
            _ => assert_eq!(declared.expect_err("it is another").code(), Code::IndexConflict, "{n}"),
        }
        assert_eq!(listed(&databases, &name).await.len(), 1);
    }
    store.close().await;
}

/// Pages of a search are those of one order, also where a part of the condition is judged by the process.
#[tokio::test]
async fn a_search_beside_what_the_server_would_not_read_is_judged() {
    let databases = Databases::new();
    let store = databases.store(Options::default()).await;
    let records = store.records(DEFAULT_TENANT).expect("the tenant is declared");
    records.declare(notes(&["t"])).await.expect("declared");
    let note = |n: i32| doc! { "_id": n, "t": if n % 2 == 0 { "even" } else { "odd" }, "n": n % 3 };
    let insert = |n| RecordChange::insert("notes", RawDocumentBuf::try_from(&note(n)).expect("encodes"));
    records.write((0..30).map(insert).collect()).await.expect("written");
    let deep = (0..90).fold(Condition::eq("n", 1), |inner, _| Condition::Nor(vec![inner]));
    let condition = Condition::And(vec![deep, Condition::matching_text("even")]);
    assert_eq!(records.count("notes", &condition).await, Ok(5));
    let mut query = RecordQuery::new("notes").matching(condition).descending("n").limit(2);
    let mut ids = Vec::new();
    loop {
        let page = records.find(query.clone()).await.expect("found");
        ids.extend(page.records.iter().map(|record| record.document.get_i32("_id").expect("an id")));
        let Some(next) = page.next else { break };
        query.after = Some(next);
    }
    assert_eq!(ids, [28, 22, 16, 10, 4]);
    let words: Vec<Document> = {
        let find = databases.database().await.collection("notes").find(doc! { "$text": { "$search": "even" } }).await;
        find.expect("searched").try_collect().await.expect("searched")
    };
    assert_eq!(words.len(), 15, "the server has the same words");
    store.close().await;
}
