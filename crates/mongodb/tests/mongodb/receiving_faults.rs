//! Receiving while servers, networks and processes fail: each event is in the log once, and its subscription stands behind it.

use std::time::Duration;

use annals_core::{ReceiveError, Store, StoreError};
use annals_mongodb::{MongoStore, Options};
use mongodb::bson::{Document, doc};
use serde_json::json;

use crate::network;
use crate::proxy::Network;
use crate::receiving::{INBOX, batch, exactly_once, options, receiving, subscription};
use crate::server::{Databases, Faults, until};
use crate::writers::{Ear, Writer, heard};

/// A store whose commands only are met by a fault that names it.
async fn named(databases: &Databases) -> (MongoStore, String) {
    let name = format!("receiving-{}", databases.name);
    let url = format!("{}&appName={name}", databases.url());
    (MongoStore::open(&url, options()).await.expect("the store opens"), name)
}

/// Each fault hits the commands of one batch, which is received as if nothing had been.
async fn each_is_survived(faults: Vec<Document>) {
    let databases = Databases::new();
    let (store, name) = named(&databases).await;
    let receiving = receiving(&store);
    receiving.receive(batch("p", 0..2)).await.expect("received");
    let fault = Faults::take().await;
    for (n, mut data) in (1..).zip(faults) {
        let times = data.remove("times").and_then(|times| times.as_i32()).unwrap_or(1);
        data.insert("appName", &name);
        fault.set(times, data.clone()).await;
        let received =
            receiving.receive(batch("p", 2 * n..2 * n + 2)).await.unwrap_or_else(|error| panic!("{data}: {error}"));
        assert_eq!((received.first, received.duplicate), (2 * n, false), "{data}");
        assert_eq!(exactly_once(&store, "p").await, 2 * n + 2, "{data}");
    }
    fault.end().await;
    store.close().await;
}

#[tokio::test]
async fn what_the_server_aborts_is_received_by_another_attempt() {
    let label = ["TransientTransactionError"];
    each_is_survived(vec![
        doc! { "failCommands": ["update"], "errorCode": 112, "errorLabels": label },
        doc! { "failCommands": ["insert"], "errorCode": 112, "errorLabels": label, "times": 3 },
        doc! { "failCommands": ["insert"], "closeConnection": true },
        doc! { "failCommands": ["find"], "closeConnection": true },
        doc! { "failCommands": ["commitTransaction"], "errorCode": 251, "errorLabels": label },
    ])
    .await;
}

/// The commit happens or not, and its answer does not come: the server is asked until it says which.
#[tokio::test]
async fn a_commit_whose_outcome_is_unknown_is_found_out() {
    each_is_survived(vec![
        doc! { "failCommands": ["commitTransaction"], "closeConnection": true, "times": 3 },
        doc! { "failCommands": ["commitTransaction"], "errorCode": 11602, "times": 3 },
        doc! { "failCommands": ["commitTransaction"], "times": 3,
        "writeConcernError": { "code": 91, "errmsg": "shutting down" } },
    ])
    .await;
}

#[tokio::test]
async fn what_the_server_does_not_take_is_refused_and_absent() {
    let databases = Databases::new();
    let (store, name) = named(&databases).await;
    let receiving = receiving(&store);
    receiving.receive(batch("p", 0..2)).await.expect("received");
    let fault = Faults::take().await;
    fault.set(1, doc! { "failCommands": ["insert"], "errorCode": 14031, "appName": &name }).await;
    let error = receiving.receive(batch("p", 2..4)).await.expect_err("it is refused");
    assert!(matches!(&error, ReceiveError::Store(StoreError::ReadOnly(_))), "{error}");
    assert_eq!(exactly_once(&store, "p").await, 2);
    fault.end().await;
    receiving.receive(batch("p", 2..4)).await.expect("there is room again");
    assert_eq!(exactly_once(&store, "p").await, 4);
    store.close().await;
}

/// Waits until the server holds up a command of the client of this name, of a collection unless it is a commit.
async fn until_held_up(databases: &Databases, name: &str, command: &str, collection: &str) {
    /// Looks that find the same operation, so that it is not one that passes by.
    const LOOKS: u32 = 5;
    let admin = databases.client().await.database("admin");
    let mut seen = (None, 0);
    until(&format!("{command} {collection} held up"), async || {
        let found = admin.run_command(doc! { "currentOp": 1, "appName": name }).await.expect("asked");
        let all = found.get_array("inprog").expect("operations");
        // Of a long command the server shows the beginning, as a text.
        let is_it = |one: &&Document| {
            let shown = one.get_document("command").map(ToString::to_string).unwrap_or_default();
            shown.contains(command) && shown.contains(collection)
        };
        let held_up =
            all.iter().filter_map(|one| one.as_document()).find(is_it).and_then(|one| one.get("opid").cloned());
        seen = if held_up.is_some() && held_up == seen.0 { (held_up, seen.1 + 1) } else { (held_up, 1) };
        seen.0.is_some() && seen.1 >= LOOKS
    })
    .await;
}

/// The transaction is stored, its answer gets lost, and every connection breaks: what is answered in the end is what happened.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_whose_answer_is_lost_is_answered_when_the_network_is_back() {
    let name = format!("receiving-cut-{}", std::process::id());
    let (databases, proxy, store) = network::opened_as(&name, options()).await;
    let beside = databases.store(options()).await;
    receiving(&store).receive(batch("p", 0..2)).await.expect("received");
    let fault = Faults::take().await;
    let held_up = doc! {
        "failCommands": ["commitTransaction"], "blockConnection": true, "blockTimeMS": 3_000, "appName": &name,
    };
    fault.set(1, held_up).await;
    let under_way = tokio::spawn({
        let receiving = receiving(&store);
        async move { receiving.receive(batch("p", 2..5)).await }
    });
    until_held_up(&databases, &name, "commitTransaction", "").await;
    proxy.set(Network::OneWay);
    let stands = async || receiving(&beside).state(&subscription("p")).await.expect("read").position;
    until("the stored batch", async || stands().await == 5).await;
    proxy.set(Network::Cut);
    until("every connection is broken", async || proxy.connections() == 0).await;
    // Meanwhile another process has sent the same, as a consumer does that took over.
    let again = receiving(&beside).receive(batch("p", 2..5)).await.expect("a repeat");
    assert_eq!((again.first, again.duplicate), (2, true));
    receiving(&beside).receive(batch("p", 5..6)).await.expect("received");
    proxy.set(Network::Whole);
    let received = under_way.await.expect("it ends").expect("received");
    assert_eq!((received.first, received.duplicate), (2, false));
    assert_eq!(exactly_once(&beside, "p").await, 6);
    fault.end().await;
    store.close().await;
    beside.close().await;
}

/// An operator ends the session, or another process that takes this one for gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_whose_session_is_killed_is_received_by_another_attempt() {
    let databases = Databases::new();
    let (store, name) = named(&databases).await;
    receiving(&store).receive(batch("p", 0..2)).await.expect("received");
    let fault = Faults::take().await;
    let database = databases.database().await;
    let held_up = doc! {
        "failCommands": ["insert"], "blockConnection": true, "blockTimeMS": 60_000, "appName": &name,
        "namespace": format!("{}.x-{INBOX}-annals-received", databases.name),
    };
    fault.set(1, held_up).await;
    let under_way = tokio::spawn({
        let receiving = receiving(&store);
        async move { receiving.receive(batch("p", 2..4)).await }
    });
    until_held_up(&databases, &name, "insert", &format!("x-{INBOX}-annals-received")).await;
    let notes = database.collection::<Document>("sequencer-state");
    let note = notes.find_one(doc! { "_id": { "$regex": "^sessions:" } }).await.expect("found").expect("noted");
    let sessions = note.get_array("sessions").expect("its sessions").clone();
    database.run_command(doc! { "killSessions": sessions }).await.expect("killed");
    let received = under_way.await.expect("it ends").expect("received");
    assert_eq!((received.first, received.duplicate), (2, false));
    assert_eq!(exactly_once(&store, "p").await, 4);
    fault.end().await;
    store.close().await;
}

/// A process is killed in the middle of a transaction, at each of its steps. What it had begun is gone, and another goes on at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_killed_at_any_step_is_succeeded_and_each_event_is_received_once() {
    let databases = Databases::new();
    let store = databases.store(options()).await;
    crate::server::log_of(&store).commit(crate::server::order("a", 0)).await.expect("this process is the sequencer");
    let fault = Faults::take().await;
    let of_scope = |name: &str| format!("x-{INBOX}-{name}");
    let steps = [
        ("update", "event-log-metadata".to_owned()),
        ("update", of_scope("subscription-states")),
        ("insert", of_scope("event-log")),
        ("insert", of_scope("annals-received")),
        ("commitTransaction", String::new()),
    ];
    for (n, (command, collection)) in (1..).zip(steps) {
        let name = format!("receiving-killed-{n}-{}", databases.name);
        let mut stuck =
            doc! { "failCommands": [command], "blockConnection": true, "blockTimeMS": 60_000, "appName": &name };
        if !collection.is_empty() {
            stuck.insert("namespace", format!("{}.{collection}", databases.name));
        }
        let ear = Ear::default();
        let url = format!("{}&appName={name}", databases.url());
        let plan = json!({ "url": url, "name": "w", "callers": 0, "receive": "p" });
        let mut writer = Writer::start(plan, &ear);
        until("a batch of the other process", async || !heard(&ear).received.is_empty()).await;
        fault.set(1_000, stuck).await;
        until_held_up(&databases, &name, command, &collection).await;
        writer.kill();
        fault.end().await;
        let told = heard(&ear).received.len() as u64;
        let receiving = receiving(&store);
        let from = receiving.state(&subscription("p")).await.expect("read").position;
        let next = tokio::time::timeout(Duration::from_secs(20), receiving.receive(batch("p", from..from + 2)));
        let next = next.await.unwrap_or_else(|_| panic!("{command} {collection}: the transaction is still open"));
        assert!(next.is_ok_and(|next| !next.duplicate), "{command} {collection}");
        let count = exactly_once(&store, "p").await;
        assert!(
            count >= 2 * told + 2,
            "{command} {collection}: {told} batches were acknowledged, {count} events are there"
        );
    }
    store.close().await;
}

/// Processes that all receive the same, as consumers do that both believe to own a subscription, some of them killed at any moment.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_several_processes_that_receive_the_same_each_event_is_received_once() {
    let databases = Databases::new();
    let store = databases.store(options()).await;
    let mut acknowledged = 0;
    for _ in 0..3 {
        let ears = [Ear::default(), Ear::default(), Ear::default()];
        let mut writers: Vec<_> = ears
            .iter()
            .map(|ear| {
                let plan = json!({ "url": databases.url(), "name": "w", "callers": 0, "receive": "p" });
                Writer::start(plan, ear)
            })
            .collect();
        until("batches", async || ears.iter().map(|ear| heard(ear).received.len()).sum::<usize>() >= 15).await;
        writers.iter_mut().for_each(Writer::kill);
        for ear in &ears {
            let stored = heard(ear).received.into_iter().filter(|told| told["duplicate"] == false);
            acknowledged += stored.map(|told| told["events"].as_u64().expect("a number")).sum::<u64>();
        }
        let received = loop {
            let from = receiving(&store).state(&subscription("p")).await.expect("read").position;
            match receiving(&store).receive(batch("p", from..from + 3)).await {
                // A commit that a killed process had sent may happen after the state was read.
                Err(ReceiveError::Moved { stored, .. }) => assert!(stored.position > from),
                received => break received.expect("received"),
            }
        };
        acknowledged += if received.duplicate { 0 } else { 3 };
    }
    let count = exactly_once(&store, "p").await;
    assert!(count >= acknowledged, "{acknowledged} were acknowledged as new, {count} are there");
    store.close().await;
}

/// Of two that send the same from one position one is new, whatever they race for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_stores_that_race_answer_each_event_as_new_once() {
    let databases = Databases::new();
    let (first, second) = tokio::join!(databases.store(options()), databases.store(options()));
    let race = |store: &MongoStore| {
        let receiving = receiving(store);
        tokio::spawn(async move {
            let mut new = 0;
            loop {
                let from = receiving.state(&subscription("p")).await.expect("read").position;
                if from >= 60 {
                    return new;
                }
                let to = (from + 1 + from % 4).min(60);
                match receiving.receive(batch("p", from..to)).await {
                    Ok(received) => new += if received.duplicate { 0 } else { to - from },
                    Err(ReceiveError::Moved { stored, .. }) => assert!(stored.position > from),
                    Err(error) => panic!("{error}"),
                }
            }
        })
    };
    let (a, b) = (race(&first), race(&second));
    assert_eq!(a.await.expect("it ends well") + b.await.expect("it ends well"), 60);
    assert_eq!(exactly_once(&first, "p").await, 60);
    tokio::join!(first.close(), second.close());
}

/// As a consumer does: it asks where it stands, and sends what follows.
pub async fn receive_for_ever(store: &MongoStore, partition: &str, mut told: impl FnMut(u64, bool)) {
    let receiving = receiving(store);
    loop {
        let Ok(stands) = receiving.state(&subscription(partition)).await else { continue };
        let from = stands.position;
        if let Ok(received) = receiving.receive(batch(partition, from..from + 2)).await {
            told(2, received.duplicate);
        }
    }
}

/// Options of a process that receives.
pub fn options_of(plan: &serde_json::Value, other: Options) -> Options {
    if plan["receive"].is_string() { Options { scopes: options().scopes, ..other } } else { other }
}
