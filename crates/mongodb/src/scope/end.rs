//! Determines how far the log of a scope reaches. Other software writes it, so it is polled while there are waiters.
//!
//! INVARIANT: once a head was announced, no event appears with a lower number. Writers assign each number after the previous one, so the
//! numbers below the end at the time of opening are final, and a number missing there was deleted. Of later events, the head covers those
//! before the first gap, and stays there until the missing number appears.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use annals_core::{ReadError, SequenceNumber, StoreError};
use annals_system::sleep;
use mongodb::Database;
use mongodb::bson::{Document, RawDocumentBuf, doc};
use tokio::sync::watch;

use super::ScopeLog;
use crate::layout::fields::natural;
use crate::layout::writer::decimal;
use crate::refused::{deleted, reading};

/// Polling interval while there are waiters.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// The end of the log as this process knows it.
pub(super) struct End {
    /// The highest head seen; `None` once the store is closed.
    head: watch::Sender<Option<SequenceNumber>>,
    /// The number that is missing before later ones.
    hole: Mutex<Option<SequenceNumber>>,
    /// Held by the waiter that polls on behalf of all waiters.
    looking: tokio::sync::Mutex<()>,
}

impl End {
    pub(super) fn at(head: SequenceNumber) -> Self {
        Self { head: watch::Sender::new(Some(head)), hole: Mutex::default(), looking: tokio::sync::Mutex::default() }
    }

    /// Returns the highest head seen; 0 once closed.
    pub(super) fn seen(&self) -> SequenceNumber {
        self.head.borrow().unwrap_or(0)
    }

    pub(super) fn hole(&self) -> Option<SequenceNumber> {
        *self.hole.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn close(&self) {
        self.head.send_replace(None);
    }

    /// Announces that this process wrote the numbers from `first` to `next`. If the head is below `first`, a later poll determines what is
    /// between.
    pub(super) fn received(&self, first: SequenceNumber, next: SequenceNumber) {
        if self.seen() == first {
            self.publish(next);
        }
    }

    fn publish(&self, head: SequenceNumber) {
        self.head.send_if_modified(|known| match known {
            Some(known) if *known < head => {
                *known = head;
                true
            }
            _ => false,
        });
    }
}

/// Returns one past the number of the last event.
pub(super) async fn last(database: &Database, collection: &str) -> mongodb::error::Result<SequenceNumber> {
    let events = database.collection::<RawDocumentBuf>(collection);
    let last = events.find_one(doc! {}).sort(doc! { "_id": -1 }).projection(doc! { "_id": 1 }).await?;
    // An `_id` that is not a number is reported when the event is read.
    Ok(last.and_then(|last| natural(&last, "_id")).map_or(0, |number| number + 1))
}

pub(super) async fn read(log: &ScopeLog) -> Result<SequenceNumber, ReadError> {
    let asked = |error: mongodb::error::Error| ReadError::from(reading(&error));
    // Read before the poll, so that heads announced in the meantime are not mistaken for new.
    let known = log.end.seen();
    if let Some(hole) = log.end.hole()
        && hole == known
        && count(log, known, known + 1).await.map_err(asked)? == 0
    {
        return Ok(known);
    }
    let end = last(&log.database, &log.collection).await.map_err(asked)?;
    if end < known {
        return Err(deleted(&log.database, &log.collection, format_args!("event {}", known - 1)).into());
    }
    let whole = whole(log, known, end).await.map_err(asked)?;
    note_hole(log, (whole < end).then_some(whole));
    log.end.publish(whole);
    Ok(whole)
}

/// Returns the number up to which nothing is missing between these two.
async fn whole(log: &ScopeLog, known: SequenceNumber, end: SequenceNumber) -> mongodb::error::Result<SequenceNumber> {
    let (mut low, mut high) = (known, end);
    if count(log, low, high).await? == high - low {
        return Ok(high);
    }
    // Nothing is missing below `low`, and something is missing below `high`.
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if count(log, low, middle).await? == middle - low { low = middle } else { high = middle }
    }
    Ok(low)
}

async fn count(log: &ScopeLog, from: SequenceNumber, to: SequenceNumber) -> mongodb::error::Result<u64> {
    if from >= to {
        return Ok(0);
    }
    let events = log.database.collection::<Document>(&log.collection);
    events.count_documents(doc! { "_id": { "$gte": decimal(from), "$lt": decimal(to) } }).await
}

fn note_hole(log: &ScopeLog, hole: Option<SequenceNumber>) {
    let before = {
        let mut known = log.end.hole.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *known, hole)
    };
    if let Some(number) = hole.filter(|_| before != hole) {
        tracing::warn!(tenant = log.tenant, scope = log.scope, "{}", log.hole_sentence(number));
    }
}

pub(super) async fn wait_past(log: &ScopeLog, head: SequenceNumber) -> Result<SequenceNumber, ReadError> {
    let mut announced = log.end.head.subscribe();
    loop {
        match *announced.borrow_and_update() {
            None => return Err(StoreError::Closed.into()),
            Some(known) if known > head => return Ok(known),
            Some(_) => {}
        }
        tokio::select! {
            _ = announced.changed() => {}
            found = look(log, head) => return found,
        }
    }
}

/// Polls until the head is past `head`, as the only waiter that does.
async fn look(log: &ScopeLog, head: SequenceNumber) -> Result<SequenceNumber, ReadError> {
    let _turn = log.end.looking.lock().await;
    loop {
        let known = log.means.answers.of(read(log)).await?;
        if known > head {
            return Ok(known);
        }
        sleep(LOOK_EVERY).await;
    }
}
