//! Records beside the model of `annals-conformance`.

use std::sync::Arc;

use annals_conformance::records::{RecordOperations, RecordsModel};
use annals_core::{ChangeNumber, DEFAULT_TENANT, RecordQuery, RecordedChange, Records, Store, limits};
use annals_embedded::Options;

use crate::lives::{Modelled, beside_its_model};
use crate::stores::{Opened, block_on, repeatable};

/// What one seed does.
pub struct Run {
    random: fastrand::Rng,
    model: RecordsModel,
    operations: RecordOperations,
}

impl Modelled for Run {
    fn begin(seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let operations = RecordOperations::new(random.u64(..));
        Self { random, model: RecordsModel::default(), operations }
    }

    fn random(&mut self) -> &mut fastrand::Rng {
        &mut self.random
    }

    fn options(&mut self) -> Options {
        repeatable(self.random.u64(..))
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
        for collection in ["things", "others"] {
            let due = self.model.changes(collection);
            if let Ok(due) = due {
                let changes = all_changes(&records, collection).await?;
                if changes != due {
                    return Err(format!("the changes of {collection} are {changes:?}, not {due:?}"));
                }
            }
            let last = records.last_change(collection).await;
            if last != self.model.last_change(collection) {
                return Err(format!("the newest change of {collection} is {last:?}"));
            }
            let query = RecordQuery::new(collection).limit(limits::PAGE_MAX);
            let Ok(expected) = self.model.find(&query) else { continue };
            let found = records.find(query).await.map_err(|error| error.to_string())?.records;
            if found != expected {
                return Err(format!("{collection} holds {found:?}, not {expected:?}"));
            }
        }
        Ok(self.model.revision())
    }
}

fn records_of(opened: &Opened) -> Arc<dyn Records> {
    opened.store.records(DEFAULT_TENANT).expect("the tenant is declared")
}

async fn all_changes(records: &Arc<dyn Records>, collection: &str) -> Result<Vec<RecordedChange>, String> {
    let mut all: Vec<RecordedChange> = Vec::new();
    loop {
        let after: ChangeNumber = all.last().map_or(0, |last| last.number);
        let page = records.changes(collection, after, limits::PAGE_MAX).await.map_err(|error| error.to_string())?;
        if page.is_empty() {
            return Ok(all);
        }
        all.extend(page);
    }
}

/// The most lives of a seed.
pub const LIVES_MAX: usize = 7;

#[test]
fn records_that_are_closed_killed_or_lose_power_do_what_the_model_does() {
    let lived = |seed| block_on(beside_its_model::<Run>(seed, LIVES_MAX, |_| {}));
    let changes: u64 = (0..120).map(|seed| lived(seed).unwrap_or_else(|wrong| panic!("seed {seed}: {wrong}"))).sum();
    assert!(changes > 1_500, "only {changes} changes were made");
}
