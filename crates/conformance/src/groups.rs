//! The suite of consumer groups.

pub mod cases;

/// Generates one test for every case of groups, with the subject that the expression creates, as [`event_log!`](crate::event_log) does
/// for the log: `annals_conformance::groups!(MyStore::new());`
///
/// `annals_conformance::groups!(copies: MyBroker::new());` has the cases that also hold if the host publishes to a broker that holds
/// copies. The subject names it by [`Subject::broker`](crate::Subject::broker). Groups follow the log there too. The other cases have
/// consumers in Rust, which join their groups on such a broker, and topics without a prefix.
#[macro_export]
macro_rules! groups {
    (copies: $subject:expr) => {
        $crate::groups! { @anywhere $subject; }
    };
    (@anywhere $subject:expr; $($more:tt)*) => {
        $crate::groups! { @cases $subject;
            guarding {
                of_fifty_racing_callers_one_gets_the_message
                what_was_processed_is_a_duplicate_until_the_time_is_over
                two_commits_of_one_event_id_are_one_message
                an_event_that_failed_runs_again
                a_dead_letter_of_a_guarded_group_runs_again
                when_a_lease_ends_exactly_one_other_gets_the_message
                a_deleted_group_remembers_nothing
            }
            $($more)*
        }
    };
    ($subject:expr) => {
        $crate::groups! { @anywhere $subject;
            consuming {
                every_group_gets_each_message_of_its_topics_once
                a_group_that_is_down_lags_in_its_own_topics_and_others_advance
                messages_of_a_key_come_one_after_the_other_and_keys_side_by_side
                a_group_starts_with_the_earliest_message_unless_it_says_latest
                what_is_done_does_not_come_again_after_a_restart_and_the_rest_does
                a_failing_key_is_retried_and_holds_up_no_other
                a_consumer_in_rust_gets_typed_events
                data_that_is_no_value_of_its_type_waits_for_an_operator_and_the_others_go_on
            }
            publishing {
                an_event_that_is_published_twice_is_on_its_topic_once
                a_producer_that_waits_answers_once_the_event_is_on_its_topic
            }
            defining {
                a_definition_is_kept_and_one_that_changes_the_topics_is_refused
                what_is_unknown_is_refused_by_name
                groups_and_handlers_of_one_name_are_different
                a_deleted_group_forgets_where_it_was
            }
        }
    };
    (@cases $subject:expr; $($group:ident { $($case:ident)+ })+) => {
        $(mod $group {
            #[allow(unused_imports, reason = "the subject's expression may name items of the calling module")]
            use super::*;

            $(#[test]
            fn $case() {
                $crate::run($subject, $crate::groups::cases::$group::$case);
            })+
        })+
    };
}
