//! Snapshots of aggregates: when they are saved, and how unusable ones are replaced.

use std::sync::Arc;

use annals_core::{Aggregate, AggregateType, ByteString, Loaded, RecordError, Snapshot, Snapshots, Version};
use tokio::sync::OnceCell;

use super::load::Until;
use super::{Aggregates, LoadError};

/// When the snapshot of an aggregate is saved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SnapshotStrategy {
    /// After every commit.
    #[default]
    Every,
    /// After a commit that is at least this many versions ahead of the existing snapshot.
    EveryVersions(Version),
    /// Never. Existing snapshots are used.
    Never,
}

impl SnapshotStrategy {
    fn is_due(self, version: Version, kept: Version) -> bool {
        match self {
            Self::Every => true,
            Self::EveryVersions(versions) => version.saturating_sub(kept) >= versions,
            Self::Never => false,
        }
    }
}

/// Where snapshots are kept, and when they are saved.
#[derive(Clone)]
pub(super) struct Keeping {
    pub(super) snapshots: Arc<dyn Snapshots>,
    pub(super) strategy: SnapshotStrategy,
    /// Whether the type's indexes were declared.
    declared: Arc<OnceCell<()>>,
}

impl Keeping {
    pub(super) fn new(snapshots: Arc<dyn Snapshots>, strategy: SnapshotStrategy) -> Self {
        Self { snapshots, strategy, declared: Arc::default() }
    }

    /// Declares the indexes before the first read, so that snapshots saved by other software are found.
    async fn ready<A: AggregateType>(&self) -> Result<&Arc<dyn Snapshots>, RecordError> {
        let declare = || self.snapshots.declare(A::NAME, A::indexes());
        self.declared.get_or_try_init(declare).await?;
        Ok(&self.snapshots)
    }
}

/// The current state of an aggregate, and the version of its stored snapshot.
pub(super) struct Latest<A> {
    pub(super) loaded: Loaded<A>,
    pub(super) kept: Version,
}

/// How a snapshot can be used.
enum Basis<A> {
    Of(Box<Loaded<A>>),
    None,
    /// Its state cannot be read or has another state revision; the next snapshot replaces it.
    Unusable,
}

impl<A: AggregateType> Aggregates<A> {
    /// Loads the current state of an aggregate, if it has this tenantId, from its snapshot and the commits after it.
    pub(super) async fn latest(&self, id: ByteString, tenant_id: Option<&ByteString>) -> Result<Latest<A>, LoadError> {
        let aggregate = Aggregate::new(A::NAME, id.clone());
        let mut heal = false;
        match self.basis(&aggregate).await {
            Basis::None => {}
            Basis::Unusable => heal = true,
            Basis::Of(basis) if tenant_id.is_some_and(|wanted| *wanted != basis.info.tenant_id) => {}
            Basis::Of(basis) => {
                let kept = basis.version();
                let replayed = self.replay(*basis, tenant_id, Until::NOW).await?;
                if replayed.log_version >= kept {
                    return Ok(Latest { loaded: replayed.loaded, kept });
                }
                // The snapshot belongs to another log. Delete it first, so that its state is never mistaken for this log's.
                self.forget(&aggregate, kept).await;
                heal = true;
            }
        }
        let loaded = self.replay(Loaded::new(id), tenant_id, Until::NOW).await?.loaded;
        let may_save = self.keeping.as_ref().is_some_and(|keeping| keeping.strategy != SnapshotStrategy::Never);
        let kept = if heal && may_save && loaded.version() > 0 { self.keep(&loaded).await } else { 0 };
        Ok(Latest { loaded, kept })
    }

    async fn basis(&self, aggregate: &Aggregate) -> Basis<A> {
        let Some(keeping) = &self.keeping else { return Basis::None };
        let loading = async { keeping.ready::<A>().await?.load(aggregate).await };
        match loading.await {
            Ok(Some(snapshot)) => snapshot.loaded().map_or(Basis::Unusable, |loaded| Basis::Of(Box::new(loaded))),
            Ok(None) => Basis::None,
            Err(error) => {
                tracing::warn!(%aggregate, %error, "cannot read the snapshot of an aggregate; reading all of its commits instead");
                Basis::None
            }
        }
    }

    /// Saves the snapshot of an aggregate after a commit, if one is due. A failure to save it does not affect the commit.
    pub(super) async fn keep_if_due(&self, loaded: &Loaded<A>, kept: Version) {
        if self.keeping.as_ref().is_some_and(|keeping| keeping.strategy.is_due(loaded.version(), kept)) {
            self.keep(loaded).await;
        }
    }

    /// Saves a snapshot. Returns the version that is stored afterwards, as far as is known.
    async fn keep(&self, loaded: &Loaded<A>) -> Version {
        match self.save(loaded).await {
            Ok(_) => loaded.version(),
            Err(error) => {
                tracing::warn!(aggregate = %loaded.info.aggregate, %error, "could not save the snapshot of an aggregate");
                0
            }
        }
    }

    async fn save(&self, loaded: &Loaded<A>) -> Result<bool, RecordError> {
        let Some(keeping) = &self.keeping else { return Ok(false) };
        let snapshot = Snapshot { time: Some(self.clock.now()), ..Snapshot::of(loaded)? };
        keeping.ready::<A>().await?.save(&snapshot).await
    }

    async fn forget(&self, aggregate: &Aggregate, version: Version) {
        let Some(keeping) = &self.keeping else { return };
        match keeping.snapshots.delete(aggregate, Some(version)).await {
            Ok(_) => {
                tracing::warn!(%aggregate, version, "deleted a snapshot that was ahead of the log; it will be rebuilt")
            }
            Err(error) => tracing::warn!(%aggregate, %error, "could not delete a snapshot that is ahead of the log"),
        }
    }

    /// Rebuilds the snapshot of an aggregate from all of its commits, and saves it. Returns false if the aggregate has no commits, or if
    /// a snapshot of a higher version was saved meanwhile.
    pub(super) async fn remake(&self, id: &ByteString) -> Result<bool, RemakeError> {
        let Some(keeping) = &self.keeping else { return Ok(false) };
        let aggregate = Aggregate::new(A::NAME, id.clone());
        let mut replayed = self.replay(Loaded::new(id.clone()), None, Until::NOW).await?;
        let kept = keeping.ready::<A>().await?.version(&aggregate).await?;
        if kept > replayed.log_version {
            // The snapshot may be of a later commit than those replayed.
            replayed = self.replay(replayed.loaded, None, Until::NOW).await?;
            if kept > replayed.log_version {
                keeping.snapshots.delete(&aggregate, Some(kept)).await?;
            }
        }
        Ok(replayed.loaded.version() > 0 && self.save(&replayed.loaded).await?)
    }
}

/// Why a snapshot could not be rebuilt.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum RemakeError {
    /// The aggregate could not be loaded.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The snapshot could not be saved.
    #[error(transparent)]
    Save(#[from] RecordError),
}
