//! The named stages that a commit can wait for: one entry each.
//!
//! ```text
//!  Host::stage(tenant, "handled:billing") ─▶ the entry `handled` ─▶ a Stage, or a refusal before anything is committed
//!  Stage::wait(aggregate, outcome, time)  ─▶ notes in the outcome that the stage was reached
//! ```

use std::sync::Arc;
use std::time::Duration;

use annals_core::handlers::HandlerError;
use annals_core::projections::ProjectionError;
use annals_core::{
    Aggregate, ByteString, Code, CommitOutcome, DEFAULT_SCOPE, Invalid, Reached, Snapshots, StoreError, UnknownLog,
    Wait,
};
use async_trait::async_trait;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::{Host, Shared, is_set};
use crate::handlers::TenantHandlers;
use crate::projections::TenantProjections;
use crate::relay::TenantRelay;

/// A kind of stage.
struct Entry {
    /// Its name: the part before the colon, if the stage takes an argument.
    name: &'static str,
    /// The form that callers write.
    form: &'static str,
    /// Finds the stage of a tenant by the part after the colon. Returns `None` if that part is missing, or is present but has no meaning.
    find: Find,
}

type Found = Result<Option<Box<dyn Awaited>>, StageError>;
type Find = for<'a> fn(&'a Host, &'a str, Option<&'a str>) -> BoxFuture<'a, Found>;

const ENTRIES: [Entry; 4] = [
    Entry { name: "snapshot", form: "snapshot", find: |host, tenant, of| snapshot(host, tenant, of).boxed() },
    Entry { name: "handled", form: "handled:NAME", find: |host, tenant, of| handled(host, tenant, of).boxed() },
    Entry { name: "published", form: "published", find: |host, tenant, of| published(host, tenant, of).boxed() },
    Entry { name: "projected", form: "projected:NAME", find: |host, tenant, of| projected(host, tenant, of).boxed() },
];

/// The condition that a stage waits for.
#[async_trait]
trait Awaited: Send + Sync {
    /// Waits until a commit that is in the log has reached the stage.
    async fn reached(&self, aggregate: &Aggregate, outcome: &CommitOutcome) -> Result<(), StageError>;
}

async fn snapshot(host: &Host, tenant: &str, of: Option<&str>) -> Found {
    if of.is_some() {
        return Ok(None);
    }
    Ok(Some(Box::new(SnapshotSaved(host.0.shared.store.snapshots(tenant)?))))
}

/// Reached when the aggregate's snapshot is at the commit's version or a later one.
struct SnapshotSaved(Arc<dyn Snapshots>);

#[async_trait]
impl Awaited for SnapshotSaved {
    async fn reached(&self, aggregate: &Aggregate, outcome: &CommitOutcome) -> Result<(), StageError> {
        let until = self.0.until(aggregate, outcome.version).await;
        until.map_err(|error| StageError::Store(StoreError::Unreachable(error.to_string())))
    }
}

async fn handled(host: &Host, tenant: &str, of: Option<&str>) -> Found {
    let Some(name) = of else { return Ok(None) };
    let handlers = host.tenant(tenant)?;
    handlers.check_defined(name).await?;
    Ok(Some(Box::new(HandledBy { handlers, name: name.to_owned() })))
}

/// Reached when a handler has handled the commit's events, or has passed them because they do not match its source.
struct HandledBy {
    handlers: Arc<TenantHandlers>,
    name: String,
}

#[async_trait]
impl Awaited for HandledBy {
    async fn reached(&self, _: &Aggregate, outcome: &CommitOutcome) -> Result<(), StageError> {
        let first = outcome.first_sequence_number.unwrap_or(0);
        let events = first..first + outcome.event_ids.len() as u64;
        Ok(self.handlers.until_handled(&self.name, events).await?)
    }
}

async fn projected(host: &Host, tenant: &str, of: Option<&str>) -> Found {
    let Some(name) = of else { return Ok(None) };
    let projections = host.projections_of(tenant)?;
    projections.check_defined(name).await?;
    Ok(Some(Box::new(ProjectedBy { projections, name: name.to_owned() })))
}

/// Reached when a projection has folded the commit's events into its live records, or has passed them because they do not match its
/// source.
struct ProjectedBy {
    projections: Arc<TenantProjections>,
    name: String,
}

#[async_trait]
impl Awaited for ProjectedBy {
    async fn reached(&self, _: &Aggregate, outcome: &CommitOutcome) -> Result<(), StageError> {
        let first = outcome.first_sequence_number.unwrap_or(0);
        Ok(self.projections.until_projected(&self.name, first + outcome.event_ids.len() as u64).await?)
    }
}

async fn published(host: &Host, tenant: &str, of: Option<&str>) -> Found {
    if of.is_some() {
        return Ok(None);
    }
    host.store().log(tenant, DEFAULT_SCOPE)?;
    Ok(Some(Box::new(Published(host.relay_of(tenant)))))
}

/// Reached when the relay has published the commit's events, or their types have no topics. Without a relay, topics are views of the log,
/// so an event is on its topic as soon as it is in the log.
struct Published(Option<Arc<TenantRelay>>);

#[async_trait]
impl Awaited for Published {
    async fn reached(&self, _: &Aggregate, outcome: &CommitOutcome) -> Result<(), StageError> {
        let Some(relay) = &self.0 else { return Ok(()) };
        let first = outcome.first_sequence_number.unwrap_or(0);
        let published = relay.until_published(first + outcome.event_ids.len() as u64).await;
        published.map_err(|error| StageError::Store(StoreError::Unreachable(error.to_string())))
    }
}

/// A named stage of a tenant that commits can wait for. [`Host::stage`] returns it.
pub struct Stage {
    name: ByteString,
    awaited: Box<dyn Awaited>,
    shared: Arc<Shared>,
}

impl std::fmt::Debug for Stage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Stage").field(&self.name).finish()
    }
}

impl Host {
    /// Returns a named stage of a tenant, such as `snapshot` or `handled:billing`. Look it up before committing, so that a commit that
    /// waits for an unknown stage is refused before it is stored.
    ///
    /// # Errors
    /// See [`StageError`].
    pub async fn stage(&self, tenant: &str, name: &str) -> Result<Stage, StageError> {
        Wait::until(Reached::Stage(name.into())).validate()?;
        let (kind, of) = name.split_once(':').map_or((name, None), |(kind, of)| (kind, Some(of)));
        let found = match ENTRIES.iter().find(|entry| entry.name == kind) {
            Some(entry) => (entry.find)(self, tenant, of).await?,
            None => None,
        };
        let awaited = found.ok_or_else(|| unknown(name))?;
        Ok(Stage { name: name.into(), awaited, shared: Arc::clone(&self.0.shared) })
    }
}

/// Checks that a stage of this form exists, without checking whether a tenant has what it names.
///
/// # Errors
/// `invalid_wait` at `wait.for`.
pub fn check_stage(name: &str) -> Result<(), Invalid> {
    let (kind, of) = name.split_once(':').map_or((name, None), |(kind, of)| (kind, Some(of)));
    let known = ENTRIES.iter().any(|entry| entry.name == kind && entry.form.contains(':') == of.is_some());
    if known { Ok(()) } else { Err(unknown(name)) }
}

fn unknown(name: &str) -> Invalid {
    let known = ["committed", "logged"].into_iter().chain(ENTRIES.iter().map(|entry| entry.form));
    let known = known.map(|form| format!("{form:?}")).collect::<Vec<_>>().join(", ");
    Invalid::new(Code::InvalidWait, "wait.for", format!("{name:?} is not a stage; the stages are {known}"))
}

impl Stage {
    /// Waits until a stored commit of this aggregate has reached the stage, at most this long by the host's clock, and then sets
    /// [`CommitOutcome::stage`]. Returns early, without setting it, if the host is drained or the stage cannot be observed. Returns at
    /// once for a commit without sequence numbers, because it has already used its time waiting for the log.
    pub async fn wait(&self, aggregate: &Aggregate, outcome: &mut CommitOutcome, at_most: Duration) {
        if outcome.first_sequence_number.is_none() {
            return;
        }
        let mut stop = self.shared.stop.subscribe();
        let reached = tokio::select! {
            biased;
            reached = self.awaited.reached(aggregate, outcome) => reached,
            () = self.shared.options.clock.sleep(at_most) => return,
            () = is_set(&mut stop) => return,
        };
        match reached {
            Ok(()) => outcome.stage = Some(self.name.clone()),
            Err(error) => tracing::debug!(stage = &*self.name, %error, "cannot wait for a commit"),
        }
    }
}

/// Why a stage cannot be waited for. Nothing was committed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum StageError {
    /// There is no stage of this name.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// The tenant is not declared.
    #[error(transparent)]
    UnknownLog(#[from] UnknownLog),
    /// The handler is not defined, or the store cannot be read.
    #[error(transparent)]
    Handler(#[from] HandlerError),
    /// The projection is not defined, or the store cannot be read.
    #[error(transparent)]
    Projection(#[from] ProjectionError),
    /// The store failed.
    #[error(transparent)]
    Store(StoreError),
}

impl StageError {
    /// Returns the stable code of this error.
    pub fn code(&self) -> Code {
        match self {
            Self::Invalid(invalid) => invalid.code,
            Self::UnknownLog(error) => error.code(),
            Self::Handler(error) => error.code(),
            Self::Projection(error) => error.code(),
            Self::Store(error) => error.code(),
        }
    }
}
