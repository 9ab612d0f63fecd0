//! Following the changes of a collection.

use std::sync::Arc;

use super::{ChangeNumber, ChangesError, RecordedChange, Records};
use crate::limits;

/// Follows the changes of a collection: first the retained ones, then new ones, without gaps or duplicates. It pulls, so a slow follower
/// costs others nothing; one that falls behind what is retained gets an error.
pub struct ChangeFollower {
    records: Arc<dyn Records>,
    collection: String,
    after: ChangeNumber,
}

impl ChangeFollower {
    /// Follows the changes of a collection that come after this one.
    pub fn new(records: Arc<dyn Records>, collection: impl Into<String>, after: ChangeNumber) -> Self {
        Self { records, collection: collection.into(), after }
    }

    /// Returns the number of the last change that was returned.
    pub fn position(&self) -> ChangeNumber {
        self.after
    }

    /// Returns the next changes, at least one; waits if there are none yet. Cancelling loses nothing.
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
