//! A dead letter: its stored form, and how its state changes.

use bson::{DateTime, Document, doc};
use serde::{Deserialize, Serialize};

use super::{DISCARDED, LetterPolicy, Place, Plan, RECEIVED, RETRIED, Received, is_announcement};
use crate::order::Direction;
use crate::{Condition, Index, RecordType, RecordedEvent, Timestamp};

/// The collection of dead letters.
pub const DEAD_LETTERS: &str = "dlq_messages";
/// The maximum number of entries of a letter's history. The first one and the newest are kept.
pub const HISTORY_MAX: usize = 100;
/// The maximum size of an event's data in its letter, in bytes. Larger data is left out; the log has it.
pub const INLINE_BYTES_MAX: usize = 16 * 1024;
/// The discard reason of a letter whose policy allows no further retry.
pub const MAX_RETRIES: &str = "max_retries_exceeded";

/// The state of a letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LetterStatus {
    /// It waits for a person, or for an earlier letter of its key.
    Pending,
    /// It is retried at its `next_retry_at`.
    Scheduled,
    /// Its consumer has processed the event.
    Retried,
    /// It was discarded.
    Discarded,
}

impl LetterStatus {
    /// Every status.
    pub const ALL: [Self; 4] = [Self::Pending, Self::Scheduled, Self::Retried, Self::Discarded];

    /// Returns its stored name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Scheduled => "scheduled",
            Self::Retried => "retried",
            Self::Discarded => "discarded",
        }
    }

    /// Returns the status with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.name() == name)
    }

    /// Returns whether the letter is closed.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Retried | Self::Discarded)
    }
}

/// The error that a letter is in a final state and cannot be changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terminal(pub LetterStatus);

/// An entry of a letter's history.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HistoryEntry {
    /// `received`, `failed`, `retried`, `discarded`, `retry_asked` or `reopened`.
    pub what: String,
    /// When it happened.
    pub at: DateTime,
    /// The error, or the reason given by a person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The person, if one acted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

/// An event about a letter that is yet to be committed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Announcement {
    /// The number of this announcement of the letter; part of the request id.
    pub number: i64,
    /// The type of the event.
    pub event_type: String,
    /// Its data.
    pub data: Document,
}

/// A dead letter. The fields up to `headers` are those of Integr8sCode.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DeadLetter {
    /// The consumer and the place of the event, for example `group.billing.42`; see [`Received::id`].
    #[serde(rename = "_id")]
    pub id: String,
    /// The event: `event_id`, `event_type`, `timestamp`, `aggregate_id` and so on, with its `data` unless that is too large.
    pub event: Document,
    /// The topic of the event.
    pub original_topic: String,
    /// The consumer's first error.
    pub error: String,
    /// The number of retries of the letter.
    pub retry_count: i64,
    /// When the consumer last failed.
    pub failed_at: DateTime,
    /// Its state.
    pub status: LetterStatus,
    /// The id of the request that committed the event; of a partner event, its creator.
    pub producer_id: String,
    /// When it was received.
    pub created_at: DateTime,
    /// When it last changed.
    #[serde(default)]
    pub last_updated: Option<DateTime>,
    /// When it will be retried.
    #[serde(default)]
    pub next_retry_at: Option<DateTime>,
    /// When its consumer processed the event.
    #[serde(default)]
    pub retried_at: Option<DateTime>,
    /// When it was discarded.
    #[serde(default)]
    pub discarded_at: Option<DateTime>,
    /// Why it was discarded.
    #[serde(default)]
    pub discard_reason: Option<String>,
    /// The offset of the event in its topic. On the embedded broker, it is the event's sequence number.
    #[serde(default)]
    pub dlq_offset: Option<i64>,
    /// The partition of the topic, if the broker has partitions.
    #[serde(default)]
    pub dlq_partition: Option<i64>,
    /// The consumer's last error.
    #[serde(default)]
    pub last_error: Option<String>,
    /// The header of the event's commit.
    #[serde(default)]
    pub headers: Document,
    /// The consumer: `group/billing`, `handler/billing` or `partner/acme`.
    pub processor: String,
    /// The key whose order is kept.
    pub key: String,
    /// The event's position in the consumer's source, see [`Place::position`].
    pub position: i64,
    /// The event's sequence number.
    pub sequence_number: i64,
    /// The number of attempts to process the event; 0 while the letter only follows another one.
    pub attempts: i64,
    /// Whether it is open, that is, not in a final state.
    pub open: bool,
    /// Whether it waits for an earlier letter of its key.
    pub follows: bool,
    /// Whether later letters of its key wait for it.
    pub holds: bool,
    /// Whether it holds its key and no other letter of the key has been open beside it. A letter that is added to a key changes the first
    /// open one, so no other letter needs to be looked up when this one is closed. False if that is not known.
    #[serde(default)]
    pub alone: bool,
    /// Its history, oldest first.
    pub history: Vec<HistoryEntry>,
    /// Whether any announcement is pending.
    pub announcing: bool,
    /// The pending announcements.
    #[serde(default)]
    pub announcements: Vec<Announcement>,
    /// The number of announcements so far.
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
    /// Returns the condition of open letters.
    pub fn open() -> Condition {
        Condition::is_true("open")
    }

    /// Returns the condition of a consumer's open letters that hold their keys.
    pub fn holding(processor: &str) -> Condition {
        Condition::and([Condition::eq("processor", processor), Self::open(), Condition::is_true("holds")])
    }

    /// Returns the condition of a consumer's letters that are due.
    pub fn due(processor: &str, now: Timestamp) -> Condition {
        Condition::and([Self::scheduled(processor), Condition::lte("next_retry_at", date(now))])
    }

    /// Returns the condition of the letters of all consumers that are due.
    pub fn due_by(now: Timestamp) -> Condition {
        Condition::and([Condition::eq("status", "scheduled"), Condition::lte("next_retry_at", date(now))])
    }

    /// Returns the condition of a consumer's scheduled letters.
    pub fn scheduled(processor: &str) -> Condition {
        Condition::and([Condition::eq("processor", processor), Condition::eq("status", "scheduled")])
    }

    /// Returns the id of the letter of the event at this position of the log or of a stream.
    pub fn id_of(processor: &str, position: u64) -> String {
        format!("{}.{position}", processor.replacen('/', ".", 1))
    }

    /// Creates a letter for a received event. [`plan`](Self::plan) it next, or let it [follow](Self::follow).
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
            alone: false,
            history: Vec::new(),
            announcing: false,
            announcements: Vec::new(),
            announced: 0,
        };
        letter.note("received", at, Some(error), None);
        letter.announce(RECEIVED);
        letter
    }

    /// Records that the consumer has failed again with the same event, which a replay had delivered. A closed letter is reopened; its
    /// history and retry count stay.
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

    /// Schedules the next retry, or discards the letter if its retries are used up.
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
        self.accompanied(now);
    }

    /// Records that another letter of its key is open.
    pub fn accompanied(&mut self, now: Timestamp) {
        self.alone = false;
        self.last_updated = Some(date(now));
    }

    /// Records that no other letter of its key is open. A letter that does not hold its key is not noticed by later ones, so it is never
    /// marked.
    pub fn unaccompanied(&mut self) {
        self.alone = self.holds;
    }

    /// Waits for a person, and does not hold up other letters of its key.
    pub fn wait_for_a_person(&mut self, now: Timestamp) {
        (self.status, self.next_retry_at, self.follows, self.holds) = (LetterStatus::Pending, None, false, false);
        self.accompanied(now);
    }

    /// Takes its turn once the letter before it is closed. It is due at once if its event was never attempted or if a person
    /// asked for a retry. Otherwise it follows its policy.
    pub fn promote(&mut self, policy: &LetterPolicy, now: Timestamp, random: u64) {
        if self.attempts == 0 || self.next_retry_at.is_some() {
            self.due_at(now);
        } else {
            self.plan(policy, now, random);
        }
    }

    /// Makes it due at once, whatever its policy says.
    pub fn due_at(&mut self, now: Timestamp) {
        (self.status, self.next_retry_at, self.follows) = (LetterStatus::Scheduled, Some(date(now)), false);
        self.last_updated = Some(date(now));
    }

    /// Records that its consumer has processed the event.
    pub fn succeeded(&mut self, now: Timestamp) {
        self.attempts += 1;
        self.retry_count += 1;
        (self.status, self.retried_at, self.next_retry_at) = (LetterStatus::Retried, Some(date(now)), None);
        (self.open, self.follows) = (false, false);
        self.note("retried", now, None, None);
        self.announce(RETRIED);
    }

    /// Records that its consumer has failed with the event again. A failure during an outage does not count as a retry.
    pub fn failed(&mut self, error: &str, counts: bool, now: Timestamp) {
        self.attempts += 1;
        self.retry_count += i64::from(counts);
        (self.last_error, self.failed_at) = (Some(error.to_owned()), date(now));
        self.note("failed", now, Some(error), None);
    }

    /// Records that a person wants it retried. A letter that follows an earlier one keeps its place, and is due as soon as it is the
    /// first.
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

    /// Discards it.
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

    /// Removes the announcements up to this number, which are committed.
    pub fn announced_up_to(&mut self, number: i64) {
        self.announcements.retain(|it| it.number > number);
        self.announcing = !self.announcements.is_empty();
    }

    /// Returns the type of its event.
    pub fn event_type(&self) -> &str {
        self.event.get_str("event_type").unwrap_or_default()
    }

    /// Returns when it will be retried.
    pub fn next_retry(&self) -> Option<Timestamp> {
        self.next_retry_at.map(|at| Timestamp::from_millis(at.timestamp_millis()))
    }
}

/// Returns the description of an event that letters contain.
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
