//! The fault battery against stores with a deliberate defect: each must be caught by the same seeds that a sound store passes. A battery
//! that misses one of them would miss the like of it in the product.

use annals_embedded::SeededBug;

use crate::battery::Battery;
use crate::lives::run_seeds;
use crate::stores::block_on;

/// Seeds within which every defect is caught.
const SEEDS: u64 = 400;
/// Threads run as they please, so the same seeds once more are another chance. Most defects are caught by the first ten; the
/// rarest, a torn tail that is left in place, by the first hundred on average. On a busy machine two commits that change the same key may
/// seldom be in one batch: 1,600 seeds missed that once.
const ROUNDS: u64 = 12;

#[track_caller]
fn is_caught(bug: SeededBug) {
    for seed in (0..ROUNDS).flat_map(|_| 0..SEEDS) {
        if block_on(run_seeds::<Battery>(seed..=seed, |options| options.seeded_bug = Some(bug))).is_err() {
            return;
        }
    }
    panic!("{SEEDS} seeds did not catch {bug:?} in {ROUNDS} rounds");
}

#[test]
fn a_store_without_a_defect_passes_the_same_seeds() {
    block_on(run_seeds::<Battery>(0..SEEDS, |options| options.seeded_bug = None))
        .unwrap_or_else(|broken| panic!("{broken}"));
}

macro_rules! caught {
    ($($test:ident $bug:ident)+) => {
        $(#[test]
        fn $test() {
            is_caught(SeededBug::$bug);
        })+
    };
}

caught! {
    acknowledging_before_the_sync_is_caught AcknowledgeBeforeSync
    publishing_before_the_sync_is_caught PublishBeforeSync
    answering_repeats_before_the_sync_is_caught AnswerRepeatsBeforeSync
    going_on_after_a_failed_sync_is_caught GoOnAfterFailedSync
    skipping_checksums_in_recovery_is_caught SkipChecksumOnRecovery
    keeping_an_unsynced_tail_in_recovery_is_caught KeepUnsyncedTailOnRecovery
    leaving_a_torn_tail_in_place_is_caught LeaveTornTailInPlace
    forgetting_to_sync_the_folder_is_caught ForgetDirectorySync
    forgetting_the_request_ids_of_closed_segments_is_caught ForgetSealedRequestIds
    ignoring_commits_of_the_same_batch_is_caught IgnoreCommitsOfSameBatch
    recovering_a_part_of_a_transaction_is_caught RecoverPartOfTransaction
    ignoring_events_since_the_search_is_caught IgnoreEventsSinceSearch
    forgetting_expectations_is_caught ForgetExpectations
    forgetting_the_keys_of_closed_segments_is_caught ForgetSealedKeys
    ignoring_keys_of_the_same_batch_is_caught IgnoreKeysOfSameBatch
    keeping_keys_of_refused_commits_is_caught KeepKeysOfRefused
    forgetting_keys_in_recovery_is_caught ForgetKeysOnRecovery
}
