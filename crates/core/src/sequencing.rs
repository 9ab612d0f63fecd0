//! The port of the sequencer, for stores in which the log's own writer does not assign the sequence numbers: its leader, its progress,
//! and the commits it holds.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::{ReadError, SequenceNumber, StoreError, Timestamp, Version};

/// Operators' access to the sequencer of a tenant's log.
#[async_trait]
pub trait Sequencing: Send + Sync + 'static {
    /// Returns the sequencer's leader and the head of the log.
    ///
    /// # Errors
    /// [`StoreError::NotSupported`] if the log's own writer assigns the sequence numbers.
    async fn state(&self) -> Result<SequencerState, ReadError>;

    /// Lists the held commits after `after`, at most `limit` (1 to 1,000), ordered by collection and commit.
    ///
    /// # Errors
    /// As [`state`](Self::state); `invalid_query` for the limit.
    async fn held(&self, after: Option<HeldId>, limit: usize) -> Result<Vec<HeldCommit>, ReadError>;

    /// Requests an action on a held commit from the sequencer, in whichever process it runs, and waits a few seconds for the outcome.
    ///
    /// # Errors
    /// As [`state`](Self::state); `unknown_held_commit` if the commit is not held; [`StoreError::Unreachable`] if no sequencer responds in
    /// time. In that case the request stays recorded, and the next sequencer executes it.
    async fn ask(&self, commit: HeldId, what: Ask) -> Result<Asked, ReadError>;
}

/// Identifies a held commit: its collection, and its `_id` there.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeldId {
    /// Its collection.
    pub collection: String,
    /// Its `_id`, as text.
    pub commit: String,
}

/// A commit that is stored without sequence numbers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldCommit {
    /// Its id.
    #[serde(flatten)]
    pub id: HeldId,
    /// Its aggregate's name; for a malformed commit, derived from its collection.
    pub aggregate_name: String,
    /// Its aggregate's id; empty if that is malformed.
    pub aggregate_id: String,
    /// Its version; 0 if it is malformed.
    pub version: Version,
    /// Why it is held; begins with `gap`, `late`, `malformed`, `taken`, `too large` or `refused`.
    pub reason: String,
    /// Since when it has been held.
    pub since: Option<Timestamp>,
}

/// An operator's action on a held commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ask {
    /// Check it again as it is stored now: it may have been repaired or deleted.
    Retry,
    /// Assign it the next sequence numbers although earlier versions are missing. If those arrive after all, they are held as late.
    Accept,
}

/// The outcome of an action.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Asked {
    /// It has sequence numbers now.
    Numbered {
        /// The sequence number of its first event.
        sequence_number: SequenceNumber,
    },
    /// It is still held.
    Held {
        /// The reason.
        reason: String,
    },
    /// It is no longer stored, so nothing is held.
    Gone,
}

/// The leader, and the head of a log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SequencerState {
    /// The leader, or `None` if there is none at the moment.
    pub leader: Option<Leader>,
    /// The number of events in the tenant's log.
    pub head: SequenceNumber,
    /// The number of its held commits.
    pub held: u64,
    /// Contexts other than the store's own whose commits have appeared in its database: another application may write to it by mistake.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub other_contexts: Vec<String>,
    /// Documents of the log that other software deleted, as the leader found them: each a collection and a sequence number.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<MissingDocument>,
}

/// A document of the log that other software deleted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct MissingDocument {
    /// The collection that it was in.
    pub collection: String,
    /// The first sequence number that is missing there.
    pub sequence_number: SequenceNumber,
}

/// The process that assigns sequence numbers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leader {
    /// Its name, generated at startup.
    pub holder: String,
    /// Its host and process id, as reported by itself.
    pub process: String,
    /// The number of leaders so far, including this one.
    pub epoch: u64,
    /// When its lease expires unless renewed.
    pub until: Timestamp,
    /// Its lag behind the stored commits when it last renewed its lease, in milliseconds.
    pub lag_ms: u64,
    /// Whether it is the responding process.
    pub here: bool,
}

/// A process's view of the sequencer, available without I/O.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SequencerStatus {
    /// Whether this process leads.
    pub leads: bool,
    /// The number of held commits of the log.
    pub held: u64,
    /// The time between storing the newest commit and assigning its sequence numbers, in milliseconds; 0 while none is pending. `None` if
    /// another process leads.
    pub lag_ms: Option<u64>,
}

/// The sequencer of a log whose own writer assigns the sequence numbers: every call is refused.
pub(crate) struct NoSequencer;

fn no_sequencer() -> ReadError {
    StoreError::NotSupported("querying a sequencer (the log's own writer assigns sequence numbers)".to_owned()).into()
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
