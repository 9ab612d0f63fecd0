//! The suites of dead letters, and the indexes of their collection as the server has them.

use annals_core::dead_letters::{DEAD_LETTERS, DeadLetter};
use annals_core::{DEFAULT_TENANT, RecordType, Store};
use annals_mongodb::Options;
use mongodb::bson::{Bson, Document, doc};

use crate::records::MongoRecords;
use crate::server::Databases;

mod replica_set {
    use super::*;
    annals_conformance::dead_letters!(MongoRecords::new());
    annals_conformance::dead_letters_of_processes!(MongoRecords::new());
}

/// An index as `listIndexes` shows it: its name, its keys, and whether it is unique or partial.
fn shown(index: &Document) -> String {
    let key = index.get_document("key").expect("an index has keys");
    let direction = |value: &Bson| value.as_i64().or_else(|| value.as_i32().map(i64::from));
    let fields: Vec<String> =
        key.iter().map(|(path, value)| format!("{path} {}", direction(value).expect("a direction"))).collect();
    let unique = if index.get_bool("unique").unwrap_or(false) { ", unique" } else { "" };
    let partial = if index.contains_key("partialFilterExpression") { ", partial" } else { "" };
    format!("{}: {}{unique}{partial}", index.get_str("name").expect("an index has a name"), fields.join(" "))
}

/// Under the names of Integr8sCode, so that its queries find letters by them.
#[tokio::test]
async fn the_collection_of_dead_letters_has_its_indexes_on_the_server() {
    let databases = Databases::new();
    let store = databases.store(Options::default()).await;
    let records = store.records(DEFAULT_TENANT).expect("the tenant is declared");
    records.declare(<DeadLetter as RecordType>::collection()).await.expect("declared");
    let answer = databases.database().await.run_command(doc! { "listIndexes": DEAD_LETTERS }).await.expect("listed");
    let batch = answer.get_document("cursor").and_then(|cursor| cursor.get_array("firstBatch")).expect("a batch");
    let indexes: Vec<&Document> = batch.iter().filter_map(Bson::as_document).collect();
    assert_eq!(
        indexes.iter().map(|index| shown(index)).collect::<Vec<_>>(),
        [
            "_id_: _id 1",
            "idx_dlq_event_id: event.event_id 1 processor 1 position 1, unique",
            "idx_dlq_event_type: event.event_type 1",
            "idx_dlq_status: status 1",
            "idx_dlq_failed_desc: failed_at -1",
            "idx_dlq_created_ttl: created_at 1",
            "original_topic_1: original_topic 1",
            "retry_count_1: retry_count 1",
            "next_retry_at_1: next_retry_at 1",
            "failed_at_1: failed_at 1",
            "idx_dlq_open_of_key: processor 1 key 1 position 1, partial",
            "idx_dlq_due: processor 1 status 1 next_retry_at 1",
            "idx_dlq_announcing: announcing 1, partial",
        ]
    );
    assert!(indexes.iter().all(|index| !index.contains_key("expireAfterSeconds")), "no letter is deleted by its age");
    store.close().await;
}
