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
