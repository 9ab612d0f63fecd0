//! The guard of a consumer: of several equivalent events only one is delivered, and the others are passed once it has succeeded.
//!
//! ```text
//!  taken ─▶ key ─┬─ processed by an earlier event ─▶ passed as a duplicate
//!                ├─ in flight in another partition ─▶ waits ─┬─ that one succeeded ─▶ passed as a duplicate
//!                └─ free ─▶ delivered                         └─ it failed ─────────▶ handed out again
//! ```
//!
//! INVARIANT: a key is recorded as processed only in the batch that settles its event, so an event that failed never counts as processed.

use std::collections::HashMap;

use annals_core::groups::{GROUPS, GUARDED, GuardRecord, GuardSettings};
use annals_core::processing::{Machine, Outcome, Taken};
use annals_core::{
    Condition, Expected, RecordChange, RecordError, RecordQuery, RecordType, Timestamp, TypedRecords, limits,
};

use super::consumed::Consumed;
use super::{Owner, Stop, Work};
use crate::engine::journal::NotWritten;

/// An event that waits for another event with the same key.
struct Waiting {
    taken: Taken,
    until: Timestamp,
}

/// The state of a consumer's guard for events in flight.
#[derive(Default)]
pub(super) struct Guarded {
    /// By key, the delivery that holds it.
    holders: HashMap<String, u64>,
    /// By delivery, its key and its event.
    keys: HashMap<u64, (String, Taken)>,
    waiting: HashMap<String, Vec<Waiting>>,
    /// The records to store with the next batch.
    records: Vec<GuardRecord>,
    /// Keys whose event succeeded; the next batch stores that.
    ended: Vec<String>,
    duplicates: i64,
}

/// Deliveries that succeeded, kept so that the success can be undone.
pub(super) type Finished = Vec<(u64, (String, Taken))>;

impl Guarded {
    fn hold(&mut self, key: String, taken: &Taken) {
        self.holders.insert(key.clone(), taken.token);
        self.keys.insert(taken.token, (key, taken.clone()));
    }

    /// Frees the key of a delivery that has ended. Returns the events that were waiting for it.
    fn let_go(&mut self, token: u64) -> Vec<Taken> {
        let Some((key, _)) = self.keys.remove(&token) else { return Vec::new() };
        self.holders.remove(&key);
        self.waiting.remove(&key).unwrap_or_default().into_iter().map(|waiting| waiting.taken).collect()
    }

    /// Undoes the success of deliveries, because the store refused their effects.
    pub fn restore(&mut self, finished: Finished) {
        for (token, (key, taken)) in finished {
            self.ended.retain(|ended| *ended != key);
            self.records.clear();
            self.holders.insert(key.clone(), token);
            self.keys.insert(token, (key, taken));
        }
    }

    /// Takes the records that the next batch stores, and the number of duplicates that it passes.
    pub fn stored(&mut self) -> (Vec<GuardRecord>, i64) {
        (std::mem::take(&mut self.records), std::mem::take(&mut self.duplicates))
    }

    pub fn has_changes(&self) -> bool {
        !self.records.is_empty() || self.duplicates > 0
    }

    /// Returns deliveries that have ended without success.
    fn failed(&self, machine: &Machine) -> Vec<u64> {
        self.keys.keys().copied().filter(|token| !machine.is_in_flight(*token)).collect()
    }

    /// Takes the waiting events whose leases expire. They have not failed.
    fn overdue(&mut self, now: Timestamp) -> Vec<Taken> {
        let mut overdue = Vec::new();
        for waiting in self.waiting.values_mut() {
            overdue.extend(waiting.extract_if(.., |it| it.until <= now).map(|it| it.taken));
        }
        self.waiting.retain(|_, waiting| !waiting.is_empty());
        overdue
    }
}

impl Work<'_> {
    fn guard(&self) -> Option<GuardSettings> {
        self.owner.definition.guard.clone()
    }

    /// Counts duplicates that were stored as passed, for the metrics of groups.
    pub(super) fn count_duplicates(&self, count: i64) {
        if self.owner.definitions == GROUPS && self.owner.definition.guard.is_some() {
            let Owner { shared, tenant, definition, .. } = &*self.owner;
            shared.duplicates.passed(tenant, &definition.name, count.cast_unsigned());
        }
    }

    /// Removes events from a delivery that are duplicates or may turn out to be.
    pub(super) async fn guarded(
        &mut self,
        taken: Vec<Taken>,
        consumed: &Consumed,
        until: Timestamp,
        now: Timestamp,
    ) -> Result<Vec<Taken>, Stop> {
        let Some(settings) = self.guard() else { return Ok(taken) };
        // The key is computed from the event as its consumer receives it, in its newest generation.
        let key_of = |taken: &Taken| {
            let at = taken.event.position;
            settings.by.key_of(consumed.get(&at).or_else(|| self.events.get(&at))?)
        };
        let keyed: Vec<(Option<String>, Taken)> = taken.into_iter().map(|taken| (key_of(&taken), taken)).collect();
        let keys = keyed.iter().filter_map(|(key, _)| key.as_deref());
        let known = self.processed(keys).await.map_err(NotWritten::from)?;
        let mut free = Vec::with_capacity(keyed.len());
        for (key, taken) in keyed {
            let Some(key) = key else {
                free.push(taken);
                continue;
            };
            let id = GuardRecord::id_of(&self.owner.task, &key);
            if known.get(&id).is_some_and(|record| record.covers(taken.event.position, now)) {
                self.pass(&taken, now);
            } else if self.guarded.holders.contains_key(&key) {
                self.guarded.waiting.entry(key).or_default().push(Waiting { taken, until });
            } else {
                self.guarded.hold(key, &taken);
                free.push(taken);
            }
        }
        Ok(free)
    }

    /// Reads the stored records of processed keys.
    async fn processed(
        &mut self,
        keys: impl Iterator<Item = &str>,
    ) -> Result<HashMap<String, GuardRecord>, RecordError> {
        let ids: Vec<String> = keys.map(|key| GuardRecord::id_of(&self.owner.task, key)).collect();
        let records = TypedRecords::<GuardRecord>::declared(std::sync::Arc::clone(&self.owner.records));
        if !std::mem::replace(&mut self.has_guard, true) {
            self.owner.records.declare(<GuardRecord as RecordType>::collection()).await?;
        }
        let mut known = HashMap::new();
        for some in ids.chunks(100) {
            let of_keys = Condition::ids(some.iter().map(String::as_str));
            let query = RecordQuery::new(GUARDED).matching(of_keys).limit(limits::PAGE_MAX);
            let (found, _) = records.find(query).await?;
            known.extend(found.into_iter().map(|stored| (stored.value.id.clone(), stored.value)));
        }
        Ok(known)
    }

    /// Passes a duplicate: settles it as if it had been processed, and counts it.
    fn pass(&mut self, taken: &Taken, now: Timestamp) {
        if self.machine.settle(taken.token, Outcome::Done, now, 0).is_ok() {
            self.guarded.duplicates += 1;
            tracing::debug!(task = self.owner.task, position = taken.event.position, "passed a duplicate");
        }
    }

    /// Marks the keys of successful deliveries as processed; the next batch stores that.
    pub(super) fn guard_done(&mut self, tokens: impl IntoIterator<Item = u64>, now: Timestamp) -> Finished {
        let Some(settings) = self.guard() else { return Vec::new() };
        let mut finished = Vec::new();
        for token in tokens {
            let Some((key, taken)) = self.guarded.keys.remove(&token) else { continue };
            self.guarded.holders.remove(&key);
            let position = taken.event.position;
            let id = self.events.get(&position).map(|event| event.id.hyphenated().to_string()).unwrap_or_default();
            let record = GuardRecord::new((&self.owner.task, &key), (id, position), &settings, now);
            self.guarded.records.push(record);
            self.guarded.ended.push(key.clone());
            finished.push((token, (key, taken)));
        }
        finished
    }

    /// Returns the changes that a batch stores for the guard.
    pub(super) fn guard_changes(records: &[GuardRecord]) -> Result<Vec<RecordChange>, NotWritten> {
        let change = |record| TypedRecords::replacement(record, Expected::AbsentOr(Condition::All));
        Ok(records.iter().map(change).collect::<Result<_, _>>()?)
    }

    /// Passes the events that waited for keys that have succeeded, because they are duplicates once the batch is stored.
    pub(super) fn guard_stored(&mut self) {
        let now = self.clock.now();
        for key in std::mem::take(&mut self.guarded.ended) {
            for waiting in self.guarded.waiting.remove(&key).unwrap_or_default() {
                self.pass(&waiting.taken, now);
            }
        }
    }

    /// Releases events that waited for a delivery that failed, or that have waited too long.
    pub(super) fn guard_released(&mut self, now: Timestamp) {
        if self.guarded.keys.is_empty() && self.guarded.waiting.is_empty() {
            return;
        }
        let mut free = self.guarded.overdue(now);
        for token in self.guarded.failed(&self.machine) {
            free.extend(self.guarded.let_go(token));
        }
        self.machine.release(&free, now);
    }
}
