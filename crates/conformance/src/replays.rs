//! The suite of replays.

pub mod cases;

/// Generates one test for every case of replays, with the subject that the expression creates, as [`event_log!`](crate::event_log) does
/// for the log: `annals_conformance::replays!(MyStore::new());`
#[macro_export]
macro_rules! replays {
    ($subject:expr) => {
        $crate::replays! { @cases $subject;
            sending {
                a_preview_counts_and_shows_the_first_hundred
                a_replay_counts_every_event_and_is_completed
                a_filter_that_selects_nothing_in_particular_is_refused
                a_handler_gets_events_again_with_the_id_of_the_replay
                events_are_sent_in_the_order_of_time_or_of_the_log
                a_replay_to_a_file_writes_one_line_for_each_event
                a_file_is_written_by_one_replay_at_a_time
                groups_get_the_events_of_their_topics_again
                a_consumer_in_rust_processes_an_event_by_the_topic_that_a_replay_sends_it_to
                a_consumer_in_rust_that_skips_replays_gets_each_event_once
                a_handler_in_rust_knows_the_replay_that_delivers_an_event_again
                only_events_that_were_there_at_the_start_are_sent
                a_speed_keeps_the_gaps_between_events
                a_rate_bounds_the_events_of_a_second
                a_clock_that_jumps_delays_no_replay_and_repeats_no_event
                a_replay_that_processes_an_event_ends_its_dead_letter
                a_replay_sends_events_with_the_time_of_sending_if_asked_to
                a_topic_on_a_broker_of_its_own_is_refused_unless_a_group_follows_the_log
            }
            operating {
                acts_that_the_state_does_not_allow_are_refused_with_the_state
                a_paused_replay_continues_with_the_next_event
                of_two_callers_that_resume_a_replay_one_succeeds
                a_cancelled_replay_sends_nothing_more
                a_restart_continues_with_the_next_event
                a_replay_whose_process_is_killed_continues_with_the_next_event
                replays_that_ended_long_ago_are_removed
                replays_that_ended_a_month_ago_are_removed_without_a_request
                changes_of_a_replay_are_followed
            }
            failing {
                a_failed_event_is_counted_and_listed
                every_event_is_sent_where_all_fail_in_two_groups
                a_delivery_is_settled_for_its_own_handler_only
                a_replay_that_stops_on_errors_fails_after_the_first
                a_failed_event_is_sent_again_as_often_as_asked
                a_delivery_whose_lease_ended_is_not_settled
                a_webhook_is_called_for_each_event_and_what_it_refuses_is_counted
                a_webhook_that_is_down_for_an_hour_gets_every_event_once_and_in_order
                an_event_that_is_posted_during_a_pause_is_not_posted_again
                an_event_that_is_posted_when_a_replay_is_cancelled_is_counted
                an_event_that_is_posted_when_its_process_ends_is_not_posted_again
                an_unknown_handler_is_refused
                a_replay_that_cannot_continue_has_an_error_with_its_type
                a_damaged_document_is_counted_as_failed_and_the_others_are_sent
                a_replay_is_resumed_after_a_document_whose_time_is_a_number
                the_stored_session_is_what_is_shown
            }
            claiming {
                a_delivery_whose_worker_leaves_while_it_is_claimed_goes_to_the_next_one
                a_delivery_that_a_handler_in_rust_claims_while_an_attempt_ends_is_handled
                an_attempt_of_a_handler_in_rust_goes_on_when_its_next_pull_fails
                a_settlement_of_a_handler_in_rust_that_the_store_did_not_get_is_repeated
                a_delivery_of_a_handler_in_rust_whose_process_ended_is_made_again
                a_refused_effect_of_a_handler_in_rust_fails_the_delivery_of_a_replay
                a_claim_whose_outcome_is_unknown_is_withdrawn
                a_withdrawal_that_fails_is_repeated
            }
        }
    };
    (@cases $subject:expr; $($group:ident { $($case:ident)+ })+) => {
        $(mod $group {
            #[allow(unused_imports, reason = "the subject's expression may name items of the calling module")]
            use super::*;

            $(#[test]
            fn $case() {
                $crate::run($subject, $crate::replays::cases::$group::$case);
            })+
        })+
    };
}

/// Generates the cases of several processes on one store, for stores that processes share. Used like [`replays!`].
#[macro_export]
macro_rules! replays_of_processes {
    ($subject:expr) => {
        $crate::replays! { @cases $subject;
            processes {
                of_two_processes_that_resume_a_replay_one_succeeds
                another_process_continues_a_replay
                a_replay_that_one_process_cannot_send_is_sent_by_another
                a_replay_to_a_file_is_left_to_a_process_that_has_a_folder
                a_process_that_cannot_send_a_replay_does_not_fail_while_another_one_sends_it
                an_event_that_a_process_handles_is_not_sent_again_by_one_whose_clock_is_ahead
            }
        }
    };
}
