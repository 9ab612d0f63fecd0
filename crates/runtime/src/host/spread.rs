//! Spreading tasks over the processes that share a store: the tasks that this process runs or could run, and the task that renews its
//! heartbeat and compares it with the others, four times per lease. The decisions are made in [`annals_core::spread`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use annals_core::spread::{self, ProcessRecord};
use annals_core::{Condition, Expected, RecordError, RecordQuery, RecordType, Records, TypedRecords, limits};
use tokio::sync::watch;

use super::heartbeat::Heartbeat;
use super::{Ended, Shared, Supervised, beside, is_set, locked, supervise};

/// The tasks of one tenant that this process runs or stands by for, among those that any process with the same definitions can run.
pub(crate) struct Spread {
    tasks: Mutex<Tasks>,
    /// Counts decisions to give up tasks.
    decided: watch::Sender<u64>,
    /// The heartbeat on which the leases of all tasks rest, including those that are not spread.
    heartbeat: Heartbeat,
}

#[derive(Default)]
struct Tasks {
    held: BTreeSet<String>,
    /// Tasks that other processes run, with their holders.
    elsewhere: BTreeMap<String, String>,
    /// Tasks that are to be given up, each with the process that gets it.
    given: BTreeMap<String, String>,
    /// Tasks that one of several parts of this process has claimed.
    claimed: BTreeSet<String>,
}

impl Spread {
    /// Returns the tasks of a tenant. The first call starts renewing the heartbeat and comparing the tasks with those of other processes.
    pub fn of(shared: &Arc<Shared>, tenant: &str, records: &Arc<dyn Records>) -> Arc<Self> {
        let mut spreads = locked(&shared.spreads);
        if let Some(known) = spreads.get(tenant) {
            return Arc::clone(known);
        }
        let options = &shared.options;
        let heartbeat = Heartbeat::new(&shared.process, Arc::clone(records), Arc::clone(&options.clock), options.lease);
        let spread = Arc::new(Self { tasks: Mutex::default(), decided: watch::Sender::new(0), heartbeat });
        spreads.insert(tenant.to_owned(), Arc::clone(&spread));
        let comparing =
            Comparing { shared: Arc::clone(shared), records: Arc::clone(records), spread: Arc::clone(&spread) };
        supervise(shared, format!("spread/{tenant}"), comparing);
        spread
    }

    pub(super) fn heartbeat(&self) -> &Heartbeat {
        &self.heartbeat
    }

    /// Records that this process runs the task.
    pub fn holds(&self, task: &str) {
        let mut tasks = locked(&self.tasks);
        tasks.elsewhere.remove(task);
        tasks.given.remove(task);
        tasks.held.insert(task.to_owned());
    }

    /// Records that another process runs the task and that this one stands by for it.
    pub fn stands_by(&self, task: &str, holder: &str) {
        let mut tasks = locked(&self.tasks);
        tasks.held.remove(task);
        tasks.given.remove(task);
        tasks.elsewhere.insert(task.to_owned(), holder.to_owned());
    }

    /// Records that this process neither runs the task nor stands by for it.
    pub fn forget(&self, task: &str) {
        let mut tasks = locked(&self.tasks);
        tasks.held.remove(task);
        tasks.elsewhere.remove(task);
        tasks.given.remove(task);
    }

    /// Claims a task for one part of this process. Returns false if another part has claimed it.
    pub fn claim(&self, task: &str) -> bool {
        locked(&self.tasks).claimed.insert(task.to_owned())
    }

    /// Ends a claim.
    pub fn unclaim(&self, task: &str) {
        locked(&self.tasks).claimed.remove(task);
    }

    /// Returns the process that is to get the task, if any.
    pub fn given_to(&self, task: &str) -> Option<String> {
        locked(&self.tasks).given.get(task).cloned()
    }

    /// Waits until the task is to be given up.
    pub async fn until_given(&self, task: &str) {
        // `self` owns the sender, so waiting cannot fail.
        let _ = self.decided.subscribe().wait_for(|_| self.given_to(task).is_some()).await;
    }
}

/// The task that renews the heartbeat and compares what this process runs with what others run.
struct Comparing {
    shared: Arc<Shared>,
    records: Arc<dyn Records>,
    spread: Arc<Spread>,
}

impl Supervised for Comparing {
    async fn run(&mut self) -> Ended {
        let (shared, spread) = (Arc::clone(&self.shared), Arc::clone(&self.spread));
        let (shared, heartbeat) = (&*shared, spread.heartbeat());
        let (mut changed, mut stop) = (beside::changes(), shared.stop.subscribe());
        while !*stop.borrow() {
            if !shared.may_share() {
                // Another host of this process may start on the same store.
                tokio::select! {
                    () = is_set(&mut stop) => {}
                    _ = changed.changed() => {}
                }
                continue;
            }
            if !heartbeat.is_used() {
                heartbeat.end_unused().await;
                tokio::select! {
                    () = is_set(&mut stop) => {}
                    () = heartbeat.until_used() => {}
                }
                continue;
            }
            if let Err(error) = self.compare(shared).await {
                tracing::debug!(%error, "could not renew the heartbeat, or read those of other processes");
            }
            tokio::select! {
                () = is_set(&mut stop) => {}
                () = shared.options.clock.sleep(shared.options.lease / 4) => {}
            }
        }
        self.leave(shared).await;
        Ended::Done
    }
}

impl Comparing {
    /// Keeps the leases of tasks that are still ending, then deletes the record. A drained process wants no tasks and gets none.
    async fn leave(&self, shared: &Shared) {
        let heartbeat = self.spread.heartbeat();
        if !shared.may_share() {
            return;
        }
        if !shared.store.is_shared() {
            let _ = self.records.delete_if(ProcessRecord::COLLECTION, shared.process.as_str().into(), whatever()).await;
            return;
        }
        while heartbeat.is_used() {
            if let Err(error) = heartbeat.beat(Vec::new()).await {
                tracing::debug!(%error, "could not renew the heartbeat");
            }
            tokio::select! {
                () = heartbeat.until_unused() => {}
                () = shared.options.clock.sleep(shared.options.lease / 4) => {}
            }
        }
        heartbeat.end_unused().await;
    }

    async fn compare(&self, shared: &Shared) -> Result<(), RecordError> {
        let (wants, is_spread) = {
            let tasks = locked(&self.spread.tasks);
            let is_spread = !tasks.held.is_empty() || !tasks.elsewhere.is_empty();
            (spread::wanted(tasks.held.len(), &tasks.elsewhere), is_spread)
        };
        match shared.store.is_shared() {
            true => self.spread.heartbeat().beat(wants).await?,
            false if is_spread => {
                let processes = TypedRecords::<ProcessRecord>::declare(Arc::clone(&self.records)).await?;
                let until = shared.options.clock.now().plus(shared.options.lease);
                processes.replace_if(&ProcessRecord::new(&shared.process, until, 0, wants), whatever()).await?;
            }
            false => {}
        }
        if !is_spread {
            return Ok(());
        }
        let others = self.others(shared).await?;
        let mut tasks = locked(&self.spread.tasks);
        tasks.given = spread::given(&tasks.held, &tasks.elsewhere, &others);
        let gives = !tasks.given.is_empty();
        drop(tasks);
        if gives {
            self.spread.decided.send_modify(|count| *count += 1);
        }
        Ok(())
    }

    /// Returns the other processes that are alive, with the tasks that each wants.
    async fn others(&self, shared: &Shared) -> Result<BTreeMap<String, BTreeSet<String>>, RecordError> {
        let (now, heartbeat) = (shared.options.clock.now(), self.spread.heartbeat());
        let processes = TypedRecords::<ProcessRecord>::declared(Arc::clone(&self.records));
        let page = match processes.find(RecordQuery::new(processes.name()).limit(limits::PAGE_MAX)).await {
            // No task was asked for yet.
            Err(RecordError::UnknownCollection(_)) => Vec::new(),
            page => page?.0,
        };
        let mut others = BTreeMap::new();
        for found in page.into_iter().map(|found| found.value).filter(|found| found.process != shared.process) {
            // The time in a heartbeat is not sufficient, because it was written by another clock.
            let lives = heartbeat.lives(&found, now);
            let is_there = if shared.store.is_shared() { lives } else { beside::is_running(&found.process) };
            if is_there {
                others.insert(found.process, found.wants.into_iter().collect());
            } else if heartbeat.is_long_gone(&found.process) {
                // Unless it was renewed since it was read.
                let same = Expected::AbsentOr(Condition::eq("until", found.until));
                match processes.delete_if(found.process.as_str(), same).await {
                    Ok(_) | Err(RecordError::NotAsExpected { .. }) => {}
                    Err(error) => return Err(error),
                }
                heartbeat.forget(&found.process);
            }
        }
        Ok(others)
    }
}

fn whatever() -> Expected {
    Expected::AbsentOr(Condition::All)
}
