//! `/v1/records/…`: collections, batches, and what is found.

use annals_core::bson::{Document, RawDocumentBuf, doc, oid::ObjectId};
use annals_core::{Code, limits};
use annals_server::Options;
use reqwest::Method;
use serde_json::{Value, json};

use crate::running::{Answer, Running};

pub const COLLECTIONS: &str = "/v1/records/collections";
pub const CHANGES: &str = "/v1/records/changes";

impl Running {
    pub async fn put(&self, path: &str, body: &Value) -> Answer {
        self.send(self.request(Method::PUT, path).body(body.to_string())).await
    }

    pub async fn ask(&self, path: &str, body: &Value) -> Answer {
        self.send(self.request(Method::POST, path).body(body.to_string())).await
    }

    /// Writes a batch that must be accepted: its numbers.
    pub async fn write(&self, changes: Value) -> Vec<u64> {
        let answer = self.ask(CHANGES, &json!({ "changes": changes })).await.json();
        answer["numbers"].as_array().expect("numbers").iter().map(|number| number.as_u64().expect("one")).collect()
    }

    /// Writes a batch that must be refused.
    pub async fn refused(&self, changes: Value, code: Code) -> Value {
        self.ask(CHANGES, &json!({ "changes": changes })).await.problem(code)
    }
}

pub fn insert(document: Value) -> Value {
    json!({"insert": {"collection": "orders", "document": document}})
}

fn replace(document: Value, expected: Value) -> Value {
    json!({"replace": {"collection": "orders", "document": document, "expected": expected}})
}

fn delete(id: Value, expected: Value) -> Value {
    json!({"delete": {"collection": "orders", "id": id, "expected": expected}})
}

/// A server with the collection "orders", whose numbers are unique.
pub async fn serving() -> Running {
    serving_with(Options::default()).await
}

async fn serving_with(options: Options) -> Running {
    let server = Running::start_with(options).await;
    let index = json!({"fields": [{"field": "number"}], "unique": true, "sparse": true});
    server.put("/v1/records/collections/orders", &json!({ "indexes": [index] })).await.json();
    server
}

/// A server that takes every condition that its store takes.
fn open() -> Options {
    let mut options = Options::default();
    options.query_guard = annals_core::QueryGuard::open();
    options
}

async fn found(server: &Running, query: Value) -> Vec<Value> {
    let page = server.ask("/v1/records/collections/orders/find", &query).await.json();
    page["records"].as_array().expect("records").iter().map(|record| record["document"]["_id"].clone()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn collections_are_declared_and_listed() {
    let server = Running::start().await;
    assert_eq!(server.get(COLLECTIONS).await.json(), json!({"collections": [], "next": null}));
    let indexes = json!([
        {"name": "by_state", "fields": [{"field": "state", "direction": "DESC"}, {"field": "at", "direction": "ASC"}],
         "unique": true, "partial": {"field": "state", "operator": "EXISTS", "value": true}},
        {"name": "at_1", "fields": [{"field": "at", "direction": "ASC"}], "sparse": true, "expires_after_seconds": 3600}]);
    let declared = json!({"name": "orders", "indexes": indexes});
    let body = json!({ "indexes": indexes });
    for _ in 0..2 {
        assert_eq!(server.put("/v1/records/collections/orders", &body).await.json(), declared);
    }
    server.put("/v1/records/collections/a.b-C_1", &json!({})).await.json();
    assert_eq!(server.get("/v1/records/collections/orders").await.json(), declared);
    let all = server.get(COLLECTIONS).await.json();
    assert_eq!(all, json!({"collections": [{"name": "a.b-C_1", "indexes": []}, declared], "next": "orders"}));
    let rest = server.get("/v1/records/collections?after=a.b-C_1&limit=1").await.json();
    assert_eq!(rest, json!({"collections": [declared], "next": "orders"}));
    for query in ["limit=0", "limit=1001", "scope=default"] {
        server.get(&format!("{COLLECTIONS}?{query}")).await.problem(Code::InvalidQuery);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn declarations_that_break_a_rule_are_refused() {
    let server = serving().await;
    let put = async |name: &str, body: Value, code: Code| {
        server.put(&format!("{COLLECTIONS}/{name}"), &body).await.problem(code)["path"].clone()
    };
    let index = |index: Value| json!({"indexes": [index]});
    let by = |field: &str| json!([{ "field": field }]);
    assert_eq!(put("a%20b", json!({}), Code::InvalidCollection).await, "name");
    assert_eq!(put("c", json!({"index": []}), Code::InvalidBody).await, "index");
    assert_eq!(put("c", index(json!({"fields": by("a"), "uniq": true})), Code::InvalidBody).await, "indexes[0].uniq");
    assert_eq!(put("c", index(json!({"fields": by("a.0")})), Code::InvalidCollection).await, "indexes[0]");
    assert_eq!(put("c", index(json!({"fields": []})), Code::InvalidCollection).await, "indexes[0]");
    let partial = index(json!({"fields": by("a"), "partial": {"operator": "OR"}}));
    assert_eq!(put("c", partial, Code::InvalidCondition).await, "indexes[0].partial");
    let other = index(json!({"name": "number_1", "fields": by("other")}));
    let conflict = server.put(&format!("{COLLECTIONS}/orders"), &other).await.problem(Code::IndexConflict);
    assert_eq!((&conflict["collection"], &conflict["index"]), (&json!("orders"), &json!("number_1")));
    server.write(json!([insert(json!({"_id": 1, "n": 7})), insert(json!({"_id": 2, "n": 7}))])).await;
    let unique = index(json!({"fields": by("n"), "unique": true}));
    let taken = server.put(&format!("{COLLECTIONS}/orders"), &unique).await.problem(Code::DuplicateKey);
    assert_eq!((&taken["index"], &taken["entry"]), (&json!("n_1"), &json!({"n": 7})));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_changes_records_and_answers_their_numbers() {
    let server = serving().await;
    let numbers = server.write(json!([insert(json!({"_id": "o-1", "total": 5})), insert(json!({"_id": 7}))])).await;
    assert!(numbers.len() == 2 && numbers[0] < numbers[1], "{numbers:?}");
    let get = async |id: &str| server.get(&format!("{COLLECTIONS}/orders/ids/{id}")).await;
    assert_eq!(get("o-1").await.json(), json!({"revision": numbers[0], "document": {"_id": "o-1", "total": 5}}));
    assert_eq!(get("7?ejson").await.json()["revision"], numbers[1]);
    let unknown = get("7").await.problem(Code::UnknownRecord);
    assert_eq!(unknown["collection"], "orders");
    let revision = json!({ "revision": numbers[0] });
    let next = server.write(json!([replace(json!({"_id": "o-1", "total": 6}), revision.clone())])).await[0];
    let conflict =
        server.refused(json!([insert(json!({"_id": 9})), delete(json!("o-1"), revision)]), Code::RecordConflict);
    let conflict = conflict.await;
    assert_eq!((&conflict["collection"], &conflict["id"]), (&json!("orders"), &json!("o-1")));
    assert_eq!((&conflict["change"], &conflict["revision"]), (&json!(1), &json!(next)));
    let gone = server.refused(json!([delete(json!("none"), json!("present"))]), Code::RecordConflict).await;
    assert_eq!(gone["revision"], Value::Null);
    let number = server.refused(json!([delete(json!(77), json!("present"))]), Code::RecordConflict).await;
    assert_eq!(number["id"], 77);
    get("9?ejson").await.problem(Code::UnknownRecord);
    let cheap = json!({"matching": {"field": "total", "operator": "LT", "value": 6}});
    server.refused(json!([delete(json!("o-1"), cheap)]), Code::RecordConflict).await;
    server
        .write(json!([
            replace(json!({"_id": "o-2"}), json!({"absent_or": {}})),
            delete(json!("o-1"), json!("present"))
        ]))
        .await;
    assert_eq!(found(&server, json!({})).await, [json!(7), json!("o-2")]);
    assert_eq!(server.write(json!([])).await, [0u64; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn records_are_found_by_condition_sort_projection_and_page() {
    let server = serving().await;
    let orders = (0..25).map(|n| insert(json!({"_id": n, "total": n % 5, "lines": [{"price": n}], "open": n < 20})));
    server.write(orders.collect()).await;
    let condition = json!({"operator": "AND", "children": [
        {"field": "open", "operator": "EQ", "value": true}, {"field": "total", "operator": "BETWEEN", "value": [1, 2]}]});
    let mut query = json!({"condition": condition, "sort": [{"field": "total", "direction": "DESC"}, {"field": "_id"}],
        "projection": {"include": ["lines.price"]}, "limit": 3});
    let mut all = Vec::new();
    loop {
        let page = server.ask("/v1/records/collections/orders/find", &query).await.json();
        all.extend(page["records"].as_array().expect("records").iter().map(|record| record["document"].clone()));
        if page["next"].is_null() {
            break;
        }
        query["after"] = page["next"].clone();
    }
    let expected = [2, 7, 12, 17, 1, 6, 11, 16].map(|n| json!({"_id": n, "lines": [{"price": n}]}));
    assert_eq!(all, expected);
    let count = async |body: Value| server.ask("/v1/records/collections/orders/count", &body).await.json();
    assert_eq!(count(json!({ "condition": condition })).await, json!({"count": 8}));
    assert_eq!(count(json!({})).await, json!({"count": 25}));
    assert_eq!(found(&server, json!({})).await.len(), 25);
    let without = json!({"projection": {"exclude": ["lines", "open"]}, "limit": 1});
    let page = server.ask("/v1/records/collections/orders/find", &without).await.json();
    assert_eq!(page["records"][0]["document"], json!({"_id": 0, "total": 0}));
}

#[tokio::test(flavor = "multi_thread")]
async fn records_are_grouped_page_by_page() {
    const GROUP: &str = "/v1/records/collections/orders/group";
    let server = serving().await;
    let order = |n: i32| {
        let state = ["open", "paid", "sent"][n as usize % 3];
        insert(json!({"_id": n, "state": state, "total": n, "lines": {"price": 0.5}}))
    };
    server.write((0..10).map(order).collect()).await;
    let figures = json!({"revenue": {"sum": "total"}, "mean": {"avg": "total"}, "first": {"min": "_id"}, "price": {"max": "lines.price"}});
    let mut query = json!({"by": "state", "figures": figures, "limit": 2,
        "condition": {"field": "total", "operator": "GT", "value": 0}});
    let page = server.ask(GROUP, &query).await.json();
    let due = json!([
        {"key": "open", "count": 3, "figures": {"revenue": 18, "mean": 6.0, "first": 3, "price": 0.5}},
        {"key": "paid", "count": 3, "figures": {"revenue": 12, "mean": 4.0, "first": 1, "price": 0.5}}]);
    assert_eq!(page["groups"], due);
    query["after"] = page["next"].clone();
    let page = server.ask(GROUP, &query).await.json();
    assert_eq!((&page["groups"][0]["key"], &page["next"]), (&json!("sent"), &Value::Null));
    let all = server.ask(GROUP, &json!({})).await.json();
    assert_eq!(all["groups"], json!([{"key": null, "count": 10, "figures": {}}]));
    for (wrong, code, path) in [
        (json!({"every": "hour"}), Code::InvalidQuery, "every"),
        (json!({"by": "a", "every": "week"}), Code::InvalidBody, "every"),
        (json!({"by": "a.0"}), Code::InvalidQuery, "by"),
        (json!({"limit": 0}), Code::InvalidQuery, "limit"),
        (json!({"after": "00"}), Code::InvalidQuery, "after"),
        (json!({"figures": {"x": {}}}), Code::InvalidBody, "figures.x"),
        (json!({"figures": {"x": {"median": "a"}}}), Code::InvalidBody, "figures.x"),
        (json!({"figures": {"x": {"sum": "a", "avg": "a"}}}), Code::InvalidBody, "figures.x"),
        (json!({"figures": {"x": {"sum": "$a"}}}), Code::InvalidQuery, "figures.x"),
        (json!({"more": 1}), Code::InvalidBody, "more"),
    ] {
        assert_eq!(server.ask(GROUP, &wrong).await.problem(code)["path"], path, "{wrong}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_that_breaks_a_rule_is_refused_with_its_place() {
    // The rules of the store, which hold for servers too that limit nothing.
    let server = serving_with(open()).await;
    server.write((0..5).map(|n| insert(json!({ "_id": n }))).collect()).await;
    let cursor = server.ask("/v1/records/collections/orders/find", &json!({"limit": 2})).await.json()["next"].clone();
    let deep = (0..110).fold(json!({}), |inner, _| json!({"operator": "NOR", "children": [inner]}));
    let many = json!({"operator": "OR", "children": vec![json!({"field": "a", "operator": "EXISTS"}); 1_000]});
    let values = json!({"field": "a", "operator": "IN", "value": vec![1; limits::CONDITION_VALUES_MAX + 1]});
    let field = |operator: &str, value: Value| json!({"field": "a", "operator": operator, "value": value});
    for (query, code, path) in [
        (json!({"limit": 0}), Code::InvalidQuery, "limit"),
        (json!({"limit": 1001}), Code::InvalidQuery, "limit"),
        (json!({"limit": "7"}), Code::InvalidBody, "limit"),
        (json!({"after": "zz"}), Code::InvalidQuery, "after"),
        (json!({"after": cursor, "sort": [{"field": "x"}]}), Code::InvalidQuery, "after"),
        (json!({"sort": [{"field": "a.0"}]}), Code::InvalidQuery, "sort"),
        (json!({"sort": {"a": 1}}), Code::InvalidBody, "sort"),
        (json!({"projection": {"include": ["a", "a.b"]}}), Code::InvalidQuery, "projection"),
        (json!({"projection": {"include": ["a"], "exclude": ["b"]}}), Code::InvalidQuery, "projection"),
        (json!({"filter": {}}), Code::InvalidBody, "filter"),
        (json!({ "condition": deep }), Code::InvalidCondition, "condition"),
        (json!({ "condition": many }), Code::InvalidCondition, "condition"),
        (json!({ "condition": values }), Code::InvalidCondition, "condition"),
        (json!({"condition": field("LIKE", json!(1))}), Code::InvalidCondition, "condition.operator"),
        (json!({"condition": field("IN", json!(1))}), Code::InvalidCondition, "condition"),
        (json!({"condition": field("EQ", json!({"$oid": "x"}))}), Code::InvalidCondition, "condition.value"),
        (json!({"condition": {"field": "$where", "operator": "EXISTS"}}), Code::InvalidCondition, "condition"),
        (json!({"condition": ["a"]}), Code::InvalidBody, "condition"),
        (json!([]), Code::InvalidBody, ""),
    ] {
        let problem = server.ask("/v1/records/collections/orders/find", &query).await.problem(code);
        let at = problem["path"].as_str().expect("a path");
        assert!(at == path || (!path.is_empty() && at.starts_with(path)), "{path} expected: {problem}");
    }
    for address in ["find", "count", "get"] {
        let body = if address == "get" { json!({"id": 1}) } else { json!({}) };
        let unknown =
            server.ask(&format!("{COLLECTIONS}/none/{address}"), &body).await.problem(Code::UnknownCollection);
        assert_eq!(unknown["collection"], "none");
    }
    server.get("/v1/records/collections/none").await.problem(Code::UnknownCollection);
    server.get("/v1/records/collections/orders/ids/1?ejso").await.problem(Code::InvalidQuery);
    server.get("/v1/records/collections/orders/ids/%7B?ejson").await.problem(Code::InvalidRecord);
    server.get("/v1/records/collections/orders/find").await.problem(Code::MethodNotAllowed);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_that_breaks_a_rule_is_refused_with_its_place_and_changes_nothing() {
    let server = serving().await;
    let good = || insert(json!({"_id": 1, "number": 4}));
    server.write(json!([good()])).await;
    let deep = (0..limits::DATA_DEPTH_MAX + 1).fold(json!({}), |inner, _| json!({ "a": inner }));
    for (change, code, path) in [
        (insert(json!({"a": 1})), Code::InvalidRecord, "changes[1]._id"),
        (insert(json!({"_id": [1]})), Code::InvalidRecord, "changes[1]._id"),
        (insert(json!({"_id": 2, "deep": deep})), Code::InvalidRecord, "changes[1].document"),
        (json!({"upsert": {}}), Code::InvalidBody, "changes[1].upsert"),
        (json!("insert"), Code::InvalidBody, "changes[1]"),
        (delete(json!([1]), json!("present")), Code::InvalidRecord, "changes[1]._id"),
        (
            delete(json!(1), json!({"matching": {"operator": "AND"}})),
            Code::InvalidCondition,
            "changes[1].delete.expected.matching",
        ),
        (
            delete(json!(1), json!({"matching": {"field": "", "operator": "EXISTS"}})),
            Code::InvalidCondition,
            "changes[1].condition",
        ),
    ] {
        let problem = server.refused(json!([insert(json!({"_id": 9})), change]), code).await;
        assert_eq!(problem["path"], path, "{problem}");
    }
    let twice = r#"{"changes":[{"insert":{"collection":"orders","document":{"_id":3,"a":1,"a":2}}}]}"#;
    let answer = server.send(server.request(Method::POST, CHANGES).body(twice)).await;
    assert_eq!(answer.problem(Code::InvalidRecord)["path"], "changes[0].insert.document");
    let again = server.refused(json!([insert(json!({"_id": 9})), good()]), Code::DuplicateKey).await;
    assert_eq!((&again["index"], &again["entry"], &again["change"]), (&json!("_id_"), &json!({"_id": 1}), &json!(1)));
    let taken = server.refused(json!([insert(json!({"_id": 2, "number": 4.0}))]), Code::DuplicateKey).await;
    assert_eq!((&taken["index"], &taken["entry"]), (&json!("number_1"), &json!({"number": 4.0})));
    let elsewhere = json!([{"insert": {"collection": "none", "document": {"_id": 1}}}]);
    assert_eq!(server.refused(elsewhere, Code::UnknownCollection).await["collection"], "none");
    let many = vec![delete(json!(1), json!("present")); limits::RECORD_CHANGES_MAX + 1];
    assert_eq!(server.refused(json!(many), Code::InvalidRecord).await["path"], "changes");
    assert_eq!(found(&server, json!({})).await, [json!(1)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn collections_of_the_system_can_be_read_and_not_written() {
    let server = serving().await;
    let own = RawDocumentBuf::try_from(&doc! { "_id": 1, "state": "open" }).expect("a document");
    let records = server.store.records(annals_core::DEFAULT_TENANT).expect("there");
    records.declare(annals_core::Collection::new("_processors")).await.expect("declared");
    records.insert("_processors", own).await.expect("inserted");
    for name in ["_processors", "order_event_stream", "event-log", "Events", "system.users"] {
        server.put(&format!("{COLLECTIONS}/{name}"), &json!({})).await.problem(Code::SystemCollection);
        let write =
            json!([insert(json!({"_id": 1})), {"delete": {"collection": name, "id": 1, "expected": "present"}}]);
        assert_eq!(server.refused(write, Code::SystemCollection).await["collection"], name);
    }
    let read = server.get("/v1/records/collections/_processors/ids/1?ejson").await.json();
    assert_eq!(read["document"], json!({"_id": 1, "state": "open"}));
    assert_eq!(found(&server, json!({})).await, Vec::<Value>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn extended_json_and_bson_keep_every_type() {
    let server = serving().await;
    let id = ObjectId::from_bytes([7; 12]);
    let hex = "070707070707070707070707";
    let post = async |media_type: &str, body: Vec<u8>| {
        let request = server.request(Method::POST, CHANGES).header("content-type", media_type).body(body);
        server.send(request).await
    };
    let body = format!(
        r#"{{"changes":[{{"insert":{{"collection":"orders","document":{{"_id":{{"$oid":"{hex}"}},"n":{{"$numberInt":"5"}},"m":6,
            "at":{{"$date":"1970-01-01T00:00:01Z"}},"list":[{{"$numberDecimal":"1.10"}}]}}}}}}]}}"#
    );
    post("application/ejson", body.clone().into()).await.json();
    let literal = body.replace(hex, "literal").replace("application/ejson", "application/json");
    post("application/json; charset=utf-8", literal.into()).await.json();
    let get = server.request(Method::POST, "/v1/records/collections/orders/get").header("accept", "application/bson");
    let answer = server.send(get.body(format!(r#"{{"id":{{"$oid":"{hex}"}}}}"#))).await;
    assert_eq!(answer.header("content-type"), "application/bson");
    let record = Document::try_from(&*RawDocumentBuf::from_bytes(answer.body).expect("BSON")).expect("a document");
    let at = annals_core::bson::DateTime::from_millis(1_000);
    let decimal: annals_core::bson::Decimal128 = "1.10".parse().expect("a decimal");
    let expected = doc! { "_id": id, "n": 5, "m": 6i64, "at": at, "list": [decimal] };
    assert_eq!(record.get_document("document").expect("a document"), &expected);
    let shown = server.get(&format!("{COLLECTIONS}/orders/ids/%7B%22%24oid%22%3A%22{hex}%22%7D?ejson")).await.json();
    let shown_document = json!({"_id": {"$oid": hex}, "n": 5, "m": 6, "at": {"$date": "1970-01-01T00:00:01Z"},
        "list": [{"$numberDecimal": "1.10"}]});
    assert_eq!(shown["document"], shown_document);
    let literal = json!({"condition": {"field": "_id.$oid", "operator": "EXISTS"}});
    server.ask("/v1/records/collections/orders/find", &literal).await.problem(Code::InvalidCondition);
    let dates = json!({"condition": {"field": "at", "operator": "LTE", "value": {"$date": "1970-01-01T00:00:01Z"}}});
    assert_eq!(found(&server, dates).await, [json!({ "$oid": hex })]);
    post("application/bson", b"\x05\0\0\0".to_vec()).await.problem(Code::InvalidBody);
    post("application/bson", b"{}".to_vec()).await.problem(Code::InvalidBody);
    post("text/plain", b"{}".to_vec()).await.problem(Code::UnsupportedMediaType);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_is_explained_and_filter_documents_are_taken_only_if_it_is_said() {
    let server = Running::start_with(open()).await;
    let index = json!({"fields": [{"field": "number"}]});
    server.put("/v1/records/collections/orders", &json!({ "indexes": [index] })).await.json();
    server.write((0..50).map(|n| insert(json!({"_id": n, "number": n % 5, "text": "A+b"}))).collect()).await;
    let condition = json!({"operator": "AND", "children": [
        {"field": "number", "operator": "EQ", "value": 3},
        {"field": "text", "operator": "ENDS_WITH", "value": "+B", "options": {"ignoreCase": true}}]});
    let explained = server.ask("/v1/records/collections/orders/explain", &json!({ "condition": condition })).await;
    let how =
        json!({"index": "number_1", "entries_examined": 10, "documents_examined": 10, "found": 10, "sorted": false});
    assert_eq!(explained.json(), how);
    let raw = |filter: Value| json!({"condition": {"operator": "RAW", "value": filter}});
    assert_eq!(found(&server, raw(json!({"_id": {"$lt": 2}}))).await, [json!(0), json!(1)]);
    let find = "/v1/records/collections/orders/find";
    server.ask(find, &raw(json!({"$where": "true"}))).await.problem(Code::RawNotAllowed);
    server.ask(find, &raw(json!({"a": {"$mod": [2, 0]}}))).await.problem(Code::InvalidCondition);
    let guarded = serving().await;
    for path in ["find", "count", "explain", "group"] {
        let path = format!("/v1/records/collections/orders/{path}");
        guarded.ask(&path, &raw(json!({"_id": 1}))).await.problem(Code::RawNotAllowed);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_condition_that_costs_too_much_is_refused_by_every_query_of_records() {
    let (guarded, open) = (serving().await, serving_with(open()).await);
    let field = |operator: &str, value: Value| json!({"field": "number", "operator": operator, "value": value});
    let nested = (0..16).fold(field("EQ", json!(1)), |inner, _| json!({"operator": "OR", "children": [inner]}));
    let parts = json!({"operator": "OR", "children": vec![field("EQ", json!(1)); 64]});
    let values: Vec<_> = (0..1_001).collect();
    for (condition, code, says) in [
        (nested, Code::QueryTooDeep, "flatten it"),
        (parts, Code::QueryTooLarge, "use fewer"),
        (field("IN", json!(values)), Code::QueryTooManyValues, "split it"),
        (field("CONTAINS", json!("x")), Code::QueryTooExpensive, "use another operator"),
        (field("NE", json!(1)), Code::QueryTooExpensive, "use another operator"),
    ] {
        for how in ["find", "count", "explain", "group"] {
            let (address, asked) = (format!("{COLLECTIONS}/orders/{how}"), json!({ "condition": condition }));
            let problem = guarded.ask(&address, &asked).await.problem(code);
            assert!(problem["path"].as_str().is_some_and(|path| path.starts_with("condition")), "{problem}");
            assert!(problem["detail"].as_str().is_some_and(|detail| detail.contains(says)), "{problem}");
            open.ask(&address, &asked).await.json();
        }
    }
    let within = json!({"condition": field("IN", json!(&values[1..])), "limit": 5});
    assert_eq!(found(&guarded, within).await, Vec::<Value>::new());
    // Every record is listed page by page, and counted within the time of a query.
    guarded.ask(&format!("{COLLECTIONS}/orders/count"), &json!({})).await.json();
}

/// The writer of the store compares them, for which all other writes wait.
#[tokio::test(flavor = "multi_thread")]
async fn conditions_of_changes_have_the_limits_of_queries_but_need_no_index() {
    let (guarded, open) = (serving().await, serving_with(open()).await);
    let written = |id: i32, condition: &Value| {
        json!([insert(json!({ "_id": id })), replace(json!({ "_id": id }), json!({ "matching": condition }))])
    };
    let missing = |operator: &str, value: Value| json!({"field": "none", "operator": operator, "value": value});
    let parts = json!({"operator": "OR", "children": vec![missing("NE", json!(1)); 64]});
    let values: Vec<_> = (0..1_001).collect();
    let raw = json!({"operator": "RAW", "value": {"none": {"$exists": false}}});
    for (id, condition, code) in [
        (1, parts, Code::QueryTooLarge),
        (2, missing("NOT_IN", json!(values)), Code::QueryTooManyValues),
        (3, raw, Code::RawNotAllowed),
    ] {
        let refused = guarded.refused(written(id, &condition), code).await;
        assert_eq!(refused["path"].as_str().map(|path| path.starts_with("changes[1].condition")), Some(true));
        open.write(written(id, &condition)).await;
    }
    guarded.write(written(4, &missing("NE", json!(1)))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_may_be_larger_than_other_bodies_and_has_a_limit_of_its_own() {
    let mut options = Options::default();
    options.body_bytes_max = 2_000;
    options.record_changes_bytes_max = 4_000;
    let server = Running::start_with(options).await;
    server.put("/v1/records/collections/orders", &json!({})).await.json();
    server.write(json!([insert(json!({"_id": 1, "text": "x".repeat(3_000)}))])).await;
    server.refused(json!([insert(json!({"_id": 2, "text": "x".repeat(4_000)}))]), Code::BodyTooLarge).await;
    let query = json!({"condition": {"field": "a", "operator": "EQ", "value": "x".repeat(3_000)}});
    server.ask("/v1/records/collections/orders/find", &query).await.problem(Code::BodyTooLarge);
    assert_eq!(found(&server, json!({})).await, [json!(1)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_for_which_there_is_no_place_is_refused() {
    let mut options = Options::default();
    options.commits_in_flight_max = 0;
    let server = Running::start_with(options).await;
    server.put("/v1/records/collections/orders", &json!({})).await.json();
    server.refused(json!([insert(json!({"_id": 1}))]), Code::Overloaded).await;
    assert_eq!(found(&server, json!({})).await, Vec::<Value>::new());
}
