//! The service `Streams`.

use annals_core::{Code, DEFAULT_SCOPE, DEFAULT_TENANT, Verdicts};
use tonic::Streaming;

use super::generated::partition::Partition as Chosen;
use super::generated::{
    AppendRequest, AppendResponse, FollowStreamRequest, FollowStreamResponse, Included, ListRequest, ListResponse,
    PageEnd, Partition, ReadStreamRequest, ReadStreamResponse, StateRequest, StateResponse, StreamEvent,
    follow_stream_response, read_stream_response,
};
use super::{Client, end, json_of, next, problem, refused};
use crate::running::{Running, soon};

/// A server with six events, of which the stream "s" holds the even ones below 4, the second one in partition "a".
async fn serving() -> Running {
    let server = Running::start().await;
    server.commit_orders("o-1", 6).await;
    append(
        &server,
        Verdicts::new("s", 0..4).include(annals_core::Included::new(0)).include(annals_core::Included::of(2, "a")),
    )
    .await;
    server
}

async fn append(server: &Running, verdicts: Verdicts) {
    let streams = server.store.streams(DEFAULT_TENANT, DEFAULT_SCOPE).expect("declared");
    streams.append(verdicts).await.expect("they are appended");
}

/// The entries of a page, and its end.
async fn page(client: &Client, asked: ReadStreamRequest) -> (Vec<StreamEvent>, PageEnd) {
    let mut page: Streaming<ReadStreamResponse> = client.stream("Streams/Read", asked).await.expect("a page");
    let mut entries = Vec::new();
    loop {
        match next(&mut page).await.response.expect("a response") {
            read_stream_response::Response::Event(entry) => entries.push(entry),
            read_stream_response::Response::End(end) => {
                assert!(soon("the end", page.message()).await.expect("no error").is_none());
                return (entries, end);
            }
        }
    }
}

fn asked(partition: Option<Chosen>) -> ReadStreamRequest {
    let partition = partition.map(|partition| Partition { partition: Some(partition) });
    ReadStreamRequest { stream: "s".to_owned(), partition, ..ReadStreamRequest::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_is_read_by_position_and_partition() {
    let server = serving().await;
    let client = Client::of(&server);
    let (entries, end) = page(&client, asked(None)).await;
    let places: Vec<_> = entries.iter().map(|entry| (entry.position, entry.partition.as_deref())).collect();
    assert_eq!(places, [(0, None), (1, Some("a"))]);
    assert_eq!(end, PageEnd { next: 2, head: 2 });
    let event = entries[1].event.as_ref().expect("an event");
    assert_eq!(json_of(event), server.get("/v1/log/2").await.json());
    let (entries, _) = page(&client, asked(Some(Chosen::Name("a".to_owned())))).await;
    assert_eq!(entries.iter().map(|entry| entry.position).collect::<Vec<_>>(), [1]);
    let (entries, _) = page(&client, asked(Some(Chosen::None(true)))).await;
    assert_eq!(entries.iter().map(|entry| entry.position).collect::<Vec<_>>(), [0]);
    let (entries, end) = page(&client, ReadStreamRequest { to: Some(1), limit: 1, ..asked(None) }).await;
    assert_eq!((entries.len(), end.next), (1, 1));
    let state = StateRequest { stream: "s".to_owned(), ..StateRequest::default() };
    let state: StateResponse = client.call("Streams/State", state).await.expect("a state");
    assert_eq!((state.head, state.progress), (2, 4));
    let backwards = ReadStreamRequest { from: 2, to: Some(1), ..asked(None) };
    let status = refused(client.stream::<_, ReadStreamResponse>("Streams/Read", backwards).await);
    problem(&status, tonic::Code::InvalidArgument, Code::InvalidRange);
}

#[tokio::test(flavor = "multi_thread")]
async fn verdicts_are_appended_once_and_where_the_filter_is() {
    let server = serving().await;
    let client = Client::of(&server);
    let verdicts = |from: u64| {
        let included = vec![Included { sequence_number: 4, partition: Some("b".to_owned()) }];
        AppendRequest { stream: "s".to_owned(), from, to: 6, included, ..AppendRequest::default() }
    };
    for duplicate in [false, true] {
        let appended: AppendResponse = client.call("Streams/Append", verdicts(4)).await.expect("appended");
        assert_eq!(appended, AppendResponse { from: 2, to: 3, duplicate });
    }
    let beyond = AppendRequest { to: 9, ..verdicts(6) };
    let beyond = AppendRequest { included: Vec::new(), ..beyond };
    assert!(client.call::<_, AppendResponse>("Streams/Append", beyond).await.is_err(), "the log ends before");
    let other = AppendRequest { from: 5, to: 6, included: Vec::new(), stream: "t".to_owned(), ..verdicts(5) };
    let status = refused(client.call::<_, AppendResponse>("Streams/Append", other).await);
    problem(&status, tonic::Code::Aborted, Code::StreamMoved);
    let listed: ListResponse = client.call("Streams/List", ListRequest::default()).await.expect("a list");
    let states: Vec<_> = listed.streams.iter().map(|it| (&*it.name, it.state.expect("a state").progress)).collect();
    assert_eq!(states, [("s", 6)]);
    let after = ListRequest { after: Some("s".to_owned()), ..ListRequest::default() };
    let listed: ListResponse = client.call("Streams/List", after).await.expect("a list");
    assert!(listed.streams.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_is_followed_until_the_server_stops() {
    let mut server = serving().await;
    let client = Client::of(&server);
    let asked = FollowStreamRequest { stream: "s".to_owned(), from: 1, ..FollowStreamRequest::default() };
    let mut follower: Streaming<FollowStreamResponse> = client.stream("Streams/Follow", asked).await.expect("a stream");
    let Some(follow_stream_response::Response::Started(started)) = next(&mut follower).await.response else {
        panic!("it does not say where it begins")
    };
    assert_eq!((started.from, started.head, started.clamped), (1, 2, false));
    append(&server, Verdicts::new("s", 4..6).include(annals_core::Included::new(5))).await;
    for (position, sequence_number) in [(1, 2), (2, 5)] {
        let Some(follow_stream_response::Response::Event(entry)) = next(&mut follower).await.response else {
            panic!("no entry {position}")
        };
        let event = entry.event.expect("an event");
        assert_eq!((entry.position, event.sequence_number), (position, sequence_number));
    }
    server.begin_stop();
    problem(&end(&mut follower).await, tonic::Code::Unavailable, Code::Closing);
    server.stopped().await;
}
