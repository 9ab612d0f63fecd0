//! Commits of a client that wait for a handler: the name of the stage travels both ways.

use std::net::SocketAddr;
use std::sync::Arc;

use annals::handlers::{HandlerDefinition, Handlers, PullBody, SettleBody, Settlement};
use annals::server::{Options, serve};
use annals::{Client, Code, DEFAULT_SCOPE, DEFAULT_TENANT, Data, EventLog, NewCommit, NewEvent, Reached};
use tokio::net::TcpListener;

async fn served() -> SocketAddr {
    let store = annals::open("memory:").await.expect("a store");
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(serve(listener, Arc::clone(&store), Options::default(), std::future::pending()));
    address
}

fn placed(stage: &str) -> NewCommit {
    let event = NewEvent::new("placed", Data::empty());
    NewCommit::new("order", "o-1").event(event).wait_until(Reached::Stage(stage.to_owned().into()))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_of_a_client_waits_until_a_handler_has_handled_it() {
    let client = Client::new(&format!("http://{}", served().await), DEFAULT_TENANT, DEFAULT_SCOPE).expect("an address");
    let handlers = client.handlers();
    assert!(handlers.put(HandlerDefinition::new("billing")).await.expect("defined"));
    let handling = async {
        let pull = PullBody { wait_ms: 20_000, worker: "w".to_owned(), ..PullBody::default() };
        let deliveries = handlers.pull("billing", pull).await.expect("pulled");
        let results = vec![Settlement::done(deliveries[0].token.clone())];
        handlers.settle("billing", SettleBody { results }).await.expect("settled")
    };
    let (outcome, settled) = tokio::join!(client.commit(placed("handled:billing")), handling);
    assert!(settled[0].settled);
    assert_eq!(outcome.expect("committed").stage.as_deref(), Some("handled:billing"));
    for (stage, code) in
        [("handled:other", Code::UnknownHandler), ("tea", Code::InvalidWait), ("te a", Code::InvalidWait)]
    {
        assert_eq!(client.commit(placed(stage)).await.expect_err(stage).code(), code);
    }
    assert_eq!(client.head().await.expect("reads"), 1);
}
