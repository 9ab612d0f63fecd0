//! Saves snapshots that come from outside, after checking their version against the log.

use super::{Snapshot, Snapshots};
use crate::{Code, EventLog, Invalid, ReadError, RecordError};

/// Saves a snapshot that this process did not compute from the log itself. Returns false, and changes nothing, if the store has a
/// snapshot of a higher version.
///
/// INVARIANT: a snapshot saved through here has a version that its aggregate has reached. A snapshot ahead of the log would refuse
/// every correct snapshot until the log passes it. Versions only grow, so checking before saving is enough. The check costs one look-up
/// of the aggregate's version.
///
/// # Errors
/// `snapshot_ahead` if the aggregate has not reached the version; see also [`RecordError`].
pub async fn save_snapshot(
    log: &dyn EventLog,
    snapshots: &dyn Snapshots,
    snapshot: &Snapshot,
) -> Result<bool, RecordError> {
    snapshot.validate()?;
    let (aggregate, version) = (&snapshot.info.aggregate, snapshot.info.version);
    if version > 0 {
        let actual = log.aggregate_version(aggregate).await.map_err(of_reading)?;
        if version > actual {
            let message = format!(
                "snapshot of {aggregate} is ahead of the log: its version is {version}, the aggregate's is {actual}; commit first, or save the snapshot with the aggregate's version"
            );
            return Err(Invalid::new(Code::SnapshotAhead, "version", message).into());
        }
    }
    snapshots.save(snapshot).await
}

fn of_reading(error: ReadError) -> RecordError {
    match error {
        ReadError::Invalid(invalid) => invalid.into(),
        ReadError::Store(error) => error.into(),
    }
}
