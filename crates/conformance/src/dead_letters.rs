//! The suite of dead letters.

pub mod cases;

/// Generates one test for every case of dead letters, with the subject that the expression creates, as [`event_log!`](crate::event_log)
/// does for the log: `annals_conformance::dead_letters!(MyStore::new());`
#[macro_export]
macro_rules! dead_letters {
    ($subject:expr) => {
        $crate::dead_letters! { @cases $subject;
            receiving {
                a_message_that_is_parked_becomes_a_letter_that_is_planned_and_announced
                a_retried_letter_goes_to_its_own_group_only_and_ends_as_retried
                later_messages_of_a_key_wait_behind_its_letter_and_come_in_order
                later_messages_of_a_key_pass_its_letter_where_the_definition_says_so
                a_letter_that_failed_as_often_as_allowed_is_discarded_and_its_key_goes_on
                letters_in_flight_and_letters_that_wait_survive_a_restart_in_order
                only_letters_that_are_due_are_delivered_and_a_failing_one_stops_no_other
                an_outage_parks_no_more_than_the_breaker_allows
                a_letter_that_fails_during_an_outage_keeps_its_retries_and_pauses
                a_delay_of_a_worker_does_not_shorten_the_pause_of_an_outage
                an_event_that_a_handler_parks_is_a_letter_of_that_handler
                a_letter_that_fails_again_after_a_replay_keeps_its_history
            }
            acting {
                a_manual_letter_waits_for_a_person
                what_is_over_or_unknown_is_refused_and_a_batch_says_which
                a_policy_of_a_topic_comes_before_its_category_and_survives_a_restart
                a_bulk_act_counts_in_a_dry_run_and_changes_each_letter_once
                a_bulk_act_of_a_process_that_ended_is_finished_where_it_stood
                statistics_count_each_status_by_topic
                a_crossed_threshold_is_announced_and_unhealthy_until_it_is_crossed_back
                letters_of_a_deleted_group_are_given_up
                letters_of_a_deleted_group_are_given_up_although_the_caller_goes_away
            }
            ending {
                an_open_letter_ends_when_a_replay_processes_its_event
                an_open_letter_ends_when_its_event_is_processed_after_a_move_back
                letters_of_a_deleted_handler_are_given_up
                letters_of_a_consumer_whose_deletion_was_cut_short_are_given_up
                letters_that_are_over_are_archived_after_the_retention_and_open_ones_stay
                groups_are_in_the_health_with_lag_failing_keys_and_letters
            }
        }
    };
    (@cases $subject:expr; $($group:ident { $($case:ident)+ })+) => {
        $(mod $group {
            #[allow(unused_imports, reason = "the subject's expression may name items of the calling module")]
            use super::*;

            $(#[test]
            fn $case() {
                $crate::run($subject, $crate::dead_letters::cases::$group::$case);
            })+
        })+
    };
}

/// Generates the cases of several processes on one store, for stores that processes share. Used like [`dead_letters!`].
#[macro_export]
macro_rules! dead_letters_of_processes {
    ($subject:expr) => {
        $crate::dead_letters! { @cases $subject;
            processes {
                two_processes_hand_out_each_due_letter_once
            }
        }
    };
}
