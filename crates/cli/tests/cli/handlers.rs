//! `annals handler`, as operators use it when something fails.

use annals::handlers::{DeliveryFailure, Handlers, PullBody, SettleBody, Settlement};
use annals::{Client, StreamQuery, Streams};
use serde_json::json;

use crate::process::Server;
use crate::run::{body, folder, lines, run, run_with};

/// Fails the only delivery of a handler for good.
pub fn fail(server: &Server) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let client = Client::new(&server.url, annals::DEFAULT_TENANT, annals::DEFAULT_SCOPE).expect("an address");
        let pull = PullBody { wait_ms: 20_000, ..PullBody::default() };
        let delivery = client.handlers().pull("billing", pull).await.expect("pulled").remove(0);
        let failure = DeliveryFailure { reason: "no invoice address".to_owned(), retry_after_ms: None, never: true };
        let results = vec![Settlement { token: delivery.token, failure: Some(failure) }];
        let settled = client.handlers().settle("billing", SettleBody { results }).await.expect("settled");
        assert!(settled[0].settled);
    });
}

#[test]
fn a_failing_handler_is_listed_shown_and_explained() {
    let folder = folder();
    let server = Server::start(folder.path());
    let at = |arguments: &[&str]| run(folder.path(), &[arguments, &["--server", &server.url]].concat());
    let put = ["handler", "put", "billing", "--type", "order_placed", "--partition-by", "aggregate"];
    assert!(at(&put).ok().json()[0].get("degraded").is_none());
    run_with(folder.path(), &["commit", "--server", &server.url], &lines([body("o.1", json!({ "total": 1 }))])).ok();
    fail(&server);
    let shown = at(&["handler", "show", "billing"]).ok().json();
    let (position, lag, failing) = (&shown[0]["position"], &shown[0]["lag"], &shown[0]["failing"]);
    assert_eq!((position, lag, failing), (&json!(1), &json!(0), &json!(1)));
    let degraded = shown[0]["degraded"].as_str().expect("why it is not healthy");
    assert!(degraded.contains("no invoice address"), "{degraded}");
    let table = at(&["handler", "list", "--output", "table"]).ok().out;
    assert!(table.starts_with("NAME") && table.contains("no invoice address"), "{table}");
    let failing = at(&["handler", "failing", "billing"]).ok().json();
    assert_eq!((&failing[0]["partition"], &failing[0]["state"]), (&json!("order/o.1"), &json!("blocked")));
    // The same as a tool of the Dolittle Runtime would read it.
    let states = at(&["handler", "states"]).ok().json();
    let partition = &states[0]["FailingPartitions"]["order/o.1"];
    assert_eq!((&partition["Reason"], &states[0]["Partitioned"]), (&json!("no invoice address"), &json!(true)));
    assert_eq!(partition["RetryTime"]["$date"]["$numberLong"], "253402300799999", "there is no further attempt");
    at(&["handler", "skip", "billing", "order/o.1", "--reason", "sent by hand"]).ok();
    assert!(at(&["handler", "acts", "billing"]).ok().out.contains("sent by hand"));
}

/// A name need not say it, so the export does.
#[test]
fn an_export_keeps_that_a_stream_is_public() {
    let folder = folder();
    let server = Server::start(folder.path());
    let at = |arguments: &[&str]| run(folder.path(), &[arguments, &["--server", &server.url]].concat());
    at(&["filter", "put", "offers", "--public"]).ok();
    let event = r#"{"type": "offered", "data": {}, "public": true}"#;
    let commit = format!(r#"{{"aggregate": {{"name": "offer", "id": "1"}}, "events": [{event}]}}"#);
    run_with(folder.path(), &["commit", "--server", &server.url], &format!("{commit}\n")).ok();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let client = Client::new(&server.url, annals::DEFAULT_TENANT, annals::DEFAULT_SCOPE).expect("an address");
        client.streams().wait_past("offers", 0).await.expect("filled");
        assert_eq!(client.streams().read(StreamQuery::new("offers")).await.expect("read").entries.len(), 1);
    });
    assert_eq!(server.terminate(), Some(0));
    run(folder.path(), &["export", "store.jsonl"]).ok();
    let line = r#"{"stream":{"name":"offers","public":true}}"#;
    let has_it = |name: &str| {
        let text = std::fs::read_to_string(folder.path().join(name)).expect("an export");
        text.lines().any(|shown| shown == line)
    };
    assert!(has_it("store.jsonl"));
    run(folder.path(), &["import", "--whole", "store.jsonl", "--store", "embedded:./copy"]).ok();
    run(folder.path(), &["export", "again.jsonl", "--store", "embedded:./copy"]).ok();
    assert!(has_it("again.jsonl"));
}
