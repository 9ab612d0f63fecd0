//! Snapshots as Wow's Mongo extension has them: read and written by both, in the database that is configured.

use std::sync::Arc;

use annals_core::{
    Aggregate, Condition, DEFAULT_TENANT, Data, Index, RecordQuery, Snapshot, Snapshots, Store, Timestamp,
};
use annals_mongodb::Options;
use mongodb::Collection;
use mongodb::bson::{Bson, Document, doc};

use crate::server::Databases;

fn order() -> Aggregate {
    Aggregate::new("order", "o-1")
}

fn snapshot(version: u64) -> Snapshot {
    let state = Data::from_json(&format!(r#"{{"status":"PAID","n":{version}}}"#)).expect("an object");
    Snapshot { time: Some(Timestamp::from_millis(7)), ..Snapshot::new(order(), version, state) }
}

/// A snapshot as Wow writes it.
fn of_wow(version: i32) -> Document {
    doc! {
        "_id": "o-1", "contextName": "annals", "aggregateName": "order", "tenantId": "(0)", "ownerId": "",
        "spaceId": "", "version": version, "eventId": "0dq3xSXn0008C01", "firstOperator": "", "operator": "",
        "firstEventTime": 5_i64, "eventTime": 6_i64, "state": { "status": "PAID", "n": i64::from(version) },
        "snapshotTime": 7_i64, "tags": {}, "deleted": false,
    }
}

/// Wow's monotonic save: one update by a pipeline.
async fn save_as_wow(collection: &Collection<Document>, version: i32) {
    let candidate = doc! { "$literal": of_wow(version) };
    let stored = doc! { "$cond": [{ "$isNumber": "$version" }, "$version", version] };
    let replacing = doc! { "$cond": [{ "$lte": [stored, version] }, candidate, "$$ROOT"] };
    let pipeline = vec![doc! { "$replaceWith": replacing }];
    collection.update_one(doc! { "_id": "o-1" }, pipeline).upsert(true).await.expect("saved");
}

#[tokio::test]
async fn snapshots_are_in_their_own_database_with_the_layout_s_fields_and_hashed_indexes() {
    let databases = Databases::new();
    let options = Options { snapshot_database: Some(databases.other()), ..Options::default() };
    let store = databases.store(options).await;
    let snapshots = store.snapshots(DEFAULT_TENANT).expect("declared");
    assert_eq!(snapshots.save(&snapshot(3)).await, Ok(true));
    let database = databases.client().await.database(&databases.other());
    let stored = database.collection::<Document>("order_snapshot").find_one(doc! {}).await.expect("read");
    let mut stored = stored.expect("it is there");
    assert!(stored.remove("_annals").is_some());
    let mut expected = of_wow(3);
    expected.extend(doc! { "eventId": "", "firstEventTime": 0_i64, "eventTime": 0_i64 });
    assert_eq!(stored.to_vec().expect("encodes"), expected.to_vec().expect("encodes"), "{stored}");
    let listed = database.run_command(doc! { "listIndexes": "order_snapshot" }).await.expect("listed");
    let indexes = listed.get_document("cursor").and_then(|cursor| cursor.get_array("firstBatch")).expect("a batch");
    let keys: Vec<_> = indexes.iter().filter_map(|index| index.as_document()?.get("key").cloned()).collect();
    let hashed = |field: &str| Bson::from(doc! { field: "hashed" });
    let due = [Bson::from(doc! { "_id": 1 }), hashed("tenantId"), hashed("ownerId"), hashed("_id"), hashed("deleted")];
    assert_eq!(keys, due);
    let names: Vec<_> = indexes.iter().filter_map(|index| index.as_document()?.get_str("name").ok()).collect();
    assert_eq!(names, ["_id_", "tenantId_hashed", "ownerId_hashed", "_id_hashed", "deleted_hashed"]);
    // What records are kept for themselves stays in the other database.
    let of_records = databases.database().await.list_collection_names().await.expect("listed");
    assert!(!of_records.iter().any(|name| name.ends_with("_snapshot")), "{of_records:?}");
    store.close().await;
}

#[tokio::test]
async fn a_collection_that_wow_made_is_taken_over_as_it_is() {
    let databases = Databases::new();
    let collection = databases.database().await.collection::<Document>("order_snapshot");
    collection.insert_one(of_wow(4)).await.expect("inserted");
    for field in ["tenantId", "ownerId", "_id", "deleted"] {
        let model = mongodb::IndexModel::builder().keys(doc! { field: "hashed" }).build();
        collection.create_index(model).await.expect("made");
    }
    let store = databases.store(Options::default()).await;
    let snapshots = store.snapshots(DEFAULT_TENANT).expect("declared");
    snapshots.declare("order", Vec::new()).await.expect("its indexes are those of the layout");
    let loaded = snapshots.load(&order()).await.expect("read").expect("Wow's");
    assert_eq!((loaded.info.version, &*loaded.info.commit_id, loaded.state_revision), (4, "0dq3xSXn0008C01", 1));
    assert_eq!(snapshots.save(&snapshot(3)).await, Ok(false));
    assert_eq!(snapshots.save(&snapshot(5)).await, Ok(true));
    save_as_wow(&collection, 4).await;
    assert_eq!(snapshots.version(&order()).await, Ok(5));
    save_as_wow(&collection, 6).await;
    assert_eq!(snapshots.version(&order()).await, Ok(6));
    assert_eq!(snapshots.save(&snapshot(6)).await, Ok(true), "after other software replaced the whole document");
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_wow_s_saves_and_ours_at_once_the_highest_stays() {
    let databases = Databases::new();
    let store = databases.store(Options::default()).await;
    let snapshots: Arc<dyn Snapshots> = store.snapshots(DEFAULT_TENANT).expect("declared");
    let collection = databases.database().await.collection::<Document>("order_snapshot");
    snapshots.declare("order", Vec::new()).await.expect("declared");
    for round in 0..5_u64 {
        let base = round * 10;
        let saving: Vec<_> = (1..=8)
            .map(|n| {
                let (snapshots, collection) = (snapshots.clone(), collection.clone());
                tokio::spawn(async move {
                    match (n + round) % 2 {
                        0 => save_as_wow(&collection, (base + n) as i32).await,
                        _ => drop(snapshots.save(&snapshot(base + n)).await.expect("answered")),
                    }
                })
            })
            .collect();
        for task in saving {
            task.await.expect("no assertion failed");
        }
        assert_eq!(snapshots.version(&order()).await, Ok(base + 8));
    }
    store.close().await;
}

/// A query of snapshots by what is indexed says that it uses that index, and reads no more than it finds.
#[tokio::test]
async fn a_query_uses_an_index_that_is_declared() {
    let databases = Databases::new();
    let store = databases.store(Options::default()).await;
    let snapshots = store.snapshots(DEFAULT_TENANT).expect("declared");
    snapshots.declare("order", vec![Index::on("state.status").into()]).await.expect("it is declared");
    for n in 0..50 {
        let status = if n % 10 == 0 { "PAID" } else { "PLACED" };
        let state = Data::from_json(&format!(r#"{{"status":"{status}"}}"#)).expect("an object");
        let snapshot = Snapshot::new(Aggregate::new("order", format!("o-{n}")), 1, state);
        assert_eq!(snapshots.save(&snapshot).await, Ok(true));
    }
    let records = store.records(DEFAULT_TENANT).expect("declared");
    let query = RecordQuery::new("order_snapshot").matching(Condition::eq("state.status", "PAID"));
    let explained = records.explain(query).await.expect("it is explained");
    assert_eq!((explained.found, explained.index.as_deref()), (5, Some("state.status_1")), "{explained:?}");
    assert!(explained.documents_examined <= 6, "{explained:?}");
    store.close().await;
}

/// Wow creates its collection without declaring it here.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_that_wow_saved_is_loaded_waited_for_and_deleted_although_nothing_was_declared() {
    let databases = Databases::new();
    let options = Options { snapshot_database: Some(databases.other()), ..Options::default() };
    let store = databases.store(options).await;
    let snapshots = store.snapshots(DEFAULT_TENANT).expect("declared");
    assert_eq!(snapshots.load(&order()).await, Ok(None));
    let collection = databases.client().await.database(&databases.other()).collection::<Document>("order_snapshot");
    save_as_wow(&collection, 2).await;
    let loaded = snapshots.load(&order()).await.expect("read").expect("it is there");
    assert_eq!((loaded.info.version, loaded.state.as_raw().get_str("status").ok()), (2, Some("PAID")));
    let waiting = tokio::spawn({
        let snapshots = store.snapshots(DEFAULT_TENANT).expect("declared");
        async move { snapshots.until(&order(), 5).await }
    });
    save_as_wow(&collection, 5).await;
    let waited = tokio::time::timeout(std::time::Duration::from_secs(30), waiting).await.expect("it is noticed");
    assert_eq!(waited.expect("no panic"), Ok(()));
    assert_eq!(snapshots.delete(&order(), Some(4)).await, Ok(false), "of another version");
    assert_eq!(snapshots.delete(&order(), None).await, Ok(true));
    assert_eq!(snapshots.load(&order()).await, Ok(None));
    store.close().await;
}
