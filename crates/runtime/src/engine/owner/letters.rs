//! Dead letters of a processor: a parked event becomes one in the same batch, and a due letter is delivered again.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use annals_core::dead_letters::{DeadLetter, Place, Received};
use annals_core::processing::{Fetched, LetterOutcome, Offered, Parked};
use annals_core::{
    Condition, Cursor, ReadError, RecordChange, RecordError, RecordType, RecordedEvent, Stored, Timestamp, TypedRecords,
};

use super::{HELD_BYTES_MAX, Stop, Work};
use crate::dead_letters::{Edits, OpenLetters, Policies};
use crate::engine::journal::NotWritten;

/// The most letters that are offered at a time: those that all lanes may take next, and a page more.
const OFFERED_MAX: usize = 512;
/// The number of letters that are read at a time.
const PAGE: usize = 256;
/// The bytes of event data that an owner holds before it offers no further letters. The rest is for new events, which would otherwise not
/// be read for as long as letters with large events are due.
pub(super) const OFFERED_BYTES_MAX: usize = HELD_BYTES_MAX / 2;
/// A letter with more entries of its history is read again when it is settled, so that those in memory stay small.
const KEPT_HISTORY_MAX: usize = 16;
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

    /// Learns what is needed of the open letters when the owner begins, in one pass over them.
    ///
    /// - If the definition keeps the order of each key, the keys with open letters are held.
    /// - Processing an event ends its letter. That can happen if the processor was moved back, so the last letter is found whose event will
    ///   be delivered again.
    pub(super) async fn know_letters(&mut self) -> Result<(), Stop> {
        let (keeps_order, again) = (self.owner.definition.keeps_order(), self.progress().position.cast_signed());
        let mut open = OpenLetters::of(&self.owner.records, &self.owner.task);
        let (mut last, mut held): (Option<i64>, Option<String>) = (None, None);
        while let Some(page) = open.next_page().await.map_err(NotWritten::from)? {
            for letter in page {
                last = last.max((letter.position >= again).then_some(letter.position));
                if keeps_order && letter.holds && held.as_ref() != Some(&letter.key) {
                    self.machine.hold(letter.key.as_str().into());
                    held = Some(letter.key);
                }
            }
        }
        if let Some(last) = last {
            self.machine.passed_before(last.cast_unsigned() + 1);
        }
        Ok(())
    }

    /// Turns events whose key has an open letter into letters after it.
    pub(super) async fn follow(&mut self, now: Timestamp) -> Result<(), Stop> {
        while self.machine.follow(FOLLOW, now) > 0 {
            self.store(&[]).await?;
        }
        Ok(())
    }

    /// Returns whether due letters are read in this turn: it is time, a worker waits for them, and there is room for a page.
    pub(super) fn reads_letters(&self, now: Timestamp) -> bool {
        let is_time = self.pass.is_some() || now >= self.letters_at;
        let is_wanted = !self.pulls.is_empty() && !self.journal.record().paused;
        let has_room = self.machine.offered_count() + PAGE <= OFFERED_MAX;
        // New events may take up all of the memory, but they do not keep out letters.
        is_time && is_wanted && has_room && (self.bytes < OFFERED_BYTES_MAX || !self.machine.has_letters())
    }

    /// Reads letters that are due, and offers them to workers.
    ///
    /// A pass reads them in the order in which they became due, and each page continues after the one before. Letters that become due
    /// during a pass come in the next one: they are due later than all of this one. The next pass begins where this one ended, unless
    /// something may have been planned for an earlier time.
    pub(super) async fn offer_letters(&mut self, now: Timestamp) -> Result<(), Stop> {
        if !self.reads_letters(now) {
            return Ok(());
        }
        let Pass { from, until, mut after } = self.pass.take().unwrap_or_else(|| {
            let from = self.letters_read.filter(|read| self.letters_at >= *read);
            // A change that makes a letter due sets an earlier time again.
            self.letters_at = now.plus(RARELY);
            Pass { from, until: now, after: None }
        });
        let letters = TypedRecords::<DeadLetter>::declared(Arc::clone(&self.owner.records));
        loop {
            let mut due = DeadLetter::due(&self.owner.task, until);
            if let Some(from) = from {
                due = Condition::and([due, Condition::gte("next_retry_at", date(from))]);
            }
            let mut query = TypedRecords::<DeadLetter>::query().matching(due).ascending("next_retry_at").limit(PAGE);
            if let Some(cursor) = after.take() {
                query = query.after(cursor);
            }
            let (page, more) = match letters.find(query).await {
                Err(RecordError::UnknownCollection(_)) => (Vec::new(), None),
                page => page.map_err(NotWritten::from)?,
            };
            let offered = self.offer(page).await?;
            if offered.is_cut {
                // Their events take too much memory at once. The rest is found again once some of these are done.
                self.letters_at = Timestamp::from_millis(0);
                return Ok(());
            }
            let Some(cursor) = more else {
                self.letters_read = (self.letters_at >= until).then_some(until);
                if self.letters_at > now {
                    let next = self.next_letter(&letters, until, now).await.map_err(NotWritten::from)?;
                    self.letters_at = self.letters_at.min(next);
                }
                return Ok(());
            };
            if offered.count > 0 {
                self.pass = Some(Pass { from, until, after: Some(cursor) });
                return Ok(());
            }
            // All of this page are in flight.
            after = Some(cursor);
        }
    }

    /// Offers a page of due letters with their events.
    async fn offer(&mut self, mut page: Vec<Stored<DeadLetter>>) -> Result<Offers, Stop> {
        page.retain(|Stored { value, .. }| !self.machine.has_letter(&value.key, value.position.cast_unsigned()));
        let mut positions: Vec<u64> = page.iter().map(|stored| stored.value.position.cast_unsigned()).collect();
        positions.sort_unstable();
        let bytes_max = OFFERED_BYTES_MAX.saturating_sub(self.bytes).max(1);
        let (mut events, covered) = self.owner.source.at(&positions, bytes_max).await?;
        let unread = positions.get(covered).copied();
        let mut offers = Offers { count: 0, is_cut: unread.is_some() };
        for stored in page {
            let letter = &stored.value;
            let position = letter.position.cast_unsigned();
            if unread.is_some_and(|unread| position >= unread) {
                continue;
            }
            let Some(event) = events.remove(&position).filter(|event| is_of(letter, event)) else {
                self.give_up(letter).await?;
                continue;
            };
            let (sequence_number, time) = (event.sequence_number, event.time);
            self.hold(position, event);
            let event = Fetched { position, sequence_number, partition: letter.key.as_str().into(), time };
            let attempts = u32::try_from(letter.attempts).unwrap_or(u32::MAX);
            let reason = letter.last_error.clone().filter(|_| attempts > 0).unwrap_or_default();
            self.machine.offer(Offered { event, attempts, reason });
            offers.count += 1;
            // One with pending announcements is about to be changed by the task that commits them.
            if !letter.announcing && letter.history.len() <= KEPT_HISTORY_MAX {
                self.letters.insert(position, stored);
            }
        }
        Ok(offers)
    }

    /// Discards a letter whose event is gone: since a restore, the log has another event there, or none.
    async fn give_up(&mut self, letter: &DeadLetter) -> Result<(), Stop> {
        tracing::warn!(letter = letter.id, "the event of a dead letter is no longer in the log");
        let mut edits = self.edits()?;
        edits.discard(&letter.id, "its event is no longer in the log", None).await.map_err(NotWritten::from)?;
        if let Some(next) = edits.next_retry() {
            self.letters_at = self.letters_at.min(next);
        }
        let (changes, ended) = edits.finish().map_err(NotWritten::from)?;
        if changes.is_empty() {
            // It was closed meanwhile.
            return Ok(());
        }
        match self.owner.records.write(changes).await {
            Ok(_) => ended.iter().for_each(|key| self.machine.let_go(key)),
            // It was changed meanwhile; the next look handles it.
            Err(RecordError::NotAsExpected { .. }) => self.letters_at = Timestamp::from_millis(0),
            Err(error) => return Err(NotWritten::from(error).into()),
        }
        Ok(())
    }

    /// Returns when to look again after a pass over the letters that were due by `until`. Others may have become due during the pass.
    async fn next_letter(
        &self,
        letters: &TypedRecords<DeadLetter>,
        until: Timestamp,
        now: Timestamp,
    ) -> Result<Timestamp, RecordError> {
        let later = Condition::gt("next_retry_at", date(until));
        let later = Condition::and([DeadLetter::scheduled(&self.owner.task), later]);
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
        self.letters.clear();
        self.pass = None;
        self.letters_at = Timestamp::from_millis(0);
    }

    /// Returns the changes of letters that follow from what the machine parked and settled.
    pub(super) async fn letter_changes(
        &mut self,
        parked: &[Parked],
        outcomes: &[LetterOutcome],
    ) -> Result<LetterChanges, NotWritten> {
        if parked.is_empty() && outcomes.is_empty() {
            return Ok(LetterChanges::default());
        }
        if !std::mem::replace(&mut self.has_letters, true) {
            self.owner.records.declare(<DeadLetter as RecordType>::collection()).await?;
        }
        let mut edits = self.edits()?;
        // Each is used once: if the batch is refused because a letter has changed, they are read again.
        for outcome in outcomes {
            if let Some(stored) = self.letters.remove(&outcome.event.position) {
                edits.know(stored);
            }
        }
        let parked = parked.iter().filter(|parked| !is_skipped(parked));
        let positions = outcomes.iter().map(|outcome| outcome.event.position);
        let positions = parked.clone().map(|parked| parked.event.position).chain(positions);
        let ids = positions.map(|position| DeadLetter::id_of(&self.owner.task, position)).collect();
        edits.look_up(ids).await?;
        let keys = parked.clone().filter(|parked| parked.act.is_none()).map(|parked| &*parked.event.partition);
        edits.look_up_keys(&self.owner.task, keys.collect()).await?;
        for parked in parked {
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
        let next_retry = edits.next_retry();
        let (changes, freed) = edits.finish()?;
        Ok(LetterChanges { changes, freed, next_retry })
    }
}

/// A pass over the letters that are due.
///
/// It continues after its last page. The entries of letters that were due before may take a while to leave the store's index, and a query
/// from the beginning would pass over all of them.
pub(super) struct Pass {
    /// Letters that were due before this time were read by an earlier pass.
    from: Option<Timestamp>,
    /// Only letters that are due by this time are read.
    until: Timestamp,
    after: Option<Cursor>,
}

/// What became of a page of due letters.
struct Offers {
    count: usize,
    /// Whether some were left out because their events take too much memory.
    is_cut: bool,
}

/// The changes of letters for one batch.
#[derive(Default)]
pub(super) struct LetterChanges {
    pub changes: Vec<RecordChange>,
    /// The keys that no longer have open letters.
    pub freed: BTreeSet<String>,
    /// When the first of the changed letters will be retried.
    pub next_retry: Option<Timestamp>,
}

fn date(time: Timestamp) -> annals_core::bson::DateTime {
    annals_core::bson::DateTime::from_millis(time.as_millis())
}

/// Returns whether an event is that of a letter: since a restore, the log may have another one at its position.
fn is_of(letter: &DeadLetter, event: &RecordedEvent) -> bool {
    event.sequence_number == letter.sequence_number.cast_unsigned()
        && letter.event.get_str("event_id").is_ok_and(|id| id == event.id.hyphenated().to_string())
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
