use std::time::Duration;

use annals::runtime::{Host, HostOptions};
use annals::{DEFAULT_SCOPE, Data, NewCommit, NewEvent};

use super::*;
use crate::bridge::{BUFFER, Hub};
use crate::lines::Lines;
use crate::users::Users;

/// Nothing waits for it to pass.
const DEADLINE: Duration = Duration::from_secs(60);

/// A bridge whose hub is fed by the test.
async fn bridge() -> (Bridge, watch::Sender<bool>) {
    let store = annals::open("memory:").await.expect("opens");
    let (stop, stopping) = watch::channel(false);
    let bridge = Bridge {
        log: store.log(DEFAULT_TENANT, DEFAULT_SCOPE).expect("always there"),
        from: 0,
        records: store.records(DEFAULT_TENANT).expect("always there"),
        host: Host::start(store, HostOptions::default()),
        users: Users::default(),
        lines: Lines::to(Box::new(std::io::sink())).expect("starts"),
        ping: DEADLINE,
        stopping,
        hub: Hub::default(),
    };
    (bridge, stop)
}

/// A stream of an execution that has just subscribed.
fn subscribed(bridge: &Bridge, id: &str) -> Events {
    let topic = Topic::Execution(id.to_owned());
    let aggregate = Some(AggregateFilter { name: AGGREGATE.into(), id: Some(id.into()) });
    let filter = Filter { types: types(), aggregate, ..Filter::default() };
    let live = Some(bridge.hub.subscribe(topic.clone()));
    Events { after: None, live, read: VecDeque::new(), filter, topic }
}

/// Commits an event to each of these executions in turn, so many times.
async fn committed(bridge: &Bridge, ids: &[&str], times: usize) -> Vec<RecordedEvent> {
    for _ in 0..times {
        for id in ids {
            let data = Data::from_value(&json!({ "execution_id": id, "pod_name": "p" })).expect("an object");
            let commit = NewCommit::new(AGGREGATE, *id).event(NewEvent::new("execution_running", data));
            bridge.log.commit(commit).await.expect("taken");
        }
    }
    bridge.log.read(LogQuery { limit: limits::PAGE_MAX, ..LogQuery::default() }).await.expect("can be read").events
}

#[tokio::test]
async fn a_slow_stream_reads_what_it_missed_from_the_log_loses_none_and_subscribes_again() {
    let (bridge, _stop) = bridge().await;
    let mut events = subscribed(&bridge, "x-1");
    let log = committed(&bridge, &["x-1", "x-2"], BUFFER * 2 + 3).await;
    // Nobody reads the stream meanwhile.
    log.iter().for_each(|event| bridge.hub.publish(event));
    assert_eq!(bridge.hub.streams(), 0, "it was cut off");
    let of_it = log.iter().filter(|event| &*event.commit.aggregate.id == "x-1");
    let due: Vec<_> = of_it.map(|event| event.sequence_number).collect();
    let mut sent = Vec::new();
    while sent.len() < due.len() {
        let next = tokio::time::timeout(DEADLINE, events.next(&bridge)).await.expect("comes in time");
        sent.push(next.expect("can be read").sequence_number);
    }
    assert_eq!(sent, due);
    // The log does not hold this one, so that only the hub can bring it.
    let mut live = log[0].clone();
    live.sequence_number = log.len() as u64;
    let published = async {
        while bridge.hub.streams() == 0 {
            tokio::task::yield_now().await;
        }
        bridge.hub.publish(&live);
    };
    let both = async { tokio::join!(events.next(&bridge), published) };
    let (next, ()) = tokio::time::timeout(DEADLINE, both).await.expect("comes in time");
    assert_eq!(next.expect("can be read").sequence_number, live.sequence_number);
    assert!(events.live.is_some() && bridge.hub.streams() == 1);
}

/// Whenever an event comes while a client connects: before the log is read, in between, and after it.
#[tokio::test]
async fn statement_100_an_event_that_comes_while_a_client_connects_is_sent_once_or_is_part_of_the_status() {
    let (bridge, _stop) = bridge().await;
    let earlier = committed(&bridge, &["x-1"], 1).await;
    let mut events = subscribed(&bridge, "x-1");
    // One is published before the log is read, and one is published late.
    let meanwhile = committed(&bridge, &["x-1"], 2).await.split_off(earlier.len());
    bridge.hub.publish(&meanwhile[0]);
    events.pass_to_head(&bridge).await.expect("can be read");
    assert_eq!(events.after, Some(2), "the status tells of both");
    bridge.hub.publish(&meanwhile[1]);
    // One comes after the log was read.
    let later = committed(&bridge, &["x-1"], 1).await.pop().expect("the last one");
    bridge.hub.publish(&later);
    let next = tokio::time::timeout(DEADLINE, events.next(&bridge)).await.expect("comes in time");
    assert_eq!(next.expect("can be read").sequence_number, later.sequence_number);
    let live = events.live.as_mut().expect("it lags by nothing");
    assert!(live.try_recv().is_err(), "nothing is sent twice");
}

#[tokio::test]
async fn statement_100_a_stream_subscribes_before_it_looks_at_the_log() {
    let (bridge, _stop) = bridge().await;
    let bridge = Arc::new(bridge);
    let unknown = of_execution(State(Arc::clone(&bridge)), Path("nothing".to_owned()), HeaderMap::new()).await;
    assert!(unknown.is_err(), "there is no such execution");
    assert_eq!(bridge.hub.streams(), 1, "it had subscribed before it found out");
}
