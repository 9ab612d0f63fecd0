//! One attempt: claim the delivery, send it or commit it, and store what became of it.

use std::sync::Arc;
use std::time::Duration;

use annals_core::bson::{Bson, Document};
use annals_core::partners::{
    ATTEMPTS_MAX, DELIVERIES, DeliveryRecord, Ending, EventDirection, Next, Outcome, Outgoing, PARTNER_EVENTS,
    PartnerEventRecord, Signed, message, of_answer,
};
use annals_core::{CommitError, Condition, Expected, RecordChange, RecordError, StoreError, Timestamp, TypedRecords};

use super::date;
use super::known::Partner;
use super::owner::Work;

/// How long the owner of an attempt may take beside the attempt's own time, before the delivery is claimed again.
const LEASE_BEYOND: Duration = Duration::from_secs(15);
/// When a delivery is looked at again whose store failed.
const AFTER_FAILURE: Duration = Duration::from_secs(1);

/// What a lane learns of an attempt.
pub(super) struct Done {
    pub key: String,
    /// What became of it; none when nothing was attempted.
    pub outcome: Option<Outcome>,
    /// Whether something else became due.
    pub look: bool,
    /// When it is due again.
    pub later: Option<Timestamp>,
}

/// What a claim found.
enum Claim {
    /// The attempt with this number is on record.
    Begun(Box<PartnerEventRecord>, i32),
    /// There is nothing to attempt.
    Nothing { look: bool },
}

impl Work {
    /// Attempts a delivery that is due.
    pub async fn attempt(
        self: Arc<Self>,
        partner: Arc<Partner>,
        direction: EventDirection,
        delivery: DeliveryRecord,
    ) -> Done {
        let key = delivery.key.clone();
        let claim = {
            let _order = self.stripe(&delivery.lane, &delivery.entity).lock().await;
            self.claim(&partner, direction, &delivery).await
        };
        let (event, attempt) = match claim {
            Ok(Claim::Begun(event, attempt)) => (event, attempt),
            Ok(Claim::Nothing { look }) => return Done { key, outcome: None, look, later: None },
            Err(error) => {
                tracing::debug!(key, %error, "a delivery was not claimed");
                let later = self.partners.now().plus(AFTER_FAILURE);
                return Done { key, outcome: None, look: false, later: Some(later) };
            }
        };
        self.partners.metrics.begun(&partner.definition.id, direction, attempt);
        let delivery = DeliveryRecord { attempt, ..delivery };
        let outcome = match direction {
            EventDirection::Out => self.send(&partner, &event, &delivery).await,
            EventDirection::In => self.commit(&partner, &event, &delivery).await,
        };
        let (next, look) = self.finish_in_time(&partner, &delivery, &outcome).await;
        let later = match next {
            Some(Next::Retry(at)) => Some(at),
            _ => None,
        };
        Done { key, outcome: Some(outcome), look, later }
    }

    /// What a lane learns of an attempt that panicked. What it claimed is claimed again after its lease, and what it did not, at this time.
    pub fn panicked(&self, key: String, said: &str) -> Done {
        tracing::error!(key, said, "an attempt of a delivery panicked");
        let later = self.partners.now().plus(LEASE_BEYOND);
        Done { key, outcome: None, look: false, later: Some(later) }
    }

    async fn claim(
        &self,
        partner: &Partner,
        direction: EventDirection,
        delivery: &DeliveryRecord,
    ) -> Result<Claim, RecordError> {
        if !delivery.open {
            return self.release(delivery).await.map(|look| Claim::Nothing { look });
        }
        let events = TypedRecords::<PartnerEventRecord>::declared(Arc::clone(&self.partners.records));
        let Some(event) = events.get(delivery.event).await? else {
            let gone = Some("its record was deleted".to_owned());
            let look = self.end_unattempted(partner, delivery, Ending::Cancelled, gone).await?;
            return Ok(Claim::Nothing { look });
        };
        if let Some(look) = self.waits_for_another(delivery).await? {
            return Ok(Claim::Nothing { look });
        }
        if delivery.attempt - delivery.earlier >= ATTEMPTS_MAX {
            let reason = "the process ended during the last attempt; whether it succeeded is unknown".to_owned();
            let look = self.end_unattempted(partner, delivery, Ending::Exhausted, Some(reason)).await?;
            return Ok(Claim::Nothing { look });
        }
        let (now, attempt) = (self.partners.now(), delivery.attempt + 1);
        let time = match direction {
            EventDirection::Out => Duration::from_millis(partner.definition.limits.timeout_ms.into()),
            EventDirection::In => Duration::from_secs(30),
        };
        let leased: [(&str, Bson); 4] = [
            ("attempt", attempt.into()),
            ("due", date(now.plus(time + LEASE_BEYOND)).into()),
            ("leased", true.into()),
            ("waits", false.into()),
        ];
        let (path, millis) = (PartnerEventRecord::attempt_path(attempt), now.as_millis().to_string());
        let processing: [(&str, Bson); 3] =
            [("event_status", "PROCESSING".into()), (&path, millis.clone().into()), ("lastUpdatedTime", millis.into())];
        let as_read = Expected::Matching(delivery.unchanged());
        // INVARIANT: the attempt is stored before it is made.
        let changes = vec![
            RecordChange::set_if(DELIVERIES, delivery.key.as_str(), leased, as_read),
            RecordChange::set_if(PARTNER_EVENTS, delivery.event, processing, Expected::Present),
        ];
        match self.write(changes).await {
            Ok(()) => Ok(Claim::Begun(Box::new(event.value), attempt)),
            // Another process owns it, or an operator has acted on it.
            Err(RecordError::NotAsExpected { .. }) => Ok(Claim::Nothing { look: false }),
            Err(error) => Err(error),
        }
    }

    /// Puts a delivery behind an earlier one of its entity, if there is one. Returns whether the earlier one became due.
    async fn waits_for_another(&self, delivery: &DeliveryRecord) -> Result<Option<bool>, RecordError> {
        if delivery.alone || delivery.leased {
            return Ok(None);
        }
        let Some(first) = self.first_open(delivery, false).await? else { return Ok(None) };
        if first.key == delivery.key {
            return Ok(None);
        }
        let as_read = Expected::Matching(delivery.unchanged());
        let behind = RecordChange::set_if(DELIVERIES, delivery.key.as_str(), [("waits", true.into())], as_read);
        let mut changes = vec![behind.unset(["due"])];
        let stuck = first.due.is_none();
        if stuck {
            changes.push(self.due_now(&first));
        }
        match self.write(changes).await {
            Ok(()) => Ok(Some(stuck)),
            Err(RecordError::NotAsExpected { .. }) => Ok(Some(true)),
            Err(error) => Err(error),
        }
    }

    /// The first open delivery of the same entity; of those that wait, if so wanted.
    pub(super) async fn first_open(
        &self,
        of: &DeliveryRecord,
        waiting: bool,
    ) -> Result<Option<DeliveryRecord>, RecordError> {
        let deliveries = TypedRecords::<DeliveryRecord>::declared(Arc::clone(&self.partners.records));
        let mut condition = DeliveryRecord::open_of(&of.lane, &of.entity);
        if waiting {
            condition = Condition::and([condition, Condition::eq("waits", true)]);
        }
        let query = TypedRecords::<DeliveryRecord>::query().matching(condition).ascending("order").limit(1);
        let (found, _) = deliveries.find(query).await?;
        Ok(found.into_iter().next().map(|found| found.value))
    }

    pub(super) fn due_now(&self, waiting: &DeliveryRecord) -> RecordChange {
        let due: [(&str, Bson); 2] = [("due", date(self.partners.now()).into()), ("waits", false.into())];
        RecordChange::set_if(DELIVERIES, waiting.key.as_str(), due, Expected::Matching(waiting.unchanged()))
    }

    async fn send(&self, partner: &Partner, event: &PartnerEventRecord, delivery: &DeliveryRecord) -> Outcome {
        let failed = |reason: String| Outcome::Failed { reason, status: None, retry_after: None };
        let definition = &partner.definition;
        let Some(url) = &definition.url else { return failed("the partner has no url".to_owned()) };
        let secrets = match &partner.secrets {
            Ok(secrets) => secrets,
            Err(error) => return failed(error.to_string()),
        };
        let written = message(definition.format, &self.partners.tenant, event, delivery);
        let (media_type, body) = match written {
            Ok(written) => written,
            Err(reason) => return Outcome::Refused { reason, status: None },
        };
        let signed = Signed::sign(secrets, &event.id.to_hex(), self.partners.now(), &body);
        let request = Outgoing {
            url: url.to_string(),
            headers: vec![
                ("content-type", media_type.to_owned()),
                ("webhook-id", signed.id),
                ("webhook-timestamp", signed.timestamp),
                ("webhook-signature", signed.signature),
            ],
            body,
            timeout: Duration::from_millis(definition.limits.timeout_ms.into()),
        };
        match self.partners.shared.options.partners.sending.send(request).await {
            Ok(answered) => of_answer(answered.status, answered.retry_after, &answered.said),
            Err(reason) => failed(reason),
        }
    }

    async fn commit(&self, partner: &Partner, event: &PartnerEventRecord, delivery: &DeliveryRecord) -> Outcome {
        let webhook_id = delivery.webhook_id.as_deref().unwrap_or(&delivery.key);
        let data = match &event.entity_data {
            Bson::Document(document) => Bson::Document(Document::clone(document)),
            other => other.clone(),
        };
        let entity = &event.entity_metadata.entity_id;
        let commit = match partner.definition.commit(webhook_id, &event.event_type, entity, &data) {
            Ok(commit) => commit,
            Err(reason) => return Outcome::Refused { reason, status: None },
        };
        match self.partners.log.commit(commit).await {
            Ok(_) => Outcome::Delivered { status: None },
            Err(CommitError::Store(error @ (StoreError::NotSupported(_) | StoreError::Other { .. }))) => {
                Outcome::Refused { reason: error.to_string(), status: None }
            }
            Err(CommitError::Store(error)) => {
                Outcome::Failed { reason: error.to_string(), status: None, retry_after: None }
            }
            Err(error) => Outcome::Refused { reason: error.to_string(), status: None },
        }
    }
}
