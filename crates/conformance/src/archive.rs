//! The suite of retention, holds and the archive.

pub mod cases;
pub(crate) mod memory_files;
mod mortal_files;
pub(crate) mod opened;

/// Generates one test for every case of the archive, with the subject that the expression creates, as [`event_log!`](crate::event_log)
/// does for the log: `annals_conformance::archive!(MyStore::new());`
#[macro_export]
macro_rules! archive {
    ($subject:expr) => {
        $crate::archive! { @cases $subject;
            retaining {
                without_an_archive_the_expiry_date_is_written_with_the_event
                with_an_archive_the_expiry_date_is_written_with_the_copy_and_not_before
                a_changed_retention_applies_to_existing_events
                a_rule_of_a_type_comes_before_that_of_its_category
                a_rule_of_a_category_applies_to_the_types_that_are_registered_in_it
                a_dry_run_counts_and_changes_nothing
                a_rebuild_brings_archived_events_back_and_archives_none_twice
                a_clock_that_jumps_archives_no_event_twice_and_loses_none
                a_document_of_other_software_is_archived_as_it_is_and_breaks_nothing
                rules_are_listed_and_removed
                a_removed_rule_or_hold_leaves_its_reason
            }
            holding {
                a_hold_keeps_events_from_expiring_being_archived_and_being_deleted
                a_hold_takes_expiry_dates_and_its_end_gives_them_back
                events_that_come_later_are_held_as_well
                a_hold_that_is_set_while_events_are_deleted_protects_what_is_left
                a_hold_that_is_set_while_events_are_archived_protects_what_it_selects
                a_held_document_of_other_software_keeps_its_own_expiry_date
                a_hold_is_in_force_when_it_has_taken_the_dates_of_many_documents
                a_document_that_changes_meanwhile_keeps_the_change_when_its_expiry_date_is_set
                a_hold_selects_something_in_particular
                a_view_with_a_hold_is_not_switched_off
                a_hold_that_is_one_too_many_is_refused_and_archiving_goes_on
            }
            removing {
                a_deleted_event_is_in_the_archive_with_every_field
                an_unknown_event_is_not_deleted_and_none_is_deleted_twice
                a_restored_event_is_in_the_view_again_and_in_the_archive_no_more
                an_event_of_a_type_that_is_off_stays_in_the_archive
                a_deleted_event_stays_deleted_when_the_view_is_rebuilt
                a_deleted_event_that_is_committed_again_is_neither_shown_nor_archived_again
                a_replay_passes_over_an_event_that_was_deleted_before_it_came
                the_archive_is_read_by_page_and_filter
                the_total_of_the_archive_is_counted_as_far_as_it_is_asked_for
            }
            filing {
                due_events_become_files_by_type_and_day
                an_event_of_a_file_is_restored_from_it
                a_folder_that_cannot_be_written_keeps_events_and_is_told
                a_rebuild_puts_no_event_into_a_second_file
                a_file_that_is_not_stored_whole_keeps_its_events
                a_damaged_file_restores_nothing
                a_file_that_cannot_be_renamed_keeps_further_events_in_the_view
                a_store_deletes_no_file_of_another_store
                a_recorded_file_is_placed_when_no_rule_archives_into_files_any_more
                after_an_outage_the_archive_is_written_at_the_next_look
                files_need_a_folder
            }
            dying {
                an_event_is_in_the_archive_whichever_write_of_a_copy_its_process_dies_at
                an_event_is_in_one_file_of_a_folder_whichever_write_its_process_dies_at
                an_event_is_in_one_object_of_a_bucket_whichever_write_its_process_dies_at
                an_event_is_in_one_place_whichever_write_of_a_deletion_its_process_dies_at
            }
        }
    };
    (@cases $subject:expr; $($group:ident { $($case:ident)+ })+) => {
        $(mod $group {
            #[allow(unused_imports, reason = "the subject's expression may name items of the calling module")]
            use super::*;

            $(#[test]
            fn $case() {
                $crate::run($subject, $crate::archive::cases::$group::$case);
            })+
        })+
    };
}
