//! Claims of deliveries of replays, which are withdrawn where nobody gets the deliveries.

use std::sync::Arc;

use annals_core::replays::InboxRecord;
use annals_core::{Expected, RecordChange, RecordError, Records, Revision, StoreError, TypedRecords};
use tokio::runtime::Handle;
use tokio::sync::watch;

/// Deliveries of replays that are claimed for a worker that pulls. Dropped before they are accepted, the claims are withdrawn, as if they
/// had not been made.
pub(super) struct Claimed {
    records: Arc<dyn Records>,
    /// The records as they were before, with the revisions that the claims gave to them.
    before: Vec<(InboxRecord, Revision)>,
    /// Wakes those who wait for deliveries.
    replayed: watch::Sender<u64>,
}

impl Claimed {
    /// Makes these claims: each is the record as it was before, and its change. Cancelling is safe: the write is completed, and its claims
    /// are withdrawn.
    pub async fn make(
        records: &Arc<dyn Records>,
        replayed: watch::Sender<u64>,
        claims: Vec<(InboxRecord, RecordChange)>,
    ) -> Result<Self, RecordError> {
        let records = Arc::clone(records);
        let (before, changes): (Vec<InboxRecord>, Vec<RecordChange>) = claims.into_iter().unzip();
        // The claims are dropped with the task where its caller has gone.
        let writing = tokio::spawn(async move {
            let revisions = records.write(changes).await?;
            let before = before.into_iter().zip(revisions).collect();
            Ok::<Self, RecordError>(Self { records, before, replayed })
        });
        match writing.await {
            Ok(written) => written,
            Err(ended) => Err(StoreError::Unreachable(format!("the write of a claim ended early: {ended}")).into()),
        }
    }

    /// The deliveries have arrived.
    pub fn accept(mut self) {
        self.before.clear();
    }
}

impl Drop for Claimed {
    fn drop(&mut self) {
        let before = std::mem::take(&mut self.before);
        if before.is_empty() {
            return;
        }
        // Without a runtime the process ends, and the leases end by themselves.
        let Ok(runtime) = Handle::try_current() else { return };
        let typed = TypedRecords::<InboxRecord>::declared(Arc::clone(&self.records));
        let replayed = self.replayed.clone();
        runtime.spawn(async move {
            for (record, revision) in before {
                match typed.replace_if(&record, Expected::Revision(revision)).await {
                    // Its replay was cancelled, or its lease has ended.
                    Ok(_) | Err(RecordError::NotAsExpected { .. }) => {}
                    Err(error) => {
                        tracing::debug!(id = record.id, %error, "a claim was not withdrawn; its lease ends by itself")
                    }
                }
            }
            replayed.send_modify(|count| *count += 1);
        });
    }
}
