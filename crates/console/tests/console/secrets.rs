//! A server that holds every kind of secret: no page, no operation, no metric and no refusal shows one.

use reqwest::Method;
use serde_json::{Value, json};

use crate::pages::addresses;
use crate::running::{Running, store};

/// What a subscription sends to its producer.
const OF_A_PRODUCER: &str = "hunter2";
/// What deliveries to the partner of `fill_all` are signed with, without its prefix.
const OF_A_PARTNER: &str = "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

struct Secrets(Vec<(&'static str, String)>);

impl Secrets {
    /// Fails if a text holds a secret, which is not printed.
    #[track_caller]
    fn are_not_in(&self, text: &str, at: &str) {
        for (what, secret) in &self.0 {
            assert!(!text.contains(secret), "{at} shows {what}");
        }
    }
}

/// The path of an operation that reads, with what is there in its parameters as far as it is about a secret.
fn filled(path: &str, credential: &str) -> String {
    let known = match path.split('/').nth(2) {
        Some("partners") => "acme",
        Some("subscriptions") => "orders",
        Some("credentials") => credential,
        Some("records") => "customers",
        _ => "0",
    };
    let parts = path.split('/').map(|part| if part.starts_with('{') { known } else { part });
    parts.collect::<Vec<_>>().join("/")
}

#[tokio::test(flavor = "multi_thread")]
async fn no_page_no_operation_no_metric_and_no_refusal_shows_a_secret() {
    let server = Running::secured_over(store(&["default", "other", "system"], &["inbox"])).await;
    server.fill_all("default").await;
    let subscription = json!({"producer": "local:", "tenant": "other", "stream": "public-orders", "scope": "inbox",
        "credential": OF_A_PRODUCER});
    server.put("default", Method::PUT, "/v1/subscriptions/orders", subscription).await;
    let new = json!({"name": "web", "roles": ["reader"], "tenants": ["default"]});
    let created = server.put("default", Method::POST, "/v1/credentials", new).await;
    let (id, key) = (created["id"].as_str().expect("an id"), created["key"].as_str().expect("a key"));
    let cookie = server.sign_in(&server.admin).await;
    let (_, session) = cookie.split_once('=').expect("a name and a value");
    let of_key = |key: &str| key.rsplit('_').next().expect("a secret").to_owned();
    let secrets = Secrets(vec![
        ("the key of the administrator", of_key(&server.admin)),
        ("a key", of_key(key)),
        ("the id of a session", session.to_owned()),
        ("the secret of a partner", OF_A_PARTNER.to_owned()),
        ("the credential of a subscription", OF_A_PRODUCER.to_owned()),
    ]);
    let pages = addresses(&server);
    assert!(pages.len() > 80, "{}", pages.len());
    for address in pages.into_iter().chain(["/console/horizon?name=orders".to_owned()]) {
        let (status, text) = server.page(&cookie, &address).await;
        assert!(status < 500, "{address}: {status}");
        secrets.are_not_in(&text, &address);
    }
    let (_, document) = server.api(&server.admin, "default", Method::GET, "/openapi.json", Value::Null).await;
    let mut read = 0;
    for (path, item) in document["paths"].as_object().expect("paths") {
        // Streams do not end, and a backup is the whole store.
        if item["get"].is_null() || path.ends_with("/follow") || path == "/v1/backup" {
            continue;
        }
        let path = filled(path, id);
        let request =
            server.client.get(server.url(&path)).bearer_auth(&server.admin).header("annals-tenant", "default");
        let answer = request.send().await.expect("an answer");
        read += usize::from(answer.status().is_success());
        secrets.are_not_in(&answer.text().await.expect("text"), &path);
    }
    assert!(read > 35, "{read}");
    for wrong in
        [format!("Bearer {key}0"), format!("Basic {key}"), key.to_owned(), format!("Bearer {} {key}", server.admin)]
    {
        let request = server.client.get(server.url("/v1/log")).header("authorization", wrong);
        let answer = request.send().await.expect("an answer");
        assert_eq!(answer.status(), 401);
        secrets.are_not_in(&format!("{:?}", answer.headers()), "the headers of a refusal");
        secrets.are_not_in(&answer.text().await.expect("text"), "a refusal");
    }
}
