//! Statistics of a log: aggregates from the indexes, types and times from the commits. A closed segment never changes, so it is read once
//! in the lifetime of the process.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::{Arc, Mutex, PoisonError};

use annals_core::{ByteString, LogStats, StoreError, Timestamp};

use super::core::Core;
use super::segment::{Segment, View, runs};
use crate::record::RECEIVED;
use crate::turn::Turn;

/// Commits are looked up in groups of this size.
const GROUP: u32 = 64;
/// The most aggregate keys held at once, over all segments.
const KEYS_HELD_MAX: usize = 256 * 1024;

/// The statistics of closed segments, by segment number.
pub(super) type Known = Mutex<BTreeMap<u64, Arc<Part>>>;

/// The statistics of one segment.
#[derive(Default)]
pub(super) struct Part {
    commits: u64,
    events: u64,
    bytes: u64,
    types: BTreeMap<ByteString, u64>,
    times: Option<(Timestamp, Timestamp)>,
}

/// Counts the content of the durable commits. `progress` counts events.
pub(super) async fn stats(
    core: &Core,
    known: &Known,
    progress: &mut (dyn FnMut(u64, u64) + Send),
) -> Result<LogStats, StoreError> {
    let head = core.head();
    let view = core.view();
    let mut stats = LogStats::default();
    let mut times: Option<(Timestamp, Timestamp)> = None;
    for segment in &view.segments {
        let part = part(segment, known, &mut |events| progress((stats.events + events).min(head), head)).await?;
        stats.segments += u64::from(part.commits > 0);
        stats.commits += part.commits;
        stats.events += part.events;
        stats.bytes += part.bytes;
        for (name, count) in &part.types {
            *stats.events_by_type.entry(name.clone()).or_default() += count;
        }
        if let Some((oldest, newest)) = part.times {
            times = spanning(times, oldest, newest);
        }
    }
    (stats.oldest, stats.newest) = times.unzip();
    aggregates(&view, &mut stats).await?;
    Ok(stats)
}

fn spanning(
    times: Option<(Timestamp, Timestamp)>,
    oldest: Timestamp,
    newest: Timestamp,
) -> Option<(Timestamp, Timestamp)> {
    let (first, last) = times.unwrap_or((oldest, newest));
    Some((first.min(oldest), last.max(newest)))
}

async fn part(
    segment: &Segment,
    known: &Known,
    progress: &mut (dyn FnMut(u64) + Send),
) -> Result<Arc<Part>, StoreError> {
    let number = segment.at.number;
    let found = known.lock().unwrap_or_else(PoisonError::into_inner).get(&number).cloned();
    if let Some(part) = found {
        return Ok(part);
    }
    let mut part = Part::default();
    let commits = segment.index.commits();
    let mut turn = Turn::begin();
    for from in (0..commits).step_by(GROUP as usize) {
        let ordinals: Vec<u32> = (from..commits.min(from + GROUP)).collect();
        count(segment, &ordinals, &mut part, &mut turn).await?;
        progress(part.events);
    }
    let part = Arc::new(part);
    if segment.memory().is_none() {
        known.lock().unwrap_or_else(PoisonError::into_inner).insert(number, part.clone());
    }
    Ok(part)
}

/// Counts the content of these commits. It yields by time rather than by group: a group of large commits takes a thousand times as long
/// as one of small ones.
async fn count(segment: &Segment, ordinals: &[u32], part: &mut Part, turn: &mut Turn) -> Result<(), StoreError> {
    let entries = segment.index.entries(ordinals)?;
    for run in runs(&entries) {
        for (record, entry) in segment.read(run)?.zip(run) {
            let events = record?.commit.events;
            part.commits += u64::from(!events.is_empty());
            part.events += events.len() as u64;
            part.bytes += u64::from(entry.length).next_multiple_of(8);
            for event in events {
                part.times = spanning(part.times, event.time, event.time);
                match part.types.get_mut(&event.event_type) {
                    Some(count) => *count += 1,
                    None => {
                        // A copy, because a slice would keep the commit's buffer alive.
                        part.types.insert(ByteString::from(event.event_type.to_string()), 1);
                    }
                }
            }
        }
        if turn.is_over() {
            give_way().await;
            *turn = Turn::begin();
        }
    }
    Ok(())
}

/// Counts distinct aggregates by merging the sorted lists of all segments.
async fn aggregates(view: &View, stats: &mut LogStats) -> Result<(), StoreError> {
    let page = (KEYS_HELD_MAX / view.segments.len().max(1)).clamp(16, 1_000);
    let mut lists: Vec<std::vec::IntoIter<(ByteString, ByteString)>> = Vec::new();
    let mut heap = BinaryHeap::new();
    for (n, segment) in view.segments.iter().enumerate() {
        lists.push(segment.index.aggregates(b"", b"", page)?.into_iter());
        heap.extend(lists[n].next().map(|(key, _)| Reverse((key, n))));
    }
    let mut last: Option<ByteString> = None;
    let mut turns = 0u32;
    while let Some(Reverse((key, n))) = heap.pop() {
        if lists[n].as_slice().is_empty() {
            lists[n] = view.segments[n].index.aggregates(b"", key.as_bytes(), page)?.into_iter();
            give_way().await;
        }
        heap.extend(lists[n].next().map(|(key, _)| Reverse((key, n))));
        turns = turns.wrapping_add(1);
        if turns.is_multiple_of(4_096) {
            give_way().await;
        }
        if last.as_ref() == Some(&key) {
            continue;
        }
        let name = key.split('\0').next().unwrap_or_default();
        if name == RECEIVED {
            last = Some(key);
            continue;
        }
        stats.aggregates += 1;
        match stats.aggregates_by_name.get_mut(name) {
            Some(count) => *count += 1,
            None => {
                stats.aggregates_by_name.insert(ByteString::from(name.to_owned()), 1);
            }
        }
        last = Some(key);
    }
    Ok(())
}

/// Yields to the other tasks of the runtime, whichever runtime it is.
pub(super) async fn give_way() {
    let mut given = false;
    std::future::poll_fn(|context| {
        if std::mem::replace(&mut given, true) {
            return std::task::Poll::Ready(());
        }
        context.waker().wake_by_ref();
        std::task::Poll::Pending
    })
    .await;
}
