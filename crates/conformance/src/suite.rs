//! The list of cases, as macros.

/// Generates one test for every case, with the subject that the expression creates: `annals_conformance::event_log!(MyStore::new());`
///
/// The expression is evaluated again for each test, in a module below the one that calls the macro. Write the call in a separate module
/// for each backend, so that the tests are named `memory::one_order::the_first_event_has_number_0`.
#[macro_export]
macro_rules! event_log {
    ($subject:expr) => {
        $crate::commits_and_log!($subject);
        $crate::keys!($subject);
        $crate::decisions!($subject);
    };
    (@cases $subject:expr; $($group:ident { $($case:ident)+ })+) => {
        $(mod $group {
            #[allow(unused_imports, reason = "the subject's expression may name items of the calling module")]
            use super::*;

            $(#[test]
            fn $case() {
                $crate::run($subject, $crate::cases::$group::$case);
            })+
        })+
    };
}

/// Generates the cases of single commits and of the log, which every backend supports from its first day. Used like [`event_log!`].
#[macro_export]
macro_rules! commits_and_log {
    ($subject:expr) => {
        $crate::event_log! { @cases $subject;
            aggregate_ids {
                a_list_goes_on_after_its_cursor
                a_list_keeps_its_limit
                an_aggregate_is_listed_once
                other_names_and_tenants_are_left_out
                the_tenant_id_is_listed_too
                ids_are_ordered_by_their_bytes
                a_list_with_a_wrong_name_or_limit_is_refused
                names_are_listed_once_and_go_on_after_their_cursor
                a_name_without_a_commit_is_not_listed
            }
            aggregates {
                an_unknown_aggregate_has_version_0_and_no_commits
                an_aggregates_version_is_that_of_its_last_commit
                all_one_and_the_last_commit_can_be_read
                other_aggregates_are_not_returned
                a_version_range_includes_both_ends
                a_limit_takes_the_first_or_the_last_of_a_range
                a_long_aggregate_is_read_page_by_page
                a_time_range_includes_both_ends
                a_sparse_time_range_is_read_to_its_end
                a_range_that_ends_before_it_begins_is_refused
                an_aggregate_is_there_for_its_own_tenant_id_only
                tenants_do_not_see_each_other
                a_thousand_aggregates_are_committed_and_read_in_parallel
                ids_are_any_text
            }
            atomic {
                a_commit_of_ten_events_reads_back_as_one_commit
                the_events_of_a_commit_stand_together
                a_reader_never_sees_half_a_commit
                a_page_that_ends_inside_a_commit_goes_on_there
                a_refused_commit_leaves_nothing
                a_commit_holds_ten_thousand_events
                one_bad_commit_never_fails_its_neighbours
                a_commit_whose_caller_went_away_is_whole_or_absent
                an_aggregate_read_while_it_grows_shows_a_whole_prefix
            }
            content {
                everything_given_is_read_back
                what_is_left_out_has_its_default
                owner_and_space_are_each_commits_own
                json_content_comes_back_equal
                a_commit_may_be_as_large_as_its_limits
            }
            durable {
                everything_is_there_after_reopening
                an_empty_store_may_be_reopened
                a_store_keeps_its_identity
                a_closed_store_refuses_commits_and_wakes_who_waits
                commits_under_way_when_closing_are_stored_or_refused
            }
            filters {
                several_types_take_any_of_them
                several_tags_take_events_with_all_of_them
                a_tag_is_not_a_type
                an_aggregate_filter_takes_one_or_all_of_a_name
                events_of_one_commit_are_filtered_one_by_one
                any_filter_finds_what_filtering_by_hand_finds
                a_filter_that_cannot_match_is_refused
            }
            follow {
                a_follower_gets_what_is_there_then_what_comes
                a_follower_misses_nothing_while_many_write
                many_followers_each_get_what_follows
                a_slow_follower_harms_nobody
                a_follower_with_a_filter_gets_what_passes
                a_follower_that_is_cancelled_loses_nothing
                a_follower_past_the_head_waits_for_its_number
                all_who_wait_are_woken
                a_wait_is_for_this_log_only
                a_follower_is_told_when_the_store_closes
            }
            immutable {
                what_was_read_is_a_copy
                an_event_stays_the_same
            }
            judgement {
                a_commit_that_breaks_a_rule_is_refused_with_its_path
                rules_are_judged_first
                the_tenant_id_is_judged_before_request_and_version
                the_request_id_is_judged_before_the_version
                an_id_belongs_to_the_tenant_id_that_came_first
                a_look_up_of_a_request_checks_its_aggregate
            }
            log_pages {
                forwards_begins_at_0_and_backwards_at_the_head
                from_stands_between_events
                one_event_is_read_by_its_number
                past_the_end_is_the_head
                an_empty_page_is_the_end
                pages_cover_every_event_once
                a_limit_is_1_to_1000
                the_largest_events_are_all_read
                pages_read_while_commits_are_made_show_a_prefix
            }
            once_per_request {
                a_repeated_request_returns_the_first_outcome
                a_repeat_is_recognised_whatever_version_it_expects
                requests_are_remembered_for_ever
                a_request_id_with_other_content_is_refused
                other_metadata_is_another_request
                what_is_not_content_does_not_make_another_request
                racing_repeats_are_committed_once
                a_request_id_belongs_to_its_aggregate
                a_request_id_belongs_to_its_tenant
                a_request_exists_where_it_was_committed
                the_first_outcome_of_a_request_is_looked_up
                a_refused_request_may_be_sent_again
                without_a_request_id_each_commit_is_a_request_of_its_own
                given_event_ids_are_kept_and_made_ones_are_not_content
            }
            one_order {
                the_first_event_has_number_0
                commits_in_a_row_get_numbers_in_a_row
                parallel_commits_leave_no_hole
                what_is_committed_after_an_acknowledgement_comes_later
                a_read_after_an_acknowledgement_finds_it
                each_tenant_has_a_log_of_its_own
            }
            one_winner {
                versions_count_commits_from_1
                a_second_first_commit_is_refused
                a_second_commit_of_a_version_is_refused
                a_version_in_the_future_is_refused
                a_version_in_the_past_is_refused
                the_words_for_versions_mean_what_they_say
                of_many_writers_for_one_version_one_wins
                racing_writers_store_exactly_what_succeeded
                writers_that_read_again_after_a_conflict_all_get_in
                parallel_commits_at_any_version_all_succeed
                parallel_commits_of_different_aggregates_all_succeed
                commits_with_and_without_expected_version_run_side_by_side
                aggregates_have_versions_of_their_own
                reads_and_refused_commits_touch_no_version
            }
            stores {
                a_tenant_that_is_not_declared_has_no_log
                a_scope_that_does_not_exist_has_no_log
                declared_tenants_are_listed_in_order
                a_logs_status_says_how_it_is
            }
            waiting {
                a_commit_that_waits_for_its_number_is_found_there
                a_commit_that_is_only_stored_comes_to_the_log_by_itself
                a_repeat_may_wait_for_more_than_the_first
                a_commit_whose_time_is_up_is_stored_all_the_same
                a_wait_that_is_too_long_is_refused
            }
        }
    };
}

/// Generates the cases of prepare keys that change with a commit. Used like [`event_log!`].
#[macro_export]
macro_rules! keys {
    ($subject:expr) => {
        $crate::event_log! { @cases $subject;
            keys {
                a_reserved_key_is_taken_for_others
                a_refused_commit_changes_no_key
                a_released_key_can_be_reserved
                one_commit_may_change_a_keys_value
                a_release_with_another_value_is_refused
                an_expired_reservation_may_be_taken_over
                an_expired_key_is_released_by_its_value_only
                a_repeat_is_not_refused_for_its_own_key
                other_keys_are_other_content
                of_many_racing_reservations_one_wins
                a_key_goes_from_hand_to_hand
                names_separate_keys
                keys_of_other_tenants_are_others
                keys_hold_through_everything_stored
                random_changes_follow_who_holds_what
                keys_that_break_a_rule_are_refused_with_their_path
                the_keys_are_judged_before_the_version
            }
        }
    };
}

/// Generates the cases of decisions beyond one aggregate: append conditions, also beside prepare keys, and transactions. It includes
/// scans, whose samples hold transactions. Used like [`event_log!`].
#[macro_export]
macro_rules! decisions {
    ($subject:expr) => {
        $crate::event_log! { @cases $subject;
            append_conditions {
                only_events_after_the_position_count
                a_position_may_be_ahead_of_the_log
                a_pattern_takes_any_of_its_types
                a_pattern_wants_all_its_tags_on_one_event
                one_pattern_of_several_is_enough_and_named
                an_empty_pattern_is_any_event
                other_aggregates_count_and_the_commit_itself_does_not
                commits_that_do_not_match_never_conflict
                of_many_racing_commits_with_one_condition_one_wins
                a_name_is_unique_through_its_tag
                decisions_on_a_filtered_read_keep_their_rule
                tenant_and_request_id_are_judged_first
                the_version_is_judged_last
                a_failed_append_condition_leaves_nothing
                conditions_reach_through_everything_stored
                any_condition_fails_on_what_filtering_by_hand_finds
                a_condition_that_breaks_a_rule_is_refused_with_its_path
            }
            keys_beside_conditions {
                keys_are_judged_between_append_condition_and_version
                a_failed_append_condition_changes_no_key
            }
            keys_together {
                a_transaction_changes_the_keys_of_all_its_commits
                keys_pass_from_commit_to_commit_in_order
                a_refused_transaction_changes_no_key
                keys_of_all_commits_are_judged_together
                a_repeated_transaction_is_not_refused_for_its_own_keys
                racing_transactions_share_no_key
                keys_count_against_the_size_of_a_transaction
            }
            racing_transactions {
                overlapping_transactions_have_one_winner_per_version
                racing_repeats_of_a_transaction_are_stored_once
                transfers_between_accounts_keep_the_sum
                a_reader_never_sees_part_of_a_transaction
                one_bad_transaction_never_fails_its_neighbours
                a_transaction_whose_caller_went_away_is_whole_or_absent
                transactions_under_way_when_closing_are_stored_or_refused
            }
            scans {
                a_scan_lends_what_reading_finds
                a_scan_ends_where_it_is_told
                a_scan_that_is_broken_off_goes_on
                any_scan_finds_what_filtering_by_hand_finds
                a_scan_beside_writers_visits_a_prefix
                a_scan_with_a_wrong_filter_is_refused
            }
            transactions {
                all_commits_are_stored_together_in_their_order
                events_name_their_transaction_in_every_read
                a_transaction_has_two_to_sixteen_commits
                a_refusal_names_its_part_and_nothing_is_stored
                parts_are_judged_in_order
                an_expectation_changes_nothing
                a_repeat_returns_all_first_outcomes
                a_request_id_with_other_commits_is_refused
                the_request_id_belongs_to_the_first_aggregate
                without_a_request_id_each_transaction_is_a_request_of_its_own
                a_refused_transaction_may_be_sent_again
                commits_of_one_transaction_do_not_exclude_each_other
                a_transaction_decides_the_tenant_id_of_new_aggregates
                everything_of_a_transaction_is_there_after_reopening
                a_transaction_may_be_as_large_as_its_limits
                a_transaction_that_breaks_a_rule_is_refused_with_its_path
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
        let list = std::fs::read_to_string(format!("{sources}/suite.rs")).expect("the list is readable");
        let mut cases = 0;
        for entry in std::fs::read_dir(format!("{sources}/cases")).expect("the folder is readable") {
            let text = std::fs::read_to_string(entry.expect("an entry").path()).expect("a file is readable");
            let names = text.lines().filter_map(|line| line.strip_prefix("pub async fn ")?.split('(').next());
            for name in names {
                assert!(list.lines().any(|line| line.trim() == name), "{name} is not in the list of suite.rs");
                cases += 1;
            }
        }
        assert!(cases > 80, "only {cases} cases were found");
    }
}
