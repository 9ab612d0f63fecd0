//! The suite of the port [`Records`](annals_core::Records), and its meaning in memory.

pub mod cases;
mod groups;
mod model;
mod operations;
#[cfg(test)]
pub(crate) mod reference;
mod sample;

pub use model::{RecordsModel, same_refusal};
pub use operations::{RecordOperation, RecordOperations};

/// Generates one test for every case of records, with the subject that the expression creates, as [`event_log!`](crate::event_log) does
/// for the log: `annals_conformance::records!(MyStore::new());`
#[macro_export]
macro_rules! records {
    ($subject:expr) => {
        $crate::records! { @cases $subject;
            batches {
                a_batch_happens_whole_or_not_at_all
                each_change_sees_those_before_it
                a_reader_never_sees_half_a_batch
                a_refused_batch_says_which_change
                a_refused_batch_names_the_first_refused_change
                a_batch_of_nothing_does_nothing
                a_batch_whose_caller_went_away_is_whole_or_absent
                a_check_decides_over_the_batch_and_changes_nothing
                a_check_sees_the_changes_before_it
                batches_that_check_what_the_other_changes_never_both_happen
            }
            changing {
                an_inserted_record_is_read_back
                a_second_insert_of_an_id_is_refused
                equal_numbers_of_different_types_are_one_id
                a_replacement_wants_the_revision_it_names
                of_many_replacements_of_a_revision_one_wins
                a_replacement_wants_what_its_condition_says
                a_put_inserts_or_replaces
                a_deletion_wants_what_it_expects
                a_record_that_is_inserted_again_has_another_revision
                documents_that_cannot_be_records_are_refused
                a_collection_that_is_not_declared_is_refused
                values_of_a_type_are_stored_under_its_names
                a_type_has_collections_of_names_that_are_chosen_at_run_time
            }
            fields {
                named_fields_change_and_the_others_stay
                fields_of_a_record_that_may_be_absent_are_inserted
                a_change_of_fields_keeps_indexes_and_sees_what_came_before
                paths_that_cannot_be_set_are_refused
            }
            durable {
                everything_is_there_after_reopening
                a_closed_store_refuses_and_wakes_who_waits
                tenants_do_not_see_each_other
            }
            expiring {
                what_has_expired_is_deleted_and_noted
            }
            feed {
                changes_come_in_order_without_gap_or_repeat
                a_collection_has_a_feed_from_when_it_asks_for_one
                changes_are_read_page_by_page
                a_refused_batch_leaves_no_change
                a_follower_gets_what_is_there_then_what_comes
                a_follower_misses_nothing_while_many_write
                a_number_of_the_future_is_refused
            }
            finding {
                every_operator_finds_what_it_means
                texts_elements_and_filter_documents_are_found
                windows_of_time_move_with_the_clock
                a_query_is_explained
                a_sort_orders_all_types
                a_sort_by_an_array_takes_its_lowest_or_highest_element
                equal_records_stand_in_the_order_of_their_ids
                pages_cover_every_record_once
                a_page_goes_on_where_the_last_one_ended_although_records_came_and_went
                a_page_of_large_records_ends_early
                a_projection_leaves_out_the_rest
                a_count_is_the_number_of_what_is_found
                a_cursor_of_another_query_is_refused
                a_query_that_breaks_a_rule_is_refused
                records_with_two_arrays_cannot_be_sorted_by_both
            }
            grouping {
                groups_have_their_counts_and_figures
                groups_are_of_equal_values_in_order
                dates_are_grouped_by_hour_and_by_day
                pages_cover_every_group_once
                groups_that_break_a_rule_are_refused
            }
            indexes {
                an_index_changes_no_answer
                a_unique_index_refuses_a_second_record_and_says_which
                elements_of_arrays_are_unique_too
                a_missing_field_counts_as_null_unless_the_index_is_sparse
                a_partial_index_is_unique_among_those_it_admits
                a_key_that_was_given_up_can_be_taken
                of_many_who_want_a_unique_key_one_gets_it
                a_new_index_holds_what_was_there
                a_new_unique_index_is_refused_when_records_break_it
                an_index_that_is_something_else_is_refused
                declaring_again_does_nothing
                a_document_with_two_arrays_does_not_fit_one_index
                declarations_that_break_a_rule_are_refused
                declared_collections_are_listed
            }
            texts {
                words_and_phrases_are_found
                a_search_is_one_condition_among_others
                a_text_index_follows_its_records
                a_search_without_a_text_index_is_refused
                a_collection_has_one_text_index
                a_record_of_too_many_words_is_refused
            }
        }
    };
    (@cases $subject:expr; $($group:ident { $($case:ident)+ })+) => {
        $(mod $group {
            #[allow(unused_imports, reason = "the subject's expression may name items of the calling module")]
            use super::*;

            $(#[test]
            fn $case() {
                $crate::run($subject, $crate::records::cases::$group::$case);
            })+
        })+
    };
}

#[cfg(test)]
mod tests {
    mod reference_records {
        use crate::reference::ReferenceSubject;
        crate::records!(ReferenceSubject::new());
    }

    /// A case that is written but not listed would never run.
    #[test]
    fn every_case_is_listed() {
        let sources = concat!(env!("CARGO_MANIFEST_DIR"), "/src");
        let list = std::fs::read_to_string(format!("{sources}/records.rs")).expect("the list is readable");
        let mut cases = 0;
        for entry in std::fs::read_dir(format!("{sources}/records/cases")).expect("the folder is readable") {
            let text = std::fs::read_to_string(entry.expect("an entry").path()).expect("a file is readable");
            let names = text.lines().filter_map(|line| line.strip_prefix("pub async fn ")?.split('(').next());
            for name in names {
                assert!(list.lines().any(|line| line.trim() == name), "{name} is not in the list of records.rs");
                cases += 1;
            }
        }
        assert!(cases > 40, "only {cases} cases were found");
    }
}
