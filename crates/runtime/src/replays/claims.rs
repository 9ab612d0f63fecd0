//! Files of replays: where they are, and which replay may write one.
//!
//! INVARIANT: a replay writes a file only while the record of the file's name has its id. The record is written in the batch that starts
//! the replay, and passes to another replay only after the first one has ended. Opening a file truncates lines that are not stored as
//! sent; without the record, these could be lines of another replay.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use annals_core::replays::{FileRecord, REPLAY_FILES, ReplayBody, ReplayError, ReplaySession, ReplayTarget};
use annals_core::{Code, Expected, Invalid, RecordChange, RecordError, Stored, TypedRecords};

use super::TenantReplays;

impl TenantReplays {
    /// Returns the path of a file. Each tenant has a separate folder, so that tenants cannot discover each other's file names.
    pub(super) fn path_in(&self, folder: &Path, name: &str) -> PathBuf {
        folder.join(&self.tenant).join(name)
    }

    /// Returns the change that claims the file of a replay, if it has one, for the batch that starts it. Whether the file exists is
    /// checked afterwards, because the previous replay of that name may have been writing it until now.
    pub(super) async fn claim(
        &self,
        session: &ReplaySession,
        body: &ReplayBody,
    ) -> Result<Option<RecordChange>, ReplayError> {
        let ReplayTarget::File { name } = &body.target else { return Ok(None) };
        let claims = TypedRecords::<FileRecord>::declare(Arc::clone(&self.records)).await?;
        let found = claims.get(name.as_str()).await?;
        if let Some(found) = &found {
            let holder = self.stored(&found.value.session).await?;
            if holder.is_some_and(|holder| !holder.value.status.is_terminal()) {
                let message =
                    format!("{name:?} is being written by replay {}; choose another name", found.value.session);
                return Err(Invalid::new(Code::InvalidReplay, "target.name", message).into());
            }
        }
        let expected = found.map_or(Expected::Absent, |found| Expected::Revision(found.revision));
        let claim = FileRecord { name: name.clone(), session: session.id.clone() };
        Ok(Some(TypedRecords::replacement(&claim, expected)?))
    }

    /// Returns the change that releases the file of a replay that is removed, if it still has one.
    pub(super) async fn giving_up_file(&self, session: &ReplaySession) -> Result<Option<RecordChange>, RecordError> {
        let Ok(ReplayBody { target: ReplayTarget::File { name }, .. }) = session.body() else { return Ok(None) };
        let claims = TypedRecords::<FileRecord>::declared(Arc::clone(&self.records));
        let found: Option<Stored<FileRecord>> = match claims.get(name.as_str()).await {
            Err(RecordError::UnknownCollection(_)) => None,
            found => found?,
        };
        let own = found.filter(|found| found.value.session == session.id);
        Ok(own.map(|own| RecordChange::delete_if(REPLAY_FILES, name, Expected::Revision(own.revision))))
    }
}
