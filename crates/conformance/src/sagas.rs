//! The suite of sagas, which the task host runs on a store's log and records.

pub mod cases;
mod opened;
pub mod order;

/// Generates one test for every case of sagas, with the subject that the expression creates, as [`event_log!`](crate::event_log) does for
/// the log: `annals_conformance::sagas!(MyStore::new());`
#[macro_export]
macro_rules! sagas {
    ($subject:expr) => {
        $crate::sagas! { @cases $subject;
            running {
                commands_follow_the_event_that_started_the_saga_in_order
                an_event_starts_one_saga_for_each_correlation
                a_completed_saga_releases_what_it_holds
                a_failure_compensates_in_reverse_order_and_keeps_its_cause
                a_refused_command_fails_its_step
                events_may_come_before_their_step_and_twice
                the_record_has_the_fields_and_indexes_of_its_layout
                two_hosts_on_one_store_send_each_command_once
            }
            timing {
                a_step_past_its_limit_is_compensated_after_301_seconds
                a_timer_fires_once_after_the_process_was_down
                a_clock_that_jumps_fires_no_timer_early_or_twice
                a_restart_resumes_at_the_step_that_was_under_way
            }
            acting {
                a_cancel_compensates_and_is_refused_once_it_is_over
                an_event_cancels
                of_a_cancel_and_a_completion_one_wins
                statement_89_a_cancel_sees_what_another_process_wrote_meanwhile
                statement_89_the_owner_of_a_saga_sees_what_another_process_wrote_meanwhile
                a_parked_compensation_waits_visibly_for_an_operator
                sagas_are_listed_filtered_and_counted
                what_is_unknown_is_refused_by_name
            }
            defining {
                versions_live_side_by_side
                a_definition_is_deleted_once_its_sagas_are_over
                a_definition_begins_where_it_says
            }
            programs {
                functions_are_called_and_their_commands_committed_once
                a_cancel_while_a_function_runs_compensates_what_it_did
                a_function_that_panics_fails_its_step
                a_function_past_its_limit_is_given_up
                a_missing_function_is_refused
            }
        }
    };
    (@cases $subject:expr; $($group:ident { $($case:ident)+ })+) => {
        $(mod $group {
            #[allow(unused_imports, reason = "the subject's expression may name items of the calling module")]
            use super::*;

            $(#[test]
            fn $case() {
                $crate::run($subject, $crate::sagas::cases::$group::$case);
            })+
        })+
    };
}

/// Generates the cases of several processes on one store, for stores that processes share. Used like [`sagas!`].
#[macro_export]
macro_rules! sagas_of_processes {
    ($subject:expr) => {
        $crate::sagas! { @cases $subject;
            processes {
                another_process_takes_over_when_one_dies_and_sends_nothing_twice
                an_act_at_another_process_reaches_the_owner
            }
            dying {
                wherever_a_process_dies_another_one_completes_the_saga_with_the_same_commands
                wherever_a_process_dies_another_one_compensates_the_saga_with_the_same_commands
            }
        }
    };
}

#[cfg(test)]
mod tests {
    /// A case that is written but not listed would never run.
    #[test]
    fn every_case_is_listed() {
        let sources = concat!(env!("CARGO_MANIFEST_DIR"), "/src");
        let list = std::fs::read_to_string(format!("{sources}/sagas.rs")).expect("the list is readable");
        let mut cases = 0;
        for entry in std::fs::read_dir(format!("{sources}/sagas/cases")).expect("the folder is readable") {
            let text = std::fs::read_to_string(entry.expect("an entry").path()).expect("a file is readable");
            let names = text.lines().filter_map(|line| line.strip_prefix("pub async fn ")?.split('(').next());
            for name in names {
                assert!(list.lines().any(|line| line.trim() == name), "{name} is not in the list of sagas.rs");
                cases += 1;
            }
        }
        assert!(cases > 20, "only {cases} cases were found");
    }
}
