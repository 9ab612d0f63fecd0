//! One attempt: claims the delivery, and sends or commits its event. `finish.rs` stores the outcome.

use std::sync::Arc;
use std::time::Duration;

use annals_core::bson::{Bson, Document};
use annals_core::partners::{
    ATTEMPTS_MAX, DELIVERIES, DeliveryRecord, Ending, EventDirection, Outcome, Outgoing, PARTNER_EVENTS,
    PartnerEventRecord, Signed, epoch_millis, message, of_answer,
};
use annals_core::{
    Code, CommitError, Condition, Expected, RecordChange, RecordError, StoreError, Timestamp, TypedRecords,
};

use super::date;
use super::known::Partner;
use super::owner::Work;

/// How long the owner of an attempt may take in addition to the attempt's own time limit, before the delivery is claimed again.
const LEASE_BEYOND: Duration = Duration::from_secs(15);
/// The pause before a delivery is tried again after a failure of the store.
const AFTER_FAILURE: Duration = Duration::from_secs(1);

/// The result of an attempt.
pub(super) enum Attempted {
    /// It was made, and its outcome is not stored yet.
    Made(Box<Made>),
    /// It is over.
    Over(Done),
}

/// An attempt that was made.
pub(super) struct Made {
    pub partner: Arc<Partner>,
    pub delivery: DeliveryRecord,
    pub outcome: Outcome,
}

/// What a lane learns about an attempt that is over.
pub(super) struct Done {
    pub key: String,
    /// Whether another delivery became due.
    pub look: bool,
    /// When this delivery is due again.
    pub later: Option<Timestamp>,
}

/// The result of claiming a delivery.
enum Claim {
    /// The attempt with this number is stored.
    Begun(Box<PartnerEventRecord>, i32),
    /// There is nothing to attempt.
    Nothing { look: bool },
}

/// Which delivery of an entity is next.
enum Turn {
    /// This delivery; with whether other deliveries of the entity can be open besides it.
    Its { followed: bool },
    /// Another delivery; with whether that one became due.
    Anothers { look: bool },
}

impl Work {
    /// Attempts a delivery that is due. The event is read unless it is passed in.
    pub async fn attempt(
        self: Arc<Self>,
        partner: Arc<Partner>,
        direction: EventDirection,
        delivery: DeliveryRecord,
        event: Option<PartnerEventRecord>,
    ) -> Attempted {
        let claim = {
            let _order = self.stripe(&delivery.lane, &delivery.entity).lock().await;
            self.claim(&partner, direction, &delivery, event).await
        };
        let (event, attempt) = match claim {
            Ok(Claim::Begun(event, attempt)) => (event, attempt),
            Ok(Claim::Nothing { look }) => return Attempted::Over(Done { key: delivery.key, look, later: None }),
            Err(error) => {
                tracing::debug!(key = delivery.key, %error, "could not claim a delivery; retrying later");
                let later = self.partners.now().plus(AFTER_FAILURE);
                return Attempted::Over(Done { key: delivery.key, look: false, later: Some(later) });
            }
        };
        self.partners.metrics.begun(&partner.definition.id, direction, attempt);
        let delivery = DeliveryRecord { attempt, ..delivery };
        let outcome = match direction {
            EventDirection::Out => self.send(&partner, &event, &delivery).await,
            EventDirection::In => self.commit(&partner, &event, &delivery).await,
        };
        Attempted::Made(Box::new(Made { partner, delivery, outcome }))
    }

    /// Returns what a lane learns about an attempt that panicked. A delivery that it claimed is claimed again after its lease; one that it
    /// did not claim is attempted again after `LEASE_BEYOND`.
    pub fn panicked(&self, key: String, said: &str) -> Done {
        tracing::error!(key, said, "an attempt of a delivery panicked");
        let later = self.partners.now().plus(LEASE_BEYOND);
        Done { key, look: false, later: Some(later) }
    }

    async fn claim(
        &self,
        partner: &Partner,
        direction: EventDirection,
        delivery: &DeliveryRecord,
        event: Option<PartnerEventRecord>,
    ) -> Result<Claim, RecordError> {
        if !delivery.open {
            return self.release(delivery).await.map(|look| Claim::Nothing { look });
        }
        let read = match event {
            Some(event) => Ok(Some(event)),
            None => self.partners.typed_events().get(delivery.event).await.map(|found| found.map(|found| found.value)),
        };
        let event = match read {
            // Other software changed it. It waits for a person, and holds up no other event of its entity.
            Err(RecordError::Store(error)) if error.code() == Code::MalformedDocument => {
                let why = Some(error.to_string());
                let look = self.end_unattempted(partner, delivery, Ending::Refused, why).await?;
                return Ok(Claim::Nothing { look });
            }
            read => read?,
        };
        let Some(event) = event else {
            let gone = Some("its record was deleted".to_owned());
            let look = self.end_unattempted(partner, delivery, Ending::Cancelled, gone).await?;
            return Ok(Claim::Nothing { look });
        };
        let followed = match self.turn(delivery).await? {
            Turn::Its { followed } => followed,
            Turn::Anothers { look } => return Ok(Claim::Nothing { look }),
        };
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
        let (path, millis) = (PartnerEventRecord::attempt_path(attempt), epoch_millis(now));
        let processing: [(&str, Bson); 3] =
            [("event_status", "PROCESSING".into()), (&path, millis.clone().into()), ("lastUpdatedTime", millis.into())];
        let as_read = Expected::Matching(delivery.unchanged());
        // INVARIANT: an attempt is stored before it is made.
        let changes = vec![
            RecordChange::set_if(DELIVERIES, delivery.key.as_str(), leased, as_read),
            RecordChange::set_if(PARTNER_EVENTS, delivery.event, processing, Expected::Present),
        ];
        match self.write(changes).await {
            Ok(()) => {
                self.queues.claimed(delivery, followed);
                Ok(Claim::Begun(Box::new(event), attempt))
            }
            // The event was deleted after it was read.
            Err(RecordError::NotAsExpected { collection, .. }) if collection == PARTNER_EVENTS => {
                Ok(Claim::Nothing { look: true })
            }
            // Another process owns it, or an operator has acted on it.
            Err(RecordError::NotAsExpected { .. }) => Ok(Claim::Nothing { look: false }),
            Err(error) => Err(error),
        }
    }

    /// Determines which delivery of the entity is next. If an earlier one is, this delivery is set to wait for it.
    async fn turn(&self, delivery: &DeliveryRecord) -> Result<Turn, RecordError> {
        if delivery.alone || delivery.leased {
            return Ok(Turn::Its { followed: true });
        }
        // Read two, because the second one shows whether anything follows the first.
        let open = self.first_of(DeliveryRecord::open_of(&delivery.lane, &delivery.entity), 2).await?;
        let Some(first) = open.first() else { return Ok(Turn::Its { followed: true }) };
        if first.key == delivery.key {
            return Ok(Turn::Its { followed: open.len() > 1 });
        }
        self.queues.waits(delivery);
        let as_read = Expected::Matching(delivery.unchanged());
        let behind = RecordChange::set_if(DELIVERIES, delivery.key.as_str(), [("waits", true.into())], as_read);
        let mut changes = vec![behind.unset(["due"])];
        let stuck = first.due.is_none();
        if stuck {
            changes.push(self.due_now(first));
        }
        match self.write(changes).await {
            Ok(()) => Ok(Turn::Anothers { look: stuck }),
            Err(RecordError::NotAsExpected { .. }) => Ok(Turn::Anothers { look: true }),
            Err(error) => Err(error),
        }
    }

    /// Returns the first open delivery of the same entity that waits.
    pub(super) async fn first_waiting(&self, of: &DeliveryRecord) -> Result<Option<DeliveryRecord>, RecordError> {
        let open = DeliveryRecord::open_of(&of.lane, &of.entity);
        let waiting = Condition::and([open, Condition::eq("waits", true)]);
        Ok(self.first_of(waiting, 1).await?.into_iter().next())
    }

    /// Returns the first deliveries of an entity that match the condition, in order.
    async fn first_of(&self, condition: Condition, limit: usize) -> Result<Vec<DeliveryRecord>, RecordError> {
        let deliveries = TypedRecords::<DeliveryRecord>::declared(Arc::clone(&self.partners.records));
        let query = TypedRecords::<DeliveryRecord>::query().matching(condition).ascending("order").limit(limit);
        let (found, _) = deliveries.find(query).await?;
        Ok(found.into_iter().map(|found| found.value).collect())
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
            // Any other error of a store may pass, such as a missing primary.
            Err(CommitError::Store(error)) if !matches!(error, StoreError::NotSupported(_)) => {
                Outcome::Failed { reason: error.to_string(), status: None, retry_after: None }
            }
            Err(error) => Outcome::Refused { reason: error.to_string(), status: None },
        }
    }
}
