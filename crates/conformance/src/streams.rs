//! The suite of the port [`Streams`](annals_core::Streams), and its meaning in memory.

pub mod cases;
mod model;
#[cfg(test)]
pub(crate) mod reference;
mod sample;

pub use model::StreamsModel;

/// Generates one test for every case of streams, with the subject that the expression creates, as [`event_log!`](crate::event_log) does
/// for the log: `annals_conformance::streams!(MyStore::new());`
#[macro_export]
macro_rules! streams {
    ($subject:expr) => {
        $crate::streams! { @cases $subject;
            appending {
                an_append_answers_the_positions_it_gave
                progress_moves_when_nothing_is_included
                a_filter_may_begin_late
                an_append_holds_ten_thousand_entries
                verdicts_that_break_a_rule_are_refused_with_their_path
                verdicts_past_the_head_of_the_log_are_refused
                a_refused_append_leaves_nothing
                an_append_whose_caller_went_away_is_whole_or_absent
                streams_fill_side_by_side
            }
            durable {
                everything_is_there_after_reopening
                a_repeat_is_recognised_after_reopening
                a_closed_store_refuses_verdicts_and_wakes_who_waits
                appends_under_way_when_closing_are_stored_or_refused
            }
            following {
                a_follower_gets_what_is_there_then_what_comes
                a_follower_may_begin_before_the_stream_does
                a_follower_of_a_partition_gets_what_is_in_it
                a_follower_misses_nothing_while_a_filter_runs
                a_follower_that_is_cancelled_loses_nothing
                a_follower_past_the_head_waits_for_its_position
                all_who_wait_are_woken
                a_wait_is_for_this_stream_only
                a_follower_is_told_when_the_store_closes
            }
            once_per_event {
                a_repeat_adds_nothing_and_returns_the_first_outcome
                a_repeat_is_recognised_however_long_ago
                a_repeat_is_recognised_however_the_runs_were_cut
                what_was_judged_otherwise_is_refused
                what_was_judged_in_part_is_refused
                verdicts_that_skip_events_are_refused
                racing_repeats_are_appended_once
                filters_that_write_to_one_stream_do_not_interleave
            }
            positions {
                positions_begin_at_0_and_have_no_hole
                entries_keep_their_partitions
                each_stream_has_positions_of_its_own
                each_tenant_has_streams_of_its_own
                a_scope_that_does_not_exist_has_no_streams
                the_position_of_a_sequence_number_is_where_to_go_on
            }
            reading {
                a_stream_that_nobody_appended_to_is_empty
                events_come_with_their_entries
                events_of_a_stream_keep_the_types_of_their_data
                a_range_leaves_out_its_end
                past_the_end_is_the_head
                an_empty_page_is_the_end
                pages_cover_every_entry_once
                a_partition_is_read_page_by_page_in_order
                a_partition_is_not_the_beginning_of_another
                any_query_finds_what_filtering_by_hand_finds
                a_page_of_large_events_ends_early
                a_query_that_breaks_a_rule_is_refused
                a_list_goes_on_after_its_cursor
                a_list_is_ordered_by_bytes_and_keeps_its_limit
            }
        }
    };
    (@cases $subject:expr; $($group:ident { $($case:ident)+ })+) => {
        $(mod $group {
            #[allow(unused_imports, reason = "the subject's expression may name items of the calling module")]
            use super::*;

            $(#[test]
            fn $case() {
                $crate::run($subject, $crate::streams::cases::$group::$case);
            })+
        })+
    };
}

#[cfg(test)]
mod tests {
    /// A case that is written but not listed would never run.
    #[test]
    fn every_case_is_listed() {
        let sources = concat!(env!("CARGO_MANIFEST_DIR"), "/src");
        let list = std::fs::read_to_string(format!("{sources}/streams.rs")).expect("the list is readable");
        let mut cases = 0;
        for entry in std::fs::read_dir(format!("{sources}/streams/cases")).expect("the folder is readable") {
            let text = std::fs::read_to_string(entry.expect("an entry").path()).expect("a file is readable");
            let names = text.lines().filter_map(|line| line.strip_prefix("pub async fn ")?.split('(').next());
            for name in names {
                assert!(list.lines().any(|line| line.trim() == name), "{name} is not in the list of streams.rs");
                cases += 1;
            }
        }
        assert!(cases > 40, "only {cases} cases were found");
    }
}
