//! A scan of the log: while events are visited, the next commits are being fetched.
//!
//! ```text
//! head ─▶ entries, of blocks or in the head's session ─▶ commits, some fetches at once ─▶ visit, in order
//! ```

use std::ops::ControlFlow;
use std::pin::pin;

use annals_core::{Filter, ReadError, ScanQuery, SequenceNumber, StoreError, Visit};
use futures_util::stream::{StreamExt, TryStreamExt, try_unfold};

use super::Log;
use super::entries::Entries;
use super::fetch::{Pace, fetch, fetch_next};
use super::read;
use crate::layout::entry::Entry;
use crate::layout::foreign::StoredCommit;

/// Fetches in flight at once, one of which is being visited.
const FETCHES: usize = 3;

pub(super) async fn scan(log: &Log, query: ScanQuery, visit: &mut Visit<'_>) -> Result<SequenceNumber, ReadError> {
    let ScanQuery { from, to, filter } = query;
    let answers = &log.means.answers;
    let mut session = answers.of(read::session(log)).await?;
    let end = to.min(answers.of(log.read_log_head_in(&mut session)).await?);
    if from >= end {
        return Ok(end);
    }
    let start = answers.of(read::start(log, from, &mut session)).await?;
    let Some(itself) = log.itself.upgrade() else { return Err(StoreError::Closed.into()) };
    let pace = Pace::default();
    let chunks = try_unfold(Entries::new(itself, &filter, (start, end), session), |mut entries| {
        let most = pace.commits();
        async move {
            let some = entries.some(most).await?;
            Ok::<_, ReadError>((!some.is_empty()).then_some((some, entries)))
        }
    });
    let fetched = chunks.map_ok(|chunk| async {
        let commits = fetch(log, &chunk, &pace).await?;
        Ok::<_, ReadError>((chunk, commits))
    });
    let mut fetched = pin!(fetched.try_buffered(FETCHES).fuse());
    // An adopted log may have gaps from before its adoption.
    let gap_free = filter.is_all() && !log.adopted.there;
    let mut visitor = Visitor { next: start, from, end, filter: &filter, gap_free, visit };
    // The time of the visits is not limited; each chunk has the timeout of a page.
    while let Some((chunk, commits)) = answers.of(fetched.try_next()).await? {
        let mut rest = &chunk[commits.len()..];
        if let ControlFlow::Break(next) = visitor.take(chunk.iter().zip(commits))? {
            return Ok(next);
        }
        // These commits are much larger than earlier ones; the rest of the chunk is fetched after them.
        while !rest.is_empty() {
            let found = answers.of(fetch_next(log, &mut rest, &pace)).await?;
            if let ControlFlow::Break(next) = visitor.take(found)? {
                return Ok(next);
            }
        }
    }
    let next = visitor.next;
    if gap_free && next < end { Err(read::behind(next, end)) } else { Ok(end) }
}

/// Passes the requested events to the visitor.
struct Visitor<'a, 'v> {
    /// The sequence number after the last commit.
    next: SequenceNumber,
    from: SequenceNumber,
    end: SequenceNumber,
    filter: &'a Filter,
    gap_free: bool,
    visit: &'a mut Visit<'v>,
}

impl Visitor<'_, '_> {
    /// Visits the events of these commits. If the visitor stops, returns where to resume.
    fn take<'e>(
        &mut self,
        commits: impl Iterator<Item = (&'e Entry, StoredCommit)>,
    ) -> Result<ControlFlow<SequenceNumber>, ReadError> {
        for (entry, commit) in commits {
            if self.gap_free && entry.first != self.next {
                return Err(read::behind(self.next, self.end));
            }
            self.next = entry.first + entry.count;
            for event in commit.recorded(entry.first).events {
                let number = event.sequence_number;
                let asked_for = number >= self.from && number < self.end;
                if asked_for && self.filter.admits(&event) && event.lend(&mut *self.visit).is_break() {
                    return Ok(ControlFlow::Break(number + 1));
                }
            }
        }
        Ok(ControlFlow::Continue(()))
    }
}
