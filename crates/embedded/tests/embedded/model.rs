//! One client, the model of `annals-conformance` beside it, and a store that is closed, killed or loses power every now and then. With
//! nothing under way at these moments, every answer must be exactly the model's.

use std::sync::Arc;

use annals_conformance::history::read_all;
use annals_conformance::model::{EPOCH, Model, Operations, Shape};
use annals_conformance::{ManualClock, SeededRandomness};
use annals_core::{Clock, Store};
use annals_embedded::Options;
use annals_embedded::disk::RealDisk;

use crate::faulty_disk::FaultyDisk;
use crate::stores::{Opened, PACK_ALWAYS, PACK_NEVER, block_on, open, tiny_segments};

struct Run {
    random: fastrand::Rng,
    clock: Arc<ManualClock>,
    model: Model,
    operations: Operations,
}

impl Run {
    fn new(seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let bytes_max = [20, 200, 1_000][random.usize(0..3)];
        let operations = Operations::new(random.u64(..), Shape { bytes_max, ..Shape::default() });
        let clock = Arc::new(ManualClock::at(EPOCH));
        Self { random, clock, model: Model::default(), operations }
    }

    fn options(&mut self) -> Options {
        let random = Arc::new(SeededRandomness::new(self.random.u64(..)));
        let packing = if self.random.bool() { PACK_ALWAYS } else { PACK_NEVER };
        Options { clock: self.clock.clone(), random, packing, ..tiny_segments() }
    }

    /// Some operations, each answer compared with the model's.
    async fn work(&mut self, opened: &Opened) -> Result<(), String> {
        for _ in 0..self.random.usize(1..60) {
            let operation = self.operations.next_operation();
            let answer = operation.run(&opened.log).await;
            self.model.check(&operation, &answer, self.clock.now())?;
            self.operations.learn(&operation, &answer);
            self.clock.advance_millis(self.random.i64(0..5));
        }
        Ok(())
    }

    /// The whole log, compared with the model's.
    async fn compare(&self, opened: &Opened) -> Result<(), String> {
        let events = read_all(&opened.log).await.map_err(|error| error.to_string())?;
        self.model.check_log(&events)
    }
}

async fn on_a_faulty_disk(seed: u64) -> Result<usize, String> {
    let mut run = Run::new(seed);
    let mut disk = FaultyDisk::new(seed);
    for _ in 0..run.random.usize(2..10) {
        let opened = open(disk.clone(), run.options()).map_err(|error| error.to_string())?;
        run.compare(&opened).await?;
        run.work(&opened).await?;
        if run.random.u8(0..3) == 0 {
            opened.store.close().await;
        }
        disk = if run.random.bool() { disk.after_kill() } else { disk.after_power_loss() };
    }
    let opened = open(disk, run.options()).map_err(|error| error.to_string())?;
    run.compare(&opened).await?;
    Ok(run.model.events().len())
}

#[test]
fn a_store_that_is_closed_killed_or_loses_power_does_what_the_model_does() {
    let events: usize = (0..120)
        .map(|seed| block_on(on_a_faulty_disk(seed)).unwrap_or_else(|wrong| panic!("seed {seed}: {wrong}")))
        .sum();
    assert!(events > 10_000, "only {events} events were committed");
}

#[test]
fn a_store_on_a_real_disk_does_what_the_model_does() {
    for seed in 0..4 {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let mut run = Run::new(seed);
        block_on(async {
            for _ in 0..5 {
                let disk = Arc::new(RealDisk::new(folder.path()));
                let opened = open(disk, run.options()).expect("the store opens");
                run.compare(&opened).await?;
                run.work(&opened).await?;
                opened.store.close().await;
            }
            Ok::<_, String>(())
        })
        .unwrap_or_else(|wrong| panic!("seed {seed}: {wrong}"));
    }
}
