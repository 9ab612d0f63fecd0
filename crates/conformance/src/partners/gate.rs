//! A gate before the first batch of claims and the first batch of ends. It opens once enough attempts have reached it, so that their
//! writes gather regardless of the machine's speed.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use annals_core::bson::Bson;
use annals_core::partners::{DELIVERIES, PARTNER_EVENTS};
use annals_core::{RecordChange, RecordError, RecordPage, RecordQuery, Records, Revision};
use async_trait::async_trait;
use tokio::sync::watch;

use crate::tap::TapRecords;

/// How long the first batch waits. An attempt that found nobody waiting for it makes one look-up fewer, so there may never be enough; the
/// sizes of the batches then say whether enough have gathered.
const GATHERED_MAX: Duration = Duration::from_secs(10);

/// Batches of one kind.
struct Batches {
    /// How many look-ups of an entity's order the first batch waits for.
    after: usize,
    /// How many deliveries each batch claims or ends.
    sizes: Mutex<Vec<usize>>,
}

/// The gate, and counts of what has passed it.
pub(super) struct Gate {
    /// The number of look-ups. Each attempt looks up its entity's order before it claims its delivery, and again before it ends it if
    /// others can wait for it.
    looked_up: watch::Sender<usize>,
    claims: Batches,
    ends: Batches,
    /// Whether another process wins one of the next claims that share a batch.
    rival: AtomicBool,
    /// How often events of several deliveries were read together by their ids.
    reads: AtomicUsize,
}

impl Gate {
    /// Returns a gate that opens for claims and for ends after these numbers of look-ups.
    pub fn opening_after(claims: usize, ends: usize) -> Arc<Self> {
        Arc::new(Self {
            looked_up: watch::Sender::new(0),
            claims: Batches { after: claims, sizes: Mutex::default() },
            ends: Batches { after: ends, sizes: Mutex::default() },
            rival: AtomicBool::default(),
            reads: AtomicUsize::default(),
        })
    }

    /// Lets another process win the last claim of the next batch that claims several deliveries.
    pub fn expect_rival(&self) {
        self.rival.store(true, Ordering::SeqCst);
    }

    /// Returns the number of look-ups.
    pub fn look_ups(&self) -> usize {
        *self.looked_up.borrow()
    }

    /// Waits until there were this many look-ups.
    pub async fn has_seen(&self, look_ups: usize) {
        let _ = self.looked_up.subscribe().wait_for(|count| *count >= look_ups).await;
    }

    /// Returns how often the events of several deliveries were read together.
    pub fn reads(&self) -> usize {
        self.reads.load(Ordering::SeqCst)
    }

    /// Returns how many deliveries each batch claimed, in order.
    pub fn claims(&self) -> Vec<usize> {
        self.claims.sizes().clone()
    }

    /// Returns how many deliveries each batch ended, in order.
    pub fn ends(&self) -> Vec<usize> {
        self.ends.sizes().clone()
    }

    async fn pass(&self, batches: &Batches, size: usize) {
        let is_first = {
            let mut sizes = batches.sizes();
            sizes.push(size);
            sizes.len() == 1
        };
        if is_first {
            let _ = tokio::time::timeout(GATHERED_MAX, self.has_seen(batches.after)).await;
        }
    }
}

impl Batches {
    fn sizes(&self) -> MutexGuard<'_, Vec<usize>> {
        self.sizes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns whether a change sets this field of a delivery, to this value if one is given.
fn sets(change: &RecordChange, field: &str, wanted: Option<&Bson>) -> bool {
    let RecordChange::Set { collection, fields, .. } = change else { return false };
    let is_it = |(path, value): &(String, Bson)| path == field && wanted.is_none_or(|wanted| value == wanted);
    collection == DELIVERIES && fields.iter().any(is_it)
}

#[async_trait]
impl TapRecords for Gate {
    async fn write(&self, records: &dyn Records, changes: Vec<RecordChange>) -> Result<Vec<Revision>, RecordError> {
        let leased = Bson::Boolean(true);
        let is_claim = |change: &&RecordChange| sets(change, "leased", Some(&leased));
        let claims: Vec<RecordChange> = changes.iter().filter(is_claim).cloned().collect();
        let ends = changes.iter().filter(|change| sets(change, "ended", None)).count();
        if !claims.is_empty() {
            self.pass(&self.claims, claims.len()).await;
        }
        if ends > 0 {
            self.pass(&self.ends, ends).await;
        }
        if claims.len() > 1 && self.rival.swap(false, Ordering::SeqCst) {
            records.write(claims.into_iter().rev().take(1).collect()).await?;
        }
        records.write(changes).await
    }

    async fn find(&self, records: &dyn Records, query: RecordQuery) -> Result<RecordPage, RecordError> {
        let by_order = query.sort.first().is_some_and(|by| by.path == "order");
        let of_entity = query.collection == DELIVERIES && query.limit <= 2 && by_order;
        if query.collection == PARTNER_EVENTS && query.sort.is_empty() {
            self.reads.fetch_add(1, Ordering::SeqCst);
        }
        let found = records.find(query).await;
        if of_entity {
            self.looked_up.send_modify(|count| *count += 1);
        }
        found
    }
}
