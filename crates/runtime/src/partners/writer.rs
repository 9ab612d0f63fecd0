//! Group commit of the writes of attempts: what gathers while one batch is being written goes into the next one.
//!
//! A job is what one attempt stores at one step, such as its claim or its end: changes that are applied all or none. A batch contains the
//! jobs of many deliveries of all partners, and checks the epoch once.
//!
//! INVARIANT: two jobs of a batch never concern the same entity, because an attempt holds the lock of its entity's stripe until its job
//! is answered. So they change different records, and no job depends on the order within a batch.
//!
//! A batch that is refused has changed nothing. Each of its jobs is then written separately, so that a record that is not as expected
//! refuses only the job that expected it.

use std::sync::Arc;

use annals_core::{RecordChange, RecordError, StoreError};
use futures_util::future::join_all;
use tokio::sync::{mpsc, oneshot};

use super::owner::Work;

/// The most jobs in a batch.
const JOBS_MAX: usize = 500;
/// The most bytes that are written together; a single job may be larger.
const BATCH_BYTES: usize = 8 * 1024 * 1024;

type Written = Result<(), RecordError>;

/// What one attempt stores at one step.
pub(super) struct Job {
    changes: Vec<RecordChange>,
    answer: oneshot::Sender<Written>,
}

impl Job {
    fn bytes(&self) -> usize {
        self.changes.iter().map(RecordChange::bytes).sum()
    }

    fn answered(self, written: Written) {
        // The changes are stored even if the attempt was dropped meanwhile.
        let _ = self.answer.send(written);
    }
}

impl Work {
    /// Applies the changes of an attempt, all or none, provided that this process owns the partners. The caller holds the lock of the
    /// stripe of the entity that they concern.
    pub(super) async fn write(&self, changes: Vec<RecordChange>) -> Written {
        let (answer, answered) = oneshot::channel();
        let closed = || Err(StoreError::Closed.into());
        if self.jobs.send(Job { changes, answer }).is_err() {
            return closed();
        }
        answered.await.unwrap_or_else(|_| closed())
    }

    /// Writes jobs until no more can arrive.
    pub(super) async fn write_jobs(self: Arc<Self>, mut asked: mpsc::UnboundedReceiver<Job>) {
        let mut jobs = Vec::new();
        while asked.recv_many(&mut jobs, JOBS_MAX).await > 0 {
            while !jobs.is_empty() {
                let count = fitting(&jobs);
                let batch: Vec<Job> = jobs.drain(..count).collect();
                self.write_batch(batch).await;
            }
        }
    }

    async fn write_batch(&self, jobs: Vec<Job>) {
        if jobs.len() > 1 {
            let written = self.partners.records.write(self.together(&jobs)).await.map(drop);
            if written.as_ref().err().is_none_or(is_of_all) {
                jobs.into_iter().for_each(|job| job.answered(written.clone()));
                return;
            }
        }
        // Concurrently, so that the store can make those that it accepts durable together.
        join_all(jobs.into_iter().map(|job| self.write_alone(job))).await;
    }

    async fn write_alone(&self, job: Job) {
        let Job { changes, answer } = job;
        let fenced = [self.fence()].into_iter().chain(changes).collect();
        let written = self.partners.records.write(fenced).await.map(drop);
        let _ = answer.send(written);
    }

    /// Returns the changes of several jobs as one batch: the epoch first, then grouped by collection, each in the order of the jobs. A
    /// store may send adjacent changes of one collection as one command.
    fn together(&self, jobs: &[Job]) -> Vec<RecordChange> {
        let mut changes: Vec<RecordChange> = jobs.iter().flat_map(|job| job.changes.iter().cloned()).collect();
        changes.sort_by(|one, other| one.collection().cmp(other.collection()));
        changes.insert(0, self.fence());
        changes
    }
}

/// Returns how many of the first jobs fit into one batch: at least one.
fn fitting(jobs: &[Job]) -> usize {
    let mut bytes = 0;
    let fit = jobs.iter().take_while(|job| {
        bytes += job.bytes();
        bytes <= BATCH_BYTES
    });
    fit.count().max(1)
}

/// Returns whether an error concerns every job of a batch: it comes from the store itself, or from the epoch, which is checked first.
fn is_of_all(error: &RecordError) -> bool {
    matches!(error, RecordError::Store(_) | RecordError::NotAsExpected { change: 0, .. })
}

#[cfg(test)]
mod tests {
    use annals_core::bson::rawdoc;

    use super::*;

    fn job(bytes: usize) -> Job {
        let document = rawdoc! { "_id": 1, "text": "x".repeat(bytes) };
        Job { changes: vec![RecordChange::insert("c", document)], answer: oneshot::channel().0 }
    }

    #[test]
    fn a_batch_has_one_job_at_least_and_no_more_bytes_otherwise() {
        let jobs = [job(BATCH_BYTES), job(1), job(BATCH_BYTES / 2), job(BATCH_BYTES)];
        assert_eq!([fitting(&jobs), fitting(&jobs[1..]), fitting(&jobs[3..])], [1, 2, 1]);
    }
}
