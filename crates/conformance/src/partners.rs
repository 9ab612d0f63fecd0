//! The suite of partner events, which the task host exchanges on a store's log and records, with a partner whose responses the cases
//! choose.

pub mod cases;
mod gate;
mod words;

/// Generates one test for every case of partner events, with the subject that the expression creates, as [`event_log!`](crate::event_log)
/// does for the log: `annals_conformance::partners!(MyStore::new());`
#[macro_export]
macro_rules! partners {
    ($subject:expr) => {
        $crate::partners! { @cases $subject;
            acting {
                an_exhausted_event_is_resent_by_hand
                a_delivery_that_failed_for_the_last_time_is_a_dead_letter
                a_pending_event_is_cancelled
                an_act_that_the_state_does_not_allow_is_refused
                acts_are_recorded_with_their_reason
                a_paused_and_resumed_partner_has_an_act_with_the_reason_of_each
            }
            attempts {
                statement_102_gaps_are_5_10_20_and_40_s_and_the_fifth_failure_is_the_last
                statement_103_success_on_the_third_attempt_keeps_the_audit_fields
                statement_109_candidates_for_a_retry_have_up_to_four_attempts_or_no_map
                an_attempt_is_on_record_before_it_is_sent
                an_event_has_one_id_and_one_body_over_attempts
                retry_after_is_honoured
                a_refusal_that_cannot_heal_ends_at_once
                a_partner_that_fails_in_a_row_is_left_alone_for_a_while
            }
            dying {
                a_process_that_is_killed_between_any_two_steps_loses_nothing
                a_clock_that_jumps_loses_nothing_and_sends_nothing_twice
            }
            gathering {
                deliveries_that_are_due_together_share_their_batches
                the_events_of_deliveries_that_are_due_together_are_read_together
                the_next_delivery_is_attempted_while_the_end_of_the_last_one_is_stored
                a_claim_that_another_process_won_stops_no_other_of_its_batch
            }
            listing {
                statement_105_the_history_of_a_partner_has_its_newest_100_events
                statement_107_what_has_expired_is_removed_and_an_expiry_that_is_text_is_rejected
                statement_108_audit_fields_direction_and_version_are_required_and_data_has_any_shape
                an_event_that_other_software_made_unreadable_waits_for_a_person
                events_are_listed_by_direction_status_type_entity_and_day
                a_failed_event_is_listed_as_due_once_its_delay_has_passed
                what_failed_for_the_last_time_is_counted_until_someone_decides
            }
            managing {
                statement_107_an_event_that_succeeded_gets_a_date_to_expire_and_one_that_failed_stays
                an_event_gets_a_date_of_expiry_once_the_archive_holds_its_copy
                events_that_were_final_before_the_archive_was_configured_get_their_copies
                an_event_that_is_being_sent_when_the_archive_is_configured_gets_its_copy
                the_record_has_the_fields_of_its_layout_and_no_others
                secrets_are_never_shown
                partners_are_defined_changed_listed_and_deleted
                a_partner_that_is_paused_keeps_what_others_change_meanwhile
                a_partner_that_cannot_work_is_refused
            }
            ordering {
                events_of_an_entity_are_sent_in_order
                a_failing_entity_delays_no_other
                a_silent_partner_delays_no_other
                an_event_that_is_final_holds_up_nothing
                a_paused_partner_gets_its_events_later
            }
            owning {
                statement_106_a_record_in_processing_is_claimed_again_after_its_lease
                an_event_whose_owner_died_in_the_fifth_attempt_is_exhausted
                a_host_that_is_drained_stores_what_is_in_flight
                an_attempt_that_panics_is_made_again_after_its_lease
            }
            processing {
                a_commit_that_the_store_does_not_take_is_retried_as_a_delivery_is
                a_commit_that_is_refused_ends_at_once
            }
            receiving {
                an_event_is_stored_and_then_committed_to_the_configured_aggregate
                a_repeated_request_is_answered_with_the_first_id
                a_request_that_is_not_signed_or_stale_is_refused
                a_body_that_is_too_large_too_deep_or_no_event_is_refused
                secrets_are_rotated_without_a_gap
                which_events_are_the_same_one_is_configured
                events_of_an_entity_are_committed_in_the_order_of_their_arrival
            }
            selecting {
                statement_104_an_event_is_recorded_once_for_a_partner
                two_hosts_send_each_event_once
                each_partner_gets_what_it_selects
                a_partner_gets_events_from_its_definition_on
                a_replay_sends_a_range_again
                an_event_is_sent_in_the_form_that_is_configured
            }
        }
    };
    (@cases $subject:expr; $($group:ident { $($case:ident)+ })+) => {
        $(mod $group {
            #[allow(unused_imports, reason = "the subject's expression may name items of the calling module")]
            use super::*;

            $(#[test]
            fn $case() {
                $crate::run($subject, $crate::partners::cases::$group::$case);
            })+
        })+
    };
}

/// Generates the cases of several processes on one store, for stores that processes share. Used like [`partners!`].
#[macro_export]
macro_rules! partners_of_processes {
    ($subject:expr) => {
        $crate::partners! { @cases $subject;
            processes {
                one_process_at_a_time_sends_and_another_takes_over_when_it_dies
                an_event_that_another_process_receives_is_committed
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
        let list = std::fs::read_to_string(format!("{sources}/partners.rs")).expect("the list is readable");
        let mut cases = 0;
        for entry in std::fs::read_dir(format!("{sources}/partners/cases")).expect("the folder is readable") {
            let text = std::fs::read_to_string(entry.expect("an entry").path()).expect("a file is readable");
            let names = text.lines().filter_map(|line| line.strip_prefix("pub async fn ")?.split('(').next());
            for name in names {
                assert!(list.lines().any(|line| line.trim() == name), "{name} is not in the list of partners.rs");
                cases += 1;
            }
        }
        assert!(cases > 30, "only {cases} cases were found");
    }
}
