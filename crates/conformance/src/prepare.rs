//! The suite of the port [`PrepareKeys`](annals_core::PrepareKeys).

pub mod cases;

/// Generates one test for every case of prepare keys as a service, with the subject that the expression creates, as
/// [`event_log!`](crate::event_log) does for the log: `annals_conformance::prepare!(MyStore::new());`
///
/// If something other than the store removes expired keys, the subject's clock must be far ahead of the clock of that.
#[macro_export]
macro_rules! prepare {
    ($subject:expr) => {
        $crate::prepare! { @cases $subject;
            alone {
                a_key_is_prepared_once_and_again_after_its_rollback
                a_key_is_reprepared_from_the_value_that_it_has
                a_key_moves_to_another
                a_move_from_a_key_that_is_not_held_takes_nothing
                a_move_to_the_same_key_is_refused
                an_expired_key_is_prepared_anew
                a_rollback_with_another_value_keeps_the_key
                a_failing_action_gives_its_key_back
                a_move_to_a_held_key_changes_neither
                an_expired_key_can_be_looked_at
                an_expired_key_is_rolled_back_by_its_value_only
                at_its_very_time_a_key_is_neither_free_nor_rolled_back
                a_key_that_is_not_there_is_not_reprepared
                values_are_equal_as_bson_values_are
                a_value_of_another_type_is_told
                what_breaks_a_rule_is_refused_with_its_path
            }
            together {
                of_many_racing_prepares_one_wins
                of_many_racing_changes_of_a_value_one_wins
                of_many_racing_moves_one_wins
                commits_and_the_service_hold_the_same_keys
                a_change_of_a_key_is_no_event
                names_and_tenants_have_keys_of_their_own
                keys_are_there_after_reopening
                held_keys_are_listed_page_by_page
                a_closed_store_changes_no_key
                random_changes_follow_who_holds_what
            }
        }
    };
    (@cases $subject:expr; $($group:ident { $($case:ident)+ })+) => {
        $(mod $group {
            #[allow(unused_imports, reason = "the subject's expression may name items of the calling module")]
            use super::*;

            $(#[test]
            fn $case() {
                $crate::run($subject, $crate::prepare::cases::$group::$case);
            })+
        })+
    };
}

#[cfg(test)]
mod tests {
    mod reference_keys {
        use crate::reference::ReferenceSubject;
        crate::prepare!(ReferenceSubject::new());
    }

    /// A case that is written but not listed would never run.
    #[test]
    fn every_case_is_listed() {
        let list = include_str!("prepare.rs");
        let cases = concat!(include_str!("prepare/cases/alone.rs"), include_str!("prepare/cases/together.rs"));
        let names = cases.lines().filter_map(|line| line.strip_prefix("pub async fn ")?.split('(').next());
        let missing: Vec<_> = names.filter(|name| !list.lines().any(|line| line.trim() == *name)).collect();
        assert_eq!(missing, [""; 0]);
    }
}
