//! Waiting until events are published.

use std::time::Duration;

use annals_core::relay::{RelayRecord, RelayState};
use annals_core::{RecordError, SequenceNumber, TypedRecords};

use super::TenantRelay;

/// How often the stored position is read while another process publishes.
const LOOK_EVERY: Duration = Duration::from_millis(100);

impl TenantRelay {
    /// Waits until every event below this number whose type has a topic is published or held.
    pub(crate) async fn until_published(&self, number: SequenceNumber) -> Result<(), RecordError> {
        let mut status = self.status.subscribe();
        loop {
            let standby = {
                let now = status.borrow_and_update();
                if now.position >= number || now.state == RelayState::Views {
                    return Ok(());
                }
                now.state == RelayState::Standby
            };
            tokio::select! {
                changed = status.changed() => if changed.is_err() { return std::future::pending().await },
                () = self.shared.options.clock.sleep(LOOK_EVERY), if standby => {
                    if self.stored_position().await? >= number {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// Reads the position that the publishing process has stored.
    async fn stored_position(&self) -> Result<SequenceNumber, RecordError> {
        let records = TypedRecords::<RelayRecord>::declared(std::sync::Arc::clone(&self.records));
        match records.get(RelayRecord::ID).await {
            Ok(found) => Ok(found.map_or(0, |found| found.value.position.cast_unsigned())),
            Err(RecordError::UnknownCollection(_)) => Ok(0),
            Err(error) => Err(error),
        }
    }
}
