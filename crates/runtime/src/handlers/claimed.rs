//! Claims of deliveries of replays, which are withdrawn where nobody gets the deliveries.

use std::sync::Arc;
use std::time::Duration;

use annals_core::replays::InboxRecord;
use annals_core::{Expected, RecordChange, RecordError, Records, StoreError, Stored, Timestamp, TypedRecords};
use tokio::runtime::Handle;
use tokio::sync::watch;

use crate::host::{Shared, is_set};

/// How long until a withdrawal that failed is repeated.
const REPEAT_EVERY: Duration = Duration::from_secs(1);

/// A claim of one delivery.
pub(super) struct Claim {
    /// The record as it was before, which the claim expects.
    pub before: Stored<InboxRecord>,
    /// The record as the claim makes it. INVARIANT: `claim` is set, and tells it from every other claim.
    pub leased: InboxRecord,
}

/// Where claims are made, and when they end by themselves.
#[derive(Clone)]
pub(super) struct Place {
    pub shared: Arc<Shared>,
    pub records: Arc<dyn Records>,
    /// Wakes those who wait for deliveries.
    pub replayed: watch::Sender<u64>,
    /// The end of the leases.
    pub until: Timestamp,
}

/// Deliveries of replays that are claimed for a worker that pulls. Dropped before they are accepted, the claims are withdrawn, as if they
/// had not been made.
pub(super) struct Claimed {
    place: Place,
    claims: Vec<Claim>,
}

impl Claimed {
    /// Makes these claims. Cancelling is safe: the write is completed, and its claims are withdrawn. Claims whose outcome is unknown are
    /// withdrawn too.
    pub async fn make(place: Place, claims: Vec<Claim>) -> Result<Self, RecordError> {
        let changes = claims.iter().map(Claim::change).collect::<Result<Vec<RecordChange>, RecordError>>()?;
        let claimed = Self { place, claims };
        // The claims are dropped with the task where its caller has gone.
        let writing = tokio::spawn(async move {
            let written = claimed.place.records.write(changes).await;
            match written {
                Ok(_) => Ok(claimed),
                // It may have stored them, or may do so later.
                Err(error @ RecordError::Store(StoreError::Unreachable(_))) => Err(error),
                Err(error) => {
                    claimed.accept();
                    Err(error)
                }
            }
        });
        match writing.await {
            Ok(written) => written,
            Err(ended) => Err(StoreError::Unreachable(format!("the write of a claim ended early: {ended}")).into()),
        }
    }

    /// The deliveries have arrived, or were not claimed.
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
        // Without a runtime the process ends, and the leases end by themselves.
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
    /// Withdraws claims. What fails is repeated until it is known to be done, or the leases have ended.
    async fn withdraw(self, mut claims: Vec<Claim>) {
        let (clock, mut stop) = (Arc::clone(&self.shared.options.clock), self.shared.stop.subscribe());
        loop {
            let (count, mut failed) = (claims.len(), Vec::new());
            for claim in claims {
                match self.withdraw_one(&claim).await {
                    Ok(()) => {}
                    // Nothing more is written, and the lease ends by itself.
                    Err(RecordError::Store(StoreError::Closed)) => return,
                    Err(error) => {
                        tracing::debug!(id = claim.leased.id, %error, "a claim was not withdrawn yet");
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

    /// Withdraws a claim, whether or not it was stored: afterwards it is not, and cannot be.
    async fn withdraw_one(&self, claim: &Claim) -> Result<(), RecordError> {
        let typed = TypedRecords::<InboxRecord>::declared(Arc::clone(&self.records));
        let before = &claim.before;
        let stored = typed.get(before.value.id.as_str()).await?;
        let expected = match stored {
            Some(stored) if stored.value.claim == claim.leased.claim => stored.revision,
            // Its write may still arrive. It expects this revision, and finds another one.
            Some(stored) if stored.revision == before.revision => stored.revision,
            // Its lease has ended, or its replay was cancelled.
            _ => return Ok(()),
        };
        match typed.replace_if(&before.value, Expected::Revision(expected)).await {
            Ok(_) => Ok(()),
            // The claim was stored since it was looked for, or something else was: the next look tells.
            Err(RecordError::NotAsExpected { .. }) if expected == before.revision => {
                Err(StoreError::Unreachable("the claim was changed meanwhile".to_owned()).into())
            }
            Err(RecordError::NotAsExpected { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }
}
