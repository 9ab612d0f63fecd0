//! The health of a tenant's archive, from stored data.

use annals_core::archive::{ArchiveError, ArchiveTarget};
use annals_core::{ReadError, StoreError};

use super::TenantArchive;
use crate::health::ProcessorHealth;

impl TenantArchive {
    /// Returns the health of an archive; `None` if no rule archives.
    pub(crate) async fn health(&self) -> Result<Option<ProcessorHealth>, ReadError> {
        let read = async {
            let loaded = self.load().await?;
            let archives = loaded.record.rules.iter().any(|rule| rule.archive != ArchiveTarget::None);
            match archives {
                true => self.status(&loaded).await.map(Some),
                false => Ok::<_, ArchiveError>(None),
            }
        };
        let status = match read.await {
            Ok(Some(status)) => status,
            Ok(None) => return Ok(None),
            Err(ArchiveError::Store(error)) => return Err(error.into()),
            Err(error) => return Err(StoreError::other(error.code(), error.to_string()).into()),
        };
        let (waiting, refused) = (status.waiting, status.refused);
        let degraded = match status.failing {
            Some(failing) => Some(format!(
                "the archive cannot be written since {}: {}; {waiting} events are pending, and none of them is deleted",
                failing.since, failing.reason
            )),
            None if refused > 0 => Some(format!(
                "the archive refused {refused} events, which stay in the browse view; the log of the server names them"
            )),
            None => None,
        };
        Ok(Some(ProcessorHealth {
            tenant: self.tenant.clone(),
            kind: "archive",
            name: "retention".to_owned(),
            position: 0,
            head: 0,
            lag_seconds: 0,
            seconds_since_progress: 0,
            failing: waiting,
            letters: 0,
            blocked: refused,
            owner: None,
            degraded,
        }))
    }
}
