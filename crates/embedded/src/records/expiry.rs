//! Deletes expired records.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;

use annals_core::bson::{Bson, DateTime};
use annals_core::order::{Direction, TypeOrder, encoded, invert};
use annals_core::{RecordError, StoreError};

use super::catalog::{CatalogCache, KnownIndex};
use super::totals::Totals;
use super::{entries, keys, write};
use crate::Options;
use crate::engine::{Engine, Range};

/// The most records deleted by one write, so that other writes need not wait long.
const DELETED_AT_ONCE: usize = 500;

/// The thread that deletes expired records.
pub(super) struct Expiry {
    sweeper: Arc<Sweeper>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Sweeper {
    engine: Arc<Engine>,
    catalogs: Arc<CatalogCache>,
    totals: Arc<Totals>,
    options: Options,
    ended: Mutex<bool>,
    wake: Condvar,
}

impl Expiry {
    pub(super) fn new(engine: Arc<Engine>, catalogs: Arc<CatalogCache>, totals: Arc<Totals>, options: Options) -> Self {
        let (ended, wake) = (Mutex::new(false), Condvar::new());
        let sweeper = Sweeper { engine, catalogs, totals, options, ended, wake };
        Self { sweeper: Arc::new(sweeper), thread: Mutex::new(None) }
    }

    /// Starts the thread, unless it is running or was ended.
    pub(super) fn start(&self) {
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if thread.is_some() || *self.sweeper.ended.lock().unwrap_or_else(PoisonError::into_inner) {
            return;
        }
        let sweeper = self.sweeper.clone();
        match std::thread::Builder::new().name("annals-expiry".to_owned()).spawn(move || sweeper.run()) {
            Ok(started) => *thread = Some(started),
            Err(error) => {
                tracing::error!(%error, "cannot start the thread that deletes expired records; they are kept")
            }
        }
    }

    /// Ends the thread. Blocks until it has ended.
    pub(super) fn close(&self) {
        *self.sweeper.ended.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.sweeper.wake.notify_all();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }
}

impl Drop for Expiry {
    fn drop(&mut self) {
        self.close();
    }
}

impl Sweeper {
    fn run(&self) {
        loop {
            match self.sweep() {
                Ok(()) => {}
                Err(RecordError::Store(StoreError::Closed | StoreError::ReadOnly(_))) => return,
                Err(error) => tracing::warn!(%error, "expired records could not be deleted; retrying"),
            }
            let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
            let every = self.options.expiry_every;
            let (ended, _) =
                self.wake.wait_timeout_while(ended, every, |ended| !*ended).unwrap_or_else(PoisonError::into_inner);
            if *ended {
                return;
            }
        }
    }

    /// Deletes everything that has expired by now.
    fn sweep(&self) -> Result<(), RecordError> {
        let catalog = self.engine.read(|view| self.catalogs.of(view))?;
        for (name, collection) in catalog.collections() {
            for known in &collection.indexes {
                let Some(seconds) = known.index.expires_after_seconds() else { continue };
                let until = self.options.clock.now().as_millis().saturating_sub(i64::from(seconds) * 1_000);
                while !self.is_ended() && self.delete_some(name, known, until)? {}
            }
        }
        Ok(())
    }

    fn is_ended(&self) -> bool {
        *self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Deletes some records whose date is not after `until`. Returns whether there may be more.
    fn delete_some(&self, collection: &str, known: &KnownIndex, until: i64) -> Result<bool, RecordError> {
        let range = expired_range(known, until);
        let ids = self.engine.read(|view| {
            let found = view.ascending(&range)?.take(DELETED_AT_ONCE);
            let id = |entry: Result<(Vec<u8>, Vec<u8>), StoreError>| {
                let (key, value) = entry?;
                Ok(entries::id_of(known, &key, &value))
            };
            found.map(id).collect::<Result<Vec<_>, StoreError>>()
        })?;
        if ids.is_empty() {
            return Ok(false);
        }
        let more = ids.len() == DELETED_AT_ONCE;
        let (catalogs, totals, options) = (self.catalogs.clone(), self.totals.clone(), self.options.clone());
        let (collection, index) = (collection.to_owned(), known.index.name().to_owned());
        self.engine.write_blocking(move |map| {
            let ids = ids.into_iter().flatten();
            let expired = |known: &KnownIndex, entry: &[u8]| is_expired(known, entry, until);
            write::delete_expired(map, &catalogs, &totals, &options, (&*collection, &*index), ids, expired)
        })?;
        Ok(more)
    }
}

/// Returns the range of entries with dates up to `until`.
fn expired_range(known: &KnownIndex, until: i64) -> Range {
    let prefix = keys::entries(known.id);
    let mut first = vec![TypeOrder::DateTime as u8];
    let mut last = date(until);
    if known.fields().first().is_some_and(|(_, direction)| *direction == Direction::Descending) {
        invert(&mut first);
        invert(&mut last);
        std::mem::swap(&mut first, &mut last);
    }
    let from = std::ops::Bound::Included([&prefix[..], &first].concat());
    Range { from, to: Range::prefix(&[&prefix[..], &last].concat()).to }
}

/// Returns whether an entry is a date up to `until`.
fn is_expired(known: &KnownIndex, entry: &[u8], until: i64) -> bool {
    let mut entry = entry.to_vec();
    if known.ids_descend() {
        invert(&mut entry);
    }
    entry.first() == Some(&(TypeOrder::DateTime as u8)) && entry <= date(until)
}

fn date(millis: i64) -> Vec<u8> {
    let date = Bson::DateTime(DateTime::from_millis(millis));
    annals_core::bson::RawBson::try_from(date).map(|raw| encoded(raw.as_raw_bson_ref())).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use annals_conformance::ManualClock;
    use annals_core::bson::rawdoc;
    use annals_core::{Collection, Condition, Index, RecordChange, Records, Timestamp};

    use super::super::TenantRecords;
    use super::*;
    use crate::disk::MemoryDisk;
    use crate::engine::Known;

    /// Records that expire together, and the batches that their deletion takes.
    fn batches_of(count: i32) -> u64 {
        let clock = Arc::new(ManualClock::at(Timestamp::from_millis(0)));
        let options = Options { clock: clock.clone(), expiry_every: std::time::Duration::MAX, ..Options::default() };
        let options = Options { min_free_disk_bytes: 0, ..options };
        let engine = Engine::open(Arc::new(MemoryDisk::default()), "e".to_owned(), Known::default(), &options);
        let engine = Arc::new(engine.expect("it opens"));
        let records = TenantRecords::new(engine.clone(), &options);
        let (catalogs, totals) = (records.catalogs.clone(), records.totals.clone());
        let sweeper = Sweeper { engine, catalogs, totals, options, ended: Mutex::new(false), wake: Condvar::new() };
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(async {
            let expiring = Collection::new("sessions").index(Index::on("until").expires_after_seconds(0)).with_feed();
            records.declare(expiring).await.expect("it is declared");
            let session =
                |id| RecordChange::insert("sessions", rawdoc! { "_id": id, "until": DateTime::from_millis(1_000) });
            records.write((0..count).map(session).collect()).await.expect("they are written");
            clock.advance_millis(2_000);
            let before = sweeper.engine.batches().borrow().durable;
            sweeper.sweep().expect("it is swept");
            let taken = sweeper.engine.batches().borrow().durable - before;
            assert_eq!(records.count("sessions", &Condition::All).await, Ok(0));
            assert_eq!(records.last_change("sessions").await, Ok(2 * count as u64), "each deletion is noted");
            taken
        })
    }

    #[test]
    fn hundreds_that_expire_together_are_deleted_by_one_write_and_one_sync() {
        assert_eq!([1, 20, 499].map(batches_of), [1, 1, 1]);
        assert_eq!(batches_of(2 * DELETED_AT_ONCE as i32 + 1), 3);
    }
}
