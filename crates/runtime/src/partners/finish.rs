//! Storing the outcome of an attempt, and releasing the next event of the entity.

use std::sync::Arc;
use std::time::Duration;

use annals_core::bson::Bson;
use annals_core::partners::{
    DELIVERIES, DeliveryRecord, Ending, EventStatus, Next, Outcome, PARTNER_EVENTS, PARTNERS, PartnerDefinition,
    after_attempt, epoch_millis,
};
use annals_core::{Condition, Expected, RecordChange, RecordError, StoreError, Timestamp};

use super::attempt::{Done, Made};
use super::date;
use super::known::Partner;
use super::owner::Work;

/// The number of attempts to store an outcome while the store fails.
const TRIES: usize = 10;
/// The pause between two of them.
const AGAIN: Duration = Duration::from_millis(500);
/// The most characters of a reason.
const REASON_MAX: usize = 500;

impl Work {
    /// Stores the outcome of an attempt. Returns what a lane learns about it.
    pub(super) async fn end_attempt(self: Arc<Self>, made: Made) -> Done {
        let Made { partner, delivery, outcome } = made;
        let (next, look) = self.finish_in_time(&partner, &delivery, &outcome).await;
        let later = match next {
            Some(Next::Retry(at)) => Some(at),
            _ => None,
        };
        Done { key: delivery.key, look, later }
    }

    /// Stores the outcome of an attempt, and retries while the store fails. Returns `None` if it was not stored; the delivery is then
    /// claimed again after its lease.
    async fn finish_in_time(
        &self,
        partner: &Partner,
        delivery: &DeliveryRecord,
        outcome: &Outcome,
    ) -> (Option<Next>, bool) {
        for _ in 0..TRIES {
            let finished = {
                let _order = self.stripe(&delivery.lane, &delivery.entity).lock().await;
                self.finish(partner, delivery, outcome).await
            };
            match finished {
                Ok((next, look)) => return (Some(next), look),
                // The partner's `archive` setting has changed since the batch was built.
                Err(RecordError::NotAsExpected { collection, .. }) if collection == PARTNERS => {}
                // Another process owns it.
                Err(RecordError::NotAsExpected { .. } | RecordError::Store(StoreError::Closed)) => break,
                Err(error) => {
                    tracing::warn!(key = delivery.key, %error, "could not store the outcome of an attempt; retrying");
                    self.partners.clock().sleep(AGAIN).await;
                }
            }
        }
        (None, true)
    }

    async fn finish(
        &self,
        partner: &Partner,
        delivery: &DeliveryRecord,
        outcome: &Outcome,
    ) -> Result<(Next, bool), RecordError> {
        let (now, followed) = (self.partners.now(), self.queues.ended(delivery));
        let next = after_attempt(delivery.attempt - delivery.earlier, outcome, now);
        let (reason, status) = match outcome {
            Outcome::Delivered { status } => (None, *status),
            Outcome::Failed { reason, status, .. } | Outcome::Refused { reason, status } => (Some(reason), *status),
        };
        let mut known: Vec<(&str, Bson)> = vec![("leased", false.into())];
        let mut unset = Vec::new();
        match reason {
            Some(reason) => known.push(("lastReason", reason.chars().take(REASON_MAX).collect::<String>().into())),
            None => unset.push("lastReason"),
        }
        match status {
            Some(status) => known.push(("lastStatus", i32::from(status).into())),
            None => unset.push("lastStatus"),
        }
        let as_claimed = Condition::and([Condition::eq("attempt", delivery.attempt), Condition::eq("leased", true)]);
        let expected = Expected::Matching(as_claimed);
        let (changes, look) = match next {
            Next::Retry(at) => {
                known.push(("due", date(at).into()));
                let failed = of_event(delivery, "FAILED", now, None);
                let set = RecordChange::set_if(DELIVERIES, delivery.key.as_str(), known, expected).unset(unset);
                (vec![set, failed], false)
            }
            Next::End(ending) => {
                let ended = (ending, known, unset);
                self.ending(&partner.definition, delivery, ended, expected, followed).await?
            }
        };
        self.write(changes).await?;
        if matches!(next, Next::End(Ending::Exhausted | Ending::Refused)) {
            let (partner, event) = (&delivery.partner, delivery.event.to_hex());
            let reason = reason.map_or("", String::as_str);
            tracing::warn!(partner, event, reason, "a partner event failed its last attempt; resend or cancel it");
        }
        Ok((next, look))
    }

    /// Returns the changes that end a delivery, and whether they make another one due. No delivery waits for one that is not `followed`.
    async fn ending(
        &self,
        definition: &PartnerDefinition,
        delivery: &DeliveryRecord,
        (ending, mut known, mut unset): (Ending, Vec<(&str, Bson)>, Vec<&str>),
        expected: Expected,
        followed: bool,
    ) -> Result<(Vec<RecordChange>, bool), RecordError> {
        let now = self.partners.now();
        let expires = expiry(definition, ending, now);
        // The definition was read before the attempt, and the partner may be archived by now.
        let (archive, same) = match expires {
            Some(_) => self.partners.archived_by_now(definition).await?,
            None => (definition.archive, None),
        };
        known.extend([("open", false.into()), ("ended", ending.as_str().into()), ("leased", false.into())]);
        known.extend([("waits", false.into()), ("alone", false.into())]);
        let mut names = std::collections::HashSet::new();
        known.retain(|(name, _)| names.insert(*name));
        known.extend(expires.map(|at| ("expireAt", date(at).into())));
        unset.push("due");
        let status = if ending == Ending::Success { EventStatus::Success } else { EventStatus::Failed };
        let mut changes = vec![
            RecordChange::set_if(DELIVERIES, delivery.key.as_str(), known, expected).unset(unset),
            of_event(delivery, status.as_str(), now, expires),
        ];
        changes.extend(same);
        changes.extend(self.partners.archiving(archive, delivery, (status, now, expires)).await?);
        let waiting = if followed { self.first_waiting(delivery).await? } else { None };
        changes.extend(waiting.as_ref().map(|waiting| self.due_now(waiting)));
        Ok((changes, waiting.is_some()))
    }

    /// Ends a delivery without an attempt. Returns whether another one became due.
    pub(super) async fn end_unattempted(
        &self,
        partner: &Partner,
        delivery: &DeliveryRecord,
        ending: Ending,
        reason: Option<String>,
    ) -> Result<bool, RecordError> {
        let known = reason.map(|reason| ("lastReason", reason.into())).into_iter().collect();
        let expected = Expected::Matching(delivery.unchanged());
        let ended = (ending, known, Vec::new());
        let (mut changes, look) = self.ending(&partner.definition, delivery, ended, expected, true).await?;
        if ending == Ending::Cancelled {
            // The record no longer exists.
            changes.remove(1);
        }
        match self.write(changes).await {
            Err(RecordError::NotAsExpected { .. }) => Ok(true),
            written => written.map(|()| look),
        }
    }

    /// Releases the next event of an entity after an operator ended the first one. Returns whether there is one.
    pub(super) async fn release(&self, delivery: &DeliveryRecord) -> Result<bool, RecordError> {
        let expected = Expected::Matching(delivery.unchanged());
        let released = RecordChange::set_if(DELIVERIES, delivery.key.as_str(), [("waits", false.into())], expected);
        let mut changes = vec![released.unset(["due"])];
        let waiting = self.first_waiting(delivery).await?;
        changes.extend(waiting.as_ref().map(|waiting| self.due_now(waiting)));
        match self.write(changes).await {
            Err(RecordError::NotAsExpected { .. }) => Ok(true),
            written => written.map(|()| waiting.is_some()),
        }
    }
}

/// Returns the change of an event's record.
pub(super) fn of_event(
    delivery: &DeliveryRecord,
    status: &str,
    now: Timestamp,
    expires: Option<Timestamp>,
) -> RecordChange {
    let mut fields: Vec<(&str, Bson)> =
        vec![("event_status", status.into()), ("lastUpdatedTime", epoch_millis(now).into())];
    fields.extend(expires.map(|at| ("expire_at", date(at).into())));
    RecordChange::set_if(PARTNER_EVENTS, delivery.event, fields, Expected::Present)
}

/// Returns when an event with this ending may be deleted. An event that failed for the last time is kept until a person decides about it.
pub(super) fn expiry(definition: &PartnerDefinition, ending: Ending, now: Timestamp) -> Option<Timestamp> {
    let days = definition.retention_days?;
    let time = Duration::from_secs(u64::from(days) * 24 * 60 * 60);
    matches!(ending, Ending::Success | Ending::Cancelled).then(|| now.plus(time))
}
