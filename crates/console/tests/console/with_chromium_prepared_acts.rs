//! Acts that need something of their own to act on, in a real headless Chromium: a failing message, a parked saga, a subscription, a topic
//! that differs from its configuration, and a key.

use reqwest::Method;
use serde_json::{Value, json};

use crate::browser::Browser;
use crate::running::{HOSTILE, Running, store, until};
use crate::with_chromium_each_act::said;

/// Lets the next message of the group `mailers` fail until an operator acts, and returns its position.
async fn fail(server: &Running) -> Value {
    let post = async |path: &str, body: Value| server.put("default", Method::POST, path, body).await;
    let pulled = post("/v1/groups/mailers/pull", json!({"worker": HOSTILE, "wait_ms": 20_000})).await;
    let delivery = &pulled["deliveries"][0];
    let failure = json!({"token": delivery["token"], "failure": {"reason": HOSTILE, "never": true}});
    let settled = post("/v1/groups/mailers/settle", json!({"results": [failure]})).await;
    assert_eq!(settled["results"][0]["settled"], true, "{settled}");
    delivery["position"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failing_message_of_a_group_is_retried_then_skipped_and_the_next_one_is_parked() {
    let server = Running::dev().await;
    server.fill("default").await;
    let browser = Browser::start().await;
    let mut failed = Vec::new();
    for act in ["Retry", "Skip", "Park"] {
        failed.push(fail(&server).await);
        browser.go(&server, "/console/groups?name=mailers").await;
        browser.choose("#failing a.act", act).await;
        browser.shows_only_text(act).await;
        browser.picture(&format!("act-groups-{}", act.to_lowercase())).await;
        browser.because(&format!("why {act}")).await;
        browser.has_no_errors(act).await;
    }
    assert_eq!(failed[0], failed[1], "a retry hands the same message out again");
    assert_ne!(failed[1], failed[2], "a message that was skipped is not handed out again");
    until("the message is a dead letter", || async {
        said(&server, "/v1/dead-letters").await.contains(r#""group":"mailers""#)
    })
    .await;
    browser.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_parked_saga_is_retried_and_undoes_its_step() {
    let server = Running::dev().await;
    server.fill("default").await;
    let put = async |path: &str, body: Value| server.put("default", Method::PUT, path, body).await;
    // The compensation publishes an event that its type refuses, so the saga is parked.
    let mut released = json!({"schema": {"type": "object", "required": ["ticket"]}});
    put("/v1/types/release_stock", released.clone()).await;
    let retry = json!({"first_ms": 1_000, "factor": 2.0, "max_ms": 60_000, "jitter": 0.0, "attempts": 1});
    let saga = json!({"start": {"on": ["order_placed"], "from": "beginning"}, "steps": [
        {"name": "reserve", "publish": {"type": "reserve_stock"},
         "compensation": {"name": "release", "publish": {"type": "release_stock"}, "retry": retry}},
        {"name": "check", "require": [
            {"condition": {"field": "context.total", "operator": "GT", "value": 100}, "message": HOSTILE}]},
    ]});
    put("/v1/saga-definitions/order", saga).await;
    let id = server.first("default", "/v1/sagas?parked=true", "id").await;
    let id = id.as_str().expect("an id");
    released["policy"] = "off".into();
    put("/v1/types/release_stock", released).await;
    let browser = Browser::start().await;
    browser.go(&server, &format!("/console/sagas?id={id}")).await;
    browser.choose("main a.act", "Retry").await;
    browser.shows_only_text("the act").await;
    browser.picture("act-sagas-retry").await;
    browser.because("the type takes it again").await;
    until("the step is undone", || async {
        said(&server, &format!("/v1/sagas/{id}")).await.contains(r#""state":"failed""#)
    })
    .await;
    browser.until("document.querySelector('.facts')?.textContent.includes('release')").await;
    browser.has_no_errors("the saga").await;
    browser.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subscription_is_deleted() {
    let server = Running::dev_over(store(&["default", "other"], &["inbox"]), None).await;
    let subscription = json!({"producer": "local:", "tenant": "other", "stream": "public-orders", "scope": "inbox"});
    server.put("default", Method::PUT, "/v1/subscriptions/orders", subscription).await;
    let browser = Browser::start().await;
    browser.go(&server, "/console/horizon").await;
    browser.follow("orders", "Event horizon").await;
    browser.choose("main a.act", "Delete subscription").await;
    browser.picture("act-horizon-unsubscribe").await;
    browser.because("the contract has ended").await;
    let gone = said(&server, "/v1/subscriptions/orders").await;
    assert!(gone.contains("unknown_subscription"), "{gone}");
    browser.has_no_errors("the event horizon").await;
    browser.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_gets_the_numbers_of_its_configuration() {
    let server = Running::dev().await;
    server.fill("default").await;
    // The type moves to a category whose topics have more partitions.
    let schema = json!({"type": "object", "description": HOSTILE});
    let definition = json!({"generation": 1, "category": "execution", "schema": schema});
    server.put("default", Method::PUT, "/v1/types/order_placed", definition).await;
    let topic = async || said(&server, "/v1/topics/order_placed").await;
    assert!(topic().await.contains(r#""partitions":3"#), "nothing is altered silently");
    let browser = Browser::start().await;
    browser.go(&server, "/console/topics?name=order_placed").await;
    browser.choose("main a.act", "Apply").await;
    browser.picture("act-topics-apply").await;
    browser.because("more workers").await;
    let applied = topic().await;
    assert!(applied.contains(r#""partitions":6"#) && applied.contains(r#""differences":[]"#), "{applied}");
    browser.has_no_errors("the topic").await;
    browser.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_limited_to_scopes_and_event_types_and_listed_with_them() {
    let server = Running::secured(&["default"]).await;
    let browser = Browser::start().await;
    browser.sign_in(&server).await;
    browser.go(&server, "/console/credentials").await;
    browser.choose("main a.act", "Create a key").await;
    for (name, value) in [
        ("name", "till"),
        ("roles", "writer"),
        ("tenants", "default"),
        ("scopes", "default, inbox"),
        ("event_types", "order_placed, order_paid"),
    ] {
        browser.fill_in(name, value).await;
    }
    browser.press("for the till").await;
    browser.evaluate("document.querySelector('button.danger').click()").await;
    browser.until("document.querySelector('#key')").await;
    let (_, stored) = server.api(&server.admin, "default", Method::GET, "/v1/credentials", Value::Null).await;
    let till = stored["items"].as_array().expect("a list").iter().find(|it| it["name"] == "till").expect("the key");
    assert_eq!(till["scopes"], json!(["default", "inbox"]), "{till}");
    assert_eq!(till["event_types"], json!(["order_placed", "order_paid"]), "{till}");
    browser.go(&server, "/console/credentials").await;
    let row = "[...document.querySelectorAll('main tr')].find(row => row.textContent.includes('till'))";
    for said in ["default, inbox", "order_placed, order_paid"] {
        browser.until(&format!("{row}?.textContent.includes({})", json!(said))).await;
    }
    browser.picture("credentials-limited").await;
    browser.has_no_errors("the credentials").await;
    browser.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_revoked_and_refused() {
    let server = Running::secured(&["default"]).await;
    let new = json!({"name": HOSTILE, "roles": ["reader"], "tenants": ["default"]});
    let created = server.put("default", Method::POST, "/v1/credentials", new).await;
    let (id, key) = (created["id"].as_str().expect("an id"), created["key"].as_str().expect("a key"));
    let status = async || server.api(key, "default", Method::GET, "/v1", Value::Null).await.0;
    until("the key is taken", || async { status().await == 200 }).await;
    let browser = Browser::start().await;
    browser.sign_in(&server).await;
    browser.go(&server, "/console/credentials").await;
    browser.choose(&format!("a.act[href*='{id}']"), "Revoke").await;
    browser.shows_only_text("the act").await;
    browser.picture("act-credentials-revoke").await;
    browser.because("it leaked").await;
    let revoked = said(&server, &format!("/v1/credentials/{id}")).await;
    assert!(revoked.contains(r#""state":"revoked""#) && revoked.contains("it leaked"), "{revoked}");
    until("the key is refused", || async { status().await == 401 }).await;
    browser.has_no_errors("the credentials").await;
    browser.end().await;
}
