//! Appends to streams while the server fails: an entry is there once or not at all, and what was answered stays.

use annals_core::{Appended, Included, Store, StoreError, StreamError, Verdicts};
use annals_mongodb::{MongoStore, Options};
use mongodb::bson::{Document, doc};

use crate::server::{Databases, Faults};
use crate::streams::{streams_of, whole, write};

/// A store whose commands only are met by a fault that names it.
async fn named(databases: &Databases) -> (MongoStore, String) {
    let name = format!("faults-{}", databases.name);
    let url = format!("{}&appName={name}", databases.url());
    (MongoStore::open(&url, Options::default()).await.expect("the store opens"), name)
}

fn run(from: u64) -> Verdicts {
    Verdicts::new("s", from..from + 3).include(Included::new(from)).include(Included::of(from + 2, "p"))
}

/// Each fault hits the commands of one append, which is answered as if nothing had been.
async fn each_is_survived(faults: Vec<Document>) {
    let databases = Databases::new();
    let (store, name) = named(&databases).await;
    write(&store, 3 * (faults.len() as u64 + 1)).await;
    let streams = streams_of(&store);
    streams.append(run(0)).await.expect("appended");
    let fault = Faults::take().await;
    for (n, mut data) in (1..).zip(faults) {
        let times = data.remove("times").and_then(|times| times.as_i32()).unwrap_or(1);
        data.insert("appName", &name);
        fault.set(times, data.clone()).await;
        let outcome = streams.append(run(n * 3)).await;
        assert_eq!(outcome, Ok(Appended { positions: n * 2..n * 2 + 2, duplicate: false }), "{data}");
        assert_eq!(whole(&streams, "s").await.len() as u64, n * 2 + 2, "{data}");
    }
    fault.end().await;
    store.close().await;
}

#[tokio::test]
async fn what_the_server_gives_up_is_tried_again() {
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
        doc! { "failCommands": ["commitTransaction"], "times": 2,
        "writeConcernError": { "code": 64, "errmsg": "waiting for replication timed out" } },
    ])
    .await;
}

/// What the server refuses for good, such as for want of room, is said at once, and nothing of it is stored.
#[tokio::test]
async fn what_the_server_does_not_take_is_refused_and_absent() {
    let databases = Databases::new();
    let (store, name) = named(&databases).await;
    write(&store, 9).await;
    let streams = streams_of(&store);
    streams.append(run(0)).await.expect("appended");
    let fault = Faults::take().await;
    let full = doc! { "failCommands": ["insert"], "errorCode": 14031, "appName": &name };
    fault.set(1, full).await;
    let error = streams.append(run(3)).await.expect_err("it is refused");
    assert!(matches!(&error, StreamError::Store(StoreError::ReadOnly(_))), "{error}");
    assert_eq!(whole(&streams, "s").await.len(), 2);
    assert_eq!(streams.stream("s").await.expect("its state").progress, 3);
    fault.end().await;
    assert_eq!(streams.append(run(3)).await.expect("there is room again").positions, 2..4);
    store.close().await;
}
