//! Spreading tasks over the processes that share a store: what this process runs and could run, and the task that compares it with the
//! others once a second. The decisions are those of [`annals_core::spread`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use annals_core::spread::{self, ProcessRecord};
use annals_core::{Condition, Expected, RecordError, RecordQuery, RecordType, Records, TypedRecords, limits};
use tokio::sync::watch;

use super::{Ended, Shared, Supervised, beside, is_set, locked, supervise};

/// Records of processes that have been gone for so long are deleted.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(60);

/// The tasks of one tenant that this process runs or stands by for, of those that any process with the same definitions can run.
pub(crate) struct Spread {
    tasks: Mutex<Tasks>,
    /// Counts decisions to give tasks up.
    decided: watch::Sender<u64>,
}

#[derive(Default)]
struct Tasks {
    held: BTreeSet<String>,
    /// Tasks that other processes run, with their holders.
    elsewhere: BTreeMap<String, String>,
    /// Tasks that are to be given up, with the process that gets each.
    given: BTreeMap<String, String>,
}

impl Spread {
    /// Returns the tasks of a tenant, and begins to compare them with those of other processes, unless that has begun.
    pub fn of(shared: &Arc<Shared>, tenant: &str, records: &Arc<dyn Records>) -> Arc<Self> {
        let mut spreads = locked(&shared.spreads);
        if let Some(known) = spreads.get(tenant) {
            return Arc::clone(known);
        }
        let spread = Arc::new(Self { tasks: Mutex::default(), decided: watch::Sender::new(0) });
        spreads.insert(tenant.to_owned(), Arc::clone(&spread));
        let comparing =
            Comparing { shared: Arc::clone(shared), records: Arc::clone(records), spread: Arc::clone(&spread) };
        supervise(shared, format!("spread/{tenant}"), comparing);
        spread
    }

    /// This process runs the task.
    pub fn holds(&self, task: &str) {
        let mut tasks = locked(&self.tasks);
        tasks.elsewhere.remove(task);
        tasks.given.remove(task);
        tasks.held.insert(task.to_owned());
    }

    /// Another process runs the task, and this one stands by for it.
    pub fn stands_by(&self, task: &str, holder: &str) {
        let mut tasks = locked(&self.tasks);
        tasks.held.remove(task);
        tasks.given.remove(task);
        tasks.elsewhere.insert(task.to_owned(), holder.to_owned());
    }

    /// This process neither runs the task nor stands by for it.
    pub fn forget(&self, task: &str) {
        let mut tasks = locked(&self.tasks);
        tasks.held.remove(task);
        tasks.elsewhere.remove(task);
        tasks.given.remove(task);
    }

    /// The process that is to get the task.
    pub fn given_to(&self, task: &str) -> Option<String> {
        locked(&self.tasks).given.get(task).cloned()
    }

    /// Waits until the task is to be given up.
    pub async fn until_given(&self, task: &str) {
        // The sender is in `self`, so waiting cannot fail.
        let _ = self.decided.subscribe().wait_for(|_| self.given_to(task).is_some()).await;
    }
}

/// Compares what this process runs with what others run.
struct Comparing {
    shared: Arc<Shared>,
    records: Arc<dyn Records>,
    spread: Arc<Spread>,
}

impl Supervised for Comparing {
    async fn run(&mut self) -> Ended {
        let mut changed = beside::changes();
        loop {
            let shared = &self.shared;
            let mut stop = shared.stop.subscribe();
            if !shared.may_share() {
                // Another host of this process may open the store as well.
                tokio::select! {
                    () = is_set(&mut stop) => return Ended::Done,
                    _ = changed.changed() => continue,
                }
            }
            if let Err(error) = self.compare(shared).await {
                tracing::debug!(%error, "the tasks of other processes cannot be read");
            }
            tokio::select! {
                () = is_set(&mut stop) => {
                    // A drained process wants nothing and gets nothing.
                    let gone = self.records.delete_if(ProcessRecord::COLLECTION, shared.process.as_str().into(), whatever());
                    let _ = gone.await;
                    return Ended::Done;
                }
                () = shared.options.clock.sleep(shared.options.lease / 4) => {}
            }
        }
    }
}

impl Comparing {
    async fn compare(&self, shared: &Shared) -> Result<(), RecordError> {
        let now = shared.options.clock.now();
        let wants = {
            let tasks = locked(&self.spread.tasks);
            spread::wanted(tasks.held.len(), &tasks.elsewhere)
        };
        let processes = TypedRecords::<ProcessRecord>::declare(Arc::clone(&self.records)).await?;
        let me = ProcessRecord::new(&shared.process, now.plus(shared.options.lease), wants);
        processes.replace_if(&me, whatever()).await?;
        let others = self.others(shared, &processes).await?;
        let mut tasks = locked(&self.spread.tasks);
        tasks.given = spread::given(&tasks.held, &tasks.elsewhere, &others);
        let gives = !tasks.given.is_empty();
        drop(tasks);
        if gives {
            self.spread.decided.send_modify(|count| *count += 1);
        }
        Ok(())
    }

    /// The other processes that are there, with what each wants.
    async fn others(
        &self,
        shared: &Shared,
        processes: &TypedRecords<ProcessRecord>,
    ) -> Result<BTreeMap<String, BTreeSet<String>>, RecordError> {
        let now = shared.options.clock.now();
        let page = processes.find(RecordQuery::new(processes.name()).limit(limits::PAGE_MAX)).await?.0;
        let mut others = BTreeMap::new();
        for ProcessRecord { process, wants, until } in page.into_iter().map(|found| found.value) {
            let until = annals_core::Timestamp::from_millis(until.timestamp_millis());
            let is_there = match shared.store.is_shared() {
                true => until > now,
                false => beside::is_running(&process),
            };
            if process == shared.process {
                continue;
            }
            if is_there {
                others.insert(process, wants.into_iter().collect());
            } else if now.since(until) > FORGOTTEN_AFTER {
                processes.delete_if(process.as_str(), whatever()).await?;
            }
        }
        Ok(others)
    }
}

fn whatever() -> Expected {
    Expected::AbsentOr(Condition::All)
}
