//! The letter of a partner event that failed for the last time. The delivery, which partners own, determines its state: a retry resends
//! the event, and a discard cancels it.

use bson::{Bson, DateTime, Document, doc};

use super::{DeadLetter, INLINE_BYTES_MAX, LetterStatus, RECEIVED};
use crate::partners::{DeliveryRecord, Ending, PartnerEventRecord};
use crate::{Condition, Timestamp};

/// The action that makes a partner event and its letter agree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PartnerStep {
    /// None: they agree.
    Nothing,
    /// Store the letter, which has changed.
    Store,
    /// Resend the event, because a person wants a retry.
    Resend,
    /// Cancel the event, because its letter was discarded.
    Cancel,
}

impl DeadLetter {
    /// Returns the condition of open letters of partner events.
    pub fn open_of_partners() -> Condition {
        // `0` follows `/`.
        let of_partners = [Condition::gte("processor", "partner/"), Condition::lt("processor", "partner0")];
        Condition::and(of_partners.into_iter().chain([Self::open()]))
    }

    /// Returns the id of the letter of a partner event.
    pub fn id_of_partner(partner: &str, event: &bson::oid::ObjectId) -> String {
        format!("partner.{partner}.{}", event.to_hex())
    }

    /// Creates the letter of a partner event, which waits for a person because its retries are used up.
    pub fn of_partner(event: &PartnerEventRecord, delivery: &DeliveryRecord, at: Timestamp) -> Self {
        let now = DateTime::from_millis(at.as_millis());
        let error = delivery.last_reason.clone().unwrap_or_else(|| "it failed for the last time".to_owned());
        let source = delivery.source.as_ref();
        let mut letter = Self {
            id: Self::id_of_partner(&delivery.partner, &delivery.event),
            event: described(event, delivery),
            original_topic: event.event_type.clone(),
            error: error.clone(),
            retry_count: 0,
            failed_at: now,
            status: LetterStatus::Pending,
            producer_id: event.created_by.clone(),
            created_at: now,
            last_updated: Some(now),
            next_retry_at: None,
            retried_at: None,
            discarded_at: None,
            discard_reason: None,
            dlq_offset: source.map(|source| source.sequence_number),
            dlq_partition: None,
            last_error: Some(error.clone()),
            headers: Document::new(),
            processor: format!("partner/{}", delivery.partner),
            key: delivery.entity.clone(),
            position: position_of(&delivery.event),
            sequence_number: source.map_or(0, |source| source.sequence_number),
            attempts: delivery.attempt.into(),
            open: true,
            follows: false,
            holds: false,
            alone: false,
            history: Vec::new(),
            announcing: false,
            announcements: Vec::new(),
            announced: 0,
        };
        letter.note("received", at, Some(&error), None);
        letter.announce(RECEIVED);
        letter
    }

    /// Compares the letter with the delivery, whose state is authoritative, and changes it if they differ.
    pub fn agree(&mut self, delivery: &DeliveryRecord, at: Timestamp) -> PartnerStep {
        let attempts = i64::from(delivery.attempt);
        let failed_since = attempts > self.attempts;
        match delivery.ended {
            Some(Ending::Success) if self.open => {
                self.attempts = attempts - 1;
                self.succeeded(at);
                PartnerStep::Store
            }
            Some(Ending::Cancelled) if self.open => {
                let _ = self.discard("manual: the partner event was cancelled".to_owned(), None, at);
                PartnerStep::Store
            }
            Some(Ending::Exhausted | Ending::Refused) if failed_since => {
                let error = delivery.last_reason.clone().unwrap_or_default();
                if self.open {
                    self.failed(&error, true, at);
                } else {
                    self.received_again(&error, 0, at);
                }
                self.attempts = attempts;
                self.wait_for_a_person(at);
                PartnerStep::Store
            }
            Some(Ending::Exhausted | Ending::Refused) => match self.status {
                LetterStatus::Scheduled => PartnerStep::Resend,
                LetterStatus::Discarded => PartnerStep::Cancel,
                LetterStatus::Pending | LetterStatus::Retried => PartnerStep::Nothing,
            },
            Some(Ending::Success | Ending::Cancelled) | None => PartnerStep::Nothing,
        }
    }

    /// Returns the id of the letter's partner event, if it is about one.
    pub fn partner_event(&self) -> Option<&str> {
        self.event.get_str("partner_event").ok()
    }
}

/// Derives a position from the event's id. The position of a letter must be unique among those of its consumer.
fn position_of(event: &bson::oid::ObjectId) -> i64 {
    let bytes = event.bytes();
    let last = bytes[4..].try_into().map_or(0, u64::from_be_bytes);
    (last >> 1).cast_signed()
}

fn described(event: &PartnerEventRecord, delivery: &DeliveryRecord) -> Document {
    let id = event.id.to_hex();
    let of_log = delivery.source.as_ref().map(|source| source.event_id.clone());
    let event_id = of_log.or_else(|| delivery.webhook_id.clone()).unwrap_or_else(|| id.clone());
    let mut described = doc! {
        "event_id": event_id,
        "event_type": &event.event_type,
        "event_version": &event.event_version,
        "aggregate_id": &event.entity_metadata.entity_id,
        "aggregate_name": &event.entity_metadata.entity_type,
        "partner_event": id,
        "direction": event.event_direction.as_str(),
    };
    if let Bson::Document(data) = &event.entity_data
        && bson::serialize_to_vec(data).is_ok_and(|bytes| bytes.len() <= INLINE_BYTES_MAX)
    {
        described.insert("data", data.clone());
    }
    described
}
