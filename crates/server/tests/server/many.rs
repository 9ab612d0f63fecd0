//! Several commits in one request.

use annals_core::wire::binary;
use annals_core::{Code, CommitOutcome, Data, ExpectedVersion, NewCommit, NewEvent};
use annals_server::Options;
use reqwest::Method;
use reqwest::header::CONTENT_TYPE;
use serde_json::{Value, json};

use crate::running::{Answer, Running, opened};

const LINES: &str = "application/x-ndjson";
const DOCUMENTS: &str = "application/bson";

async fn post(server: &Running, media_type: &str, body: impl Into<Vec<u8>>) -> Answer {
    let request = server.request(Method::POST, "/v1/commits").header(CONTENT_TYPE, media_type).body(body.into());
    server.send(request).await
}

/// The answers to lines, which are as many.
async fn lines(server: &Running, body: &str) -> Vec<Value> {
    let answer = post(server, LINES, body).await;
    assert_eq!((answer.status.as_u16(), answer.header("content-type")), (200, LINES), "{}", answer.text());
    answer.text().lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

fn order(id: &str, expected: Value) -> Value {
    json!({"aggregate": {"name": "order", "id": id}, "expected_version": expected, "request_id": format!("{id}-{expected}"),
           "events": [{"type": "placed", "data": {"id": id}}]})
}

#[tokio::test(flavor = "multi_thread")]
async fn each_line_is_a_commit_of_its_own_with_its_own_answer_in_its_place() {
    let server = Running::start().await;
    let first = order("a", json!(0));
    let body = [
        first.to_string(),
        "not json".to_owned(),
        json!({"aggregate": {"name": "order", "id": "b"}, "events": []}).to_string(),
        order("c", json!(7)).to_string(),
        "  \r".to_owned(),
        order("d", json!("any")).to_string(),
    ];
    let answers = lines(&server, &body.join("\n")).await;
    assert_eq!(answers.len(), 5, "an empty line is no commit");
    assert_eq!((&answers[0]["version"], &answers[0]["duplicate"]), (&json!(1), &json!(false)));
    for (answer, code) in answers[1..4].iter().zip([Code::NotJson, Code::InvalidEvents, Code::VersionConflict]) {
        assert_eq!(answer["code"], code.as_str(), "{answer}");
        assert_eq!(answer["status"], code.status());
    }
    assert_eq!(answers[3]["actual_version"], 0);
    assert_eq!(answers[4]["version"], 1);
    let again = lines(&server, &format!("{first}\n")).await;
    assert_eq!((&again[0]["duplicate"], &again[0]["commit_id"]), (&json!(true), &answers[0]["commit_id"]));
    assert_eq!(server.head().await, 2);
    let metrics = server.get("/metrics").await;
    for line in ["annals_commits_total 2", "annals_commits_duplicate_total 1", r#"refused_total{code="not_json"} 1"#] {
        assert!(metrics.text().contains(line), "{line} in {}", metrics.text());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn documents_keep_every_type_of_their_data() {
    let server = Running::start().await;
    let data = bson::doc! {"at": bson::DateTime::from_millis(5), "n": 7i32, "list": [1.5, {"x": bson::Bson::Null}]};
    let commit = |id: &str| {
        let event = NewEvent::new("placed", Data::from_document(&data).expect("a document")).tag("t");
        NewCommit::new("order", id).expect(ExpectedVersion::Empty).request_id("r").event(event)
    };
    let mut body = Vec::new();
    for id in ["a", "b", "a"] {
        binary::write_commit(&commit(id), &mut body);
    }
    binary::write_commit(&commit("a").request_id("other"), &mut body);
    let answer = post(&server, DOCUMENTS, body).await;
    assert_eq!((answer.status.as_u16(), answer.header("content-type")), (200, DOCUMENTS));
    let mut replies = Vec::new();
    let mut rest = answer.body.as_slice();
    while let Some((document, behind)) = binary::split_document(rest).expect("a document") {
        replies.push(binary::read_reply(document).expect("a reply"));
        rest = behind;
    }
    let duplicates: Vec<_> =
        replies[..3].iter().map(|reply| reply.as_ref().map(|o: &CommitOutcome| o.duplicate)).collect();
    assert_eq!(duplicates, [Ok(false), Ok(false), Ok(true)]);
    let problem: Value = serde_json::from_str(replies[3].as_ref().expect_err("a refusal")).expect("JSON");
    assert_eq!((&problem["code"], &problem["actual_version"]), (&json!("version_conflict"), &json!(1)));
    let log = server.store.log("default", "default").expect("the log");
    let page = log.read(annals_core::LogQuery::default()).await.expect("a page");
    assert_eq!(page.events.len(), 2);
    assert_eq!(page.events[0].data.as_bytes(), Data::from_document(&data).expect("a document").as_bytes());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_hides_where_the_next_commit_begins_refuses_all() {
    let server = Running::start().await;
    let mut body = Vec::new();
    binary::write_commit(&NewCommit::new("order", "a").event(NewEvent::new("t", Data::empty())), &mut body);
    for tail in [vec![1], vec![4, 0, 0, 0], vec![0xff; 8], vec![200, 0, 0, 0, 0]] {
        let whole = [body.clone(), tail].concat();
        post(&server, DOCUMENTS, whole).await.problem(Code::InvalidBody);
    }
    let many = format!("{}\n", opened()).repeat(1_001);
    post(&server, LINES, many).await.problem(Code::InvalidBody);
    post(&server, "application/xml", "").await.problem(Code::UnsupportedMediaType);
    assert_eq!(server.head().await, 0);
    for media_type in [LINES, DOCUMENTS] {
        let nothing = post(&server, media_type, "").await;
        assert_eq!((nothing.status.as_u16(), nothing.body.len()), (200, 0));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_commits_of_one_request_are_all_answered_in_their_order() {
    let server = Running::start().await;
    let body: Vec<_> = (0..1_000).map(|n| order(&format!("{n}"), json!(0)).to_string()).collect();
    let answers = lines(&server, &body.join("\n")).await;
    assert_eq!(answers.len(), 1_000);
    for (n, answer) in answers.iter().enumerate() {
        let number = answer["events"][0]["sequence_number"].as_u64().expect("a number");
        let event = &server.store.log("default", "default").expect("the log");
        let query = annals_core::LogQuery { from: Some(number), limit: 1, ..annals_core::LogQuery::default() };
        let page = event.read(query).await.expect("a page");
        assert_eq!(page.events[0].commit.aggregate.id, n.to_string());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn commits_beyond_those_that_may_be_under_way_are_refused_one_by_one() {
    let mut options = Options::default();
    options.commits_in_flight_max = 2;
    let server = Running::start_with(options).await;
    let body: Vec<_> = (0..50).map(|n| order(&format!("{n}"), json!(0)).to_string()).collect();
    let answers = lines(&server, &body.join("\n")).await;
    let made = answers.iter().filter(|answer| answer["version"] == 1).count();
    let refused = answers.iter().filter(|answer| answer["code"] == "overloaded").count();
    assert!(made >= 2 && made + refused == 50, "{made} made, {refused} refused");
    assert_eq!(server.head().await, made as u64);
}
