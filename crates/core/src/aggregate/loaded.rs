//! An aggregate at a version.

use std::ops::Deref;

use bytestring::ByteString;

use super::effect::{Effect, Tags};
use super::{AggregateType, Known, StoredEvent, Upcasters};
use crate::{Aggregate, Code, CommitInfo, DEFAULT_TENANT_ID, RecordedCommit, Timestamp, Version};

/// The key of a commit's header that names the operator who issued the command, as in Wow.
pub const OPERATOR_HEADER: &str = "command_operator";

/// An aggregate at a version: its state, to which it dereferences, and its metadata.
#[derive(Debug, Clone, PartialEq)]
pub struct Loaded<A> {
    /// Its state: the type's default before the first commit.
    pub state: A,
    /// Its metadata.
    pub info: AggregateInfo,
}

/// The metadata of an aggregate at a version.
#[derive(Debug, Clone, PartialEq)]
pub struct AggregateInfo {
    /// Its name and id.
    pub aggregate: Aggregate,
    /// The number of its commits.
    pub version: Version,
    /// Its tenantId.
    pub tenant_id: ByteString,
    /// Its owner, as named by the most recent commit or effect that names one; or empty.
    pub owner_id: ByteString,
    /// Its space, determined in the same way.
    pub space_id: ByteString,
    /// Whether it is deleted.
    pub deleted: bool,
    /// Its tags.
    pub tags: Tags,
    /// The id of its last commit; empty before the first.
    pub commit_id: ByteString,
    /// The operator who issued the command of its first commit; or empty.
    pub first_operator: ByteString,
    /// The operator who issued the command of its last commit; or empty.
    pub operator: ByteString,
    /// The time of its first commit.
    pub first_time: Timestamp,
    /// The time of its last commit.
    pub time: Timestamp,
}

impl AggregateInfo {
    /// Creates the metadata of an aggregate without commits.
    pub fn new(aggregate: Aggregate) -> Self {
        Self {
            aggregate,
            version: 0,
            tenant_id: DEFAULT_TENANT_ID.into(),
            owner_id: ByteString::new(),
            space_id: ByteString::new(),
            deleted: false,
            tags: Tags::new(),
            commit_id: ByteString::new(),
            first_operator: ByteString::new(),
            operator: ByteString::new(),
            first_time: Timestamp::default(),
            time: Timestamp::default(),
        }
    }

    fn take(&mut self, commit: &CommitInfo) {
        let operator = commit.header.iter().find(|(key, _)| **key == *OPERATOR_HEADER);
        let operator = operator.map(|(_, operator)| operator.clone()).unwrap_or_default();
        if self.version == 0 {
            self.tenant_id = commit.tenant_id.clone();
            self.first_operator = operator.clone();
            self.first_time = commit.time;
        }
        // A commit that names no owner or space leaves it unchanged.
        for (has, names) in [(&mut self.owner_id, &commit.owner_id), (&mut self.space_id, &commit.space_id)] {
            if !names.is_empty() {
                *has = names.clone();
            }
        }
        self.version = commit.version;
        self.commit_id = commit.commit_id.to_string().into();
        self.operator = operator;
        self.time = commit.time;
    }

    fn feel(&mut self, effect: Option<Effect>) {
        match effect {
            None => {}
            Some(Effect::Deleted) => self.deleted = true,
            Some(Effect::Recovered) => self.deleted = false,
            Some(Effect::OwnerTransferred(to)) => self.owner_id = to.into(),
            Some(Effect::SpaceTransferred(to)) => self.space_id = to.into(),
            Some(Effect::TagsApplied(tags)) => self.tags = tags,
        }
    }
}

/// Why a commit could not be applied to an aggregate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{aggregate} version {version}{}: {message}", .event.map(|ordinal| format!(", event {ordinal}")).unwrap_or_default())]
pub struct EvolveError {
    /// The aggregate.
    pub aggregate: Box<Aggregate>,
    /// The commit's version.
    pub version: Version,
    /// The ordinal of the event that cannot be read; `None` if the commit is not the aggregate's next one.
    pub event: Option<usize>,
    /// The problem, as one sentence.
    pub message: String,
}

impl EvolveError {
    /// Returns the stable code of this error.
    pub fn code(&self) -> Code {
        Code::UnreadableEvent
    }

    fn not_next(commit: &CommitInfo, info: &AggregateInfo) -> Self {
        let message = format!("is not the next commit of {}, which is at version {}", info.aggregate, info.version);
        Self { aggregate: Box::new(commit.aggregate.clone()), version: commit.version, event: None, message }
    }
}

/// Returns an event in its current form; `None` if an upcaster discards it.
///
/// # Errors
/// See [`EvolveError`].
pub fn known_event<A: AggregateType>(
    commit: &CommitInfo,
    ordinal: usize,
    event: StoredEvent,
    upcasters: &Upcasters,
) -> Result<Option<Known<A::Event>>, EvolveError> {
    let (event_type, generation) = (event.event_type.clone(), event.generation);
    let known = upcasters.apply(event).and_then(|event| event.map(StoredEvent::known).transpose());
    known.map_err(|why| EvolveError {
        aggregate: Box::new(commit.aggregate.clone()),
        version: commit.version,
        event: Some(ordinal),
        message: format!(
            "{event_type} of generation {generation} cannot be decoded: {why}; register an upcaster for the type"
        ),
    })
}

impl<A: AggregateType> Loaded<A> {
    /// Creates the aggregate with this id, before its first commit.
    pub fn new(id: impl Into<ByteString>) -> Self {
        Self { state: A::default(), info: AggregateInfo::new(Aggregate::new(A::NAME, id)) }
    }

    /// Returns its version: the number of its commits.
    pub fn version(&self) -> Version {
        self.info.version
    }

    /// Returns the aggregate after its next commit.
    ///
    /// # Errors
    /// See [`EvolveError`].
    pub fn after(self, commit: &RecordedCommit, upcasters: &Upcasters) -> Result<Self, EvolveError> {
        self.after_events(&commit.info, commit.events.iter().map(StoredEvent::from), upcasters)
    }

    /// Returns the aggregate after its next commit, given its events.
    ///
    /// # Errors
    /// See [`EvolveError`].
    pub fn after_events(
        mut self,
        commit: &CommitInfo,
        events: impl IntoIterator<Item = StoredEvent>,
        upcasters: &Upcasters,
    ) -> Result<Self, EvolveError> {
        if commit.aggregate != self.info.aggregate || commit.version != self.info.version + 1 {
            return Err(EvolveError::not_next(commit, &self.info));
        }
        self.info.take(commit);
        for (ordinal, event) in events.into_iter().enumerate() {
            self.info.feel(Effect::of(&event));
            match known_event::<A>(commit, ordinal, event, upcasters)? {
                None => {}
                Some(Known::Unknown(event)) => self.state.evolve_unknown(&event),
                Some(Known::Event(event)) => {
                    self.info.feel(A::effect(&event));
                    self.state.evolve(event);
                }
            }
        }
        Ok(self)
    }
}

impl<A> Deref for Loaded<A> {
    type Target = A;

    fn deref(&self) -> &A {
        &self.state
    }
}
