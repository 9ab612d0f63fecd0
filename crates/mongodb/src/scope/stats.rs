//! What the log of a scope holds, counted by reading all of it.

use std::collections::BTreeSet;

use annals_core::{LogStats, ReadError};
use mongodb::bson::doc;

use super::ScopeLog;
use crate::layout::writer::decimal;
use crate::refused::reading;

/// Events between two reports.
const TOLD_EVERY: u64 = 1_000;

pub(super) async fn count(log: &ScopeLog, progress: &mut (dyn FnMut(u64, u64) + Send)) -> Result<LogStats, ReadError> {
    let head = log.read_head().await?;
    let mut stats = LogStats { events: head, ..LogStats::default() };
    let mut aggregates = BTreeSet::new();
    let all = log.all();
    let found = all.find(doc! { "_id": { "$lt": decimal(head) } }).sort(doc! { "_id": 1 });
    let mut found = found.await.map_err(|error| reading(&error))?;
    while found.advance().await.map_err(|error| reading(&error))? {
        let (_, commit) = log.read_one(found.current())?;
        stats.commits += 1;
        stats.bytes += found.current().as_bytes().len() as u64;
        for event in &commit.events {
            *stats.events_by_type.entry(event.event_type.clone()).or_default() += 1;
            stats.oldest = Some(stats.oldest.map_or(event.time, |oldest| oldest.min(event.time)));
            stats.newest = Some(stats.newest.map_or(event.time, |newest| newest.max(event.time)));
        }
        let aggregate = commit.info.aggregate;
        if aggregate.event_source().is_none() && aggregates.insert((aggregate.name.clone(), aggregate.id)) {
            *stats.aggregates_by_name.entry(aggregate.name).or_default() += 1;
        }
        if stats.commits.is_multiple_of(TOLD_EVERY) {
            progress(stats.commits, head);
        }
    }
    stats.aggregates = aggregates.len() as u64;
    progress(head, head);
    Ok(stats)
}
