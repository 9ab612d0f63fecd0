//! The suite of the port of records, and what is particular to this store.

use std::sync::Arc;
use std::time::Duration;

use annals_conformance::{ManualClock, Subject};
use annals_core::bson::{Document, RawDocumentBuf, doc};
use annals_core::{Clock, Collection, Condition, DEFAULT_TENANT, Expected, Index, RecordChange, RecordError, Store};
use annals_mongodb::{Options, Tenant};
use annals_system::SystemClock;
use async_trait::async_trait;

use crate::server::{Databases, two_tenants, until};

/// A store whose clock stands still at the present: the server deletes what has expired by its own. It has a second tenant only for the
/// cases that use one: the features of a tenant have some sixty collections, and creating them takes most of a test's time.
pub struct MongoRecords {
    databases: Databases,
    clock: Arc<ManualClock>,
    scopes: Vec<String>,
    tenants: Vec<Tenant>,
}

impl MongoRecords {
    pub fn new() -> Self {
        let clock = Arc::new(ManualClock::at(SystemClock.now()));
        Self { databases: Databases::new(), clock, scopes: Vec::new(), tenants: Options::default().tenants }
    }

    /// The name of its database.
    pub fn database_name(&self) -> &str {
        &self.databases.name
    }

    /// The same with two tenants for every case, and a scope besides the default one.
    pub fn with_scope(scope: &str) -> Self {
        Self { scopes: vec![scope.to_owned()], tenants: two_tenants().tenants, ..Self::new() }
    }

    async fn opened(&self, tenants: Vec<Tenant>) -> Arc<dyn Store> {
        let (clock, scopes) = (self.clock.clone(), self.scopes.clone());
        Arc::new(self.databases.store(Options { clock, scopes, tenants, ..Options::default() }).await)
    }
}

#[async_trait]
impl Subject for MongoRecords {
    async fn open(&self) -> Arc<dyn Store> {
        self.opened(self.tenants.clone()).await
    }

    async fn open_with_other(&self) -> Arc<dyn Store> {
        self.opened(two_tenants().tenants).await
    }

    async fn open_beside(&self, _store: &Arc<dyn Store>) -> Arc<dyn Store> {
        self.open().await
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

/// What other software changes in a transaction that is not committed yet conflicts with a check of it, there or absent: the batch is
/// evaluated again after that transaction, and never commits beside it.
#[tokio::test]
async fn a_check_conflicts_with_a_change_that_other_software_has_not_committed_yet() {
    let databases = Databases::new();
    let database = databases.database().await;
    let store = databases.store(Options::default()).await;
    let records = store.records(DEFAULT_TENANT).expect("the tenant is declared");
    records.declare(Collection::new("shifts").index(Index::on("doctor").unique())).await.expect("declared");
    let shifts = database.collection::<Document>("shifts");
    let raw = |document: Document| RawDocumentBuf::try_from(&document).expect("encodes");
    let aborted = async || {
        let status = database.client().database("admin").run_command(doc! { "serverStatus": 1 }).await.expect("asked");
        let transactions = status.get_document("transactions").expect("the transactions");
        transactions.get_i64("totalAborted").expect("a number")
    };
    for there in [true, false] {
        let (checked, written) = (format!("a {there}"), format!("b {there}"));
        let expected = if there {
            shifts.insert_one(doc! { "_id": &checked, "doctor": &checked, "on": true }).await.expect("inserted");
            Expected::Matching(Condition::eq("on", true))
        } else {
            Expected::Absent
        };
        let mut session = database.client().start_session().await.expect("a session");
        session.start_transaction().await.expect("begun");
        // It decides by what the batch writes, and writes what the batch checks.
        let found = shifts.find_one(doc! { "_id": &written }).session(&mut session).await.expect("read");
        assert_eq!(found, None);
        let key = doc! { "_id": &checked };
        let set = doc! { "$set": { "on": false, "doctor": &checked } };
        shifts.update_one(key, set).upsert(true).session(&mut session).await.expect("changed");
        let before = aborted().await;
        let insert = RecordChange::insert("shifts", raw(doc! { "_id": &written, "doctor": &written }));
        let batch = vec![RecordChange::check("shifts", checked.as_str(), expected), insert];
        let write = tokio::spawn({
            let records = records.clone();
            async move { records.write(batch).await }
        });
        until("the batch meets the transaction", async || aborted().await > before).await;
        session.commit_transaction().await.expect("committed");
        let error = write.await.expect("the task ends well").expect_err("it was changed before");
        assert!(
            matches!(error, RecordError::NotAsExpected { change: 0, actual, .. } if actual == Some(0)),
            "{error:?}"
        );
        assert_eq!(records.get("shifts", &written.as_str().into()).await.expect("read"), None);
    }
    store.close().await;
}

/// A check leaves the fields of a record that other software wrote, and its revision, as they are.
#[tokio::test]
async fn a_checked_record_of_other_software_keeps_its_fields_and_revision() {
    let databases = Databases::new();
    let database = databases.database().await;
    let store = databases.store(Options::default()).await;
    let records = store.records(DEFAULT_TENANT).expect("the tenant is declared");
    records.declare(Collection::new("things")).await.expect("declared");
    let document = doc! { "_id": 1, "n": { "a": [1, 2] }, "at": 5 };
    database.collection::<Document>("things").insert_one(document.clone()).await.expect("inserted");
    let put = RecordChange::put("things", RawDocumentBuf::try_from(&doc! { "_id": 2 }).expect("encodes"));
    let check = RecordChange::check("things", 1, Expected::Revision(0));
    let numbers = records.write(vec![check, put]).await.expect("written");
    assert_eq!(numbers[0], 0);
    let record = records.get("things", &1.into()).await.expect("read").expect("there");
    assert_eq!((Document::try_from(&*record.document).expect("decodes"), record.revision), (document, 0));
    store.close().await;
}
