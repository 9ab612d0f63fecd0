//! Evolving the state of an aggregate from its commits.

use std::sync::Arc;

use annals_core::{
    Aggregate, AggregateQuery, AggregateType, ByteString, Code, CommitInfo, EvolveError, Known, Loaded, ReadError,
    RecordedCommit, StoredEvent, Timestamp, Version, known_event, limits,
};

use super::Aggregates;

/// Why an aggregate could not be loaded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// Its commits could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// Its commits could not be evolved to a state.
    #[error(transparent)]
    Evolve(#[from] EvolveError),
}

impl LoadError {
    /// Returns the stable code of this error.
    pub fn code(&self) -> Code {
        match self {
            Self::Read(error) => error.code(),
            Self::Evolve(error) => error.code(),
        }
    }
}

/// One page of an aggregate's history.
#[derive(Debug, Clone, PartialEq)]
pub struct Past<E> {
    /// Commits, in ascending order of version; empty only at the end.
    pub commits: Vec<PastCommit<E>>,
    /// The aggregate's current version.
    pub version: Version,
}

/// A commit with its events, decoded as far as the type knows them.
#[derive(Debug, Clone, PartialEq)]
pub struct PastCommit<E> {
    /// The properties that its events share.
    pub info: Arc<CommitInfo>,
    /// Its events, without those that the upcasters discard.
    pub events: Vec<Known<E>>,
}

/// The point up to which an aggregate is loaded.
#[derive(Clone, Copy)]
pub(super) struct Until {
    pub(super) version: Version,
    pub(super) time: Option<Timestamp>,
}

impl Until {
    pub(super) const NOW: Self = Self { version: Version::MAX, time: None };
}

/// The result of a replay, and the version that the log reported for the aggregate.
pub(super) struct Replayed<A> {
    pub(super) loaded: Loaded<A>,
    pub(super) log_version: Version,
}

impl<A: AggregateType> Aggregates<A> {
    /// Loads the current state of an aggregate. An aggregate without commits has version 0 and the type's default state.
    ///
    /// # Errors
    /// See [`LoadError`].
    pub async fn load(&self, id: impl Into<ByteString>) -> Result<Loaded<A>, LoadError> {
        Ok(self.latest(id.into(), None).await?.loaded)
    }

    /// Loads the state of an aggregate at a version, or its current state if it has not reached that version.
    ///
    /// # Errors
    /// See [`LoadError`].
    pub async fn load_at(&self, id: impl Into<ByteString>, version: Version) -> Result<Loaded<A>, LoadError> {
        Ok(self.replay(Loaded::new(id), None, Until { version, time: None }).await?.loaded)
    }

    /// Loads the state of an aggregate at a time: with all commits before the first one of a later time.
    ///
    /// # Errors
    /// See [`LoadError`].
    pub async fn load_at_time(&self, id: impl Into<ByteString>, time: Timestamp) -> Result<Loaded<A>, LoadError> {
        Ok(self.replay(Loaded::new(id), None, Until { time: Some(time), ..Until::NOW }).await?.loaded)
    }

    /// Returns one page of commits from a version on, with their events, including those of unknown types. The next page begins after the
    /// last commit.
    ///
    /// # Errors
    /// See [`LoadError`].
    pub async fn history(&self, id: impl Into<ByteString>, from_version: Version) -> Result<Past<A::Event>, LoadError> {
        let query = AggregateQuery { from_version, ..AggregateQuery::new(Aggregate::new(A::NAME, id)) };
        let found = self.log.read_aggregate(query).await?;
        let commits = found.commits.iter().map(|commit| self.past(commit)).collect::<Result<_, _>>()?;
        Ok(Past { commits, version: found.version })
    }

    /// Applies the commits that follow `loaded`.
    pub(super) async fn replay(
        &self,
        mut loaded: Loaded<A>,
        tenant_id: Option<&ByteString>,
        until: Until,
    ) -> Result<Replayed<A>, LoadError> {
        let mut log_version = 0;
        while loaded.version() < until.version {
            let query = AggregateQuery {
                from_version: loaded.version() + 1,
                to_version: until.version,
                to_time: until.time,
                limit: limits::PAGE_MAX,
                tenant_id: tenant_id.cloned(),
                ..AggregateQuery::new(loaded.info.aggregate.clone())
            };
            let found = self.log.read_aggregate(query).await?;
            let before = loaded.version();
            log_version = found.version;
            for commit in &found.commits {
                // A commit of a later time lies between them, and this one was built on it.
                if until.time.is_some() && commit.info.version != loaded.version() + 1 {
                    return Ok(Replayed { loaded, log_version });
                }
                loaded = loaded.after(commit, &self.upcasters)?;
            }
            if loaded.version() == before || loaded.version() >= found.version {
                break;
            }
        }
        Ok(Replayed { loaded, log_version })
    }

    fn past(&self, commit: &RecordedCommit) -> Result<PastCommit<A::Event>, EvolveError> {
        let mut events = Vec::with_capacity(commit.events.len());
        for (ordinal, event) in commit.events.iter().enumerate() {
            events.extend(known_event::<A>(&commit.info, ordinal, StoredEvent::from(event), &self.upcasters)?);
        }
        Ok(PastCommit { info: commit.info.clone(), events })
    }
}
