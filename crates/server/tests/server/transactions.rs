//! `POST /v1/transactions`.

use annals_core::{Code, limits};
use reqwest::Method;
use serde_json::{Value, json};

use crate::running::{Answer, Running};
use crate::tapped::Tap;

/// A commit of one event to an account.
fn moved(id: &str, amount: i64) -> Value {
    json!({"aggregate": {"name": "account", "id": id}, "events": [{"type": "moved", "data": {"amount": amount}}]})
}

/// From account a to account b.
fn transfer(amount: i64) -> Value {
    json!({"commits": [moved("a", -amount), moved("b", amount)]})
}

async fn transact(server: &Running, body: impl Into<Vec<u8>>) -> Answer {
    server.send(server.request(Method::POST, "/v1/transactions").body(body.into())).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_is_answered_201_with_an_answer_for_each_commit() {
    let server = Running::start().await;
    server.commit(&moved("b", 100)).await;
    let mut body = transfer(10);
    body["commits"][0]["events"].as_array_mut().expect("a list").push(json!({"type": "noted", "data": {}}));
    body["expect"] = json!([{"aggregate": {"name": "account", "id": "c"}, "expected_version": "empty"}]);
    let answer = transact(&server, body.to_string()).await;
    assert_eq!(answer.status, 201);
    let answers = answer.json();
    assert_eq!(answers.as_array().map(Vec::len), Some(2));
    let places = |n: usize| {
        let events = answers[n]["events"].as_array().expect("a list").iter();
        events.map(|event| event["sequence_number"].as_u64().expect("a number")).collect::<Vec<_>>()
    };
    assert_eq!((places(0), places(1)), (vec![1, 2], vec![3]));
    assert_eq!((&answers[0]["version"], &answers[1]["version"]), (&json!(1), &json!(2)));
    for (place, answer) in answers.as_array().expect("a list").iter().enumerate() {
        assert_eq!((&answer["duplicate"], &answer["reached"]), (&json!(false), &json!("logged")));
        let event = server.get(&format!("/v1/log/{}", answer["events"][0]["sequence_number"])).await.json();
        assert_eq!((&event["id"], &event["commit_id"]), (&answer["events"][0]["id"], &answer["commit_id"]));
        assert_eq!(event["transaction"], json!({"id": answers[0]["commit_id"], "place": place, "count": 2}));
    }
    assert_eq!(server.get("/v1/log/0").await.json().get("transaction"), None);
    let commits = server.get("/v1/aggregates/account/b/commits").await.json();
    assert_eq!(commits["commits"][0].get("transaction"), None);
    assert_eq!(commits["commits"][1]["transaction"], json!({"id": answers[0]["commit_id"], "place": 1, "count": 2}));
    assert_eq!(server.head().await, 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_transaction_is_answered_200_with_all_first_outcomes() {
    let server = Running::start().await;
    let mut body = transfer(10);
    body["request_id"] = json!("t-1");
    let first = transact(&server, body.to_string()).await.json();
    server.commit(&moved("b", 1)).await;
    body["commits"][1]["expected_version"] = json!(77);
    let again = transact(&server, body.to_string()).await;
    assert_eq!(again.status, 200);
    for (again, first) in again.json().as_array().expect("a list").iter().zip(first.as_array().expect("a list")) {
        assert_eq!(again["duplicate"], true);
        for member in ["commit_id", "version", "events"] {
            assert_eq!(again[member], first[member]);
        }
    }
    assert_eq!(server.head().await, 3);
    let mut reused = transfer(11);
    reused["request_id"] = json!("t-1");
    let problem = transact(&server, reused.to_string()).await.problem(Code::RequestIdReused);
    assert_eq!((&problem["request_id"], &problem["path"]), (&json!("t-1"), &Value::Null));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_names_the_part_and_the_facts_and_stores_nothing() {
    let server = Running::start().await;
    server.commit(&moved("b", 100)).await;
    let mut foreign = moved("foreign", 1);
    foreign["tenant_id"] = json!("north");
    server.commit(&foreign).await;

    let mut late = transfer(10);
    late["commits"][1]["expected_version"] = json!(0);
    let problem = transact(&server, late.to_string()).await.problem(Code::VersionConflict);
    assert_eq!((&problem["path"], &problem["actual_version"]), (&json!("commits[1]"), &json!(1)));
    assert!(problem["detail"].as_str().expect("text").starts_with("commits[1]: "), "{problem}");

    let mut expecting = transfer(10);
    let account =
        |id: &str, expected: Value| json!({"aggregate": {"name": "account", "id": id}, "expected_version": expected});
    expecting["expect"] = json!([account("c", json!("empty")), account("d", json!(4))]);
    let problem = transact(&server, expecting.to_string()).await.problem(Code::VersionConflict);
    assert_eq!((&problem["path"], &problem["actual_version"]), (&json!("expect[1]"), &json!(0)));

    let mut excluded = transfer(10);
    let patterns = json!([{"types": ["closed"]}, {"types": ["moved"], "tags": []}]);
    excluded["commits"][0]["append_condition"] = json!({"fail_if": patterns, "after": 0});
    let problem = transact(&server, excluded.to_string()).await.problem(Code::AppendConditionFailed);
    assert_eq!(
        (&problem["path"], &problem["pattern"], &problem["sequence_number"]),
        (&json!("commits[0]"), &json!(1), &json!(1))
    );

    let south = json!({"commits": [moved("a", 1), moved("foreign", 1)]});
    let problem = transact(&server, south.to_string()).await.problem(Code::AggregateOfOtherTenant);
    assert_eq!((&problem["path"], &problem["tenant_id"]), (&json!("commits[1]"), &json!("north")));
    assert_eq!(server.head().await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_append_condition_of_a_commit_is_judged_and_the_refusal_says_by_what() {
    let server = Running::start().await;
    let taken = |id: &str, condition: Value| {
        json!({"aggregate": {"name": "account", "id": id}, "append_condition": condition,
               "events": [{"type": "name_taken", "data": {}, "tags": ["name:eva"]}]})
    };
    let unique = |after: Value| json!({"fail_if": [{"types": ["name_taken"], "tags": ["name:eva"]}], "after": after});
    server.commit(&taken("1", unique(Value::Null))).await;
    let problem = server.post(taken("2", unique(Value::Null)).to_string()).await.problem(Code::AppendConditionFailed);
    assert_eq!((&problem["pattern"], &problem["sequence_number"]), (&json!(0), &json!(0)));
    assert_eq!(problem["path"], Value::Null);
    server.commit(&taken("2", unique(json!(0)))).await;
    server.commit(&taken("3", json!({"fail_if": [{"types": ["name_given_back"]}]}))).await;
    let anything = json!({"fail_if": [{}], "after": 1});
    let problem = server.post(taken("4", anything).to_string()).await.problem(Code::AppendConditionFailed);
    assert_eq!(problem["sequence_number"], 2);
    server.commit(&taken("4", json!({"fail_if": [{}], "after": 9_223_372_036_854_775_807_u64}))).await;
}

/// A good body with one member of it, or of its second commit, set.
fn with(member: &str, value: Value) -> String {
    let mut body = transfer(1);
    match member.strip_prefix("commits[1].") {
        Some(member) => body["commits"][1][member] = value,
        None => body[member] = value,
    }
    body.to_string()
}

fn bad_bodies() -> Vec<(&'static str, String, Code, &'static str)> {
    let expect = |value: Value| with("expect", value);
    let of =
        |id: &str, expected: Value| json!({"aggregate": {"name": "account", "id": id}, "expected_version": expected});
    let condition = |value: Value| with("commits[1].append_condition", value);
    let many = |count: usize| (0..count).map(|n| moved(&n.to_string(), 1)).collect::<Vec<_>>();
    let rule = Code::InvalidTransaction;
    let event = |data: &str| {
        let body = with("commits[1].events", json!([{"type": "t", "data": "DATA"}]));
        body.replace("\"DATA\"", data)
    };
    vec![
        ("nothing", String::new(), Code::NotJson, ""),
        ("half a body", transfer(1).to_string()[..50].to_owned(), Code::NotJson, ""),
        ("a text", json!("a and b").to_string(), Code::InvalidBody, ""),
        ("a single commit's body", moved("a", 1).to_string(), Code::InvalidBody, "aggregate"),
        ("no commits", with("commits", json!([])), rule, "commits"),
        ("one commit", with("commits", json!(many(1))), rule, "commits"),
        ("17 commits", with("commits", json!(many(17))), rule, "commits"),
        ("an aggregate twice", with("commits", json!([moved("a", 1), moved("a", 2)])), rule, "commits[1].aggregate"),
        ("an aggregate that is expected too", expect(json!([of("b", json!(1))])), rule, "expect[0].aggregate"),
        ("17 expectations", expect(json!(vec![of("c", json!(1)); 17])), rule, "expect"),
        ("a request id inside", with("commits[1].request_id", json!("r")), rule, "commits[1].request_id"),
        ("an empty request id", with("request_id", json!("")), Code::InvalidId, "request_id"),
        ("an unknown field", with("colour", json!("red")), Code::InvalidBody, "colour"),
        ("an unknown field inside", with("commits[1].colour", json!("red")), Code::InvalidBody, "commits[1].colour"),
        (
            "a bad version",
            with("commits[1].expected_version", json!(-1)),
            Code::InvalidVersion,
            "commits[1].expected_version",
        ),
        (
            "a bad expected version",
            expect(json!([of("c", json!("new"))])),
            Code::InvalidVersion,
            "expect[0].expected_version",
        ),
        (
            "no expected version",
            expect(json!([{"aggregate": {"name": "a", "id": "c"}}])),
            Code::InvalidBody,
            "expect[0]",
        ),
        ("an empty id", expect(json!([of("", json!(1))])), Code::InvalidId, "expect[0].aggregate.id"),
        ("no events", with("commits[1].events", json!([])), Code::InvalidEvents, "commits[1].events"),
        ("data that is no object", event("[]"), Code::InvalidData, "commits[1].events[0].data"),
        ("a key twice", event(r#"{"k":1,"k":2}"#), Code::InvalidData, "commits[1].events[0].data"),
        ("a wide integer", event(r#"{"n":9223372036854775808}"#), Code::InvalidInteger, "commits[1].events[0].data.n"),
        ("a wait for tea", with("wait", json!({"for": "tea"})), Code::InvalidWait, "wait.for"),
        ("a wait inside", with("commits[1].wait", json!({"for": "tea"})), Code::InvalidWait, "commits[1].wait.for"),
        (
            "no patterns",
            condition(json!({"fail_if": []})),
            Code::InvalidAppendCondition,
            "commits[1].append_condition.fail_if",
        ),
        ("no fail_if", condition(json!({"after": 1})), Code::InvalidAppendCondition, "commits[1].append_condition"),
        (
            "a position that is none",
            condition(json!({"fail_if": [{}], "after": -1})),
            Code::InvalidAppendCondition,
            "commits[1].append_condition.after",
        ),
        (
            "an unknown field of a pattern",
            condition(json!({"fail_if": [{"type": "t"}]})),
            Code::InvalidAppendCondition,
            "commits[1].append_condition.fail_if[0].type",
        ),
        (
            "a type that none can have",
            condition(json!({"fail_if": [{}, {"types": ["a b"]}]})),
            Code::InvalidAppendCondition,
            "commits[1].append_condition.fail_if[1].types",
        ),
        (
            "more than its limit in all",
            with(
                "commits",
                json!(["a", "b", "c"].map(|id| {
                    json!({"aggregate": {"name": "file", "id": id}, "events": [
                    {"type": "part", "data": {"x": "y".repeat(limits::COMMIT_BYTES_MAX / 3)}}]})
                })),
            ),
            Code::CommitTooLarge,
            "commits",
        ),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_transaction_is_refused_with_its_code_and_path_and_nothing_is_stored() {
    let server = Running::start().await;
    for (name, body, code, path) in bad_bodies() {
        let answer = transact(&server, body).await;
        assert_eq!(answer.status.as_u16(), code.status(), "{name}: {}", answer.text());
        let problem = answer.problem(code);
        assert_eq!(problem["path"].as_str().unwrap_or_default(), path, "{name}: {problem}");
    }
    assert_eq!(server.head().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_append_condition_of_a_commit_is_refused_with_its_path() {
    let server = Running::start().await;
    for (condition, path) in [
        (json!({"fail_if": []}), "append_condition.fail_if"),
        (json!({"fail_if": vec![json!({}); 65]}), "append_condition.fail_if"),
        (json!({"fail_if": [{"tags": ["x"]}, {"tags": [""]}]}), "append_condition.fail_if[1].tags"),
        (json!({"fail_if": {"types": ["t"]}}), "append_condition.fail_if"),
        (json!({"fail_if": [{}], "from": 1}), "append_condition.from"),
        (json!("none"), "append_condition"),
    ] {
        let mut body = moved("a", 1);
        body["append_condition"] = condition;
        let problem = server.post(body.to_string()).await.problem(Code::InvalidAppendCondition);
        assert_eq!(problem["path"], path, "{problem}");
    }
    assert_eq!(server.head().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_address_keeps_the_rules_of_all_addresses() {
    let server = Running::start().await;
    server.get("/v1/transactions").await.problem(Code::MethodNotAllowed);
    let send = |request: reqwest::RequestBuilder| server.send(request.body(transfer(1).to_string()));
    let post = |path: &str| server.request(Method::POST, path);
    let problem = send(post("/v1/transactions?scope=other")).await.problem(Code::InvalidQuery);
    assert_eq!(problem["path"], "scope");
    send(post("/v1/transactions").header("annals-tenant", "nobody")).await.problem(Code::UnknownTenant);
    send(post("/v1/transactions").header("content-type", "text/plain")).await.problem(Code::UnsupportedMediaType);
    let large = server.request(Method::POST, "/v1/transactions").body(vec![b' '; limits::BODY_BYTES_MAX + 1]);
    server.send(large).await.problem(Code::BodyTooLarge);
    assert_eq!(server.head().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn more_than_may_be_under_way_are_told_to_come_back() {
    let (store, tap) = Tap::store();
    let mut options = annals_server::Options::default();
    options.commits_in_flight_max = 1;
    let server = std::sync::Arc::new(Running::over(store, options).await);
    tap.commits_held.send_replace(true);
    let held = tokio::spawn({
        let server = std::sync::Arc::clone(&server);
        async move { transact(&server, transfer(1).to_string()).await }
    });
    crate::running::soon("a transaction", tap.commits_begun.subscribe().wait_for(|begun| *begun == 1))
        .await
        .expect("the tap lives");
    transact(&server, transfer(2).to_string()).await.problem(Code::Overloaded);
    tap.commits_held.send_replace(false);
    assert_eq!(held.await.expect("no panic").status, 201);
}

#[tokio::test(flavor = "multi_thread")]
async fn transactions_are_counted() {
    let server = Running::start().await;
    let mut body = transfer(1);
    body["request_id"] = json!("t");
    transact(&server, body.to_string()).await.json();
    transact(&server, body.to_string()).await.json();
    transact(&server, with("commits", json!([]))).await.problem(Code::InvalidTransaction);
    let metrics = server.get("/metrics").await;
    for line in [
        "annals_transactions_total 1",
        "annals_commits_total 2",
        "annals_events_total 2",
        "annals_commits_duplicate_total 2",
        "annals_commits_refused_total{code=\"invalid_transaction\"} 1",
        "annals_http_requests_total{route=\"/v1/transactions\",status=\"201\"} 1",
        "annals_http_requests_total{route=\"/v1/transactions\",status=\"200\"} 1",
    ] {
        assert!(metrics.text().lines().any(|known| known == line), "{line} is not in\n{}", metrics.text());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_of_many_megabytes_is_stored() {
    let server = Running::start().await;
    let text = "x".repeat(7 * 1024 * 1024);
    let part = |id: &str| json!({"aggregate": {"name": "file", "id": id}, "events": [{"type": "part", "data": {"text": text}}]});
    let body = json!({"commits": [part("1"), part("2")]}).to_string();
    assert_eq!(transact(&server, body).await.status, 201);
    assert_eq!(server.get("/v1/log/1").await.json()["data"]["text"], text);
}
