//! The suite of the event horizon, which the task host runs on a store's public streams and receiving scopes. Tenant
//! [`OTHER_TENANT`](crate::OTHER_TENANT) is the producer, and the default tenant the consumer.

pub mod cases;
mod wire;
mod words;

/// Generates one test for every case of the event horizon, with the subject that the expression creates, as
/// [`event_log!`](crate::event_log) does for the log: `annals_conformance::horizon!(MyStore::new());` The subject's store declares the
/// scope [`SCOPE`](crate::receiving::SCOPE).
#[macro_export]
macro_rules! horizon {
    ($subject:expr) => {
        $crate::horizon! { @cases $subject;
            consents {
                without_a_consent_nothing_is_received_until_there_is_one
                a_revoked_consent_stops_the_flow_and_a_new_one_continues_it
                a_revoked_consent_ends_a_request_that_waits
                a_revoked_consent_ends_a_request_that_waits_although_the_caller_goes_away
                a_consent_is_for_one_consumer_one_stream_and_one_partition
                the_first_of_several_consents_is_sent_with_the_events
                a_stream_that_is_not_public_is_refused
                consents_are_given_changed_listed_and_revoked
                a_consent_that_cannot_work_is_refused
            }
            dying {
                each_event_is_received_once_whichever_write_the_consumer_dies_at
                each_event_is_received_once_whichever_write_the_producer_dies_at
            }
            network {
                each_event_is_received_once_whatever_the_network_does
            }
            offering {
                a_page_has_at_most_as_many_events_as_the_consumer_has_credits
                a_request_without_credits_learns_who_the_producer_is
                a_request_waits_for_the_first_event_and_ends_without_one
                an_event_that_is_not_public_is_never_sent
                what_belongs_to_the_commit_stays_with_the_producer
            }
            receiving {
                events_are_received_once_with_what_came_with_them
                one_partition_is_received_and_its_positions_have_holes
                a_subscription_continues_where_it_was
                a_subscription_pauses_while_its_store_receives_nothing
                two_subscriptions_of_the_same_receive_each_event_once
                two_hosts_receive_each_event_once
                a_deleted_subscription_receives_nothing_and_continues_when_it_is_defined_again
                a_scope_receives_from_several_producers
                a_clock_that_jumps_loses_and_repeats_no_event
                handlers_process_the_log_of_the_scope
                a_handler_gets_a_received_event_as_the_log_of_its_scope_shows_it
                the_lag_of_a_handler_is_measured_against_the_log_of_its_scope
                the_states_of_a_scope_are_shown_in_the_layout_of_the_dolittle_runtime
                filters_and_handlers_process_the_log_of_the_scope
                a_wait_for_a_handler_of_another_scope_is_refused
                a_wait_is_for_the_stream_and_the_log_of_its_scope_only
            }
            subscribing {
                the_state_shows_position_head_and_lag
                a_subscription_that_fails_is_attempted_again_later_each_time
                putting_a_subscription_again_attempts_it_at_once
                a_subscription_that_is_put_again_while_it_receives_goes_on
                a_new_subscription_receives_although_the_caller_goes_away
                a_subscription_is_deleted_whole_although_the_caller_goes_away
                a_credential_is_never_shown
                a_subscription_that_cannot_work_is_refused
                subscriptions_are_listed_page_by_page
                acts_are_recorded_with_their_reason
            }
        }
    };
    (@cases $subject:expr; $($group:ident { $($case:ident)+ })+) => {
        $(mod $group {
            #[allow(unused_imports, reason = "the subject's expression may name items of the calling module")]
            use super::*;

            $(#[test]
            fn $case() {
                $crate::run($subject, $crate::horizon::cases::$group::$case);
            })+
        })+
    };
}

/// Generates the cases of several processes on one store, for stores that processes share. Used like [`horizon!`].
#[macro_export]
macro_rules! horizon_of_processes {
    ($subject:expr) => {
        $crate::horizon! { @cases $subject;
            processes {
                one_process_at_a_time_receives_and_another_takes_over_when_it_dies
                a_subscription_that_another_process_defines_is_run
                a_consent_that_another_process_revokes_ends_a_request_that_waits
            }
        }
    };
}

#[cfg(test)]
mod tests {
    /// A case that is written but not listed would never run.
    #[test]
    fn every_case_is_listed() {
        let sources = concat!(env!("CARGO_MANIFEST_DIR"), "/src");
        let list = std::fs::read_to_string(format!("{sources}/horizon.rs")).expect("the list is readable");
        let mut cases = 0;
        for entry in std::fs::read_dir(format!("{sources}/horizon/cases")).expect("the folder is readable") {
            let text = std::fs::read_to_string(entry.expect("an entry").path()).expect("a file is readable");
            let names = text.lines().filter_map(|line| line.strip_prefix("pub async fn ")?.split('(').next());
            for name in names {
                assert!(list.lines().any(|line| line.trim() == name), "{name} is not in the list of horizon.rs");
                cases += 1;
            }
        }
        assert!(cases > 30, "only {cases} cases were found");
    }
}
