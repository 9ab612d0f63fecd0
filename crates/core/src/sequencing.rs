//! The port of what gives commits their numbers, where that is not the log's own writer: who does, how far it is, and what it holds back.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::{ReadError, SequenceNumber, StoreError, Timestamp, Version};

/// What an operator asks of the sequencer of a tenant's log.
#[async_trait]
pub trait Sequencing: Send + Sync + 'static {
    /// Who leads, and how far the log is.
    ///
    /// # Errors
    /// [`StoreError::NotSupported`] where the log's own writer gives the numbers.
    async fn state(&self) -> Result<SequencerState, ReadError>;

    /// The commits that are held back, in the order of collection and commit, behind `after` and at most `limit` (1 to 1,000).
    ///
    /// # Errors
    /// As [`state`](Self::state); `invalid_query` for the limit.
    async fn held(&self, after: Option<HeldId>, limit: usize) -> Result<Vec<HeldCommit>, ReadError>;

    /// Asks the sequencer, in whichever process it is, to look at a held commit again, and waits some seconds for what comes of it.
    ///
    /// # Errors
    /// As [`state`](Self::state); `unknown_held_commit` when it is not held; [`StoreError::Unreachable`] when no sequencer
    /// answers in time: what was asked stays, and the next sequencer does it.
    async fn ask(&self, commit: HeldId, what: Ask) -> Result<Asked, ReadError>;
}

/// Which commit: where it is stored, and its `_id` there.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeldId {
    /// Its collection.
    pub collection: String,
    /// Its `_id`, as text.
    pub commit: String,
}

/// A commit that is stored and has no numbers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldCommit {
    /// Which one.
    #[serde(flatten)]
    pub id: HeldId,
    /// Its aggregate's name; where it is malformed, by its collection.
    pub aggregate_name: String,
    /// Its aggregate's id; empty where it is malformed in that.
    pub aggregate_id: String,
    /// Its version; 0 where it is malformed.
    pub version: Version,
    /// Why it is held back; begins with `gap`, `late` or `malformed`.
    pub reason: String,
    /// Since when.
    pub since: Option<Timestamp>,
}

/// What is asked for a held commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ask {
    /// Look at it again as it is stored now: it may have been mended, or deleted.
    Retry,
    /// Give it the next numbers although versions before it are missing. Should they come after all, they are held back as late.
    Accept,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Asked {
    /// It has numbers now.
    Numbered {
        /// That of its first event.
        sequence_number: SequenceNumber,
    },
    /// It is held back still.
    Held {
        /// Why.
        reason: String,
    },
    /// It is not stored any more, so nothing is held back.
    Gone,
}

/// Who gives numbers, and how far a log is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SequencerState {
    /// Who leads; none when nobody does at the moment.
    pub leader: Option<Leader>,
    /// The number of events in the tenant's log.
    pub head: SequenceNumber,
    /// Commits of it that are held back.
    pub held: u64,
    /// Contexts besides the store's own of which commits have come to it: another application may write to the same database by mistake.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub other_contexts: Vec<String>,
}

/// The process that gives numbers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leader {
    /// Its name, made when it started.
    pub holder: String,
    /// Its host and process id, as it says itself.
    pub process: String,
    /// How many have led so far, with it.
    pub epoch: u64,
    /// Until when its lease holds, if it is not renewed.
    pub until: Timestamp,
    /// How far it was behind what is stored when it renewed its lease last, in milliseconds.
    pub lag_ms: u64,
    /// Whether it is the process that says this.
    pub here: bool,
}

/// What a process knows of the sequencer without asking anybody.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SequencerStatus {
    /// Whether this process leads.
    pub leads: bool,
    /// Commits of the log that are held back.
    pub held: u64,
    /// How long the newest commit that got numbers had been stored by then, in milliseconds; 0 when nothing waits. None where another
    /// process leads.
    pub lag_ms: Option<u64>,
}

/// A log whose own writer gives the numbers.
pub(crate) struct NoSequencer;

fn no_sequencer() -> ReadError {
    StoreError::NotSupported("asking a sequencer (the log's own writer gives the numbers)".to_owned()).into()
}

#[async_trait]
impl Sequencing for NoSequencer {
    async fn state(&self) -> Result<SequencerState, ReadError> {
        Err(no_sequencer())
    }

    async fn held(&self, _: Option<HeldId>, _: usize) -> Result<Vec<HeldCommit>, ReadError> {
        Err(no_sequencer())
    }

    async fn ask(&self, _: HeldId, _: Ask) -> Result<Asked, ReadError> {
        Err(no_sequencer())
    }
}
