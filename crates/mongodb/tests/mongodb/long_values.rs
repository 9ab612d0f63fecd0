//! Long values of any script in unique indexes: the server's message about one that is taken is cut, at some length in the middle of a
//! character, and an answer with half a character is none that the driver can read.

use annals_core::bson::{RawDocumentBuf, doc};
use annals_core::{
    Collection, CommitError, DEFAULT_TENANT, ExpectedVersion, Index, KeyValue, RecordChange, RecordError, Reserve,
    Store,
};
use annals_mongodb::{Options, Requests};

use crate::server::{Databases, log_of, order};

/// Of all lengths that end in the middle of something somewhere.
fn values() -> impl Iterator<Item = String> {
    (0..4).map(|shift| format!("{}{}", "a".repeat(shift), "😀".repeat(60)))
}

#[tokio::test]
async fn a_long_id_is_repeated_and_conflicts_as_others_do() {
    let databases = Databases::new();
    let store = databases.store(Options::default()).await;
    // One that knows nothing of what the first committed.
    let other = databases.store(Options::default()).await;
    for id in values() {
        let create = |n| order(&id, n).request_id(id.clone()).expect(ExpectedVersion::Empty);
        let first = log_of(&store).commit(create(1)).await.expect("committed");
        for store in [&store, &other] {
            let again = log_of(store).commit(create(1)).await.expect("a repeat");
            assert_eq!((again.commit_id, again.version, again.duplicate), (first.commit_id, 1, true), "{id}");
        }
        let conflict = log_of(&other).commit(order(&id, 2).expect(ExpectedVersion::Empty)).await;
        assert!(matches!(conflict, Err(CommitError::VersionConflict { actual_version: 1, .. })), "{conflict:?}");
        let keyed =
            order(&id, 3).request_id("keyed").reserve(Reserve::new("user", &*id, KeyValue::new(1).expect("a value")));
        assert_eq!(log_of(&store).commit(keyed.clone()).await.expect("committed").version, 2);
        assert!(log_of(&other).commit(keyed).await.expect("a repeat").duplicate);
        assert_eq!(log_of(&other).commit(order(&id, 4)).await.expect("committed").version, 3);
    }
    tokio::join!(store.close(), other.close());
}

#[tokio::test]
async fn a_long_request_id_of_another_aggregate_is_refused_where_they_are_unique_in_all() {
    let databases = Databases::new();
    let store = databases.store(Options { requests: Requests::Global, ..Options::default() }).await;
    let log = log_of(&store);
    for id in values() {
        log.commit(order(&format!("a{id}"), 1).request_id(id.clone())).await.expect("committed");
        let refused = log.commit(order(&format!("b{id}"), 1).request_id(id.clone())).await;
        assert_eq!(refused, Err(CommitError::RequestIdReused { request_id: id.clone() }));
        assert!(log.commit(order(&format!("a{id}"), 1).request_id(id)).await.expect("a repeat").duplicate);
    }
    store.close().await;
}

#[tokio::test]
async fn a_long_value_that_a_unique_index_of_records_has_is_a_duplicate() {
    let databases = Databases::new();
    let store = databases.store(Options::default()).await;
    let records = store.records(DEFAULT_TENANT).expect("the tenant is declared");
    records.declare(Collection::new("users").index(Index::on("mail").unique())).await.expect("declared");
    for mail in values() {
        let user = |id: String| {
            RecordChange::insert(
                "users",
                RawDocumentBuf::try_from(&doc! { "_id": id, "mail": &mail }).expect("encodes"),
            )
        };
        records.write(vec![user(format!("1{mail}"))]).await.expect("written");
        let refused = records.write(vec![user(format!("2{mail}"))]).await;
        assert!(matches!(refused, Err(RecordError::DuplicateKey { change: 0, .. })), "{refused:?}");
    }
    store.close().await;
}
