//! The suite of projections, which the task host runs on a store's log and records.

pub mod cases;
mod opened;

/// Generates one test for every case of projections, with the subject that the expression creates, as [`event_log!`](crate::event_log)
/// does for the log: `annals_conformance::projections!(MyStore::new());`
#[macro_export]
macro_rules! projections {
    ($subject:expr) => {
        $crate::projections! { @cases $subject;
            folding {
                declared_rules_fold_events_into_records
                keys_come_from_the_aggregate_a_path_or_a_constant
                one_event_changes_the_records_of_several_keys
                a_function_of_a_program_folds_events
                a_condition_decides_which_events_are_folded
                an_event_that_does_not_fit_stops_the_projection_before_it
                a_panic_of_a_reducer_stops_the_projection
                records_are_found_by_conditions_page_by_page
            }
            restarting {
                a_restart_folds_no_event_twice
                a_restart_resumes_the_build_beside_the_live_one
            }
            changing {
                the_same_definition_again_does_nothing
                a_changed_definition_is_built_beside_and_reads_never_see_half
                a_definition_that_is_taken_back_drops_its_build
                a_rebuild_makes_the_same_records_in_another_collection
                the_records_of_a_restored_store_are_rebuilt_and_the_reason_is_recorded
                records_of_a_dropped_build_are_removed
                an_older_version_is_refused
                a_changed_definition_gets_past_an_event_that_did_not_fit
                a_new_projection_is_built_although_the_caller_goes_away
            }
            operating {
                a_paused_projection_folds_nothing_until_it_is_resumed
                a_deleted_projection_is_unknown_and_can_be_defined_again
                acts_are_recorded_with_their_reasons
                what_is_unknown_is_refused_by_name
            }
            waiting {
                a_commit_waits_until_its_events_are_in_the_records
                a_wait_ends_for_events_that_are_not_the_projections
            }
        }
    };
    (@cases $subject:expr; $($group:ident { $($case:ident)+ })+) => {
        $(mod $group {
            #[allow(unused_imports, reason = "the subject's expression may name items of the calling module")]
            use super::*;

            $(#[test]
            fn $case() {
                $crate::run($subject, $crate::projections::cases::$group::$case);
            })+
        })+
    };
}

/// Generates the cases of several processes on one store, for stores that processes share. Used like [`projections!`].
#[macro_export]
macro_rules! projections_of_processes {
    ($subject:expr) => {
        $crate::projections! { @cases $subject;
            processes {
                one_process_at_a_time_folds_and_another_takes_over_when_it_dies
                a_projection_of_a_process_that_dies_is_taken_over_in_five_seconds
                a_process_that_lost_its_lease_writes_no_records
                a_definition_that_another_process_changes_is_followed
                a_commit_waits_for_the_projection_of_another_process
            }
        }
    };
}
