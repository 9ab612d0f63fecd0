use annals::{DEFAULT_SCOPE, DEFAULT_TENANT, Data, LogQuery, NewCommit, NewEvent, Store};
use serde_json::json;

use super::*;

async fn store() -> (Arc<dyn Store>, Arc<dyn EventLog>) {
    let store = annals::open("memory:").await.expect("opens");
    let log = store.log(DEFAULT_TENANT, DEFAULT_SCOPE).expect("always there");
    (store, log)
}

async fn committed(log: &Arc<dyn EventLog>, id: &str, n: usize) -> Vec<RecordedEvent> {
    for _ in 0..n {
        let data = Data::from_value(&json!({ "execution_id": id, "pod_name": "p" })).expect("an object");
        log.commit(NewCommit::new(AGGREGATE, id).event(NewEvent::new("execution_running", data))).await.expect("taken");
    }
    log.read(LogQuery { limit: 1_000, ..LogQuery::default() }).await.expect("read").events
}

#[tokio::test]
async fn a_slow_client_is_cut_off_at_its_buffer_and_others_get_every_event() {
    let (_store, log) = store().await;
    let events = committed(&log, "x-1", BUFFER * 3).await;
    let hub = Hub::default();
    let mut slow = hub.subscribe(Topic::Execution("x-1".to_owned()));
    let mut fast = hub.subscribe(Topic::Execution("x-1".to_owned()));
    for (n, event) in events.iter().enumerate() {
        hub.publish(event);
        assert_eq!(fast.recv().await.expect("goes on").sequence_number, n as u64);
    }
    assert_eq!(hub.streams(), 1, "the slow one holds nobody up and no memory grows");
    for n in 0..BUFFER {
        assert_eq!(slow.recv().await.expect("is buffered").sequence_number, n as u64);
    }
    assert!(slow.recv().await.is_none(), "it learns that it fell behind, and reads the rest from the log");
}

#[tokio::test]
async fn streams_of_clients_that_are_gone_are_forgotten() {
    let (_store, log) = store().await;
    let events = committed(&log, "x-1", 1).await;
    let hub = Hub::default();
    drop(hub.subscribe(Topic::Execution("x-1".to_owned())));
    drop(hub.subscribe(Topic::Execution("x-2".to_owned())));
    assert_eq!(hub.streams(), 2);
    hub.publish(&events[0]);
    assert_eq!(hub.streams(), 1, "by the next event of the execution");
    hub.locked().count(events.len());
    assert_eq!(hub.streams(), 1, "not by each event");
    hub.locked().count(10_000);
    assert_eq!(hub.streams(), 0, "or after many events of others");
}

#[tokio::test]
async fn clients_that_connect_again_and_again_while_nothing_happens_are_forgotten() {
    let hub = Hub::default();
    let held = hub.subscribe(Topic::Execution("held".to_owned()));
    let mut most = 0;
    for n in 0..5_000 {
        drop(hub.subscribe(Topic::Execution(format!("x-{n}"))));
        most = most.max(hub.streams());
    }
    assert!(most < 1_100, "{most} streams were kept");
    assert!(!held.is_closed(), "a client that is there stays");
}

#[test]
fn the_types_are_the_17_of_integr8scode() {
    assert_eq!(types().len(), 17);
    assert!(LAST.iter().all(|last| BRIDGED.contains(last)));
}
