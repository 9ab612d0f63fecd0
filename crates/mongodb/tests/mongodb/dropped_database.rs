//! The database of a tenant that other software drops under load: the tenant is reported in every process and takes no commits, and the
//! other tenants continue.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use annals_core::{Code, DEFAULT_SCOPE, DEFAULT_TENANT, EventLog, LogQuery, NewCommit, Store, Wait};
use annals_mongodb::MongoStore;
use mongodb::bson::doc;

use crate::held::ORDERS;
use crate::server::{Databases, order, two_tenants, until};

fn log_of(store: &MongoStore, tenant: &str) -> Arc<dyn EventLog> {
    store.log(tenant, DEFAULT_SCOPE).expect("the tenant is declared")
}

/// Refusals after which a writer gives up: they come at once, and a loop of them would leave the processor to nobody else.
const REFUSED_MAX: usize = 30;

/// Commits to three aggregates until `stop`; answers with what was acknowledged, and with what was refused.
async fn write(
    log: Arc<dyn EventLog>,
    count: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
) -> (Vec<(String, u64)>, Vec<Code>) {
    let (mut acknowledged, mut refused) = (Vec::new(), Vec::new());
    for n in 0.. {
        if stop.load(Ordering::Relaxed) || refused.len() == REFUSED_MAX {
            break;
        }
        let id = format!("a{}", n % 3);
        match log.commit(NewCommit { wait: Wait::default(), ..order(&id, n) }).await {
            Ok(outcome) => acknowledged.push((id, outcome.version)),
            Err(error) => refused.push(error.code()),
        }
        count.fetch_add(1, Ordering::Relaxed);
    }
    (acknowledged, refused)
}

fn refusing(store: &MongoStore, tenant: &str) -> Option<Code> {
    let status = store.status().into_iter().find(|status| status.tenant == tenant).expect("declared");
    status.refusing.map(|error| error.code())
}

/// The database of `dropped` is dropped while two processes commit to both tenants.
async fn drop_under_load(dropped: &str, remains: &str) {
    let databases = Databases::new();
    let stores = [databases.store(two_tenants()).await, databases.store(two_tenants()).await];
    let name = if dropped == DEFAULT_TENANT { databases.name.clone() } else { databases.other() };
    let database = databases.client().await.database(&name);
    let (stop, mut writers) = (Arc::new(AtomicBool::new(false)), Vec::new());
    let counts = [dropped, remains].map(|tenant| (tenant, Arc::new(AtomicU64::new(0))));
    for store in &stores {
        for (tenant, count) in &counts {
            let writing = write(log_of(store, tenant), count.clone(), stop.clone());
            writers.push((*tenant, tokio::spawn(writing)));
        }
    }
    let counted = |at: usize| counts[at].1.load(Ordering::Relaxed);
    until("commits of both", async || counted(0) >= 60 && counted(1) >= 60).await;
    database.drop().await.expect("dropped");
    for store in &stores {
        until("a report", async || refusing(store, dropped) == Some(Code::StoreDamaged)).await;
    }
    let before = counted(1);
    until("more answers of the other tenant", async || counted(1) >= before + 100).await;
    // What remains gets numbers, and was never refused.
    for store in &stores {
        until("sequence numbers of the other tenant", async || {
            let outcome = log_of(store, remains).commit(order("after", 1)).await.expect("the other tenant goes on");
            outcome.first_sequence_number.is_some()
        })
        .await;
        assert_eq!(refusing(store, remains), None, "readiness of the other tenant");
        let refused = log_of(store, dropped).commit(order("after", 1)).await.expect_err("its log is gone");
        assert_eq!(refused.code(), Code::StoreDamaged, "{refused}");
    }
    stop.store(true, Ordering::Relaxed);
    let mut versions: BTreeMap<(&str, String, u64), usize> = BTreeMap::new();
    for (tenant, writer) in writers {
        let (acknowledged, refused) = writer.await.expect("the writer ends well");
        for (id, version) in acknowledged {
            *versions.entry((tenant, id, version)).or_default() += 1;
        }
        match tenant == remains {
            true => assert_eq!(refused, [], "the other tenant"),
            false => assert!(refused.contains(&Code::StoreDamaged), "{refused:?}"),
        }
    }
    let twice: Vec<_> = versions.iter().filter(|(_, count)| **count > 1).collect();
    assert!(twice.is_empty(), "acknowledged twice: {twice:?}");
    // No commit is taken into a collection that came back by itself, without a log.
    let left = database.collection::<mongodb::bson::Document>(ORDERS).count_documents(doc! {}).await;
    assert_eq!(left.expect("counted"), 0);
    let page = log_of(&stores[0], remains).read(LogQuery { limit: 1000, ..LogQuery::default() }).await.expect("read");
    let numbers: Vec<_> = page.events.iter().map(|event| event.sequence_number).collect();
    assert_eq!(numbers, (0..numbers.len() as u64).collect::<Vec<_>>());
    for store in stores {
        store.close().await;
    }

    // A process that is started afterwards finds no log there, and begins a new one.
    let store = databases.store(two_tenants()).await;
    for tenant in [dropped, remains] {
        let outcome = log_of(&store, tenant).commit(order("new", 1)).await.expect("committed");
        assert_eq!(outcome.first_sequence_number == Some(0), tenant == dropped);
    }
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_database_of_one_tenant_is_reported_and_the_others_continue() {
    drop_under_load("other", DEFAULT_TENANT).await;
}

/// The lease lies in it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_database_that_holds_the_lease_is_reported_and_the_others_continue() {
    drop_under_load(DEFAULT_TENANT, "other").await;
}
