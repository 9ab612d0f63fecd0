//! gRPC, with a client that others wrote.

mod access;
mod commits;
mod followers;
mod messages;
mod streams;
mod workers;

// The messages as the server has them.
#[allow(clippy::all, dead_code)]
#[path = "../../src/grpc/generated.rs"]
#[rustfmt::skip]
mod generated;

use annals_core::Code;
use axum::http::uri::PathAndQuery;
use futures_util::Stream;
use prost::Message;
use serde_json::{Value, json};
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;

use self::generated::document::Encoding;
use self::generated::{CommitOutcome, CommitRequest, Document, Event, ProcessRequest, ProcessResponse};
use crate::running::{Running, soon};

/// The protocol.
const PROTOCOL: &str = include_str!("../../../../proto/annals/v1/annals.proto");

/// A client of one connection.
#[derive(Clone)]
struct Client {
    channel: Channel,
    key: Option<String>,
    tenant: Option<&'static str>,
}

impl Client {
    fn of(server: &Running) -> Self {
        let endpoint = Endpoint::from_shared(format!("http://{}", server.address)).expect("an address");
        Self { channel: endpoint.connect_lazy(), key: None, tenant: None }
    }

    fn with_key(self, key: &str) -> Self {
        Self { key: Some(key.to_owned()), ..self }
    }

    fn of_tenant(self, tenant: &'static str) -> Self {
        Self { tenant: Some(tenant), ..self }
    }

    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        if let Some(key) = &self.key {
            request.metadata_mut().insert("authorization", format!("Bearer {key}").parse().expect("a value"));
        }
        if let Some(tenant) = self.tenant {
            request.metadata_mut().insert("annals-tenant", tenant.parse().expect("a value"));
        }
        request
    }

    async fn ready(&self) -> Grpc<Channel> {
        let mut client = Grpc::new(self.channel.clone());
        soon("a connection", client.ready()).await.expect("a connection");
        client
    }

    /// Calls a method with one answer, such as `Log/Get`.
    async fn call<A, B>(&self, method: &str, message: A) -> Result<B, Status>
    where
        A: Message + 'static,
        B: Message + Default + 'static,
    {
        let mut client = self.ready().await;
        let answer = client.unary(self.request(message), path(method), ProstCodec::<A, B>::default());
        soon("an answer", answer).await.map(Response::into_inner)
    }

    /// Calls a method that streams its answers.
    async fn stream<A, B>(&self, method: &str, message: A) -> Result<Streaming<B>, Status>
    where
        A: Message + 'static,
        B: Message + Default + 'static,
    {
        let mut client = self.ready().await;
        let answer = client.server_streaming(self.request(message), path(method), ProstCodec::<A, B>::default());
        soon("an answer", answer).await.map(Response::into_inner)
    }

    /// Attaches a worker.
    async fn process(
        &self,
        requests: impl Stream<Item = ProcessRequest> + Send + 'static,
    ) -> Result<Streaming<ProcessResponse>, Status> {
        let mut client = self.ready().await;
        let codec = ProstCodec::<ProcessRequest, ProcessResponse>::default();
        let answer = client.streaming(self.request(requests), path("Handlers/Process"), codec);
        soon("an answer", answer).await.map(Response::into_inner)
    }

    /// Commits what a body of `POST /v1/commits` says.
    async fn commit(&self, body: &Value) -> Result<CommitOutcome, Status> {
        self.call("Commits/Commit", CommitRequest { commit: Some(as_json(body)) }).await
    }

    /// Commits one event of `order/{id}`.
    async fn commit_order(&self, id: &str) -> CommitOutcome {
        let events = json!([{"type": "placed", "data": {"of": id}}]);
        self.commit(&json!({"aggregate": {"name": "order", "id": id}, "events": events})).await.expect("committed")
    }
}

fn path(method: &str) -> PathAndQuery {
    format!("/annals.v1.{method}").parse().expect("a path")
}

fn as_json(body: &Value) -> Document {
    Document { encoding: Some(Encoding::Json(body.to_string().into())) }
}

/// The JSON of an event.
fn json_of(event: &Event) -> Value {
    match event.document.as_ref().and_then(|document| document.encoding.as_ref()) {
        Some(Encoding::Json(json)) => serde_json::from_slice(json).expect("JSON"),
        other => panic!("{other:?} is not JSON"),
    }
}

/// The next message of a stream.
async fn next<T>(stream: &mut Streaming<T>) -> T {
    soon("a message", stream.message()).await.expect("no error").expect("a message")
}

/// The error that a stream ends with, after the messages before it.
async fn end<T>(stream: &mut Streaming<T>) -> Status {
    soon("the end of a stream", async {
        loop {
            match stream.message().await {
                Ok(Some(_)) => {}
                Ok(None) => panic!("the stream ended without an error"),
                Err(status) => return status,
            }
        }
    })
    .await
}

/// The error of a call that must be refused.
#[track_caller]
fn refused<T>(answer: Result<T, Status>) -> Status {
    match answer {
        Ok(_) => panic!("the call was not refused"),
        Err(status) => status,
    }
}

/// Checks that a status has a code and its document, and returns the document.
#[track_caller]
fn problem(status: &Status, expected: tonic::Code, code: Code) -> Value {
    assert_eq!(status.code(), expected, "{status:?}");
    let metadata = status.metadata();
    let named = metadata.get("annals-code").expect("a code").to_str().expect("text");
    assert_eq!(named, code.as_str(), "{status:?}");
    let document = metadata.get_bin("annals-problem-bin").expect("a document").to_bytes().expect("base64");
    let document: Value = serde_json::from_slice(&document).expect("JSON");
    assert_eq!((&document["code"], &document["detail"]), (&json!(code.as_str()), &json!(status.message())));
    assert_eq!(document["type"], format!("/errors/{}", code.as_str()));
    assert_eq!(metadata.contains_key("grpc-retry-pushback-ms"), code.exit() == 5, "{status:?}");
    document
}

/// The methods that the protocol declares, such as `Log/Get`, and whether they only read.
fn methods() -> Vec<(String, bool)> {
    let mut methods = Vec::new();
    let (mut service, mut comment) = ("", String::new());
    let mut reads = false;
    for line in PROTOCOL.lines() {
        if let Some(rest) = line.strip_prefix("service ") {
            service = rest.trim_end_matches(" {");
            reads = comment.contains("The permission is `reader`");
        }
        if let Some(rest) = line.trim().strip_prefix("rpc ") {
            let name = rest.split('(').next().expect("a name");
            // A method may say so itself.
            methods.push((format!("{service}/{name}"), reads && !comment.contains("is `writer`")));
        }
        match line.trim().strip_prefix("//") {
            Some(text) => comment.push_str(text),
            None => comment.clear(),
        }
    }
    assert_eq!(methods.len(), 12, "{methods:?}");
    methods
}
