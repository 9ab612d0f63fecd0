//! Group commit: concurrent inserts into one collection are gathered into unordered bulk inserts, and each caller gets its own outcome.
//!
//! ```text
//! callers ─▶ lane of the collection ─▶ batch ─▶ insert, majority and journal ─▶ outcome of each
//!              gathers while batches are in flight   │
//!                        smaller batches ◀───────────┘ what waits for another's transaction (blocked.rs)
//! ```

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use annals_core::SyncCounter;
use annals_system::Instant;
use mongodb::Database;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use uuid::Uuid;

use super::batch::{self, Outcome};
use super::blocked::Blocked;

/// Maximum number of documents in a batch.
const BATCH_MAX: usize = 512;
/// Maximum size of a batch in bytes: all documents are in one command, for which MongoDB's limit is 16 MiB.
const BATCH_BYTES_MAX: usize = 12 * 1024 * 1024;
/// While fewer documents than this are in flight, more batches are sent concurrently: waiting would cost more than batching gains.
const FEW: usize = 8;
/// Maximum number of batches in flight: the first while they are small, the second while more is pending than fits into one batch or a
/// batch is slow. Otherwise there is one, and what arrives meanwhile forms the next: a batch costs the server as much as about thirty
/// documents in it.
const FLIGHTS: (usize, usize) = (4, 2);
/// After this time, a batch in flight no longer delays others: one of its documents may be waiting for another transaction.
const SLOW: Duration = Duration::from_millis(50);
/// Maximum number of scheduler turns in which callers answered by a batch may join the next one.
const TURNS: usize = 64;

/// A document to insert.
pub(super) struct Insert {
    pub(super) id: String,
    pub(super) document: Vec<u8>,
    /// The UUID of the collection whose indexes were checked.
    pub(super) into: Uuid,
    pub(super) answer: oneshot::Sender<Outcome>,
    /// It is sent before this time, or answered as not sent.
    pub(super) sent_by: Instant,
    /// Whether it was sent before and was not stored.
    pub(super) sent: bool,
}

/// The lanes of a database, one for each collection that is inserted into.
pub(crate) struct Bulk {
    database: Database,
    outcome_time: Duration,
    lanes: Mutex<HashMap<String, mpsc::UnboundedSender<Insert>>>,
    pub(super) counts: Arc<Counts>,
}

/// Counters since the store was opened.
#[derive(Default)]
pub(super) struct Counts {
    pub(super) batches: AtomicU64,
    /// Durations of the acknowledgements.
    pub(super) times: SyncCounter,
    pub(super) stored: AtomicU64,
    pub(super) bytes: AtomicU64,
}

impl Counts {
    /// Records a batch that was answered, with the number of documents stored and their bytes.
    pub(super) fn batch(&self, stored: u64, bytes: usize) {
        self.batches.fetch_add(1, Ordering::Relaxed);
        self.stored.fetch_add(stored, Ordering::Relaxed);
        self.bytes.fetch_add(if stored > 0 { bytes as u64 } else { 0 }, Ordering::Relaxed);
    }
}

impl Bulk {
    pub(crate) fn new(database: Database, outcome_time: Duration) -> Self {
        Self { database, outcome_time, lanes: Mutex::default(), counts: Arc::default() }
    }

    /// Inserts a document with the next batch of its collection. The caller bounds how many are pending.
    pub(crate) async fn insert(&self, collection: &str, into: Uuid, id: String, document: Vec<u8>) -> Outcome {
        let (answer, answered) = oneshot::channel();
        let sent_by = Instant::now() + self.outcome_time;
        let mut insert = Insert { id, document, into, answer, sent_by, sent: false };
        // A lane ends with the runtime on which it was created; a store may be used from a later one.
        for _ in 0..2 {
            match self.lane(collection).send(insert) {
                Ok(()) => {
                    return answered.await.unwrap_or_else(|_| Outcome::Unknown("its task has ended".to_owned()));
                }
                Err(mpsc::error::SendError(back)) => insert = back,
            }
            self.lanes.lock().unwrap_or_else(PoisonError::into_inner).remove(collection);
        }
        Outcome::Unknown("its task has ended".to_owned())
    }

    fn lane(&self, collection: &str) -> mpsc::UnboundedSender<Insert> {
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        let lane = lanes.entry(collection.to_owned()).or_insert_with(|| {
            let (sender, receiver) = mpsc::unbounded_channel();
            let lane = Lane {
                database: self.database.clone(),
                collection: collection.to_owned(),
                counts: self.counts.clone(),
                outcome_time: self.outcome_time,
            };
            tokio::spawn(run(Arc::new(lane), receiver));
            sender
        });
        lane.clone()
    }
}

/// The target of the batches of one collection.
pub(super) struct Lane {
    database: Database,
    collection: String,
    counts: Arc<Counts>,
    outcome_time: Duration,
}

/// Sends batches until all senders are gone and all inserts are answered.
async fn run(lane: Arc<Lane>, mut queue: mpsc::UnboundedReceiver<Insert>) {
    let mut waiting = VecDeque::new();
    let mut blocked = Blocked::default();
    let mut flights = JoinSet::new();
    let mut under_way = 0;
    // When nothing was in flight last.
    let mut since = Instant::now();
    let mut open = true;
    while open || !waiting.is_empty() || !flights.is_empty() || !blocked.is_empty() {
        tokio::select! {
            insert = queue.recv(), if open => match insert {
                Some(insert) => waiting.push_back(insert),
                None => open = false,
            },
            Some(ended) = flights.join_next() => {
                let (count, left) = ended.unwrap_or_default();
                under_way -= count;
                blocked.add(left);
            }
            () = blocked.landed() => {}
            () = (since + SLOW).comes(), if flights.len() == 1 && !waiting.is_empty() => {}
        }
        // Callers that the last batch answered may join the next one. They arrive one after the other, so this continues as long as each
        // scheduler turn brings some.
        for _ in 0..TURNS {
            tokio::task::yield_now().await;
            let before = waiting.len();
            while let Ok(insert) = queue.try_recv() {
                waiting.push_back(insert);
            }
            if waiting.len() == before || fitting(&waiting) < waiting.len() {
                break;
            }
        }
        give_back_late(&mut waiting);
        if flights.is_empty() {
            since = Instant::now();
        }
        while !waiting.is_empty() && flights.len() < flights_max(under_way, &waiting, since) {
            let batch: Vec<Insert> = waiting.drain(..fitting(&waiting)).collect();
            let count = batch.len();
            under_way += count;
            let lane = lane.clone();
            flights.spawn(async move { (count, fly(&lane, batch).await) });
        }
        blocked.send(&lane);
    }
}

/// Answers overdue inserts: those queued after a batch without a response must not wait forever.
fn give_back_late(waiting: &mut VecDeque<Insert>) {
    while waiting.front().is_some_and(|oldest| oldest.sent_by <= Instant::now()) {
        let late = waiting.pop_front().map(|late| late.answer.send(Outcome::NotSent));
        debug_assert!(late.is_some(), "there was one");
    }
}

fn flights_max(under_way: usize, waiting: &VecDeque<Insert>, since: Instant) -> usize {
    if under_way < FEW {
        FLIGHTS.0
    } else if fitting(waiting) < waiting.len() || since.elapsed() >= SLOW {
        FLIGHTS.1
    } else {
        1
    }
}

/// Returns how many of the pending inserts form a batch.
fn fitting(waiting: &VecDeque<Insert>) -> usize {
    let mut bytes = 0;
    let fits = |insert: &&Insert| {
        bytes += insert.document.len();
        bytes <= BATCH_BYTES_MAX
    };
    let count = waiting.iter().take(BATCH_MAX).take_while(fits).count();
    // A single document is accepted whatever its size.
    count.max(1).min(waiting.len())
}

/// Sends a batch, answers every caller whose outcome is known, and returns the other inserts, which are not stored.
pub(super) async fn fly(lane: &Lane, inserts: Vec<Insert>) -> Vec<Insert> {
    let Lane { database, collection, counts, outcome_time } = lane;
    // An insert that was sent before only has the rest of its time.
    let rest = |insert: &Insert| if insert.sent { insert.sent_by - Instant::now() } else { *outcome_time };
    let time = inserts.iter().map(rest).max().unwrap_or_default();
    let began = Instant::now();
    let known = batch::send(database, collection, &inserts, time).await;
    counts.times.synced(began.elapsed());
    counts.batches.fetch_add(1, Ordering::Relaxed);
    let mut left = Vec::new();
    for (mut insert, outcome) in inserts.into_iter().zip(known) {
        let Some(outcome) = outcome else {
            insert.sent = true;
            left.push(insert);
            continue;
        };
        if matches!(outcome, Outcome::Stored) {
            counts.stored.fetch_add(1, Ordering::Relaxed);
            counts.bytes.fetch_add(insert.document.len() as u64, Ordering::Relaxed);
        }
        // If the caller is gone, its commit is stored nonetheless.
        let _ = insert.answer.send(outcome);
    }
    left
}
