//! What `/metrics` shows of dead letters.

use reqwest::Method;
use serde_json::{Value, json};

use crate::running::{Running, soon};

async fn send(server: &Running, method: Method, path: &str, body: Value) -> Value {
    let request = server.request(method, path).header("content-type", "application/json");
    server.send(request.body(body.to_string())).await.json()
}

/// Lets so many messages of the group `billing` fail.
async fn fail(server: &Running, count: usize) {
    let mut failed = 0;
    while failed < count {
        let pull = json!({"max": 1_000, "wait_ms": 1_000, "worker": "w"});
        let pulled = send(server, Method::POST, "/v1/groups/billing/pull", pull).await;
        let deliveries = pulled["deliveries"].as_array().expect("a list");
        let failure = json!({"reason": "down"});
        let results: Vec<_> = deliveries.iter().map(|it| json!({"token": it["token"], "failure": failure})).collect();
        failed += results.len();
        let settled = send(server, Method::POST, "/v1/groups/billing/settle", json!({ "results": results })).await;
        let settled = settled["results"].as_array().expect("a list");
        assert!(settled.iter().all(|result| result["settled"] == true), "{settled:?}");
    }
}

/// Waits until the metrics have these lines.
async fn until_shown(server: &Running, lines: &[String]) {
    soon(&format!("metrics with {lines:?}"), async {
        loop {
            let metrics = server.get("/metrics").await;
            if lines.iter().all(|line| metrics.text().lines().any(|shown| shown == line)) {
                break;
            }
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_show_how_many_letters_are_open_when_they_cross_a_threshold_and_that_none_is_left() {
    let server = Running::start().await;
    let manual = json!({"strategy": "manual", "reason": "a person looks"});
    send(&server, Method::PUT, "/v1/dead-letters/policies/order_placed", manual).await;
    let group = json!({
        "topics": ["order_placed"], "in_flight": 128,
        "retry": {"attempts": 1, "then": "park"}, "dead_letters": {"breaker": 0},
    });
    send(&server, Method::PUT, "/v1/groups/billing", group).await;
    let of_topic = "tenant=\"default\",topic=\"order_placed\"";
    let shown = |open: u64, discarded: u64, level: u8| {
        [
            format!("annals_dead_letters{{{of_topic}}} {open}"),
            format!("annals_dead_letters_ended{{{of_topic},status=\"discarded\"}} {discarded}"),
            format!("annals_dead_letters_level{{tenant=\"default\"}} {level}"),
        ]
    };
    let mut committed = 0;
    for (letters, level) in [(100, 0), (101, 1)] {
        for n in committed..letters {
            server.commit_orders(&format!("o-{n}"), 1).await;
        }
        soon("every message fails", fail(&server, letters - committed)).await;
        committed = letters;
        until_shown(&server, &shown(letters as u64, 0, level)).await;
    }
    let all = json!({
        "condition": {"field": "original_topic", "operator": "EQ", "value": "order_placed"}, "reason": "useless",
    });
    let discarded = send(&server, Method::POST, "/v1/dead-letters/discard", all).await;
    assert_eq!((&discarded["successful"], &discarded["failed"]), (&json!(101), &json!(0)));
    until_shown(&server, &shown(0, 101, 0)).await;
}
