//! Copies of final events: where an archive is configured, an event gets a date of expiry in the write that stores its copy.

use annals_core::partners::{ArchivedPartnerEvent, DeliveryRecord, EventStatus, PartnerArchive, PartnerDefinition};
use annals_core::{RecordChange, RecordError, Timestamp, TypedRecords};

use super::{TenantPartners, date, whatever};

impl TenantPartners {
    /// The change that stores the copy of an event which becomes final now and may be deleted later. None where nothing is archived.
    pub(super) async fn archiving(
        &self,
        definition: &PartnerDefinition,
        delivery: &DeliveryRecord,
        (status, now, expires): (EventStatus, Timestamp, Option<Timestamp>),
    ) -> Result<Option<RecordChange>, RecordError> {
        if expires.is_none() || definition.archive == PartnerArchive::None {
            return Ok(None);
        }
        let Some(found) = self.typed_events().get(delivery.event).await? else { return Ok(None) };
        let mut event = found.value;
        (event.event_status, event.last_updated_time, event.expire_at) = (status, now.as_millis().to_string(), None);
        let copy = ArchivedPartnerEvent { event, archived_at: date(now) };
        TypedRecords::replacement(&copy, whatever()).map(Some)
    }
}
