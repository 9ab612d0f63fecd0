//! Events that replays deliver to handlers and groups, until they are settled.

use serde::{Deserialize, Serialize};

use crate::order::Direction::Ascending;
use crate::{Index, RecordType};

/// The collection of deliveries of replays.
pub const INBOX: &str = "annals-replay-inbox";
/// What the tokens of such deliveries begin with.
const TOKEN: &str = "replay";

/// An event that a replay delivers to a handler or a group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InboxRecord {
    /// The processor, the session and its place there: ids of one processor ascend as they are to be delivered.
    #[serde(rename = "_id")]
    pub id: String,
    /// The processor of the handler or group.
    pub processor: String,
    /// The replay.
    pub session: String,
    /// The replay's id, which goes with the event.
    pub replay_id: String,
    /// The event's id.
    pub event_id: String,
    /// The event.
    pub sequence_number: i64,
    /// Its partition in the handler.
    pub partition: Option<String>,
    /// The topic that it is sent to, where that is not the topic of its type.
    #[serde(default)]
    pub topic: Option<String>,
    /// The time that the event is delivered with, in milliseconds; none where that is its own.
    #[serde(default)]
    pub time: Option<i64>,
    /// From when on it can be delivered, in milliseconds: the end of its lease, or of the pause after a failure.
    pub ready_at: i64,
    /// How often it was delivered.
    pub attempts: i64,
    /// How often it may be delivered.
    pub attempts_max: i64,
    /// What it failed with last.
    pub last_reason: Option<String>,
    /// The process whose own handler has it: its lease ends with the process. None while it waits, and where a worker from outside has it.
    #[serde(default)]
    pub holder: Option<String>,
    /// The life of that process, where processes share the store.
    #[serde(default)]
    pub life: Option<i64>,
    /// The claim that leased it last, drawn at random: it tells a worker whether its own claim was stored. None before the first.
    #[serde(default)]
    pub claim: Option<i64>,
}

impl RecordType for InboxRecord {
    const COLLECTION: &'static str = INBOX;

    fn indexes() -> Vec<Index> {
        vec![Index::ordered([("processor", Ascending), ("_id", Ascending)]).into(), Index::on("session").into()]
    }
}

impl InboxRecord {
    /// Returns the id of an event at a place of a session.
    pub fn id_of(processor: &str, session: &str, place: u64) -> String {
        format!("{processor}|{session}|{place:020}")
    }

    /// Returns when it is delivered again after a failure, in milliseconds from then; none when it has failed for ever.
    pub fn pause_ms(&self) -> Option<i64> {
        let failed = self.attempts.min(6);
        (self.attempts < self.attempts_max).then(|| (1_000 << (failed - 1).max(0)).min(10_000))
    }
}

/// Returns the token of a delivery.
pub fn inbox_token(record: &InboxRecord) -> String {
    format!("{TOKEN}|{}|{}", record.attempts, record.id)
}

/// Whether a token is that of a delivery of a replay.
pub fn is_inbox_token(token: &str) -> bool {
    of_token(token).is_some()
}

/// Returns the attempt and the record's id that a token names.
pub fn of_token(token: &str) -> Option<(i64, &str)> {
    let (kind, rest) = token.split_once('|')?;
    let (attempt, id) = rest.split_once('|')?;
    (kind == TOKEN).then_some((attempt.parse().ok()?, id))
}
