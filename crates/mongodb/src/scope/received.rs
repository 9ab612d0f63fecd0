//! Additional data of received events, which is stored separately because the Dolittle Runtime's document of an event cannot hold it.

use std::collections::HashMap;

use annals_core::{ReadError, RecordedEvent, SequenceNumber, TransactionPlace};
use mongodb::bson::{Bson, Document, RawDocument, RawDocumentBuf, doc};
use uuid::Uuid;

use super::ScopeLog;
use crate::layout::adopted::{Reader, find};
use crate::layout::foreign::StoredCommit;
use crate::layout::received::{Arrival, Horizon, horizon};
use crate::refused::{malformed, reading};

/// An event as read from its own document.
pub(super) struct Found {
    pub(super) number: SequenceNumber,
    commit: StoredCommit,
    horizon: Option<Horizon>,
}

impl Found {
    /// # Errors
    /// `malformed_document`.
    pub(super) fn read(log: &ScopeLog, document: &RawDocument) -> Result<Self, ReadError> {
        let broken = |why: String| malformed(&log.database, &log.collection, document, why);
        let event = find(document).map_err(broken)?;
        let commit = log.reader.commit(&event).map_err(broken)?;
        Ok(Self { number: event.number, commit, horizon: horizon(document) })
    }

    /// Returns the size of its data in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.commit.events.iter().map(|event| event.data.as_bytes().len()).sum()
    }
}

/// Adds the additional data of events that this store received. Events that a Runtime received are returned as in their documents.
pub(super) async fn recorded(log: &ScopeLog, mut found: Vec<Found>) -> Result<Vec<RecordedEvent>, ReadError> {
    let numbers = found.iter().filter(|one| one.horizon.is_some()).map(|one| one.number);
    let arrivals = arrivals(log, &numbers.collect::<Vec<_>>()).await?;
    for one in &mut found {
        if let (Some(arrival), Some(horizon)) = (arrivals.get(&one.number), one.horizon) {
            add(&mut one.commit, arrival, &horizon, &log.reader);
        }
    }
    Ok(found.into_iter().flat_map(|one| one.commit.recorded(one.number).events).collect())
}

async fn arrivals(log: &ScopeLog, numbers: &[SequenceNumber]) -> Result<HashMap<SequenceNumber, Arrival>, ReadError> {
    let (Some(first), Some(last)) = (numbers.iter().min(), numbers.iter().max()) else { return Ok(HashMap::new()) };
    let filter: Document = if last - first + 1 == numbers.len() as u64 {
        doc! { "_id": { "$gte": *first as i64, "$lte": *last as i64 } }
    } else {
        doc! { "_id": { "$in": numbers.iter().map(|number| Bson::Int64(*number as i64)).collect::<Vec<_>>() } }
    };
    let kept = log.database.collection::<RawDocumentBuf>(&log.arrivals);
    let most = u32::try_from(numbers.len() + 1).unwrap_or(u32::MAX);
    let mut kept = kept.find(filter).batch_size(most).await.map_err(|error| reading(&error))?;
    let mut arrivals = HashMap::new();
    while kept.advance().await.map_err(|error| reading(&error))? {
        let document = kept.current();
        let arrival = Arrival::read(document).map_err(|why| malformed(&log.database, &log.arrivals, document, why))?;
        arrivals.insert(arrival.number as u64, arrival);
    }
    Ok(arrivals)
}

fn add(commit: &mut StoredCommit, arrival: &Arrival, horizon: &Horizon, reader: &Reader) {
    let Arrival { number, place, count, names, .. } = arrival;
    commit.info.received = Some(arrival.received_from(horizon));
    if let Some(correlation) = &names.correlation {
        commit.info.correlation_id = Some(correlation.as_str().into());
    }
    if *count > 1 {
        let first: Uuid = reader.commit_id((*number as u64).saturating_sub((*place).into()));
        commit.info.transaction = Some(TransactionPlace { id: first, place: *place, count: *count });
    }
    if let Some(name) = &names.event_type {
        commit.events.iter_mut().for_each(|event| event.event_type = name.as_str().into());
    }
}
