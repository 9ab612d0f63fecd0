//! The suite of work queues.

pub mod cases;
mod opened;

use std::sync::Arc;

use annals_core::queue::{QUEUE_PAYLOADS, QueueBackend, item_key};
use annals_core::{Condition, DEFAULT_TENANT, Expected, RecordChange, Store};
use async_trait::async_trait;

/// The storage of the items of queues under test.
#[async_trait]
pub trait Holding: Send + Sync {
    /// Returns the backend for the host; `None` for the store's own records.
    fn backend(&self, clock: &Arc<crate::ManualClock>) -> Option<Arc<dyn QueueBackend>>;

    /// Removes the payload of an item of the default tenant, and keeps its entry.
    async fn lose_payload(&self, store: &dyn Store, queue: &str, id: &str);
}

/// Items that are records of the store.
#[derive(Debug, Clone, Copy)]
pub struct InRecords;

#[async_trait]
impl Holding for InRecords {
    fn backend(&self, _: &Arc<crate::ManualClock>) -> Option<Arc<dyn QueueBackend>> {
        None
    }

    async fn lose_payload(&self, store: &dyn Store, queue: &str, id: &str) {
        let records = store.records(DEFAULT_TENANT).expect("declared");
        let any = Expected::AbsentOr(Condition::All);
        let gone = RecordChange::delete_if(QUEUE_PAYLOADS, item_key(queue, id), any);
        records.write(vec![gone]).await.expect("deleted");
    }
}

/// Generates one test for every case of work queues, with the subject that the expression creates, as [`event_log!`](crate::event_log)
/// does for the log: `annals_conformance::queue!(MyStore::new());`. A second expression is the storage of the items, if that is not the
/// store.
#[macro_export]
macro_rules! queue {
    ($subject:expr) => {
        $crate::queue!($subject, $crate::queue::InRecords);
    };
    ($subject:expr, $holding:expr) => {
        $crate::queue! { @cases $subject, $holding;
            ordering {
                without_fair_shares_and_ageing_priorities_are_strict_and_each_is_first_in_first_out
                one_user_with_a_thousand_items_does_not_hold_up_the_others
                an_item_that_has_waited_is_served_beside_higher_priorities
                a_raised_priority_keeps_the_age
                random_operations_have_the_same_outcome_as_in_the_model
            }
            capping {
                fifty_racing_callers_in_two_processes_never_exceed_the_cap
                nothing_is_taken_at_the_cap_and_the_next_item_after_a_release
                a_changed_cap_is_followed_at_once
            }
            leasing {
                a_lease_that_ends_while_its_owner_works_frees_the_slot_and_the_owner_is_told
                a_renewed_lease_does_not_end
                a_late_worker_is_done_unless_somebody_else_has_begun
                what_is_unknown_is_released_and_done_without_effect
                a_released_item_comes_back_with_its_age
                a_clock_that_jumps_gives_no_item_to_two_workers_and_loses_none
            }
            entries {
                an_id_has_one_entry_while_it_is_pending_or_active
                a_lost_payload_is_reported_and_the_next_item_is_served
                a_user_with_too_many_items_is_refused_with_the_limit
                a_cancelled_item_frees_its_slot_and_its_id
                an_item_that_an_operator_releases_is_pending_and_the_reason_is_recorded
                items_are_listed_in_pages
                payloads_come_back_as_they_were
            }
            defining {
                queues_are_listed_with_what_they_hold
                what_is_unknown_or_invalid_is_refused_by_name
                a_clock_that_is_set_back_keeps_no_old_definition
                a_deleted_queue_forgets_its_items
                tenants_have_queues_of_their_own
            }
            processes {
                two_processes_share_a_queue
                a_queue_is_as_it_was_after_a_restart
            }
        }
    };
    (@cases $subject:expr, $holding:expr; $($group:ident { $($case:ident)+ })+) => {
        $(mod $group {
            #[allow(unused_imports, reason = "the subject's expression may name items of the calling module")]
            use super::*;

            $(#[test]
            fn $case() {
                let holding = $holding;
                $crate::run($subject, async |subject: &dyn $crate::Subject| {
                    $crate::queue::cases::$group::$case(subject, &holding).await;
                });
            })+
        })+
    };
}
