//! The suite of sagas, on a disk in memory and on a real one; and every place at which a process can die.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use annals_conformance::sagas::order::{Called, ORDER, program};
use annals_core::sagas::{SagaError, SagaStatus, Sagas, saga_id};
use annals_core::{DEFAULT_SCOPE, DEFAULT_TENANT, Data, EventLog, LogQuery, NewCommit, NewEvent, Store};
use annals_embedded::EmbeddedStore;
use annals_runtime::{Host, HostOptions, HostSagas};
use serde_json::json;

use crate::conformance::Embedded;
use crate::faulty_disk::{Fault, FaultyDisk};
use crate::stores::{block_on, repeatable, roomy_segments};

mod memory {
    use super::*;
    annals_conformance::sagas!(Embedded::in_memory(roomy_segments()));
}

mod real_disk {
    use super::*;
    annals_conformance::sagas!(Embedded::in_a_folder(roomy_segments()));
}

/// A store with a host on it.
struct Life {
    log: Arc<dyn EventLog>,
    host: Host,
    sagas: Arc<HostSagas>,
    disk: Arc<FaultyDisk>,
    called: Called,
}

/// What is at the end: the commands of each order in the order of the log, and its saga.
type End = BTreeMap<String, (Vec<(String, String)>, Vec<String>, String)>;

impl Life {
    fn begin(disk: Arc<FaultyDisk>, seed: u64) -> Self {
        let store =
            EmbeddedStore::open(disk.clone(), repeatable(seed)).unwrap_or_else(|error| panic!("{seed}: {error}"));
        let log = store.log(DEFAULT_TENANT, DEFAULT_SCOPE).expect("always there");
        let host = Host::start(Arc::new(store), HostOptions::default());
        host.start_defined();
        let sagas = host.sagas(DEFAULT_TENANT).expect("declared");
        Self { log, host, sagas, disk, called: Called::default() }
    }

    /// Does what is left of the story: of two orders one is paid, and one is declined. Returns none where the disk failed.
    async fn go_on(&self) -> Option<()> {
        self.sagas.register(program(&self.called)).await.ok()?;
        for (order, answer, state) in [("o-1", "paid", "completed"), ("o-2", "declined", "failed")] {
            self.commit(order, "placed").await?;
            self.until(order, |saga| {
                saga.state.is_over() || saga.steps.iter().any(|step| step.name == "pay" && step.state == "awaiting")
            })
            .await?;
            self.commit(order, answer).await?;
            let ended = self.until(order, |saga| saga.state.is_over()).await?;
            assert_eq!(ended.state.name(), state);
            self.until_told(order).await?;
        }
        Some(())
    }

    async fn commit(&self, order: &str, event_type: &str) -> Option<()> {
        let data = Data::from_value(&json!({ "n": 1 })).ok()?;
        let commit = NewCommit::new("order", order).event(NewEvent::new(event_type, data));
        self.log.commit(commit.request_id(format!("{order}/{event_type}"))).await.ok().map(drop)
    }

    async fn until(&self, order: &str, wanted: impl Fn(&SagaStatus) -> bool) -> Option<SagaStatus> {
        loop {
            match self.sagas.get(&saga_id(ORDER, order)).await {
                Ok(saga) if wanted(&saga) => return Some(saga),
                Ok(_) | Err(SagaError::Unknown(_)) => {}
                Err(_) => return None,
            }
            if !self.disk.fired().is_empty() {
                return None;
            }
            tokio::task::yield_now().await;
        }
    }

    /// Waits until the last event of a saga is in the log.
    async fn until_told(&self, order: &str) -> Option<()> {
        loop {
            let page = self.log.read(LogQuery { limit: 1_000, ..LogQuery::default() }).await.ok()?;
            let is_last = |event: &annals_core::RecordedEvent| {
                matches!(&*event.event_type, "saga_completed" | "saga_failed")
                    && event.commit.correlation_id.as_deref() == Some(order)
            };
            if page.events.iter().any(is_last) {
                return Some(());
            }
            if !self.disk.fired().is_empty() {
                return None;
            }
            tokio::task::yield_now().await;
        }
    }

    fn called(&self) -> BTreeSet<String> {
        self.called.lock().expect("no function panics").clone()
    }

    async fn end(&self) -> End {
        let page = self.log.read(LogQuery { limit: 1_000, ..LogQuery::default() }).await.expect("read");
        let mut end = End::new();
        for order in ["o-1", "o-2"] {
            let of = page.events.iter().filter(|event| event.commit.correlation_id.as_deref() == Some(order));
            let commands = of.map(|event| {
                let request = event.commit.request_id.as_deref().unwrap_or_default();
                (event.event_type.to_string(), request.to_owned())
            });
            let saga = self.sagas.get(&saga_id(ORDER, order)).await.expect("there");
            let steps = saga.steps.iter().map(|step| format!("{} {} {}", step.name, step.state, step.attempt));
            let steps = saga.completed_steps.iter().chain(&saga.compensated_steps).cloned().chain(steps);
            let state = format!("{:?} {:?} {}", saga.state, saga.cause, saga.retry_count);
            end.insert(order.to_owned(), (commands.collect(), steps.collect(), state));
        }
        end
    }
}

/// At every operation of the disk, by kill -9 and by power loss: between any two steps, inside compensations, and while a function of the
/// program runs, which is then called again with the same key.
#[test]
fn wherever_the_process_dies_the_end_and_the_commands_are_those_of_the_undisturbed_run() {
    block_on(async {
        let life = Life::begin(FaultyDisk::new(1_000), 1_000);
        life.go_on().await.expect("nothing fails");
        let undisturbed = life.end().await;
        let functions = life.called();
        assert_eq!(functions.len(), 3, "both orders are charged, and one gets it back: {functions:?}");
        life.host.drain().await;
        let (mut died, mut operation) = (0_u64, 0);
        let mut again = BTreeSet::new();
        loop {
            let disk = FaultyDisk::new(operation);
            let life = Life::begin(disk.clone(), operation);
            disk.plan(operation, Fault::End);
            let finished = life.go_on().await.is_some();
            if finished && disk.fired().is_empty() {
                life.host.drain().await;
                // Every operation of the run was a place to die at.
                break;
            }
            died += 1;
            let before = life.called();
            let disk = if operation % 2 == 0 { disk.after_kill() } else { disk.after_power_loss() };
            drop(life);
            let life = Life::begin(disk, operation);
            let what = format!("died at {operation}");
            life.go_on().await.expect(&what);
            assert_eq!(life.end().await, undisturbed, "{what}");
            let after = life.called();
            assert!(before.union(&after).eq(&functions), "{what}: {before:?}, then {after:?}");
            again.extend(before.intersection(&after).cloned());
            life.host.drain().await;
            operation += 1;
        }
        assert!(died > 40, "the process died {died} times");
        assert!(!again.is_empty(), "the process never died while a function ran");
    });
}
