//! A server for this machine only: who is let in.

use std::sync::Arc;

use annals_core::Code;
use annals_embedded::disk::MemoryDisk;
use annals_server::{Callers, Options, this_machine_only};
use reqwest::Method;
use reqwest::header::{CONTENT_TYPE, HOST, ORIGIN};

use crate::raw::Raw;
use crate::running::{Running, opened, store_on};

/// The server as it is, and a router with the guard around it.
async fn guarded() -> [Running; 2] {
    let store = || store_on(Arc::new(MemoryDisk::default()), annals_embedded::Options::default());
    let mut options = Options::default();
    options.callers = Callers::ThisMachine;
    [Running::over(store(), options).await, Running::with_router(store(), Options::default(), this_machine_only).await]
}

#[tokio::test(flavor = "multi_thread")]
async fn programs_and_pages_of_this_server_are_let_in() {
    for server in guarded().await {
        let_in(&server).await;
    }
}

async fn let_in(server: &Running) {
    let port = server.address.port();
    server.commit(&opened()).await;
    for host in [format!("127.0.0.1:{port}"), format!("localhost:{port}"), format!("[::1]:{port}")] {
        let post = server.request(Method::POST, "/v1/commits").header(HOST, &host).body(opened().to_string());
        assert_eq!(server.send(post.try_clone().expect("a text")).await.status, 201, "{host}");
        let page = post.header(ORIGIN, format!("http://{host}")).header(CONTENT_TYPE, "application/json");
        assert_eq!(server.send(page).await.status, 201, "{host}");
    }
    let mut old = Raw::open(server).await;
    old.write("GET /health/live HTTP/1.0\r\n\r\n").await.expect("written");
    assert_eq!(old.answer().await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_of_other_sites_and_other_names_are_kept_out_of_every_address() {
    for server in guarded().await {
        kept_out(&server).await;
    }
}

async fn kept_out(server: &Running) {
    let other_port = format!("http://127.0.0.1:{}", server.address.port() ^ 1);
    let foreign = [
        (HOST, "example.org"),
        (HOST, "192.0.2.1:80"),
        (ORIGIN, "http://example.org"),
        (ORIGIN, "null"),
        (ORIGIN, &other_port),
    ];
    for (header, value) in foreign {
        for path in ["/v1", "/v1/log", "/v1/log/follow", "/health/live", "/metrics", "/nothing"] {
            let get = server.request(Method::GET, path).header(&header, value);
            server.send(get).await.problem(Code::ForbiddenOrigin);
        }
        let post = server.request(Method::POST, "/v1/commits").header(&header, value).body(opened().to_string());
        server.send(post).await.problem(Code::ForbiddenOrigin);
        let delete = server.request(Method::DELETE, "/v1/log").header(&header, value);
        server.send(delete).await.problem(Code::ForbiddenOrigin);
    }
    assert_eq!(server.head().await, 0);
}
