//! The suite of aggregates: programs load them through the ports, let them handle commands, and keep them as snapshots.

pub mod cases;
mod counted;
mod counter;
mod later;
mod racing;

pub use counter::{Counter, CounterEvent, TooMuch, add, increased, recorded};
pub use racing::Racing;

/// Generates one test for every case of aggregates, with the subject that the expression creates, as [`event_log!`](crate::event_log)
/// does for the log: `annals_conformance::aggregates!(MyStore::new());`
#[macro_export]
macro_rules! aggregates {
    ($subject:expr) => {
        $crate::aggregates! { @cases $subject;
            loading {
                an_aggregate_without_commits_has_its_initial_state_at_version_0
                an_aggregate_is_loaded_as_it_was_at_a_version_and_at_a_time
                events_of_earlier_programs_are_read_as_they_would_be_today
                events_of_unknown_types_are_kept_and_those_that_cannot_be_read_are_named
            }
            handling {
                a_command_is_committed_at_the_version_it_was_decided_at_and_answered_with_what_loading_finds
                a_command_that_is_refused_or_from_which_nothing_follows_commits_nothing
                after_a_conflict_the_command_is_decided_again_from_the_new_state
                a_conflict_with_the_version_that_the_caller_expects_is_not_tried_again
                a_repeated_request_is_answered_with_its_first_outcome_whatever_it_would_decide_now
                a_first_outcome_is_found_a_thousand_commits_back_and_so_long_a_history_is_loaded_whole
                of_many_at_once_each_is_carried_out_once
                the_same_request_from_many_at_once_is_carried_out_once
            }
            known {
                owner_space_and_operators_are_those_that_commits_named_last
                a_deleted_aggregate_takes_no_commands_until_it_is_recovered
                an_aggregate_of_another_tenant_id_is_not_seen_and_its_id_cannot_be_taken
            }
            kept {
                a_snapshot_is_saved_with_every_commit_and_spares_reading_those_before_it
                strategies_say_when_a_snapshot_is_saved
                a_command_that_commits_nothing_saves_nothing
                a_snapshot_of_a_state_that_was_changed_since_is_made_anew
                a_snapshot_that_is_ahead_of_the_log_is_not_believed
                an_aggregate_of_another_tenant_id_is_not_seen_through_its_snapshot
                snapshots_are_made_anew_one_or_many_and_go_on_where_they_ended
                making_snapshots_anew_ends_at_the_first_that_fails_and_says_where_to_go_on
                a_snapshot_that_is_wrong_though_readable_is_mended_by_making_it_anew
                a_repeated_request_is_answered_without_reading_the_aggregates_commits
                an_aggregate_goes_on_where_it_was_after_reopening
                tenants_have_aggregates_of_their_own
            }
        }
    };
    (@cases $subject:expr; $($group:ident { $($case:ident)+ })+) => {
        $(mod $group {
            #[allow(unused_imports, reason = "the subject's expression may name items of the calling module")]
            use super::*;

            $(#[test]
            fn $case() {
                $crate::run($subject, $crate::aggregates::cases::$group::$case);
            })+
        })+
    };
}

#[cfg(test)]
mod tests {
    mod reference_aggregates {
        use crate::reference::ReferenceSubject;
        crate::aggregates!(ReferenceSubject::new());
    }

    /// A case that is written but not listed would never run.
    #[test]
    fn every_case_is_listed() {
        let list = include_str!("aggregates.rs");
        let files = [
            include_str!("aggregates/cases/loading.rs"),
            include_str!("aggregates/cases/handling.rs"),
            include_str!("aggregates/cases/known.rs"),
            include_str!("aggregates/cases/kept.rs"),
        ];
        let lines = files.iter().flat_map(|cases| cases.lines());
        let names = lines.filter_map(|line| line.strip_prefix("pub async fn ")?.split('(').next());
        let missing: Vec<_> = names.filter(|name| !list.lines().any(|line| line.trim() == *name)).collect();
        assert_eq!(missing, [""; 0]);
    }
}
