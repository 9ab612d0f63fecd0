//! Waiting until a projection has folded events.

use std::time::Duration;

use annals_core::projections::ProjectionError;

use super::TenantProjections;
use crate::host::locked;

/// How often the stored state is read while another process owns the live build.
const LOOK_EVERY: Duration = Duration::from_millis(100);

impl TenantProjections {
    /// Checks that a projection is defined.
    pub(crate) async fn check_defined(&self, name: &str) -> Result<(), ProjectionError> {
        self.defined(name).await.map(drop)
    }

    /// Waits until every event below a sequence number is in the live records, or does not match the projection's source.
    pub(crate) async fn until_projected(&self, name: &str, number: u64) -> Result<(), ProjectionError> {
        self.start();
        self.sync(name).await?;
        loop {
            let (found, live) = self.defined(name).await?;
            let here = locked(&self.builds).get(&(name.to_owned(), live.number)).map(|it| it.position.clone());
            if self.position(&found.value, &live).await?.0 >= number {
                return Ok(());
            }
            let moved = async {
                match here {
                    // A build that has ended was dropped, or its host is drained.
                    Some(mut position) => _ = position.wait_for(|position| *position >= number).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = moved => {}
                () = self.clock().sleep(LOOK_EVERY) => {}
            }
        }
    }
}
