//! The suite of the broker: topics, reading, and the offsets of groups.

pub mod cases;

/// Generates one test for every case of brokers, with the subject that the expression creates, as [`event_log!`](crate::event_log) does
/// for the log: `annals_conformance::broker!(MyStore::new());` The broker is that of a host on the subject's store.
///
/// `annals_conformance::broker!(copies: MyBroker::new());` is the suite of a broker that holds copies. The subject names it by
/// [`Subject::broker`](crate::Subject::broker), and the host publishes to it. The cases of `both` are the same on every broker.
#[macro_export]
macro_rules! broker {
    (copies: $subject:expr) => {
        $crate::broker! { @both $subject;
            members {
                an_event_is_upcast_for_a_member_and_one_that_is_no_value_of_its_type_holds_up_no_other_key
            }
        }
    };
    (@both $subject:expr; $($more:tt)*) => {
        $crate::broker! { @cases $subject;
            topics {
                a_registered_type_has_a_topic_with_the_numbers_of_its_category
                an_existing_topic_is_left_alone_until_its_differences_are_applied
                topics_are_listed_page_by_page
                what_is_unknown_is_refused_by_name
            }
            reading {
                a_committed_event_is_on_the_topic_of_its_type_once_and_in_order_per_key
            }
            consuming {
                every_consumer_group_processes_each_message_once_and_in_order_per_key
                a_failing_key_holds_up_no_other_and_is_processed_when_it_succeeds
                what_fails_too_often_is_a_dead_letter_of_that_group_and_is_processed_when_a_person_retries_it
            }
            $($more)*
        }
    };
    ($subject:expr) => {
        $crate::broker! { @both $subject;
            views {
                messages_older_than_the_retention_are_not_shown
                nothing_is_published_where_topics_are_views_of_the_log
            }
        }
    };
    (@cases $subject:expr; $($group:ident { $($case:ident)+ })+) => {
        $(mod $group {
            #[allow(unused_imports, reason = "the subject's expression may name items of the calling module")]
            use super::*;

            $(#[test]
            fn $case() {
                $crate::run($subject, $crate::broker::cases::$group::$case);
            })+
        })+
    };
}
