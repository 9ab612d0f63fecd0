//! Rebuilding snapshots: of one aggregate, or of a range of ids.

use annals_core::{AggregateIdsQuery, AggregateType, ByteString, limits};

use super::Aggregates;
use super::keep::RemakeError;

/// The aggregates whose snapshots are rebuilt, in byte order of their ids.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct IdRange {
    /// After this id, exclusive. It need not exist.
    pub after: Option<ByteString>,
    /// Up to this id, inclusive.
    pub until: Option<ByteString>,
}

/// The progress of rebuilding a range.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Regenerated {
    /// The last id that was processed. Pass it as [`IdRange::after`] to resume.
    pub after: Option<ByteString>,
    /// The number of snapshots that were rebuilt.
    pub saved: u64,
    /// The number of aggregates that were left as they are, because they have a newer snapshot by now or no longer exist.
    pub left: u64,
}

/// Why rebuilding ended early.
#[derive(Debug, thiserror::Error)]
#[error("{}{error}", .id.as_ref().map(|id| format!("{id}: ")).unwrap_or_default())]
pub struct RegenerateError {
    /// The progress so far. Resuming from there begins with the aggregate that failed.
    pub done: Regenerated,
    /// The aggregate that failed; `None` if the ids could not be read.
    pub id: Option<ByteString>,
    /// The error.
    #[source]
    pub error: RemakeError,
}

impl<A: AggregateType> Aggregates<A> {
    /// Rebuilds the snapshot of one aggregate from all of its commits. Returns false if a newer one was saved meanwhile, if there are no
    /// commits, or if no snapshots are kept.
    ///
    /// # Errors
    /// See [`RemakeError`].
    pub async fn regenerate(&self, id: impl Into<ByteString>) -> Result<bool, RemakeError> {
        self.remake(&id.into()).await
    }

    /// Rebuilds the snapshots of a range of aggregates, one after the other, and reports the progress after each. It can be interrupted
    /// at any point and resumed after [`Regenerated::after`].
    ///
    /// # Errors
    /// See [`RegenerateError`].
    pub async fn regenerate_range(
        &self,
        range: IdRange,
        mut progress: impl FnMut(&Regenerated) + Send,
    ) -> Result<Regenerated, RegenerateError> {
        let mut done = Regenerated { after: range.after, ..Regenerated::default() };
        loop {
            let page = AggregateIdsQuery { name: A::NAME.into(), after: done.after.clone(), limit: limits::PAGE_MAX };
            let known = match self.log.aggregate_ids(page).await {
                Ok(known) => known,
                Err(error) => {
                    return Err(RegenerateError { done, id: None, error: super::LoadError::from(error).into() });
                }
            };
            if known.is_empty() {
                return Ok(done);
            }
            for id in known.into_iter().map(|known| known.id) {
                if range.until.as_ref().is_some_and(|until| id.as_bytes() > until.as_bytes()) {
                    return Ok(done);
                }
                match self.remake(&id).await {
                    Ok(true) => done.saved += 1,
                    Ok(false) => done.left += 1,
                    Err(error) => return Err(RegenerateError { done, id: Some(id), error }),
                }
                done.after = Some(id);
                progress(&done);
            }
        }
    }
}
