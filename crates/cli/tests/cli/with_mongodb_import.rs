//! An export of another store, which a store on MongoDB does not take. The name of this file leaves it out where there is no MongoDB: see
//! CONTRIBUTING.md.

use mongodb::Client;

use crate::run::{folder, run};

#[test]
fn a_store_on_mongodb_takes_no_import_and_nothing_is_written_to_it() {
    let server = std::env::var("ANNALS_TEST_MONGODB").expect("the URL of a MongoDB; `cargo xtask services` starts one");
    let name = format!("annals_cli_import_{}", std::process::id());
    let (place, query) = server.split_once('?').unwrap_or((&server, ""));
    let url = format!("{}/{name}?{query}", place.trim_end_matches('/'));
    let here = folder();
    let annals = |arguments: &[&str]| run(here.path(), arguments);

    annals(&["commit", "--aggregate", "order/o-1", "--type", "placed"]).ok();
    annals(&["snapshot", "save", "order", "o-1", r#"{"version": 1, "state": {"n": 1}}"#]).ok();
    annals(&["export", "store.jsonl"]).ok();
    let said = annals(&["import", "--whole", "store.jsonl", "--store", &url]).refused("not_supported_by_store", 2);
    assert!(said.contains("importing copies of commits") && said.contains("nothing was stored"), "{said}");
    annals(&["snapshot", "show", "order", "o-1", "--store", &url]).refused("unknown_snapshot", 4);
    assert!(annals(&["record", "list", "--store", &url]).ok().json().is_empty());

    // Neither is it exported, nor does half an export come before the refusal; what to do is not about storing.
    annals(&["commit", "--aggregate", "order/o-1", "--type", "placed", "--wait", "logged", "--store", &url]).ok();
    let export = annals(&["export", "-", "--store", &url]);
    assert_eq!(export.out, "");
    let said = export.refused("not_supported_by_store", 2);
    assert!(said.contains("help: Export an embedded store"), "{said}");
    annals(&["export", "mongodb.jsonl", "--store", &url]).refused("not_supported_by_store", 2);
    assert!(!here.path().join("mongodb.jsonl").exists());
    let said = annals(&["stats", "--store", &url]).refused("not_supported_by_store", 2);
    assert!(!said.contains("nothing was stored") && said.contains("help: Use another command"), "{said}");

    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let client = Client::with_uri_str(&server).await.expect("a client");
        client.database(&name).drop().await.expect("it is dropped");
    });
}
