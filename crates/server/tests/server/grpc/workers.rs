//! `Handlers.Process`.

use std::time::Duration;

use annals_core::Code;
use annals_server::Options;
use reqwest::Method;
use serde_json::json;
use tokio::sync::mpsc;
use tonic::{Status, Streaming};

use super::generated::process_request::Request;
use super::generated::process_response::Response;
use super::generated::{
    Attach, Credit, Delivery, Failure, ProcessRequest, ProcessResponse, Settle, SettleResult, Settlement,
};
use super::{Client, end, json_of, next, problem, refused};
use crate::raw::Raw;
use crate::running::{Running, soon};

/// A worker on one call.
struct Worker {
    asks: mpsc::UnboundedSender<ProcessRequest>,
    answers: Streaming<ProcessResponse>,
}

impl Worker {
    async fn attach(client: &Client, credit: u32) -> Self {
        let attach = Attach { handler: "billing".to_owned(), credit, worker: "w".to_owned(), ..Attach::default() };
        let mut worker = Self::begin(client, Request::Attach(attach)).await.expect("attached");
        let first = next(&mut worker.answers).await.response;
        assert!(matches!(first, Some(Response::Idle(idle)) if idle.credit == u64::from(credit)), "{first:?}");
        worker
    }

    async fn begin(client: &Client, first: Request) -> Result<Self, Status> {
        let (asks, asked) = mpsc::unbounded_channel();
        asks.send(ProcessRequest { request: Some(first) }).expect("it is read");
        let requests =
            futures_util::stream::unfold(asked, |mut asked| async move { Some((asked.recv().await?, asked)) });
        Ok(Self { asks, answers: client.process(requests).await? })
    }

    fn ask(&self, request: Request) {
        self.asks.send(ProcessRequest { request: Some(request) }).expect("it is read");
    }

    /// The next delivery, past what says that there is none.
    async fn delivery(&mut self) -> Delivery {
        loop {
            match next(&mut self.answers).await.response {
                Some(Response::Delivery(delivery)) => return delivery,
                Some(Response::Idle(_)) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    /// Settles one delivery and grants credit for more.
    async fn settle(&mut self, token: &str, failure: Option<Failure>, credit: u32) -> SettleResult {
        let settlements = vec![Settlement { token: token.to_owned(), failure }];
        self.ask(Request::Settle(Settle { settlements, credit }));
        loop {
            match next(&mut self.answers).await.response {
                Some(Response::Settled(settled)) => {
                    let [result] = &settled.results[..] else { panic!("{settled:?}") };
                    return result.clone();
                }
                Some(Response::Idle(_)) => {}
                other => panic!("{other:?}"),
            }
        }
    }
}

/// A server with the handler `billing`, which processes the events of each order in order.
async fn serving() -> (Running, Client) {
    serving_with(Options::default()).await
}

async fn serving_with(mut options: Options) -> (Running, Client) {
    options.comment_interval = Duration::from_millis(20);
    let server = Running::start_with(options).await;
    let handler = json!({"types": ["placed"], "partition_by": "aggregate", "concurrency": 8,
                         "retry": {"first_ms": 1, "max_ms": 1}});
    let put = server.request(Method::PUT, "/v1/handlers/billing").header("content-type", "application/json");
    assert_eq!(server.send(put.body(handler.to_string())).await.status, 201);
    let client = Client::of(&server);
    (server, client)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_gets_as_many_deliveries_as_it_has_credit_for() {
    let (server, client) = serving().await;
    for id in ["o-1", "o-2", "o-3", "o-4"] {
        client.commit_order(id).await;
    }
    let mut worker = Worker::attach(&client, 2).await;
    let (first, second) = (worker.delivery().await, worker.delivery().await);
    assert_ne!(first.partition, second.partition);
    let event = first.event.as_ref().expect("an event");
    assert_eq!((first.attempt, first.position), (1, event.sequence_number));
    let path = format!("/v1/log/{}", event.sequence_number);
    assert_eq!(json_of(event), server.get(&path).await.json());
    // Two more are waiting, and nothing comes but what says that there is no credit.
    for _ in 0..3 {
        let quiet = next(&mut worker.answers).await.response;
        assert!(matches!(quiet, Some(Response::Idle(idle)) if idle.credit == 0), "{quiet:?}");
    }
    assert!(worker.settle(&first.token, None, 0).await.settled);
    worker.ask(Request::Credit(Credit { more: 1 }));
    let third = worker.delivery().await;
    assert!(worker.settle(&third.token, None, 0).await.settled);
    let again = worker.settle(&third.token, None, 1).await;
    assert_eq!((again.settled, again.error.as_deref()), (false, Some("lease_lost")));
    let fourth = worker.delivery().await;
    for delivery in [second, fourth] {
        assert!(worker.settle(&delivery.token, None, 0).await.settled);
    }
    let status = server.get("/v1/handlers/billing").await.json();
    assert_eq!((&status["position"], &status["lag"]), (&json!(4), &json!(0)));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_failed_is_delivered_again_with_the_reason() {
    let (_server, client) = serving().await;
    let mut worker = Worker::attach(&client, 10).await;
    client.commit_order("o-1").await;
    client.commit_order("o-1").await;
    let first = worker.delivery().await;
    let failure = Failure { reason: "no stock".to_owned(), ..Failure::default() };
    assert!(worker.settle(&first.token, Some(failure), 0).await.settled);
    let again = worker.delivery().await;
    assert_eq!((again.position, again.attempt, again.last_reason.as_deref()), (0, 2, Some("no stock")));
    let later = Failure { reason: "busy".to_owned(), retry_after_ms: Some(1), never: false };
    assert!(worker.settle(&again.token, Some(later), 0).await.settled);
    let last = worker.delivery().await;
    assert_eq!((last.position, last.attempt, last.last_reason.as_deref()), (0, 3, Some("busy")));
    assert!(worker.settle(&last.token, None, 0).await.settled);
    assert_eq!(worker.delivery().await.position, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_is_gone_gives_back_its_deliveries_before_their_leases_end() {
    let (_server, client) = serving().await;
    client.commit_order("o-1").await;
    for (attempt, ends_call) in [(1, true), (2, false)] {
        let mut worker = Worker::attach(&client, 1).await;
        let delivery = worker.delivery().await;
        assert_eq!((delivery.position, delivery.attempt), (0, attempt));
        let Worker { asks, mut answers } = worker;
        if ends_call {
            drop(asks);
            soon("the end of the call", async { while answers.message().await.expect("no error").is_some() {} }).await;
        } else {
            drop(answers);
        }
    }
    let mut worker = Worker::attach(&client, 1).await;
    let delivery = worker.delivery().await;
    assert_eq!(delivery.attempt, 3);
    assert!(delivery.last_reason.is_some_and(|reason| reason.contains("lost its connection")));
    assert!(worker.settle(&delivery.token, None, 0).await.settled);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_waits_for_room_gets_that_of_a_client_that_does_not_read() {
    let mut options = Options::default();
    options.answer_bytes_in_flight_max = 1_000_000;
    // Only the need for room ends a response that nobody reads.
    options.write_wait_max = Duration::from_secs(600);
    let (server, client) = serving_with(options).await;
    server.commit_batches(1).await;
    server
        .commit(&json!({"aggregate": {"name": "order", "id": "o-1"}, "events": [{"type": "placed", "data": {}}]}))
        .await;
    // A page of 5 MB is written, because no other response is unread.
    let mut stalled = Raw::slow_reader(&server, "/v1/log?limit=1000", "application/json").await;
    let head = stalled.through(b"\r\n\r\n").await.expect("a response");
    assert!(head.starts_with(b"HTTP/1.1 200 "), "{}", String::from_utf8_lossy(&head));
    let mut worker = Worker::attach(&client, 1).await;
    let delivery = soon("a delivery, because there is room for it", worker.delivery()).await;
    assert_eq!(delivery.position, 1_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_is_told_what_is_wrong() {
    let (mut server, client) = serving().await;
    let attach = |handler: &str| Attach { handler: handler.to_owned(), credit: 1, ..Attach::default() };
    for (first, status, code) in [
        (Request::Attach(attach("absent")), tonic::Code::NotFound, Code::UnknownHandler),
        (Request::Credit(Credit { more: 1 }), tonic::Code::InvalidArgument, Code::InvalidBody),
        (Request::Attach(Attach { lease_ms: 1, ..attach("billing") }), tonic::Code::InvalidArgument, Code::InvalidBody),
    ] {
        problem(&refused(Worker::begin(&client, first).await), status, code);
    }
    let mut twice = Worker::attach(&client, 0).await;
    twice.ask(Request::Attach(attach("billing")));
    problem(&end(&mut twice.answers).await, tonic::Code::InvalidArgument, Code::InvalidBody);
    let mut worker = Worker::attach(&client, 1).await;
    server.begin_stop();
    problem(&end(&mut worker.answers).await, tonic::Code::Unavailable, Code::Closing);
    drop(worker);
    server.stopped().await;
}
