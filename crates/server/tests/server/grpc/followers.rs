//! `Log.Follow`.

use std::time::Duration;

use annals_core::Code;
use annals_server::Options;
use reqwest::Method;
use tonic::Streaming;

use super::generated::follow_request::Start;
use super::generated::follow_response::Response;
use super::generated::{Event, Filter, FollowRequest, FollowResponse, Seen, Started};
use super::{Client, end, next, problem, refused};
use crate::running::{Running, soon};

struct Follower {
    stream: Streaming<FollowResponse>,
    started: Started,
}

impl Follower {
    async fn begin(client: &Client, start: Option<Start>, filter: Option<Filter>) -> Self {
        let asked = FollowRequest { start, filter, ..FollowRequest::default() };
        let mut stream = client.stream("Log/Follow", asked).await.expect("a stream");
        let FollowResponse { response: Some(Response::Started(started)) } = next(&mut stream).await else {
            panic!("it does not say where it begins")
        };
        Self { stream, started }
    }

    /// The next event, past what says that there is none.
    async fn event(&mut self) -> Event {
        loop {
            match next(&mut self.stream).await.response {
                Some(Response::Event(event)) => return event,
                Some(Response::Quiet(_)) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    async fn numbers(&mut self, count: usize) -> Vec<u64> {
        let mut numbers = Vec::new();
        while numbers.len() < count {
            numbers.push(self.event().await.sequence_number);
        }
        numbers
    }
}

fn after(sequence_number: u64, incarnation: u32) -> Option<Start> {
    Some(Start::After(Seen { sequence_number, incarnation }))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_gets_what_is_there_and_what_comes_without_gap_and_resumes() {
    let server = Running::start().await;
    let client = Client::of(&server);
    server.commit_orders("o-1", 1_500).await;
    let mut follower = Follower::begin(&client, None, None).await;
    assert_eq!((follower.started.from, follower.started.head, follower.started.clamped), (0, 1_500, false));
    let writers = (0..10).map(|n| {
        let client = client.clone();
        tokio::spawn(async move { client.commit_order(&n.to_string()).await })
    });
    let writers: Vec<_> = writers.collect();
    assert_eq!(follower.numbers(1_510).await, (0..1_510).collect::<Vec<_>>());
    for writer in writers {
        writer.await.expect("no panic");
    }
    drop(follower);
    let mut resumed = Follower::begin(&client, after(1_507, 0), None).await;
    assert_eq!(resumed.numbers(2).await, [1_508, 1_509]);
    let mut ahead = Follower::begin(&client, Some(Start::From(1_511)), None).await;
    let mut at_head = Follower::begin(&client, Some(Start::AtHead(true)), None).await;
    server.commit_orders("o-2", 2).await;
    assert_eq!((ahead.numbers(1).await, at_head.numbers(2).await), (vec![1_511], vec![1_510, 1_511]));
    // An event that this log cannot have shown.
    let clamped = Follower::begin(&client, after(9_000, 0), None).await;
    assert_eq!((clamped.started.from, clamped.started.clamped), (1_512, true));
    let other = Follower::begin(&client, after(3, 2), None).await;
    assert_eq!((other.started.from, other.started.clamped), (0, true));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_filtered_follower_gets_what_it_asked_for_and_is_told_where_it_is() {
    let mut options = Options::default();
    options.comment_interval = Duration::from_millis(20);
    let server = Running::start_with(options).await;
    let client = Client::of(&server);
    let one = Filter {
        aggregate_name: Some("order".to_owned()),
        aggregate_id: Some("o-2".to_owned()),
        types: vec!["placed".to_owned()],
        ..Filter::default()
    };
    let mut follower = Follower::begin(&client, None, Some(one)).await;
    for id in ["o-1", "o-2", "o-1", "o-2"] {
        client.commit_order(id).await;
    }
    assert_eq!(follower.numbers(2).await, [1, 3]);
    soon("the position", async {
        loop {
            match next(&mut follower.stream).await.response {
                Some(Response::Quiet(quiet)) if quiet.next == 4 => return,
                Some(Response::Quiet(_)) => {}
                other => panic!("{other:?}"),
            }
        }
    })
    .await;
    let half = Filter { aggregate_id: Some("o-2".to_owned()), ..Filter::default() };
    let asked = FollowRequest { filter: Some(half), ..FollowRequest::default() };
    let status = refused(client.stream::<_, FollowResponse>("Log/Follow", asked).await);
    let document = problem(&status, tonic::Code::InvalidArgument, Code::InvalidBody);
    assert_eq!(document["path"], "filter.aggregate_id");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_stops_ends_its_followers_with_a_status_to_retry() {
    let mut server = Running::start().await;
    let client = Client::of(&server);
    let mut follower = Follower::begin(&client, None, None).await;
    server.begin_stop();
    problem(&end(&mut follower.stream).await, tonic::Code::Unavailable, Code::Closing);
    server.stopped().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn followers_above_the_limit_are_refused() {
    let mut options = Options::default();
    options.followers_max = 1;
    let server = Running::start_with(options).await;
    let client = Client::of(&server);
    let _follower = Follower::begin(&client, None, None).await;
    let status = refused(client.stream::<_, FollowResponse>("Log/Follow", FollowRequest::default()).await);
    problem(&status, tonic::Code::Unavailable, Code::Overloaded);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_is_not_served_past_its_deadline() {
    let server = Running::start().await;
    // Without a client that ends the call by itself.
    let client = reqwest::Client::builder().no_proxy().http2_prior_knowledge().build().expect("a client");
    let call = |timeout: &str| {
        let request = client.request(Method::POST, server.url("/annals.v1.Log/Follow"));
        let request = request.header("content-type", "application/grpc").header("grpc-timeout", timeout.to_owned());
        request.body(vec![0; 5]).send()
    };
    let response = soon("an answer", call("200m")).await.expect("an answer");
    let body = soon("the end of the stream", response.bytes()).await.expect("it ends, and is not cut");
    assert!(body.len() < 100, "{body:?}");
    let refused = soon("an answer", call("soon")).await.expect("an answer");
    assert_eq!(refused.status(), 200);
    assert_eq!(refused.headers()["grpc-status"], "3");
    assert_eq!(refused.headers()["annals-code"], "invalid_query");
}
