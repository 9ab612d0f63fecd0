use annals::{Aggregate, DEFAULT_SCOPE, DEFAULT_TENANT, NewEvent, Store};

use super::*;
use crate::events::COMPLETED;
use crate::step::events_of;

/// A result processor on a store of its own.
struct Bench {
    /// Dropped, it closes.
    _store: Arc<dyn Store>,
    results: Results,
}

impl Bench {
    async fn new() -> Self {
        let store = annals::open("memory:").await.expect("opens");
        let log = store.log(DEFAULT_TENANT, DEFAULT_SCOPE).expect("always there");
        let records = store.records(DEFAULT_TENANT).expect("always there");
        crate::records::declare(&records).await.expect("declared");
        Self { _store: store, results: Results { log, records } }
    }

    async fn events(&self, id: &str) -> Vec<RecordedEvent> {
        events_of(&*self.results.log, &Aggregate::new(AGGREGATE, id)).await.expect("can be read").0
    }

    /// Ends an execution, has its end handled twice, and returns the type and the data of the one event that says so.
    async fn told(&self, id: &str, end: NewEvent) -> (String, Value) {
        self.results.log.commit(events::first_commit(id, "eva", end, "ended")).await.expect("is taken");
        let ended = self.events(id).await.remove(0);
        for _ in 0..2 {
            self.results.store(&ended).await.expect("is handled");
        }
        let mut events = self.events(id).await;
        assert_eq!(events.len(), 2, "it is told once");
        let told = events.remove(1);
        (told.event_type.to_string(), told.data.decode().expect("JSON"))
    }

    async fn stored(&self, id: &str) -> Option<ResultRecord> {
        let found = typed::<ResultRecord>(&self.results.records).get(id).await.expect("can be read");
        found.map(|found| found.value)
    }
}

/// An execution that ended well, with so many bytes of stdout and one of stderr.
fn completed(id: &str, stdout: usize) -> NewEvent {
    let data = json!({ "execution_id": id, "exit_code": 0, "stdout": "x".repeat(stdout), "stderr": "y" });
    events::event(COMPLETED, &data).expect("an object")
}

#[tokio::test]
async fn output_up_to_the_limit_is_stored_and_more_is_told_as_result_failed() {
    let bench = Bench::new().await;
    let (event_type, data) = bench.told("fits", completed("fits", OUTPUT_BYTES_MAX - 1)).await;
    assert_eq!((event_type.as_str(), &data["size_bytes"]), (RESULT_STORED, &json!(OUTPUT_BYTES_MAX)));
    let stored = bench.stored("fits").await.expect("it is stored");
    assert_eq!((stored.stdout.len(), stored.stderr.as_str()), (OUTPUT_BYTES_MAX - 1, "y"));
    let (event_type, data) = bench.told("large", completed("large", OUTPUT_BYTES_MAX)).await;
    assert_eq!(event_type, RESULT_FAILED);
    assert_eq!(data, json!({ "execution_id": "large", "storage_type": "database" }));
    assert_eq!(bench.stored("large").await, None, "nothing is stored in part");
}

#[tokio::test]
async fn an_end_that_cannot_be_read_is_told_as_result_failed() {
    let bench = Bench::new().await;
    let end = events::event(COMPLETED, &json!({ "execution_id": "x", "stdout": 7 })).expect("an object");
    let (event_type, _) = bench.told("x", end).await;
    assert_eq!((event_type.as_str(), bench.stored("x").await), (RESULT_FAILED, None));
}
