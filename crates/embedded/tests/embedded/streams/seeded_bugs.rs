//! Streams with a deliberate defect: each must be caught by what sound streams pass.

use annals_embedded::SeededBug;

use super::battery::Battery;
use super::model::{LIVES_MAX, Run};
use super::restored;
use crate::lives::seeded::{battery_catches, model_catches, with};
use crate::stores::block_on;

#[test]
fn moving_the_progress_in_a_write_of_its_own_is_caught() {
    battery_catches::<Battery>(SeededBug::MoveProgressOnItsOwn);
}

#[test]
fn answering_before_the_sync_is_caught() {
    battery_catches::<Battery>(SeededBug::AnswerWritesBeforeSync);
}

#[test]
fn taking_any_verdicts_for_a_repeat_is_caught() {
    battery_catches::<Battery>(SeededBug::TakeAnyVerdictsForARepeat);
    model_catches::<Run>(SeededBug::TakeAnyVerdictsForARepeat, LIVES_MAX);
}

#[test]
fn overwriting_a_partitions_full_block_is_caught() {
    model_catches::<Run>(SeededBug::OverwriteFullPostings, LIVES_MAX);
}

#[test]
fn keeping_streams_of_earlier_incarnations_is_caught() {
    let caught =
        block_on(restored::a_stream_is_cut_where_the_log_was(with(SeededBug::KeepStreamsOfEarlierIncarnations)));
    assert!(caught.is_err());
}
