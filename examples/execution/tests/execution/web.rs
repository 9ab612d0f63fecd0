//! The page and the address that takes programs.

use annals_example_execution::{COMPLETED, REQUESTED, STARTED};
use reqwest::Client;
use reqwest::header::{ALLOW, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST, LOCATION, ORIGIN};
use serde_json::{Value, json};

use crate::service::{Service, ended, history, memory};

async fn problem(answer: reqwest::Response) -> (u16, String, Value) {
    let status = answer.status().as_u16();
    assert_eq!(answer.headers()[CONTENT_TYPE], "application/problem+json");
    let problem: Value = answer.json().await.expect("JSON");
    (status, problem["code"].as_str().expect("a code").to_owned(), problem)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_needs_nothing_from_elsewhere_and_forbids_everything_else() {
    let store = memory().await;
    let service = Service::start(&store).await;
    let answer = reqwest::get(service.url("/executions")).await.expect("answers");
    let policy = answer.headers()[CONTENT_SECURITY_POLICY].to_str().expect("text").to_owned();
    let page = answer.text().await.expect("text");
    assert!(policy.starts_with("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
    let nonce = policy.split("script-src 'nonce-").nth(1).and_then(|rest| rest.split('\'').next()).expect("a nonce");
    assert!(page.contains(&format!("<script nonce=\"{nonce}\">")) && !page.contains("{{"));
    assert!(!page.contains("http://") && !page.contains("https://") && !page.contains("innerHTML"));
    // What /proc shows of this process belongs to its effective user.
    let root = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata("/proc/self").expect("there is /proc")) == 0;
    assert_eq!(page.contains("data-user=\"root\">Root started the demo"), root);
    assert!(page.contains("is not a sandbox"));
    let again = reqwest::get(service.url("/executions")).await.expect("answers").text().await.expect("text");
    assert!(!again.contains(nonce), "each answer has a nonce of its own");
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_is_submitted_twice_under_one_id_runs_once() {
    let store = memory().await;
    let service = Service::start(&store).await;
    let id = "0f3a6f0e-4a52-4c53-8a3f-9d9f9c1f7a11";
    let body = json!({ "execution_id": id, "language": "sh", "script": "echo once" });
    let post =
        async |body: &Value| Client::new().post(service.url("/executions")).json(body).send().await.expect("answers");
    let first = post(&body).await;
    assert_eq!(first.status(), 201);
    assert_eq!(first.headers()[LOCATION], format!("/executions/{id}").as_str());
    assert_eq!(ended(&service.log, id).await.event_type, COMPLETED);
    let second = post(&body).await;
    assert_eq!(second.status(), 200);
    let answer: Value = second.json().await.expect("JSON");
    assert_eq!(answer, json!({ "execution_id": id, "sequence_number": 0, "duplicate": true }));
    let other = json!({ "execution_id": id, "language": "sh", "script": "echo another" });
    let (status, code, _) = problem(post(&other).await).await;
    assert_eq!((status, code.as_str()), (409, "request_id_reused"));
    assert_eq!(history(&service.log, id).await, [REQUESTED, STARTED, COMPLETED]);
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_submission_is_refused_with_its_code_and_path_and_nothing_is_committed() {
    let store = memory().await;
    let service = Service::start(&store).await;
    let good = json!({ "language": "sh", "script": "echo" });
    let changed = |field: &str, value: Value| {
        let mut body = good.clone();
        body[field] = value;
        body.to_string()
    };
    let cases = [
        ("{".to_owned(), 400, "not_json", None),
        (json!({ "language": "sh" }).to_string(), 422, "invalid_body", Some("")),
        (changed("language", "cobol".into()), 422, "invalid_body", Some("language")),
        (changed("script", "".into()), 422, "invalid_body", Some("script")),
        (changed("script", "ü".repeat(50_001).into()), 422, "invalid_body", Some("script")),
        (changed("priority", "urgent".into()), 422, "invalid_body", Some("priority")),
        (changed("script", "x".repeat(3_000_000).into()), 413, "body_too_large", None),
        (changed("timeout_seconds", 0.into()), 422, "invalid_body", Some("timeout_seconds")),
        (changed("timeout_seconds", 61.into()), 422, "invalid_body", Some("timeout_seconds")),
        (changed("memory_limit_mb", 1.into()), 422, "invalid_body", Some("memory_limit_mb")),
        (changed("memory_limit_mb", (-1).into()), 422, "invalid_body", Some("memory_limit_mb")),
        (changed("execution_id", "mine".into()), 422, "invalid_body", Some("execution_id")),
        (changed("nice", 1.into()), 422, "invalid_body", Some("nice")),
    ];
    for (body, status, code, path) in cases {
        let post = Client::new().post(service.url("/executions")).header(CONTENT_TYPE, "application/json");
        let (got_status, got_code, problem) = problem(post.body(body).send().await.expect("answers")).await;
        assert_eq!((got_status, got_code.as_str()), (status, code), "{problem}");
        assert_eq!(problem["path"].as_str(), path, "{problem}");
        assert!(!problem["advice"].as_str().expect("advice").contains("import"), "{problem}");
    }
    assert_eq!(service.log.head().await.expect("can be read"), 0);
    // Characters are counted, not bytes.
    let longest = format!("#{}\necho long", "ü".repeat(50_000 - "#\necho long".len()));
    assert_eq!(service.result_of("sh", &longest).await.text("stdout"), "long\n");
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_pages_of_other_sites_can_run_nothing() {
    let store = memory().await;
    let service = Service::start(&store).await;
    let body = json!({ "language": "sh", "script": "echo" }).to_string();
    let commit =
        json!({ "aggregate": { "name": "execution", "id": "x" }, "events": [{ "type": REQUESTED, "data": {} }] });
    for content_type in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"] {
        let post = Client::new().post(service.url("/executions")).header(CONTENT_TYPE, content_type);
        let (status, code, _) = problem(post.body(body.clone()).send().await.expect("answers")).await;
        assert_eq!((status, code.as_str()), (415, "unsupported_media_type"));
    }
    for (path, body) in [("/executions", body), ("/v1/commits", commit.to_string())] {
        for (header, value) in [(ORIGIN, "http://example.org"), (ORIGIN, "null"), (HOST, "example.org")] {
            let post =
                Client::new().post(service.url(path)).header(CONTENT_TYPE, "application/json").header(header, value);
            let (status, code, _) = problem(post.body(body.clone()).send().await.expect("answers")).await;
            assert_eq!((status, code.as_str()), (403, "forbidden_origin"), "{path} {value}");
        }
    }
    assert_eq!(service.log.head().await.expect("can be read"), 0);
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn other_methods_and_addresses_are_answered_with_a_problem() {
    let store = memory().await;
    let service = Service::start(&store).await;
    let answer = Client::new().delete(service.url("/executions")).send().await.expect("answers");
    assert_eq!(answer.headers()[ALLOW], "GET, HEAD, POST");
    assert_eq!(problem(answer).await.1, "method_not_allowed");
    let answer = reqwest::get(service.url("/nowhere")).await.expect("answers");
    assert_eq!(problem(answer).await.1, "unknown_route");
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_demo_opens_on_the_console_which_lists_its_page() {
    let store = memory().await;
    let service = Service::start(&store).await;
    let console = reqwest::get(service.url("/")).await.expect("answers");
    assert_eq!(console.status(), 200);
    let console = console.text().await.expect("text");
    assert!(console.contains("<h1>Overview</h1>") && console.contains("href=\"/executions\""), "{console}");
    let page = reqwest::get(service.url("/executions")).await.expect("answers").text().await.expect("text");
    assert!(page.contains("<a href=\"/\">Console</a>"), "{page}");
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_that_others_can_reach_is_refused() {
    let store = memory().await;
    let work = tempfile::tempdir().expect("a folder");
    let mut settings = annals_example_execution::Settings::new(store, "of a test", work.path(), std::io::sink());
    settings.listen = Some("0.0.0.0:0".parse().expect("an address"));
    let refused = annals_example_execution::run(settings, std::future::pending()).await.expect_err("not loopback");
    assert!(refused.to_string().contains("loopback"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_worker_is_among_the_groups_of_the_api() {
    let store = memory().await;
    let service = Service::start(&store).await;
    assert_eq!(service.result_of("sh", "echo").await.event_type, COMPLETED);
    let answer = reqwest::get(service.url("/v1/groups/k8s-worker")).await.expect("answers");
    let status: Value = answer.json().await.expect("JSON");
    assert_eq!((&status["state"], &status["failing"]), (&json!("running"), &json!(0)), "{status}");
    assert_eq!(status["workers"][0]["worker"], "in this process", "{status}");
    service.stop().await;
}
