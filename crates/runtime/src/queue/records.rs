//! Work queues whose items are records: the adapter that works on every store.
//!
//! Concurrent callers of one queue share a turn, which applies all waiting requests to the queue's state in memory, and makes the result
//! durable with one batch of records. INVARIANT: each batch expects the ledger with which the turn began, so of two processes one
//! succeeds, and the other reads again.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use annals_core::queue::{
    Enqueued, ItemPage, ItemRef, ItemResult, ItemStatus, ItemsQuery, NewItem, QueueCounts, QueueDefinition, QueueError,
    QueueItemRecord, QueueLedgerRecord, QueuePayloadRecord, QueuePriority, Taken, WorkQueue,
};
use annals_core::{Clock, RecordType, Records};
use async_trait::async_trait;
use tokio::sync::{OnceCell, oneshot};

use super::turn::{Answer, Ask, Known, Request, turn};
use crate::host::locked;

/// The queues of one tenant, stored as records.
pub struct RecordsQueue {
    place: Arc<Place>,
    queues: Mutex<BTreeMap<String, Arc<One>>>,
    declared: OnceCell<()>,
}

/// The records and the clock of queues.
pub(super) struct Place {
    pub records: Arc<dyn Records>,
    pub clock: Arc<dyn Clock>,
}

/// One queue.
#[derive(Default)]
struct One {
    waiting: Mutex<Vec<Request>>,
    known: tokio::sync::Mutex<Option<Known>>,
}

/// The most weight of one turn, so that its changes stay within the limits of a batch of records.
const WEIGHT_MAX: usize = 2_000;
/// The weight of an enqueued item, whose payload may be large.
const WEIGHT_OF_PAYLOAD: usize = 20;

impl RecordsQueue {
    /// Creates the queues whose items are in these records.
    pub fn new(records: Arc<dyn Records>, clock: Arc<dyn Clock>) -> Self {
        let place = Arc::new(Place { records, clock });
        Self { place, queues: Mutex::default(), declared: OnceCell::new() }
    }

    async fn declare(&self) -> Result<(), QueueError> {
        let records = &self.place.records;
        let declared = self.declared.get_or_try_init(async || {
            records.declare(QueueLedgerRecord::collection()).await?;
            records.declare(QueueItemRecord::collection()).await?;
            records.declare(QueuePayloadRecord::collection()).await?;
            Ok::<_, QueueError>(())
        });
        declared.await.copied()
    }

    /// Submits a request to the next turn of the queue, and waits for the answer. The turn runs to completion even if the caller goes
    /// away.
    async fn ask(&self, queue: &QueueDefinition, ask: Ask) -> Result<Answer, QueueError> {
        self.declare().await?;
        let one = Arc::clone(locked(&self.queues).entry(queue.name.to_string()).or_default());
        let (answer, answered) = oneshot::channel();
        locked(&one.waiting).push(Request { queue: queue.clone(), ask, answer });
        let place = Arc::clone(&self.place);
        tokio::spawn(async move {
            let mut known = one.known.lock().await;
            // Another caller's turn has answered it.
            if locked(&one.waiting).is_empty() {
                return;
            }
            // Let the callers that the last turn answered run first, so that one batch takes their next requests along with those that
            // were waiting.
            tokio::task::yield_now().await;
            turn(&place, &mut known, one.next_turn()).await;
        });
        let ended = |_| QueueError::Unavailable("the request was interrupted; retry".to_owned());
        answered.await.map_err(ended)?
    }
}

impl One {
    /// Takes the requests of the next turn. Each caller starts a turn, so the remaining requests are taken by a turn that is already
    /// queued.
    fn next_turn(&self) -> Vec<Request> {
        let mut waiting = locked(&self.waiting);
        let mut weight = 0;
        let many = waiting.iter().take_while(|request| {
            weight += request.ask.weight();
            weight <= WEIGHT_MAX
        });
        let many = many.count().max(1).min(waiting.len());
        waiting.drain(..many).collect()
    }
}

impl Ask {
    fn weight(&self) -> usize {
        match self {
            Self::Enqueue(_) => WEIGHT_OF_PAYLOAD,
            Self::Take { max, .. } => *max,
            Self::Renew { items, .. } | Self::Done(items) | Self::Release(items) => items.len(),
            Self::Prioritise(..) | Self::Cancel(_) | Self::Clear => 1,
            Self::Item(_) | Self::Items(_) | Self::Counts => 0,
        }
    }
}

macro_rules! answer_of {
    ($answer:expr, $kind:ident) => {
        match $answer {
            Answer::$kind(value) => Ok(value),
            _ => Err(QueueError::Unavailable("a turn returned an answer of another kind".to_owned())),
        }
    };
}

#[async_trait]
impl WorkQueue for RecordsQueue {
    async fn enqueue(&self, queue: &QueueDefinition, item: &NewItem) -> Result<Enqueued, QueueError> {
        answer_of!(self.ask(queue, Ask::Enqueue(item.clone())).await?, Enqueued)
    }

    async fn take(
        &self,
        queue: &QueueDefinition,
        max: usize,
        lease: Duration,
        worker: &str,
    ) -> Result<Taken, QueueError> {
        answer_of!(self.ask(queue, Ask::Take { max, lease, worker: worker.into() }).await?, Taken)
    }

    async fn renew(
        &self,
        queue: &QueueDefinition,
        items: &[ItemRef],
        lease: Duration,
    ) -> Result<Vec<ItemResult>, QueueError> {
        answer_of!(self.ask(queue, Ask::Renew { items: items.to_vec(), lease }).await?, Results)
    }

    async fn done(&self, queue: &QueueDefinition, items: &[ItemRef]) -> Result<Vec<ItemResult>, QueueError> {
        answer_of!(self.ask(queue, Ask::Done(items.to_vec())).await?, Results)
    }

    async fn release(&self, queue: &QueueDefinition, items: &[ItemRef]) -> Result<Vec<ItemResult>, QueueError> {
        answer_of!(self.ask(queue, Ask::Release(items.to_vec())).await?, Results)
    }

    async fn prioritise(
        &self,
        queue: &QueueDefinition,
        id: &str,
        priority: QueuePriority,
    ) -> Result<ItemStatus, QueueError> {
        answer_of!(self.ask(queue, Ask::Prioritise(id.into(), priority)).await?, Item)
    }

    async fn cancel(&self, queue: &QueueDefinition, id: &str) -> Result<ItemStatus, QueueError> {
        answer_of!(self.ask(queue, Ask::Cancel(id.into())).await?, Item)
    }

    async fn item(&self, queue: &QueueDefinition, id: &str) -> Result<ItemStatus, QueueError> {
        answer_of!(self.ask(queue, Ask::Item(id.into())).await?, Item)
    }

    async fn items(&self, queue: &QueueDefinition, query: &ItemsQuery) -> Result<ItemPage, QueueError> {
        answer_of!(self.ask(queue, Ask::Items(query.clone())).await?, Page)
    }

    async fn counts(&self, queue: &QueueDefinition) -> Result<QueueCounts, QueueError> {
        answer_of!(self.ask(queue, Ask::Counts).await?, Counts)
    }

    async fn clear(&self, queue: &QueueDefinition) -> Result<(), QueueError> {
        answer_of!(self.ask(queue, Ask::Clear).await?, Cleared)
    }
}
