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
        let patch = server.send(server.request(reqwest::Method::PATCH, &path)).await;
        patch.problem(Code::MethodNotAllowed);
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
    for name in ["annals_log_syncs_total", "annals_log_bytes_total"] {
        let value =
            metrics.text().lines().find_map(|line| line.strip_prefix(name)?.rsplit(' ').next()?.parse::<u64>().ok());
        assert!(value.is_some_and(|value| value > 0), "{name}");
    }
    for line in metrics.text().lines().filter(|line| !line.starts_with('#')) {
        let (name, value) = line.rsplit_once(' ').expect("a name and a value");
        assert!(name.starts_with("annals_") && value.parse::<f64>().is_ok(), "{line}");
    }
}
