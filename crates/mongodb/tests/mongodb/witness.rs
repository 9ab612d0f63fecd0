//! Readiness and refusals are derived from what is stored, so every process gives the same answers, whether or not it has ever led.

use annals_core::{Code, DEFAULT_TENANT, LogStatus, Store};
use annals_mongodb::{MongoStore, Options};
use mongodb::Database;
use mongodb::bson::{Decimal128, Document, doc};

use crate::held_alone::goes_on;
use crate::server::{Databases, log_of, order, two_tenants, until};
use crate::servers::ReplicaSet;

fn refusing(store: &MongoStore, tenant: &str) -> Option<Code> {
    let of = |status: &LogStatus| status.tenant == tenant;
    store.status().into_iter().find(of).expect("declared").refusing.map(|error| error.code())
}

async fn set_next(database: &Database, next: u64) {
    let next: Decimal128 = next.to_string().parse().expect("a number");
    let moved = doc! { "$set": { "NextEventOffset": next } };
    let metadata = database.collection::<Document>("event-log-metadata");
    metadata.update_one(doc! { "_id": "event-log" }, moved).await.expect("moved");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn foreign_numbers_of_one_tenant_are_refused_by_every_process_and_the_other_tenant_goes_on() {
    let databases = Databases::new();
    let (leader, other) = (databases.store(two_tenants()).await, databases.store(two_tenants()).await);
    goes_on(&leader).await;
    let head = log_of(&leader).head().await.expect("read");
    let database = databases.database().await;
    set_next(&database, head + 5).await;
    for store in [&leader, &other] {
        until("a refusal", async || refusing(store, DEFAULT_TENANT) == Some(Code::ForeignNumbers)).await;
        let refused = log_of(store).commit(order("a", 1)).await.expect_err("it could have no number");
        assert_eq!(refused.code(), Code::ForeignNumbers, "{refused}");
        let of_other = store.log("other", "default").expect("declared");
        let outcome = of_other.commit(order("b", 1)).await.expect("the other tenant goes on");
        assert!(outcome.first_sequence_number.is_some());
        assert_eq!(refusing(store, "other"), None);
    }
    set_next(&database, head).await;
    for store in [&leader, &other] {
        until("the end of it", async || refusing(store, DEFAULT_TENANT).is_none()).await;
        goes_on(store).await;
    }
    tokio::join!(leader.close(), other.close());
}

/// On a server of its own, which refuses every change stream.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_process_is_ready_while_none_can_assign_numbers() {
    let set = ReplicaSet::start(1).await;
    let url = set.url("shop");
    let open = async || MongoStore::open(&url, Options::default()).await.expect("the store opens");
    let (one, two) = (open().await, open().await);
    goes_on(&one).await;
    let admin = set.client().await.database("admin");
    let streams =
        doc! { "failCommands": ["aggregate", "getMore"], "errorCode": 8, "namespace": "admin.$cmd.aggregate" };
    let fail = doc! { "configureFailPoint": "failCommand", "mode": "alwaysOn", "data": streams };
    admin.run_command(fail).await.expect("the fault is set");
    for store in [&one, &two] {
        until("a report", async || refusing(store, DEFAULT_TENANT) == Some(Code::NotReady)).await;
    }
    let off = doc! { "configureFailPoint": "failCommand", "mode": "off" };
    admin.run_command(off).await.expect("the fault is ended");
    for store in [&one, &two] {
        until("the end of it", async || refusing(store, DEFAULT_TENANT).is_none()).await;
        goes_on(store).await;
    }
    tokio::join!(one.close(), two.close());
}

/// As other software, a person, or a server's clock that was set back may leave it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_that_no_sequencer_wrote_is_taken_over() {
    let databases = Databases::new();
    let store = databases.store(Options::default()).await;
    goes_on(&store).await;
    let state = databases.database().await.collection::<Document>("sequencer-state");
    let later = doc! { "$add": ["$$NOW", 86_400_000_i64] };
    let distant = vec![doc! { "$set": { "holder": "nobody", "until": later } }];
    let garbage = doc! { "holder": "nobody", "epoch": "x", "until": "y", "sessions": 5, "before": {}, "failing": 1 };
    for lease in [distant, vec![doc! { "$replaceWith": { "$mergeObjects": [{ "_id": "lease" }, garbage] } }]] {
        state.update_one(doc! { "_id": "lease" }, lease).await.expect("updated");
        until("a leader", async || {
            let lease = state.find_one(doc! { "_id": "lease" }).await.expect("read").expect("it is there");
            lease.get_str("holder").is_ok_and(|holder| holder != "nobody")
        })
        .await;
        until("readiness", async || refusing(&store, DEFAULT_TENANT).is_none()).await;
        goes_on(&store).await;
    }
    store.close().await;
}
