//! Copies of final events. If an archive is configured, an event gets its expiry date in the write that stores its copy.
//!
//! An event that ended before its partner was archived has an expiry date and no copy. The owner copies these events once `archive` is
//! set.
//!
//! INVARIANT: an expiry date without a copy is written only while the partner is not archived. So the owner, which starts copying after
//! `archive` was set, finds every event that has such a date.

use std::sync::Arc;

use annals_core::partners::{
    ArchivedPartnerEvent, DeliveryRecord, EventStatus, PARTNER_EVENTS, PARTNER_EVENTS_ARCHIVE, PARTNERS,
    PartnerArchive, PartnerDefinition, PartnerEventRecord, PartnerRecord, epoch_millis,
};
use annals_core::{
    Condition, Expected, Projection, RecordChange, RecordError, RecordQuery, StoreError, Stored, Timestamp,
    TypedRecords,
};

use super::known::Partner;
use super::owner::Work;
use super::{TenantPartners, absent, date, whatever};
use crate::host::is_set;

/// The number of events that are processed together.
const PAGE: usize = 100;
/// The most bytes of copies that are written together; a single copy may be larger.
const BATCH_BYTES: usize = 8 * 1024 * 1024;
/// How often in a row the same page is read again because one of its events has changed.
const CONFLICTS_MAX: usize = 100;

/// Returns the check that makes a batch fail once `archive` has changed.
pub(super) fn same_archive(record: &PartnerRecord) -> RecordChange {
    RecordChange::check(PARTNERS, record.id.as_str(), of_turn(record.archive_turn))
}

fn of_turn(turn: i64) -> Expected {
    let same = Condition::eq("archive_turn", turn);
    // A partner that was defined by an earlier version of Annals counts from 0.
    let unset = (turn == 0).then(|| Condition::missing("archive_turn"));
    Expected::Matching(Condition::or([same].into_iter().chain(unset)))
}

impl TenantPartners {
    /// Returns the change that stores the copy of an event which becomes final now and may be deleted later; `None` if nothing is
    /// archived.
    pub(super) async fn archiving(
        &self,
        archive: PartnerArchive,
        delivery: &DeliveryRecord,
        (status, now, expires): (EventStatus, Timestamp, Option<Timestamp>),
    ) -> Result<Option<RecordChange>, RecordError> {
        if expires.is_none() || archive == PartnerArchive::None {
            return Ok(None);
        }
        let Some(found) = self.typed_events().get(delivery.event).await? else { return Ok(None) };
        let mut event = found.value;
        (event.event_status, event.last_updated_time, event.expire_at) = (status, epoch_millis(now), None);
        let copy = ArchivedPartnerEvent { event, archived_at: date(now) };
        TypedRecords::replacement(&copy, whatever()).map(Some)
    }

    /// Returns whether the partner of a definition is archived by now, and the check for a batch that sets an expiry date without a copy.
    pub(super) async fn archived_by_now(
        &self,
        definition: &PartnerDefinition,
    ) -> Result<(PartnerArchive, Option<RecordChange>), RecordError> {
        if definition.archive != PartnerArchive::None {
            return Ok((definition.archive, None));
        }
        let id = &*definition.id;
        let Some(found) = absent(self.typed().get(id).await)? else {
            return Ok((PartnerArchive::None, Some(RecordChange::check(PARTNERS, id, Expected::Absent))));
        };
        let archive = found.value.read().map_or(PartnerArchive::None, |definition| definition.archive);
        Ok((archive, (archive == PartnerArchive::None).then(|| same_archive(&found.value))))
    }

    /// Returns the events of a page that have no copy.
    async fn without_copy(
        &self,
        page: Vec<Stored<PartnerEventRecord>>,
    ) -> Result<Vec<Stored<PartnerEventRecord>>, RecordError> {
        let ids = page.iter().map(|event| event.value.id);
        let mut query = RecordQuery::new(PARTNER_EVENTS_ARCHIVE).matching(Condition::is_in("_id", ids)).limit(PAGE);
        query.projection = Projection::only(["archived_at"]);
        let copied = absent(self.records.find(query).await.map(|page| page.records))?;
        let copied: Vec<_> = copied.iter().filter_map(|copy| copy.document.get_object_id("_id").ok()).collect();
        Ok(page.into_iter().filter(|event| !copied.contains(&event.value.id)).collect())
    }
}

impl Work {
    /// Copies the events that ended before their partner was archived, whenever `archive` is set.
    pub async fn copy_older(self: Arc<Self>) -> Result<(), String> {
        let (mut known, mut ending) = (self.known.subscribe(), self.ending.subscribe());
        loop {
            let partners: Vec<_> = known.borrow_and_update().partners.values().cloned().collect();
            for partner in partners.into_iter().filter(|partner| partner.has_older()) {
                let copied = tokio::select! {
                    () = is_set(&mut ending) => return Ok(()),
                    copied = self.copy_all(&partner) => copied,
                };
                match copied {
                    Err(RecordError::Store(StoreError::Closed)) => return Ok(()),
                    Err(error) => return Err(error.to_string()),
                    Ok(()) => {}
                }
            }
            tokio::select! {
                () = is_set(&mut ending) => return Ok(()),
                changed = known.changed() => if changed.is_err() { return Ok(()) },
            }
        }
    }

    async fn copy_all(&self, partner: &Partner) -> Result<(), RecordError> {
        let id = &*partner.definition.id;
        let dated = Condition::and([Condition::eq("entity_metadata.partnerId", id), Condition::exists("expire_at")]);
        let mut query = TypedRecords::<PartnerEventRecord>::query().matching(dated).limit(PAGE);
        let mut conflicts = 0;
        loop {
            let unreadable = |error| tracing::warn!(partner = id, %error, "cannot archive an event of a partner");
            let (page, next) = self.partners.typed_events().find_readable(query.clone(), unreadable).await?;
            match self.copy_some(self.partners.without_copy(page).await?).await {
                Ok(()) => conflicts = 0,
                // An event was resent or has expired since it was read.
                Err(RecordError::NotAsExpected { collection, .. })
                    if collection == PARTNER_EVENTS && conflicts < CONFLICTS_MAX =>
                {
                    conflicts += 1;
                    continue;
                }
                Err(error) => return Err(error),
            }
            let Some(cursor) = next else { break };
            query = query.after(cursor);
        }
        let copied = [("copied_turn", partner.archive_turn.into())];
        let copied = RecordChange::set_if(PARTNERS, id, copied, of_turn(partner.archive_turn));
        match self.partners.records.write(vec![self.fence(), copied]).await {
            // `archive` was changed meanwhile: the partner is read again.
            Err(RecordError::NotAsExpected { collection, .. }) if collection == PARTNERS => Ok(()),
            written => written.map(drop),
        }
    }

    /// Writes the copies of events, unless they have changed since they were read.
    async fn copy_some(&self, events: Vec<Stored<PartnerEventRecord>>) -> Result<(), RecordError> {
        let now = date(self.partners.now());
        let (mut batch, mut bytes) = (vec![self.fence()], 0);
        for Stored { value: mut event, revision } in events {
            let as_read = RecordChange::check(PARTNER_EVENTS, event.id, Expected::Revision(revision));
            event.expire_at = None;
            let copy = TypedRecords::replacement(&ArchivedPartnerEvent { event, archived_at: now }, whatever())?;
            bytes += copy.bytes();
            batch.extend([as_read, copy]);
            if bytes >= BATCH_BYTES {
                self.partners.records.write(std::mem::replace(&mut batch, vec![self.fence()])).await?;
                bytes = 0;
            }
        }
        if batch.len() > 1 {
            self.partners.records.write(batch).await?;
        }
        Ok(())
    }
}
