//! `annals handler`, as operators use it when something fails.

use annals::handlers::{Delivery, DeliveryFailure, Handlers, PullBody, SettleBody, Settlement};
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

/// Pulls one event of the handler as a worker does, and settles it. Returns `None` if no event arrives in time.
fn handle_within(server: &Server, wait_ms: u64) -> Option<Delivery> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let client = Client::new(&server.url, annals::DEFAULT_TENANT, annals::DEFAULT_SCOPE).expect("an address");
        let pull = PullBody { max: 1, wait_ms, ..PullBody::default() };
        let delivery = client.handlers().pull("billing", pull).await.expect("pulled").pop()?;
        let results = vec![Settlement::done(delivery.token.clone())];
        let settled = client.handlers().settle("billing", SettleBody { results }).await.expect("settled");
        assert!(settled[0].settled);
        Some(delivery)
    })
}

fn handle(server: &Server) -> Delivery {
    handle_within(server, 20_000).expect("an event")
}

#[test]
fn a_failing_event_is_retried_at_once_and_parked() {
    let folder = folder();
    let server = Server::start(folder.path());
    let at = |arguments: &[&str]| run(folder.path(), &[arguments, &["--server", &server.url]].concat());
    at(&["handler", "put", "billing", "--type", "order_placed", "--partition-by", "aggregate"]).ok();
    let commits = lines((0..2).map(|n| body("o.1", json!({ "n": n }))));
    run_with(folder.path(), &["commit", "--server", &server.url], &commits).ok();
    fail(&server);
    at(&["handler", "retry", "billing", "order/o.1", "--reason", "the address is there", "--by", "ann"]).ok();
    // It would be pulled in vain if it were not attempted again.
    fail(&server);
    let failing = at(&["handler", "failing", "billing"]).ok().json();
    let (position, attempts, state) = (&failing[0]["position"], &failing[0]["attempts"], &failing[0]["state"]);
    assert_eq!((position, attempts, state), (&json!(0), &json!(1), &json!("blocked")), "its policy began again");
    at(&["handler", "retry", "billing", "order/o.2", "--reason", "a test"]).refused("unknown_partition", 4);
    let park = ["handler", "park", "billing", "order/o.1", "--reason", "for the day shift", "--position"];
    at(&[&park[..], &["1"]].concat()).refused("state_conflict", 3);
    let parked = at(&[&park[..], &["0"]].concat()).ok().json();
    assert_eq!(parked[0]["parked"], json!(1));
    assert_eq!(handle(&server).position, 1, "the partition continues");
    let acts = at(&["handler", "acts", "billing"]).ok().json();
    let of = |act: usize, field: &str| acts[act][field].as_str().unwrap_or_default();
    assert_eq!((of(0, "act"), of(0, "reason")), ("park", "for the day shift"));
    assert_eq!((of(1, "act"), of(1, "reason"), of(1, "by")), ("retry", "the address is there", "ann"));
    assert_eq!(acts.len(), 2, "what was refused is not recorded");
}

#[test]
fn a_paused_handler_delivers_nothing_until_it_is_resumed() {
    let folder = folder();
    let server = Server::start(folder.path());
    let at = |arguments: &[&str]| run(folder.path(), &[arguments, &["--server", &server.url]].concat());
    at(&["handler", "put", "billing"]).ok();
    let pause = ["handler", "pause", "billing", "--reason", "the mail server moves"];
    assert_eq!(at(&pause).ok().json()[0]["state"], json!("paused"));
    at(&pause).refused("state_conflict", 3);
    run_with(folder.path(), &["commit", "--server", &server.url], &lines([body("o.1", json!({ "total": 1 }))])).ok();
    assert!(handle_within(&server, 300).is_none(), "it is paused");
    at(&["handler", "resume", "billing", "--reason", " "]).refused("invalid_body", 2);
    let resumed = at(&["handler", "resume", "billing", "--reason", "it has moved"]).ok().json();
    assert_ne!(resumed[0]["state"], json!("paused"));
    assert_eq!(handle(&server).position, 0);
    let acts = at(&["handler", "acts", "billing"]).ok().json();
    let names: Vec<_> = acts.iter().map(|act| act["act"].as_str().unwrap_or_default()).collect();
    assert_eq!(names, ["resume", "pause"]);
}

#[test]
fn a_handler_is_moved_and_what_it_has_passed_is_replayed() {
    let folder = folder();
    let server = Server::start(folder.path());
    let at = |arguments: &[&str]| run(folder.path(), &[arguments, &["--server", &server.url]].concat());
    let act = |arguments: &[&str]| at(&[&["handler"][..], arguments, &["--reason", "a test"]].concat());
    at(&["handler", "put", "billing"]).ok();
    let commits = lines((0..3).map(|n| body("o.1", json!({ "n": n }))));
    run_with(folder.path(), &["commit", "--server", &server.url], &commits).ok();
    let latest = act(&["move", "billing", "latest"]).ok().json();
    assert_eq!((&latest[0]["position"], &latest[0]["lag"]), (&json!(3), &json!(0)));
    act(&["move", "billing", "4"]).refused("state_conflict", 3);
    act(&["move", "billing", "somewhere"]).refused("invalid_body", 2);
    let back = act(&["move", "billing", "2"]).ok().json();
    assert_eq!((&back[0]["position"], &back[0]["lag"]), (&json!(2), &json!(1)));
    let replayed = act(&["replay", "billing", "beginning"]).ok().json();
    let (position, replay) = (&replayed[0]["position"], &replayed[0]["replay"]);
    assert_eq!((position, &replay["from"], &replay["to"]), (&json!(0), &json!(0), &json!(2)));
    let seen: Vec<_> = (0..3).map(|_| handle(&server)).map(|it| (it.position, it.replay.is_some())).collect();
    assert_eq!(seen, [(0, true), (1, true), (2, false)], "only what it had passed is marked");
    let is_over = || at(&["handler", "show", "billing"]).ok().json()[0].get("replay").is_none();
    assert!((0..1_000).any(|_| is_over()), "the replay ends");
    let since = act(&["replay", "billing", "2000-01-01T00:00:00Z"]).ok().json();
    let replay = &since[0]["replay"];
    assert_eq!((&replay["from"], &replay["to"]), (&json!(0), &json!(3)), "from the first event at or after the time");
    let acts = at(&["handler", "acts", "billing"]).ok().json();
    let names: Vec<_> = acts.iter().map(|act| act["act"].as_str().unwrap_or_default()).collect();
    assert_eq!(names, ["replay", "replay", "move", "move"]);
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
