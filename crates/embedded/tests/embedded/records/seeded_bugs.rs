//! Records with a deliberate defect: each must be caught by what sound records pass.

use annals_embedded::SeededBug;

use super::battery::Battery;
use super::model::{LIVES_MAX, Run};
use crate::lives::seeded::{battery_catches, model_catches};

#[test]
fn answering_before_the_sync_is_caught() {
    battery_catches::<Battery>(SeededBug::AnswerWritesBeforeSync);
    model_catches::<Run>(SeededBug::AnswerWritesBeforeSync, LIVES_MAX);
}

#[test]
fn keeping_what_a_refused_batch_changed_is_caught() {
    battery_catches::<Battery>(SeededBug::KeepRefusedWrites);
    model_catches::<Run>(SeededBug::KeepRefusedWrites, LIVES_MAX);
}

#[test]
fn keeping_old_index_entries_is_caught() {
    battery_catches::<Battery>(SeededBug::KeepOldIndexEntries);
    model_catches::<Run>(SeededBug::KeepOldIndexEntries, LIVES_MAX);
}

#[test]
fn keeping_a_revision_over_a_change_is_caught() {
    battery_catches::<Battery>(SeededBug::KeepRevisions);
    model_catches::<Run>(SeededBug::KeepRevisions, LIVES_MAX);
}

#[test]
fn noting_one_change_of_a_batch_is_caught() {
    model_catches::<Run>(SeededBug::NoteOneChangeOfABatch, LIVES_MAX);
    battery_catches::<Battery>(SeededBug::NoteOneChangeOfABatch);
}

#[test]
fn forgetting_the_journal_when_opening_is_caught() {
    battery_catches::<Battery>(SeededBug::ForgetJournalOnOpening);
    model_catches::<Run>(SeededBug::ForgetJournalOnOpening, LIVES_MAX);
}

#[test]
fn naming_a_journal_before_its_file_is_durable_is_caught() {
    battery_catches::<Battery>(SeededBug::NameJournalBeforeItIsDurable);
}

#[test]
fn writing_over_a_journal_that_was_not_moved_is_caught() {
    battery_catches::<Battery>(SeededBug::TurnJournalTooEarly);
}
