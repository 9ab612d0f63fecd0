//! Scanning: index → frames → events that are lent from one buffer.

use std::ops::ControlFlow;

use annals_core::{ScanQuery, SequenceNumber, StoreError, Visit};

use super::core::Core;
use super::read::Candidates;
use super::segment::runs;
use super::stats::give_way;
use super::turns::Turns;
use crate::turn::Turn;

/// The scan yields to other tasks after this many bytes; each read counts as [`READ_BYTES`] more.
const TURN_BYTES: u64 = 512 * 1024;
const READ_BYTES: u64 = 16 * 1024;

/// Visits the events below `head`, the log's head, that the query admits. Returns the number to resume from if `visit` breaks, else the
/// end.
pub(super) async fn scan(
    core: &Core,
    query: &ScanQuery,
    head: SequenceNumber,
    visit: &mut Visit<'_>,
) -> Result<ControlFlow<SequenceNumber, SequenceNumber>, StoreError> {
    // The view is read after the head, so it holds at least as much.
    let view = core.view();
    let (from, end) = (query.from, query.to.min(head));
    let mut buffer = Vec::new();
    let (mut turn, mut began) = (0, Turn::begin());
    // As a page does that may examine much and find little.
    let mut turns = query.filter.may_span_events().then(|| Turns::of_read(core));
    let start = view.position_of(from).unwrap_or(0);
    for segment in view.segments[start..].iter().take_while(|segment| segment.first < end) {
        let first = segment.index.ordinal_of(from)?.unwrap_or(0);
        // What follows the range is not looked up, so that a short one costs little where no commit has the terms.
        let last = segment.index.ordinal_of(end)?.map_or(0, |ordinal| ordinal + 1);
        let mut candidates = Candidates::new(core.key, segment, &query.filter, first..last);
        while let Some(group) = candidates.next_group(usize::MAX)? {
            let mut entries = segment.index.entries(&group)?;
            entries.truncate(entries.partition_point(|entry| entry.sequence_number < end));
            if entries.is_empty() {
                return Ok(ControlFlow::Continue(end));
            }
            for (n, run) in runs(&entries).enumerate() {
                if n == 1 {
                    segment.at.announce(&entries);
                }
                let mut next = end;
                let visited = segment.lend(run, &mut buffer, |event| {
                    let n = event.sequence_number;
                    if n < from || n >= end || !query.filter.admits_ref(&event) {
                        return ControlFlow::Continue(());
                    }
                    next = n + 1;
                    visit(event)
                })?;
                if visited.is_break() {
                    return Ok(ControlFlow::Break(next));
                }
                turn += buffer.len() as u64 + READ_BYTES;
                if turn >= TURN_BYTES || began.is_over() {
                    pause(&mut turns).await;
                    (turn, began) = (0, Turn::begin());
                }
            }
        }
        // Many terms of which no commit has any take their time as well.
        if began.is_over() {
            pause(&mut turns).await;
            (turn, began) = (0, Turn::begin());
        }
    }
    Ok(ControlFlow::Continue(end))
}

async fn pause(turns: &mut Option<Turns<'_>>) {
    match turns {
        Some(turns) => turns.end().await,
        None => give_way().await,
    }
}
