//! Acts of operators on events: resend and cancel.

use annals_core::bson::Bson;
use annals_core::handlers::Reason;
use annals_core::partners::{
    DELIVERIES, DeliveryRecord, Ending, EventStatus, PARTNER_EVENTS, PartnerArchive, PartnerError, PartnerEventRecord,
    PartnerEventView, epoch_millis,
};
use annals_core::{Expected, RecordChange, RecordError, TypedRecords};

use super::archive::same_archive;
use super::finish::{expiry, of_event};
use super::{TenantPartners, date, whatever};

impl TenantPartners {
    /// Returns the delivery of an event on which an operator acts.
    async fn acted_on(&self, id: &str, act: &str) -> Result<DeliveryRecord, PartnerError> {
        let (event, delivery) = self.find_event(id).await?;
        let Some(delivery) = delivery else {
            let state = format!("{} and recorded by other software", event.event_status.as_str());
            return Err(PartnerError::State { id: id.to_owned(), state, act: act.to_owned() });
        };
        if delivery.is_claimed(self.now()) {
            let (state, act) = ("PROCESSING".to_owned(), act.to_owned());
            return Err(PartnerError::State { id: id.to_owned(), state, act });
        }
        Ok(delivery)
    }

    pub(super) async fn resend_event(&self, id: &str, reason: Reason) -> Result<PartnerEventView, PartnerError> {
        reason.validate()?;
        let delivery = self.acted_on(id, "resent").await?;
        let now = self.now();
        let fields: [(&str, Bson); 6] = [
            ("due", date(now).into()),
            ("open", true.into()),
            ("waits", false.into()),
            ("alone", true.into()),
            ("leased", false.into()),
            ("earlier", delivery.attempt.into()),
        ];
        let as_read = Expected::Matching(delivery.unchanged());
        let set = RecordChange::set_if(DELIVERIES, delivery.key.as_str(), fields, as_read).unset(["ended", "expireAt"]);
        let event: [(&str, Bson); 2] =
            [("event_status", "PENDING".into()), ("lastUpdatedTime", epoch_millis(now).into())];
        let event = RecordChange::set_if(PARTNER_EVENTS, delivery.event, event, Expected::Present).unset(["expire_at"]);
        self.write_act(id, "resend", reason, vec![set, event], &delivery).await
    }

    pub(super) async fn cancel_event(&self, id: &str, reason: Reason) -> Result<PartnerEventView, PartnerError> {
        reason.validate()?;
        let delivery = self.acted_on(id, "cancelled").await?;
        if delivery.ended == Some(Ending::Success) {
            let (state, act) = ("SUCCESS".to_owned(), "cancelled".to_owned());
            return Err(PartnerError::State { id: id.to_owned(), state, act });
        }
        let now = self.now();
        // The events of a deleted partner are kept.
        let definition = self.definition(&delivery.partner).await.ok();
        let expires = definition.as_ref().and_then(|(definition, _)| expiry(definition, Ending::Cancelled, now));
        let beside = match &definition {
            Some((definition, record)) if definition.archive == PartnerArchive::None && expires.is_some() => {
                Some(same_archive(record))
            }
            Some((definition, _)) => {
                self.archiving(definition.archive, &delivery, (EventStatus::Failed, now, expires)).await?
            }
            None => None,
        };
        let mut fields: Vec<(&str, Bson)> = vec![
            ("open", false.into()),
            ("waits", false.into()),
            ("leased", false.into()),
            ("ended", Ending::Cancelled.as_str().into()),
        ];
        if delivery.open {
            // Make it due once more, so that the owner releases the next event of the entity.
            fields.push(("due", date(now).into()));
        }
        fields.extend(expires.map(|at| ("expireAt", date(at).into())));
        let as_read = Expected::Matching(delivery.unchanged());
        let set = RecordChange::set_if(DELIVERIES, delivery.key.as_str(), fields, as_read);
        let event = of_event(&delivery, "FAILED", now, expires);
        let changes = [set, event].into_iter().chain(beside).collect();
        self.write_act(id, "cancel", reason, changes, &delivery).await
    }

    async fn write_act(
        &self,
        id: &str,
        act: &str,
        reason: Reason,
        mut changes: Vec<RecordChange>,
        delivery: &DeliveryRecord,
    ) -> Result<PartnerEventView, PartnerError> {
        self.declare().await?;
        let record = self.act(&format!("partner-event/{id}"), act, reason);
        changes.push(TypedRecords::replacement(&record, whatever())?);
        match self.records.write(changes).await {
            Err(RecordError::NotAsExpected { .. }) => {
                let (event, _): (PartnerEventRecord, _) = self.find_event(id).await?;
                let (state, act) = (event.event_status.as_str().to_owned(), format!("changed ({act})"));
                return Err(PartnerError::State { id: id.to_owned(), state, act });
            }
            written => written.map(drop)?,
        }
        self.start();
        self.wake(&delivery.lane, &delivery.partner).await;
        let (event, delivery) = self.find_event(id).await?;
        Ok(PartnerEventView::of(event, delivery))
    }
}
