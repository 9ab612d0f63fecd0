//! The mongod that the tests run against, and databases of their own in it.

use std::sync::atomic::{AtomicU32, Ordering};

use std::sync::Arc;
use std::time::Duration;

use annals_core::{DEFAULT_SCOPE, DEFAULT_TENANT, Data, EventLog, NewCommit, NewEvent, Reached, Store};
use annals_mongodb::{MongoStore, Options, Tenant};
use mongodb::Client;
use mongodb::bson::{Bson, Document, doc};

/// The URL of the server, without a database.
///
/// # Panics
/// When it is not known.
pub fn url() -> String {
    std::env::var("ANNALS_TEST_MONGODB").expect(
        "these tests need a MongoDB: run them with `cargo xtask test`, or start one with `cargo xtask services` and set \
         ANNALS_TEST_MONGODB to the URL that it prints",
    )
}

/// Databases for one test, which are dropped with this value.
pub struct Databases {
    pub name: String,
}

impl Databases {
    pub fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        // What the store says is shown beside a failure.
        crate::told::listen();
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        Self { name: format!("annals_test_{}_{count}", std::process::id()) }
    }

    /// The URL with the database in it.
    pub fn url(&self) -> String {
        let url = url();
        let (place, query) = url.split_once('?').unwrap_or((&url, ""));
        format!("{}/{}?{query}", place.trim_end_matches('/'), self.name)
    }

    /// The name of a second database, dropped as well.
    pub fn other(&self) -> String {
        format!("{}_other", self.name)
    }

    /// The namespace of the commits of orders.
    pub fn stream(&self) -> String {
        format!("{}.order_event_stream", self.name)
    }

    pub async fn client(&self) -> Client {
        Client::with_uri_str(url()).await.expect("the server is there")
    }

    pub async fn database(&self) -> mongodb::Database {
        self.client().await.database(&self.name)
    }

    pub async fn store(&self, options: Options) -> MongoStore {
        MongoStore::open(&self.url(), options).await.expect("the store opens")
    }
}

impl Drop for Databases {
    fn drop(&mut self) {
        let names = [self.name.clone(), self.other()];
        // On a thread of its own: a test's runtime may be around this one.
        let dropping = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let client = Client::with_uri_str(url()).await.expect("the server is there");
                let databases = names.map(|name| client.database(&name));
                let _ = end_transactions(&databases[0]).await;
                futures_util::future::join_all(databases.iter().map(|database| database.drop().into_future())).await;
            });
        });
        let _ = dropping.join();
    }
}

/// Ends what a store has left open in the sessions that it registered. A test that ends amid a transaction leaves it to the server, and
/// dropping the database would wait for that.
async fn end_transactions(database: &mongodb::Database) -> mongodb::error::Result<()> {
    let mut registered = database.collection::<Document>("sequencer-state").find(doc! {}).await?;
    let mut sessions: Vec<Bson> = Vec::new();
    while registered.advance().await? {
        let registered = registered.deserialize_current()?;
        let of = |field| registered.get_array(field).ok().into_iter().flatten().cloned();
        sessions.extend(of("sessions").chain(of("before")));
    }
    if !sessions.is_empty() {
        database.client().database("admin").run_command(doc! { "killSessions": sessions }).await?;
    }
    Ok(())
}

/// The server's one point of failure, for one test at a time.
pub struct Faults {
    admin: mongodb::Database,
    _turn: tokio::sync::MutexGuard<'static, ()>,
}

impl Faults {
    pub async fn take() -> Self {
        static TURN: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
        let turn = TURN.lock().await;
        let client = Client::with_uri_str(url()).await.expect("the server is there");
        let faults = Self { admin: client.database("admin"), _turn: turn };
        faults.end().await;
        faults
    }

    /// Lets so many of the commands that `data` names fail as it says.
    pub async fn set(&self, times: i32, data: Document) {
        let set = doc! { "configureFailPoint": "failCommand", "mode": { "times": times }, "data": data };
        self.admin.run_command(set).await.expect("the fault is set");
    }

    /// Lets all of the commands that `data` names fail as it says, but for the first ones.
    pub async fn set_after(&self, first: i32, data: Document) {
        let set = doc! { "configureFailPoint": "failCommand", "mode": { "skip": first }, "data": data };
        self.admin.run_command(set).await.expect("the fault is set");
    }

    pub async fn end(&self) {
        let off = doc! { "configureFailPoint": "failCommand", "mode": "off" };
        self.admin.run_command(off).await.expect("the fault is ended");
    }
}

/// Options with the tenants `default` and `other`.
pub fn two_tenants() -> Options {
    Options { tenants: vec![Tenant::new(DEFAULT_TENANT), Tenant::new("other")], ..Options::default() }
}

/// The log of the tenant `default`.
pub fn log_of(store: &MongoStore) -> Arc<dyn EventLog> {
    store.log(DEFAULT_TENANT, DEFAULT_SCOPE).expect("the tenant is declared")
}

/// A commit of an order with one event, whose data is `{"n": n}`, waited for until it is in the log.
pub fn order(id: &str, n: u64) -> NewCommit {
    let data = Data::from_value(&serde_json::json!({ "n": n })).expect("an object");
    NewCommit::new("order", id).event(NewEvent::new("order_changed", data)).wait_until(Reached::Logged)
}

/// A commit as Wow writes it.
pub fn wow_commit(id: &str, aggregate: &str, version: i32, time: i64) -> Document {
    doc! {
        "_id": id, "contextName": "annals", "aggregateName": "order", "header": {}, "aggregateId": aggregate,
        "tenantId": "(0)", "ownerId": "", "spaceId": "", "commandId": format!("c-{id}"), "requestId": format!("r-{id}"),
        "version": version,
        "body": [{ "id": format!("e-{id}"), "name": "order_changed", "revision": "0.0.1", "bodyType": "x.OrderChanged",
                   "body": { "n": i64::from(version) } }],
        "createTime": time, "size": 1_i32,
    }
}

/// Waits until `condition` holds, at most a minute.
///
/// # Panics
/// When it does not.
pub async fn until(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !condition().await {
            // tidy: allow(pause) between two looks at the database
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    assert!(tokio::time::timeout(Duration::from_secs(60), waiting).await.is_ok(), "{what} was due");
}
