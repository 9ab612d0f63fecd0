//! The task that removes replays that ended long ago.

use std::sync::Arc;
use std::time::Duration;

use annals_core::replays::ReplayError;
use annals_core::{StoreError, Timestamp};

use super::TenantReplays;
use crate::host::{Ended, Supervised, is_set, supervise};

/// How often to look for replays that ended long ago.
const EVERY: Duration = Duration::from_secs(60 * 60);

struct Leaving {
    replays: Arc<TenantReplays>,
    /// How long a replay is kept after its end.
    kept: Duration,
}

impl TenantReplays {
    /// Removes replays some time after their end for as long as the host runs, unless they are kept forever.
    pub(super) fn let_leave(&self) {
        if let (Some(kept), Some(replays)) = (self.shared.options.replay_retention, self.me.upgrade()) {
            supervise(&self.shared, format!("replays-leaving/{}", self.tenant), Leaving { replays, kept });
        }
    }
}

impl Leaving {
    async fn remove(&self) -> Ended {
        let kept = i64::try_from(self.kept.as_millis()).unwrap_or(i64::MAX);
        loop {
            let before = self.replays.clock().now().as_millis().saturating_sub(kept);
            match self.replays.remove_ended_before(Timestamp::from_millis(before)).await {
                Ok(0) => {}
                Ok(removed) => {
                    tracing::info!(tenant = self.replays.tenant, removed, "removed replays that ended long ago");
                }
                // A store that is read-only or has damaged records keeps them.
                Err(ReplayError::Store(
                    StoreError::Closed | StoreError::ReadOnly(_) | StoreError::RecordsDamaged(_),
                )) => return Ended::Done,
                Err(error) => return Ended::Failed(error.to_string()),
            }
            self.replays.clock().sleep(EVERY).await;
        }
    }
}

impl Supervised for Leaving {
    async fn run(&mut self) -> Ended {
        let mut stop = self.replays.shared.stop.subscribe();
        tokio::select! {
            () = is_set(&mut stop) => Ended::Done,
            ended = self.remove() => ended,
        }
    }
}
