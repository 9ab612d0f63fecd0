//! Filters of a client: definitions, verdicts and refusals travel both ways.

use std::net::SocketAddr;
use std::sync::Arc;

use annals::filters::{FilterDefinition, FilterError, FilterName, FilterSettleBody, FilterSettlement, Filters};
use annals::handlers::{PullBody, Reason};
use annals::processing::PartitionBy;
use annals::server::{Options, serve};
use annals::{Client, DEFAULT_SCOPE, DEFAULT_TENANT, Data, EventLog, NewCommit, NewEvent, StreamQuery, Streams};
use tokio::net::TcpListener;

async fn served() -> SocketAddr {
    let store = annals::open("memory:").await.expect("a store");
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(serve(listener, Arc::clone(&store), Options::default(), std::future::pending()));
    address
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_defines_a_filter_and_evaluates_its_events() {
    let client = Client::new(&format!("http://{}", served().await), DEFAULT_TENANT, DEFAULT_SCOPE).expect("an address");
    let (filters, name) = (client.filters(), FilterName::new("orders"));
    let definition = || FilterDefinition::new("orders").types(["placed"]).remote();
    assert!(filters.put(definition()).await.expect("defined"));
    assert!(!filters.put(definition()).await.expect("unchanged"));
    client
        .commit(NewCommit::new("order", "o-1").event(NewEvent::new("placed", Data::empty())))
        .await
        .expect("committed");
    let pull = PullBody { wait_ms: 20_000, worker: "w".to_owned(), ..PullBody::default() };
    let deliveries = filters.pull(&name, pull).await.expect("pulled");
    assert_eq!((deliveries[0].position, &*deliveries[0].event.event_type), (0, "placed"));
    let results = vec![FilterSettlement::in_partition(&*deliveries[0].token, "p")];
    let settled = filters.settle(&name, FilterSettleBody { results }).await.expect("settled");
    assert!(settled[0].settled);
    let entries = client.streams().read(StreamQuery::new("orders")).await.expect("reads").entries;
    assert_eq!(entries[0].partition.as_deref(), Some("p"));
    let status = filters.get(&name).await.expect("defined");
    assert_eq!((status.entries, status.progress), (1, 1));
    assert_eq!(filters.list(None, 10).await.expect("listed").items.len(), 1);

    let other = FilterDefinition::new("orders").types(["placed"]).partitioned(PartitionBy::Aggregate);
    let refused = filters.put(other).await.expect_err("it is remote");
    let expected = FilterError::Changed { name: "orders".into(), setting: "kind".into(), first_difference: Some(0) };
    assert_eq!(refused, expected);
    filters.delete(&name, Reason::from("a test")).await.expect("deleted");
    assert_eq!(filters.get(&name).await.expect_err("it is gone"), FilterError::Unknown("orders".into()));
}
