//! Totals of earlier counts. While records are only appended to a collection, a count resumes after the last record of the previous one.
//!
//! INVARIANT: a total is used for a snapshot only if every change in between inserted a record after all others of its collection. The
//! writer registers any other change before it publishes the batch, so a reader whose snapshot contains the change also sees it
//! registered.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use annals_core::{Condition, Revision};

/// The most totals that are kept; the least recently used one is dropped first.
const KEPT_MAX: usize = 128;
/// A longer condition, in bytes of JSON, is counted from the beginning each time.
const CONDITION_BYTES_MAX: usize = 4 * 1024;
/// Smaller counts are repeated as fast as a total is looked up, so their totals are not kept.
pub(super) const COUNT_MIN: u64 = 32;

/// The totals of a tenant's collections.
#[derive(Default)]
pub(super) struct Totals(Mutex<State>);

#[derive(Default)]
struct State {
    /// Least recently used first.
    kept: VecDeque<Kept>,
    /// For each collection, the newest revision of a change that was not an insert after all others.
    disturbed: HashMap<u32, Revision>,
}

struct Kept {
    collection: u32,
    condition: Condition,
    total: Total,
}

/// The number of records of a collection that matched at one revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Total {
    /// The number of matching records.
    pub(super) count: u64,
    /// The newest revision of the snapshot in which they were counted.
    pub(super) revision: Revision,
    /// The key of the collection's last document in that snapshot, or the prefix of its documents if it had none.
    pub(super) last: Vec<u8>,
}

impl Totals {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the total from which a count can resume in a snapshot with this revision, or `None` if resuming may take longer than
    /// counting from the beginning.
    pub(super) fn of(&self, collection: u32, condition: &Condition, revision: Revision) -> Option<Total> {
        let mut state = self.state();
        let at = state.position(collection, condition)?;
        let kept = state.kept.remove(at)?;
        let total = kept.total.clone();
        state.kept.push_back(kept);
        let appended_at_most = revision.checked_sub(total.revision)?;
        (appended_at_most <= total.count).then_some(total)
    }

    /// Keeps a total, unless the collection was since changed other than by appending, or a newer total is known.
    pub(super) fn keep(&self, collection: u32, condition: &Condition, total: Total) {
        let is_short = serde_json::to_vec(condition).is_ok_and(|text| text.len() <= CONDITION_BYTES_MAX);
        if !is_short {
            return;
        }
        let mut state = self.state();
        if state.disturbed.get(&collection).is_some_and(|disturbed| *disturbed > total.revision) {
            return;
        }
        if let Some(at) = state.position(collection, condition) {
            if state.kept[at].total.revision > total.revision {
                return;
            }
            state.kept.remove(at);
        }
        if state.kept.len() == KEPT_MAX {
            state.kept.pop_front();
        }
        state.kept.push_back(Kept { collection, condition: condition.clone(), total });
    }

    /// Returns whether a total of this collection is kept.
    pub(super) fn has(&self, collection: u32) -> bool {
        self.state().kept.iter().any(|kept| kept.collection == collection)
    }

    /// Drops the totals of collections to which a batch, up to this revision, did more than append.
    pub(super) fn disturb(&self, collections: &BTreeSet<u32>, revision: Revision) {
        if collections.is_empty() {
            return;
        }
        let mut state = self.state();
        state.kept.retain(|kept| !collections.contains(&kept.collection));
        state.disturbed.extend(collections.iter().map(|collection| (*collection, revision)));
    }
}

impl State {
    fn position(&self, collection: u32, condition: &Condition) -> Option<usize> {
        self.kept.iter().position(|kept| kept.collection == collection && kept.condition.is_same(condition))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use annals_core::bson::{doc, rawdoc};
    use annals_core::{Collection, Expected, RecordChange, RecordError, Records};

    use super::super::{TenantRecords, feed};
    use super::*;
    use crate::Options;
    use crate::disk::MemoryDisk;
    use crate::engine::{Engine, Known};

    fn thing(id: i32) -> RecordChange {
        RecordChange::insert("things", rawdoc! { "_id": id, "kind": id % 2 })
    }

    async fn things() -> Arc<TenantRecords> {
        let options = Options { min_free_disk_bytes: 0, ..Options::default() };
        let engine = Engine::open(Arc::new(MemoryDisk::default()), "e".to_owned(), Known::default(), &options);
        let records = TenantRecords::new(Arc::new(engine.expect("it opens")), &options);
        records.declare(Collection::new("things")).await.expect("it is declared");
        records.write((0..100).map(thing).collect()).await.expect("they are written");
        records
    }

    /// The total from which a count of this condition would resume.
    fn kept(records: &TenantRecords, condition: &Condition) -> Option<u64> {
        let now = records.engine.read(|view| {
            let collection = records.catalogs.of(view)?.collection("things")?.id;
            Ok::<_, RecordError>((collection, feed::last_revision(view)?))
        });
        let (collection, revision) = now.expect("it is read");
        records.totals.of(collection, condition, revision).map(|total| total.count)
    }

    async fn counted(records: &TenantRecords, condition: &Condition) -> u64 {
        records.count("things", condition).await.expect("they are counted")
    }

    fn run(case: impl Future<Output = ()>) {
        tokio::runtime::Builder::new_current_thread().build().expect("a runtime").block_on(case);
    }

    #[test]
    fn a_count_resumes_where_the_one_before_ended_while_records_are_only_appended() {
        run(async {
            let (records, odd) = (things().await, Condition::eq("kind", 1));
            assert_eq!(kept(&records, &odd), None);
            assert_eq!((counted(&records, &odd).await, counted(&records, &Condition::All).await), (50, 100));
            records.write((100..140).map(thing).collect()).await.expect("they are appended");
            assert_eq!((kept(&records, &odd), kept(&records, &Condition::All)), (Some(50), Some(100)));
            assert_eq!((counted(&records, &odd).await, counted(&records, &Condition::All).await), (70, 140));
            assert_eq!((kept(&records, &odd), kept(&records, &Condition::All)), (Some(70), Some(140)));
            assert_eq!(records.count_up_to("things", &odd, 60).await, Ok(60));
            // More was written than there is to count.
            records.write((140..240).map(thing).collect()).await.expect("they are appended");
            assert_eq!((kept(&records, &odd), kept(&records, &Condition::All)), (None, Some(140)));
            assert_eq!((counted(&records, &odd).await, counted(&records, &Condition::All).await), (120, 240));
        });
    }

    #[test]
    fn a_total_is_not_that_of_a_condition_whose_value_has_its_fields_in_another_order() {
        run(async {
            let records = things().await;
            let thing = |id: i32| RecordChange::insert("things", rawdoc! { "_id": id, "at": { "x": 1, "y": 2 } });
            records.write((100..140).map(thing).collect()).await.expect("they are written");
            let as_stored = Condition::eq("at", doc! { "x": 1, "y": 2 });
            assert_eq!(counted(&records, &as_stored).await, 40);
            assert_eq!(counted(&records, &Condition::eq("at", doc! { "y": 2, "x": 1 })).await, 0);
        });
    }

    #[test]
    fn after_any_other_change_records_are_counted_from_the_beginning() {
        let replaced = RecordChange::put("things", rawdoc! { "_id": 7, "kind": 0 });
        let deleted = RecordChange::delete_if("things", 7, Expected::Present);
        let changes = [(replaced, (49, 100)), (deleted, (49, 99)), (thing(-1), (50, 101))];
        for (change, due) in changes {
            run(async {
                let (records, odd) = (things().await, Condition::eq("kind", 1));
                assert_eq!((counted(&records, &odd).await, counted(&records, &Condition::All).await), (50, 100));
                records.write(vec![thing(100), change]).await.expect("it is written");
                assert_eq!(kept(&records, &Condition::All), None);
                let now = (counted(&records, &odd).await, counted(&records, &Condition::All).await);
                assert_eq!(now, (due.0, due.1 + 1));
            });
        }
    }

    #[test]
    fn a_total_of_a_snapshot_before_a_change_is_not_kept() {
        let (totals, all) = (Totals::default(), Condition::All);
        let total = |revision| Total { count: 100, revision, last: vec![1] };
        totals.disturb(&BTreeSet::from([1]), 9);
        totals.keep(1, &all, total(8));
        assert_eq!(totals.of(1, &all, 9), None);
        totals.keep(1, &all, total(9));
        totals.keep(2, &all, total(8));
        assert_eq!((totals.of(1, &all, 9), totals.of(2, &all, 9)), (Some(total(9)), Some(total(8))));
        // A reader of an older snapshot cannot use it.
        assert_eq!(totals.of(1, &all, 8), None);
    }

    #[test]
    fn few_totals_are_kept_and_those_that_are_used_stay() {
        let totals = Totals::default();
        let total = || Total { count: 100, revision: 1, last: vec![1] };
        for n in 0..=KEPT_MAX as i32 {
            totals.keep(1, &Condition::eq("n", n), total());
            assert_eq!(totals.of(1, &Condition::eq("n", 0), 1), Some(total()));
        }
        assert_eq!(totals.of(1, &Condition::eq("n", 1), 1), None);
        let long = Condition::eq("n", "x".repeat(CONDITION_BYTES_MAX));
        totals.keep(1, &long, total());
        assert_eq!(totals.of(1, &long, 1), None);
    }
}
