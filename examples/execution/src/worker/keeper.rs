//! The keeper of a worker, which reports that the worker is alive and takes over the pods of dead workers.

use std::sync::Arc;
use std::time::Duration;

use annals::{Condition, Expected, RecordError, Stored, TypedRecords, limits};
use tokio::sync::watch;

use super::Worker;
use crate::events::{AGGREGATE, CREATE_POD, POD_RUNNING};
use crate::execution::Execution;
use crate::process::{EXECUTION_VARIABLE, kill_stragglers};
use crate::records::{PodRecord, WorkerRecord, date, typed};
use crate::scheduler::stopped;
use crate::step::StepError;
use crate::verdict::{self, INTERRUPTED};

/// How often it checks for pods that it must delete.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Why a check ended early.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KeepError {
    /// The records could not be read or written.
    #[error(transparent)]
    Records(#[from] RecordError),
    /// The log could not be read.
    #[error(transparent)]
    Log(#[from] StepError),
}

impl Worker {
    /// Keeps ownership of the worker's pods until `stopping` is set.
    pub(crate) async fn keep(self: Arc<Self>, mut stopping: watch::Receiver<bool>) {
        let mut told = None;
        loop {
            let kept = tokio::select! {
                kept = self.look() => kept,
                () = stopped(&mut stopping) => return,
            };
            let failed = kept.err().map(|error| error.to_string());
            if let Some(error) = failed.as_ref().filter(|error| told.as_ref() != Some(*error)) {
                self.workshop.lines.print(format!("! pods cannot be supervised; retrying: {error}")).await;
            }
            told = failed;
            tokio::select! {
                () = self.workshop.clock.sleep(LOOK_EVERY.min(self.workshop.lease / 3)) => {}
                () = stopped(&mut stopping) => return,
            }
        }
    }

    /// Reports that the worker is alive, and takes over what others left.
    pub(crate) async fn look(&self) -> Result<(), KeepError> {
        self.say_alive().await?;
        let query = TypedRecords::<PodRecord>::query().limit(limits::PAGE_MAX);
        let (pods, _) = typed::<PodRecord>(&self.workshop.records).find(query).await?;
        for pod in pods {
            if pod.value.worker == self.workshop.name {
                if let (Some(reason), Some(handle)) = (&pod.value.delete, self.handle(&pod.value.execution_id)) {
                    handle.delete.send_replace(Some(reason.clone()));
                }
            } else if self.is_dead(&pod.value.worker).await? {
                self.take_over(pod).await?;
            }
        }
        Ok(())
    }

    async fn say_alive(&self) -> Result<(), KeepError> {
        if self.workshop.is_shared {
            let until = date(self.workshop.clock.now().plus(self.workshop.lease));
            let alive = WorkerRecord { worker: self.workshop.name.clone(), until };
            typed::<WorkerRecord>(&self.workshop.records)
                .replace_if(&alive, Expected::AbsentOr(Condition::All))
                .await?;
        }
        Ok(())
    }

    /// Returns whether a worker is dead. On a store that one process opens at a time, every other worker is of an earlier process.
    async fn is_dead(&self, worker: &str) -> Result<bool, KeepError> {
        if !self.workshop.is_shared {
            return Ok(true);
        }
        let found = typed::<WorkerRecord>(&self.workshop.records).get(worker).await?;
        Ok(found.is_none_or(|found| found.value.until <= date(self.workshop.clock.now())))
    }

    /// Takes over a pod. Ends it if its program had begun, and runs it if not.
    async fn take_over(&self, pod: Stored<PodRecord>) -> Result<(), KeepError> {
        let id = pod.value.execution_id.clone();
        let mine = PodRecord { worker: self.workshop.name.clone(), ..pod.value };
        let pods = typed::<PodRecord>(&self.workshop.records);
        match pods.replace_if(&mine, Expected::Revision(pod.revision)).await {
            Ok(_) => {}
            // Another worker was faster, or the worker was alive and has ended it.
            Err(RecordError::NotAsExpected { .. }) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        // Parts of it may still run on this machine.
        kill_stragglers(EXECUTION_VARIABLE, &id);
        let execution = Execution::read(&*self.workshop.log, &id).await.map_err(StepError::from)?;
        let Some(execution) = execution else {
            self.workshop.forget(&id).await;
            return Ok(());
        };
        debug_assert_eq!(&*execution.request().commit.aggregate.name, AGGREGATE);
        match execution.last(CREATE_POD) {
            Some(command) if execution.has(POD_RUNNING) || execution.status().is_over() => {
                self.workshop.remove_folder(command);
                match verdict::of_system_error(&id, INTERRUPTED) {
                    Ok(verdict) => self.workshop.end(command, &mine.pod_name, verdict, None, "Interrupted").await,
                    Err(defect) => self.workshop.lines.print(format!("! {id}: {defect}")).await,
                }
            }
            Some(command) => drop(self.begin(command.clone(), true)),
            None => self.workshop.forget(&id).await,
        }
        Ok(())
    }
}
