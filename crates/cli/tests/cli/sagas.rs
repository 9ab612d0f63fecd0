//! `annals saga`, as operators use it.

use serde_json::{Value, json};

use crate::process::Server;
use crate::run::{Ran, folder, run, run_with};

/// A payment is requested and awaited; what undoes it is attempted once.
const ORDER: &str = r#"
cancel_on = ["withdrawn"]

[start]
on = ["order_placed"]

[[steps]]
name = "pay"
publish = { type = "request_payment", data = { total = "$context.total" } }
await = { on = ["paid"] }

[steps.compensation]
name = "take_back"
publish = { type = "refund" }
retry = { attempts = 1 }
"#;

/// Looks until the saga of an order is as it should be.
fn until(at: &dyn Fn(&[&str]) -> Ran, order: &str, is: impl Fn(&Value) -> bool) -> Value {
    let listed = || at(&["saga", "list", "--execution-id", order]).ok().json().pop().unwrap_or_default();
    (0..2_000).map(|_| listed()).find(|saga| is(saga)).unwrap_or_else(|| panic!("{}", listed()))
}

#[test]
fn definitions_come_from_toml_and_json_and_are_listed_and_deleted_at_a_server() {
    let folder = folder();
    let server = Server::start(folder.path());
    let at = |arguments: &[&str]| run(folder.path(), &[arguments, &["--server", &server.url]].concat());
    std::fs::write(folder.path().join("order.toml"), ORDER).expect("can be written");
    let defined = at(&["saga", "define", "order", "--file", "order.toml"]).ok().json();
    assert_eq!((&defined[0]["name"], &defined[0]["version"]), (&json!("order"), &json!(1)));
    assert_eq!(defined[0]["definition"]["steps"][0]["await"], json!({ "on": ["paid"] }));
    // The same again does nothing; another one is a version with which new sagas begin.
    for (delay, version) in [(60_000, 1), (60_000, 1), (90_000, 2)] {
        let shipping = json!({ "start": { "on": ["shipped"] }, "steps": [{ "name": "wait", "delay_ms": delay }] });
        let define = ["saga", "define", "shipping", "--file", "-", "--server", &server.url];
        assert_eq!(run_with(folder.path(), &define, &shipping.to_string()).ok().json()[0]["version"], version);
    }
    let listed = at(&["saga", "definitions"]).ok().json();
    let names: Vec<_> = listed.iter().map(|it| it["name"].as_str().expect("a name")).collect();
    assert_eq!(names, ["order", "shipping"]);
    let table = at(&["saga", "definitions", "--output", "table"]).ok().out;
    assert!(table.starts_with("NAME") && table.contains("shipping"), "{table}");
    assert_eq!(at(&["saga", "definition", "shipping"]).ok().json()[0]["versions"], json!([1, 2]));
    let deleted = at(&["saga", "delete", "shipping", "--reason", "nothing is shipped any more"]).ok().json();
    assert_eq!(deleted, [json!({ "deleted": true })]);
    let refused = at(&["saga", "definition", "shipping"]).refused("unknown_saga_definition", 4);
    assert!(refused.contains("shipping"), "{refused}");
    at(&["saga", "delete", "shipping", "--reason", "again"]).refused("unknown_saga_definition", 4);
    assert_eq!(at(&["saga", "definitions"]).ok().json().len(), 1);
    assert_eq!(server.terminate(), Some(0));
}

#[test]
fn sagas_are_listed_shown_cancelled_retried_and_counted_at_a_server() {
    let folder = folder();
    let server = Server::start(folder.path());
    let at = |arguments: &[&str]| run(folder.path(), &[arguments, &["--server", &server.url]].concat());
    let commit = |order: &str, event_type: &str| {
        let aggregate = format!("order/{order}");
        at(&["commit", "--aggregate", &aggregate, "--type", event_type, "--data", r#"{"total": 7}"#]).ok();
    };
    // The compensation publishes an event that its type refuses under this policy.
    let register = |policy: &str| {
        let schema = json!({ "type": "object", "required": ["ticket"] });
        let refund = json!({ "name": "refund", "policy": policy, "schema": schema }).to_string();
        run_with(folder.path(), &["type", "register", "-", "--server", &server.url], &refund).ok();
    };
    register("enforce");
    std::fs::write(folder.path().join("order.toml"), ORDER).expect("can be written");
    at(&["saga", "define", "order", "--file", "order.toml"]).ok();
    for order in ["o-1", "o-2"] {
        commit(order, "order_placed");
        until(&at, order, |saga| saga["steps"][0]["state"] == "awaiting");
    }
    let first = until(&at, "o-1", |_| true);
    let id = first["id"].as_str().expect("an id");
    let shown = at(&["saga", "show", id]).ok().json();
    assert_eq!((&shown[0]["execution_id"], &shown[0]["context"]["total"]), (&json!("o-1"), &json!(7)));
    let table = at(&["saga", "show", id, "--output", "table"]).ok().out;
    assert!(table.starts_with("STEP") && table.contains("pay") && table.contains("awaiting"), "{table}");
    at(&["saga", "delete", "order", "--reason", "a typo"]).refused("state_conflict", 3);
    at(&["saga", "retry", id, "--reason", "a typo"]).refused("state_conflict", 3);
    commit("o-2", "paid");
    until(&at, "o-2", |saga| saga["state"] == "completed");

    at(&["saga", "cancel", id, "--reason", "ordered by mistake", "--by", "ada"]).ok();
    let parked = until(&at, "o-1", |saga| !saga["parked"].is_null());
    assert_eq!((&parked["state"], &parked["cause"]), (&json!("compensating"), &json!("ordered by mistake")));
    let again = at(&["saga", "cancel", id, "--reason", "again"]).refused("state_conflict", 3);
    assert!(again.contains("its steps are already being undone"), "{again}");
    let waiting = at(&["saga", "list", "--parked"]).ok().json();
    assert_eq!((waiting.len(), &waiting[0]["id"]), (1, &json!(id)));
    let counted = at(&["saga", "statistics", "--name", "order"]).ok().json().remove(0);
    let by_state = json!({ "compensating": 1, "completed": 1 });
    assert_eq!((&counted["total"], &counted["by_state"], &counted["parked"]), (&json!(2), &by_state, &json!(1)));

    register("off");
    at(&["saga", "retry", id, "--reason", "the type takes it again"]).ok();
    let over = until(&at, "o-1", |saga| saga["state"] == "cancelled");
    assert_eq!(over["compensated_steps"], json!(["take_back"]));
    let table = at(&["saga", "list", "--name", "order", "--state", "completed", "--output", "table"]).ok().out;
    assert!(table.starts_with("ID") && table.contains("o-2") && !table.contains("o-1"), "{table}");
    for act in ["cancel", "retry"] {
        let refused = at(&["saga", act, "nothing", "--reason", "a typo"]).refused("unknown_saga", 4);
        assert!(refused.contains("nothing"), "{refused}");
    }
    at(&["saga", "show", "nothing"]).refused("unknown_saga", 4);
    at(&["saga", "delete", "order", "--reason", "nobody orders any more"]).ok();
    assert_eq!(at(&["saga", "show", id]).ok().json()[0]["state"], "cancelled", "what is over stays");
    assert_eq!(server.terminate(), Some(0));
}

#[test]
fn sagas_are_defined_and_deleted_in_a_store_that_the_command_opens() {
    let folder = folder();
    let at = |arguments: &[&str]| run(folder.path(), arguments);
    std::fs::write(folder.path().join("order.toml"), ORDER).expect("can be written");
    std::fs::write(folder.path().join("wrong.toml"), ORDER.replace("request_payment", "no name")).expect("written");
    let refused = at(&["saga", "define", "order", "--file", "wrong.toml"]).refused("invalid_name", 2);
    assert!(refused.contains("(line 9)"), "the line of the file: {refused}");
    assert_eq!(at(&["saga", "define", "order", "--file", "order.toml"]).ok().json()[0]["version"], 1);
    assert_eq!(at(&["saga", "definitions"]).ok().json()[0]["name"], "order");
    assert_eq!(at(&["saga", "list"]).ok().out, "");
    assert_eq!(at(&["saga", "statistics"]).ok().json()[0]["total"], 0);
    at(&["saga", "cancel", "nothing", "--reason", "a typo"]).refused("unknown_saga", 4);
    at(&["saga", "delete", "order", "--reason", "nobody orders any more"]).ok();
    at(&["saga", "definition", "order"]).refused("unknown_saga_definition", 4);
}
