//! The suite of the port [`Snapshots`](annals_core::Snapshots).

pub mod cases;

/// Generates one test for every case of snapshots, with the subject that the expression creates, as [`event_log!`](crate::event_log) does
/// for the log: `annals_conformance::snapshots!(MyStore::new());`
#[macro_export]
macro_rules! snapshots {
    ($subject:expr) => {
        $crate::snapshots! { @cases $subject;
            a_saved_snapshot_is_loaded_as_it_was
            an_aggregate_without_a_snapshot_has_none_and_version_0
            a_snapshot_of_version_0_is_saved
            a_later_version_takes_the_place_and_an_earlier_one_does_not
            an_equal_version_takes_the_place_whole
            of_many_saved_at_once_the_highest_stays
            whatever_is_saved_in_whatever_order_the_highest_stays
            a_deleted_snapshot_is_gone
            what_has_no_version_that_can_be_read_is_replaced
            snapshots_are_documents_in_the_layout_with_its_indexes
            indexes_of_one_s_own_are_declared_beside_the_layout_s
            whoever_waits_for_a_version_is_told_when_it_is_reached
            a_name_that_leaves_no_room_is_refused
            snapshots_are_there_after_reopening_and_tenants_do_not_see_each_other
        }
    };
    (@cases $subject:expr; $($case:ident)+) => {
        $(#[test]
        fn $case() {
            $crate::run($subject, $crate::snapshots::cases::$case);
        })+
    };
}

#[cfg(test)]
mod tests {
    mod reference_snapshots {
        use crate::reference::ReferenceSubject;
        crate::snapshots!(ReferenceSubject::new());
    }

    /// A case that is written but not listed would never run.
    #[test]
    fn every_case_is_listed() {
        let list = include_str!("snapshots.rs");
        let cases = include_str!("snapshots/cases.rs");
        let names = cases.lines().filter_map(|line| line.strip_prefix("pub async fn ")?.split('(').next());
        let missing: Vec<_> = names.filter(|name| !list.lines().any(|line| line.trim() == *name)).collect();
        assert_eq!(missing, [""; 0]);
    }
}
