//! Handling a command: load, decide, commit, and retry after a version conflict.

use std::convert::Infallible;

use annals_core::{
    Aggregate, AggregateType, Code, CommitError, CommitInfo, CommitOutcome, DEFAULT_TENANT_ID, Effect, Invalid, Loaded,
    NewCommit, NewEvent, ReadError, StoredEvent,
};

use super::keep::Latest;
use super::{Aggregates, LoadError, Request};

/// The result of a command.
#[derive(Debug, Clone, PartialEq)]
pub struct Handled<A> {
    /// The outcome of its commit; of a repeat, the original outcome. `None` if the command returned no events.
    pub outcome: Option<CommitOutcome>,
    /// The aggregate after the commit; of a repeat, its current state.
    pub aggregate: Loaded<A>,
}

/// Why a command was not carried out. Nothing was committed, unless a [`CommitError`] says that the outcome is unknown.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HandleError<E> {
    /// The command refused.
    #[error("{0}")]
    Refused(E),
    /// The aggregate is deleted.
    #[error("{0} is deleted; recover it first, or use another id")]
    Deleted(Aggregate),
    /// The aggregate could not be loaded.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The commit was refused. A version conflict is returned here once the retries are used up.
    #[error(transparent)]
    Commit(#[from] CommitError),
}

/// The error of an operation that has no refusal of its own.
pub type NotRefused = HandleError<Infallible>;

impl<E> HandleError<E> {
    /// Returns the stable code of this error; `None` for the command's own refusal.
    pub fn code(&self) -> Option<Code> {
        match self {
            Self::Refused(_) => None,
            Self::Deleted(_) => Some(Code::AggregateDeleted),
            Self::Load(error) => Some(error.code()),
            Self::Commit(error) => Some(error.code()),
        }
    }
}

impl<E> From<Invalid> for HandleError<E> {
    fn from(invalid: Invalid) -> Self {
        Self::Commit(invalid.into())
    }
}

impl<E> From<ReadError> for HandleError<E> {
    fn from(error: ReadError) -> Self {
        Self::Load(error.into())
    }
}

impl<A: AggregateType> Aggregates<A> {
    /// Handles a command: loads the aggregate, calls `decide` for the new events, and commits them at the version that was loaded.
    ///
    /// If another commit came first, all of this is repeated after a pause, as often as [`Retries`](super::Retries) says. So `decide` may
    /// be called several times, and only the result of the last call takes effect. If it returns no events, nothing is committed.
    ///
    /// A request with a request id is carried out once, forever. A repeat returns the first outcome and adds nothing, even if it would be
    /// refused now, and whatever the command is.
    ///
    /// If snapshots are kept and one is due, it is saved before this returns.
    ///
    /// # Errors
    /// See [`HandleError`].
    pub async fn handle<I, E>(
        &self,
        request: impl Into<Request>,
        decide: impl Fn(&Loaded<A>) -> Result<I, E>,
    ) -> Result<Handled<A>, HandleError<E>>
    where
        I: IntoIterator<Item = A::Event>,
    {
        let decide = |loaded: &Loaded<A>| {
            if loaded.info.deleted {
                return Err(HandleError::Deleted(loaded.info.aggregate.clone()));
            }
            let events = decide(loaded).map_err(HandleError::Refused)?;
            events.into_iter().map(|event| self.new_event(&event)).collect()
        };
        self.carry_out(&request.into(), decide).await
    }

    /// Applies an effect to an aggregate, for example deletes it. If the effect is in place already, nothing is committed. A deleted
    /// aggregate can only be recovered.
    ///
    /// # Errors
    /// See [`HandleError`]; a version conflict if the aggregate does not exist.
    pub async fn apply(&self, request: impl Into<Request>, effect: Effect) -> Result<Handled<A>, NotRefused> {
        let decide = |loaded: &Loaded<A>| {
            let info = &loaded.info;
            if info.version == 0 {
                let expected = "exists".to_owned();
                return Err(CommitError::VersionConflict { expected, actual_version: 0 }.into());
            }
            let so_already = match &effect {
                Effect::Deleted => info.deleted,
                Effect::Recovered => !info.deleted,
                _ if info.deleted => return Err(HandleError::Deleted(info.aggregate.clone())),
                Effect::OwnerTransferred(to) => *info.owner_id == **to,
                Effect::SpaceTransferred(to) => *info.space_id == **to,
                Effect::TagsApplied(tags) => info.tags == *tags,
            };
            Ok(if so_already { Vec::new() } else { vec![effect.event()?] })
        };
        self.carry_out(&request.into(), decide).await
    }

    fn new_event<E>(&self, event: &A::Event) -> Result<NewEvent, HandleError<E>> {
        let stored = StoredEvent::of(event, |event_type| self.upcasters.generation_of(event_type));
        let stored = stored.map_err(|message| Invalid::new(Code::InvalidData, "events.data", message))?;
        let new = NewEvent { generation: stored.generation, ..NewEvent::new(stored.event_type, stored.data) };
        Ok(A::annotate(event, new))
    }

    async fn carry_out<E>(
        &self,
        request: &Request,
        decide: impl Fn(&Loaded<A>) -> Result<Vec<NewEvent>, HandleError<E>>,
    ) -> Result<Handled<A>, HandleError<E>> {
        let mut conflicts = 0;
        loop {
            let Latest { loaded, kept } = self.latest(request.id.clone(), request.tenant_id.as_ref()).await?;
            match self.decided(loaded, request, &decide).await? {
                Attempt::Ended(handled) => {
                    if handled.outcome.as_ref().is_some_and(|outcome| !outcome.duplicate) {
                        self.keep_if_due(&handled.aggregate, kept).await;
                    }
                    return Ok(*handled);
                }
                Attempt::Conflict(error) => {
                    if conflicts == self.retries.count || request.expected_version.is_some() {
                        return Err(error.into());
                    }
                }
            }
            conflicts += 1;
            annals_system::sleep(self.retries.pause(conflicts, self.random.bits())).await;
        }
    }

    /// Makes one attempt with a loaded aggregate.
    async fn decided<E>(
        &self,
        loaded: Loaded<A>,
        request: &Request,
        decide: impl Fn(&Loaded<A>) -> Result<Vec<NewEvent>, HandleError<E>>,
    ) -> Result<Attempt<A>, HandleError<E>> {
        let as_expected = match request.expected_version {
            Some(expected) if expected != loaded.version() => Err(HandleError::Commit(CommitError::VersionConflict {
                expected: expected.to_string(),
                actual_version: loaded.version(),
            })),
            _ => Ok(()),
        };
        let events = match as_expected.and_then(|()| decide(&loaded)) {
            Ok(events) if !events.is_empty() => events,
            // The first execution of this request may be the reason why it is refused now.
            other => {
                let outcome = self.first_outcome(request).await?;
                return match (outcome, other) {
                    (None, Err(error)) => Err(error),
                    (outcome, _) => Ok(Attempt::ended(outcome, loaded)),
                };
            }
        };
        let mut commit = request.commit(A::NAME, loaded.version());
        if loaded.version() > 0 {
            commit.tenant_id = Some(loaded.info.tenant_id.clone());
        }
        // Set the times here, because the returned aggregate knows when it was changed.
        let now = self.clock.now();
        commit.events = events;
        commit.events.iter_mut().for_each(|event| event.time = event.time.or(Some(now)));
        let sent = commit.clone();
        match self.log.commit(commit).await {
            Ok(outcome) if !outcome.duplicate => {
                let aggregate = self.committed(loaded, sent, &outcome)?;
                Ok(Attempt::ended(Some(outcome), aggregate))
            }
            Ok(outcome) => {
                let now = self.latest(request.id.clone(), request.tenant_id.as_ref()).await?;
                Ok(Attempt::ended(Some(outcome), now.loaded))
            }
            Err(error @ CommitError::VersionConflict { .. }) => Ok(Attempt::Conflict(error)),
            // The first execution found another state, from which other events followed.
            Err(error @ CommitError::RequestIdReused { .. }) => match self.first_outcome(request).await? {
                Some(outcome) => {
                    let now = self.latest(request.id.clone(), request.tenant_id.as_ref()).await?;
                    Ok(Attempt::ended(Some(outcome), now.loaded))
                }
                None => Err(error.into()),
            },
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the aggregate after a commit, exactly as it will be read from the log.
    fn committed(&self, loaded: Loaded<A>, commit: NewCommit, outcome: &CommitOutcome) -> Result<Loaded<A>, LoadError> {
        let info = CommitInfo {
            commit_id: outcome.commit_id,
            request_id: commit.request_id,
            aggregate: commit.aggregate,
            version: outcome.version,
            time: commit.events.first().and_then(|event| event.time).unwrap_or_default(),
            tenant_id: commit.tenant_id.unwrap_or_else(|| DEFAULT_TENANT_ID.into()),
            owner_id: commit.owner_id.unwrap_or_default(),
            space_id: commit.space_id.unwrap_or_default(),
            command_id: commit.command_id,
            correlation_id: commit.correlation_id,
            causation_id: commit.causation_id,
            header: commit.header,
            transaction: None,
            received: None,
        };
        let stored = |event: NewEvent| StoredEvent {
            event_type: event.event_type,
            generation: event.generation,
            data: event.data,
        };
        Ok(loaded.after_events(&info, commit.events.into_iter().map(stored), &self.upcasters)?)
    }

    /// Returns the original outcome of a request; `None` if it is new or has no request id.
    async fn first_outcome(&self, request: &Request) -> Result<Option<CommitOutcome>, ReadError> {
        let Some(request_id) = &request.request_id else { return Ok(None) };
        let aggregate = Aggregate::new(A::NAME, request.id.clone());
        self.log.request_outcome(&aggregate, request_id).await
    }
}

enum Attempt<A> {
    Ended(Box<Handled<A>>),
    /// Another commit came first.
    Conflict(CommitError),
}

impl<A> Attempt<A> {
    fn ended(outcome: Option<CommitOutcome>, aggregate: Loaded<A>) -> Self {
        Self::Ended(Box::new(Handled { outcome, aggregate }))
    }
}
