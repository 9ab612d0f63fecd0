//! Keys that are restricted to streams.

use annals_core::credentials::{Grant, Role};
use annals_core::{Code, DEFAULT_SCOPE, DEFAULT_TENANT, Included, Verdicts};
use serde_json::{Value, json};

use crate::credentials::post;
use crate::restricted::{forbidden, may_use_only};
use crate::running::opened;
use crate::secured::Secured;

/// The operations that a restricted key may use, because each reads one stream, or shows no events.
const CHECKED: [&str; 7] =
    ["index", "listStreams", "readStream", "readStreamEntries", "streamPosition", "streamState", "readPublicStream"];

/// A server with two events, of which the first is in the streams `orders` and `secret`, and a key of `orders` and of a stream that does
/// not exist.
async fn restricted() -> (Secured, String) {
    let secured = Secured::start(&["default"]).await;
    for _ in 0..2 {
        assert_eq!(post(&secured, &secured.admin, "/v1/commits", opened()).await.status, 201);
    }
    let streams = secured.server.store.streams(DEFAULT_TENANT, DEFAULT_SCOPE).expect("declared");
    for name in ["orders", "secret"] {
        streams.append(Verdicts::new(name, 0..1).include(Included::new(0))).await.expect("they are appended");
    }
    let granted = vec!["orders".to_owned(), "absent".to_owned()];
    let (_, key) = secured.create(Grant { streams: granted, ..Grant::new(Role::Reader, ["default"]) }).await;
    (secured, key)
}

#[tokio::test(flavor = "multi_thread")]
async fn every_operation_that_is_not_about_a_stream_refuses_a_restricted_key() {
    let (secured, key) = restricted().await;
    may_use_only(&secured, &key, &CHECKED, &["reader"], "restricted to streams").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restricted_key_reads_its_streams_and_no_others() {
    let (secured, key) = restricted().await;
    for below in ["", "/entries", "/state", "/positions/0"] {
        let own = secured.get(&key, &format!("/v1/streams/orders{below}")).await;
        assert_eq!(own.status, 200, "{below}: {}", own.text());
        // Another stream is refused in the same way as one that does not exist.
        let details = async |name: &str| {
            let detail = forbidden(&secured.get(&key, &format!("/v1/streams/{name}{below}")).await);
            assert!(detail.contains(&format!("may not use the stream {name:?}")), "{detail}");
            detail.replace(name, "NAME")
        };
        assert_eq!(details("secret").await, details("nothing").await, "{below}");
    }
    let page = secured.get(&key, "/v1/streams/orders").await.json();
    assert_eq!(page["events"][0]["event"]["sequence_number"], 0, "{page}");
    let of = |list: &Value| -> Vec<Value> {
        list["streams"].as_array().expect("a list").iter().map(|stream| stream["name"].clone()).collect()
    };
    assert_eq!(of(&secured.get(&secured.admin, "/v1/streams").await.json()), ["orders", "secret"]);
    let listed = secured.get(&key, "/v1/streams").await.json();
    assert_eq!((of(&listed), &listed["next"]), (vec![json!("orders")], &json!("orders")));
    assert_eq!(of(&secured.get(&key, "/v1/streams?after=orders").await.json()), Vec::<Value>::new());
    // Consumers of other microservices read in the same way.
    forbidden(&secured.get(&key, "/v1/horizon/secret").await);
    let own: Value = serde_json::from_slice(&secured.get(&key, "/v1/horizon/orders").await.body).expect("a problem");
    assert_ne!(own["code"], "forbidden", "it is refused for what it is: {own}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restricted_key_puts_no_event_into_its_streams_and_commits_nothing() {
    let (secured, key) = restricted().await;
    // Verdicts name any event of the log.
    let verdicts = json!({"from": 1, "to": 2, "included": [{"sequence_number": 1}]});
    for name in ["orders", "absent", "secret"] {
        forbidden(&post(&secured, &key, &format!("/v1/streams/{name}/verdicts"), verdicts.clone()).await);
    }
    let state = secured.get(&secured.admin, "/v1/streams/orders/state").await.json();
    assert_eq!((&state["head"], &state["progress"]), (&json!(1), &json!(1)));
    forbidden(&post(&secured, &key, "/v1/commits", opened()).await);
    assert_eq!(secured.get(&secured.admin, "/v1/log").await.json()["head"], 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_credential_shows_its_streams_and_is_restricted_to_them_or_to_event_types() {
    let secured = Secured::start(&["default"]).await;
    let new = |role: &str| json!({"name": "a", "roles": [role], "tenants": ["default"], "streams": ["orders"]});
    let created = post(&secured, &secured.admin, "/v1/credentials", new("reader")).await.json();
    let path = format!("/v1/credentials/{}", created["id"].as_str().expect("an id"));
    assert_eq!(secured.get(&secured.admin, &path).await.json()["streams"], json!(["orders"]));
    let mut both = new("reader");
    both["event_types"] = json!(["paid"]);
    for refused in [new("writer"), new("operator"), both] {
        let refused = post(&secured, &secured.admin, "/v1/credentials", refused).await;
        assert_eq!(refused.problem(Code::InvalidCredential)["path"], "streams");
    }
}
