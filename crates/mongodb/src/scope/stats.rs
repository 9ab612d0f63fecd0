//! Computes statistics of a scope's log by reading all of it.

use std::collections::BTreeSet;

use annals_core::{LogStats, ReadError, limits};
use mongodb::bson::doc;

use super::ScopeLog;
use super::received::{Found, recorded};
use crate::layout::writer::decimal;
use crate::refused::reading;

/// Maximum number of events between two progress reports.
const TOLD_EVERY: usize = 1_000;

pub(super) async fn count(log: &ScopeLog, progress: &mut (dyn FnMut(u64, u64) + Send)) -> Result<LogStats, ReadError> {
    let head = log.read_head().await?;
    let mut stats = LogStats { events: head, ..LogStats::default() };
    let mut aggregates = BTreeSet::new();
    let all = log.all();
    let found = all.find(doc! { "_id": { "$lt": decimal(head) } }).sort(doc! { "_id": 1 });
    let mut found = found.await.map_err(|error| reading(&error))?;
    let (mut some, mut bytes) = (Vec::new(), 0);
    loop {
        let more = found.advance().await.map_err(|error| reading(&error))?;
        if more {
            let size = found.current().as_bytes().len();
            stats.bytes += size as u64;
            bytes += size;
            some.push(Found::read(log, found.current())?);
        }
        if more && some.len() < TOLD_EVERY && bytes < limits::PAGE_BYTES_MAX {
            continue;
        }
        bytes = 0;
        for event in recorded(log, std::mem::take(&mut some)).await? {
            stats.commits += 1;
            stats.oldest = Some(stats.oldest.map_or(event.time, |oldest| oldest.min(event.time)));
            stats.newest = Some(stats.newest.map_or(event.time, |newest| newest.max(event.time)));
            *stats.events_by_type.entry(event.event_type).or_default() += 1;
            let aggregate = &event.commit.aggregate;
            if aggregate.event_source().is_none() && aggregates.insert(aggregate.clone()) {
                *stats.aggregates_by_name.entry(aggregate.name.clone()).or_default() += 1;
            }
        }
        if !more {
            break;
        }
        progress(stats.commits, head);
    }
    stats.aggregates = aggregates.len() as u64;
    progress(head, head);
    Ok(stats)
}
