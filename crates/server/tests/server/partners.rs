//! What partners send: for which tenant, bodies that are meant to hurt, and what is counted.

use std::sync::Arc;

use annals_core::partners::{Answered, Outgoing, Sending, Signed, SigningSecret};
use annals_core::{Clock, Code, limits};
use annals_runtime::{HostOptions, PartnerKeys, PartnerOptions};
use annals_server::Options;
use annals_system::SystemClock;
use async_trait::async_trait;
use futures_util::{StreamExt, stream};
use reqwest::{Body, Method, RequestBuilder};
use serde_json::{Value, json};

use crate::raw::Raw;
use crate::running::{Answer, Running, soon};
use crate::secured::{Secured, options, store};

const EVENTS: &str = "/v1/partners/acme/events";
const SHIPPED: &str = r#"{"type":"shipped","subject":"p-1","data":{"n":1}}"#;

fn with_keys(mut options: Options) -> Options {
    let partners = PartnerOptions { keys: Some(PartnerKeys::for_development()), ..PartnerOptions::default() };
    options.tasks = HostOptions { partners, ..HostOptions::default() };
    options
}

fn secret() -> SigningSecret {
    SigningSecret::of_bytes(vec![7; 24])
}

fn definition() -> Value {
    json!({"name": "Acme", "secrets": [secret().reveal()], "receive": {"aggregate": "parcel"}})
}

async fn define(server: &Running, tenant: &str) {
    let put = server.request(Method::PUT, "/v1/partners/acme").header("annals-tenant", tenant);
    let answer = server.send(put.header("content-type", "application/json").body(definition().to_string())).await;
    assert_eq!(answer.status, 201, "{}", answer.text());
}

/// A request of the partner.
fn signed(server: &Running, path: &str, id: &str, body: &str) -> RequestBuilder {
    let signed = Signed::sign(&[secret()], id, SystemClock.now(), body.as_bytes());
    let request = server.request(Method::POST, path).header("content-type", "application/json");
    let request = request.header("webhook-id", signed.id).header("webhook-timestamp", signed.timestamp);
    request.header("webhook-signature", signed.signature).body(body.to_owned())
}

async fn sent(server: &Running, path: &str, id: &str) -> Answer {
    server.send(signed(server, path, id, SHIPPED)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_url_that_a_partner_is_given_names_the_tenant() {
    let server = Running::over(store(&["default", "north"]), with_keys(Options::default())).await;
    define(&server, "north").await;
    sent(&server, EVENTS, "w-1").await.problem(Code::UnknownPartner);
    let of_north = format!("{EVENTS}?tenant=north");
    let accepted = sent(&server, &of_north, "w-1").await;
    assert_eq!(accepted.status, 202, "{}", accepted.text());
    let id = accepted.json()["id"].clone();
    // The header names it too, and both may as long as they agree.
    let again = server.send(signed(&server, EVENTS, "w-1", SHIPPED).header("annals-tenant", "north")).await;
    assert_eq!((again.status.as_u16(), &again.json()["id"]), (200, &id));
    let both = server.send(signed(&server, &of_north, "w-1", SHIPPED).header("annals-tenant", "north")).await;
    assert_eq!((both.status.as_u16(), &both.json()["id"]), (200, &id));
    let differs = server.send(signed(&server, &of_north, "w-1", SHIPPED).header("annals-tenant", "default")).await;
    assert_eq!(differs.problem(Code::InvalidQuery)["path"], "tenant");
    sent(&server, &format!("{EVENTS}?tenant=south"), "w-1").await.problem(Code::UnknownTenant);
    soon("the event of the partner", async {
        while server.send(server.request(Method::GET, "/v1/log").header("annals-tenant", "north")).await.json()["head"]
            != 1
        {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(server.head().await, 0, "the default tenant has nothing of it");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_without_the_secret_does_not_learn_which_tenants_and_partners_there_are() {
    let secured = Secured::over(store(&["default", "north"]), with_keys(options())).await;
    let put = secured.request(&secured.admin, Method::PUT, "/v1/partners/acme").header("annals-tenant", "north");
    let put = put.header("content-type", "application/json").body(definition().to_string());
    assert_eq!(secured.send(put).await.status, 201);
    let accepted = sent(&secured.server, &format!("{EVENTS}?tenant=north"), "w-1").await;
    assert_eq!(accepted.status, 202, "the signature is the credential: {}", accepted.text());
    let mut told = Vec::new();
    for path in [
        format!("{EVENTS}?tenant=north"),
        format!("{EVENTS}?tenant=south"),
        EVENTS.to_owned(),
        "/v1/partners/nobody/events?tenant=north".to_owned(),
    ] {
        let wrong = signed(&secured.server, &path, "w-2", "{}").body(SHIPPED);
        told.push(secured.send(wrong).await.problem(Code::InvalidSignature));
    }
    assert!(told.windows(2).all(|pair| pair[0] == pair[1]), "{told:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_of_100_mb_is_refused_and_no_more_of_it_is_read_than_its_bound() {
    let server = Running::over(store(&["default"]), with_keys(Options::default())).await;
    define(&server, "default").await;
    let mut raw = Raw::open(&server).await;
    let length = 100 * 1024 * 1024;
    let head = format!("POST {EVENTS} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n");
    raw.write(format!("{head}content-length: {length}\r\n\r\n")).await.expect("written");
    raw.answer().await.problem(Code::BodyTooLarge);
    let piece = vec![b' '; 1024 * 1024];
    let mut written = 0;
    while written < length && raw.write(&piece).await.is_ok() {
        written += piece.len();
    }
    assert!(written < 2 * limits::BODY_DRAIN_BYTES_MAX, "{written} bytes were read");
    // Without a length, the bound is met while it is read.
    let pieces = stream::repeat_with(|| Ok::<_, std::io::Error>(vec![b' '; 1024 * 1024])).take(100);
    let request = server.request(Method::POST, EVENTS).header("content-type", "application/json");
    let answered = request.body(Body::wrap_stream(pieces)).send().await;
    // The connection may be closed while the client still writes, before it reads what it was answered.
    if let Ok(response) = answered {
        Answer::of(response).await.problem(Code::BodyTooLarge);
    }
    let accepted = sent(&server, EVENTS, "w-1").await;
    assert_eq!(accepted.status, 202, "others are served: {}", accepted.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn json_that_is_nested_deeply_is_refused() {
    let server = Running::over(store(&["default"]), with_keys(Options::default())).await;
    define(&server, "default").await;
    for (open, close) in [(r#"{"a":"#, "}"), ("[", "]")] {
        let deep = format!(r#"{{"data":{}1{}}}"#, open.repeat(100_000), close.repeat(100_000));
        server.send(signed(&server, EVENTS, "w-1", &deep)).await.problem(Code::InvalidData);
    }
    assert_eq!(server.head().await, 0);
}

/// A partner that refuses whatever it is sent.
struct Refusing;

#[async_trait]
impl Sending for Refusing {
    async fn send(&self, _request: Outgoing) -> Result<Answered, String> {
        Ok(Answered { status: 404, retry_after: None, said: String::new() })
    }

    fn check(&self, _url: &str) -> Result<(), String> {
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_count_attempts_and_what_a_partner_sends_by_outcome() {
    let mut options = with_keys(Options::default());
    options.tasks.partners.sending = Arc::new(Refusing);
    let server = Running::over(store(&["default"]), options).await;
    let mut body = definition();
    body["url"] = json!("https://acme.example/events");
    body["select"] = json!({"field": "type", "operator": "EQ", "value": "order_placed"});
    let put = server.request(Method::PUT, "/v1/partners/acme").header("content-type", "application/json");
    assert_eq!(server.send(put.body(body.to_string())).await.status, 201);
    server.commit_orders("o-1", 1).await;
    assert_eq!(sent(&server, EVENTS, "w-1").await.status, 202);
    assert_eq!(sent(&server, EVENTS, "w-1").await.status, 200);
    let forged = signed(&server, EVENTS, "w-2", "{}").body(SHIPPED);
    server.send(forged).await.problem(Code::InvalidSignature);
    let due = [
        ("attempts_total", "direction=\"OUT\",outcome=\"refused\"", 1),
        ("attempts_total", "direction=\"IN\",outcome=\"delivered\"", 1),
        ("received_total", "outcome=\"accepted\"", 1),
        ("received_total", "outcome=\"repeated\"", 1),
        ("received_total", "outcome=\"refused\"", 1),
        ("exhausted", "direction=\"OUT\"", 1),
        ("exhausted", "direction=\"IN\"", 0),
    ];
    let due = due.map(|(name, labels, count)| {
        format!("annals_partner_{name}{{tenant=\"default\",partner=\"acme\",{labels}}} {count}")
    });
    soon("the metrics show every outcome", async {
        loop {
            let metrics = server.get("/metrics").await;
            if due.iter().all(|line| metrics.text().lines().any(|shown| shown == line)) {
                break;
            }
        }
    })
    .await;
    let metrics = server.get("/metrics").await;
    assert!(metrics.text().contains("annals_partner_failing{tenant=\"default\",partner=\"acme\"} 0\n"));
}
