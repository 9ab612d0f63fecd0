//! The suite of the port [`Queries`](annals_core::Queries), and of the services over it.

pub mod cases;

/// Generates one test for every case of queries, with the subject that the expression creates, as [`event_log!`](crate::event_log) does
/// for the log: `annals_conformance::queries!(MyStore::new());`
#[macro_export]
macro_rules! queries {
    ($subject:expr) => {
        $crate::queries! { @cases $subject;
            the_one_snapshot_is_answered_in_every_form
            deleted_aggregates_are_left_out_unless_the_condition_says_which_are_meant
            ids_of_snapshots_have_their_names_wherever_a_query_has_one
            snapshots_have_the_fields_and_the_order_that_are_asked_for
            states_are_found_by_what_they_say
            windows_of_time_are_those_of_the_store_s_clock
            a_state_of_another_type_is_said_and_not_left_out
            the_one_commit_is_answered_in_every_form
            commits_are_documents_in_the_layout
            commits_are_found_by_all_that_they_say
            ids_of_commits_have_their_names_and_those_of_events_stay
            commits_of_deleted_aggregates_are_found
            what_a_backend_keeps_for_itself_in_a_commit_cannot_be_asked_for
            a_commit_is_found_as_soon_as_it_was_acknowledged
            whatever_is_asked_of_commits_is_what_judging_all_of_them_finds
            pages_have_their_part_and_the_total
            a_list_without_a_limit_has_all
            where_nothing_is_nothing_is_found
            what_cannot_be_asked_is_refused_with_its_place
            an_answer_is_refused_that_would_be_too_large
            it_is_told_how_documents_are_found
            tenants_do_not_find_each_other_s_documents
        }
    };
    (@cases $subject:expr; $($case:ident)+) => {
        $(#[test]
        fn $case() {
            $crate::run($subject, $crate::queries::cases::$case);
        })+
    };
}

#[cfg(test)]
mod tests {
    mod reference_queries {
        use crate::reference::ReferenceSubject;
        crate::queries!(ReferenceSubject::new());
    }

    /// A case that is written but not listed would never run.
    #[test]
    fn every_case_is_listed() {
        let list = include_str!("queries.rs");
        let files = [
            include_str!("queries/cases/snapshots.rs"),
            include_str!("queries/cases/commits.rs"),
            include_str!("queries/cases/alike.rs"),
        ];
        let lines = files.iter().flat_map(|cases| cases.lines());
        let names = lines.filter_map(|line| line.strip_prefix("pub async fn ")?.split('(').next());
        let missing: Vec<_> = names.filter(|name| !list.lines().any(|line| line.trim() == *name)).collect();
        assert_eq!(missing, [""; 0]);
    }
}
