//! Handlers, filters and projections on a store that was restored to an earlier number.

use annals::filters::{FilterDefinition, Filters};
use annals::handlers::{HandlerDefinition, Handlers, PullBody, SettleBody, Settlement};
use annals::projections::{ProjectionDefinition, Projections};
use annals::{Client, Data, EventLog, NewCommit, NewEvent, StreamQuery, Streams};

use crate::process::{Server, annals};
use crate::run::{folder, run};

const COUNTS: &str = r#"{"on": {"placed": {"increment": {"n": 1}}}, "key": "all"}"#;

fn client(server: &Server) -> Client {
    Client::new(&server.url, annals::DEFAULT_TENANT, annals::DEFAULT_SCOPE).expect("an address")
}

async fn commit(client: &Client, count: u64) {
    for _ in 0..count {
        let commit = NewCommit::new("order", "o-1").event(NewEvent::new("placed", Data::empty()));
        client.commit(commit).await.expect("committed");
    }
}

/// Pulls and settles until the handler has come so far; returns the positions that were delivered.
async fn handle(client: &Client, to: u64) -> Vec<u64> {
    let handlers = client.handlers();
    let mut handled = Vec::new();
    loop {
        // A pull starts the owner, which compares the position with the log.
        let pull = PullBody { max: 10, wait_ms: 1_000, ..PullBody::default() };
        for delivery in handlers.pull("h", pull).await.expect("pulled") {
            let done = SettleBody { results: vec![Settlement::done(delivery.token)] };
            assert!(handlers.settle("h", done).await.expect("settled")[0].settled);
            handled.push(delivery.position);
        }
        if handlers.get("h").await.expect("defined").position >= to {
            return handled;
        }
    }
}

/// Waits until filter and projection have processed so many events, and checks that each counts once.
async fn derived(client: &Client, events: u64) {
    client.streams().wait_past("all-orders", events - 1).await.expect("filled");
    let entries = client.streams().read(StreamQuery::new("all-orders")).await.expect("read").entries;
    assert_eq!(entries.iter().map(|it| it.sequence_number).collect::<Vec<_>>(), (0..events).collect::<Vec<_>>());
    loop {
        let status = client.projections().get("counts").await.expect("defined");
        if status.position == events && status.building.is_none() {
            break;
        }
        tokio::task::yield_now().await;
    }
    let record = client.projections().record("counts", &"all".into()).await.expect("read").expect("there");
    assert_eq!(record.document.get_i64("n").expect("a number"), events.cast_signed());
}

/// What they processed beyond that number never happened in the restored store: positions go back to it, which is recorded.
#[test]
fn processors_of_a_restored_store_go_back_to_its_number_and_say_so() {
    let folder = folder();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("a runtime");
    let server = Server::start(folder.path());
    let of_server = client(&server);
    runtime.block_on(async {
        of_server.handlers().put(HandlerDefinition::new("h")).await.expect("defined");
        of_server.filters().put(FilterDefinition::new("all-orders")).await.expect("defined");
        let counts = ProjectionDefinition::read("counts", COUNTS.as_bytes()).expect("a definition");
        of_server.projections().put(counts).await.expect("defined");
        commit(&of_server, 6).await;
        assert_eq!(handle(&of_server, 6).await, (0..6).collect::<Vec<_>>());
        derived(&of_server, 6).await;
    });
    // It runs while the backup is taken.
    run(folder.path(), &["backup", "--server", &server.url, "--to", "backup.tar"]).ok();
    assert_eq!(server.terminate(), Some(0));
    let restore = ["restore", "--from", "backup.tar", "--store", "embedded:./before", "--to-sequence-number", "3"];
    run(folder.path(), &restore).ok();

    let mut command = annals(folder.path());
    command.args(["serve", "--dev", "--listen", "127.0.0.1:0", "--store", "embedded:./before"]);
    let server = Server::of(command);
    let of_server = client(&server);
    runtime.block_on(async {
        commit(&of_server, 2).await;
        assert_eq!(handle(&of_server, 5).await, [3, 4], "what follows the restored events, and nothing before");
        let acts = of_server.handlers().acts("h", None, 10).await.expect("read").items;
        let clamp = acts.iter().find(|act| &*act.act == "clamp").expect("it is recorded");
        assert_eq!((clamp.from, clamp.to), (Some(6), Some(3)));
        derived(&of_server, 5).await;
        let acts = of_server.projections().acts("counts", None, 10).await.expect("read").items;
        assert!(acts.iter().any(|act| &*act.act == "rebuild" && act.by.as_deref() == Some("annals")), "{acts:?}");
        assert_eq!(of_server.handlers().get("h").await.expect("defined").degraded, None);
    });
    assert_eq!(server.terminate(), Some(0));
}
