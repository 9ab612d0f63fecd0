//! The suite of handlers, which the task host runs on a store's log and records.

pub mod cases;
mod counted;
pub(crate) mod opened;

/// Generates one test for every case of handlers, with the subject that the expression creates, as [`event_log!`](crate::event_log) does
/// for the log: `annals_conformance::handlers!(MyStore::new());`
#[macro_export]
macro_rules! handlers {
    ($subject:expr) => {
        $crate::handlers! { @cases $subject;
            delivering {
                events_of_a_partition_come_one_after_the_other_and_partitions_side_by_side
                a_pull_waits_for_an_event_and_ends_when_its_time_is_up
                events_of_other_types_move_the_position
                a_handler_that_begins_with_the_latest_gets_only_what_comes
                a_batch_holds_events_of_one_partition_in_order
                a_stream_is_handled_in_its_positions
                events_are_delivered_whole_with_all_their_types
            }
            dying {
                effects_of_a_handler_happen_once_whichever_write_its_process_dies_at
                a_worker_gets_every_unsettled_event_again_whichever_write_its_server_dies_at
            }
            choosing {
                a_condition_over_data_and_metadata_decides_what_is_handled
                a_failing_partition_catches_up_on_what_the_condition_admits
                a_handler_starts_with_the_first_event_at_or_after_a_time
                a_start_in_the_future_passes_over_what_comes_before_it
                a_handler_ends_before_the_first_event_at_or_after_its_stop
            }
            operating {
                every_act_is_recorded_with_its_reason_and_listed
                a_skip_that_names_an_event_is_refused_once_another_one_is_next
                a_replay_delivers_again_what_was_passed_and_marks_it
                a_replay_does_not_mark_what_had_failed
                what_is_in_flight_when_the_position_is_set_is_lost
                a_handler_is_moved_to_any_position_up_to_the_head
                a_failing_event_that_the_position_is_set_to_comes_and_fails_as_if_it_were_new
                a_move_ends_a_replay
                partition_keys_of_any_text_fail_and_are_acted_upon_alone
            }
            defining {
                a_definition_is_kept_and_one_that_changes_the_source_is_refused
                what_is_unknown_is_refused_by_name
                a_deleted_handler_forgets_where_it_was
                a_handler_is_deleted_whole_although_the_caller_goes_away
                a_changed_definition_is_followed_although_the_caller_goes_away
                handlers_are_listed_page_by_page
            }
            failing {
                a_failing_partition_is_retried_after_its_delay_and_holds_up_no_other
                a_failing_partition_keeps_its_place_over_a_restart
                without_partitions_a_failing_event_holds_up_all
                a_blocked_partition_is_retried_by_an_operator
                a_skipped_or_parked_event_is_recorded_and_its_partition_continues
                a_lease_that_ends_counts_as_a_failure
                a_paused_handler_delivers_nothing_until_it_is_resumed
            }
            restarting {
                what_was_in_flight_comes_again_and_what_was_settled_does_not
                events_settled_out_of_order_do_not_come_again
                two_hosts_on_one_store_take_no_lease_from_each_other
                of_two_hosts_that_claim_a_handler_at_once_one_delivers
                a_handler_of_a_restored_store_goes_back_to_the_fork_and_says_so
                a_replay_in_a_restored_store_marks_nothing_from_the_fork_on
            }
            spreading {
                work_spreads_evenly_over_processes_that_join_and_leave
            }
            answering {
                an_answer_that_comes_late_changes_nothing
                a_second_answer_changes_nothing
                an_answer_for_the_delivery_of_another_handler_is_refused
                a_worker_that_disconnects_in_the_middle_of_a_pull_has_taken_nothing
                a_poison_event_in_one_of_a_thousand_partitions_delays_no_other
                a_clock_that_jumps_skips_and_repeats_no_event
                a_definition_that_changes_while_events_are_in_flight_loses_none
            }
            attempts {
                an_event_is_attempted_with_its_number_and_last_reason_until_it_fails_for_good
                a_worker_chooses_the_delay_of_a_retry
                of_two_failing_partitions_the_one_that_is_due_first_comes_first
                a_retry_that_is_due_comes_before_a_new_event
                two_partitions_that_fail_at_their_second_event_are_retried_each_at_its_own
                without_partitions_a_handler_stops_before_an_event_whose_failure_is_final
                an_event_that_follows_a_failed_one_counts_its_own_attempts
                partitions_that_all_wait_for_an_operator_hold_up_no_other
                without_partitions_a_failed_event_waits_for_its_time_over_a_restart
                a_replay_delivers_parked_events_again
                states_are_shown_in_the_layout_of_the_dolittle_runtime
                a_state_in_the_layout_has_the_time_of_the_last_success
            }
            health {
                the_lag_and_the_time_since_progress_are_those_of_the_store
                the_lag_of_a_failing_partition_is_its_own
            }
            waiting {
                a_commit_waits_until_a_handler_has_handled_its_events
                a_wait_ends_for_events_that_are_not_the_handlers
                a_wait_ends_for_events_that_a_stream_does_not_have
                a_wait_lasts_while_the_partition_fails_and_ends_once_its_event_is_handled_or_skipped
                a_wait_that_lasts_too_long_ends_and_the_commit_stands
                a_wait_ends_when_the_host_is_drained
                a_stage_that_does_not_exist_is_refused
            }
            in_process {
                effects_happen_exactly_once_whatever_fails_and_restarts
                a_refused_effect_fails_its_event_and_nothing_of_it_happens
                a_handler_in_rust_chooses_when_its_event_comes_again
                a_panic_is_a_failure
                an_attempt_that_hangs_past_its_time_counts_as_failed
                commits_of_a_handler_are_made_once
                commits_of_a_handler_continue_the_trace_of_their_event
                every_delivery_is_a_span_between_the_commits_before_and_after_it
            }
        }
    };
    (@cases $subject:expr; $($group:ident { $($case:ident)+ })+) => {
        $(mod $group {
            #[allow(unused_imports, reason = "the subject's expression may name items of the calling module")]
            use super::*;

            $(#[test]
            fn $case() {
                $crate::run($subject, $crate::handlers::cases::$group::$case);
            })+
        })+
    };
}

/// Generates the cases of several processes on one store, for stores that processes share. Used like [`handlers!`].
#[macro_export]
macro_rules! handlers_of_processes {
    ($subject:expr) => {
        $crate::handlers! { @cases $subject;
            processes {
                one_process_at_a_time_delivers_and_another_takes_over_when_it_dies
                a_process_whose_clock_was_set_back_takes_over_in_time
                a_drained_process_gives_its_handlers_back_at_once
                a_process_that_lost_its_lease_stores_nothing
                a_commit_waits_for_the_handler_of_another_process
                a_definition_that_another_process_changes_is_followed
                commits_of_several_processes_are_handled_without_a_gap
            }
            idling {
                idle_handlers_cost_one_write_a_second_together
                a_deposed_process_gives_up_all_tasks
                a_process_whose_clock_is_behind_keeps_its_tasks
                a_process_whose_clock_is_ahead_takes_nothing_over
                a_process_whose_clock_is_ahead_gives_tasks_away
                a_process_with_a_longer_lease_keeps_its_tasks
                a_process_that_finds_its_handler_deleted_gives_the_lease_back
                all_tasks_of_a_process_that_dies_are_taken_over
                a_lease_of_an_earlier_build_is_taken_over_once_it_has_ended
                a_letter_that_another_process_makes_due_is_delivered
            }
        }
    };
}
