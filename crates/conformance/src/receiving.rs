//! The suite of the port [`Receiving`](annals_core::Receiving).

pub mod cases;

/// The scope that the cases receive into. The subject's store declares it.
pub const SCOPE: &str = "inbox";

/// Generates one test for every case of receiving, with the subject that the expression creates, as [`event_log!`](crate::event_log) does
/// for the log: `annals_conformance::receiving!(MyStore::new());` The subject's store declares the scope [`SCOPE`].
#[macro_export]
macro_rules! receiving {
    ($subject:expr) => {
        $crate::receiving! { @cases $subject;
            received_events_are_read_with_what_came_with_them
            a_subscription_stands_behind_its_last_event
            a_repeated_batch_adds_nothing
            a_stream_of_the_scope_has_each_event_once
            a_gap_and_an_overlap_are_refused_with_what_is_stored
            a_repeat_with_other_events_is_refused
            a_number_that_does_not_follow_is_refused
            subscriptions_do_not_mind_one_another
            of_many_racing_batches_one_is_received
            racing_batches_of_several_subscriptions_leave_no_gap
            a_follower_sees_what_is_received
            a_batch_may_be_as_large_as_its_limits
            a_batch_that_breaks_a_rule_is_refused_with_its_path
            the_default_scope_receives_nothing
            a_closed_store_receives_nothing
        }
    };
    (@cases $subject:expr; $($case:ident)+) => {
        $(#[test]
        fn $case() {
            $crate::run($subject, $crate::receiving::cases::$case);
        })+
    };
}

#[cfg(test)]
mod tests {
    /// A case that is written but not listed would never run.
    #[test]
    fn every_case_is_listed() {
        let list = include_str!("receiving.rs");
        let cases = include_str!("receiving/cases.rs");
        let names = cases.lines().filter_map(|line| line.strip_prefix("pub async fn ")?.split('(').next());
        let missing: Vec<_> = names.filter(|name| !list.lines().any(|line| line.trim() == *name)).collect();
        assert_eq!(missing, [""; 0]);
    }
}
