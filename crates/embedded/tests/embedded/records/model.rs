//! One client, the model of `annals-conformance` beside it, and a store that is closed, killed or loses power every now and then. With
//! nothing under way at these moments, every answer must be exactly the model's.

use std::sync::Arc;

use annals_conformance::records::{RecordOperations, RecordsModel};
use annals_core::{ChangeNumber, DEFAULT_TENANT, RecordQuery, RecordedChange, Records, Store, limits};
use annals_embedded::Options;

use crate::faulty_disk::FaultyDisk;
use crate::stores::{Opened, block_on, open, repeatable};

struct Run {
    random: fastrand::Rng,
    model: RecordsModel,
    operations: RecordOperations,
}

impl Run {
    fn new(seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let operations = RecordOperations::new(random.u64(..));
        Self { random, model: RecordsModel::default(), operations }
    }

    /// Some operations, each answer compared with the model's.
    async fn work(&mut self, opened: &Opened) -> Result<(), String> {
        let records = records_of(opened);
        for _ in 0..self.random.usize(1..60) {
            let operation = self.operations.next_operation(&self.model);
            operation.check(&records, &mut self.model).await?;
        }
        Ok(())
    }

    /// All changes and records, compared with the model's.
    async fn compare(&self, opened: &Opened) -> Result<u64, String> {
        let records = records_of(opened);
        let changes = all_changes(&records).await?;
        if changes != self.model.changes() {
            return Err(format!("the changes are {changes:?}, not {:?}", self.model.changes()));
        }
        for collection in ["things", "others"] {
            let query = RecordQuery::new(collection).limit(limits::PAGE_MAX);
            let Ok(expected) = self.model.find(&query) else { continue };
            let found = records.find(query).await.map_err(|error| error.to_string())?.records;
            if found != expected {
                return Err(format!("{collection} holds {found:?}, not {expected:?}"));
            }
        }
        Ok(self.model.last_change())
    }
}

fn records_of(opened: &Opened) -> Arc<dyn Records> {
    opened.store.records(DEFAULT_TENANT).expect("the tenant is declared")
}

async fn all_changes(records: &Arc<dyn Records>) -> Result<Vec<RecordedChange>, String> {
    let mut all: Vec<RecordedChange> = Vec::new();
    loop {
        let after: ChangeNumber = all.last().map_or(0, |last| last.number);
        let page = records.changes(after, limits::PAGE_MAX).await.map_err(|error| error.to_string())?;
        if page.is_empty() {
            return Ok(all);
        }
        all.extend(page);
    }
}

/// Runs one seed on a disk that forgets what was not synced. Answers how many changes there were.
///
/// # Errors
/// The answer that is not the model's.
pub async fn on_a_faulty_disk(seed: u64, change: impl Fn(&mut Options)) -> Result<u64, String> {
    let mut run = Run::new(seed);
    let mut disk = FaultyDisk::new(seed);
    let options = |random: &mut fastrand::Rng| {
        let mut options = repeatable(random.u64(..));
        change(&mut options);
        options
    };
    for _ in 0..run.random.usize(2..7) {
        let opened = open(disk.clone(), options(&mut run.random)).map_err(|error| error.to_string())?;
        run.compare(&opened).await?;
        run.work(&opened).await?;
        if run.random.u8(0..3) == 0 {
            opened.store.close().await;
        }
        disk = if run.random.bool() { disk.after_kill() } else { disk.after_power_loss() };
    }
    let opened = open(disk, options(&mut run.random)).map_err(|error| error.to_string())?;
    run.compare(&opened).await
}

#[test]
fn records_that_are_closed_killed_or_lose_power_do_what_the_model_does() {
    let changes: u64 = (0..120)
        .map(|seed| block_on(on_a_faulty_disk(seed, |_| {})).unwrap_or_else(|wrong| panic!("seed {seed}: {wrong}")))
        .sum();
    assert!(changes > 1_500, "only {changes} changes were made");
}
