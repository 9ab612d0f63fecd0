//! Dead letters of a processor: a parked event becomes one in the same batch, and a due letter is delivered again.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use annals_core::bson::Bson;
use annals_core::dead_letters::{DEAD_LETTERS, DeadLetter, Place, Received};
use annals_core::processing::{Fetched, LetterOutcome, Offered, Parked};
use annals_core::{
    Condition, GroupQuery, ReadError, RecordChange, RecordError, RecordType, RecordedEvent, Timestamp, TypedRecords,
    limits,
};

use super::{Stop, Work};
use crate::dead_letters::{Edits, Policies};
use crate::engine::journal::NotWritten;

/// The most letters that are offered at a time.
const OFFERED_MAX: usize = 100;
/// The number of letters that are read at a time: more than can be offered and in flight.
const PAGE: usize = 400;
/// The number of events of held keys that become letters in one batch.
const FOLLOW: usize = 100;
/// When to look again if no letter is scheduled, and none becomes due before.
const RARELY: Duration = Duration::from_secs(3600);

impl Work<'_> {
    fn policies(&self) -> Result<Policies, NotWritten> {
        let unknown = |error: annals_core::UnknownLog| annals_core::StoreError::other(error.code(), error.to_string());
        Policies::of_tenant(&self.owner.shared, &self.owner.tenant).map_err(|error| NotWritten::Store(unknown(error)))
    }

    fn edits(&self) -> Result<Edits, NotWritten> {
        let random = Arc::clone(&self.owner.shared.options.random);
        Ok(Edits::new(&self.owner.records, self.policies()?, random, self.clock.now()))
    }

    /// Loads what is needed of the open letters when the owner begins.
    pub(super) async fn know_letters(&mut self) -> Result<(), Stop> {
        self.know_passed().await?;
        self.hold_keys().await
    }

    /// Finds the last letter whose event will be delivered again because the processor was moved back: processing that event ends the
    /// letter.
    async fn know_passed(&mut self) -> Result<(), Stop> {
        let letters = TypedRecords::<DeadLetter>::declared(Arc::clone(&self.owner.records));
        let of_processor = Condition::eq("processor", self.owner.task.as_str());
        let again = Condition::gte("position", self.progress().position.cast_signed());
        let open = Condition::and([of_processor, DeadLetter::open(), again]);
        let query = TypedRecords::<DeadLetter>::query().matching(open).descending("position").limit(1);
        let last = match letters.find(query).await {
            Err(RecordError::UnknownCollection(_)) => return Ok(()),
            found => found.map_err(NotWritten::from)?.0,
        };
        if let Some(last) = last.first() {
            self.machine.passed_before(last.value.position.cast_unsigned() + 1);
        }
        Ok(())
    }

    /// Holds the keys that have open letters, if the definition keeps the order of each key.
    async fn hold_keys(&mut self) -> Result<(), Stop> {
        if !self.owner.definition.keeps_order() {
            return Ok(());
        }
        let mut query = GroupQuery::new(DEAD_LETTERS).by("key").limit(limits::PAGE_MAX);
        query = query.matching(DeadLetter::holding(&self.owner.task));
        loop {
            let page = match self.owner.records.group(query.clone()).await {
                // There has never been a letter.
                Err(RecordError::UnknownCollection(_)) => return Ok(()),
                page => page.map_err(NotWritten::from)?,
            };
            for group in page.groups {
                if let Bson::String(key) = group.key {
                    self.machine.hold(key.into());
                }
            }
            let Some(cursor) = page.next else { return Ok(()) };
            query = query.after(cursor);
        }
    }

    /// Turns events whose key has an open letter into letters after it.
    pub(super) async fn follow(&mut self, now: Timestamp) -> Result<(), Stop> {
        while self.machine.follow(FOLLOW, now) > 0 {
            self.store(&[]).await?;
        }
        Ok(())
    }

    /// Reads letters that are due, and offers them to workers.
    pub(super) async fn offer_letters(&mut self, now: Timestamp) -> Result<(), Stop> {
        let full = self.machine.offered_count() >= OFFERED_MAX;
        if self.pulls.is_empty() || self.journal.record().paused || now < self.letters_at || full {
            return Ok(());
        }
        let letters = TypedRecords::<DeadLetter>::declared(Arc::clone(&self.owner.records));
        let due = DeadLetter::due(&self.owner.task, now);
        let query = TypedRecords::<DeadLetter>::query().matching(due).ascending("next_retry_at").limit(PAGE);
        let (page, more) = match letters.find(query).await {
            Err(RecordError::UnknownCollection(_)) => (Vec::new(), None),
            page => page.map_err(NotWritten::from)?,
        };
        let mut offered = 0;
        for letter in page.into_iter().map(|stored| stored.value) {
            if self.machine.has_letter(letter.position.cast_unsigned()) {
                continue;
            }
            if self.machine.offered_count() >= OFFERED_MAX {
                return Ok(());
            }
            offered += 1;
            self.offer(&letter).await?;
        }
        self.letters_at = match more {
            // The rest is read once these are done.
            Some(_) if offered > 0 => now,
            Some(_) => now.plus(Duration::from_secs(1)),
            None => self.next_letter(&letters, now).await.map_err(NotWritten::from)?,
        };
        Ok(())
    }

    async fn offer(&mut self, letter: &DeadLetter) -> Result<(), Stop> {
        let Some(event) = self.event_of(letter).await? else {
            tracing::warn!(letter = letter.id, "the event of a dead letter is no longer in the log");
            let mut edits = self.edits()?;
            edits.discard(&letter.id, "its event is no longer in the log", None).await.map_err(NotWritten::from)?;
            let (changes, ended) = edits.finish().map_err(NotWritten::from)?;
            match self.owner.records.write(changes).await {
                Ok(_) => ended.iter().for_each(|key| self.machine.let_go(key)),
                // It was changed meanwhile; the next look handles it.
                Err(RecordError::NotAsExpected { .. }) => {}
                Err(error) => return Err(NotWritten::from(error).into()),
            }
            return Ok(());
        };
        let position = letter.position.cast_unsigned();
        let event = {
            let (sequence_number, time) = (event.sequence_number, event.time);
            self.hold(position, event);
            Fetched { position, sequence_number, partition: letter.key.as_str().into(), time }
        };
        let attempts = u32::try_from(letter.attempts).unwrap_or(u32::MAX);
        let reason = letter.last_error.clone().filter(|_| attempts > 0).unwrap_or_default();
        self.machine.offer(Offered { event, attempts, reason });
        Ok(())
    }

    /// Returns the event of a letter, or `None` if the log has another event there since a restore.
    async fn event_of(&self, letter: &DeadLetter) -> Result<Option<RecordedEvent>, ReadError> {
        let found = self.owner.source.first(letter.position.cast_unsigned()).await?;
        let is_it = |event: &RecordedEvent| {
            event.sequence_number == letter.sequence_number.cast_unsigned()
                && letter.event.get_str("event_id").is_ok_and(|id| id == event.id.hyphenated().to_string())
        };
        Ok(found.filter(is_it))
    }

    async fn next_letter(&self, letters: &TypedRecords<DeadLetter>, now: Timestamp) -> Result<Timestamp, RecordError> {
        let date = annals_core::bson::DateTime::from_millis(now.as_millis());
        let later = Condition::and([DeadLetter::scheduled(&self.owner.task), Condition::gt("next_retry_at", date)]);
        let query = TypedRecords::<DeadLetter>::query().matching(later).ascending("next_retry_at").limit(1);
        let page = match letters.find(query).await {
            Err(RecordError::UnknownCollection(_)) => Vec::new(),
            page => page?.0,
        };
        let next = page.first().and_then(|stored| stored.value.next_retry());
        Ok(next.map_or(now.plus(RARELY), |at| at.min(now.plus(RARELY))))
    }

    /// Forgets the letters that were read earlier, because a person changed some and they may be closed.
    pub(super) fn letters_changed(&mut self) {
        self.machine.forget_letters();
        self.letters_at = Timestamp::from_millis(0);
    }

    /// Returns the changes of letters that follow from what the machine parked and settled, and the keys that they free.
    pub(super) async fn letter_changes(
        &mut self,
        parked: &[Parked],
        outcomes: &[LetterOutcome],
    ) -> Result<(Vec<RecordChange>, BTreeSet<String>), NotWritten> {
        if parked.is_empty() && outcomes.is_empty() {
            return Ok(Default::default());
        }
        if !std::mem::replace(&mut self.has_letters, true) {
            self.owner.records.declare(<DeadLetter as RecordType>::collection()).await?;
        }
        let mut edits = self.edits()?;
        for parked in parked.iter().filter(|parked| !is_skipped(parked)) {
            let position = parked.event.position;
            let event = match self.events.get(&position) {
                Some(event) => Some(event.clone()),
                None => self.owner.source.first(position).await.map_err(read_failed)?,
            };
            let Some(event) = event.filter(|it| it.sequence_number == parked.event.sequence_number) else { continue };
            let received = Received {
                processor: &self.owner.task,
                topic: &self.owner.shared.options.topics.topic_of(&event.event_type),
                event: &event,
                place: Place::Position(position),
                key: &parked.event.partition,
                attempts: parked.attempts,
                error: &parked.reason,
                at: parked.at,
            };
            edits.receive(&received, parked.act.is_some()).await?;
        }
        for outcome in outcomes {
            edits.settled(&DeadLetter::id_of(&self.owner.task, outcome.event.position), outcome).await?;
        }
        Ok(edits.finish()?)
    }
}

/// Returns whether an operator skipped the event: it is not to be processed, and does not become a letter.
fn is_skipped(parked: &Parked) -> bool {
    parked.act.as_deref().is_some_and(|act| act.starts_with("skipped: "))
}

fn read_failed(error: ReadError) -> NotWritten {
    match error {
        ReadError::Store(error) => NotWritten::Store(error),
        other => NotWritten::Store(annals_core::StoreError::other(other.code(), other.to_string())),
    }
}
