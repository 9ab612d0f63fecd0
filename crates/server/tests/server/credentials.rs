//! Who is let in, and to what: keys, roles, tenants, limits and the audit log.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use annals_conformance::ManualClock;
use annals_core::credentials::{ApiKey, EVERY, Grant, NewCredential, Role};
use annals_core::{Clock, Code, Data, IncomingEvent, ReceivedBatch, Subscription, Timestamp};
use annals_embedded::disk::MemoryDisk;
use annals_system::SystemClock;
use reqwest::Method;
use serde_json::{Value, json};

use crate::follow::Events;
use crate::raw::Raw;
use crate::running::{Answer, opened, soon, store_on};
use crate::secured::{Secured, options, store};

/// The operation whose callers prove by a signature who they are.
const SIGNED: &str = "receivePartnerEvent";

fn method(name: &str) -> Method {
    Method::from_bytes(name.to_uppercase().as_bytes()).expect("a method")
}

/// Every operation of the document: method, path with values, and what is said of it.
pub async fn operations(server: &Secured) -> Vec<(Method, String, Value)> {
    let document = server.server.get("/openapi.json").await.json();
    let mut found = Vec::new();
    for (path, item) in document["paths"].as_object().expect("paths") {
        let parts = path.split('/').map(|part| match part {
            "{sequence_number}" => "0",
            "{code}" => "not_json",
            _ if part.starts_with('{') => "x",
            part => part,
        });
        let path = parts.collect::<Vec<_>>().join("/");
        for (name, said) in item.as_object().expect("methods") {
            found.push((method(name), path.clone(), said.clone()));
        }
    }
    assert!(found.len() > 80, "{}", found.len());
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn every_operation_that_is_not_open_refuses_a_request_without_a_valid_key() {
    let secured = Secured::start(&["default"]).await;
    let forged = ApiKey::new([1; 8], [2; 32]).reveal();
    let (_, other) = secured.create(Grant::new(Role::Reader, ["default"])).await;
    // The id of a known key with another secret.
    let guessed = format!("{}{}", &other[..21], "0".repeat(64));
    for (method, path, said) in operations(&secured).await {
        let open = said["x-annals-permission"] == "open";
        for header in
            [None, Some(format!("Bearer {forged}")), Some(format!("Bearer {guessed}")), Some("Basic YTpi".to_owned())]
        {
            let request = secured.server.request(method.clone(), &path);
            let request = match &header {
                Some(header) => request.header("authorization", header),
                None => request,
            };
            let answer = secured.send(request).await;
            if said["operationId"] == SIGNED {
                answer.problem(Code::InvalidSignature);
                continue;
            }
            if open {
                assert!(answer.status.is_success(), "{method} {path} {header:?}: {}", answer.text());
                continue;
            }
            let problem = answer.problem(Code::Unauthenticated);
            assert!(answer.header("www-authenticate").starts_with("Bearer"), "{method} {path}");
            assert!(!problem.to_string().contains(&"0".repeat(64)), "{problem}");
        }
        let refusals = said["responses"].as_object().expect("responses");
        assert_eq!(!open, refusals.contains_key("401") && refusals.contains_key("403"), "{method} {path}");
        assert_eq!(!open, said["security"] == json!([{ "bearer": [] }]), "{method} {path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_operation_answers_another_tenant_s_caller_with_anything_but_what_an_undeclared_tenant_gets() {
    let secured = Secured::start(&["acme", "north"]).await;
    let (_, acme) = secured.create(Grant::new(Role::Admin, ["acme"])).await;
    let commit = secured.request(&secured.admin, Method::POST, "/v1/commits").header("annals-tenant", "north");
    assert_eq!(secured.send(commit.body(opened().to_string())).await.status, 201);
    for (method, path, said) in operations(&secured).await {
        let permission = said["x-annals-permission"].as_str().expect("a permission");
        let mut answers = Vec::new();
        for tenant in ["north", "nobody", "system"] {
            let request = secured.request(&acme, method.clone(), &path).header("annals-tenant", tenant);
            let answer = secured.send(request).await;
            match permission {
                "open" if said["operationId"] == SIGNED => drop(answer.problem(Code::InvalidSignature)),
                "open" => {
                    assert!(answer.status.is_success(), "{method} {path}");
                    if path != "/openapi.json" {
                        assert!(!answer.text().contains("north"), "{method} {path}: {}", answer.text());
                    }
                }
                // What concerns the whole store is for administrators of every tenant.
                "admin" => drop(answer.problem(Code::Forbidden)),
                _ => drop(answer.problem(Code::UnknownTenant)),
            }
            answers.push(answer.text().replace(tenant, "TENANT"));
        }
        if permission != "open" || said["operationId"] == SIGNED {
            assert_eq!(BTreeSet::from_iter(answers).len(), 1, "{method} {path}");
        }
    }
    // Its own tenant needs no name.
    assert_eq!(secured.get(&acme, "/v1").await.json()["tenant"], "acme");
    assert_eq!(secured.get(&acme, "/v1/log").await.json()["head"], 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_role_is_allowed_what_its_operations_declare_and_nothing_else() {
    let secured = Secured::start(&["default"]).await;
    for role in Role::ALL {
        let (_, key) = secured.create(Grant::new(role, ["default"])).await;
        for (method, path, said) in operations(&secured).await {
            let allowed = match said["x-annals-permission"].as_str().expect("a permission") {
                "open" | "reader" => true,
                "writer" => matches!(role, Role::Writer | Role::Admin),
                "operator" => matches!(role, Role::Operator | Role::Admin),
                _ => false,
            };
            // A parameter that nobody takes: what is allowed is refused for that, before anything is done.
            let answer = secured.send(secured.request(&key, method.clone(), &format!("{path}?no=1"))).await;
            let refused = serde_json::from_slice::<Value>(&answer.body).is_ok_and(|it| it["code"] == "forbidden");
            assert_eq!(!refused, allowed, "{role} {method} {path}: {}", answer.text());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_shown_once_and_found_nowhere_else() {
    let secured = Secured::start(&["default"]).await;
    let (id, key) = secured.create(Grant::new(Role::Reader, ["default"])).await;
    let secret = key.rsplit('_').next().expect("a secret").to_owned();
    secured.get(&key, "/v1/log").await.json();
    for path in ["/v1/credentials", &format!("/v1/credentials/{id}"), "/v1/audit", "/metrics", "/health/ready"] {
        let shown = secured.get(&secured.admin, path).await;
        assert!(shown.status.is_success() && !shown.text().contains(&secret), "{path}: {}", shown.text());
    }
    let stored = "/v1/records/collections/annals-credentials/find";
    let request = secured.request(&secured.admin, Method::POST, stored).header("annals-tenant", "system");
    let by_id = json!({"condition": {"field": "_id", "operator": "EQ", "value": id}, "limit": 5});
    let stored = secured.send(request.body(by_id.to_string())).await;
    assert!(stored.text().contains(&id) && !stored.text().contains(&secret), "{}", stored.text());
    let listed = secured.get(&secured.admin, &format!("/v1/credentials/{id}")).await.json();
    assert_eq!((&listed["state"], &listed["roles"]), (&json!("active"), &json!(["reader"])));
    secured.get(&secured.admin, "/v1/credentials/nobody").await.problem(Code::UnknownCredential);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_key_is_refused_and_ends_the_streams_of_its_holder() {
    let secured = Secured::start(&["default"]).await;
    let (id, key) = secured.create(Grant::new(Role::Reader, ["default"])).await;
    let mut events = Events::of(secured.request(&key, Method::GET, "/v1/log/follow")).await;
    assert_eq!(events.block().await.and_then(|block| block.comment), Some("from 0, head 0".to_owned()));
    let path = format!("/v1/credentials/{id}");
    let revoke = secured.request(&secured.admin, Method::DELETE, &path).body(r#"{"reason": "a test"}"#);
    assert_eq!(secured.send(revoke).await.json()["state"], "revoked");
    let last = soon("the last event", events.block()).await.expect("an event");
    assert_eq!(last.event.as_deref(), Some("problem"), "{last:?}");
    assert!(soon("the end of the stream", events.block()).await.is_none());
    let refused = secured.get(&key, "/v1/log").await.problem(Code::Unauthenticated);
    assert!(refused["detail"].as_str().is_some_and(|detail| detail.contains("revoked")), "{refused}");
    // Again it changes nothing, and a body is not needed.
    assert_eq!(
        secured.send(secured.request(&secured.admin, Method::DELETE, &path)).await.json()["revoked_because"],
        "a test"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_whose_body_arrives_after_the_key_was_revoked_is_refused() {
    let secured = Secured::start(&["default"]).await;
    let (id, key) = secured.create(Grant::new(Role::Writer, ["default"])).await;
    let body = opened().to_string();
    let head = format!("authorization: Bearer {key}\r\ncontent-length: {}\r\n\r\n{}", body.len(), &body[..10]);
    let mut raw = Raw::open(&secured.server).await;
    raw.write(format!("POST /v1/commits HTTP/1.1\r\nhost: x\r\n{head}")).await.expect("written");
    let begun = "annals_http_requests_in_flight 2";
    soon("the request", async { while !secured.server.get("/metrics").await.text().contains(begun) {} }).await;
    let revoke = secured.request(&secured.admin, Method::DELETE, &format!("/v1/credentials/{id}"));
    assert_eq!(secured.send(revoke).await.json()["state"], "revoked");
    raw.write(&body[10..]).await.expect("written");
    raw.answer().await.problem(Code::Unauthenticated);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_another_process_revokes_is_refused_within_seconds() {
    use annals_core::credentials::{Credentials, RevokeBody};
    let store = store(&["default"]);
    let secured = Secured::over(store.clone(), options()).await;
    let (id, key) = secured.create(Grant::new(Role::Reader, ["default"])).await;
    assert_eq!(secured.get(&key, "/v1/log").await.status, 200);
    let clock = std::sync::Arc::new(annals_system::SystemClock);
    let elsewhere = annals_runtime::StoredCredentials::new(&*store, "system", clock).expect("declared");
    elsewhere.revoke(&id, RevokeBody::default()).await.expect("revoked");
    let refused = async { while secured.get(&key, "/v1/log").await.status != 401 {} };
    soon("the refusal of a revoked key", refused).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_key_is_refused() {
    let secured = Secured::start(&["default"]).await;
    let mut new = NewCredential::new("short", Grant::new(Role::Reader, ["default"]));
    new.expires_at = Some(annals_core::Timestamp::parse("2020-01-01T00:00:00Z").expect("a time"));
    let body = serde_json::to_string(&new).expect("JSON");
    let created =
        secured.send(secured.request(&secured.admin, Method::POST, "/v1/credentials").body(body)).await.json();
    assert_eq!(created["state"], "expired");
    let refused = secured.get(created["key"].as_str().expect("a key"), "/v1/log").await;
    assert!(refused.problem(Code::Unauthenticated)["detail"].as_str().is_some_and(|it| it.contains("expired")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_expires_ends_the_streams_of_its_holder() {
    // The store's clock is the machine's, and lets records expire: it must not be ahead of this one.
    let clock = Arc::new(ManualClock::at(SystemClock.now()));
    let mut options = options();
    options.tasks.clock = clock.clone();
    let secured = Secured::over(store(&["default"]), options).await;
    let mut new = NewCredential::new("short", Grant::new(Role::Reader, ["default"]));
    new.expires_at = Some(clock.now().plus(Duration::from_secs(10)));
    let body = serde_json::to_string(&new).expect("JSON");
    let created =
        secured.send(secured.request(&secured.admin, Method::POST, "/v1/credentials").body(body)).await.json();
    let key = created["key"].as_str().expect("a key");
    let mut events = Events::of(secured.request(key, Method::GET, "/v1/log/follow")).await;
    assert_eq!(events.block().await.and_then(|block| block.comment), Some("from 0, head 0".to_owned()));
    clock.advance_millis(9_999);
    assert_eq!(secured.get(key, "/v1/log").await.status, 200, "it has a millisecond left");
    // The stream is open as well: it carries what is committed now.
    let commit = secured.request(&secured.admin, Method::POST, "/v1/commits").body(opened().to_string());
    assert_eq!(secured.send(commit).await.status, 201);
    assert_eq!(soon("an event", events.next()).await.id.as_deref(), Some("0"));
    clock.advance_millis(1);
    let last = soon("the last event", events.next()).await;
    assert_eq!(last.event.as_deref(), Some("problem"), "{last:?}");
    assert!(soon("the end of the stream", events.block()).await.is_none());
    let refused = secured.get(key, "/v1/log").await.problem(Code::Unauthenticated);
    assert!(refused["detail"].as_str().is_some_and(|detail| detail.contains("expired")), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_with_two_authorization_headers_is_refused() {
    let secured = Secured::start(&["default"]).await;
    for second in [format!("Bearer {}", secured.admin), "Bearer ann_00".to_owned(), "Basic YTpi".to_owned()] {
        let request = secured.request(&secured.admin, Method::GET, "/v1/log").header("authorization", &second);
        let refused = secured.send(request).await.problem(Code::Unauthenticated);
        let says = refused["detail"].as_str().is_some_and(|detail| detail.contains("two Authorization headers"));
        assert!(says, "{second}: {refused}");
    }
    assert_eq!(secured.get(&secured.admin, "/v1/log").await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_credential_that_breaks_a_rule_is_refused_at_its_field() {
    let secured = Secured::start(&["default"]).await;
    for (body, path) in [
        (json!({"name": "", "roles": ["reader"], "tenants": ["a"]}), "name"),
        (json!({"name": "a", "roles": [], "tenants": ["a"]}), "roles"),
        (json!({"name": "a", "roles": ["reader"], "tenants": []}), "tenants"),
        (json!({"name": "a", "roles": ["reader"], "tenants": ["a"], "requests_per_second": 0}), "requests_per_second"),
    ] {
        let request = secured.request(&secured.admin, Method::POST, "/v1/credentials").body(body.to_string());
        assert_eq!(secured.send(request).await.problem(Code::InvalidCredential)["path"], path, "{body}");
    }
    let cook = json!({"name": "a", "roles": ["cook"], "tenants": ["a"]}).to_string();
    secured
        .send(secured.request(&secured.admin, Method::POST, "/v1/credentials").body(cook))
        .await
        .problem(Code::InvalidBody);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_that_used_up_its_limit_is_told_when_to_come_again() {
    let secured = Secured::start(&["default"]).await;
    for limit in [json!({"requests_per_second": 2}), json!({"bytes_per_second": 200})] {
        let mut new = json!({"name": "slow", "roles": ["reader"], "tenants": ["default"]});
        new.as_object_mut().expect("an object").extend(limit.as_object().expect("an object").clone());
        let request = secured.request(&secured.admin, Method::POST, "/v1/credentials").body(new.to_string());
        let key = secured.send(request).await.json()["key"].as_str().expect("a key").to_owned();
        let limited = async {
            loop {
                // Many at once, so that a slow machine uses them up as well.
                let asked = (0..16).map(|_| secured.get(&key, "/v1"));
                let answers = futures_util::future::join_all(asked).await;
                if let Some(refused) = answers.into_iter().find(|answer| answer.status == 429) {
                    return refused;
                }
            }
        };
        let limited = soon("a refusal", limited).await;
        limited.problem(Code::RateLimited);
        assert!(limited.header("retry-after").parse::<u64>().is_ok_and(|seconds| seconds >= 1));
        // Others are not concerned, nor is what needs no credential.
        assert_eq!(secured.get(&secured.admin, "/v1").await.status, 200);
        assert_eq!(secured.get(&key, "/health/live").await.status, 200);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_administrative_act_is_listed_with_who_what_why_and_from_where() {
    let secured = Secured::start(&["default"]).await;
    let (id, operator) = secured.create(Grant::new(Role::Operator, ["default"])).await;
    let put = secured.request(&operator, Method::PUT, "/v1/handlers/billing").body(r#"{"types": ["paid"]}"#);
    assert_eq!(secured.send(put).await.status, 201);
    let delete = secured.request(&operator, Method::DELETE, "/v1/handlers/billing");
    assert_eq!(secured.send(delete.body(r#"{"reason": "it is not needed", "by": "Eva"}"#)).await.status, 200);
    let absent = secured.request(&operator, Method::DELETE, "/v1/handlers/absent").body(r#"{"reason": "a slip"}"#);
    secured.send(absent).await.problem(Code::UnknownHandler);
    assert!(secured.get(&secured.admin, "/v1/backup").await.status.is_success());
    let mut acts = Vec::new();
    let mut path = "/v1/audit?limit=2".to_owned();
    loop {
        let page = secured.get(&secured.admin, &path).await.json();
        acts.extend(page["items"].as_array().expect("a list").iter().cloned());
        let Some(cursor) = page["cursor"].as_str() else { break };
        path = format!("/v1/audit?limit=2&cursor={cursor}");
    }
    let what: Vec<_> = acts
        .iter()
        .map(|act| (act["what"].as_str().expect("what"), act["outcome"].as_str().expect("an outcome")))
        .collect();
    let expected = [
        ("backup", "done"),
        ("deleteHandler", "refused"),
        ("deleteHandler", "done"),
        ("putHandler", "done"),
        ("createCredential", "done"),
    ];
    assert_eq!(what, expected);
    assert_eq!(acts[1]["code"], "unknown_handler");
    let deleted = &acts[2];
    assert_eq!((&deleted["who"], &deleted["tenant"]), (&json!(format!("key:{id}")), &json!("default")), "{deleted}");
    assert_eq!((&deleted["why"], &deleted["by"]), (&json!("it is not needed"), &json!("Eva")));
    assert_eq!(deleted["path"], "/v1/handlers/billing");
    assert!(deleted["from"].as_str().is_some_and(|from| from.starts_with("127.0.0.1:")), "{deleted}");
    // Every operation that changes something for operators is one that is recorded.
    for (method, path, said) in operations(&secured).await {
        let acts = matches!(said["x-annals-permission"].as_str(), Some("operator" | "admin")) && method != Method::GET;
        assert!(said["x-annals-audited"] == acts || path == "/v1/backup", "{method} {path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn not_even_an_administrator_adds_to_the_audit_log() {
    let secured = Secured::start(&["default"]).await;
    for (method, path, said) in operations(&secured).await {
        if matches!(said["x-annals-permission"].as_str(), Some("writer" | "operator")) && method != Method::GET {
            let request = secured.request(&secured.admin, method.clone(), &path).header("annals-tenant", "system");
            assert_eq!(secured.send(request.body(opened().to_string())).await.status, 403, "{method} {path}");
        }
    }
    let read = secured.request(&secured.admin, Method::GET, "/v1/log").header("annals-tenant", "system");
    assert_eq!(secured.send(read).await.json()["head"], 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_credentials_has_neither_credentials_nor_an_audit_log() {
    let server = crate::running::Running::start().await;
    for path in ["/v1/credentials", "/v1/credentials/x", "/v1/audit"] {
        let answer = server.get(path).await;
        assert_eq!(answer.status, 501, "{}", answer.text());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grant_of_some_scopes_reads_no_other() {
    let secured = Secured::start(&["default"]).await;
    let grant = Grant { scopes: vec!["inbox".to_owned()], ..Grant::new(Role::Reader, [EVERY]) };
    let (_, key) = secured.create(grant).await;
    for path in ["/v1/log", "/v1/log?scope=default", "/v1/streams?scope=%64efault"] {
        secured.get(&key, path).await.problem(Code::UnknownScope);
    }
    // It is granted, and not declared.
    secured.get(&key, "/v1/log?scope=inbox").await.problem(Code::UnknownScope);
}

/// A server with the scope `inbox`, in which the handler `x`, the filter `x` and the subscription `x` are, and the handler `plain` of the
/// default scope.
pub async fn with_inbox() -> Secured {
    let embedded = annals_embedded::Options {
        tenants: ["default", "north", "system"].map(str::to_owned).to_vec(),
        scopes: vec!["inbox".to_owned()],
        ..annals_embedded::Options::default()
    };
    let secured = Secured::over(store_on(Arc::new(MemoryDisk::default()), embedded), options()).await;
    let subscription = json!({"producer": "local:", "tenant": "north", "stream": "public", "scope": "inbox"});
    let handler = json!({"scope": "inbox", "retry": {"attempts": 1, "then": "park"}});
    for (path, body) in [
        ("/v1/handlers/x", handler),
        ("/v1/handlers/plain", json!({})),
        ("/v1/filters/x?scope=inbox", json!({"types": ["placed"]})),
        ("/v1/subscriptions/x", subscription),
    ] {
        let put = secured.request(&secured.admin, Method::PUT, path).body(body.to_string());
        let answer = secured.send(put).await;
        assert_eq!(answer.status, 201, "{path}: {}", answer.text());
    }
    secured
}

/// Puts an event into the scope `inbox`, as a producer's does.
pub async fn receive(secured: &Secured) {
    let event = IncomingEvent {
        position: 0,
        sequence_number: 0,
        event_type: "placed".into(),
        generation: 1,
        data: Data::from_value(&json!({"text": "not for everyone"})).expect("an object"),
        time: Timestamp::from_millis(1),
        source: "o-1".into(),
        correlation_id: None,
    };
    let subscription = Subscription {
        producer: "orders".into(),
        tenant: "default".into(),
        stream: "public".into(),
        partition: "".into(),
    };
    let batch = ReceivedBatch { subscription, consent: Default::default(), from: 0, events: vec![event] };
    let receiving = secured.server.store.receiving("default", "inbox").expect("declared");
    receiving.receive(batch).await.expect("received");
}

/// A key that works and operates in these scopes of the default tenant.
pub async fn key_of_scopes(secured: &Secured, scopes: &[&str]) -> String {
    let scopes = scopes.iter().map(|scope| (*scope).to_owned()).collect();
    let grant = Grant { roles: vec![Role::Writer, Role::Operator], scopes, ..Grant::new(Role::Writer, ["default"]) };
    secured.create(grant).await.1
}

pub async fn post(secured: &Secured, key: &str, path: &str, body: Value) -> Answer {
    secured.send(secured.request(key, Method::POST, path).body(body.to_string())).await
}

/// The names of what a list shows.
async fn listed(secured: &Secured, key: &str, path: &str, field: &str) -> Vec<Value> {
    let page = secured.get(key, path).await.json();
    page["items"].as_array().expect("a list").iter().map(|item| item[field].clone()).collect()
}

/// A body that the operation of this path takes.
fn body_for(path: &str) -> Value {
    match path.rsplit('/').next() {
        Some("pull") => json!({}),
        Some("settle") => json!({"results": []}),
        Some("move") => json!({"reason": "a test", "to": 0}),
        Some("replay") => json!({"reason": "a test", "from": 0}),
        _ => json!({"reason": "a test"}),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_operation_shows_or_changes_what_is_of_a_scope_that_is_not_granted() {
    let secured = with_inbox().await;
    receive(&secured).await;
    let key = key_of_scopes(&secured, &["default"]).await;
    let mut refused = 0;
    for (method, path, said) in operations(&secured).await {
        let (one, code) = match path.split('/').nth(2) {
            Some("handlers") => ("/v1/handlers/x", Code::UnknownHandler),
            Some("subscriptions") => ("/v1/subscriptions/x", Code::UnknownSubscription),
            Some("filters") => ("/v1/filters/x", Code::UnknownScope),
            _ => continue,
        };
        if method == Method::PUT || !path.starts_with(one) {
            continue;
        }
        let path = if code == Code::UnknownScope { format!("{path}?scope=inbox") } else { path };
        let request = secured.request(&key, method.clone(), &path);
        let request = if method == Method::GET { request } else { request.body(body_for(&path).to_string()) };
        let answer = secured.send(request).await;
        let problem = answer.problem(code);
        assert!(!problem.to_string().contains("not for everyone"), "{method} {path}: {problem}");
        assert!(said["x-annals-permission"] != "open", "{method} {path}");
        refused += 1;
    }
    // Every operation of one handler but PUT, at least.
    assert!(refused >= 20, "{refused}");
    // They are as they were.
    let shown = secured.get(&secured.admin, "/v1/handlers/x").await.json();
    assert_eq!((&shown["state"], &shown["workers"], &shown["position"]), (&json!("stopped"), &json!([]), &json!(0)));
    assert_eq!(secured.get(&secured.admin, "/v1/handlers/x/acts").await.json()["items"], json!([]));
    assert_eq!(secured.get(&secured.admin, "/v1/subscriptions/x").await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_leave_out_what_is_of_another_scope_and_definitions_of_it_are_refused() {
    let secured = with_inbox().await;
    let key = key_of_scopes(&secured, &["default"]).await;
    let both = key_of_scopes(&secured, &["default", "inbox"]).await;
    assert_eq!(listed(&secured, &key, "/v1/handlers", "name").await, ["plain"]);
    assert_eq!(listed(&secured, &both, "/v1/handlers", "name").await, ["plain", "x"]);
    for (path, field) in [("/v1/filters", "stream"), ("/v1/subscriptions", "name")] {
        assert_eq!(listed(&secured, &key, path, field).await, Vec::<Value>::new(), "{path}");
        assert_eq!(listed(&secured, &both, path, field).await, ["x"], "{path}");
    }
    let subscription = |scope: &str| json!({"producer": "local:", "tenant": "north", "stream": "s", "scope": scope});
    for (path, body, code) in [
        ("/v1/handlers/new", json!({"scope": "inbox"}), Code::UnknownScope),
        ("/v1/handlers/x", json!({}), Code::HandlerChanged),
        ("/v1/filters/new", json!({"scope": "inbox"}), Code::UnknownScope),
        ("/v1/subscriptions/new", subscription("inbox"), Code::UnknownScope),
        ("/v1/subscriptions/x", subscription("default"), Code::InvalidSubscription),
    ] {
        let put = secured.request(&key, Method::PUT, path).body(body.to_string());
        secured.send(put).await.problem(code);
    }
    let replay = json!({"filter": {"event_types": ["placed"]}, "target": {"kind": "handler", "name": "x"}});
    post(&secured, &key, "/v1/replays", replay.clone()).await.problem(Code::UnknownHandler);
    let created = post(&secured, &both, "/v1/replays", replay).await.json();
    let one = format!("/v1/replays/{}", created["session_id"].as_str().expect("an id"));
    secured.get(&key, &one).await.problem(Code::UnknownReplay);
    secured.get(&key, &format!("{one}/follow")).await.problem(Code::UnknownReplay);
    post(&secured, &key, &format!("{one}/cancel"), json!({"reason": "a test"})).await.problem(Code::UnknownReplay);
    assert_eq!(secured.get(&key, "/v1/replays").await.json()["items"], json!([]));
    assert_eq!(secured.get(&both, &one).await.json()["status"], "created");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_of_the_scope_works_there_and_its_dead_letters_are_not_for_others() {
    let secured = with_inbox().await;
    receive(&secured).await;
    let key = key_of_scopes(&secured, &["default"]).await;
    let both = key_of_scopes(&secured, &["default", "inbox"]).await;
    let pulled = post(&secured, &both, "/v1/handlers/x/pull", json!({"wait_ms": 20_000})).await.json();
    let delivery = &pulled["deliveries"][0];
    assert_eq!((&delivery["event"]["scope"], &delivery["event"]["type"]), (&json!("inbox"), &json!("placed")));
    let failed = json!({"results": [{"token": delivery["token"], "failure": {"reason": "no stock"}}]});
    post(&secured, &key, "/v1/handlers/x/settle", failed.clone()).await.problem(Code::UnknownHandler);
    let settled = post(&secured, &both, "/v1/handlers/x/settle", failed).await.json();
    assert_eq!(settled["results"][0]["settled"], true, "{settled}");
    let letter = async {
        loop {
            let ids = listed(&secured, &both, "/v1/dead-letters", "id").await;
            if let Some(id) = ids.first().and_then(Value::as_str) {
                return id.to_owned();
            }
        }
    };
    let id = soon("a dead letter", letter).await;
    assert_eq!(secured.get(&key, "/v1/dead-letters").await.json()["items"], json!([]));
    let reason = json!({"reason": "a test"});
    let one = format!("/v1/dead-letters/{id}");
    secured.get(&key, &one).await.problem(Code::UnknownDeadLetter);
    for act in ["retry", "discard"] {
        post(&secured, &key, &format!("{one}/{act}"), reason.clone()).await.problem(Code::UnknownDeadLetter);
        let ids = json!({"ids": [id], "reason": "a test"});
        post(&secured, &key, &format!("/v1/dead-letters/{act}"), ids).await.problem(Code::UnknownDeadLetter);
        let all = json!({"condition": {"operator": "ALL"}, "reason": "a test"});
        assert_eq!(post(&secured, &key, &format!("/v1/dead-letters/{act}"), all).await.json()["total"], 0, "{act}");
    }
    // Nor does the collection show it in which it is kept.
    for collection in ["dlq_messages", "annals-parked-events", "annals-handlers"] {
        let path = format!("/v1/records/collections/{collection}");
        post(&secured, &key, &format!("{path}/find"), json!({})).await.problem(Code::SystemCollection);
        secured.get(&key, &format!("{path}/changes")).await.problem(Code::SystemCollection);
    }
    assert_eq!(post(&secured, &both, &format!("{one}/discard"), reason).await.json()["status"], "discarded");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_of_one_scope_works_with_its_handlers_and_reads_nothing_of_the_default_scope() {
    let secured = with_inbox().await;
    receive(&secured).await;
    let key = key_of_scopes(&secured, &["inbox"]).await;
    assert_eq!(listed(&secured, &key, "/v1/handlers", "name").await, ["x"]);
    assert_eq!(listed(&secured, &key, "/v1/subscriptions", "name").await, ["x"]);
    assert_eq!(listed(&secured, &key, "/v1/filters", "stream").await, ["x"]);
    let pulled = post(&secured, &key, "/v1/handlers/x/pull", json!({"wait_ms": 20_000})).await.json();
    let settled = json!({"results": [{"token": pulled["deliveries"][0]["token"]}]});
    let settled = post(&secured, &key, "/v1/handlers/x/settle", settled).await.json();
    assert_eq!(settled["results"][0]["settled"], true, "{settled}");
    for path in ["/v1/handlers/plain", "/v1/handlers/plain/partitions", "/v1/handlers/plain/acts"] {
        secured.get(&key, path).await.problem(Code::UnknownHandler);
    }
    post(&secured, &key, "/v1/handlers/plain/pull", json!({})).await.problem(Code::UnknownHandler);
    for path in ["/v1/log", "/v1/groups", "/v1/dead-letters", "/v1/processor-states", "/v1/consents"] {
        secured.get(&key, path).await.problem(Code::UnknownScope);
    }
    // Those of its handler and of its filter.
    let states = secured.get(&key, "/v1/processor-states?scope=inbox").await.json();
    assert_eq!(states["items"].as_array().map(Vec::len), Some(2), "{states}");
}
