//! Who may call what.

use annals_core::Code;
use annals_core::credentials::{Grant, Role};
use reqwest::Method;
use serde_json::json;
use tonic::{Status, Streaming};

use super::generated::{
    Filter, FollowRequest, FollowResponse, HeadRequest, HeadResponse, ReadRequest, ReadResponse, ReadStreamRequest,
    ReadStreamResponse,
};
use super::{Client, end, methods, next, problem, refused};
use crate::secured::Secured;

/// Calls a method without any message, which is refused for that if the caller may use the method.
async fn attempt(client: &Client, method: &str) -> Status {
    let mut caller = client.ready().await;
    let nothing = futures_util::stream::empty::<HeadRequest>();
    let codec = tonic_prost::ProstCodec::<HeadRequest, HeadResponse>::default();
    let answer = caller.streaming(client.request(nothing), super::path(method), codec).await;
    match answer {
        Err(status) => status,
        Ok(answer) => end(&mut answer.into_inner()).await,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_method_is_allowed_to_the_roles_of_its_service_and_to_nobody_else() {
    let secured = Secured::start(&["default", "north"]).await;
    let client = Client::of(&secured.server);
    for (method, _) in methods() {
        for client in [client.clone(), client.clone().with_key(&format!("ann_{}", "0".repeat(64)))] {
            problem(&attempt(&client, &method).await, tonic::Code::Unauthenticated, Code::Unauthenticated);
        }
    }
    for role in Role::ALL {
        let (_, key) = secured.create(Grant::new(role, ["default"])).await;
        let client = client.clone().with_key(&key);
        for (method, reads) in methods() {
            let status = attempt(&client, &method).await;
            if reads || matches!(role, Role::Writer | Role::Admin) {
                problem(&status, tonic::Code::InvalidArgument, Code::InvalidBody);
            } else {
                problem(&status, tonic::Code::PermissionDenied, Code::Forbidden);
            }
            let elsewhere = attempt(&client.clone().of_tenant("north"), &method).await;
            assert!(elsewhere.code() != tonic::Code::InvalidArgument, "{role} {method}");
            if reads {
                problem(&elsewhere, tonic::Code::NotFound, Code::UnknownTenant);
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restricted_key_gets_what_it_is_granted() {
    let secured = Secured::start(&["default"]).await;
    let client = Client::of(&secured.server);
    let writer = Grant { event_types: vec!["paid".to_owned()], ..Grant::new(Role::Writer, ["default"]) };
    let (_, key) = secured.create(writer).await;
    let paid = client.clone().with_key(&key);
    let commit =
        |name: &str| json!({"aggregate": {"name": "order", "id": "o-1"}, "events": [{"type": name, "data": {}}]});
    problem(&refused(paid.commit(&commit("placed")).await), tonic::Code::PermissionDenied, Code::Forbidden);
    client.clone().with_key(&secured.admin).commit(&commit("placed")).await.expect("committed");
    paid.commit(&commit("paid")).await.expect("committed");
    let mut page: Streaming<ReadResponse> = paid.stream("Log/Read", ReadRequest::default()).await.expect("a page");
    let Some(super::generated::read_response::Response::Event(event)) = next(&mut page).await.response else {
        panic!("no event")
    };
    assert_eq!((event.sequence_number, &*event.r#type), (1, "paid"));
    let other = Filter { types: vec!["placed".to_owned()], ..Filter::default() };
    let asked = ReadRequest { filter: Some(other), ..ReadRequest::default() };
    let status = refused(paid.stream::<_, ReadResponse>("Log/Read", asked).await);
    problem(&status, tonic::Code::PermissionDenied, Code::Forbidden);
    // Streams are not read by type, and a scope that is not granted does not exist.
    let stream = || ReadStreamRequest { stream: "orders".to_owned(), ..ReadStreamRequest::default() };
    let status = refused(paid.stream::<_, ReadStreamResponse>("Streams/Read", stream()).await);
    problem(&status, tonic::Code::PermissionDenied, Code::Forbidden);
    let elsewhere = HeadRequest { scope: "inbox".to_owned() };
    let status = refused(paid.call::<_, HeadResponse>("Log/Head", elsewhere).await);
    problem(&status, tonic::Code::NotFound, Code::UnknownScope);
    let reader = Grant { streams: vec!["orders".to_owned()], ..Grant::new(Role::Reader, ["default"]) };
    let (_, key) = secured.create(reader).await;
    let orders = client.with_key(&key);
    assert!(orders.stream::<_, ReadStreamResponse>("Streams/Read", stream()).await.is_ok());
    let secret = ReadStreamRequest { stream: "secret".to_owned(), ..ReadStreamRequest::default() };
    for status in [
        refused(orders.stream::<_, ReadStreamResponse>("Streams/Read", secret).await),
        refused(orders.call::<_, HeadResponse>("Log/Head", HeadRequest::default()).await),
    ] {
        problem(&status, tonic::Code::PermissionDenied, Code::Forbidden);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_is_revoked_ends_the_streams_of_its_holder() {
    let secured = Secured::start(&["default"]).await;
    let (id, key) = secured.create(Grant::new(Role::Reader, ["default"])).await;
    let client = Client::of(&secured.server).with_key(&key);
    let mut follower: Streaming<FollowResponse> =
        client.stream("Log/Follow", FollowRequest::default()).await.expect("a stream");
    next(&mut follower).await;
    let path = format!("/v1/credentials/{id}");
    let revoke = secured.request(&secured.admin, Method::DELETE, &path).body(r#"{"reason": "a test"}"#);
    assert_eq!(secured.send(revoke).await.json()["state"], "revoked");
    problem(&end(&mut follower).await, tonic::Code::Unauthenticated, Code::Unauthenticated);
}
