//! Publishing events with one call: committing an event puts it on its topic.

use std::sync::Arc;
use std::time::Duration;

use annals_core::{
    Aggregate, ByteString, Code, CommitError, DEFAULT_SCOPE, EventLog, NewCommit, NewEvent, Reached, SequenceNumber,
    UnknownLog, Uuid, new_uuid,
};

use crate::host::{Host, Stage, StageError};

/// The stage of a commit whose events are on their topics.
const PUBLISHED: &str = "published";

/// Publishes events of one tenant. It replaces Integr8sCode's `UnifiedProducer`, which stores an event and then sends it. Here one commit
/// does both, because topics follow the log.
///
/// - **Once.** The id of the event is its request id, so publishing it again adds nothing, whatever happened to the first response.
/// - **In order per key.** The key is the id of the aggregate.
/// - **Nothing to repair.** An event is committed or it is not. No event can be stored without being sent.
///
/// ```
/// # use std::time::Duration;
/// # use annals_core::{Aggregate, Data, NewEvent};
/// # use annals_runtime::{Host, PublishError};
/// # async fn example(host: &Host) -> Result<(), PublishError> {
/// let producer = host.producer("default")?.waiting(Duration::from_secs(5));
/// let requested = NewEvent::new("execution_requested", Data::from_value(&serde_json::json!({"language": "python"})).expect("data"));
/// let published = producer.publish(Aggregate::new("execution", "x-1"), requested).await?;
/// assert!(published.is_published && !published.is_duplicate);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Producer {
    host: Host,
    tenant: String,
    log: Arc<dyn EventLog>,
    header: Vec<(ByteString, ByteString)>,
    wait: Option<Duration>,
}

/// The result of publishing an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Published {
    /// The event's id: the one that it had, or a new one.
    pub event_id: Uuid,
    /// Its sequence number in the log; `None` if the store assigns it later.
    pub sequence_number: Option<SequenceNumber>,
    /// Whether it had been published before, so that nothing was added.
    pub is_duplicate: bool,
    /// Whether it was on its topic when the call returned; always false unless the producer waits.
    pub is_published: bool,
}

/// Why an event was not published. It is not in the log, unless a [`CommitError`] says that the outcome is unknown.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PublishError {
    /// The log refused it, or its outcome is unknown. Repeating the call with the same event id is safe.
    #[error(transparent)]
    Commit(#[from] CommitError),
    /// The stage cannot be waited for.
    #[error(transparent)]
    Stage(#[from] StageError),
    /// The tenant is not declared.
    #[error(transparent)]
    UnknownLog(#[from] UnknownLog),
}

impl PublishError {
    /// Returns the stable code of this error.
    pub fn code(&self) -> Code {
        match self {
            Self::Commit(error) => error.code(),
            Self::Stage(error) => error.code(),
            Self::UnknownLog(error) => error.code(),
        }
    }
}

impl std::fmt::Debug for Producer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Producer").field("tenant", &self.tenant).finish_non_exhaustive()
    }
}

impl Host {
    /// Returns a producer for a tenant. It does not wait.
    ///
    /// # Errors
    /// [`UnknownLog::Tenant`] if the tenant is not declared.
    pub fn producer(&self, tenant: &str) -> Result<Producer, UnknownLog> {
        let log = self.store().log(tenant, DEFAULT_SCOPE)?;
        Ok(Producer { host: self.clone(), tenant: tenant.to_owned(), log, header: Vec::new(), wait: None })
    }
}

impl Producer {
    /// Makes each call wait until the event is on its topic, at most this long.
    #[must_use]
    pub fn waiting(self, at_most: Duration) -> Self {
        Self { wait: Some(at_most), ..self }
    }

    /// Adds this header to the commits of events, for example the name of the service.
    #[must_use]
    pub fn header(mut self, name: impl Into<ByteString>, value: impl Into<ByteString>) -> Self {
        self.header.push((name.into(), value.into()));
        self
    }

    /// Publishes an event of an aggregate, whose id becomes the key of the message. An event without an id gets one.
    ///
    /// # Errors
    /// `request_id_reused` for another event under the same id; else see [`PublishError`].
    pub async fn publish(&self, aggregate: Aggregate, event: NewEvent) -> Result<Published, PublishError> {
        let id = event.id.unwrap_or_else(|| {
            let options = &self.host.0.shared.options;
            new_uuid(options.clock.now(), &*options.random)
        });
        let stage: Option<Stage> = match self.wait {
            Some(_) => Some(self.host.stage(&self.tenant, PUBLISHED).await?),
            None => None,
        };
        let mut commit = NewCommit::new(aggregate.name.clone(), aggregate.id.clone());
        commit = commit.event(NewEvent { id: Some(id), ..event });
        commit.request_id = Some(format!("publish/{id}").into());
        commit.header.clone_from(&self.header);
        if stage.is_some() {
            commit = commit.wait_until(Reached::Logged);
        }
        let mut outcome = self.log.commit(commit).await?;
        if let (Some(stage), Some(at_most)) = (&stage, self.wait) {
            stage.wait(&aggregate, &mut outcome, at_most).await;
        }
        Ok(Published {
            event_id: id,
            sequence_number: outcome.first_sequence_number,
            is_duplicate: outcome.duplicate,
            is_published: outcome.stage.is_some(),
        })
    }
}
