//! A store that was damaged in the middle: what is readable is answered, and never as if it were all.

use std::sync::Arc;

use annals_core::Code;
use annals_embedded::disk::{Disk, MemoryDisk, Open};
use annals_server::Options;
use reqwest::{Method, Response};
use serde_json::{Value, json};

use crate::running::{Running, soon, store_on};

const COMMITS: u64 = 200;

/// A server over a log of `COMMITS` events, one of whose bytes in the middle is another than was written.
pub(crate) async fn damaged() -> Running {
    let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::default());
    let mut server = Running::over(store_on(Arc::clone(&disk), Default::default()), Options::default()).await;
    for n in 0..COMMITS {
        server.commit_orders(&format!("o-{n}"), 1).await;
    }
    server.begin_stop();
    server.stopped().await;
    let folder = "tenants/default/default";
    let names = disk.list(folder).expect("a folder");
    let segment = names.iter().find(|name| name.ends_with(".segment")).expect("a segment");
    let file = disk.open(&format!("{folder}/{segment}"), Open::Write).expect("opens");
    let mut bytes = vec![0; usize::try_from(file.length().expect("a length")).expect("fits")];
    assert_eq!(file.read_at(&mut bytes, 0).expect("is read"), bytes.len());
    let written = bytes.iter().rposition(|byte| *byte != 0).expect("commits");
    let middle = written / 2;
    file.write_at(&[!bytes[middle]], middle as u64).expect("is written");
    Running::over(store_on(disk, Default::default()), Options::default()).await
}

/// What comes up to the end of a stream, and whether the end is a proper one.
async fn until_the_end(mut response: Response) -> (String, bool) {
    let mut read = Vec::new();
    loop {
        match soon("more of a stream", response.chunk()).await {
            Ok(Some(chunk)) => read.extend_from_slice(&chunk),
            end => return (String::from_utf8(read).expect("UTF-8"), end.is_ok()),
        }
    }
}

async fn stream(server: &Running, path: &str, accept: &str) -> (String, bool) {
    let request = server.request(Method::GET, path).header("accept", accept);
    let response = soon("an answer", request.send()).await.expect("an answer");
    assert_eq!(response.status(), 200, "{path}");
    until_the_end(response).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_log_is_answered_up_to_the_damage_and_its_end_is_the_damage() {
    let server = damaged().await;
    let not_ready = server.get("/health/ready").await.problem(Code::NotReady);
    let log: &Value = &not_ready["logs"][0];
    assert_eq!(log["refusing"]["code"], "store_damaged", "{log}");
    let head = log["head"].as_u64().expect("a number");
    assert!(head > 0 && head < COMMITS, "{head}");

    let page = server.get("/v1/log?limit=1000").await.json();
    assert_eq!((page["events"].as_array().map(Vec::len), &page["next"]), (Some(head as usize), &json!(head)));
    server.get(&format!("/v1/log/{}", head - 1)).await.json();
    for path in [
        format!("/v1/log?from={head}"),
        format!("/v1/log?from={COMMITS}"),
        format!("/v1/log/{head}"),
        format!("/v1/log/{COMMITS}"),
        "/v1/log?backwards".to_owned(),
    ] {
        server.get(&path).await.problem(Code::StoreDamaged);
    }
    let lines = server.request(Method::GET, &format!("/v1/log?from={head}")).header("accept", "application/x-ndjson");
    server.send(lines).await.problem(Code::StoreDamaged);
}

#[tokio::test(flavor = "multi_thread")]
async fn records_that_are_refused_make_a_server_not_ready_and_commits_go_on() {
    let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::default());
    let mut server = Running::over(store_on(Arc::clone(&disk), Default::default()), Options::default()).await;
    let declare = server.request(Method::PUT, "/v1/records/collections/things").body("{}");
    server.send(declare).await.json();
    server.begin_stop();
    server.stopped().await;
    let file = disk.open("tenants/default/_engine/map.redb", Open::Write).expect("opens");
    file.write_at(&[0xff; 4096], 0).expect("is written");
    let server = Running::over(store_on(disk, Default::default()), Options::default()).await;
    let not_ready = server.get("/health/ready").await.problem(Code::NotReady);
    let log: &Value = &not_ready["logs"][0];
    assert_eq!((&log["records_refusing"]["code"], &log["refusing"]), (&json!("store_damaged"), &Value::Null), "{log}");
    assert!(not_ready["detail"].to_string().contains("records and streams"), "{not_ready}");
    for said in [&not_ready["title"], &not_ready["detail"], &log["records_refusing"]["detail"]] {
        let said = said.as_str().expect("text");
        assert!(!said.contains("A log") && !said.contains("cut the log"), "it is not the log: {said}");
    }
    server.commit_orders("o-1", 1).await;
    server.get("/v1/backup").await.problem(Code::StoreDamaged);
    let logs = server.get("/v1/backup?without_records").await;
    assert_eq!((logs.status.as_u16(), logs.header("content-type")), (200, "application/x-tar"));
}

#[tokio::test(flavor = "multi_thread")]
async fn lines_of_a_damaged_log_are_broken_off_and_a_follower_is_told() {
    let server = damaged().await;
    let head = server.get("/v1/log?limit=1").await.json()["head"].as_u64().expect("a number");
    for query in ["", "?types=order_placed", "?limit=150000"] {
        let (lines, whole) = stream(&server, &format!("/v1/log{query}"), "application/x-ndjson").await;
        assert!(!whole, "{query}: a part was answered as if it were the whole");
        assert_eq!(lines.lines().count() as u64, head, "{query}");
    }
    // As many as were asked for are a whole answer.
    let (lines, whole) = stream(&server, &format!("/v1/log?limit={head}"), "application/x-ndjson").await;
    assert_eq!((lines.lines().count() as u64, whole), (head, true));

    let (events, _) = stream(&server, "/v1/log/follow", "text/event-stream").await;
    assert_eq!(events.matches("\nid: ").count() as u64, head);
    let last = events.trim_end().rsplit("\n\n").next().expect("a last one");
    assert!(last.starts_with("event: problem\n") && last.contains("\"store_damaged\""), "{last}");
}
