//! Whether any delivery can wait for one in flight, so that most deliveries end without a look-up.
//!
//! Only the owner's attempts make deliveries wait. So a delivery that waits for one in flight has one of two origins. Either it was open
//! when that one was claimed, which the claim's look-up has shown, or this process has set it to wait since then.
//!
//! INVARIANT: the caller holds the lock of the entity's stripe.

use std::collections::HashMap;
use std::sync::Mutex;

use annals_core::partners::DeliveryRecord;

use crate::host::locked;

/// The entities with a delivery in flight, by lane and entity: at most as many as there are attempts.
#[derive(Default)]
pub(super) struct Queues(Mutex<HashMap<(String, String), InFlight>>);

/// The delivery that was last claimed.
struct InFlight {
    key: String,
    /// Whether another delivery of the entity can wait for it.
    followed: bool,
}

impl Queues {
    /// Records that a delivery was claimed, and whether other deliveries of its entity can be open.
    pub fn claimed(&self, delivery: &DeliveryRecord, followed: bool) {
        locked(&self.0).insert(entity(delivery), InFlight { key: delivery.key.clone(), followed });
    }

    /// Records that a delivery is about to wait for others of its entity.
    pub fn waits(&self, delivery: &DeliveryRecord) {
        if let Some(first) = locked(&self.0).get_mut(&entity(delivery)) {
            first.followed = true;
        }
    }

    /// Removes a delivery whose attempt is over. Returns whether another one can wait for it; true if that is unknown.
    pub fn ended(&self, delivery: &DeliveryRecord) -> bool {
        let (mut all, entity) = (locked(&self.0), entity(delivery));
        if all.get(&entity).is_none_or(|known| known.key != delivery.key) {
            return true;
        }
        all.remove(&entity).is_none_or(|known| known.followed)
    }
}

fn entity(delivery: &DeliveryRecord) -> (String, String) {
    (delivery.lane.clone(), delivery.entity.clone())
}

#[cfg(test)]
mod tests {
    use annals_core::Timestamp;
    use annals_core::bson::oid::ObjectId;
    use annals_core::partners::EventDirection;

    use super::*;

    fn delivery(key: &str, entity: &str) -> DeliveryRecord {
        let (id, now) = (ObjectId::from_bytes([0; 12]), Timestamp::from_millis(0));
        let new = DeliveryRecord::new(key.to_owned(), id, EventDirection::Out, "p", now);
        DeliveryRecord { entity: entity.to_owned(), ..new }
    }

    #[test]
    fn only_what_was_open_at_the_claim_or_was_put_behind_since_is_looked_up() {
        let queues = Queues::default();
        let (first, other, next) = (delivery("1", "a"), delivery("2", "b"), delivery("3", "a"));
        queues.claimed(&first, false);
        queues.claimed(&other, false);
        queues.waits(&next);
        assert_eq!([queues.ended(&first), queues.ended(&other)], [true, false]);
        queues.claimed(&next, false);
        assert!(!queues.ended(&next), "what waited behind another one is forgotten with that one");
        queues.claimed(&first, true);
        assert!(queues.ended(&first));
    }

    #[test]
    fn a_delivery_of_which_nothing_is_known_may_be_followed() {
        let queues = Queues::default();
        let (one, resent) = (delivery("1", "a"), delivery("2", "a"));
        assert!(queues.ended(&one), "its end was not stored at the first try");
        queues.claimed(&one, false);
        queues.claimed(&resent, false);
        assert!(queues.ended(&one), "another one was claimed after it");
        assert!(!queues.ended(&resent));
    }
}
