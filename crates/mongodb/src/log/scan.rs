//! A scan of the log: while events are visited, the next commits are on their way.
//!
//! ```text
//! head ─▶ entries, in the head's session ─▶ commits, some fetches at once ─▶ visit, in order
//! ```

use std::pin::pin;

use annals_core::{ReadError, ScanQuery, SequenceNumber, Visit};
use futures_util::stream::{StreamExt, TryStreamExt, try_unfold};
use mongodb::bson::{RawDocumentBuf, doc};

use super::Log;
use super::fetch::{Pace, fetch};
use super::read;
use crate::layout::entry::{self, Entry};
use crate::layout::names::ENTRIES;
use crate::refused::{reading, unreadable};

/// Entries of a batch of the cursor.
const ENTRIES_BATCH: u32 = 4000;
/// Fetches under way at once, one of which is being visited.
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
    let mut wanted = read::passing(&filter);
    wanted.insert("_id", doc! { "$gte": start as i64, "$lt": end as i64 });
    let entries = log.database.collection::<RawDocumentBuf>(ENTRIES);
    let find = entries.find(wanted).sort(doc! { "_id": 1 }).projection(entry::places());
    let find = find.batch_size(ENTRIES_BATCH).session(&mut session);
    let cursor = find.await.map_err(|error| reading(&error))?;
    let pace = Pace::default();
    let chunks = try_unfold((cursor, session), |(mut cursor, mut session)| {
        let most = pace.commits();
        async move {
            let mut chunk: Vec<Entry> = Vec::with_capacity(most);
            while chunk.len() < most && cursor.advance(&mut session).await.map_err(|error| reading(&error))? {
                chunk.push(entry::read_behind(cursor.current(), chunk.last()).map_err(unreadable)?);
            }
            Ok::<_, ReadError>((!chunk.is_empty()).then_some((chunk, (cursor, session))))
        }
    });
    let fetched = chunks.map_ok(|chunk| async {
        let commits = fetch(log, &chunk, &pace).await?;
        Ok::<_, ReadError>((chunk, commits))
    });
    let mut fetched = pin!(fetched.try_buffered(FETCHES).fuse());
    let mut next = start;
    // A log that was adopted has the holes that it had.
    let gap_free = filter.is_all() && !log.adopted.there;
    // What is visited takes its own time; each piece is waited for as a page is.
    while let Some((chunk, commits)) = answers.of(fetched.try_next()).await? {
        for (entry, commit) in chunk.iter().zip(commits) {
            if gap_free && entry.first != next {
                return Err(read::behind(next, end));
            }
            next = entry.first + entry.count;
            for event in commit.recorded(entry.first).events {
                let asked_for = event.sequence_number >= from && event.sequence_number < end;
                if asked_for && filter.admits(&event) && event.lend(&mut *visit).is_break() {
                    return Ok(event.sequence_number + 1);
                }
            }
        }
    }
    if gap_free && next < end { Err(read::behind(next, end)) } else { Ok(end) }
}
