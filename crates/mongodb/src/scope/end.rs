//! How far the log of a scope reaches. Other software writes it, so it is looked at again and again while somebody waits.
//!
//! Invariant: a head that was told is never passed by an event that comes later with a lower number. Whoever writes gives a number only
//! behind the one before, so what is there when the log is opened is all that comes up to its end, and a number that is missing there
//! was deleted. Of what comes later the head covers what has no hole; at a hole it stands still until the number is there.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use annals_core::{ReadError, SequenceNumber, StoreError};
use mongodb::Database;
use mongodb::bson::{Document, RawDocumentBuf, doc};
use tokio::sync::watch;

use super::ScopeLog;
use crate::layout::fields::natural;
use crate::layout::writer::decimal;
use crate::refused::{deleted, reading};

/// How often it is looked at while somebody waits.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// What this process knows of the end.
pub(super) struct End {
    /// The highest head seen; none once the store is closed.
    head: watch::Sender<Option<SequenceNumber>>,
    /// The number that is missing before later ones.
    hole: Mutex<Option<SequenceNumber>>,
    /// One of those who wait looks for all.
    looking: tokio::sync::Mutex<()>,
}

impl End {
    pub(super) fn at(head: SequenceNumber) -> Self {
        Self { head: watch::Sender::new(Some(head)), hole: Mutex::default(), looking: tokio::sync::Mutex::default() }
    }

    /// The highest head seen; 0 once closed.
    pub(super) fn seen(&self) -> SequenceNumber {
        self.head.borrow().unwrap_or(0)
    }

    pub(super) fn hole(&self) -> Option<SequenceNumber> {
        *self.hole.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn close(&self) {
        self.head.send_replace(None);
    }

    /// Wakes readers where the numbers from `first` to `next` were written by this process. Where the head stands before them, a look finds
    /// out what is between.
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

/// One past the number of the last event.
pub(super) async fn last(database: &Database, collection: &str) -> mongodb::error::Result<SequenceNumber> {
    let events = database.collection::<RawDocumentBuf>(collection);
    let last = events.find_one(doc! {}).sort(doc! { "_id": -1 }).projection(doc! { "_id": 1 }).await?;
    // What is no number is told by whoever reads the event.
    Ok(last.and_then(|last| natural(&last, "_id")).map_or(0, |number| number + 1))
}

pub(super) async fn read(log: &ScopeLog) -> Result<SequenceNumber, ReadError> {
    let asked = |error: mongodb::error::Error| ReadError::from(reading(&error));
    // Before the look, so that what others see meanwhile is no news here.
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

/// The number up to which nothing is missing between these two.
async fn whole(log: &ScopeLog, known: SequenceNumber, end: SequenceNumber) -> mongodb::error::Result<SequenceNumber> {
    let (mut low, mut high) = (known, end);
    if count(log, low, high).await? == high - low {
        return Ok(high);
    }
    // Nothing is missing below `low`, and something below `high`.
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

/// Looks until the head is past `head`, while nobody else does.
async fn look(log: &ScopeLog, head: SequenceNumber) -> Result<SequenceNumber, ReadError> {
    let _turn = log.end.looking.lock().await;
    loop {
        let known = log.means.answers.of(read(log)).await?;
        if known > head {
            return Ok(known);
        }
        log.means.timer.pause(LOOK_EVERY).await;
    }
}
