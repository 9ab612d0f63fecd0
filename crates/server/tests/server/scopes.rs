//! What a key that is limited to some scopes must not learn of the others: from cursors, counts, refusals and health checks.

use annals_core::Code;
use annals_core::credentials::{EVERY, Grant, Role};
use annals_core::handlers::HandlerError;
use reqwest::Method;
use serde_json::{Value, json};

use crate::credentials::{key_of_scopes, post, receive, with_inbox};
use crate::running::{door, opened, soon};
use crate::secured::Secured;

async fn put(secured: &Secured, path: &str, body: Value) {
    let answer = secured.send(secured.request(&secured.admin, Method::PUT, path).body(body.to_string())).await;
    assert_eq!(answer.status, 201, "{path}: {}", answer.text());
}

/// Every page of a list, with a length of one entry: what its entries have in this field, and its cursor.
async fn pages(secured: &Secured, key: &str, path: &str, field: &str) -> Vec<(Vec<Value>, Value)> {
    let mut pages = Vec::new();
    let mut next = format!("{path}?limit=1");
    loop {
        assert!(pages.len() < 20, "{path} does not end: {pages:?}");
        let page = secured.get(key, &next).await.json();
        let items = page["items"].as_array().expect("a list");
        pages.push((items.iter().map(|item| item[field].clone()).collect(), page["cursor"].clone()));
        let Some(cursor) = page["cursor"].as_str() else { return pages };
        next = format!("{path}?limit=1&cursor={cursor}");
    }
}

/// Hidden entries are before, between and after those that the caller may see.
#[tokio::test(flavor = "multi_thread")]
async fn pages_are_as_long_as_asked_for_and_no_cursor_names_what_is_hidden() {
    let secured = with_inbox().await;
    put(&secured, "/v1/handlers/a", json!({"scope": "inbox"})).await;
    put(&secured, "/v1/handlers/z", json!({})).await;
    for filter in ["a", "z"] {
        put(&secured, &format!("/v1/filters/{filter}"), json!({"types": ["placed"]})).await;
    }
    let subscription = json!({"producer": "local:", "tenant": "north", "stream": "others", "scope": "inbox"});
    put(&secured, "/v1/subscriptions/y", subscription).await;
    let default = key_of_scopes(&secured, &["default"]).await;
    let inbox = key_of_scopes(&secured, &["inbox"]).await;
    let two = |first: &str, second: &str| vec![(vec![json!(first)], json!(first)), (vec![json!(second)], Value::Null)];
    assert_eq!(pages(&secured, &default, "/v1/handlers", "name").await, two("plain", "z"));
    assert_eq!(pages(&secured, &inbox, "/v1/handlers", "name").await, two("a", "x"));
    assert_eq!(pages(&secured, &default, "/v1/filters", "stream").await, two("a", "z"));
    assert_eq!(pages(&secured, &inbox, "/v1/filters", "stream").await, [(vec![json!("x")], Value::Null)]);
    assert_eq!(pages(&secured, &default, "/v1/subscriptions", "name").await, [(Vec::<Value>::new(), Value::Null)]);
    assert_eq!(pages(&secured, &inbox, "/v1/subscriptions", "name").await, two("x", "y"));
    // A page that has room for all of them needs no cursor.
    let page = secured.get(&default, "/v1/handlers?limit=2").await.json();
    assert_eq!((&page["items"][0]["name"], &page["items"][1]["name"]), (&json!("plain"), &json!("z")), "{page}");
    assert_eq!(page["cursor"], Value::Null, "{page}");
}

#[tokio::test(flavor = "multi_thread")]
async fn replays_to_hidden_handlers_take_no_room_in_a_page_and_are_removed_by_callers_of_every_scope() {
    let secured = with_inbox().await;
    let key = key_of_scopes(&secured, &["default"]).await;
    let mut visible = Vec::new();
    for handler in ["x", "plain", "x", "plain", "x"] {
        let replay = json!({"filter": {"event_types": ["placed"]}, "target": {"kind": "handler", "name": handler}});
        let created = post(&secured, &secured.admin, "/v1/replays", replay).await.json();
        if handler == "plain" {
            visible.push(created["session_id"].clone());
        }
    }
    let shown = pages(&secured, &key, "/v1/replays", "session_id").await;
    assert_eq!(shown.len(), 2, "{shown:?}");
    for id in &visible {
        assert!(shown.iter().any(|(ids, _)| *ids == [id.clone()]), "{id} is not in {shown:?}");
    }
    assert_eq!(pages(&secured, &secured.admin, "/v1/replays", "session_id").await.len(), 5);
    let refused = secured.send(secured.request(&key, Method::DELETE, "/v1/replays")).await;
    assert_eq!(refused.status, 403, "{}", refused.text());
    assert_eq!(serde_json::from_slice::<Value>(&refused.body).expect("JSON")["code"], "forbidden");
    let removed = secured.send(secured.request(&secured.admin, Method::DELETE, "/v1/replays")).await.json();
    assert_eq!(removed["removed"], 0);
}

/// Lets the next event of a handler fail for the last time.
async fn fail(secured: &Secured, handler: &str) {
    let path = |act: &str| format!("/v1/handlers/{handler}/{act}");
    let pulled = post(secured, &secured.admin, &path("pull"), json!({"wait_ms": 20_000})).await.json();
    let failed = json!({"results": [{"token": pulled["deliveries"][0]["token"], "failure": {"reason": "no stock"}}]});
    let settled = post(secured, &secured.admin, &path("settle"), failed).await.json();
    assert_eq!(settled["results"][0]["settled"], true, "{settled}");
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_letters_of_hidden_handlers_are_not_counted_and_take_no_room_in_a_page() {
    let secured = with_inbox().await;
    let parks = json!({"types": ["placed"], "retry": {"attempts": 1, "then": "park"}});
    put(&secured, "/v1/handlers/parks", parks).await;
    let placed = door(json!({"type": "placed", "data": {}}));
    assert_eq!(post(&secured, &secured.admin, "/v1/commits", placed).await.status, 201);
    fail(&secured, "parks").await;
    // The letter that failed last is the first of the list.
    receive(&secured).await;
    fail(&secured, "x").await;
    let letters = async || secured.get(&secured.admin, "/v1/dead-letters").await.json()["items"].clone();
    soon("two dead letters", async { while letters().await.as_array().map(Vec::len) != Some(2) {} }).await;
    let key = key_of_scopes(&secured, &["default"]).await;
    let shown = pages(&secured, &key, "/v1/dead-letters", "handler").await;
    assert_eq!(shown, [(vec![json!("parks")], Value::Null)]);
    // Both are of one topic, so that neither figure of it may count the hidden one.
    for (key, count) in [(&secured.admin, 2_u64), (&key, 1)] {
        let counted = secured.get(key, "/v1/dead-letters/statistics").await.json();
        let topic = &counted["topics"][0];
        assert_eq!((&topic["topic"], &topic["total_messages"]), (&json!("placed"), &json!(count)), "{counted}");
        let by_status = topic["status_breakdown"].as_object().expect("an object").values();
        assert_eq!(by_status.filter_map(Value::as_u64).sum::<u64>(), count, "{counted}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_of_dead_letters_goes_on_although_the_handlers_that_the_caller_may_see_change() {
    let secured = with_inbox().await;
    let parks = json!({"types": ["placed"], "retry": {"attempts": 1, "then": "park"}});
    for handler in ["first", "second"] {
        put(&secured, &format!("/v1/handlers/{handler}"), parks.clone()).await;
    }
    let placed = door(json!({"type": "placed", "data": {}}));
    assert_eq!(post(&secured, &secured.admin, "/v1/commits", placed).await.status, 201);
    for handler in ["first", "second"] {
        fail(&secured, handler).await;
    }
    let key = key_of_scopes(&secured, &["default"]).await;
    let letters = async || secured.get(&key, "/v1/dead-letters").await.json()["items"].clone();
    soon("two dead letters", async { while letters().await.as_array().map(Vec::len) != Some(2) {} }).await;
    let page = secured.get(&key, "/v1/dead-letters?limit=1").await.json();
    let cursor = page["cursor"].as_str().expect("there is another one");
    put(&secured, "/v1/handlers/third", parks).await;
    let rest = secured.get(&key, &format!("/v1/dead-letters?limit=1&cursor={cursor}")).await.json();
    let mut shown = [&page, &rest].map(|page| page["items"][0]["handler"].as_str().map(str::to_owned));
    shown.sort_unstable();
    assert_eq!(shown, ["first", "second"].map(|handler| Some(handler.to_owned())), "{page} {rest}");
    assert_eq!(rest["cursor"], Value::Null, "{rest}");
    let refused = secured.get(&key, "/v1/dead-letters?cursor=0a").await.problem(Code::InvalidQuery);
    assert_eq!(refused["path"], "cursor", "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_waits_for_a_hidden_handler_is_refused_as_for_one_that_is_not_defined() {
    let secured = with_inbox().await;
    let key = key_of_scopes(&secured, &["default"]).await;
    let both = key_of_scopes(&secured, &["default", "inbox"]).await;
    let waiting = |handler: &str| {
        let mut commit = opened();
        commit["wait"] = json!({"for": format!("handled:{handler}"), "timeout_ms": 0});
        commit
    };
    let refused = post(&secured, &key, "/v1/commits", waiting("x")).await.problem(Code::UnknownHandler);
    assert_eq!(refused["detail"], HandlerError::Unknown("x".into()).to_string());
    let known = post(&secured, &both, "/v1/commits", waiting("x")).await.problem(Code::InvalidWait);
    assert_eq!(known["path"], "wait.for");
    assert_eq!(secured.get(&key, "/v1/log").await.json()["head"], 0);
    assert_eq!(post(&secured, &key, "/v1/commits", waiting("plain")).await.status, 201);
}

#[tokio::test(flavor = "multi_thread")]
async fn health_and_metrics_show_a_key_of_some_scopes_nothing_that_names_one() {
    let secured = with_inbox().await;
    let of = |scope: &str| Grant { scopes: vec![scope.to_owned()], ..Grant::new(Role::Reader, [EVERY]) };
    let (_, limited) = secured.create(of("default")).await;
    let (_, unlimited) = secured.create(of(EVERY)).await;
    assert!(!secured.get(&unlimited, "/health/ready").await.json()["logs"].as_array().expect("a list").is_empty());
    assert!(secured.get(&unlimited, "/metrics").await.text().contains("annals_log_head{"));
    let ready = secured.get(&limited, "/health/ready").await.json();
    assert_eq!(ready, json!({"status": "ready", "logs": [], "tasks": []}));
    let metrics = secured.get(&limited, "/metrics").await;
    assert!(!metrics.text().contains("annals_log_head{") && !metrics.text().contains("inbox"), "{}", metrics.text());
}
