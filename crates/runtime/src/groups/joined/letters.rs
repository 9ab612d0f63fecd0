//! Dead letters of a consumer on an external broker: a message that it passes becomes one, and one member at a time processes due
//! letters.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use annals_core::consuming::Passing;
use annals_core::dead_letters::{DeadLetter, Place, Received};
use annals_core::processing::{Fetched, LetterFailure, LetterOutcome};
use annals_core::{
    BrokerError, ByteString, Lease, LogQuery, ReadMessages, RecordError, RecordType, RecordedEvent, StoreError, Stored,
    Timestamp, TopicPartition, TypedRecords,
};

use super::{Work, event};
use crate::dead_letters::{Edits, OpenLetters};
use crate::handler::{HandleFailure, RetryWish};
use crate::host::{Asked, Held, Leases};

/// How often to look for due letters, and for keys that a person or another member has freed.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// The number of attempts to write a change that conflicts with another process's.
const TRIES: usize = 20;
/// The most letters that are processed concurrently.
const DUE_MAX: usize = 50;

/// The letters of a consumer, as far as this member manages them.
pub(super) struct Letters<'w> {
    work: &'w Work,
    leases: Leases,
    held: Option<Held>,
    /// When to look at them next.
    pub look_at: Timestamp,
    busy: HashSet<String>,
}

/// A due letter, with its event.
pub(super) struct Due {
    pub id: String,
    pub event: RecordedEvent,
    fetched: Fetched,
    /// The letter as it was read, unless it is about to change because announcements are pending.
    stored: Option<Stored<DeadLetter>>,
}

impl<'w> Letters<'w> {
    pub fn new(work: &'w Work) -> Self {
        let task = format!("letters/{}", work.processor);
        let leases = Leases::new(&work.shared, &work.tenant, Arc::clone(&work.records), task);
        Self { work, leases, held: None, look_at: work.shared.options.clock.now(), busy: HashSet::new() }
    }

    fn now(&self) -> Timestamp {
        self.work.shared.options.clock.now()
    }

    fn letters(&self) -> TypedRecords<DeadLetter> {
        TypedRecords::declared(Arc::clone(&self.work.records))
    }

    fn edits(&self) -> Edits {
        let random = Arc::clone(&self.work.shared.options.random);
        // A key may have messages on several partitions, and each member adds letters of its own.
        Edits::new(&self.work.records, self.work.policies.clone(), random, self.now()).beside_others()
    }

    /// Stores letters in one batch. Returns the keys that still have no open letter, because their policies allow no retry.
    pub async fn store(&self, passing: &[Passing<RecordedEvent>]) -> Result<Vec<String>, RecordError> {
        self.work.records.declare(<DeadLetter as RecordType>::collection()).await?;
        let mut last = None;
        for _ in 0..TRIES {
            let mut edits = self.edits();
            for one in passing {
                let received = Received {
                    processor: &self.work.processor,
                    event: &one.message,
                    topic: &one.at.topic,
                    place: Place::Message { partition: one.at.partition, offset: one.offset },
                    key: &one.key,
                    attempts: one.attempts,
                    error: &one.reason,
                    at: self.now(),
                };
                edits.receive(&received, one.never).await?;
            }
            match self.write(edits).await {
                Err(error @ (RecordError::NotAsExpected { .. } | RecordError::DuplicateKey { .. })) => {
                    last = Some(error)
                }
                written => return written,
            }
        }
        Err(last.unwrap_or_else(|| {
            StoreError::Unreachable("other processes kept changing the letters; retry".to_owned()).into()
        }))
    }

    async fn write(&self, edits: Edits) -> Result<Vec<String>, RecordError> {
        let (changes, ended) = edits.finish()?;
        self.work.records.write(changes).await?;
        self.work.shared.letters_of(&self.work.tenant).notify_one();
        Ok(ended.into_iter().collect())
    }

    /// Reads the keys that have open letters; empty if order is not kept.
    pub async fn held_keys(&self) -> Result<HashSet<ByteString>, RecordError> {
        let mut keys = HashSet::new();
        let mut open = OpenLetters::of(&self.work.records, &self.work.processor);
        while let Some(page) = open.next_page().await? {
            keys.extend(page.into_iter().filter(|letter| letter.holds).map(|letter| ByteString::from(letter.key)));
        }
        Ok(keys)
    }

    /// Returns the due letters if this member is the one that manages them. Each must then be [`settled`](Self::settled).
    pub async fn due(&mut self) -> Result<Vec<Due>, RecordError> {
        let now = self.now();
        if now < self.look_at {
            return Ok(Vec::new());
        }
        self.look_at = now.plus(LOOK_EVERY);
        if self.busy.len() >= DUE_MAX {
            return Ok(Vec::new());
        }
        let due = DeadLetter::due(&self.work.processor, now);
        let query = TypedRecords::<DeadLetter>::query().matching(due).ascending("next_retry_at");
        let query = query.limit(DUE_MAX + self.busy.len());
        let found = match self.letters().find(query.clone()).await {
            Err(RecordError::UnknownCollection(_)) => return Ok(Vec::new()),
            found => found?.0,
        };
        let before = self.held.as_ref().map(Held::epoch);
        if found.is_empty() && before.is_none() || !self.leads().await? {
            return Ok(Vec::new());
        }
        let mut due = Vec::new();
        let found = match self.held.as_ref().map(Held::epoch) == before {
            true => found,
            // Letters that were found before the lease was taken may be closed.
            false => self.letters().find(query).await?.0,
        };
        for stored in found {
            let letter = &stored.value;
            if self.busy.len() + due.len() >= DUE_MAX || self.busy.contains(&letter.id) {
                continue;
            }
            match self.event_of(letter).await? {
                Some(event) => {
                    let position = letter.position.cast_unsigned();
                    let (partition, time) = (letter.key.as_str().into(), event.time);
                    let fetched = Fetched { position, sequence_number: event.sequence_number, partition, time };
                    let id = letter.id.clone();
                    due.push(Due { id, event, fetched, stored: Some(stored).filter(|it| !it.value.announcing) });
                }
                None => {
                    let mut edits = self.edits();
                    let reason = "its message is no longer on the topic, and its event is not in the log";
                    edits.discard(&letter.id, reason, None).await?;
                    self.write(edits).await?;
                }
            }
        }
        // Only now, because an error above hands out none of them, and they stay due.
        self.busy.extend(due.iter().map(|due| due.id.clone()));
        Ok(due)
    }

    /// Returns whether this member manages the letters. It takes the lease if it is free.
    async fn leads(&mut self) -> Result<bool, RecordError> {
        // Another member of this process manages them.
        if !self.leases.claim() {
            return Ok(false);
        }
        if let Some(held) = &self.held
            && self.leases.keeps(held).await?
        {
            return Ok(true);
        }
        self.held = None;
        self.work.records.declare(<Lease as RecordType>::collection()).await?;
        if let Asked::Taken(held) = self.leases.ask().await? {
            self.held = Some(held);
        }
        Ok(self.held.is_some())
    }

    /// Returns the event of a letter: from its message if the broker still has it, else from the log. In a topic that was deleted and
    /// created again, another message has the place of the letter's own.
    async fn event_of(&self, letter: &DeadLetter) -> Result<Option<RecordedEvent>, RecordError> {
        let is_it = |event: &RecordedEvent| {
            letter.event.get_str("event_id").is_ok_and(|id| id == event.id.hyphenated().to_string())
        };
        let topic = ByteString::from(letter.original_topic.as_str());
        if let Some((partition, offset)) = event::place_in(&letter.headers) {
            let at = TopicPartition { topic: topic.clone(), partition };
            // INVARIANT: a letter is given up only if its message is known to be gone. An unreachable broker is retried.
            let found = match self.work.broker.read(ReadMessages { at, from: offset, limit: 1 }).await {
                Ok(page) => page.messages.into_iter().next(),
                Err(BrokerError::UnknownTopic(_)) => None,
                Err(error) => return Err(StoreError::Unreachable(error.to_string()).into()),
            };
            if let Some(message) = found.filter(|message| message.offset == offset) {
                let event_type = self.work.type_of(&topic);
                let read = event::read(&message, event_type);
                let event = read.unwrap_or_else(|_| event::unreadable(&message, event_type));
                if is_it(&event) {
                    return Ok(Some(event));
                }
            }
        }
        let from = Some(letter.sequence_number.cast_unsigned());
        let page = self.work.log.read(LogQuery { from, limit: 1, ..LogQuery::default() }).await;
        let page = page.map_err(|error| StoreError::Unreachable(error.to_string()))?;
        Ok(page.events.into_iter().next().filter(is_it))
    }

    /// Stores the outcome of a letter. Returns the keys that no longer have open letters.
    pub async fn settled(
        &mut self,
        due: &Due,
        ending: Result<(), HandleFailure>,
        counts: bool,
    ) -> Result<Vec<String>, RecordError> {
        // Even if the write fails, the letter is no longer being processed.
        self.busy.remove(&due.id);
        let failure = ending.err().map(|HandleFailure { reason, retry }| LetterFailure {
            reason,
            counts,
            retry_after_ms: if let RetryWish::After(millis) = retry { Some(millis) } else { None },
            never: retry == RetryWish::Never,
        });
        let outcome = LetterOutcome { event: due.fetched.clone(), at: self.now(), failure };
        let (mut last, mut known) = (None, due.stored.clone());
        for _ in 0..TRIES {
            let mut edits = self.edits();
            // If it changed meanwhile, it is read again.
            known.take().into_iter().for_each(|stored| edits.know(stored));
            edits.settled(&due.id, &outcome).await?;
            match self.write(edits).await {
                Err(error @ RecordError::NotAsExpected { .. }) => last = Some(error),
                written => {
                    // The letters after them are due now. Only after a successful write: else the same ones would be due endlessly.
                    if written.is_ok() && self.busy.is_empty() {
                        self.look_at = self.now();
                    }
                    return written;
                }
            }
        }
        // It becomes due again, and its consumer tolerates the repetition.
        last.map_or(Ok(Vec::new()), Err)
    }

    /// Releases the lease, so that another member can manage them.
    pub async fn release(&mut self) {
        if let Some(held) = self.held.take() {
            self.leases.release(&held).await;
        }
    }
}
