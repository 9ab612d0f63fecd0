//! Streams with a deliberate defect: each must be caught by what sound streams pass.

use annals_embedded::{Options, SeededBug};

use super::{battery, model, restored};
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
fn moving_the_progress_in_a_write_of_its_own_is_caught() {
    battery_catches(SeededBug::MoveProgressOnItsOwn);
}

#[test]
fn answering_before_the_sync_is_caught() {
    battery_catches(SeededBug::AnswerWritesBeforeSync);
}

#[test]
fn taking_any_verdicts_for_a_repeat_is_caught() {
    battery_catches(SeededBug::TakeAnyVerdictsForARepeat);
    model_catches(SeededBug::TakeAnyVerdictsForARepeat);
}

#[test]
fn overwriting_a_partitions_full_block_is_caught() {
    model_catches(SeededBug::OverwriteFullPostings);
}

#[test]
fn keeping_streams_of_earlier_incarnations_is_caught() {
    let caught =
        block_on(restored::a_stream_is_cut_where_the_log_was(with(SeededBug::KeepStreamsOfEarlierIncarnations)));
    assert!(caught.is_err());
}
