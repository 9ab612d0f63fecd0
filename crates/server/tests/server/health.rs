//! `/health` and `/metrics` of a healthy server.

use annals_core::Code;
use serde_json::json;

use crate::running::{Running, opened};

#[tokio::test(flavor = "multi_thread")]
async fn a_healthy_server_is_live_and_ready_and_shows_its_logs() {
    let server = Running::start().await;
    server.commit_orders("o-1", 3).await;
    assert_eq!(server.get("/health/live").await.json(), json!({"status": "live"}));
    let ready = server.get("/health/ready").await.json();
    assert_eq!(ready["status"], "ready");
    let log = &ready["logs"][0];
    assert_eq!((&log["tenant"], &log["scope"], &log["head"]), (&json!("default"), &json!("default"), &json!(3)));
    assert_eq!((&log["commits"], &log["recovery"]), (&json!(1), &json!([])));
    assert!(log.get("refusing").is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_index_lists_the_addresses() {
    let server = Running::start().await;
    let index = server.get("/v1").await.json();
    assert_eq!((&index["service"], &index["incarnation_start"]), (&json!("annals"), &json!(0)));
    for address in index["addresses"].as_array().expect("a list") {
        let path = address.as_str().expect("text").replace("{name}", "x").replace("{id}", "x");
        let path = path.replace("{request_id}", "x").replace("{sequence_number}", "0").replace("{aggregate}", "x");
        // A method that none of them has.
        let options = server.send(server.request(reqwest::Method::OPTIONS, &path)).await;
        options.problem(Code::MethodNotAllowed);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_count_requests_commits_and_logs() {
    let server = Running::start().await;
    let mut body = opened();
    body["request_id"] = json!("r");
    server.commit(&body).await;
    server.commit(&body).await;
    server.commit_orders("o-1", 4).await;
    body["request_id"] = json!("s");
    body["expected_version"] = json!(9);
    server.post(body.to_string()).await.problem(Code::VersionConflict);
    server.get("/v1/log/0").await.json();
    server.get("/v1/log/77").await.problem(Code::UnknownEvent);
    server.get("/nothing").await.problem(Code::UnknownRoute);
    let metrics = server.get("/metrics").await;
    assert!(metrics.header("content-type").starts_with("text/plain; version=0.0.4"));
    for line in [
        r#"annals_http_requests_total{route="/v1/commits",status="201"} 2"#,
        r#"annals_http_requests_total{route="/v1/commits",status="200"} 1"#,
        r#"annals_http_requests_total{route="/v1/commits",status="409"} 1"#,
        r#"annals_http_requests_total{route="/v1/log/{sequence_number}",status="200"} 1"#,
        r#"annals_http_requests_total{route="/v1/log/{sequence_number}",status="404"} 1"#,
        r#"annals_http_requests_total{route="unknown",status="404"} 1"#,
        r#"annals_http_request_duration_seconds_bucket{route="/v1/commits",le="+Inf"} 4"#,
        r#"annals_http_request_duration_seconds_count{route="/v1/commits"} 4"#,
        "annals_http_requests_in_flight 1",
        "annals_followers 0",
        "annals_commits_total 2",
        "annals_commits_duplicate_total 1",
        "annals_events_total 5",
        r#"annals_commits_refused_total{code="version_conflict"} 1"#,
        r#"annals_log_head{tenant="default",scope="default"} 5"#,
        r#"annals_log_commits_total{tenant="default",scope="default"} 2"#,
        r#"annals_log_refusing{tenant="default",scope="default"} 0"#,
    ] {
        assert!(metrics.text().lines().any(|shown| shown == line), "{line} is not in\n{}", metrics.text());
    }
    for name in ["annals_log_syncs_total", "annals_log_sync_duration_seconds_count", "annals_log_bytes_total"] {
        let value =
            metrics.text().lines().find_map(|line| line.strip_prefix(name)?.rsplit(' ').next()?.parse::<u64>().ok());
        assert!(value.is_some_and(|value| value > 0), "{name}");
    }
    for line in metrics.text().lines().filter(|line| !line.starts_with('#')) {
        let (name, value) = line.rsplit_once(' ').expect("a name and a value");
        assert!(name.starts_with("annals_") && value.parse::<f64>().is_ok(), "{line}");
    }
}

/// What the store says of handlers, filters and projections decides, not what workers say of themselves.
#[tokio::test(flavor = "multi_thread")]
async fn a_failing_processor_degrades_the_server_and_is_named_with_its_reason() {
    let server = Running::start().await;
    let send = async |method: reqwest::Method, path: &str, body: serde_json::Value| {
        let request = server.request(method, path).header("content-type", "application/json");
        server.send(request.body(body.to_string())).await
    };
    let handler = json!({"partition_by": "aggregate", "concurrency": 4});
    assert_eq!(send(reqwest::Method::PUT, "/v1/handlers/billing", handler).await.status, 201);
    assert_eq!(send(reqwest::Method::PUT, "/v1/filters/all", json!({})).await.status, 201);
    let counts = json!({"on": {"order_opened": {"increment": {"n": "$data.no_number"}}}});
    assert_eq!(send(reqwest::Method::PUT, "/v1/projections/counts", counts).await.status, 201);
    assert_eq!(server.get("/health/ready").await.json()["status"], "ready");
    server.commit_orders("o-1", 1).await;
    let pull = send(reqwest::Method::POST, "/v1/handlers/billing/pull", json!({"wait_ms": 50_000})).await.json();
    let failed = json!({"token": pull["deliveries"][0]["token"], "failure": {"reason": "no address", "never": true}});
    send(reqwest::Method::POST, "/v1/handlers/billing/settle", json!({ "results": [failed] })).await.json();
    let degraded = crate::running::soon("the failure is seen", async {
        loop {
            let ready = server.get("/health/ready").await.json();
            if ready["status"] == "degraded" {
                return ready["degraded"].clone();
            }
        }
    });
    let degraded = degraded.await;
    let named = degraded.as_array().expect("a list").iter().find(|it| it["name"] == "billing").expect("it is named");
    assert_eq!((&named["kind"], &named["tenant"]), (&json!("handler"), &json!("default")));
    assert!(named["reason"].as_str().is_some_and(|reason| reason.contains("no address")), "{named}");
    assert!(degraded.as_array().expect("a list").iter().all(|it| it["name"] != "all"), "the filter is healthy");
    let status = server.get("/v1/handlers/billing").await.json();
    assert!(status["degraded"].as_str().is_some_and(|reason| reason.contains("no address")), "{status}");
    let filter = crate::running::soon("the filter's progress is noted", async {
        loop {
            let filter = server.get("/v1/filters/all").await.json();
            if filter["last_progress"].is_string() {
                return filter;
            }
        }
    });
    assert!(filter.await.get("degraded").is_none(), "it is healthy");
    let labels = r#"{tenant="default",kind="handler",processor="billing"}"#;
    let wanted = |metrics: &str| {
        let has = |line: &str| metrics.lines().any(|shown| shown == line);
        has(&format!("annals_processor_degraded{labels} 1"))
            && has(&format!("annals_processor_blocked_partitions{labels} 1"))
            && has(&format!("annals_processor_head{labels} 1"))
            && has("annals_processors_readable 1")
            && has(r#"annals_processor_degraded{tenant="default",kind="filter",processor="all"} 0"#)
    };
    crate::running::soon("the metrics show it", async { while !wanted(server.get("/metrics").await.text()) {} }).await;
    assert!(!server.get("/metrics").await.text().contains("order/o-1"), "no partition is a label");
}

/// By the store: of a handler that nobody pulls from as well, and once its first event has failed for the last time.
#[tokio::test(flavor = "multi_thread")]
async fn metrics_show_the_position_the_lag_and_the_failing_partitions_of_a_handler() {
    let server = Running::start().await;
    let send = async |method: reqwest::Method, path: &str, body: serde_json::Value| {
        let request = server.request(method, path).header("content-type", "application/json");
        server.send(request.body(body.to_string())).await
    };
    let handler = json!({"partition_by": "aggregate", "concurrency": 4});
    assert_eq!(send(reqwest::Method::PUT, "/v1/handlers/billing", handler).await.status, 201);
    for id in ["o-1", "o-2"] {
        let event = json!({"type": "order_placed", "data": {}, "time": "2020-01-01T00:00:00Z"});
        server.commit(&json!({"aggregate": {"name": "order", "id": id}, "events": [event]})).await;
    }
    let value = |metrics: &str, name: &str| -> Option<u64> {
        let labels = r#"{tenant="default",kind="handler",processor="billing"}"#;
        let line = format!("annals_processor_{name}{labels} ");
        metrics.lines().find_map(|shown| shown.strip_prefix(line.as_str())?.parse().ok())
    };
    // Waits until the metrics show this position, lag and number of failing partitions, and returns the lag in seconds.
    let lag_seconds = async |expected: [u64; 3]| {
        let shown = async {
            loop {
                let metrics = server.get("/metrics").await;
                let values = ["position", "lag_events", "failing_partitions"].map(|name| value(metrics.text(), name));
                if values == expected.map(Some) {
                    return value(metrics.text(), "lag_seconds").expect("it is shown with the others");
                }
            }
        };
        crate::running::soon("the metrics show it", shown).await
    };
    const YEAR: u64 = 365 * 24 * 60 * 60;
    assert!(lag_seconds([0, 2, 0]).await > YEAR, "the age of the oldest event");
    let status = server.get("/v1/handlers/billing").await.json();
    assert_eq!((&status["position"], &status["lag"]), (&json!(0), &json!(2)));
    assert!(status["lag_seconds"].as_u64() > Some(YEAR), "{status}");
    let one = json!({"max": 1, "wait_ms": 50_000});
    for (failure, expected) in [(json!({"reason": "no address", "never": true}), [1, 1, 1]), (json!(null), [2, 0, 1])] {
        let pulled = send(reqwest::Method::POST, "/v1/handlers/billing/pull", one.clone()).await.json();
        let settlement = json!({"token": pulled["deliveries"][0]["token"], "failure": failure});
        let settle = json!({ "results": [settlement] });
        let settled = send(reqwest::Method::POST, "/v1/handlers/billing/settle", settle).await.json();
        let waits = expected[1] > 0;
        assert_eq!(lag_seconds(expected).await > YEAR, waits, "{settled}");
    }
    let failing = server.get("/v1/handlers/billing/partitions").await.json();
    let of = &failing["items"][0];
    assert_eq!((&of["partition"], &of["behind"]), (&json!("order/o-1"), &json!(2)));
    assert!(of["lag_seconds"].as_u64() > Some(YEAR), "{failing}");
}
