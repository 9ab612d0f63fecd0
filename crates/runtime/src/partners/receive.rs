//! Receiving an event from a partner: it is stored before it is acknowledged.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use annals_core::partners::{
    Accepted, DeliveryRecord, EventDirection, Incoming, NewPartnerEvent, PartnerDefinition, PartnerError, ReceivedBody,
    Unsigned, content_digest,
};
use annals_core::{Code, Condition, Expected, Invalid, RecordError, TypedRecords};

use super::{TenantPartners, absent};

impl TenantPartners {
    pub(super) async fn take_in(&self, partner: &str, request: Incoming) -> Result<Accepted, PartnerError> {
        self.open()?;
        let (definition, _) = self.definition(partner).await?;
        let body_max = definition.limits.body_bytes as usize;
        if request.body.len() > body_max {
            let message = format!(
                "the body has {} bytes, but this partner may send {body_max} at most; send less at once, or raise limits.body_bytes of the partner",
                request.body.len()
            );
            return Err(Invalid::new(Code::BodyTooLarge, "", message).into());
        }
        let verified = match self.secrets(partner).await? {
            secrets if secrets.is_empty() => Err(Unsigned::Signature),
            secrets => request.signed.verify(&secrets, self.now(), &request.body),
        };
        if let Err(why) = verified {
            self.metrics.received(partner, "refused");
            return Err(why.into());
        }
        let accepted = self.record(&definition, &request).await?;
        self.metrics.received(partner, if accepted.repeated { "repeated" } else { "accepted" });
        Ok(accepted)
    }

    async fn record(&self, definition: &PartnerDefinition, request: &Incoming) -> Result<Accepted, PartnerError> {
        let (partner, webhook_id) = (&*definition.id, &*request.signed.id);
        let digest = content_digest(&request.body);
        if let Some(known) = self.received_before(partner, webhook_id, &digest).await? {
            return Ok(known);
        }
        let body = ReceivedBody::read(&request.body, webhook_id)?;
        let same = definition.receive.deduplicate.same(partner, &body);
        if let Some(known) = self.same_event(same.as_deref()).await? {
            return Ok(known);
        }
        // Refuse an event that can never be committed now, while the partner waits for the response.
        let commit = definition.commit(webhook_id, &body.event_type, &body.entity_id, &body.data);
        commit.map_err(|message| Invalid::new(Code::InvalidData, "", message))?;
        let (now, entity) = (self.now(), format!("{}/{}", body.entity_type, body.entity_id));
        let new = NewPartnerEvent {
            direction: EventDirection::In,
            version: body.version,
            event_type: body.event_type,
            partner: (partner.to_owned(), definition.name.to_string()),
            entity: (body.entity_id, body.entity_type),
            data: body.data,
            by: partner.to_owned(),
        };
        let record = new.record(now, self.random());
        let key = DeliveryRecord::key_in(partner, webhook_id);
        let mut delivery = DeliveryRecord::new(key, record.id, EventDirection::In, partner, now);
        delivery.entity = entity;
        delivery.order = self.arrival();
        delivery.digest = Some(digest.clone());
        delivery.webhook_id = Some(webhook_id.to_owned());
        delivery.same.clone_from(&same);
        let changes = vec![
            TypedRecords::replacement(&record, Expected::Absent)?,
            TypedRecords::replacement(&delivery, Expected::Absent)?,
        ];
        match self.records.write(changes).await {
            Ok(_) => {}
            Err(error @ (RecordError::NotAsExpected { .. } | RecordError::DuplicateKey { .. })) => {
                // The same request, or the same event, arrived twice concurrently.
                let known = match self.received_before(partner, webhook_id, &digest).await? {
                    None => self.same_event(same.as_deref()).await?,
                    known => known,
                };
                return known.ok_or_else(|| error.into());
            }
            Err(error) => return Err(error.into()),
        }
        self.start();
        self.wake(&delivery.lane, partner).await;
        Ok(Accepted { id: record.id.to_hex(), repeated: false })
    }

    async fn received_before(
        &self,
        partner: &str,
        webhook_id: &str,
        digest: &str,
    ) -> Result<Option<Accepted>, PartnerError> {
        let deliveries = TypedRecords::<DeliveryRecord>::declared(Arc::clone(&self.records));
        let found = absent(deliveries.get(DeliveryRecord::key_in(partner, webhook_id)).await)?;
        match found.map(|found| found.value) {
            None => Ok(None),
            Some(known) if known.digest.as_deref() == Some(digest) => {
                Ok(Some(Accepted { id: known.event.to_hex(), repeated: true }))
            }
            Some(_) => Err(PartnerError::OtherContent(webhook_id.to_owned())),
        }
    }

    /// Returns the response to an event that was already recorded under another id.
    async fn same_event(&self, same: Option<&str>) -> Result<Option<Accepted>, PartnerError> {
        let Some(same) = same else { return Ok(None) };
        let deliveries = TypedRecords::<DeliveryRecord>::declared(Arc::clone(&self.records));
        let query = TypedRecords::<DeliveryRecord>::query().matching(Condition::eq("same", same)).limit(1);
        let (found, _) = absent(deliveries.find(query).await)?;
        let known = found.into_iter().next();
        Ok(known.map(|known| Accepted { id: known.value.event.to_hex(), repeated: true }))
    }

    /// Returns a number above those of all earlier events.
    fn arrival(&self) -> i64 {
        let now = self.now().as_millis().saturating_mul(1_000);
        let next = |last: i64| Some(now.max(last + 1));
        let last = self.arrived.fetch_update(Ordering::SeqCst, Ordering::SeqCst, next).unwrap_or(0);
        now.max(last + 1)
    }
}
