//! Commits and transactions.

use annals_core::bson::{self, Bson, Document as BsonDocument};
use annals_core::wire::binary::write_commit;
use annals_core::{Code, Data, NewCommit, NewEvent};
use annals_server::Options;
use reqwest::Method;
use serde_json::json;

use super::generated::document::Encoding;
use super::generated::{
    self, CommitOutcome, CommitRequest, Document, Event, GetRequest, HeadRequest, HeadResponse, ReadRequest,
    ReadResponse, TransactRequest, TransactResponse, read_response,
};
use super::{Client, as_json, json_of, next, problem, refused};
use crate::running::{Running, soon};

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_is_repeated_over_the_other_interface_adds_nothing() {
    let server = Running::start().await;
    let client = Client::of(&server);
    let body = |id: &str| {
        let events = json!([{"type": "placed", "data": {"n": 9_007_199_254_740_993_i64}}]);
        json!({"aggregate": {"name": "order", "id": id}, "request_id": "r-1", "expected_version": 0, "events": events})
    };
    let first = client.commit(&body("o-1")).await.expect("committed");
    assert_eq!((first.version, first.first_sequence_number, first.duplicate), (1, Some(0), false));
    assert_eq!((first.event_ids.len(), &*first.reached), (1, "logged"));
    let repeated = server.commit(&body("o-1")).await;
    assert_eq!((&repeated["duplicate"], &repeated["commit_id"]), (&json!(true), &json!(first.commit_id)));
    let second = server.commit(&body("o-2")).await;
    let repeated = client.commit(&body("o-2")).await.expect("committed");
    assert!(repeated.duplicate);
    assert_eq!(json!(repeated.commit_id), second["commit_id"]);
    let head: HeadResponse = client.call("Log/Head", HeadRequest::default()).await.expect("a head");
    assert_eq!((head.head, head.incarnation, head.incarnation_start), (2, 0, 0));
    let get = GetRequest { sequence_number: 1, ..GetRequest::default() };
    let event: Event = client.call("Log/Get", get).await.expect("an event");
    assert_eq!((event.sequence_number, &*event.r#type), (1, "placed"));
    assert_eq!(json_of(&event), server.get("/v1/log/1").await.json());
    assert!(server.get("/metrics").await.text().contains("/annals.v1.Commits/Commit"));
}

#[tokio::test(flavor = "multi_thread")]
async fn bson_keeps_every_type_of_data() {
    let server = Running::start().await;
    let client = Client::of(&server);
    let data = bson::doc! {"at": bson::DateTime::from_millis(5), "small": 7i32, "large": 7i64, "nothing": Bson::Null};
    let commit = NewCommit::new("order", "o-1")
        .event(NewEvent::new("placed", Data::from_document(&data).expect("a document")))
        .event(NewEvent::new("paid", Data::empty()));
    let mut bytes = Vec::new();
    write_commit(&commit, &mut bytes);
    let whole = Document { encoding: Some(Encoding::Bson(bytes.clone().into())) };
    let outcome: CommitOutcome =
        client.call("Commits/Commit", CommitRequest { commit: Some(whole) }).await.expect("committed");
    assert_eq!((outcome.version, outcome.event_ids.len()), (1, 2));
    let asked = ReadRequest { encoding: generated::Encoding::Bson.into(), ..ReadRequest::default() };
    let mut page = client.stream("Log/Read", asked).await.expect("a page");
    for (number, name) in [(0, "placed"), (1, "paid")] {
        let ReadResponse { response: Some(read_response::Response::Event(event)) } = next(&mut page).await else {
            panic!("no event {number}")
        };
        assert_eq!((event.sequence_number, &*event.r#type), (number, name));
        let Some(Document { encoding: Some(Encoding::Bson(bytes)) }) = event.document else { panic!("no BSON") };
        let commit = BsonDocument::from_reader(&bytes[..]).expect("a document");
        let events = commit.get_array("events").expect("a list");
        assert_eq!(events.len(), 1);
        let event = events[0].as_document().expect("an event");
        assert_eq!(event.get_str("type").expect("a type"), name);
        let expected = if number == 0 { data.clone() } else { BsonDocument::new() };
        assert_eq!(event.get_document("data").expect("data"), &expected);
    }
    let ReadResponse { response: Some(read_response::Response::End(end)) } = next(&mut page).await else {
        panic!("no end")
    };
    assert_eq!((end.next, end.head), (2, 2));
    assert!(soon("the end", page.message()).await.expect("no error").is_none());
    bytes.push(0);
    for encoding in [None, Some(Encoding::Bson(bytes.into())), Some(Encoding::Bson("x".into()))] {
        let asked = CommitRequest { commit: Some(Document { encoding }) };
        let status = refused(client.call::<_, CommitOutcome>("Commits/Commit", asked).await);
        problem(&status, tonic::Code::InvalidArgument, Code::InvalidBody);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_says_what_the_caller_should_do() {
    let server = Running::start().await;
    let client = Client::of(&server);
    client.commit_order("o-1").await;
    let late = json!({"aggregate": {"name": "order", "id": "o-1"}, "expected_version": 0,
                      "events": [{"type": "placed", "data": {}}]});
    let document = problem(&refused(client.commit(&late).await), tonic::Code::Aborted, Code::VersionConflict);
    assert_eq!(document["actual_version"], 1);
    let nameless = json!({"aggregate": {"name": "a b", "id": "o-1"},
                          "events": [{"type": "placed", "data": {}}]});
    let document = problem(&refused(client.commit(&nameless).await), tonic::Code::InvalidArgument, Code::InvalidName);
    assert_eq!(document["path"], "aggregate.name");
    let absent = GetRequest { sequence_number: 9, ..GetRequest::default() };
    let status = refused(client.call::<_, Event>("Log/Get", absent).await);
    problem(&status, tonic::Code::NotFound, Code::UnknownEvent);
    let odd = GetRequest { encoding: 7, ..GetRequest::default() };
    let document = problem(
        &refused(client.call::<_, Event>("Log/Get", odd).await),
        tonic::Code::InvalidArgument,
        Code::InvalidBody,
    );
    assert_eq!(document["path"], "encoding");
    let elsewhere = refused(client.clone().of_tenant("nowhere").commit(&late).await);
    problem(&elsewhere, tonic::Code::NotFound, Code::UnknownTenant);
    let unknown = refused(client.call::<_, Event>("Log/Rewrite", GetRequest::default()).await);
    problem(&unknown, tonic::Code::Unimplemented, Code::UnknownRoute);
    // The method is not for other clients.
    let http = server.request(Method::POST, "/annals.v1.Log/Get").header("content-type", "application/json");
    server.send(http.body("{}")).await.problem(Code::UnsupportedMediaType);
    server.get("/annals.v1.Log/Get").await.problem(Code::MethodNotAllowed);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_is_too_large_is_refused_and_the_connection_stays() {
    let mut options = Options::default();
    options.body_bytes_max = 2_000;
    let server = Running::start_with(options).await;
    let client = Client::of(&server);
    let large = |bytes: usize| {
        let events = json!([{"type": "placed", "data": {"text": "x".repeat(bytes)}}]);
        json!({"aggregate": {"name": "order", "id": "o-1"}, "events": events})
    };
    for bytes in [2_000, 100_000] {
        let status = refused(client.commit(&large(bytes)).await);
        problem(&status, tonic::Code::ResourceExhausted, Code::BodyTooLarge);
    }
    assert_eq!(client.commit(&large(1_000)).await.expect("committed").version, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_is_made_as_a_whole_or_not_at_all() {
    let server = Running::start().await;
    let client = Client::of(&server);
    let transaction = |expected: u64| {
        let commit = |id: &str| {
            json!({"aggregate": {"name": "account", "id": id}, "expected_version": expected,
                   "events": [{"type": "moved", "data": {}}]})
        };
        TransactRequest { transaction: Some(as_json(&json!({"commits": [commit("a"), commit("b")]}))) }
    };
    let made: TransactResponse = client.call("Commits/Transact", transaction(0)).await.expect("committed");
    let numbers: Vec<_> = made.outcomes.iter().map(|outcome| outcome.first_sequence_number).collect();
    assert_eq!(numbers, [Some(0), Some(1)]);
    let status = refused(client.call::<_, TransactResponse>("Commits/Transact", transaction(0)).await);
    problem(&status, tonic::Code::Aborted, Code::VersionConflict);
    assert_eq!(server.head().await, 2);
}
