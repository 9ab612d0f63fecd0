//! Documents of other software that are not as they must be: the error names the collection, the `_id` and the field, and what to do; what
//! has nothing to do with them goes on.

use annals_core::{
    Aggregate, AggregateIdsQuery, AggregateQuery, Code, CommitError, Included, LogQuery, NewCommit, Reserve, Store,
    StreamQuery, Verdicts,
};
use annals_mongodb::Options;
use mongodb::bson::{Bson, Document, doc};

use crate::server::{Databases, log_of, order, wow_commit};

/// Sees that the error is about a document, and says all of this.
fn names(code: Code, error: &impl ToString, said: &[&str]) {
    let error = error.to_string();
    assert_eq!(code, Code::MalformedDocument, "{error}");
    for part in said {
        assert!(error.contains(part), "{part} in {error}");
    }
    assert!(
        ["correct it", "correct or delete it", "put it back"].iter().any(|advice| error.contains(advice)),
        "{error}"
    );
    assert!(!error.contains("damaged") && !error.contains("cut the log"), "{error}");
}

#[tokio::test]
async fn a_prepare_key_whose_time_is_no_date_is_named() {
    let databases = Databases::new();
    let store = databases.store(Options::default()).await;
    let log = log_of(&store);
    let reserve = |id: &str, key: &str| -> NewCommit {
        order(id, 1).reserve(Reserve::new("user", key, serde_json::from_str("1").expect("a value")))
    };
    log.commit(reserve("a", "eva")).await.expect("committed");
    let keys = databases.database().await.collection::<Document>("prepare_user");
    keys.insert_one(doc! { "_id": "tom", "value": 1, "ttlAt": 5_i64 }).await.expect("inserted");
    let error = log.commit(reserve("b", "tom")).await.expect_err("refused");
    names(error.code(), &error, &[&format!("{}.prepare_user", databases.name), "\"tom\"", "ttlAt is not a date"]);
    log.commit(reserve("b", "eve")).await.expect("other keys go on");
    store.close().await;
}

#[tokio::test]
async fn a_commit_that_cannot_be_read_is_named_and_only_its_aggregate_is_stopped() {
    let databases = Databases::new();
    let store = databases.store(Options::default()).await;
    let log = log_of(&store);
    log.commit(order("a", 1)).await.expect("committed");
    let commits = databases.database().await.collection::<Document>("order_event_stream");
    let mut broken = wow_commit("b9", "b", 1, 1);
    broken.insert("version", "nine");
    commits.insert_one(broken).await.expect("inserted");
    let error = log.commit(order("b", 1)).await.expect_err("its version is not known");
    names(error.code(), &error, &["order_event_stream", "\"b9\"", "version"]);
    assert!(matches!(error, CommitError::Store(_)));
    let mut strange = wow_commit("c1", "c", 1, 1);
    strange.insert("body", "nothing");
    commits.insert_one(strange).await.expect("inserted");
    let query = AggregateQuery::new(Aggregate::new("order", "c"));
    let error = log.read_aggregate(query).await.expect_err("it cannot be read");
    names(error.code(), &error, &["order_event_stream", "\"c1\"", "body"]);
    let mut nobody = wow_commit("d1", "d", 1, 1);
    nobody.insert("aggregateId", 7);
    commits.insert_one(nobody).await.expect("inserted");
    let ids = AggregateIdsQuery { name: "order".into(), after: None, limit: 10 };
    let listed = log.aggregate_ids(ids).await;
    if let Err(error) = listed {
        names(error.code(), &error, &["order_event_stream", "\"d1\"", "aggregateId"]);
    }
    assert_eq!(log.commit(order("a", 2)).await.expect("others go on").version, 2);
    store.close().await;
}

#[tokio::test]
async fn a_commit_of_the_log_that_was_changed_or_deleted_is_named() {
    let databases = Databases::new();
    let store = databases.store(Options::default()).await;
    let log = log_of(&store);
    let first = log.commit(order("a", 1)).await.expect("committed").commit_id.to_string();
    let second = log.commit(order("a", 2)).await.expect("committed").commit_id.to_string();
    let commits = databases.database().await.collection::<Document>("order_event_stream");
    commits.update_one(doc! { "_id": &first }, doc! { "$unset": { "createTime": "" } }).await.expect("changed");
    let error = log.read(LogQuery::default()).await.expect_err("it cannot be read");
    names(error.code(), &error, &["order_event_stream", &first, "createTime"]);
    commits.delete_one(doc! { "_id": &second }).await.expect("deleted");
    let error = log.read(LogQuery { from: Some(1), ..LogQuery::default() }).await.expect_err("it is gone");
    names(error.code(), &error, &["order_event_stream", &second, "is gone"]);
    store.close().await;
}

#[tokio::test]
async fn an_entry_of_a_stream_that_cannot_be_read_is_named() {
    const STREAM: &str = "323bcdb2-5bbd-4f13-a7c3-b19bc2cc2452";
    let databases = Databases::new();
    let store = databases.store(Options::default()).await;
    log_of(&store).commit(order("a", 1)).await.expect("committed");
    let streams = store.streams("default", "default").expect("declared");
    streams.append(Verdicts::new(STREAM, 0..1).include(Included::new(0))).await.expect("appended");
    let collection = format!("stream-{STREAM}");
    let entries = databases.database().await.collection::<Document>(&collection);
    entries.update_one(doc! {}, doc! { "$set": { "Partition": Bson::Null } }).await.expect("changed");
    let error = streams.read(StreamQuery::new(STREAM)).await.expect_err("it cannot be read");
    names(error.code(), &error, &[&collection, "Partition"]);
    store.close().await;
}
