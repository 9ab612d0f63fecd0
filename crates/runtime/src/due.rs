//! Work that becomes due in a tenant without an event in this process: dead letters that are due or that another process changed, and
//! deliveries of replays that another process made possible. One task per process polls the store for all waiting owners and workers. It
//! does so only if other processes or hosts may have the store open.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use annals_core::bson::Bson;
use annals_core::dead_letters::{DEAD_LETTERS, DeadLetter};
use annals_core::replays::INBOX;
use annals_core::{Aggregation, GroupQuery, RecordError, Records, StoreError, Timestamp, limits};
use tokio::sync::watch;

use crate::host::{Ended, Shared, Supervised, hosts_started, is_set, locked, supervise};

/// How often the store is polled.
const EVERY: Duration = Duration::from_secs(2);
/// How often it is polled for deliveries of replays while there are some: another process that settles one makes the next one possible.
const INBOX_EVERY: Duration = Duration::from_millis(500);

/// The processors of a tenant for which something is due, as last read. Nothing is sent while nothing is due.
pub(crate) struct Due {
    letters: watch::Sender<BTreeSet<String>>,
    inbox: watch::Sender<BTreeSet<String>>,
}

/// A processor that waits until something is due.
pub(crate) struct Awaiting {
    processor: String,
    due: watch::Receiver<BTreeSet<String>>,
}

impl Awaiting {
    /// Waits until something is due for the processor. Cancel-safe.
    pub async fn due(&mut self) {
        loop {
            if self.due.changed().await.is_err() {
                // The host is gone.
                return std::future::pending().await;
            }
            if self.due.borrow_and_update().contains(&self.processor) {
                return;
            }
        }
    }
}

impl Due {
    /// Returns what is due in a tenant. The first call starts the polling.
    pub fn of(shared: &Arc<Shared>, tenant: &str, records: &Arc<dyn Records>) -> Arc<Self> {
        let mut tenants = locked(&shared.due);
        if let Some(known) = tenants.get(tenant) {
            return Arc::clone(known);
        }
        let (letters, inbox) = (watch::Sender::new(BTreeSet::new()), watch::Sender::new(BTreeSet::new()));
        let due = Arc::new(Self { letters, inbox });
        tenants.insert(tenant.to_owned(), Arc::clone(&due));
        let replayed = shared.replayed(tenant).subscribe();
        let watch = Watch { shared: Arc::clone(shared), records: Arc::clone(records), due: Arc::clone(&due), replayed };
        supervise(shared, format!("due/{tenant}"), watch);
        due
    }

    /// Returns a receiver for due dead letters of a processor.
    pub fn letters(&self, processor: &str) -> Awaiting {
        Awaiting { processor: processor.to_owned(), due: self.letters.subscribe() }
    }

    /// Returns a receiver for due deliveries of replays to a processor.
    pub fn inbox(&self, processor: &str) -> Awaiting {
        Awaiting { processor: processor.to_owned(), due: self.inbox.subscribe() }
    }
}

/// The task that polls.
struct Watch {
    shared: Arc<Shared>,
    records: Arc<dyn Records>,
    due: Arc<Due>,
    /// Greater than 0 once replays are in use.
    replayed: watch::Receiver<u64>,
}

impl Supervised for Watch {
    async fn run(&mut self) -> Ended {
        let (mut changed, mut stop) = (hosts_started(), self.shared.stop.subscribe());
        let mut letters_at = Timestamp::from_millis(0);
        while !*stop.borrow() {
            if !self.shared.may_share() {
                // Another host of this process may start on the same store.
                tokio::select! {
                    () = is_set(&mut stop) => {}
                    _ = changed.changed() => {}
                }
                continue;
            }
            let now = self.shared.options.clock.now();
            // If the clock was set back, do not wait until it reaches the old time again.
            letters_at = letters_at.min(now.plus(EVERY));
            let asked = async {
                if letters_at <= now {
                    let found = self.letters(now).await?;
                    send(&self.due.letters, found);
                }
                self.inbox(now).await
            };
            let has_deliveries = match asked.await {
                Ok(has_deliveries) => has_deliveries,
                Err(RecordError::Store(StoreError::Closed)) => return Ended::Done,
                Err(error) => {
                    tracing::debug!(%error, "cannot read what is due");
                    false
                }
            };
            if letters_at <= now {
                letters_at = now.plus(EVERY);
            }
            let look_at = if has_deliveries { letters_at.min(now.plus(INBOX_EVERY)) } else { letters_at };
            tokio::select! {
                () = is_set(&mut stop) => {}
                () = self.shared.options.clock.sleep_until(look_at) => {}
                () = self.shared.options.clock.sleep(look_at.since(now)) => {}
            }
        }
        Ended::Done
    }
}

impl Watch {
    /// Returns the processors that have due dead letters.
    async fn letters(&self, now: Timestamp) -> Result<BTreeSet<String>, RecordError> {
        let query = GroupQuery::new(DEAD_LETTERS).matching(DeadLetter::due_by(now));
        Ok(self.groups(query).await?.into_iter().map(|(processor, _)| processor).collect())
    }

    /// Wakes the workers of processors with deliveries that are ready. Returns whether there are any deliveries.
    async fn inbox(&self, now: Timestamp) -> Result<bool, RecordError> {
        if *self.replayed.borrow() == 0 {
            return Ok(false);
        }
        let query = GroupQuery::new(INBOX).figure("ready_at", Aggregation::Min, "ready_at");
        let found = self.groups(query).await?;
        let has_deliveries = !found.is_empty();
        let is_ready =
            |figures: &[Bson]| figures.first().and_then(Bson::as_i64).is_some_and(|at| at <= now.as_millis());
        let ready = found.into_iter().filter(|(_, figures)| is_ready(figures));
        send(&self.due.inbox, ready.map(|(processor, _)| processor).collect());
        Ok(has_deliveries)
    }

    /// Groups records by their processor.
    async fn groups(&self, query: GroupQuery) -> Result<Vec<(String, Vec<Bson>)>, RecordError> {
        let mut query = query.by("processor").limit(limits::PAGE_MAX);
        let mut found = Vec::new();
        loop {
            let page = match self.records.group(query.clone()).await {
                Err(RecordError::UnknownCollection(_)) => return Ok(found),
                page => page?,
            };
            found.extend(page.groups.into_iter().filter_map(|group| match group.key {
                Bson::String(processor) => Some((processor, group.figures)),
                _ => None,
            }));
            let Some(cursor) = page.next else { return Ok(found) };
            query = query.after(cursor);
        }
    }
}

fn send(to: &watch::Sender<BTreeSet<String>>, processors: BTreeSet<String>) {
    if !processors.is_empty() {
        to.send_replace(processors);
    }
}
