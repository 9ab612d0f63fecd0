//! Making snapshots anew: one, or those of a range of ids.

use annals_core::{AggregateIdsQuery, AggregateType, ByteString, limits};

use super::Aggregates;
use super::keep::RemakeError;

/// Which snapshots are made anew, in the order of the bytes of their aggregates' ids.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct IdRange {
    /// Behind this id; it need not exist.
    pub after: Option<ByteString>,
    /// Up to this id, which counts.
    pub until: Option<ByteString>,
}

/// How far it is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Regenerated {
    /// The last id that was done: where to go on, with [`IdRange::after`].
    pub after: Option<ByteString>,
    /// Aggregates whose snapshot was made anew.
    pub saved: u64,
    /// Aggregates of which a later snapshot was there by then, or that are gone.
    pub left: u64,
}

/// Why it ended early.
#[derive(Debug, thiserror::Error)]
#[error("{}{error}", .id.as_ref().map(|id| format!("{id}: ")).unwrap_or_default())]
pub struct RegenerateError {
    /// How far it came; going on from there begins with what failed.
    pub done: Regenerated,
    /// The aggregate at which it ended; none where their ids could not be read.
    pub id: Option<ByteString>,
    /// What is wrong.
    #[source]
    pub error: RemakeError,
}

impl<A: AggregateType> Aggregates<A> {
    /// Makes the snapshot of one aggregate anew from all of its commits. False where a later one was saved meanwhile, or there are neither
    /// commits nor snapshots to be kept.
    ///
    /// # Errors
    /// See [`RemakeError`].
    pub async fn regenerate(&self, id: impl Into<ByteString>) -> Result<bool, RemakeError> {
        self.remake(&id.into()).await
    }

    /// Makes the snapshots of a range of aggregates anew, one after the other, and tells after each how far it is. It can be broken off
    /// anywhere, and taken up again behind [`Regenerated::after`].
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
