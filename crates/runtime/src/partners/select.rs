//! Following the log, and recording the events that each partner selects.

use std::sync::Arc;

use annals_core::bson::{Bson, Document};
use annals_core::partners::{
    DeliveryRecord, EventDirection, NewPartnerEvent, PartnerEventRecord, SELECTION, SelectionRecord, Source,
};
use annals_core::{
    Condition, Expected, Filter, Follower, ReadError, RecordChange, RecordError, RecordType, RecordedEvent,
    SequenceNumber, StoreError, TypedRecords, event_document,
};

use super::known::{Known, Partner};
use super::owner::Work;
use super::{TenantPartners, date};
use crate::host::is_set;

/// How often in a row the position may have moved under the same definitions.
const MOVED_MAX: u32 = 3;
/// The number of events that no partner selects after which the position is stored.
const STORE_EVERY: u64 = 1_000;
/// The number of records that are written together.
const BATCH: usize = 500;
/// The approximate number of bytes of events that are written together.
const BATCH_BYTES: usize = 8 * 1024 * 1024;

/// A record and its delivery, to be stored together.
pub(super) type Pair = (PartnerEventRecord, DeliveryRecord);

/// Why selecting starts over from the stored state.
enum Again {
    /// Definitions changed, or another process owns the partners.
    Changed,
    Failed(String),
    Closed,
}

impl Work {
    /// Selects until the owner ends.
    pub async fn select(self: Arc<Self>) -> Result<(), String> {
        let (mut known, mut ending) = (self.known.subscribe(), self.ending.subscribe());
        let mut moved = 0;
        loop {
            let now_known = Arc::clone(&known.borrow_and_update());
            let selected = tokio::select! {
                () = is_set(&mut ending) => return Ok(()),
                selected = self.select_by(&now_known) => selected,
                changed = known.wait_for(|other| other.generation != now_known.generation) => match changed {
                    Ok(_) => continue,
                    Err(_) => return Ok(()),
                },
            };
            match selected {
                Again::Closed => return Ok(()),
                Again::Failed(error) => return Err(error),
                Again::Changed => {
                    let fresh = self.partners.load().await.map_err(|error| error.to_string())?;
                    // A write of this process that a new definition interrupted may have moved the position after it was read. Only a
                    // position that keeps moving indicates another process.
                    moved = if fresh.generation == now_known.generation { moved + 1 } else { 0 };
                    self.known.send_replace(Arc::new(fresh));
                    if moved > MOVED_MAX {
                        return Err("another process is moving the selection".to_owned());
                    }
                }
            }
        }
    }

    /// Selects by these definitions until they change.
    async fn select_by(&self, known: &Known) -> Again {
        let Some(first) = known.from() else { return std::future::pending().await };
        let stored = match self.partners.selection().await {
            Ok(Some(stored)) if stored.generation == known.generation => stored.position.cast_unsigned(),
            Ok(_) => return Again::Changed,
            Err(error) => return error.into(),
        };
        match self.follow_from(known, stored, first).await {
            Ok(never) => match never {},
            Err(again) => again,
        }
    }

    async fn follow_from(
        &self,
        known: &Known,
        mut stored: SequenceNumber,
        first: SequenceNumber,
    ) -> Result<std::convert::Infallible, Again> {
        let head = self.partners.log.head().await?;
        // After a restore, the log continues below what was selected.
        let begin = stored.max(first).min(head.max(first));
        let mut follower = Follower::new(Arc::clone(&self.partners.log), begin.min(head), Filter::default());
        loop {
            let events = follower.step().await?;
            let mut pairs = Vec::new();
            let mut bytes = 0;
            for event in &events {
                let before = pairs.len();
                self.select_event(known, event, &mut pairs);
                bytes += (pairs.len() - before) * event.data.as_bytes().len();
                if pairs.len() >= BATCH || bytes >= BATCH_BYTES {
                    let next = event.sequence_number + 1;
                    self.store(known, std::mem::take(&mut pairs), stored, next).await?;
                    (stored, bytes) = (next, 0);
                }
            }
            let next = follower.position();
            if !pairs.is_empty() || next >= stored + STORE_EVERY {
                self.store(known, pairs, stored, next).await?;
                stored = next;
            }
        }
    }

    fn select_event(&self, known: &Known, event: &RecordedEvent, pairs: &mut Vec<Pair>) {
        let mut document = None;
        for partner in known.partners.values().filter(|partner| partner.from <= event.sequence_number) {
            let Some(matcher) = &partner.matcher else { continue };
            if matcher.matches(document.get_or_insert_with(|| event_document(event))) {
                pairs.push(self.partners.outgoing(partner, event, None));
            }
        }
    }

    /// Stores the selected events and the position after them.
    async fn store(
        &self,
        known: &Known,
        pairs: Vec<Pair>,
        from: SequenceNumber,
        to: SequenceNumber,
    ) -> Result<(), Again> {
        let as_read = Condition::and([
            Condition::eq("position", from.cast_signed()),
            Condition::eq("generation", known.generation),
        ]);
        let position = [("position", Bson::from(to.cast_signed()))];
        let position =
            RecordChange::set_if(SelectionRecord::COLLECTION, SELECTION, position, Expected::Matching(as_read));
        self.insert(vec![self.fence(), position], pairs).await
    }

    /// Inserts pairs together with other changes. Pairs that are already stored are left unchanged.
    async fn insert(&self, beside: Vec<RecordChange>, mut pairs: Vec<Pair>) -> Result<(), Again> {
        loop {
            let mut changes = beside.clone();
            // Grouped by collection: a store may send adjacent changes of one collection as one command.
            for (event, _) in &pairs {
                changes.push(TypedRecords::replacement(event, Expected::Absent)?);
            }
            for (_, delivery) in &pairs {
                changes.push(TypedRecords::replacement(delivery, Expected::Absent)?);
            }
            match self.partners.records.write(changes).await {
                Ok(_) => break,
                Err(RecordError::NotAsExpected { change, .. }) if change < beside.len() => return Err(Again::Changed),
                Err(RecordError::NotAsExpected { .. } | RecordError::DuplicateKey { .. }) => {
                    let deliveries = TypedRecords::<DeliveryRecord>::declared(Arc::clone(&self.partners.records));
                    let mut missing = Vec::new();
                    for pair in pairs {
                        if deliveries.get(pair.1.key.as_str()).await?.is_none() {
                            missing.push(pair);
                        }
                    }
                    pairs = missing;
                }
                Err(error) => return Err(error.into()),
            }
        }
        let lanes: std::collections::BTreeSet<&str> = pairs.iter().map(|(_, delivery)| &*delivery.lane).collect();
        lanes.into_iter().for_each(|lane| self.partners.wake_of(lane).notify_one());
        Ok(())
    }

    /// Inserts the pairs of a replay, and advances the replay.
    pub async fn insert_replayed(&self, beside: Vec<RecordChange>, pairs: Vec<Pair>) -> Result<bool, String> {
        match self.insert(beside, pairs).await {
            Ok(()) => Ok(true),
            Err(Again::Changed | Again::Closed) => Ok(false),
            Err(Again::Failed(error)) => Err(error),
        }
    }
}

impl TenantPartners {
    /// Builds the record and the delivery of an event of the log for a partner.
    pub(super) fn outgoing(&self, partner: &Partner, event: &RecordedEvent, replay: Option<&str>) -> Pair {
        let (definition, commit, now) = (&partner.definition, &event.commit, self.now());
        let id = definition.id.to_string();
        let data = Document::try_from(event.data.as_raw()).map_or(Bson::Null, Bson::Document);
        let entity = (commit.aggregate.id.to_string(), commit.aggregate.name.to_string());
        let new = NewPartnerEvent {
            direction: EventDirection::Out,
            version: format!("v{}", event.generation),
            event_type: event.event_type.to_string(),
            partner: (id.clone(), definition.name.to_string()),
            entity,
            data,
            by: "annals".to_owned(),
        };
        let record = new.record(now, self.random());
        let event_id = event.id.to_string();
        let key = DeliveryRecord::key_out(&id, &event_id, replay);
        let mut delivery = DeliveryRecord::new(key, record.id, EventDirection::Out, &id, now);
        delivery.entity = format!("{}/{}", commit.aggregate.name, commit.aggregate.id);
        delivery.order = event.sequence_number.cast_signed();
        delivery.replay = replay.map(str::to_owned);
        delivery.source = Some(Source {
            event_id,
            sequence_number: event.sequence_number.cast_signed(),
            version: commit.version.cast_signed(),
            time: date(event.time),
            correlation_id: commit.correlation_id.as_ref().map(ToString::to_string),
        });
        (record, delivery)
    }
}

impl From<RecordError> for Again {
    fn from(error: RecordError) -> Self {
        match error {
            RecordError::Store(StoreError::Closed) => Self::Closed,
            other => Self::Failed(other.to_string()),
        }
    }
}

impl From<ReadError> for Again {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Store(StoreError::Closed) => Self::Closed,
            other => Self::Failed(other.to_string()),
        }
    }
}
