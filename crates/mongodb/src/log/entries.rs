//! Iterates over the entries of a range of the log, in order: from blocks as far as there are any, then one by one.

use std::sync::Arc;

use annals_core::{Filter, ReadError, SequenceNumber};
use mongodb::bson::{Document, RawDocumentBuf, doc};
use mongodb::{ClientSession, SessionCursor};

use super::{Log, blocks, read};
use crate::layout::block::Block;
use crate::layout::entry::{self, Entry};
use crate::layout::names::ENTRIES;
use crate::refused::{reading, unreadable};

/// Entries in a batch of the cursor.
const BATCH: u32 = 4000;

/// The entries in a range of the log that may match a filter. The range starts where a commit begins.
pub(super) struct Entries {
    log: Arc<Log>,
    /// The condition on entries; empty if all match.
    passing: Document,
    next: SequenceNumber,
    end: SequenceNumber,
    source: Source,
    session: ClientSession,
}

enum Source {
    Blocks,
    /// A block, and the index of its next entry.
    Block(Arc<Block>, usize),
    Cursor(Box<SessionCursor<RawDocumentBuf>>),
    Stored,
}

impl Entries {
    /// Creates the iterator from `start`, where a commit begins, to `end`. The session has seen that the log reaches `end`.
    pub(super) fn new(
        log: Arc<Log>,
        filter: &Filter,
        (start, end): (SequenceNumber, SequenceNumber),
        session: ClientSession,
    ) -> Self {
        let few = blocks::too_few(end.saturating_sub(start));
        let source = if filter.is_all() && !few { Source::Blocks } else { Source::Stored };
        Self { log, passing: read::passing(filter), next: start, end, source, session }
    }

    /// Returns at most `most` further entries; none after the last.
    pub(super) async fn some(&mut self, most: usize) -> Result<Vec<Entry>, ReadError> {
        if self.next >= self.end {
            return Ok(Vec::new());
        }
        loop {
            match &mut self.source {
                Source::Blocks => {
                    let block = blocks::holding(&self.log, self.next).await;
                    self.source = block.map_or(Source::Stored, |block| {
                        let at = block.entries.partition_point(|entry| entry.first < self.next);
                        Source::Block(block, at)
                    });
                }
                Source::Block(block, at) => {
                    let some: Vec<Entry> = block.entries[*at..]
                        .iter()
                        .take(most)
                        .take_while(|entry| entry.first < self.end)
                        .cloned()
                        .collect();
                    *at += some.len();
                    match some.last() {
                        Some(last) => self.next = last.first + last.count,
                        None => {
                            self.source = Source::Blocks;
                            continue;
                        }
                    }
                    return Ok(some);
                }
                Source::Cursor(cursor) => return fill(cursor, &mut self.session, most).await,
                Source::Stored => self.source = Source::Cursor(Box::new(self.open().await?)),
            }
        }
    }

    async fn open(&mut self) -> Result<SessionCursor<RawDocumentBuf>, ReadError> {
        let mut wanted = self.passing.clone();
        wanted.insert("_id", doc! { "$gte": self.next as i64, "$lt": self.end as i64 });
        let entries = self.log.database.collection::<RawDocumentBuf>(ENTRIES);
        let find = entries.find(wanted).sort(doc! { "_id": 1 }).projection(entry::places()).batch_size(BATCH);
        find.session(&mut self.session).await.map_err(|error| reading(&error).into())
    }
}

async fn fill(
    cursor: &mut SessionCursor<RawDocumentBuf>,
    session: &mut ClientSession,
    most: usize,
) -> Result<Vec<Entry>, ReadError> {
    let mut some: Vec<Entry> = Vec::with_capacity(most);
    while some.len() < most && cursor.advance(session).await.map_err(|error| reading(&error))? {
        some.push(entry::read_behind(cursor.current(), some.last()).map_err(unreadable)?);
    }
    Ok(some)
}
