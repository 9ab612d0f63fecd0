//! Records with a deliberate defect: each must be caught by what sound records pass.

use annals_embedded::{Options, SeededBug};

use super::{battery, model};
use crate::stores::block_on;

/// Seeds within which every defect is caught.
const SEEDS: u64 = 120;

fn with(bug: SeededBug) -> impl Fn(&mut Options) {
    move |options| options.seeded_bug = Some(bug)
}

#[track_caller]
fn battery_catches(bug: SeededBug) {
    let caught = block_on(battery::run_seeds(0..SEEDS, with(bug)));
    assert!(caught.is_err(), "{SEEDS} seeds did not catch {bug:?}");
}

#[track_caller]
fn model_catches(bug: SeededBug) {
    let caught = (0..SEEDS).any(|seed| block_on(model::on_a_faulty_disk(seed, with(bug))).is_err());
    assert!(caught, "{SEEDS} seeds did not catch {bug:?}");
}

#[test]
fn answering_before_the_sync_is_caught() {
    battery_catches(SeededBug::AnswerWritesBeforeSync);
    model_catches(SeededBug::AnswerWritesBeforeSync);
}

#[test]
fn keeping_what_a_refused_batch_changed_is_caught() {
    battery_catches(SeededBug::KeepRefusedWrites);
    model_catches(SeededBug::KeepRefusedWrites);
}

#[test]
fn keeping_old_index_entries_is_caught() {
    battery_catches(SeededBug::KeepOldIndexEntries);
    model_catches(SeededBug::KeepOldIndexEntries);
}

#[test]
fn keeping_a_revision_over_a_change_is_caught() {
    battery_catches(SeededBug::KeepRevisions);
    model_catches(SeededBug::KeepRevisions);
}

#[test]
fn noting_one_change_of_a_batch_is_caught() {
    model_catches(SeededBug::NoteOneChangeOfABatch);
    battery_catches(SeededBug::NoteOneChangeOfABatch);
}

#[test]
fn forgetting_the_journal_when_opening_is_caught() {
    battery_catches(SeededBug::ForgetJournalOnOpening);
    model_catches(SeededBug::ForgetJournalOnOpening);
}

#[test]
fn naming_a_journal_before_its_file_is_durable_is_caught() {
    battery_catches(SeededBug::NameJournalBeforeItIsDurable);
}

#[test]
fn writing_over_a_journal_that_was_not_moved_is_caught() {
    battery_catches(SeededBug::TurnJournalTooEarly);
}
