//! The suite of the browse view.

pub mod cases;
pub(crate) mod opened;

/// Generates one test for every case of the browse view, with the subject that the expression creates, as
/// [`event_log!`](crate::event_log) does for the log: `annals_conformance::browse!(MyStore::new());`
#[macro_export]
macro_rules! browse {
    ($subject:expr) => {
        $crate::browse! { @cases $subject;
            viewing {
                an_event_becomes_one_flat_document_without_nulls
                of_events_with_one_id_the_first_is_shown
                all_indexes_have_their_names_and_options
                a_rebuild_makes_the_same_documents_in_another_collection
                a_view_that_is_off_is_refused_and_comes_back_whole
                events_of_a_type_that_is_off_are_not_in_the_view
                a_damaged_document_breaks_no_page
            }
            finding {
                pages_by_cursor_and_by_skip_have_the_true_total
                a_total_is_counted_as_far_as_it_is_asked_for
                a_cursor_is_stable_while_events_come
                events_of_one_time_stand_in_the_order_of_the_log
                times_with_microseconds_keep_their_milliseconds_and_their_order
                a_filter_means_what_its_query_of_mongodb_means
                every_filter_uses_an_index
                an_execution_is_found_by_its_id_and_by_its_aggregate
                a_search_finds_whole_words
                bounds_of_pages_are_checked
                statistics_count_types_users_hours_and_failures
                an_event_is_shown_with_others_of_its_aggregate
                an_event_without_an_aggregate_has_no_related_ones
            }
        }
    };
    (@cases $subject:expr; $($group:ident { $($case:ident)+ })+) => {
        $(mod $group {
            #[allow(unused_imports, reason = "the subject's expression may name items of the calling module")]
            use super::*;

            $(#[test]
            fn $case() {
                $crate::run($subject, $crate::browse::cases::$group::$case);
            })+
        })+
    };
}
