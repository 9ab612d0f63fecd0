//! The suite of handlers, and commits that the network holds up on their way to the log.

use std::sync::Arc;

use annals_core::handlers::{HandlerDefinition, Handlers, PullBody, SettleBody, Settlement};
use annals_core::{DEFAULT_TENANT, Store};
use annals_mongodb::Options;
use annals_runtime::{Host, HostOptions};

use crate::network::opened_as;
use crate::proxy::Network;
use crate::records::MongoRecords;
use crate::server::{log_of, order, until};

mod replica_set {
    use super::*;
    annals_conformance::handlers!(MongoRecords::new());
    annals_conformance::handlers_of_processes!(MongoRecords::new());
}

/// Pulls and settles what there is, and returns the sequence numbers.
async fn handle(handlers: &dyn Handlers) -> Vec<u64> {
    let pull = PullBody { max: 100, wait_ms: 100, ..PullBody::default() };
    let mut handled = Vec::new();
    for delivery in handlers.pull("h", pull).await.expect("pulled") {
        let done = SettleBody { results: vec![Settlement::done(delivery.token)] };
        assert!(handlers.settle("h", done).await.expect("settled")[0].settled);
        handled.push(delivery.event.sequence_number);
    }
    handled
}

/// A process whose commits are stored and never acknowledged, or stay on the way, until the network is back. Meanwhile another process
/// commits and handles: no sequence number is passed over, and none comes twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commits_that_are_held_up_on_their_way_are_handled_without_a_gap() {
    let (databases, proxy, held_up) = opened_as("held-up", Options::default()).await;
    let direct = Arc::new(databases.store(Options::default()).await);
    let host = Host::start(direct.clone(), HostOptions::default());
    let handlers = host.handlers(DEFAULT_TENANT).expect("declared");
    handlers.put(HandlerDefinition::new("h")).await.expect("defined");
    let mut handled = Vec::new();
    for (round, network) in [Network::OneWay, Network::Silent].into_iter().enumerate() {
        proxy.set(network);
        let log = log_of(&held_up);
        let late = tokio::spawn(async move { log.commit(order("late", 0).request_id(format!("r-{round}"))).await });
        for n in 0..10 {
            log_of(&direct).commit(order("direct", n)).await.expect("committed");
            handled.extend(handle(&*handlers).await);
        }
        proxy.set(Network::Cut);
        until("every connection is broken", async || proxy.connections() == 0).await;
        proxy.set(Network::Whole);
        late.await.expect("it ends").expect("committed once the network is back");
    }
    let head = log_of(&direct).head().await.expect("reads");
    until("everything is handled", async || {
        handled.extend(handle(&*handlers).await);
        handled.len() as u64 >= head
    })
    .await;
    assert_eq!(handled, (0..22).collect::<Vec<_>>());
    host.drain().await;
    held_up.close().await;
    direct.close().await;
}
