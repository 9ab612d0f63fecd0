//! `/v1/stats` and `/v1/backup`.

use std::sync::Arc;

use annals_core::{Backup, Code, DEFAULT_SCOPE, DEFAULT_TENANT, Store};
use annals_embedded::disk::{Disk, MemoryDisk};
use annals_embedded::operations::{Manifest, Receiver, Restore, Source, restore};
use annals_embedded::{EmbeddedStore, Options};
use reqwest::{Method, StatusCode};
use serde_json::json;

use crate::running::{Running, opened};

#[tokio::test]
async fn what_a_log_holds_is_counted() {
    let server = Running::start().await;
    let empty = server.get("/v1/stats").await.json();
    assert_eq!((&empty["events"], &empty["oldest"]), (&json!(0), &json!(null)));
    server.commit_orders("o-1", 3).await;
    server.commit_orders("o-1", 1).await;
    server.commit_orders("o-2", 1).await;
    server.commit(&opened()).await;
    for _ in 0..2 {
        let stats = server.get("/v1/stats").await.json();
        assert_eq!((&stats["tenant"], &stats["scope"]), (&json!("default"), &json!("default")));
        let numbers = ["events", "commits", "aggregates", "segments"].map(|name| stats[name].as_u64().expect(name));
        assert_eq!(numbers, [6, 4, 3, 1]);
        assert_eq!(stats["aggregates_by_name"], json!({ "door": 1, "order": 2 }));
        assert_eq!(stats["events_by_type"], json!({ "opened": 1, "order_placed": 5 }));
        assert!(stats["oldest"].as_str() <= stats["newest"].as_str() && stats["oldest"].is_string());
    }
    server.get("/v1/stats?types=a").await.problem(Code::InvalidQuery);
    server.get("/v1/stats?scope=nothing").await.problem(Code::UnknownScope);
    let elsewhere = server.request(Method::GET, "/v1/stats").header("Annals-Tenant", "nobody");
    server.send(elsewhere).await.problem(Code::UnknownTenant);
}

/// Keeps an archive in a folder in memory.
fn keep(disk: &Arc<MemoryDisk>, archive: &[u8]) -> Manifest {
    let mut receiver = Receiver::into_folder(disk.clone()).expect("it is empty or an earlier one");
    archive.chunks(10_000).for_each(|piece| receiver.push(piece).expect("it is an archive"));
    receiver.finish().expect("it is whole")
}

#[tokio::test]
async fn a_backup_holds_what_was_committed_and_a_later_one_only_what_has_grown() {
    let server = Running::start().await;
    for n in 0..20 {
        server.commit_orders(&format!("o-{n}"), 2).await;
    }
    let answer = server.get("/v1/backup").await;
    assert_eq!((answer.status, answer.header("content-type")), (StatusCode::OK, "application/x-tar"));
    let kept = Arc::new(MemoryDisk::default());
    let manifest = keep(&kept, &answer.body);
    assert_eq!(manifest.tenants[0].logs[0].head, 40);
    server.commit_orders("o-1", 2).await;
    let earlier = Receiver::into_folder(kept.clone()).expect("an earlier one").earlier().expect("it is there").to_vec();
    let since = server.request(Method::POST, "/v1/backup").header("content-type", "application/json").body(earlier);
    let manifest = keep(&kept, &server.send(since).await.body);
    assert_eq!(manifest.tenants[0].logs[0].head, 42);
    let target: Arc<dyn Disk> = Arc::new(MemoryDisk::default());
    let made = restore(&Source::Folder(kept), &target, &Restore::default(), &Options::default(), &mut |_, _| {});
    assert_eq!(made.expect("it is restored").logs[0].head, 42);
    let restored = EmbeddedStore::open(target, Options::default()).expect("it opens");
    let log = restored.log(DEFAULT_TENANT, DEFAULT_SCOPE).expect("it is declared");
    assert_eq!(log.head().await.expect("a head"), 42);
    server.get("/v1/backup?scope=x").await.problem(Code::InvalidQuery);
    let wrong = server.request(Method::POST, "/v1/backup").header("content-type", "text/plain").body("x");
    server.send(wrong).await.problem(Code::UnsupportedMediaType);
}

#[tokio::test]
async fn only_so_many_backups_are_taken_at_once() {
    let server = Running::start().await;
    server.commit_batches(3).await;
    // Whoever does not read what comes keeps the place.
    let mut slow = Vec::new();
    for _ in 0..2 {
        let answer = server.request(Method::GET, "/v1/backup").send().await.expect("it begins");
        assert_eq!(answer.status(), StatusCode::OK);
        slow.push(answer);
    }
    server.get("/v1/backup").await.problem(Code::Overloaded);
    for answer in slow {
        let whole = answer.bytes().await.expect("it ends").to_vec();
        keep(&Arc::new(MemoryDisk::default()), &whole);
    }
    crate::running::soon("a free place", async {
        while server.get("/v1/backup").await.status != StatusCode::OK {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// The manifest stands at the end, so what was broken off is no backup.
#[tokio::test]
async fn a_backup_that_is_broken_off_is_none() {
    let mut server = Running::start().await;
    server.commit_batches(3).await;
    let answer = server.request(Method::GET, "/v1/backup").send().await.expect("it begins");
    server.begin_stop();
    let body = crate::running::soon("the end", answer.bytes()).await;
    let whole = body.is_ok_and(|body| {
        let mut receiver = Receiver::into_folder(Arc::new(MemoryDisk::default())).expect("it is empty");
        receiver.push(&body).is_ok() && receiver.finish().is_ok()
    });
    assert!(!whole);
    server.stopped().await;
}

#[tokio::test]
async fn pieces_of_a_backup_are_small_whatever_the_store() {
    let server = Running::start().await;
    server.commit_batches(2).await;
    let mut backup: Box<dyn Backup> = server.store.backup(None).expect("it begins");
    assert!(backup.total_bytes() > 10_000_000);
    while let Some(piece) = backup.next().expect("it goes on") {
        assert!(piece.len() <= 2 * 1024 * 1024);
    }
}
