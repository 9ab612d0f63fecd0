//! `/v1/query/…`: snapshots and commits, asked over HTTP with the JSON of Wow's queries.

use annals_core::{Code, QueryGuard};
use annals_server::Options;
use reqwest::Method;
use serde_json::{Value, json};

use crate::running::Running;

const SNAPSHOTS: &str = "/v1/query/order/snapshots";
const COMMITS: &str = "/v1/query/order/commits";

/// Five orders, of which the last is deleted.
async fn with_orders(options: Options) -> Running {
    let server = Running::start_with(options).await;
    for n in 1..=5_u64 {
        let (id, status) = (format!("o-{n}"), ["open", "paid"][n as usize % 2]);
        let commit = json!({
            "aggregate": {"name": "order", "id": id}, "owner_id": "eva",
            "events": [{"type": "order_placed", "data": {"n": n}, "tags": [format!("t-{n}")]}, {"type": status, "data": {}}],
        });
        server.ask("/v1/commits", &commit).await.json();
        let snapshot = json!({"version": 1, "state": {"status": status, "total": n * 10}, "deleted": n == 5});
        server.put(&format!("/v1/snapshots/order/{id}"), &snapshot).await.json();
    }
    server
}

fn status(status: &str) -> Value {
    json!({"field": "state.status", "operator": "EQ", "value": status})
}

fn ids(documents: &Value) -> Vec<&str> {
    let list = documents.as_array().expect("an array").iter();
    list.map(|document| document["aggregateId"].as_str().expect("an id")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_an_array_a_page_and_a_number_are_answered() {
    let server = with_orders(Options::default()).await;
    let ask = async |how: &str, query: Value| server.ask(&format!("{SNAPSHOTS}/{how}"), &query).await;
    let by_total = json!([{"field": "state.total", "direction": "DESC"}]);
    let single = ask("single", json!({"condition": status("paid"), "sort": by_total})).await.json();
    assert_eq!((&single["aggregateId"], &single["state"]), (&json!("o-3"), &json!({"status": "paid", "total": 30})));
    assert_eq!(
        (&single["contextName"], &single["version"], &single["deleted"]),
        (&json!("annals"), &json!(1), &json!(false))
    );
    let list = ask("list", json!({"sort": by_total, "limit": 3, "projection": {"include": ["version"]}})).await.json();
    assert_eq!(ids(&list), ["o-4", "o-3", "o-2"]);
    assert_eq!(list[0], json!({"aggregateId": "o-4", "version": 1}));
    let paged = json!({"condition": status("open"), "pagination": {"index": 2, "size": 1}, "sort": by_total});
    let paged = ask("paged", paged).await.json();
    assert_eq!((&paged["total"], ids(&paged["list"])), (&json!(2), vec!["o-2"]));
    assert_eq!(ask("count", status("paid")).await.json(), json!(2));
    assert_eq!(ask("count", json!({"condition": status("paid")})).await.json(), json!(2));
    let deleted = json!({"operator": "AND", "children": [{"operator": "DELETED", "value": "ALL"}, status("paid")]});
    assert_eq!(ask("count", deleted).await.json(), json!(3));
    ask("single", json!({"condition": status("lost")})).await.problem(Code::NothingFound);
    assert_eq!(ask("list", json!({"condition": status("lost"), "limit": 1})).await.json(), json!([]));
    let explained = ask("explain", json!({"condition": {"operator": "ID", "value": "o-1"}, "limit": 1})).await.json();
    assert_eq!((&explained["documents_examined"], &explained["found"]), (&json!(1), &json!(1)));
}

#[tokio::test(flavor = "multi_thread")]
async fn commits_are_answered_as_the_documents_that_they_are() {
    let server = with_orders(Options::default()).await;
    let ask = async |how: &str, query: Value| server.ask(&format!("{COMMITS}/{how}"), &query).await;
    let of_3 = json!({"operator": "AGGREGATE_ID", "value": "o-3"});
    let single = ask("single", json!({"condition": of_3})).await.json();
    assert_eq!(
        (&single["aggregateName"], &single["aggregateId"], &single["size"]),
        (&json!("order"), &json!("o-3"), &json!(2))
    );
    assert_eq!((&single["body"][0]["name"], &single["body"][0]["body"]), (&json!("order_placed"), &json!({"n": 3})));
    let paid = json!({"field": "body.name", "operator": "EQ", "value": "paid"});
    let by_id = json!([{"field": "aggregateId", "direction": "ASC"}]);
    let list = ask("list", json!({"condition": paid, "sort": by_id, "limit": 10})).await.json();
    assert_eq!(ids(&list), ["o-1", "o-3", "o-5"]);
    let tagged = json!({"field": "body.tags", "operator": "EQ", "value": "t-2"});
    let paged = ask("paged", json!({"condition": tagged})).await.json();
    assert_eq!((&paged["total"], ids(&paged["list"])), (&json!(1), vec!["o-2"]));
    assert_eq!(ask("count", paid).await.json(), json!(3));
    let other = json!({"operator": "AGGREGATE_ID", "value": "o-9"});
    ask("single", json!({"condition": other})).await.problem(Code::NothingFound);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_guard_has_its_own_error_and_development_lifts_them() {
    let guarded = with_orders(Options::default()).await;
    let mut options = Options::default();
    options.query_guard = QueryGuard::open();
    let open = with_orders(options).await;
    let deep = (0..16).fold(status("paid"), |inner, _| json!({"operator": "OR", "children": [inner]}));
    let many: Vec<_> = (0..64).map(|_| status("paid")).collect();
    let values: Vec<_> = (0..1_001).collect();
    let contains = json!({"field": "state.status", "operator": "CONTAINS", "value": "ai"});
    let raw = json!({"operator": "RAW", "value": {"state.status": "paid"}});
    let everywhere = |condition: &Value| json!({"condition": condition, "limit": 1});
    for (how, query, code, path) in [
        ("list", everywhere(&deep), Code::QueryTooDeep, ".children[0]"),
        (
            "list",
            everywhere(&json!({"operator": "OR", "children": many})),
            Code::QueryTooLarge,
            "condition.children[63]",
        ),
        (
            "list",
            everywhere(&json!({"field": "state.total", "operator": "IN", "value": values})),
            Code::QueryTooManyValues,
            "condition",
        ),
        ("list", everywhere(&contains), Code::QueryTooExpensive, "condition"),
        ("single", json!({"condition": contains}), Code::QueryTooExpensive, "condition"),
        ("list", everywhere(&raw), Code::RawNotAllowed, "condition"),
        ("list", json!({}), Code::PageTooLarge, "limit"),
        ("list", json!({"limit": 1_001}), Code::PageTooLarge, "limit"),
        ("paged", json!({}), Code::QueryOfEverything, "condition"),
        (
            "paged",
            json!({"condition": status("paid"), "pagination": {"size": 101}}),
            Code::PageTooLarge,
            "pagination.size",
        ),
        (
            "paged",
            json!({"condition": status("paid"), "pagination": {"index": 1_001}}),
            Code::PageTooFar,
            "pagination.index",
        ),
        ("count", json!({}), Code::QueryOfEverything, "condition"),
        ("explain", everywhere(&contains), Code::QueryTooExpensive, "condition"),
    ] {
        let address = format!("{SNAPSHOTS}/{how}");
        let problem = guarded.ask(&address, &query).await.problem(code);
        assert!(problem["path"].as_str().expect("a path").ends_with(path), "{problem}");
        open.ask(&address, &query).await.json();
    }
    // What is a mistake is one anywhere.
    let zero = json!({"condition": status("paid"), "pagination": {"index": 0}});
    open.ask(&format!("{SNAPSHOTS}/paged"), &zero).await.problem(Code::InvalidQuery);
    let code = json!({"condition": {"operator": "RAW", "value": {"$where": "1"}}, "limit": 1});
    open.ask(&format!("{SNAPSHOTS}/list"), &code).await.problem(Code::RawNotAllowed);
}

#[tokio::test(flavor = "multi_thread")]
async fn commits_are_not_all_read_unless_that_is_allowed() {
    let guarded = with_orders(Options::default()).await;
    let mut options = Options::default();
    options.query_guard.expensive = true;
    let allowed = with_orders(options).await;
    let owner = json!({"operator": "OWNER_ID", "value": "eva"});
    for (how, query) in [
        ("single", json!({"condition": owner})),
        ("list", json!({"condition": owner, "limit": 10})),
        ("paged", json!({"condition": owner})),
        ("count", owner.clone()),
        ("list", json!({"limit": 10})),
    ] {
        let address = format!("{COMMITS}/{how}");
        let problem = guarded.ask(&address, &query).await.problem(Code::QueryTooExpensive);
        assert!(problem["detail"].as_str().expect("a sentence").contains("aggregateId"), "{problem}");
        allowed.ask(&address, &query).await.json();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_is_too_large_is_refused_and_not_cut() {
    let mut options = Options::default();
    options.query_guard.answer_bytes_max = 600;
    let server = with_orders(options).await;
    let list = format!("{SNAPSHOTS}/list");
    server.ask(&list, &json!({"limit": 4})).await.problem(Code::QueryAnswerTooLarge);
    let small = json!({"limit": 4, "projection": {"include": ["version"]}});
    assert_eq!(server.ask(&list, &small).await.json().as_array().map(Vec::len), Some(4));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_a_query_is_refused_with_its_place() {
    let server = Running::start().await;
    for (address, query, code, path) in [
        ("order/snapshots/single", json!({"limit": 1}), Code::InvalidBody, "limit"),
        ("order/snapshots/list", json!({"limit": -1}), Code::InvalidQuery, "limit"),
        ("order/commits/list", json!({"pagination": {}}), Code::InvalidBody, "pagination"),
        ("order/commits/paged", json!({"pagination": {"page": 1}}), Code::InvalidBody, "pagination.page"),
        ("order/commits/count", json!({"operator": "SOME"}), Code::InvalidCondition, "condition.operator"),
        ("no%20name/snapshots/count", status("paid"), Code::InvalidName, "aggregate.name"),
        (
            "order/commits/count",
            json!({"field": "annals.any", "operator": "EXISTS"}),
            Code::InvalidCondition,
            "condition",
        ),
    ] {
        let guard_aside = server.ask(&format!("/v1/query/{address}"), &query).await;
        assert_eq!(guard_aside.problem(code)["path"], path, "{address} {query}");
    }
    let list = format!("{SNAPSHOTS}/list");
    server.ask(&format!("{list}?x=1"), &json!({"limit": 1})).await.problem(Code::InvalidQuery);
    server.send(server.request(Method::GET, &list)).await.problem(Code::MethodNotAllowed);
    server.ask("/v1/query/order/snapshots/all", &json!({})).await.problem(Code::UnknownRoute);
    server.ask("/v1/query/order/events/list", &json!({})).await.problem(Code::UnknownRoute);
    let other = server.request(Method::POST, &list).header("annals-tenant", "none").body("{}");
    server.send(other).await.problem(Code::UnknownTenant);
}
