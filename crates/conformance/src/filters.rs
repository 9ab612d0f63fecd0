//! The suite of filters, which the task host runs on a store's log, streams and records.

pub mod cases;
mod counting;
mod words;

/// Generates one test for every case of filters, with the subject that the expression creates, as [`event_log!`](crate::event_log) does
/// for the log: `annals_conformance::filters!(MyStore::new());`
#[macro_export]
macro_rules! filters {
    ($subject:expr) => {
        $crate::filters! { @cases $subject;
            filling {
                a_filter_by_types_includes_their_events_in_order_and_follows_the_log
                a_condition_over_data_and_metadata_decides_what_is_included
                entries_are_partitioned_by_aggregate_or_by_a_path
                a_public_filter_excludes_events_that_are_not_public
                a_filter_evaluates_the_events_of_another_stream
                a_position_moves_over_events_that_are_not_included
                a_sparse_filter_reads_only_what_the_index_leads_to
                a_function_decides_what_is_included_and_in_which_partition
                a_function_that_panics_holds_its_filter_and_no_event_is_skipped
                a_handler_processes_the_stream_of_a_filter
            }
            changing {
                an_unchanged_definition_can_be_put_again
                before_the_first_event_a_definition_may_change_in_any_way
                a_type_that_occurs_cannot_be_added_or_removed
                a_type_that_does_not_occur_can_be_added_and_removed
                a_condition_may_change_as_long_as_it_includes_the_same
                partitions_publicness_and_kind_cannot_change
                a_changed_partition_key_is_refused_at_the_first_entry
                a_deleted_filter_is_defined_again_only_as_its_stream_says
                a_filter_is_deleted_whole_although_the_caller_goes_away
                a_filter_is_run_although_the_caller_that_defined_it_goes_away
                a_changed_function_is_refused_at_the_first_event_that_differs
                an_unchanged_remote_filter_is_registered_again_and_a_changed_one_refused
                what_another_software_defined_is_kept
                definitions_are_stored_in_the_layout
                what_is_unknown_or_invalid_is_refused
                filters_are_listed_page_by_page
                verdicts_of_an_earlier_definition_stop_the_filter_and_are_named
            }
            remote {
                a_client_evaluates_events_in_order_and_names_their_partitions
                a_client_of_a_public_filter_gets_no_event_that_is_not_public
                one_batch_is_in_flight_at_a_time_and_is_settled_in_order
                a_batch_whose_lease_ended_is_handed_out_again
                a_clock_that_jumps_skips_and_repeats_no_event
                a_failure_holds_the_filter_until_its_delay_has_passed
                what_never_succeeds_blocks_the_filter_until_it_is_put_again
                a_caller_who_goes_away_has_taken_nothing
                a_settlement_that_is_no_verdict_is_refused_whole
                a_partition_that_the_definition_determines_is_not_named
                a_filter_that_is_not_remote_hands_nothing_out
            }
            dying {
                a_filter_skips_and_repeats_no_event_whichever_write_its_process_dies_at
                a_client_evaluates_every_event_whichever_write_its_server_dies_at
            }
            restarting {
                a_filter_continues_where_it_was
                a_filter_pauses_while_its_store_takes_no_verdicts
                verdicts_that_were_answered_are_not_asked_for_again
                two_hosts_fill_a_stream_once
                a_definition_that_cannot_be_read_keeps_no_other_back
                a_definition_that_changes_while_events_come_keeps_the_stream_whole
            }
        }
    };
    (@cases $subject:expr; $($group:ident { $($case:ident)+ })+) => {
        $(mod $group {
            #[allow(unused_imports, reason = "the subject's expression may name items of the calling module")]
            use super::*;

            $(#[test]
            fn $case() {
                $crate::run($subject, $crate::filters::cases::$group::$case);
            })+
        })+
    };
}

/// Generates the cases of several processes on one store, for stores that processes share. Used like [`filters!`].
#[macro_export]
macro_rules! filters_of_processes {
    ($subject:expr) => {
        $crate::filters! { @cases $subject;
            processes {
                one_process_at_a_time_evaluates_and_another_takes_over_when_it_dies
                a_filter_of_a_process_that_dies_is_taken_over_in_five_seconds
                a_filter_that_another_process_defines_is_run
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
        let list = std::fs::read_to_string(format!("{sources}/filters.rs")).expect("the list is readable");
        let mut cases = 0;
        for entry in std::fs::read_dir(format!("{sources}/filters/cases")).expect("the folder is readable") {
            let text = std::fs::read_to_string(entry.expect("an entry").path()).expect("a file is readable");
            let names = text.lines().filter_map(|line| line.strip_prefix("pub async fn ")?.split('(').next());
            for name in names {
                assert!(list.lines().any(|line| line.trim() == name), "{name} is not in the list of filters.rs");
                cases += 1;
            }
        }
        assert!(cases > 35, "only {cases} cases were found");
    }
}
