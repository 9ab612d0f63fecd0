//! A database of a Dolittle Runtime, as its owner adopts it. The name of this file leaves it out where there is no MongoDB: see
//! CONTRIBUTING.md.

use mongodb::Client;
use mongodb::bson::spec::BinarySubtype;
use mongodb::bson::{Binary, DateTime, Document, doc};
use serde_json::json;

use crate::run::{folder, run};
use crate::with_mongodb_serve::{get, serve};

const PLACED: &str = "7a1c6a5e-1111-4111-8111-0123456789ab";
const ORDER: &str = "c0ffee00-3333-4333-8333-0123456789ab";

fn uuid(text: &str) -> Binary {
    let bytes = annals::Uuid::try_parse(text).expect("a UUID").as_bytes().to_vec();
    Binary { subtype: BinarySubtype::Uuid, bytes }
}

/// Two events of an aggregate and one of none, with numbers that were deleted between them.
pub async fn fill(url: &str, database: &str) {
    let client = Client::with_uri_str(url).await.expect("a client");
    let event = |number: i64, applied: bool| {
        let mut event = doc! {
            "_id": number, "Content": { "n": number },
            "Metadata": {
                "Occurred": DateTime::from_millis(1_700_000_000_000 + number), "EventSource": "o-1",
                "TypeId": uuid(PLACED), "TypeGeneration": 1_i64, "Public": false,
            },
        };
        if applied {
            event.insert(
                "Aggregate",
                doc! { "WasAppliedByAggregate": true, "TypeId": uuid(ORDER), "TypeGeneration": 1_i64, "Version": number },
            );
        }
        event
    };
    let log = client.database(database).collection::<Document>("event-log");
    log.insert_many([event(0, true), event(1, true), event(4, false)]).await.expect("inserted");
}

#[test]
fn it_says_what_it_would_do_wants_names_and_does_it_once() {
    let server = std::env::var("ANNALS_TEST_MONGODB").expect("the URL of a MongoDB; `cargo xtask services` starts one");
    let name = format!("annals_cli_adopt_{}", std::process::id());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(fill(&server, &name));
    let (place, query) = server.split_once('?').unwrap_or((&server, ""));
    let url = format!("{}/{name}?{query}", place.trim_end_matches('/'));
    let here = folder();
    let annals = |arguments: &[&str]| run(here.path(), &[arguments, &["--store", &*url]].concat());

    annals(&["log", "read"]).refused("not_adopted", 6);
    annals(&["commit", "--aggregate", "order/o-1", "--type", "placed"]).refused("not_adopted", 6);
    let looked = annals(&["adopt", "--output", "json"]);
    let report = &looked.json()[0];
    assert_eq!(report["names"], json!({ "event_types": { PLACED: null }, "aggregates": { ORDER: null } }));
    assert!(looked.refused("invalid_names", 2).contains(PLACED));
    std::fs::write(here.path().join("bad.json"), "{\"events\": {}}").expect("written");
    annals(&["adopt", "--names", "bad.json"]).refused("invalid_names", 2);
    annals(&["adopt", "--names", "none.json"]).refused("unreadable_input", 2);
    let names = json!({ "event_types": { PLACED: "placed" }, "aggregates": { ORDER: "order" } });
    std::fs::write(here.path().join("names.json"), names.to_string()).expect("written");
    let would = annals(&["adopt", "--names", "names.json", "--output", "table"]).ok();
    assert!(would.out.contains("Would be done:") && would.out.contains("--apply"), "{}", would.out);
    annals(&["log", "read"]).refused("not_adopted", 6);

    let done = annals(&["adopt", "--names", "names.json", "--apply", "--output", "json"]).ok();
    assert_eq!((&done.json()[0]["done"], &done.json()[0]["head"]), (&json!(true), &json!(5)));
    let events = annals(&["log", "read", "--output", "json"]).ok().json();
    assert_eq!((&events[1]["aggregate"], &events[1]["version"]), (&json!({ "name": "order", "id": "o-1" }), &json!(2)));
    assert_eq!((&events[2]["aggregate"], &events[2]["event_source"]), (&json!(null), &json!("o-1")));
    annals(&["commit", "--aggregate", "order/o-1", "--type", "placed", "--expect", "2", "--wait", "logged"]).ok();
    let server_of_it = serve(here.path(), &url);
    let (status, hole) = get(&server_of_it, "/v1/log/2");
    assert_eq!((status, &hole["code"], &hole["head"]), (404, &json!("unknown_event"), &json!(6)));
    assert!(hole["detail"].as_str().is_some_and(|it| it.contains("never will") && !it.contains("yet")), "{hole}");
    let (status, later) = get(&server_of_it, "/v1/log/6");
    assert!(status == 404 && later["detail"].as_str().is_some_and(|it| it.contains("no event 6 yet")), "{later}");
    drop(server_of_it);
    let commits = annals(&["aggregate", "read", "order", "o-1", "--output", "json"]).ok().json();
    assert_eq!(commits.iter().map(|commit| commit["version"].clone()).collect::<Vec<_>>(), [1, 2, 3]);
    let again = annals(&["adopt", "--output", "json"]).ok();
    assert_eq!((&again.json()[0]["steps"], &again.json()[0]["obstacles"]), (&json!([]), &json!([])));

    runtime.block_on(async {
        let client = Client::with_uri_str(&server).await.expect("a client");
        client.database(&name).drop().await.expect("dropped");
    });
}

#[test]
fn only_a_mongodb_is_adopted() {
    let here = folder();
    run(here.path(), &["adopt"]).refused("not_supported_by_store", 2);
    run(here.path(), &["adopt", "--server", "http://127.0.0.1:1"]).refused("invalid_config", 2);
}
