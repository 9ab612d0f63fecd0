//! The suite of the broker: topics, reading, and the offsets of groups.

pub mod cases;

/// Makes one test of every case of brokers, for the subject that the expression creates, as [`event_log!`](crate::event_log) does for the
/// log: `annals_conformance::broker!(MyStore::new());` The broker is the one of a host on the subject's store.
#[macro_export]
macro_rules! broker {
    ($subject:expr) => {
        $crate::broker! { @cases $subject;
            topics {
                a_registered_type_has_a_topic_with_the_numbers_of_its_category
                an_existing_topic_is_left_alone_until_its_differences_are_applied
                topics_are_listed_page_by_page
                what_is_unknown_is_refused_by_name
            }
            reading {
                a_committed_event_is_on_the_topic_of_its_type_once_and_in_order_per_key
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
