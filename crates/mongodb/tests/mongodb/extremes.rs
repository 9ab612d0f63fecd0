//! Input and surroundings at the edge: the largest documents, clocks that jump, forged positions, a full disk, many tenants.

use std::sync::Arc;
use std::time::Duration;

use annals_conformance::ManualClock;
use annals_core::{
    Code, CommitError, DEFAULT_SCOPE, DEFAULT_TENANT, Data, LogQuery, NewCommit, NewEvent, Reached, Store, Timestamp,
};
use annals_mongodb::{MongoStore, Options, Requests, Tenant};
use mongodb::bson::{Document, doc};

use crate::server::{Databases, Faults, log_of, order, two_tenants, until, wow_commit};
use crate::servers::ReplicaSet;

/// An event whose data has about so many bytes.
fn large(bytes: usize) -> NewEvent {
    NewEvent::new(
        "order_changed",
        Data::from_value(&serde_json::json!({ "text": "x".repeat(bytes) })).expect("an object"),
    )
}

#[tokio::test]
async fn a_commit_that_mongodb_cannot_store_is_refused_early_and_one_that_it_can_is_logged() {
    let databases = Databases::new();
    let store = databases.store(Options::default()).await;
    let log = log_of(&store);
    let commit = |events: usize, bytes: usize| {
        let mut commit = NewCommit::new("order", "a").wait_until(Reached::Logged);
        commit.events = (0..events).map(|_| large(bytes)).collect();
        commit
    };
    let error = log.commit(commit(3, 6 << 20)).await.expect_err("refused");
    assert_eq!(error.code(), Code::CommitTooLarge, "{error}");
    // Within the limit of the events, and beyond MongoDB's with the names and ids that stand beside each.
    let error = log.commit(commit(10_000, 1550)).await.expect_err("refused");
    assert_eq!(error.code(), Code::CommitTooLarge, "{error}");
    assert_eq!(log.head().await, Ok(0));
    log.commit(commit(2, 7 << 20)).await.expect("committed");
    log.commit(commit(10_000, 1200)).await.expect("committed");
    assert_eq!(log.head().await, Ok(10_002));
    store.close().await;
}

/// The largest document that MongoDB takes at all, by other software: the stream's notice of it is larger still.
#[tokio::test]
async fn the_largest_document_of_other_software_does_not_stop_the_sequencer() {
    const LARGEST: usize = 16 << 20;
    let databases = Databases::new();
    let store = databases.store(Options::default()).await;
    let log = log_of(&store);
    log.commit(order("a", 1)).await.expect("committed");
    let mut commit = wow_commit("largest", "b", 1, 7);
    let size = |commit: &Document| mongodb::bson::serialize_to_vec(commit).expect("encodes").len();
    commit.insert("ownerId", "x".repeat(LARGEST - size(&commit)));
    assert_eq!(size(&commit), LARGEST);
    let commits = databases.database().await.collection::<Document>("order_event_stream");
    commits.insert_one(commit).await.expect("inserted");
    log.commit(order("a", 2)).await.expect("others go on");
    until("the largest", async || log.head().await == Ok(3)).await;
    store.close().await;
}

#[tokio::test]
async fn an_id_belongs_to_one_tenant_id_and_to_each_tenant() {
    let databases = Databases::new();
    let store = databases.store(two_tenants()).await;
    let (log, other) = (log_of(&store), store.log("other", DEFAULT_SCOPE).expect("declared"));
    let of = |tenant: &str| NewCommit { tenant_id: Some(tenant.into()), ..order("a", 1) };
    log.commit(of("t1")).await.expect("committed");
    for refused in [log.commit(of("t2")).await, log.commit(order("a", 1)).await] {
        assert_eq!(refused, Err(CommitError::AggregateOfOtherTenant { tenant_id: "t1".into() }));
    }
    let outcome = other.commit(of("t2")).await.expect("another database");
    assert_eq!((outcome.version, outcome.first_sequence_number), (1, Some(0)));
    assert_eq!((log.head().await, other.head().await), (Ok(1), Ok(1)));
    store.close().await;
}

/// Where request ids are unique in all aggregates of a name, another aggregate's is refused at once.
#[tokio::test]
async fn a_request_id_of_another_aggregate_is_refused_where_they_are_unique_in_all() {
    let databases = Databases::new();
    let store = databases.store(Options { requests: Requests::Global, ..Options::default() }).await;
    let log = log_of(&store);
    let first = log.commit(order("a", 1).request_id("r")).await.expect("committed");
    let refused = log.commit(order("b", 1).request_id("r")).await;
    assert_eq!(refused, Err(CommitError::RequestIdReused { request_id: "r".into() }));
    let repeat = log.commit(order("a", 1).request_id("r")).await.expect("a repeat");
    assert_eq!((repeat.duplicate, repeat.commit_id), (true, first.commit_id));
    assert_eq!(log.commit(order("b", 1)).await.expect("committed").version, 1);
    store.close().await;
}

/// Times are stored, and decide nothing: neither order, nor who leads.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_jumps_changes_neither_order_nor_leader() {
    const YEAR: i64 = 365 * 24 * 3600 * 1000;
    let databases = Databases::new();
    let clock = Arc::new(ManualClock::at(Timestamp::from_millis(1_700_000_000_000)));
    let jumping = databases.store(Options { clock: clock.clone(), ..Options::default() }).await;
    let steady = databases.store(Options::default()).await;
    let (one, two) = (log_of(&jumping), log_of(&steady));
    let state = databases.database().await.collection::<Document>("sequencer-state");
    let epoch = async || {
        let lease = state.find_one(doc! { "_id": "lease" }).await.expect("read").expect("there");
        lease.get_i64("epoch").expect("int64")
    };
    one.commit(order("a", 0)).await.expect("committed");
    let before = epoch().await;
    for (n, jump) in [YEAR, -2 * YEAR, YEAR / 2, -1, YEAR].into_iter().enumerate() {
        clock.advance_millis(jump);
        one.commit(order("a", n as u64)).await.expect("committed");
        two.commit(order("a", n as u64)).await.expect("committed");
    }
    assert_eq!(epoch().await, before, "the lease is judged by the server's clock");
    let events = one.read(LogQuery::default()).await.expect("read").events;
    let places: Vec<_> = events.iter().map(|event| (event.sequence_number, event.commit.version)).collect();
    assert_eq!(places, (0..11).map(|n| (n, n + 1)).collect::<Vec<_>>());
    tokio::join!(jumping.close(), steady.close());
}

/// Positions that are none, of another cluster, or from a time that has not come: what came meanwhile is found all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_position_that_is_of_no_use_is_survived() {
    let databases = Databases::new();
    let database = databases.database().await;
    let commits = database.collection::<Document>("order_event_stream");
    let state = database.collection::<Document>("sequencer-state");
    databases.store(Options::default()).await.close().await;
    let forged = [
        doc! { "_data": "826000000000000001" },
        doc! { "_data": "82FFFFFFF0000000012B0429296E1404" },
        doc! { "_data": "no hex at all" },
        doc! { "_data": "" },
        doc! { "_data": 7 },
        doc! { "other": "thing" },
        doc! {},
    ];
    for (n, token) in forged.into_iter().enumerate() {
        let n = n as u64;
        let id = format!("c{n}");
        commits.insert_one(wow_commit(&id, &id, 1, 7)).await.expect("inserted");
        let forge = doc! { "$set": { "token": token.clone() } };
        state.update_one(doc! { "_id": "event-log" }, forge).await.expect("updated");
        let store = databases.store(Options::default()).await;
        let log = log_of(&store);
        let outcome = log.commit(order("a", n)).await.unwrap_or_else(|error| panic!("{token}: {error}"));
        assert_eq!(outcome.version, n + 1);
        until(&format!("both commits after {token}"), async || log.head().await == Ok(2 * (n + 1))).await;
        store.close().await;
    }
}

/// The server says that its disk is full: for the whole command, whose outcome then is looked for; and for one document.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_out_of_disk_refuses_or_leaves_open_and_takes_commits_when_there_is_room() {
    const OUT_OF_DISK: i32 = 14031;
    let databases = Databases::new();
    let stored = databases.database().await.collection::<Document>("order_event_stream");
    // The limit is short for the commit that has to reach it. Everything else may need more time on a busy machine, and is repeated.
    let store = databases.store(Options { outcome_time: Duration::from_secs(1), ..Options::default() }).await;
    let log = log_of(&store);
    let commit = async |n: u64| log.commit(order("a", n).request_id(format!("r-{n}"))).await;
    until("a first commit", async || commit(1).await.is_ok()).await;
    let faults = Faults::take().await;
    let full = doc! { "failCommands": ["insert"], "errorCode": OUT_OF_DISK, "namespace": databases.stream() };
    faults.set(i32::MAX, full).await;
    let error = commit(2).await.expect_err("there is no room");
    assert_eq!(error.code(), Code::Unreachable, "{error}");
    until("a read", async || log.head().await == Ok(1)).await;
    assert_eq!(stored.count_documents(doc! {}).await.expect("counted"), 1);
    faults.end().await;
    until("room", async || commit(2).await.is_ok_and(|outcome| outcome.version == 2)).await;
    assert_eq!(stored.count_documents(doc! {}).await.expect("counted"), 2);
    store.close().await;
}

/// Tenants that do nothing cost the busy one nothing: they share its stream and its lease. On a server of its own, whose commands are
/// counted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_tenants_beside_a_busy_one_cost_no_streams_and_no_commands() {
    let idle: usize = std::env::var("ANNALS_MONGODB_TENANTS").ok().and_then(|count| count.parse().ok()).unwrap_or(20);
    let set = ReplicaSet::start(1).await;
    let names = (0..idle).map(|n| Tenant::new(format!("idle-{n}"))).chain([Tenant::new(DEFAULT_TENANT)]);
    let options = Options { tenants: names.collect(), ..Options::default() };
    let store = MongoStore::open(&set.url("shop"), options).await.expect("the store opens");
    let log = log_of(&store);
    log.commit(order("a", 0)).await.expect("committed");
    let admin = set.client().await.database("admin");
    let commands = async || {
        let status = admin.run_command(doc! { "serverStatus": 1 }).await.expect("told");
        let counters = status.get_document("opcounters").expect("counters");
        let kinds = ["insert", "query", "update", "delete", "getmore", "command"];
        kinds.iter().map(|kind| counters.get_i64(kind).expect("a number")).sum::<i64>()
    };
    let before = commands().await;
    for n in 0..100 {
        log.commit(order("a", n)).await.expect("committed");
    }
    let each = (commands().await - before) / 100;
    // An insert, the transaction and what wakes up by it; the members' and drivers' own questions beside.
    assert!(each <= 25, "{each} commands for a commit beside {idle} idle tenants");
    let pipeline = [
        doc! { "$currentOp": { "idleCursors": true } },
        doc! { "$match": { "cursor.originatingCommand.pipeline.$changeStream": { "$exists": true } } },
    ];
    let mut found = admin.aggregate(pipeline).await.expect("told");
    let mut streams = 0;
    while found.advance().await.expect("read") {
        streams += 1;
    }
    assert!(streams <= 1, "{streams} change streams");
    store.close().await;
}
