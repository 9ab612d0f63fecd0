//! The suite of event types: the registry, and its effect on commits.

pub mod cases;

/// Generates one test for every case of event types, with the subject that the expression creates, as [`event_log!`](crate::event_log)
/// does for the log: `annals_conformance::types!(MyStore::new());`
#[macro_export]
macro_rules! types {
    ($subject:expr) => {
        $crate::types! { @cases $subject;
            registering {
                a_type_is_registered_and_known_after_a_restart
                types_are_listed_page_by_page
                a_generation_that_refuses_earlier_events_is_refused_and_names_what_breaks
                a_generation_never_changes
                what_is_no_schema_is_refused
            }
            committing {
                an_event_that_does_not_match_is_refused_with_its_path_and_nothing_is_stored
                a_transaction_with_an_event_that_does_not_match_is_refused_as_a_whole
                the_policy_of_a_type_decides_about_events_that_do_not_match
                a_generation_that_is_not_registered_is_refused
                no_schema_makes_endless_work_of_an_event
                unknown_types_are_refused_if_the_tenant_says_so
                a_tenant_has_types_of_its_own
            }
            consuming {
                an_older_event_reaches_consumers_in_the_newest_generation
                an_event_that_is_no_value_of_its_type_becomes_a_letter_and_its_key_goes_on
                an_unknown_type_is_quarantined_until_it_is_registered
                an_upcaster_of_the_first_generation_is_refused
                statements_66_and_68_letters_are_retried_by_the_policy_of_their_types_category
            }
        }
    };
    (@cases $subject:expr; $($group:ident { $($case:ident)+ })+) => {
        $(mod $group {
            #[allow(unused_imports, reason = "the subject's expression may name items of the calling module")]
            use super::*;

            $(#[test]
            fn $case() {
                $crate::run($subject, $crate::types::cases::$group::$case);
            })+
        })+
    };
}

/// Generates the cases of several processes on one store, for stores that processes share. Used like [`types!`].
#[macro_export]
macro_rules! types_of_processes {
    ($subject:expr) => {
        $crate::types! { @cases $subject;
            processes {
                what_another_process_registers_holds_within_a_second
            }
        }
    };
}
