//! What an owner stores beside the progress, so that its status can be read from the store alone.

use annals_core::handlers::{ProcessorRecord, REPLAYS};
use annals_core::{Condition, Expected, RecordChange, Timestamp};

use super::Work;
use crate::engine::journal::NotWritten;

/// The number of attempts to write a batch whose dead letters were changed after they were read.
const TRIES: usize = 100;

/// What an owner writes into its processor's record with every batch.
#[derive(Debug, Clone, PartialEq)]
struct Marks {
    last_reason: Option<String>,
    last_success: Option<Timestamp>,
    failing: i64,
    blocked: i64,
    is_blocked: bool,
    ended: bool,
    starts_at: Option<Timestamp>,
    has_replay: bool,
}

impl Marks {
    fn of(record: &ProcessorRecord) -> Self {
        Self {
            last_reason: record.last_reason.clone(),
            last_success: record.last_success(),
            failing: record.failing,
            blocked: record.blocked,
            is_blocked: record.is_blocked,
            ended: record.ended,
            starts_at: record.starts_at(),
            has_replay: record.replay.is_some(),
        }
    }

    fn put(self, record: &mut ProcessorRecord) {
        record.last_reason = self.last_reason;
        record.succeeded(self.last_success);
        (record.failing, record.blocked, record.is_blocked) = (self.failing, self.blocked, self.is_blocked);
        record.ended = self.ended;
        if self.starts_at.is_none() {
            record.starts_at = None;
        }
        if !self.has_replay {
            record.replay = None;
        }
    }
}

impl Work<'_> {
    fn marks(&self) -> Marks {
        let (failing, blocked) = self.machine.failing_counts();
        let has_ended = self.ended && failing == 0 && self.progress().position >= self.machine.read_to();
        Marks {
            last_reason: self.last_reason.clone(),
            last_success: self.last_success,
            failing: i64::try_from(failing).unwrap_or(i64::MAX),
            blocked: i64::try_from(blocked).unwrap_or(i64::MAX),
            is_blocked: self.machine.is_blocked(),
            ended: has_ended,
            starts_at: self.starts_at,
            has_replay: self.journal.record().replay.is_some() && !self.machine.has_replayed(),
        }
    }

    /// Returns whether anything differs from what is stored.
    pub(super) fn is_unstored(&self) -> bool {
        let record = self.journal.record();
        self.machine.has_changes()
            || self.machine.has_letter_outcomes()
            || self.guarded.has_changes()
            || record.progress() != *self.machine.progress()
            || Marks::of(record) != self.marks()
    }

    /// Stores everything that changed, together with these effects.
    pub(super) async fn store(&mut self, effects: &[RecordChange]) -> Result<(), NotWritten> {
        self.store_with(effects, |_| ()).await
    }

    /// Stores everything that changed, together with these effects and a change of the processor's record.
    pub(super) async fn store_with(
        &mut self,
        effects: &[RecordChange],
        edit: impl Fn(&mut ProcessorRecord),
    ) -> Result<(), NotWritten> {
        let (changes, outcomes) = (self.machine.changes(), self.machine.letter_outcomes());
        let marks = self.marks();
        let over = self.journal.record().replay.as_ref().filter(|_| !marks.has_replay);
        let over = over.map(|mark| RecordChange::delete_if(REPLAYS, mark.id.as_str(), whatever()));
        let replay_is_over = over.is_some();
        let (guarded, duplicates) = self.guarded.stored();
        let guarded = Self::guard_changes(&guarded)?;
        let effects: Vec<_> = effects.iter().cloned().chain(over).chain(guarded).collect();
        let mut tries = 0;
        let freed = loop {
            let letters = self.letter_changes(&changes.parked, &outcomes).await?;
            let (has_letters, next_retry) = (!letters.changes.is_empty(), letters.next_retry);
            let written = self.journal.write_with(changes.clone(), letters.changes, &effects, |record| {
                marks.clone().put(record);
                record.duplicates += duplicates;
                edit(record);
            });
            match written.await {
                // A person, or the task that announces letters, changed a letter after it was read.
                Err(NotWritten::Conflict) if tries < TRIES => tries += 1,
                Err(error) => return Err(error),
                Ok(()) => {
                    if let Some(next) = next_retry {
                        self.letters_at = self.letters_at.min(next);
                    }
                    if has_letters {
                        self.owner.shared.letters_of(&self.owner.tenant).notify_one();
                    }
                    break letters.freed;
                }
            }
        };
        freed.iter().for_each(|key| self.machine.let_go(key));
        self.count_duplicates(duplicates);
        self.guard_stored();
        if replay_is_over {
            self.machine.replaying(None);
        }
        self.last_stored = self.clock.now();
        Ok(())
    }
}

fn whatever() -> Expected {
    Expected::AbsentOr(Condition::All)
}
