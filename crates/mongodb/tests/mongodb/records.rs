//! The suite of the port of records, and what is particular to this store.

use std::sync::Arc;
use std::time::Duration;

use annals_conformance::{ManualClock, Subject};
use annals_core::bson::{Document, RawDocumentBuf, doc};
use annals_core::{Clock, Collection, DEFAULT_TENANT, Index, RecordChange, RecordError, Store};
use annals_mongodb::Options;
use annals_system::SystemClock;
use async_trait::async_trait;

use crate::server::{Databases, two_tenants, until};

/// A store whose clock stands still at the present: the server deletes what has expired by its own.
pub struct MongoRecords {
    databases: Databases,
    clock: Arc<ManualClock>,
}

impl MongoRecords {
    pub fn new() -> Self {
        Self { databases: Databases::new(), clock: Arc::new(ManualClock::at(SystemClock.now())) }
    }
}

#[async_trait]
impl Subject for MongoRecords {
    async fn open(&self) -> Arc<dyn Store> {
        Arc::new(self.databases.store(Options { clock: self.clock.clone(), ..two_tenants() }).await)
    }

    fn clock(&self) -> Arc<ManualClock> {
        self.clock.clone()
    }
}

mod replica_set {
    use super::*;
    annals_conformance::records!(MongoRecords::new());
    annals_conformance::snapshots!(MongoRecords::new());
    annals_conformance::queries!(MongoRecords::new());
}

/// A unique index that documents break is refused with the index and the values that two of them have.
#[tokio::test]
async fn an_index_that_documents_break_is_told_with_their_values() {
    let databases = Databases::new();
    let store = databases.store(Options::default()).await;
    let records = store.records(DEFAULT_TENANT).expect("the tenant is declared");
    records.declare(Collection::new("users")).await.expect("declared");
    let user = |id: i32, mail: &str| RecordChange::Insert {
        collection: "users".into(),
        document: RawDocumentBuf::try_from(&doc! { "_id": id, "mail": mail, "n": id }).expect("encodes"),
    };
    records.write(vec![user(1, "eva@example.org"), user(2, "eva@example.org")]).await.expect("written");
    let unique = Collection::new("users").index(Index::on("n").unique()).index(Index::on("mail").unique());
    match records.declare(unique).await {
        Err(RecordError::DuplicateKey { collection, index, key, change: 0 }) => {
            assert_eq!((&*collection, &*index), ("users", "mail_1"));
            assert_eq!(*key, doc! { "mail": "eva@example.org" });
        }
        other => panic!("a duplicate was due, not {other:?}"),
    }
    store.close().await;
}

/// A tenant in which nothing expires leaves the database alone.
#[tokio::test]
async fn the_database_is_not_asked_for_what_has_expired_where_nothing_expires() {
    let databases = Databases::new();
    let database = databases.database().await;
    database.run_command(doc! { "profile": 2 }).await.expect("profiled");
    let store = databases.store(Options::default()).await;
    let records = store.records(DEFAULT_TENANT).expect("the tenant is declared");
    records.declare(Collection::new("users")).await.expect("declared");
    let profile = database.collection::<Document>("system.profile");
    let of_expiries = doc! { "ns": format!("{}.annals-record-expiries", databases.name), "op": "query" };
    let asked = async || profile.count_documents(of_expiries.clone()).await.expect("counted");
    // What is there from before is looked at once: what is due, and when the next is.
    until("the first look", async || asked().await >= 2).await;
    let before = asked().await;
    // tidy: allow(pause) two of the looks that were every two seconds
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(asked().await, before);
    store.close().await;
    database.run_command(doc! { "profile": 0 }).await.expect("no longer profiled");
}
