//! Tenants and scopes.

use std::sync::Arc;

use annals_core::Code;
use annals_embedded::disk::MemoryDisk;
use annals_server::Options;
use reqwest::Method;
use serde_json::json;

use crate::follow::Events;
use crate::running::{Answer, Running, opened, store_on};

async fn two_tenants() -> Running {
    let options = annals_embedded::Options {
        tenants: vec!["default".to_owned(), "north".to_owned()],
        scopes: vec!["inbox".to_owned()],
        ..annals_embedded::Options::default()
    };
    Running::over(store_on(Arc::new(MemoryDisk::default()), options), Options::default()).await
}

async fn of(server: &Running, tenant: &str, path: &str) -> Answer {
    server.send(server.request(Method::GET, path).header("Annals-Tenant", tenant)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn each_tenant_has_a_log_of_its_own() {
    let server = two_tenants().await;
    server.commit(&opened()).await;
    for n in 0..2 {
        let commit = server.request(Method::POST, "/v1/commits").header("annals-tenant", "north");
        let answer = server.send(commit.body(opened().to_string())).await.json();
        assert_eq!(answer["events"][0]["sequence_number"], n);
    }
    assert_eq!(server.head().await, 1);
    assert_eq!(of(&server, "default", "/v1/log").await.json()["head"], 1);
    let page = of(&server, "north", "/v1/log").await.json();
    assert_eq!((&page["head"], &page["events"][1]["tenant"]), (&json!(2), &json!("north")));
    assert_eq!(of(&server, "north", "/v1/aggregates/door/7/commits").await.json()["version"], 2);
    let (one, other) = (server.get("/v1").await.json(), of(&server, "north", "/v1").await.json());
    assert_ne!(one["store_id"], other["store_id"]);
    assert_eq!((&other["tenant"], &other["incarnation"]), (&json!("north"), &json!(0)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_that_is_not_declared_is_unknown_everywhere() {
    let server = two_tenants().await;
    for tenant in ["south", "", "../north", "North"] {
        for path in [
            "/v1",
            "/v1/log",
            "/v1/log/0",
            "/v1/log/follow",
            "/v1/aggregates/door",
            "/v1/aggregates/door/7/commits",
            "/v1/aggregates/door/7/requests/r",
        ] {
            of(&server, tenant, path).await.problem(Code::UnknownTenant);
        }
        let commit = server.request(Method::POST, "/v1/commits").header("annals-tenant", tenant);
        server.send(commit.body(opened().to_string())).await.problem(Code::UnknownTenant);
    }
    let twice =
        server.request(Method::GET, "/v1/log").header("annals-tenant", "north").header("annals-tenant", "north");
    assert_eq!(server.send(twice).await.problem(Code::InvalidQuery)["path"], "Annals-Tenant");
}

#[tokio::test(flavor = "multi_thread")]
async fn another_scope_is_read_and_not_committed_to() {
    let server = two_tenants().await;
    server.commit(&opened()).await;
    for path in ["/v1/log?scope=inbox", "/v1/log?scope=inbox&backwards"] {
        assert_eq!(server.get(path).await.json(), json!({"events": [], "next": 0, "head": 0}), "{path}");
    }
    assert_eq!(server.get("/v1/aggregates/door?scope=inbox").await.json()["ids"], json!([]));
    assert_eq!(server.get("/v1/aggregates/door/7/commits?scope=inbox").await.json()["version"], 0);
    assert_eq!(server.get("/v1/log?scope=default").await.json()["events"][0]["scope"], "default");
    let mut quiet = Events::open(&server, "/v1/log/follow?scope=inbox", None).await;
    assert_eq!(quiet.block().await.and_then(|block| block.comment), Some("from 0, head 0".to_owned()));
    for path in [
        "/v1/log?scope=other",
        "/v1/log/follow?scope=other",
        "/v1/log/0?scope=",
        "/v1/aggregates/door?scope=x",
        "/v1/aggregates/door/7/commits?scope=x",
        "/v1/aggregates/door/7/requests/r?scope=x",
    ] {
        server.get(path).await.problem(Code::UnknownScope);
    }
}
