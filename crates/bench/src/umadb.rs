//! Measures UmaDB's engine in this process. Its `append_batch` makes one durable commit of many requests, so a thread batches waiting
//! requests, as its server does. The aggregate is a tag, with a condition on it after the last position that the writer saw. The request
//! id is the event's own id.

use std::path::Path;
use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};
use umadb_core::db::UmaDb;
use umadb_dcb::{DcbAppendCondition, DcbEvent, DcbQuery, DcbQueryItem};
use uuid::Uuid;

use crate::cell::{Cell, Commits, Measured, run};
use crate::workload::{Row, Turn, Writer, payloads};

/// Most events in one durable commit, as in its server.
const BATCH_EVENTS: usize = 2_048;

/// The type of every event.
pub const EVENT_TYPE: &str = "order_placed";

/// Opens the store in `folder` with the settings that it ships with.
pub fn open(folder: &Path) -> Result<Arc<UmaDb>, String> {
    let opened = without_its_greeting(|| UmaDb::new(folder.join("uma.db"))).map_err(|error| error.to_string())?;
    opened.map(Arc::new).map_err(|error| error.to_string())
}

/// Opens the engine with standard output redirected. The engine prints its settings there, where only our report belongs.
fn without_its_greeting<T>(open: impl FnOnce() -> T) -> std::io::Result<T> {
    let output = rustix::io::dup(std::io::stdout())?;
    rustix::stdio::dup2_stdout(std::fs::File::create("/dev/null")?)?;
    let opened = open();
    rustix::stdio::dup2_stdout(output)?;
    Ok(opened)
}

/// Returns a query for everything with this tag.
pub fn query(tag: &str) -> DcbQuery {
    DcbQuery::new().item(DcbQueryItem::new().tags([tag]))
}

/// Returns the events of a turn, and their append condition.
pub fn request(turn: &Turn, payloads: &[String], events: usize) -> (Vec<DcbEvent>, DcbAppendCondition) {
    let event = |offset: usize| {
        DcbEvent::new()
            .event_type(EVENT_TYPE)
            .tags([turn.aggregate_id.as_str()])
            .data(payloads[(turn.payload + offset) % payloads.len()].as_bytes())
            .uuid(Uuid::from_u128(turn.request_number | offset as u128))
    };
    let condition = DcbAppendCondition::new(query(&turn.aggregate_id)).after(Some(turn.expected_version));
    ((0..events).map(event).collect(), condition)
}

struct Waiting {
    events: Vec<DcbEvent>,
    condition: Option<DcbAppendCondition>,
    appended: oneshot::Sender<Result<u64, String>>,
}

/// The thread that batches waiting requests and appends each batch as one.
pub struct Gatherer {
    queue: mpsc::UnboundedSender<Waiting>,
}

impl Gatherer {
    /// Starts the thread, which ends when the last clone is dropped.
    pub fn start(store: Arc<UmaDb>) -> Self {
        let (queue, waiting) = mpsc::unbounded_channel();
        std::thread::spawn(move || gather(&store, waiting));
        Self { queue }
    }

    /// Appends the events. Returns the position of the last one, once it is durable.
    pub async fn append(&self, events: Vec<DcbEvent>, condition: Option<DcbAppendCondition>) -> Result<u64, String> {
        let (appended, answer) = oneshot::channel();
        let ended = || "UmaDB's writer ended".to_owned();
        self.queue.send(Waiting { events, condition, appended }).map_err(|_| ended())?;
        answer.await.map_err(|_| ended())?
    }
}

impl Clone for Gatherer {
    fn clone(&self) -> Self {
        Self { queue: self.queue.clone() }
    }
}

fn gather(store: &UmaDb, mut waiting: mpsc::UnboundedReceiver<Waiting>) {
    while let Some(first) = waiting.blocking_recv() {
        let mut next = Some(first);
        let mut gathered = 0;
        let (mut items, mut answers) = (Vec::new(), Vec::new());
        while let Some(Waiting { events, condition, appended }) = next {
            gathered += events.len();
            items.push((events, condition, None));
            answers.push(appended);
            next = if gathered < BATCH_EVENTS { waiting.try_recv().ok() } else { None };
        }
        match store.append_batch(items) {
            Ok(results) => {
                for (answer, result) in answers.into_iter().zip(results) {
                    // A writer whose time is up no longer listens.
                    let _ = answer.send(result.map_err(|error| error.to_string()));
                }
            }
            Err(error) => {
                for answer in answers {
                    let _ = answer.send(Err(error.to_string()));
                }
            }
        }
    }
}

struct Library {
    gatherer: Gatherer,
    payloads: Arc<Vec<String>>,
    writer: Writer,
    events: usize,
}

impl Commits for Library {
    async fn commit(&mut self) -> Result<(), String> {
        let turn = self.writer.turn();
        let (events, condition) = request(&turn, &self.payloads, self.events);
        let last = self.gatherer.append(events, Some(condition)).await?;
        self.writer.appended(&turn, last, self.events)
    }
}

/// Measures a new store in `folder`.
pub async fn measure(row: &Row, cell: &Cell, folder: &Path) -> Result<Measured, String> {
    let gatherer = Gatherer::start(open(folder)?);
    let payloads = Arc::new(payloads());
    let writer = |number| Library {
        gatherer: gatherer.clone(),
        payloads: Arc::clone(&payloads),
        writer: Writer::new(number, row),
        events: row.events,
    };
    run(cell, (0..row.writers).map(writer).collect()).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_commit_behind_a_stale_position_is_refused() -> Result<(), String> {
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        let gatherer = Gatherer::start(open(folder.path())?);
        let mut writer = Writer::new(0, &Row { writers: 1, events: 1 });
        let first = writer.turn();
        // Another request to the same aggregate that has not seen the first one.
        let mut second = writer.turn();
        second.aggregate_id.clone_from(&first.aggregate_id);
        for (turn, admitted) in [(first, true), (second, false)] {
            let (events, condition) = request(&turn, &payloads(), 1);
            let answer = gatherer.append(events, Some(condition)).await;
            assert_eq!(answer.is_ok(), admitted, "{answer:?}");
        }
        Ok(())
    }
}
