//! The records of queues.

use bson::DateTime;
use serde::{Deserialize, Serialize};

use super::{Item, Ledger, QueueDefinition, QueuePriority};
use crate::order::Direction;
use crate::{Index, RecordType, Timestamp};

/// The collection of definitions.
pub const QUEUES: &str = "annals-queues";
/// The collection of the queues' ledgers.
pub const QUEUE_LEDGERS: &str = "annals-queue-ledgers";
/// The collection of items.
pub const QUEUE_ITEMS: &str = "annals-queue-items";
/// The collection of the items' payloads.
pub const QUEUE_PAYLOADS: &str = "annals-queue-payloads";

/// Returns the `_id` of an item and of its payload. Names of queues contain no slash.
pub fn item_key(queue: &str, id: &str) -> String {
    format!("{queue}/{id}")
}

/// The definition of a queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct QueueRecord {
    /// The queue's name.
    #[serde(rename = "_id")]
    pub name: String,
    /// [`QueueDefinition::cap`].
    pub cap: i64,
    /// [`QueueDefinition::fair`].
    pub fair: bool,
    /// [`QueueDefinition::ageing_ms`].
    pub ageing_ms: i64,
    /// [`QueueDefinition::lease_ms`].
    pub lease_ms: i64,
    /// [`QueueDefinition::pending_max`].
    pub pending_max: i64,
    /// [`QueueDefinition::pending_max_per_user`].
    pub pending_max_per_user: i64,
}

impl RecordType for QueueRecord {
    const COLLECTION: &'static str = QUEUES;
}

impl QueueRecord {
    /// Converts a definition to its record.
    pub fn of(it: &QueueDefinition) -> Self {
        Self {
            name: it.name.to_string(),
            cap: it.cap.into(),
            fair: it.fair,
            ageing_ms: it.ageing_ms.cast_signed(),
            lease_ms: it.lease_ms.cast_signed(),
            pending_max: it.pending_max.into(),
            pending_max_per_user: it.pending_max_per_user.into(),
        }
    }

    /// Converts the record to the definition.
    pub fn definition(self) -> QueueDefinition {
        let small = |number: i64| u32::try_from(number).unwrap_or_default();
        QueueDefinition {
            name: self.name.into(),
            cap: small(self.cap),
            fair: self.fair,
            ageing_ms: self.ageing_ms.cast_unsigned(),
            lease_ms: self.lease_ms.cast_unsigned(),
            pending_max: small(self.pending_max),
            pending_max_per_user: small(self.pending_max_per_user),
        }
    }
}

/// The ledger of a queue. Each write of the queue expects the turn of the previous one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct QueueLedgerRecord {
    /// The queue's name.
    #[serde(rename = "_id")]
    pub name: String,
    /// The number of writes.
    pub turn: i64,
    /// [`Ledger::seq`].
    pub seq: i64,
    /// [`Ledger::passed`].
    pub passed: i64,
    /// [`Ledger::clocks`].
    pub clocks: Vec<i64>,
    /// [`Ledger::taken`].
    pub taken: i64,
    /// [`Ledger::done`].
    pub done: i64,
    /// [`Ledger::expired`].
    pub expired: i64,
    /// [`Ledger::released`].
    pub released: i64,
    /// [`Ledger::cancelled`].
    pub cancelled: i64,
    /// [`Ledger::lost`].
    pub lost: i64,
}

impl RecordType for QueueLedgerRecord {
    const COLLECTION: &'static str = QUEUE_LEDGERS;
}

impl QueueLedgerRecord {
    /// Converts a ledger to its record after this write.
    pub fn of(name: &str, turn: i64, it: &Ledger) -> Self {
        Self {
            name: name.to_owned(),
            turn,
            seq: it.seq.cast_signed(),
            passed: it.passed.cast_signed(),
            clocks: it.clocks.iter().map(|clock| clock.cast_signed()).collect(),
            taken: it.taken.cast_signed(),
            done: it.done.cast_signed(),
            expired: it.expired.cast_signed(),
            released: it.released.cast_signed(),
            cancelled: it.cancelled.cast_signed(),
            lost: it.lost.cast_signed(),
        }
    }

    /// Converts the record to the ledger.
    pub fn ledger(&self) -> Ledger {
        let clock = |at: usize| self.clocks.get(at).map_or(0, |clock| clock.cast_unsigned());
        Ledger {
            seq: self.seq.cast_unsigned(),
            passed: self.passed.cast_unsigned(),
            clocks: std::array::from_fn(clock),
            taken: self.taken.cast_unsigned(),
            done: self.done.cast_unsigned(),
            expired: self.expired.cast_unsigned(),
            released: self.released.cast_unsigned(),
            cancelled: self.cancelled.cast_unsigned(),
            lost: self.lost.cast_unsigned(),
        }
    }
}

/// An item.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct QueueItemRecord {
    /// [`item_key`].
    #[serde(rename = "_id")]
    pub key: String,
    /// The queue's name.
    pub queue: String,
    /// [`Item::seq`].
    pub seq: i64,
    /// [`Item::id`].
    pub id: String,
    /// [`Item::priority`].
    pub priority: QueuePriority,
    /// [`Item::user`].
    pub user: String,
    /// [`Item::enqueued_at`].
    pub enqueued_at: DateTime,
    /// [`Item::tag`].
    pub tag: i64,
    /// [`Item::attempt`].
    pub attempt: i64,
    /// [`Item::token`].
    pub token: Option<String>,
    /// [`Item::worker`].
    pub worker: Option<String>,
    /// [`Item::lease_until`].
    pub lease_until: Option<DateTime>,
}

impl RecordType for QueueItemRecord {
    const COLLECTION: &'static str = QUEUE_ITEMS;

    fn indexes() -> Vec<Index> {
        let by_age = Index::ordered([("queue", Direction::Ascending), ("seq", Direction::Ascending)]);
        vec![by_age.into()]
    }
}

impl QueueItemRecord {
    /// Converts an item to its record.
    pub fn of(queue: &str, it: &Item) -> Self {
        let date = |time: Timestamp| DateTime::from_millis(time.as_millis());
        Self {
            key: item_key(queue, &it.id),
            queue: queue.to_owned(),
            seq: it.seq.cast_signed(),
            id: it.id.to_string(),
            priority: it.priority,
            user: it.user.to_string(),
            enqueued_at: date(it.enqueued_at),
            tag: it.tag.cast_signed(),
            attempt: it.attempt.into(),
            token: it.token.as_ref().map(ToString::to_string),
            worker: it.worker.as_ref().map(ToString::to_string),
            lease_until: it.lease_until.map(date),
        }
    }

    /// Converts the record to the item.
    pub fn item(self) -> Item {
        let time = |date: DateTime| Timestamp::from_millis(date.timestamp_millis());
        Item {
            seq: self.seq.cast_unsigned(),
            id: self.id.into(),
            priority: self.priority,
            user: self.user.into(),
            enqueued_at: time(self.enqueued_at),
            tag: self.tag.cast_unsigned(),
            attempt: u32::try_from(self.attempt).unwrap_or(u32::MAX),
            token: self.token.map(Into::into),
            worker: self.worker.map(Into::into),
            lease_until: self.lease_until.map(time),
        }
    }
}

/// The payload of an item, stored separately so that choosing an item reads no payloads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueuePayloadRecord {
    /// [`item_key`].
    #[serde(rename = "_id")]
    pub key: String,
    /// The payload as JSON text.
    pub payload: String,
}

impl RecordType for QueuePayloadRecord {
    const COLLECTION: &'static str = QUEUE_PAYLOADS;
}
