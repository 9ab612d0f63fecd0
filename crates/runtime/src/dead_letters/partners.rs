//! Letters of partner events that failed for the last time. Partners own the events, and the letters mirror them; an act on a letter is
//! applied to the event. Each round compares both, so a step that a crash interrupted is completed by the next round.

use std::collections::HashMap;
use std::sync::Arc;

use annals_core::bson::oid::ObjectId;
use annals_core::dead_letters::{DeadLetter, DeadLetterError, PartnerStep};
use annals_core::handlers::Reason;
use annals_core::partners::{DELIVERIES, DeliveryRecord, Ending, PARTNER_EVENTS, PartnerError, PartnerEventRecord};
use annals_core::{Condition, RecordError, RecordQuery, StoreError, Stored, Timestamp, TypedRecords};

use super::TenantDeadLetters;
use super::edits::id;

/// The number of events that are compared at a time.
const PAGE: usize = 200;

impl TenantDeadLetters {
    /// Returns whether any partner event has failed.
    pub(super) async fn has_failed_partner_events(&self) -> Result<bool, RecordError> {
        match self.records.count(PARTNER_EVENTS, &Condition::eq("event_status", "FAILED")).await {
            Err(RecordError::UnknownCollection(_)) => Ok(false),
            count => Ok(count? > 0),
        }
    }

    /// Makes letters and partner events consistent.
    pub(super) async fn follow_partners(&self, now: Timestamp) -> Result<(), DeadLetterError> {
        self.follow_open_letters(now).await?;
        self.follow_failed_events(now).await
    }

    /// Updates letters whose events were resent or cancelled as partner events.
    async fn follow_open_letters(&self, now: Timestamp) -> Result<(), DeadLetterError> {
        let query = TypedRecords::<DeadLetter>::query().matching(DeadLetter::open_of_partners()).ascending("_id");
        let mut query = query.limit(PAGE);
        loop {
            let (page, next) = match self.letters().find(query.clone()).await {
                Err(RecordError::UnknownCollection(_)) => return Ok(()),
                page => page?,
            };
            let events = page.iter().filter_map(|letter| ObjectId::parse_str(letter.value.partner_event()?).ok());
            let deliveries = self.deliveries_of(events.collect()).await?;
            for letter in page {
                let event = letter.value.partner_event().and_then(|event| ObjectId::parse_str(event).ok());
                if let Some(delivery) = event.and_then(|event| deliveries.get(&event)) {
                    self.compare(letter, delivery, now).await?;
                }
            }
            let Some(cursor) = next else { return Ok(()) };
            query = query.after(cursor);
        }
    }

    /// Updates events that failed for the last time and have no letter yet, or a discarded one.
    async fn follow_failed_events(&self, now: Timestamp) -> Result<(), DeadLetterError> {
        let failed = Condition::eq("event_status", "FAILED");
        let mut query = RecordQuery::new(PARTNER_EVENTS).matching(failed).ascending("_id").limit(PAGE);
        let events = TypedRecords::<PartnerEventRecord>::declared(Arc::clone(&self.records));
        // Lists of partner events count such records.
        let unreadable =
            |error: StoreError| tracing::debug!(%error, "a partner event that cannot be read has no letter");
        loop {
            let (page, next) = match events.find_readable(query.clone(), unreadable).await {
                Err(RecordError::UnknownCollection(_)) => return Ok(()),
                page => page?,
            };
            let deliveries = self.deliveries_of(page.iter().map(|event| event.value.id).collect()).await?;
            for event in page.into_iter().map(|stored| stored.value) {
                let over = |it: &&DeliveryRecord| matches!(it.ended, Some(Ending::Exhausted | Ending::Refused));
                let Some(delivery) = deliveries.get(&event.id).filter(over) else { continue };
                self.receive_partner_event(&event, delivery, now).await?;
            }
            let Some(cursor) = next else { return Ok(()) };
            query = query.after(cursor);
        }
    }

    async fn receive_partner_event(
        &self,
        event: &PartnerEventRecord,
        delivery: &DeliveryRecord,
        now: Timestamp,
    ) -> Result<(), DeadLetterError> {
        self.declare().await?;
        let known = self.letters().get(id(&DeadLetter::id_of_partner(&delivery.partner, &delivery.event))).await?;
        if let Some(letter) = known {
            return self.compare(letter, delivery, now).await;
        }
        match self.letters().insert(&DeadLetter::of_partner(event, delivery, now)).await {
            Ok(_) | Err(RecordError::DuplicateKey { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    async fn compare(
        &self,
        stored: Stored<DeadLetter>,
        delivery: &DeliveryRecord,
        now: Timestamp,
    ) -> Result<(), DeadLetterError> {
        let Stored { value: mut letter, revision } = stored;
        let event = delivery.event.to_hex();
        let last = letter.history.last().cloned();
        let reason = || Reason {
            reason: last.as_ref().and_then(|it| it.reason.clone()).unwrap_or_else(|| "its dead letter".to_owned()),
            by: last.as_ref().and_then(|it| it.by.clone()),
        };
        let acted = match letter.agree(delivery, now) {
            PartnerStep::Nothing => return Ok(()),
            PartnerStep::Store => {
                let expected = annals_core::Expected::Revision(revision);
                return match self.letters().replace_if(&letter, expected).await {
                    // If it changed meanwhile, the next round handles it.
                    Ok(_) | Err(RecordError::NotAsExpected { .. }) => Ok(()),
                    Err(error) => Err(error.into()),
                };
            }
            PartnerStep::Resend => self.partners.resend(&event, reason()).await,
            PartnerStep::Cancel => self.partners.cancel(&event, reason()).await,
        };
        match acted {
            Ok(_) => Ok(()),
            Err(PartnerError::Store(StoreError::Closed)) => Err(StoreError::Closed.into()),
            Err(error) => {
                tracing::debug!(letter = letter.id, %error, "the state of a letter cannot be applied to its partner event yet");
                Ok(())
            }
        }
    }

    async fn deliveries_of(&self, events: Vec<ObjectId>) -> Result<HashMap<ObjectId, DeliveryRecord>, RecordError> {
        if events.is_empty() {
            return Ok(HashMap::new());
        }
        let deliveries = TypedRecords::<DeliveryRecord>::declared(Arc::clone(&self.records));
        let query = RecordQuery::new(DELIVERIES).matching(Condition::is_in("event", events)).limit(PAGE);
        let page = match deliveries.find(query).await {
            Err(RecordError::UnknownCollection(_)) => Vec::new(),
            page => page?.0,
        };
        Ok(page.into_iter().map(|stored| (stored.value.event, stored.value)).collect())
    }
}
