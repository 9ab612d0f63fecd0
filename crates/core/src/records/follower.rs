//! Following the changes of a collection.

use std::sync::Arc;

use super::{ChangeNumber, ChangesError, RecordedChange, Records};
use crate::limits;

/// Follows changes: first what is kept, then what comes, without gap or repeat. It pulls, so a slow follower costs nobody else anything;
/// one that is slower than changes are kept is told so.
pub struct ChangeFollower {
    records: Arc<dyn Records>,
    collection: String,
    after: ChangeNumber,
}

impl ChangeFollower {
    /// Follows what happens to a collection after this change.
    pub fn new(records: Arc<dyn Records>, collection: impl Into<String>, after: ChangeNumber) -> Self {
        Self { records, collection: collection.into(), after }
    }

    /// The last change that was returned.
    pub fn position(&self) -> ChangeNumber {
        self.after
    }

    /// The next changes, at least one; waits for them if need be. Cancelling loses nothing.
    ///
    /// # Errors
    /// See [`ChangesError`]; the position is unchanged, so calling again retries.
    pub async fn next_page(&mut self) -> Result<Vec<RecordedChange>, ChangesError> {
        loop {
            let changes = self.records.changes(&self.collection, self.after, limits::PAGE_MAX).await?;
            if let Some(last) = changes.last() {
                self.after = last.number;
                return Ok(changes);
            }
            drop(changes);
            self.records.wait_past_change(&self.collection, self.after).await?;
        }
    }
}
