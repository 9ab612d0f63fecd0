//! Handling a command: load, decide, commit; and again after a version conflict.

use std::convert::Infallible;

use annals_core::{
    Aggregate, AggregateType, Code, CommitError, CommitInfo, CommitOutcome, DEFAULT_TENANT_ID, Effect, Invalid, Loaded,
    NewCommit, NewEvent, ReadError, StoredEvent,
};

use super::keep::Latest;
use super::{Aggregates, LoadError, Request};

/// What became of a command.
#[derive(Debug, Clone, PartialEq)]
pub struct Handled<A> {
    /// Its commit; of a repeat, that of its first time. None when nothing followed from it.
    pub outcome: Option<CommitOutcome>,
    /// The aggregate after it; of a repeat, as it is now.
    pub aggregate: Loaded<A>,
}

/// Why a command was not carried out. Nothing of it was committed, except where a [`CommitError`] says that this is unknown.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HandleError<E> {
    /// The command itself said no.
    #[error("{0}")]
    Refused(E),
    /// The aggregate is deleted.
    #[error("{0} is deleted; recover it first, or use another id")]
    Deleted(Aggregate),
    /// The aggregate could not be loaded.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// What followed from the command was not taken. A version conflict comes here when it was met once more than is tried again.
    #[error(transparent)]
    Commit(#[from] CommitError),
}

/// Why something was not carried out that nobody refuses.
pub type NotRefused = HandleError<Infallible>;

impl<E> HandleError<E> {
    /// The stable code of this error; none of the command's own refusal.
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
    /// Handles a command: loads the aggregate, lets `decide` say what follows, and commits it at the version that was loaded.
    ///
    /// When another commit came first, all of it is done again after a pause, as often as [`Retries`](super::Retries) says. So `decide`
    /// may be called several times, and only what it said the last time happens. Nothing is committed when nothing follows.
    ///
    /// A request with a request id is carried out once, for ever: a repeat is answered with the first outcome and adds nothing, even where
    /// it would be refused now, and whatever command it is.
    ///
    /// Where snapshots are kept, the one of this commit is saved before the answer, if it is due.
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

    /// Does something to an aggregate besides its state, for example deletes it. Where it is so already nothing is committed. One that is
    /// deleted can be recovered, and nothing else.
    ///
    /// # Errors
    /// See [`HandleError`]; a version conflict when there is no such aggregate.
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

    /// One attempt, from where the aggregate is loaded.
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
            // Its first time may be what makes it impossible now.
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
        // What is known of the aggregate after it says when that was.
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
            // Its first time found another state, from which something else followed.
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

    /// The aggregate after a commit, which is read as it will be from the log.
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

    /// What became of a request the first time; none when it is new, or has no request id.
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
