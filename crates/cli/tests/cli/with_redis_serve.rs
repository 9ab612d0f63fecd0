//! `annals serve --queue redis://…`. The name of this file leaves it out where there is no Redis: see CONTRIBUTING.md.

use std::net::TcpListener;
use std::path::Path;

use serde_json::json;

use crate::process::{Server, annals};
use crate::run::{folder, run};

fn serve(folder: &Path, queue: &str) -> Server {
    let mut command = annals(folder);
    command.args(["serve", "--dev", "--listen", "127.0.0.1:0", "--queue", queue]);
    Server::of(command)
}

#[test]
fn items_on_redis_outlive_a_killed_server_and_its_lease_is_still_the_worker_s() {
    let redis =
        std::env::var("ANNALS_TEST_REDIS").expect("ANNALS_TEST_REDIS names a Redis: cargo xtask services redis");
    let folder = folder();
    let server = serve(folder.path(), &redis);
    let queue = |server: &Server, arguments: &[&str]| {
        run(folder.path(), &[&["queue", arguments[0], "--server", &server.url][..], &arguments[1..]].concat())
            .ok()
            .json()
    };
    queue(&server, &["put", "q", "--cap", "1"]);
    queue(&server, &["enqueue", "q", "a", "--payload", "{\"n\":1}"]);
    queue(&server, &["enqueue", "q", "b", "--priority", "high"]);
    let taken = queue(&server, &["take", "q", "--lease-ms", "600000"]);
    let token = taken[0]["items"][0]["token"].as_str().expect("a token").to_owned();
    server.kill();
    let server = serve(folder.path(), &redis);
    assert_eq!(queue(&server, &["take", "q"])[0]["items"], json!([]), "the slot is still taken");
    assert_eq!(queue(&server, &["done", "q", "b", "--token", &token])[0]["changed"], true);
    let next = queue(&server, &["take", "q"]);
    assert_eq!((&next[0]["items"][0]["id"], &next[0]["items"][0]["payload"]), (&json!("a"), &json!({"n": 1})));
    assert_eq!(server.terminate(), Some(0));
}

#[test]
fn without_a_redis_at_the_address_queues_are_refused_by_name_and_commits_continue() {
    let nobody = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a port").port();
    let folder = folder();
    let server = serve(folder.path(), &format!("redis://:s3cr3t@127.0.0.1:{nobody}"));
    let put = run(folder.path(), &["queue", "put", "--server", &server.url, "q"]).refused("queue_unavailable", 5);
    assert!(!put.contains("s3cr3t"), "{put}");
    let commit = ["commit", "--server", &server.url, "--aggregate", "order/o-1", "--type", "order_placed"];
    run(folder.path(), &[&commit[..], &["--data", "{}"]].concat()).ok();
    assert_eq!(server.terminate(), Some(0));
}
