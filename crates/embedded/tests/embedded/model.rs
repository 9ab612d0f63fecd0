//! The log beside the model of `annals-conformance`.

use std::sync::Arc;

use annals_conformance::history::read_all;
use annals_conformance::model::{EPOCH, Model, Operations, Shape};
use annals_conformance::{ManualClock, SeededRandomness};
use annals_core::{Clock, Store};
use annals_embedded::Options;
use annals_embedded::disk::RealDisk;

use crate::lives::{Modelled, beside_its_model};
use crate::stores::{Opened, PACK_ALWAYS, PACK_NEVER, block_on, open, tiny_segments};

struct Run {
    random: fastrand::Rng,
    clock: Arc<ManualClock>,
    model: Model,
    operations: Operations,
}

impl Modelled for Run {
    fn begin(seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let bytes_max = [20, 200, 1_000][random.usize(0..3)];
        let operations = Operations::new(random.u64(..), Shape { bytes_max, ..Shape::default() });
        let clock = Arc::new(ManualClock::at(EPOCH));
        Self { random, clock, model: Model::default(), operations }
    }

    fn random(&mut self) -> &mut fastrand::Rng {
        &mut self.random
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
    async fn compare(&self, opened: &Opened) -> Result<u64, String> {
        let events = read_all(&opened.log).await.map_err(|error| error.to_string())?;
        self.model.check_log(&events)?;
        Ok(events.len() as u64)
    }
}

#[test]
fn a_store_that_is_closed_killed_or_loses_power_does_what_the_model_does() {
    let lived = |seed| block_on(beside_its_model::<Run>(seed, 10, |_| {}));
    let events: u64 = (0..120).map(|seed| lived(seed).unwrap_or_else(|wrong| panic!("seed {seed}: {wrong}"))).sum();
    assert!(events > 10_000, "only {events} events were committed");
}

#[test]
fn a_store_on_a_real_disk_does_what_the_model_does() {
    for seed in 0..4 {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let mut run = Run::begin(seed);
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
