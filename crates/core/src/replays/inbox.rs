//! Events that replays deliver to handlers and groups, stored until they are settled.

use serde::{Deserialize, Serialize};

use crate::order::Direction::Ascending;
use crate::{Index, RecordType};

/// The collection of replays' deliveries.
pub const INBOX: &str = "annals-replay-inbox";
/// The prefix of the tokens of these deliveries.
const TOKEN: &str = "replay";

/// An event that a replay delivers to a handler or a group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InboxRecord {
    /// The processor, the session and the index in it. The ids of one processor ascend in the order of delivery.
    #[serde(rename = "_id")]
    pub id: String,
    /// The processor of the handler or group.
    pub processor: String,
    /// The replay.
    pub session: String,
    /// The replay's id, which accompanies the event.
    pub replay_id: String,
    /// The event's id.
    pub event_id: String,
    /// The event's sequence number.
    pub sequence_number: i64,
    /// Its partition in the handler.
    pub partition: Option<String>,
    /// The topic to which it is sent, if it is not the topic of its type.
    #[serde(default)]
    pub topic: Option<String>,
    /// The time with which the event is delivered, in milliseconds; `None` if it is the event's own.
    #[serde(default)]
    pub time: Option<i64>,
    /// The time from which it can be delivered, in milliseconds: the end of its lease, or of the pause after a failure.
    pub ready_at: i64,
    /// The number of deliveries.
    pub attempts: i64,
    /// The most deliveries of this event.
    pub attempts_max: i64,
    /// The reason of the last failure.
    pub last_reason: Option<String>,
    /// The process whose own handler has it: the lease ends with that process. `None` while it waits, or if an external worker has it.
    #[serde(default)]
    pub holder: Option<String>,
    /// The life of that process, if processes share the store.
    #[serde(default)]
    pub life: Option<i64>,
    /// The claim that last leased it, a random number by which a worker recognises whether its claim was stored. `None` before the first.
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
    /// Returns the id of an event at an index of a session.
    pub fn id_of(processor: &str, session: &str, place: u64) -> String {
        format!("{processor}|{session}|{place:020}")
    }

    /// Returns the pause before the next delivery after a failure, in milliseconds; `None` if there are no deliveries left.
    pub fn pause_ms(&self) -> Option<i64> {
        let failed = self.attempts.min(6);
        (self.attempts < self.attempts_max).then(|| (1_000 << (failed - 1).max(0)).min(10_000))
    }
}

/// The content of the token of a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InboxToken<'a> {
    /// The number of the delivery.
    pub attempt: i64,
    /// [`InboxRecord::claim`], by which the token cannot be guessed.
    pub claim: i64,
    /// The id of the record.
    pub id: &'a str,
}

impl InboxToken<'_> {
    /// Returns whether this is the token of the record's current delivery.
    pub fn is_of(&self, record: &InboxRecord) -> bool {
        self.attempt > 0 && record.attempts == self.attempt && record.claim == Some(self.claim)
    }
}

/// Returns the token of a delivery.
pub fn inbox_token(record: &InboxRecord) -> String {
    format!("{TOKEN}|{}|{:x}|{}", record.attempts, record.claim.unwrap_or_default(), record.id)
}

/// Returns whether a token belongs to a delivery of a replay.
pub fn is_inbox_token(token: &str) -> bool {
    of_token(token).is_some()
}

/// Returns the content of a token, or `None` if it belongs to no delivery of a replay.
pub fn of_token(token: &str) -> Option<InboxToken<'_>> {
    let (kind, rest) = token.split_once('|')?;
    let (attempt, rest) = rest.split_once('|')?;
    let (claim, id) = rest.split_once('|')?;
    let claim = u64::from_str_radix(claim, 16).ok()?.cast_signed();
    (kind == TOKEN).then_some(InboxToken { attempt: attempt.parse().ok()?, claim, id })
}
