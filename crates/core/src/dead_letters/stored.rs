//! Other stored records: policies of topics, bulk acts, and the threshold that was crossed last.

use bson::DateTime;
use serde::{Deserialize, Serialize};

use super::{LetterPolicy, Level};
use crate::{Condition, Index, RecordType};

/// The collection of policies of topics.
pub const POLICIES: &str = "annals-dead-letter-policies";
/// The collection of bulk acts.
pub const BULK_ACTS: &str = "annals-dead-letter-acts";
/// The collection of the threshold that was crossed last.
pub const THRESHOLDS: &str = "annals-dead-letter-thresholds";

/// The policy of a topic.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PolicyRecord {
    /// The topic.
    #[serde(rename = "_id")]
    pub topic: String,
    /// The policy; null after it was deleted.
    pub policy: Option<LetterPolicy>,
    /// The reason of the last change.
    pub reason: String,
    /// Who made the last change; null if not stated.
    pub by: Option<String>,
    /// When it was last changed.
    pub at: DateTime,
}

/// A bulk act, stored from its start.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BulkRecord {
    /// Its id; ids ascend.
    #[serde(rename = "_id")]
    pub id: String,
    /// `retry` or `discard`.
    pub act: String,
    /// The condition that selects letters, as JSON.
    pub condition: String,
    /// The reason.
    pub reason: String,
    /// Who requested it; null if not stated.
    pub by: Option<String>,
    /// When it started.
    pub at: DateTime,
    /// Only letters that were received at or before this time are selected, so that the act terminates.
    pub until: DateTime,
    /// The process that carries it out.
    pub process: String,
    /// Where to continue: the cursor after the last completed page.
    pub cursor: Option<String>,
    /// Whether it is completed.
    pub done: bool,
    /// The number of letters that it has changed.
    pub successful: i64,
    /// The number of letters that it could not change.
    pub failed: i64,
}

/// The level that was announced last.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ThresholdRecord {
    /// Always `open`.
    #[serde(rename = "_id")]
    pub id: String,
    /// The level.
    pub level: Level,
    /// The number of open letters at that time.
    pub open: i64,
    /// The number of changes so far; part of the request id.
    pub number: i64,
    /// Whether the change is committed.
    pub announced: bool,
    /// When it changed.
    pub at: DateTime,
}

impl RecordType for PolicyRecord {
    const COLLECTION: &'static str = POLICIES;
}

impl RecordType for BulkRecord {
    const COLLECTION: &'static str = BULK_ACTS;

    fn indexes() -> Vec<Index> {
        vec![Index::on("done").partial(Condition::is_false("done")).into()]
    }
}

impl RecordType for ThresholdRecord {
    const COLLECTION: &'static str = THRESHOLDS;
}
