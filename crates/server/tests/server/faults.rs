//! A store that cannot do what it should: the server says so and goes on with what it can.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use annals_core::Code;
use annals_embedded::disk::{Disk, DiskFile, MemoryDisk, Open};
use annals_server::Options;
use serde_json::{Value, json};

use crate::running::{Running, opened, store_on};
use crate::tapped::{Reads, Tap};

/// A memory disk whose syncs fail, or that has no room for another file, when told to.
#[derive(Default)]
struct FailingDisk {
    memory: MemoryDisk,
    fails: Arc<AtomicBool>,
    full: Arc<AtomicBool>,
}

struct FailingFile {
    file: Arc<dyn DiskFile>,
    fails: Arc<AtomicBool>,
}

impl Disk for FailingDisk {
    fn create_dir(&self, dir: &str) -> io::Result<()> {
        self.memory.create_dir(dir)
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        self.memory.list(dir)
    }

    fn open(&self, path: &str, open: Open) -> io::Result<Arc<dyn DiskFile>> {
        if open == Open::Create && self.full.load(SeqCst) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let file = self.memory.open(path, open)?;
        Ok(Arc::new(FailingFile { file, fails: Arc::clone(&self.fails) }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.memory.rename(from, to)
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        self.memory.remove(path)
    }

    fn sync_dir(&self, dir: &str) -> io::Result<()> {
        self.memory.sync_dir(dir)
    }

    fn lock(&self) -> io::Result<Box<dyn Send + Sync>> {
        self.memory.lock()
    }
}

impl DiskFile for FailingFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        if self.fails.load(SeqCst) { Err(io::Error::other("the disk is gone")) } else { self.file.sync() }
    }

    fn length(&self) -> io::Result<u64> {
        self.file.length()
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        self.file.truncate(length)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_failed_sync_commits_are_refused_reads_go_on_and_the_server_is_not_ready() {
    let disk = FailingDisk::default();
    let fails = Arc::clone(&disk.fails);
    let store = store_on(Arc::new(disk), annals_embedded::Options::default());
    let server = Running::over(store, Options::default()).await;
    server.commit(&opened()).await;
    fails.store(true, SeqCst);
    server.post(opened().to_string()).await.problem(Code::StoreFailed);
    fails.store(false, SeqCst);
    server.post(opened().to_string()).await.problem(Code::StoreFailed);

    assert_eq!(server.get("/v1/log").await.json()["events"].as_array().map(Vec::len), Some(1));
    assert_eq!(server.get("/health/live").await.status, 200);
    let problem = server.get("/health/ready").await.problem(Code::NotReady);
    let log: &Value = &problem["logs"][0];
    assert_eq!((&log["tenant"], &log["refusing"]["code"]), (&json!("default"), &json!("store_failed")));
    assert!(problem["detail"].as_str().expect("text").starts_with("default/default: "), "{problem}");
    let metrics = server.get("/metrics").await;
    assert!(metrics.text().contains("annals_log_refusing{tenant=\"default\",scope=\"default\"} 1\n"));
    assert!(metrics.text().contains("annals_commits_refused_total{code=\"store_failed\"} 2\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn on_a_full_disk_commits_are_refused_whole_until_there_is_room_and_reads_go_on() {
    let disk = FailingDisk::default();
    let full = Arc::clone(&disk.full);
    let segment = 128 * 1024;
    let options = annals_embedded::Options {
        segment_bytes_first: segment,
        segment_bytes_max: segment,
        ..annals_embedded::Options::default()
    };
    let server = Running::over(store_on(Arc::new(disk), options), Options::default()).await;
    full.store(true, SeqCst);
    let body =
        json!({"aggregate": {"name": "file", "id": "1"}, "events": [{"type": "t", "data": {"x": "y".repeat(20_000)}}]});
    let mut stored = 0;
    let refused = loop {
        let answer = server.post(body.to_string()).await;
        if answer.status != 201 {
            break answer;
        }
        stored += 1;
        assert!(stored < 1_000, "the disk is never full");
    };
    refused.problem(Code::DiskFull);
    assert_eq!(server.head().await, stored);
    full.store(false, SeqCst);
    assert_eq!(server.commit(&body).await["events"][0]["sequence_number"], stored);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_read_is_a_problem_of_its_own() {
    let (store, tap) = Tap::store();
    let server = Running::over(store, Options::default()).await;
    server.commit(&opened()).await;
    tap.reading.send_replace(Reads::Fail);
    for path in ["/v1/log", "/v1/log/0"] {
        let problem = server.get(path).await.problem(Code::ReadFailed);
        assert_eq!(problem["detail"], "reading failed: the tap says so");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_that_panics_still_answers() {
    let (store, tap) = Tap::store();
    let server = Running::over(store, Options::default()).await;
    tap.reading.send_replace(Reads::Panic);
    server.get("/v1/log").await.problem(Code::Internal);
    tap.reading.send_replace(Reads::Pass);
    assert_eq!(server.head().await, 0);
    assert!(server.get("/metrics").await.text().contains(r#"{route="/v1/log",status="500"} 1"#));
}
