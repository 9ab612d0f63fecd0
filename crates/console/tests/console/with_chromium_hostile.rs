//! Event data, names, tags and reasons that are markup, on a server that records acts: each is looked for where it is shown, in a real
//! headless Chromium.

use reqwest::Method;
use serde_json::json;

use crate::browser::Browser;
use crate::running::{HOSTILE, Running, encoded};

/// The beginning of the hostile text, up to its first quotation mark, which JSON escapes.
fn beginning() -> &'static str {
    HOSTILE.split('"').next().expect("a beginning")
}

#[tokio::test(flavor = "multi_thread")]
async fn data_names_tags_and_reasons_are_shown_as_the_text_that_they_are() {
    let server = Running::secured(&["default"]).await;
    server.fill_all("default").await;
    server.fail("default").await;
    let key = json!({"name": HOSTILE, "roles": ["reader"], "tenants": ["default"], "reason": HOSTILE});
    let created = server.put("default", Method::POST, "/v1/credentials", key).await;
    let path = format!("/v1/credentials/{}", created["id"].as_str().expect("an id"));
    server.put("default", Method::DELETE, &path, json!({"reason": HOSTILE, "by": HOSTILE})).await;
    let browser = Browser::start().await;
    browser.sign_in(&server).await;
    let letter = format!("/console/dead-letters?id={}", encoded(&server.id("dead-letters")));
    let of = |page: &str| format!("{page}?{}", server.detail(page).expect("its detail"));
    let (aggregate, snapshot) = (of("/console/aggregates"), of("/console/snapshots"));
    for (what, address, place) in [
        ("the data of an event", "/console/event?number=0", "#json-data"),
        ("the tags of an event", "/console/event?number=0", ".facts"),
        ("the data of events in a list", "/console/log?search=order&order=oldest", "#events"),
        ("the id of an aggregate in a list", "/console/aggregates?name=order", "#ids"),
        ("the id of an aggregate", &*aggregate, "h1"),
        ("the state of a snapshot", &*snapshot, "#json-state"),
        ("the id of a record", "/console/records?collection=customers", "main"),
        ("the value of a prepare key", "/console/keys?name=user", "#keys"),
        ("the reason of a failure", "/console/handlers?name=billing", "#failing"),
        ("the last failure on the overview", "/", "#attention"),
        ("the reason of a dead letter", &*letter, "main"),
        ("the user of an item", "/console/queues?name=renders", "main"),
        ("the name of a partner", "/console/partners", "main"),
        ("the reason of a rule", "/console/archive", "#rules"),
        ("the name of a key and the reason of its revocation", "/console/credentials", "#credentials"),
        ("the reason of an act", "/console/audit", "#audit"),
    ] {
        browser.go(&server, address).await;
        let text = json!(beginning());
        browser.until(&format!("document.querySelector({})?.textContent.includes({text})", json!(place))).await;
        browser.shows_only_text(what).await;
        browser.has_no_errors(what).await;
    }
    browser.end().await;
}
