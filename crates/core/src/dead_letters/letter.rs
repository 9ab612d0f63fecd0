//! A dead letter: what is stored of it, and how its state changes.

use bson::{DateTime, Document, doc};
use serde::{Deserialize, Serialize};

use super::{DISCARDED, LetterPolicy, Place, Plan, RECEIVED, RETRIED, Received, is_announcement};
use crate::order::Direction;
use crate::{Condition, Index, RecordType, RecordedEvent, Timestamp};

/// The collection of dead letters.
pub const DEAD_LETTERS: &str = "dlq_messages";
/// The most entries of a letter's history. The first one and the newest are kept.
pub const HISTORY_MAX: usize = 100;
/// Data of an event that is larger than this is left out of its letter; the log holds it.
pub const INLINE_BYTES_MAX: usize = 16 * 1024;
/// Why a letter is discarded whose policy allows no further retry.
pub const MAX_RETRIES: &str = "max_retries_exceeded";

/// The state of a letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LetterStatus {
    /// It waits for a person, or for the letter of its key before it.
    Pending,
    /// It is retried at its `next_retry_at`.
    Scheduled,
    /// Its consumer has processed the event.
    Retried,
    /// It was given up.
    Discarded,
}

impl LetterStatus {
    /// Every status.
    pub const ALL: [Self; 4] = [Self::Pending, Self::Scheduled, Self::Retried, Self::Discarded];

    /// Its name, as it is stored.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Scheduled => "scheduled",
            Self::Retried => "retried",
            Self::Discarded => "discarded",
        }
    }

    /// The status of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.name() == name)
    }

    /// Whether the letter is over.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Retried | Self::Discarded)
    }
}

/// A letter is in a final state, so that it cannot be changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terminal(pub LetterStatus);

/// Something that happened to a letter.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HistoryEntry {
    /// `received`, `failed`, `retried`, `discarded`, `retry_asked` or `reopened`.
    pub what: String,
    /// When.
    pub at: DateTime,
    /// The error, or the reason that a person gave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The person, where one acted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

/// An event that is to be committed about a letter.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Announcement {
    /// Counts the announcements of the letter; part of the request id.
    pub number: i64,
    /// The type of the event.
    pub event_type: String,
    /// Its data.
    pub data: Document,
}

/// A dead letter. The fields up to `headers` are those of Integr8sCode.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DeadLetter {
    /// Consumer and place of the event, see [`Received::id`]: `group.billing.42`.
    #[serde(rename = "_id")]
    pub id: String,
    /// The event: `event_id`, `event_type`, `timestamp`, `aggregate_id` and so on, with its `data` unless that is large.
    pub event: Document,
    /// The topic that the event is on.
    pub original_topic: String,
    /// What the consumer failed with first.
    pub error: String,
    /// How often the letter was retried.
    pub retry_count: i64,
    /// When the consumer failed last.
    pub failed_at: DateTime,
    /// Its state.
    pub status: LetterStatus,
    /// The request that the event came from.
    pub producer_id: String,
    /// When it was received.
    pub created_at: DateTime,
    /// When it changed last.
    #[serde(default)]
    pub last_updated: Option<DateTime>,
    /// When it is retried.
    #[serde(default)]
    pub next_retry_at: Option<DateTime>,
    /// When its consumer processed the event.
    #[serde(default)]
    pub retried_at: Option<DateTime>,
    /// When it was given up.
    #[serde(default)]
    pub discarded_at: Option<DateTime>,
    /// Why it was given up.
    #[serde(default)]
    pub discard_reason: Option<String>,
    /// The offset of the event on its topic. On the embedded broker it is the event's sequence number.
    #[serde(default)]
    pub dlq_offset: Option<i64>,
    /// The partition of its topic, where the broker has some.
    #[serde(default)]
    pub dlq_partition: Option<i64>,
    /// What the consumer failed with last.
    #[serde(default)]
    pub last_error: Option<String>,
    /// The header of the event's commit.
    #[serde(default)]
    pub headers: Document,
    /// The consumer: `group/billing` or `handler/billing`.
    pub processor: String,
    /// The key whose order it keeps.
    pub key: String,
    /// The event's position in the consumer's source, see [`Place::position`].
    pub position: i64,
    /// The event's number in the log.
    pub sequence_number: i64,
    /// How often the consumer attempted the event; 0 while it only follows another letter.
    pub attempts: i64,
    /// Whether it is not over.
    pub open: bool,
    /// Whether it waits for an earlier letter of its key.
    pub follows: bool,
    /// Whether later letters of its key wait for it.
    pub holds: bool,
    /// What happened to it, oldest first.
    pub history: Vec<HistoryEntry>,
    /// Whether something is to be announced.
    pub announcing: bool,
    /// What is to be announced.
    #[serde(default)]
    pub announcements: Vec<Announcement>,
    /// How many announcements there were.
    #[serde(default)]
    pub announced: i64,
}

impl RecordType for DeadLetter {
    const COLLECTION: &'static str = DEAD_LETTERS;

    fn indexes() -> Vec<Index> {
        use Direction::{Ascending, Descending};
        let of_key = [("processor", Ascending), ("key", Ascending), ("position", Ascending)];
        let due = [("processor", Ascending), ("status", Ascending), ("next_retry_at", Ascending)];
        let id = [("event.event_id", Ascending), ("processor", Ascending), ("position", Ascending)];
        vec![
            Index::ordered(id).named("idx_dlq_event_id").unique().into(),
            Index::on("event.event_type").named("idx_dlq_event_type").into(),
            Index::on("status").named("idx_dlq_status").into(),
            Index::ordered([("failed_at", Descending)]).named("idx_dlq_failed_desc").into(),
            Index::on("created_at").named("idx_dlq_created_ttl").into(),
            Index::on("original_topic").into(),
            Index::on("retry_count").into(),
            Index::on("next_retry_at").into(),
            Index::on("failed_at").into(),
            Index::ordered(of_key).partial(Self::open()).named("idx_dlq_open_of_key").into(),
            Index::ordered(due).named("idx_dlq_due").into(),
            Index::on("announcing").partial(Condition::is_true("announcing")).named("idx_dlq_announcing").into(),
        ]
    }
}

fn date(time: Timestamp) -> DateTime {
    DateTime::from_millis(time.as_millis())
}

impl DeadLetter {
    /// The letters that are not over.
    pub fn open() -> Condition {
        Condition::is_true("open")
    }

    /// The open letters of a consumer that hold their keys.
    pub fn holding(processor: &str) -> Condition {
        Condition::and([Condition::eq("processor", processor), Self::open(), Condition::is_true("holds")])
    }

    /// The letters of a consumer that are due.
    pub fn due(processor: &str, now: Timestamp) -> Condition {
        Condition::and([Self::scheduled(processor), Condition::lte("next_retry_at", date(now))])
    }

    /// The letters of all consumers that are due.
    pub fn due_by(now: Timestamp) -> Condition {
        Condition::and([Condition::eq("status", "scheduled"), Condition::lte("next_retry_at", date(now))])
    }

    /// The letters of a consumer that are retried at some time.
    pub fn scheduled(processor: &str) -> Condition {
        Condition::and([Condition::eq("processor", processor), Condition::eq("status", "scheduled")])
    }

    /// The id of the letter of the event at a position of a consumer's log or stream.
    pub fn id_of(processor: &str, position: u64) -> String {
        format!("{}.{position}", processor.replacen('/', ".", 1))
    }

    /// A letter as it is received. [`plan`](Self::plan) it next, or let it [follow](Self::follow).
    pub fn received(received: &Received<'_>) -> Self {
        let Received { processor, event, topic, place, key, attempts, error, at } = *received;
        let now = date(at);
        let (dlq_partition, dlq_offset) = match place {
            Place::Position(_) => (None, event.sequence_number),
            Place::Message { partition, offset } => (Some(i64::from(partition)), offset),
        };
        let mut letter = Self {
            id: received.id(),
            event: described(event),
            original_topic: topic.to_owned(),
            error: error.to_owned(),
            retry_count: 0,
            failed_at: now,
            status: LetterStatus::Pending,
            producer_id: event.commit.request_id.as_deref().unwrap_or("unknown").to_owned(),
            created_at: now,
            last_updated: Some(now),
            next_retry_at: None,
            retried_at: None,
            discarded_at: None,
            discard_reason: None,
            dlq_offset: Some(dlq_offset.cast_signed()),
            dlq_partition,
            last_error: Some(error.to_owned()),
            headers: event
                .commit
                .header
                .iter()
                .map(|(name, value)| (name.to_string(), bson::Bson::from(&**value)))
                .collect(),
            processor: processor.to_owned(),
            key: key.to_owned(),
            position: place.position().cast_signed(),
            sequence_number: event.sequence_number.cast_signed(),
            attempts: attempts.into(),
            open: true,
            follows: false,
            holds: true,
            history: Vec::new(),
            announcing: false,
            announcements: Vec::new(),
            announced: 0,
        };
        letter.note("received", at, Some(error), None);
        letter.announce(RECEIVED);
        letter
    }

    /// The consumer has failed with the same event again, which it was given by a replay. A letter that is over begins again; its history
    /// and the number of its retries stay.
    pub fn received_again(&mut self, error: &str, attempts: u32, at: Timestamp) {
        let was_over = self.status.is_final();
        self.attempts += i64::from(attempts);
        (self.last_error, self.failed_at) = (Some(error.to_owned()), date(at));
        self.note("reopened", at, Some(error), None);
        if was_over {
            (self.status, self.retried_at, self.discarded_at, self.discard_reason) =
                (LetterStatus::Pending, None, None, None);
            (self.next_retry_at, self.open) = (None, true);
            self.announce(RECEIVED);
        }
    }

    /// Decides when it is retried, or discards it if it was retried often enough.
    pub fn plan(&mut self, policy: &LetterPolicy, now: Timestamp, random: u64) {
        self.follows = false;
        match policy.plan(u32::try_from(self.retry_count).unwrap_or(u32::MAX), now, random) {
            Plan::At(at) => (self.status, self.next_retry_at) = (LetterStatus::Scheduled, Some(date(at))),
            Plan::Waits => (self.status, self.next_retry_at) = (LetterStatus::Pending, None),
            Plan::Exhausted => self.end_discarded(MAX_RETRIES.to_owned(), now, None),
        }
        self.last_updated = Some(date(now));
    }

    /// Waits for an earlier letter of its key.
    pub fn follow(&mut self, now: Timestamp) {
        (self.status, self.next_retry_at, self.follows) = (LetterStatus::Pending, None, true);
        self.last_updated = Some(date(now));
    }

    /// Waits for a person, and holds up no other letter of its key.
    pub fn wait_for_a_person(&mut self, now: Timestamp) {
        (self.status, self.next_retry_at, self.follows, self.holds) = (LetterStatus::Pending, None, false, false);
        self.last_updated = Some(date(now));
    }

    /// The letter before it is over. An event that was never attempted is due at once, and so is one that a person wants retried;
    /// another one follows its policy.
    pub fn promote(&mut self, policy: &LetterPolicy, now: Timestamp, random: u64) {
        if self.attempts == 0 || self.next_retry_at.is_some() {
            self.due_at(now);
        } else {
            self.plan(policy, now, random);
        }
    }

    /// It is due at once, whatever its policy says.
    pub fn due_at(&mut self, now: Timestamp) {
        (self.status, self.next_retry_at, self.follows) = (LetterStatus::Scheduled, Some(date(now)), false);
        self.last_updated = Some(date(now));
    }

    /// Its consumer has processed the event.
    pub fn succeeded(&mut self, now: Timestamp) {
        self.attempts += 1;
        self.retry_count += 1;
        (self.status, self.retried_at, self.next_retry_at) = (LetterStatus::Retried, Some(date(now)), None);
        (self.open, self.follows) = (false, false);
        self.note("retried", now, None, None);
        self.announce(RETRIED);
    }

    /// Its consumer has failed with the event again. A failure during an outage does not `count`.
    pub fn failed(&mut self, error: &str, counts: bool, now: Timestamp) {
        self.attempts += 1;
        self.retry_count += i64::from(counts);
        (self.last_error, self.failed_at) = (Some(error.to_owned()), date(now));
        self.note("failed", now, Some(error), None);
    }

    /// A person wants it retried. What follows an earlier letter stays behind it, and is due as soon as it is the first.
    ///
    /// # Errors
    /// [`Terminal`].
    pub fn retry_asked(&mut self, reason: &str, by: Option<&str>, now: Timestamp) -> Result<(), Terminal> {
        self.is_open()?;
        self.note("retry_asked", now, Some(reason), by);
        if self.follows {
            self.next_retry_at = Some(date(now));
        } else {
            self.due_at(now);
        }
        Ok(())
    }

    /// Gives it up.
    ///
    /// # Errors
    /// [`Terminal`].
    pub fn discard(&mut self, reason: String, by: Option<&str>, now: Timestamp) -> Result<(), Terminal> {
        self.is_open()?;
        self.end_discarded(reason, now, by);
        Ok(())
    }

    fn end_discarded(&mut self, reason: String, now: Timestamp, by: Option<&str>) {
        self.note("discarded", now, Some(&reason), by);
        (self.status, self.discarded_at, self.next_retry_at) = (LetterStatus::Discarded, Some(date(now)), None);
        (self.discard_reason, self.open, self.follows) = (Some(reason), false, false);
        self.announce(DISCARDED);
    }

    fn is_open(&self) -> Result<(), Terminal> {
        if self.status.is_final() { Err(Terminal(self.status)) } else { Ok(()) }
    }

    pub(super) fn note(&mut self, what: &str, at: Timestamp, reason: Option<&str>, by: Option<&str>) {
        if self.history.len() >= HISTORY_MAX {
            self.history.remove(1);
        }
        let (reason, by) = (reason.map(str::to_owned), by.map(str::to_owned));
        self.history.push(HistoryEntry { what: what.to_owned(), at: date(at), reason, by });
        self.last_updated = Some(date(at));
    }

    pub(super) fn announce(&mut self, event_type: &str) {
        if is_announcement(self.event_type()) {
            return;
        }
        self.announced += 1;
        let data = doc! {
            "dead_letter_id": &self.id,
            "event_id": self.event.get_str("event_id").unwrap_or_default(),
            "event_type": self.event_type(),
            "original_topic": &self.original_topic,
            "consumer": &self.processor,
            "retry_count": self.retry_count,
            "error": self.last_error.as_deref(),
            "reason": self.discard_reason.as_deref(),
        };
        self.announcements.push(Announcement { number: self.announced, event_type: event_type.to_owned(), data });
        self.announcing = true;
    }

    /// Everything up to this announcement is committed.
    pub fn announced_up_to(&mut self, number: i64) {
        self.announcements.retain(|it| it.number > number);
        self.announcing = !self.announcements.is_empty();
    }

    /// The type of its event.
    pub fn event_type(&self) -> &str {
        self.event.get_str("event_type").unwrap_or_default()
    }

    /// The time at which it is retried.
    pub fn next_retry(&self) -> Option<Timestamp> {
        self.next_retry_at.map(|at| Timestamp::from_millis(at.timestamp_millis()))
    }
}

/// An event as letters hold it.
fn described(event: &RecordedEvent) -> Document {
    let commit = &*event.commit;
    let mut described = doc! {
        "event_id": event.id.hyphenated().to_string(),
        "event_type": &*event.event_type,
        "event_version": format!("{}.0", event.generation),
        "timestamp": date(event.time),
        "aggregate_id": &*commit.aggregate.id,
        "aggregate_name": &*commit.aggregate.name,
        "sequence_number": event.sequence_number.cast_signed(),
        "version": commit.version.cast_signed(),
        "correlation_id": commit.correlation_id.as_deref(),
    };
    if event.data.as_bytes().len() <= INLINE_BYTES_MAX
        && let Ok(data) = Document::try_from(event.data.as_raw())
    {
        described.insert("data", data);
    }
    described
}

#[cfg(test)]
mod tests;
