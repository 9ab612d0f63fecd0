//! Claims of the deliveries of replays. They are withdrawn if the deliveries do not reach a worker.

use std::sync::Arc;
use std::time::Duration;

use annals_core::replays::InboxRecord;
use annals_core::{Expected, RecordChange, RecordError, Records, StoreError, Stored, Timestamp, TypedRecords};
use tokio::runtime::Handle;
use tokio::sync::watch;

use crate::host::{Shared, is_set};

/// The pause before a failed withdrawal is repeated.
const REPEAT_EVERY: Duration = Duration::from_secs(1);

/// A claim on one delivery.
pub(super) struct Claim {
    /// The record before the claim, which the claim expects.
    pub before: Stored<InboxRecord>,
    /// The record after the claim. INVARIANT: `claim` is set and distinguishes it from every other claim.
    pub leased: InboxRecord,
}

/// Where claims are made, and when they expire.
#[derive(Clone)]
pub(super) struct Place {
    pub shared: Arc<Shared>,
    pub records: Arc<dyn Records>,
    /// Wakes callers that wait for deliveries.
    pub replayed: watch::Sender<u64>,
    /// When the leases end.
    pub until: Timestamp,
}

/// Deliveries of replays that are claimed for a worker that pulls. If dropped before they are accepted, the claims are withdrawn as if
/// they had not been made.
pub(super) struct Claimed {
    place: Place,
    claims: Vec<Claim>,
}

impl Claimed {
    /// Makes these claims. This is cancel-safe: the write is completed, and its claims are then withdrawn. Claims whose outcome is
    /// unknown are withdrawn too.
    pub async fn make(place: Place, claims: Vec<Claim>) -> Result<Self, RecordError> {
        let changes = claims.iter().map(Claim::change).collect::<Result<Vec<RecordChange>, RecordError>>()?;
        let claimed = Self { place, claims };
        // If the caller has gone, the claims are dropped with the task.
        let writing = tokio::spawn(async move {
            let written = claimed.place.records.write(changes).await;
            match written {
                Ok(_) => Ok(claimed),
                // The store may have stored them, or may still do so.
                Err(error @ RecordError::Store(StoreError::Unreachable(_))) => Err(error),
                Err(error) => {
                    claimed.accept();
                    Err(error)
                }
            }
        });
        match writing.await {
            Ok(written) => written,
            Err(ended) => Err(StoreError::Unreachable(format!("writing a claim was interrupted: {ended}")).into()),
        }
    }

    /// Accepts the claims, because the deliveries have arrived or were not claimed.
    pub fn accept(mut self) {
        self.claims.clear();
    }
}

impl Drop for Claimed {
    fn drop(&mut self) {
        let claims = std::mem::take(&mut self.claims);
        if claims.is_empty() {
            return;
        }
        // Without a runtime the process is ending, and the leases expire.
        let Ok(runtime) = Handle::try_current() else { return };
        runtime.spawn(self.place.clone().withdraw(claims));
    }
}

impl Claim {
    fn change(&self) -> Result<RecordChange, RecordError> {
        TypedRecords::replacement(&self.leased, Expected::Revision(self.before.revision))
    }
}

impl Place {
    /// Withdraws claims. Failures are retried until the withdrawal is known to be done or the leases have expired.
    async fn withdraw(self, mut claims: Vec<Claim>) {
        let (clock, mut stop) = (Arc::clone(&self.shared.options.clock), self.shared.stop.subscribe());
        loop {
            let (count, mut failed) = (claims.len(), Vec::new());
            for claim in claims {
                match self.withdraw_one(&claim).await {
                    Ok(()) => {}
                    // Nothing more can be written, and the lease expires.
                    Err(RecordError::Store(StoreError::Closed)) => return,
                    Err(error) => {
                        tracing::debug!(id = claim.leased.id, %error, "could not withdraw a claim; retrying");
                        failed.push(claim);
                    }
                }
            }
            if failed.len() < count {
                self.replayed.send_modify(|count| *count += 1);
            }
            if failed.is_empty() || clock.now().plus(REPEAT_EVERY) >= self.until {
                return;
            }
            claims = failed;
            tokio::select! {
                () = is_set(&mut stop) => return,
                () = clock.sleep(REPEAT_EVERY) => {}
            }
        }
    }

    /// Withdraws a claim, whether or not it was stored. Afterwards it is not stored, and can no longer be.
    async fn withdraw_one(&self, claim: &Claim) -> Result<(), RecordError> {
        let typed = TypedRecords::<InboxRecord>::declared(Arc::clone(&self.records));
        let before = &claim.before;
        let stored = typed.get(before.value.id.as_str()).await?;
        let expected = match stored {
            Some(stored) if stored.value.claim == claim.leased.claim => stored.revision,
            // The claim's write may still arrive. It expects this revision, and will find another one.
            Some(stored) if stored.revision == before.revision => stored.revision,
            // Its lease has ended, or its replay was cancelled.
            _ => return Ok(()),
        };
        match typed.replace_if(&before.value, Expected::Revision(expected)).await {
            Ok(_) => Ok(()),
            // The claim, or something else, was stored after the read: read again.
            Err(RecordError::NotAsExpected { .. }) if expected == before.revision => {
                Err(StoreError::Unreachable("the claim was changed in the meantime; retry".to_owned()).into())
            }
            Err(RecordError::NotAsExpected { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }
}
