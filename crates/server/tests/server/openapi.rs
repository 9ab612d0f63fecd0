//! The OpenAPI document describes the server that serves it.

mod browse;
mod checked_in;
mod partners;
mod queues;
mod sagas;
mod transport;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use annals_core::Code;
use annals_embedded::disk::MemoryDisk;
use annals_runtime::types::TypedStore;
use annals_runtime::{HostOptions, PartnerKeys, PartnerOptions};
use annals_system::SystemClock;
use reqwest::Method;
use serde_json::{Value, json};

use crate::running::{Running, store_on};
use crate::secured::Secured;

async fn document(server: &Running) -> Value {
    server.get("/openapi.json").await.json()
}

/// Every operation: its path, its method and what is said of it.
fn operations(document: &Value) -> Vec<(&str, &str, &Value)> {
    let paths = document["paths"].as_object().expect("paths");
    let operations = paths.iter().flat_map(|(path, item)| {
        item.as_object()
            .expect("methods")
            .iter()
            .map(move |(method, operation)| (path.as_str(), method.as_str(), operation))
    });
    operations.collect()
}

/// A path with a value for each parameter.
fn filled(path: &str) -> String {
    let parts = path.split('/').map(|part| match part {
        "{sequence_number}" => "0",
        "{code}" => "not_json",
        _ if part.starts_with('{') => "x",
        part => part,
    });
    parts.collect::<Vec<_>>().join("/")
}

fn names<'a>(operation: &'a Value, place: &str) -> BTreeSet<&'a str> {
    let parameters = operation["parameters"].as_array().into_iter().flatten();
    let named = parameters.filter(|parameter| parameter["in"] == place).map(|parameter| &parameter["name"]);
    named.map(|name| name.as_str().expect("a name")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_route_is_in_the_openapi_document_with_every_method() {
    let server = Running::start().await;
    let document = document(&server).await;
    assert!(document["openapi"].as_str().is_some_and(|version| version.starts_with("3.1.")), "{}", document["openapi"]);
    let index = server.get("/v1").await.json();
    let served: BTreeSet<_> = index["addresses"].as_array().expect("a list").iter().flat_map(Value::as_str).collect();
    let described: BTreeSet<_> = operations(&document).into_iter().map(|(path, ..)| path).collect();
    assert_eq!(served, described);
    for path in described {
        // A method that none of them has.
        let refused = server.send(server.request(Method::OPTIONS, &filled(path))).await;
        refused.problem(Code::MethodNotAllowed);
        let allowed = refused.header("allow").split(',').filter(|method| *method != "HEAD").map(str::to_lowercase);
        let methods = operations(&document).into_iter().filter(|(known, ..)| *known == path);
        let methods: BTreeSet<_> = methods.map(|(_, method, _)| method.to_owned()).collect();
        assert_eq!(allowed.collect::<BTreeSet<_>>(), methods, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_operation_has_an_id_a_permission_its_path_parameters_and_its_problems() {
    let server = Running::start().await;
    let document = document(&server).await;
    let mut ids = BTreeSet::new();
    for (path, method, operation) in operations(&document) {
        let id = operation["operationId"].as_str().expect("an id");
        assert!(ids.insert(id), "{id} names two operations");
        assert!(operation["summary"].as_str().is_some_and(|summary| summary.ends_with('.')), "{method} {path}");
        let permission = operation["x-annals-permission"].as_str().expect("a permission");
        assert!(["open", "reader", "writer", "operator", "admin"].contains(&permission), "{method} {path}");
        let is_of_a_tenant = path.starts_with("/v1") || path == "/asyncapi.json";
        // Partners prove by a signature who they are.
        let is_open = !is_of_a_tenant || id == "receivePartnerEvent";
        assert_eq!(permission == "open", is_open, "{method} {path}");
        let in_path: BTreeSet<_> =
            path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}')).collect();
        assert_eq!(names(operation, "path"), in_path, "{method} {path}");
        let responses = operation["responses"].as_object().expect("responses");
        assert!(responses.keys().any(|status| status.starts_with('2')), "{method} {path}");
        for (status, response) in responses.iter().filter(|(status, _)| !status.starts_with('2')) {
            let schema = &response["content"]["application/problem+json"]["schema"]["$ref"];
            assert_eq!(schema, "#/components/schemas/Problem", "{method} {path} {status}");
        }
        for status in ["400", "431", "500", "503"] {
            assert!(responses.contains_key(status), "{method} {path} {status}");
        }
        assert_eq!(operation.get("requestBody").is_some(), responses.contains_key("415"), "{method} {path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operation_refuses_exactly_the_query_parameters_that_the_document_does_not_name() {
    let server = Running::start().await;
    let document = document(&server).await;
    let all: BTreeSet<_> =
        operations(&document).into_iter().flat_map(|(_, _, operation)| names(operation, "query")).collect();
    assert!(all.len() > 15, "{all:?}");
    for (path, method, operation) in operations(&document).into_iter().filter(|(path, ..)| path.starts_with("/v1")) {
        let known = names(operation, "query");
        let unknown = all.iter().filter(|name| !known.contains(**name)).map(|name| (*name, false));
        for (name, known) in known.iter().map(|name| (*name, true)).chain(unknown) {
            // A repeated parameter is refused whatever it is, and before anything is done.
            let target = format!("{}?{name}=1&{name}=1", filled(path));
            let twice = server
                .send(server.request(Method::from_bytes(method.to_uppercase().as_bytes()).expect("a method"), &target));
            assert_eq!(twice.await.problem(Code::InvalidQuery)["path"], name, "{method} {path}");
            // A wait needs no time to be taken.
            let soon = if name == "past" { "&timeout_ms=0" } else { "" };
            let target = format!("{}?{name}=1{soon}", filled(path));
            let mut request =
                server.request(Method::from_bytes(method.to_uppercase().as_bytes()).expect("a method"), &target);
            if path.ends_with("/follow") {
                // Else a parameter that it takes would begin a stream.
                request = request.header("last-event-id", "x");
            }
            let answer = server.send(request).await;
            let refused = serde_json::from_slice::<Value>(&answer.body).ok().filter(|it| it["code"] == "invalid_query");
            let refused = refused.is_some_and(|it| {
                it["path"] == name && it["detail"].as_str().is_some_and(|detail| detail.contains("is unknown"))
            });
            assert_eq!(refused, !known, "{method} {path} {name}: {}", String::from_utf8_lossy(&answer.body));
        }
    }
}

/// Checks a value against a schema of the document.
struct Schemas<'a>(&'a Value);

impl Schemas<'_> {
    fn check(&self, schema: &Value, value: &Value, at: &str) -> Result<(), String> {
        if let Some(name) = schema["$ref"].as_str() {
            let name = name.strip_prefix("#/components/schemas/").expect("a schema of this document");
            let found = self.0["components"]["schemas"].get(name).ok_or_else(|| format!("{name} is not defined"))?;
            return self.check(found, value, at);
        }
        for (word, all) in [("oneOf", false), ("anyOf", false), ("allOf", true)] {
            let Some(choices) = schema[word].as_array() else { continue };
            let wrong: Vec<_> = choices.iter().filter_map(|choice| self.check(choice, value, at).err()).collect();
            let right = choices.len() - wrong.len();
            if right == 0 || all && !wrong.is_empty() {
                return Err(format!("{at}: {wrong:?}"));
            }
        }
        let kinds = match &schema["type"] {
            Value::String(kind) => vec![kind.as_str()],
            Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).collect(),
            _ => return Ok(()),
        };
        let kind = match value {
            Value::Null => "null",
            Value::Bool(_) => "boolean",
            Value::Number(number) if number.is_f64() => "number",
            Value::Number(_) => "integer",
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        };
        if !(kinds.contains(&kind) || kind == "integer" && kinds.contains(&"number")) {
            return Err(format!("{at}: {value} is not {kinds:?}"));
        }
        if let Some(values) = schema["enum"].as_array()
            && !values.contains(value)
        {
            return Err(format!("{at}: {value} is none of {values:?}"));
        }
        for (place, item) in value.as_array().into_iter().flatten().enumerate() {
            self.check(&schema["items"], item, &format!("{at}[{place}]"))?;
        }
        let Some(object) = value.as_object() else { return Ok(()) };
        for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            if !object.contains_key(name) {
                return Err(format!("{at}: {name} is missing"));
            }
        }
        for (name, value) in object {
            let at = format!("{at}.{name}");
            match (schema["properties"].get(name), schema.get("additionalProperties")) {
                (Some(schema), _) => self.check(schema, value, &at)?,
                (None, Some(schema)) if schema.is_object() => self.check(schema, value, &at)?,
                // What has no properties is free; what has some is described whole.
                (None, None) if schema["properties"].is_null() => {}
                (None, Some(Value::Bool(true))) => {}
                _ => return Err(format!("{at} is not described")),
            }
        }
        Ok(())
    }
}

/// A server whose requests and answers are held against its document.
struct Described {
    server: Running,
    document: Value,
    seen: BTreeMap<String, u16>,
    /// The key of an administrator, where the server asks for one.
    key: Option<String>,
}

impl Described {
    async fn start() -> Self {
        let options = annals_embedded::Options { scopes: vec!["inbox".to_owned()], ..Default::default() };
        let store = store_on(Arc::new(MemoryDisk::default()), options);
        let typed = TypedStore::new(store, Arc::new(SystemClock));
        let partners =
            PartnerOptions { sending: Arc::new(partners::Nowhere), keys: Some(PartnerKeys::for_development()) };
        let tasks = HostOptions { partners, ..HostOptions::default() };
        let mut options = annals_server::Options::default();
        options.tasks = tasks;
        let server = Running::over(Arc::new(typed), options).await;
        let document = document(&server).await;
        Self { server, document, seen: BTreeMap::new(), key: None }
    }

    fn operation(&self, method: &str, target: &str) -> (&str, &Value) {
        let path = target.split('?').next().expect("a path");
        let fits = |pattern: &str| {
            pattern.split('/').count() == path.split('/').count()
                && pattern.split('/').zip(path.split('/')).all(|(known, part)| known.starts_with('{') || known == part)
        };
        let found =
            operations(&self.document).into_iter().filter(|(pattern, known, _)| *known == method && fits(pattern));
        // A path without parameters goes before one with them.
        let (pattern, _, operation) =
            found.min_by_key(|(pattern, ..)| pattern.matches('{').count()).expect("an operation");
        (pattern, operation)
    }

    /// Sends a request and checks that it and its answer are described.
    async fn exchange(&mut self, method: &str, target: &str, body: Option<Value>, status: u16) -> Value {
        let sent = Method::from_bytes(method.to_uppercase().as_bytes()).expect("a method");
        let mut request = self.server.request(sent, target);
        if let Some(key) = &self.key {
            request = request.header("authorization", format!("Bearer {key}"));
        }
        let (pattern, operation) = self.operation(method, target);
        let name = format!("{method} {pattern}");
        let schemas = Schemas(&self.document);
        if let Some(body) = &body {
            let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
            assert!(!schema.is_null(), "{name} takes no JSON");
            schemas.check(schema, body, "body").unwrap_or_else(|wrong| panic!("{name}: {wrong}"));
            request = request.header("content-type", "application/json").body(body.to_string());
        }
        let answer = self.server.send(request).await;
        assert_eq!(answer.status, status, "{name}: {}", answer.text());
        let response = &operation["responses"][status.to_string()];
        let schema = &response["content"][answer.header("content-type")]["schema"];
        assert!(!schema.is_null(), "{name}: {status} as {} is not described", answer.header("content-type"));
        // A page of one line would be read as JSON, too.
        let read = Some(&answer.body).filter(|_| !answer.header("content-type").contains("ndjson"));
        let value = read.and_then(|body| serde_json::from_slice(body).ok()).unwrap_or(json!(answer.text()));
        schemas.check(schema, &value, "answer").unwrap_or_else(|wrong| panic!("{name}: {wrong}\n{value}"));
        self.seen.insert(name, status);
        value
    }

    async fn get(&mut self, target: &str) -> Value {
        self.exchange("get", target, None, 200).await
    }

    async fn post(&mut self, target: &str, body: Value) -> Value {
        self.exchange("post", target, Some(body), 200).await
    }

    async fn put(&mut self, target: &str, body: Value) -> Value {
        self.exchange("put", target, Some(body), 200).await
    }

    async fn log(&mut self) {
        let event = json!({"type": "opened", "data": {"by": "Eva"}, "tags": ["a"], "public": true});
        let commit = json!({
            "aggregate": {"name": "door", "id": "7"}, "events": [event], "expected_version": "empty", "request_id": "r",
            "header": {"tool": "test"}, "tenant_id": "t", "owner_id": "o", "space_id": "s", "command_id": "c",
            "correlation_id": "c", "causation_id": "c", "append_condition": {"fail_if": [{"types": ["closed"]}]},
            "reserve": [{"name": "label", "key": "front", "value": 7}], "wait": {"for": "logged", "timeout_ms": 100}
        });
        self.exchange("post", "/v1/commits", Some(commit.clone()), 201).await;
        self.post("/v1/commits", commit).await;
        let door = json!({"aggregate": {"name": "door", "id": "8"}, "events": [event], "expected_version": 0});
        let expect = json!([{"aggregate": {"name": "door", "id": "7"}, "expected_version": 1}]);
        let other = json!({"aggregate": {"name": "door", "id": "9"}, "events": [event]});
        let transaction = json!({"commits": [door, other], "expect": expect, "request_id": "t"});
        self.exchange("post", "/v1/transactions", Some(transaction), 201).await;
        let conflict = json!({"aggregate": {"name": "door", "id": "7"}, "events": [event], "expected_version": 4});
        self.exchange("post", "/v1/commits", Some(conflict), 409).await;
        for target in [
            "/v1",
            "/v1/log",
            "/v1/log/0",
            "/v1/aggregates",
            "/v1/aggregates/door",
            "/v1/aggregates/door/7/commits",
            "/v1/stats",
        ] {
            self.get(target).await;
        }
        self.get("/v1/aggregates/door/7/requests/r").await;
        self.exchange("get", "/v1/log/9", None, 404).await;
        self.exchange("get", "/v1/log?limit=0", None, 422).await;
        self.exchange("get", "/v1/log?scope=x", None, 404).await;
        let verdicts =
            json!({"from": 0, "to": 2, "included": [{"sequence_number": 0, "partition": "7"}, {"sequence_number": 1}]});
        self.exchange("post", "/v1/streams/doors/verdicts", Some(verdicts), 201).await;
        for below in ["", "/entries", "/state", "/positions/0"] {
            self.get(&format!("/v1/streams/doors{below}")).await;
        }
        self.get("/v1/streams").await;
        self.exchange("get", "/v1/sequencer", None, 501).await;
    }

    async fn records(&mut self) {
        let indexes = json!([
            {"fields": [{"field": "email", "direction": "ASC"}], "unique": true, "sparse": true},
            {"fields": [{"field": "at"}], "expires_after_seconds": 60, "name": "at",
             "partial": {"operator": "AND", "children": [{"field": "a", "operator": "EQ", "value": 1}]}},
            {"fields": [{"field": "note"}], "text": true, "language": "none"},
        ]);
        self.put("/v1/records/collections/customers", json!({"indexes": indexes, "feed": true})).await;
        self.get("/v1/records/collections").await;
        self.get("/v1/records/collections/customers").await;
        let changes = json!([
            {"insert": {"collection": "customers", "document": {"_id": "c-9", "email": "eva@example.org"}}},
            {"replace": {"collection": "customers", "document": {"_id": "c-8"}, "expected": {"absent_or": {}}}},
            {"replace": {"collection": "customers", "document": {"_id": "c-8"}, "expected": "present"}},
            {"set": {"collection": "customers", "id": "c-8", "fields": {"a.b": 1}, "unset": ["c"], "expected": "present"}},
            {"check": {"collection": "customers", "id": "c-7", "expected": "absent"}},
            {"delete": {"collection": "customers", "id": "c-8", "expected": {"matching": {"field": "_id", "operator": "EQ", "value": "c-8"}}}},
        ]);
        self.post("/v1/records/changes", json!({"changes": changes})).await;
        let conflict = json!([{"delete": {"collection": "customers", "id": "c-9", "expected": {"revision": 1_000}}}]);
        self.exchange("post", "/v1/records/changes", Some(json!({"changes": conflict})), 409).await;
        self.get("/v1/records/collections/customers/changes").await;
        self.get("/v1/records/collections/customers/changes/last").await;
        let query = json!({
            "condition": {"field": "email", "operator": "STARTS_WITH", "value": "eva"}, "limit": 2,
            "projection": {"include": ["email"]}, "sort": [{"field": "email", "direction": "DESC"}]
        });
        let at = "/v1/records/collections/customers";
        self.post(&format!("{at}/find"), query.clone()).await;
        self.post(&format!("{at}/explain"), query.clone()).await;
        self.post(&format!("{at}/count"), json!({"condition": query["condition"]})).await;
        let figures =
            json!({"n": {"sum": "n"}, "mean": {"avg": "n"}, "low": {"min": "email"}, "high": {"max": "email"}});
        let group = json!({"condition": query["condition"], "by": "email", "figures": figures, "limit": 5});
        self.post(&format!("{at}/group"), group).await;
        self.post(&format!("{at}/group"), json!({"by": "at", "every": "hour"})).await;
        self.post(&format!("{at}/get"), json!({"id": "c-9"})).await;
        self.get(&format!("{at}/ids/c-9")).await;
        self.exchange("get", &format!("{at}/ids/c-1"), None, 404).await;
    }

    async fn snapshots(&mut self) {
        self.put("/v1/snapshots/door", json!({"indexes": [{"fields": [{"field": "state.open"}]}]})).await;
        let snapshot = json!({"version": 1, "state": {"open": true}, "tags": {"kind": ["a"]}, "eventTime": 5});
        self.put("/v1/snapshots/door/7", snapshot).await;
        self.get("/v1/snapshots/door/7").await;
        let condition = json!({"field": "aggregateId", "operator": "EQ", "value": "7"});
        for source in ["snapshots", "commits"] {
            let at = format!("/v1/query/door/{source}");
            self.post(&format!("{at}/single"), json!({"condition": condition})).await;
            self.post(&format!("{at}/list"), json!({"condition": condition, "limit": 5})).await;
            let pagination = json!({"index": 1, "size": 5});
            self.post(&format!("{at}/paged"), json!({"condition": condition, "pagination": pagination})).await;
            self.post(&format!("{at}/count"), json!({"condition": condition})).await;
            self.post(&format!("{at}/explain"), json!({"condition": condition, "limit": 5})).await;
        }
        self.exchange("delete", "/v1/snapshots/door/7", None, 200).await;
        self.exchange("get", "/v1/snapshots/door/7", None, 404).await;
    }

    async fn handlers(&mut self) {
        let retry =
            json!({"first_ms": 60_000, "factor": 2, "max_ms": 60_000, "jitter": 0.1, "attempts": 5, "then": "block"});
        let definition = json!({
            "types": ["opened"], "condition": {"field": "type", "operator": "EQ", "value": "opened"},
            "stop_at": "2099-01-01T00:00:00Z", "partition_by": "aggregate", "concurrency": 2, "start": "beginning", "batch": 1, "retry": retry
        });
        self.exchange("put", "/v1/handlers/porter", Some(definition.clone()), 201).await;
        self.put("/v1/handlers/porter", definition).await;
        let pulled = self
            .post("/v1/handlers/porter/pull", json!({"max": 1, "wait_ms": 5_000, "lease_ms": 30_000, "worker": "w"}))
            .await;
        let token = &pulled["deliveries"][0]["token"];
        let failure = json!({"reason": "away", "retry_after_ms": 60_000});
        self.post(
            "/v1/handlers/porter/settle",
            json!({"results": [{"token": token, "failure": failure}, {"token": "0"}]}),
        )
        .await;
        self.get("/v1/handlers").await;
        self.get("/v1/processor-states").await;
        self.get("/v1/handlers/porter").await;
        self.get("/v1/handlers/porter/partitions").await;
        for act in ["pause", "resume"] {
            self.post(&format!("/v1/handlers/porter/{act}"), json!({"reason": "a test"})).await;
        }
        for act in ["retry", "skip", "park"] {
            let pulled = self.post("/v1/handlers/porter/pull", json!({"max": 1, "wait_ms": 5_000})).await;
            let delivery = &pulled["deliveries"][0];
            let failed = json!([{"token": delivery["token"], "failure": {"reason": "away", "never": true}}]);
            self.post("/v1/handlers/porter/settle", json!({ "results": failed })).await;
            let partition = delivery["partition"].as_str().expect("a partition").replace('/', "%2F");
            self.post(&format!("/v1/handlers/porter/partitions/{partition}/{act}"), json!({"reason": "a test"})).await;
        }
        self.post("/v1/handlers/porter/replay", json!({"from": 0, "reason": "a test"})).await;
        self.get("/v1/handlers/porter").await;
        self.post("/v1/handlers/porter/move", json!({"to": "latest", "reason": "a test", "by": "me"})).await;
        self.get("/v1/handlers/porter/acts").await;
        self.exchange("delete", "/v1/handlers/porter", Some(json!({"reason": "a test"})), 200).await;
        self.exchange("get", "/v1/handlers/porter", None, 404).await;
    }

    async fn filters(&mut self) {
        let condition = json!({"field": "type", "operator": "EQ", "value": "opened"});
        let definition =
            json!({"types": ["opened"], "condition": condition, "partition_by": "aggregate", "scope": "default"});
        self.exchange("put", "/v1/filters/open-doors", Some(definition.clone()), 201).await;
        self.put("/v1/filters/open-doors", definition).await;
        let public = json!({"public": true, "types": ["opened"]});
        self.exchange("put", "/v1/filters/public-doors", Some(public), 201).await;
        let remote = json!({"source": "open-doors", "remote": true});
        self.exchange("put", "/v1/filters/remote-doors", Some(remote), 201).await;
        let pull = json!({"max": 1, "wait_ms": 5_000, "lease_ms": 30_000, "worker": "w"});
        let pulled = self.post("/v1/filters/remote-doors/pull", pull).await;
        let token = &pulled["deliveries"][0]["token"];
        let failure = json!({"reason": "away", "retry_after_ms": 60_000, "never": true});
        let results = json!([{"token": token, "included": true, "partition": "p"}, {"token": "0", "failure": failure}]);
        self.post("/v1/filters/remote-doors/settle", json!({ "results": results })).await;
        self.get("/v1/filters").await;
        self.get("/v1/filters/remote-doors").await;
        for stream in ["remote-doors", "public-doors", "open-doors"] {
            let path = format!("/v1/filters/{stream}");
            self.exchange("delete", &path, Some(json!({"reason": "a test", "by": "me"})), 200).await;
            self.exchange("get", &path, None, 404).await;
            self.get(&format!("{path}/acts")).await;
        }
    }

    async fn projections(&mut self) {
        let definition = json!({
            "on": {"opened": {"set": {"by": "$data.by"}, "increment": {"times": 1}}}, "key": "$aggregate.id", "version": 1,
            "condition": {"field": "type", "operator": "EQ", "value": "opened"}, "indexes": [{"fields": [{"field": "by"}]}]
        });
        let one = "/v1/projections/doors";
        self.exchange("put", one, Some(definition.clone()), 201).await;
        self.put(one, definition).await;
        self.get("/v1/projections").await;
        self.get(one).await;
        while self.get(&format!("{one}/records?limit=1")).await["items"][0].is_null() {
            tokio::task::yield_now().await;
        }
        let condition = json!({"field": "times", "operator": "GT", "value": 0});
        self.post(&format!("{one}/records"), json!({"condition": condition, "limit": 5})).await;
        let found = self.get(&format!("{one}/records")).await;
        let key = found["items"][0]["_id"].as_str().expect("a key").to_owned();
        self.get(&format!("{one}/records/{key}")).await;
        for act in ["pause", "rebuild", "resume"] {
            self.post(&format!("{one}/{act}"), json!({"reason": "a test"})).await;
        }
        self.get(&format!("{one}/acts")).await;
        self.exchange("delete", one, Some(json!({"reason": "a test"})), 200).await;
        self.exchange("get", one, None, 404).await;
    }

    async fn horizon(&mut self) {
        let public = json!({"public": true, "types": ["opened"]});
        self.exchange("put", "/v1/filters/partner-doors", Some(public), 201).await;
        let (consent, subscription) = ("/v1/consents/partners", "/v1/subscriptions/doors");
        let given = json!({"microservice": "default", "tenant": "default", "stream": "partner-doors", "partition": ""});
        self.exchange("put", consent, Some(given.clone()), 201).await;
        self.put(consent, given).await;
        self.get(consent).await;
        self.get("/v1/consents?limit=1").await;
        let page = "/v1/horizon/partner-doors?credits=10";
        while !self.get(page).await.as_str().is_some_and(|page| page.contains("source")) {
            tokio::task::yield_now().await;
        }
        let defined = json!({"producer": "local:", "tenant": "default", "stream": "partner-doors", "partition": "",
            "scope": "inbox", "credential": "s3cret"});
        self.exchange("put", subscription, Some(defined.clone()), 201).await;
        self.put(subscription, defined).await;
        while self.get(subscription).await["position"] == 0 {
            tokio::task::yield_now().await;
        }
        self.get("/v1/subscriptions").await;
        let reason = json!({"reason": "a test", "by": "me"});
        for path in [subscription, consent, "/v1/filters/partner-doors"] {
            self.exchange("delete", path, Some(reason.clone()), 200).await;
            self.exchange("get", path, None, 404).await;
        }
        self.exchange("get", "/v1/horizon/partner-doors", None, 403).await;
    }

    /// At a server that has them.
    async fn credentials(&mut self) {
        self.exchange("get", "/v1/audit", None, 501).await;
        let secured = Secured::start(&["default"]).await;
        self.server = secured.server;
        self.exchange("get", "/v1/credentials", None, 401).await;
        self.key = Some(secured.admin);
        let new = json!({
            "name": "ci", "roles": ["writer"], "tenants": ["default"], "scopes": ["*"], "event_types": ["*"], "streams": ["*"],
            "expires_at": "2099-01-01T00:00:00Z", "requests_per_second": 50, "bytes_per_second": 5_000_000, "reason": "a test", "by": "me"
        });
        let created = self.exchange("post", "/v1/credentials", Some(new), 201).await;
        self.get("/v1/credentials").await;
        let one = format!("/v1/credentials/{}", created["id"].as_str().expect("an id"));
        self.get(&one).await;
        self.exchange("delete", &one, Some(json!({"reason": "a test", "by": "me"})), 200).await;
        self.exchange("get", "/v1/credentials/nobody", None, 404).await;
        self.get("/v1/audit").await;
    }

    async fn keys(&mut self) {
        let ttl_at = "2099-01-01T00:00:00Z";
        self.put("/v1/keys/label/back", json!({"value": {"n": 1}, "ttl_at": ttl_at, "expected": "free"})).await;
        self.get("/v1/keys/label/back").await;
        self.get("/v1/keys/label").await;
        self.put("/v1/keys/label/side", json!({"value": 2, "old_key": "back", "old_value": {"n": 1}})).await;
        self.post("/v1/keys/label/side/rollback", json!({"value": 2})).await;
        self.exchange("delete", "/v1/keys/label/side", None, 200).await;
        self.exchange("get", "/v1/keys/label/side", None, 404).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_and_answers_are_as_the_document_describes_them() {
    let mut described = Described::start().await;
    described.log().await;
    described.records().await;
    described.snapshots().await;
    described.keys().await;
    described.filters().await;
    described.handlers().await;
    described.projections().await;
    described.sagas().await;
    described.horizon().await;
    described.partners().await;
    described.transport().await;
    described.queues().await;
    described.browse().await;
    described.get("/health/live").await;
    described.get("/health/ready").await;
    described.get("/metrics").await;
    described.get("/openapi.json").await;
    described.get("/annals.proto").await;
    described.get("/errors").await;
    described.get("/errors/not_json").await;
    described.get("/v1/doctor").await;
    described.credentials().await;
    let all = operations(&described.document).into_iter().map(|(path, method, _)| format!("{method} {path}"));
    let missed: Vec<_> = all.filter(|name| !described.seen.contains_key(name)).collect();
    // Streams that do not end, archives, and what needs a sequencer.
    let elsewhere = [
        "get /v1/backup",
        "post /v1/backup",
        "get /v1/held",
        "post /v1/held/accept",
        "post /v1/held/retry",
        "get /v1/log/follow",
        "get /v1/records/collections/{collection}/changes/follow",
    ];
    assert_eq!(BTreeSet::from_iter(missed.iter().map(String::as_str)), BTreeSet::from(elsewhere));
}
