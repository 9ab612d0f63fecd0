//! Blocks, which hold the entries of many commits (`layout/block.rs`). They are read by readers that scan the log, and written by the
//! leader whenever there are 1,000 more commits.
//!
//! INVARIANT: a block equals the entries it covers. It is used only if its last entry exists and agrees at the time of the read. A new
//! leader removes blocks beyond the end of the log before it assigns any number. Whatever has no block is read from the entries, so a
//! missing or unreadable block only costs time.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use annals_core::{ReadError, SequenceNumber};
use annals_system::Instant;
use futures_util::TryStreamExt;
use mongodb::Collection;
use mongodb::bson::{Document, RawDocumentBuf, doc};

use super::Log;
use super::read::beginning;
use crate::layout::block::{self, Block, COMMITS};
use crate::layout::entry::Entry;
use crate::layout::fields::natural;
use crate::layout::names::BLOCKS;
use crate::refused::{code_of, message_of, reading, unreadable};

/// Blocks that all logs of a store cache together: those that readers are currently in.
const KEPT: usize = 32;
/// Blocks that a sequential reader fetches together.
const TOGETHER: usize = 4;
/// Smaller pages and scans are read from the entries: a block is as large as 300 of them.
const EVENTS_MIN: u64 = 100;
/// How long the absence of a block is remembered.
const NONE_TIME: Duration = Duration::from_secs(1);

/// Cached blocks, each with its tenant. The most recently used is last.
#[derive(Default)]
pub(crate) struct Kept(Mutex<VecDeque<(String, Arc<Block>)>>);

impl Kept {
    fn all(&self) -> MutexGuard<'_, VecDeque<(String, Arc<Block>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn holding(&self, tenant: &str, number: SequenceNumber) -> Option<Arc<Block>> {
        let mut all = self.all();
        let at = all.iter().position(|(of, block)| of == tenant && block.holds(number))?;
        let kept = all.remove(at)?;
        let block = kept.1.clone();
        all.push_back(kept);
        Some(block)
    }

    /// Returns whether a block, if there is one, begins at this number: at 0, and where another block ends.
    fn is_begin(&self, tenant: &str, number: SequenceNumber) -> bool {
        number == 0 || self.all().iter().any(|(of, block)| of == tenant && block.end == number)
    }

    fn keep(&self, tenant: &str, blocks: &[Arc<Block>]) {
        let mut all = self.all();
        all.retain(|(of, kept)| of != tenant || blocks.iter().all(|block| block.first != kept.first));
        all.extend(blocks.iter().map(|block| (tenant.to_owned(), block.clone())));
        let over = all.len().saturating_sub(KEPT);
        all.drain(..over);
    }
}

/// The number from which on a log had no blocks, and when that was found.
#[derive(Default)]
pub(super) struct Lacking(Mutex<Option<(SequenceNumber, Instant)>>);

impl Lacking {
    fn is_known(&self, number: SequenceNumber) -> bool {
        let none = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        none.is_some_and(|(from, since)| from <= number && since.elapsed() < NONE_TIME)
    }

    fn note(&self, number: SequenceNumber) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((number, Instant::now()));
    }
}

/// Returns the block that contains this number, if there is one that can be read.
pub(super) async fn holding(log: &Log, number: SequenceNumber) -> Option<Arc<Block>> {
    // An adopted log may have gaps, and has no blocks.
    if log.adopted.there {
        return None;
    }
    let kept = &log.means.blocks;
    if let Some(block) = kept.holding(&log.tenant, number) {
        return Some(block);
    }
    if log.lacking.is_known(number) {
        return None;
    }
    let wanted = if kept.is_begin(&log.tenant, number) { block::from(number, TOGETHER) } else { block::at(number) };
    let found = stored(log, wanted).await.map_err(|error| message_of(&error));
    let read = |found: Vec<RawDocumentBuf>| found.iter().map(|one| block::read(one).map(Arc::new)).collect();
    let blocks: Vec<Arc<Block>> = found.and_then(read).unwrap_or_else(|why| {
        // If the server is gone, the following read of the entries reports it.
        tracing::debug!(database = log.database.name(), why, "{BLOCKS} cannot be read; the entries are");
        Vec::new()
    });
    kept.keep(&log.tenant, &blocks);
    let block = blocks.into_iter().find(|block| block.holds(number));
    if block.is_none() {
        log.lacking.note(number);
    }
    block
}

/// Returns whether so few events are read that blocks are not worth it.
pub(super) fn too_few(events: u64) -> bool {
    events < EVENTS_MIN
}

/// Reads blocks together with their proofs.
async fn stored(log: &Log, wanted: [Document; 4]) -> mongodb::error::Result<Vec<RawDocumentBuf>> {
    log.blocks().aggregate(wanted).with_type::<RawDocumentBuf>().await?.try_collect().await
}

/// Returns the entries of the commits that contain `limit` events from a number on, if blocks cover all of them.
pub(super) async fn entries(log: &Log, from: SequenceNumber, limit: usize) -> Option<Vec<Entry>> {
    let to = from.saturating_add(limit as u64);
    if too_few(limit as u64) || to > log.numbers.seen() {
        return None;
    }
    let mut entries: Vec<Entry> = Vec::with_capacity(limit);
    let mut next = from;
    while next < to {
        let block = holding(log, next).await?;
        let begin = block.entries.partition_point(|entry| entry.first + entry.count <= next);
        let end = block.entries.partition_point(|entry| entry.first < to);
        entries.extend_from_slice(&block.entries[begin..end]);
        next = block.end;
    }
    Some(entries)
}

/// How far the blocks of a log reach, as far as their writer knows, and how large the log must be before the next one is due.
#[derive(Default)]
pub(crate) struct Reach {
    end: Option<SequenceNumber>,
    due: SequenceNumber,
}

impl Log {
    /// Writes one more block if the log has enough commits after the last one, and returns whether it did. Several processes may do so at
    /// once: they write the same content, and all but one are refused.
    ///
    /// # Errors
    /// Errors of the server. Nothing is partially written.
    pub(crate) async fn extend_blocks(&self, reach: &mut Reach) -> Result<bool, ReadError> {
        let seen = self.numbers.seen();
        if self.adopted.there || seen < reach.due.max(COMMITS as u64) {
            return Ok(false);
        }
        let end = match reach.end {
            Some(end) => end,
            None if !self.may_have_blocks().await? => {
                reach.due = SequenceNumber::MAX;
                return Ok(false);
            }
            None => self.end_of_blocks().await?,
        };
        reach.end = Some(end);
        let entries = beginning(self, end, usize::MAX, COMMITS).await?;
        let Some(commits) = block::full(&entries, end) else {
            // At least this many commits are missing. If there are as many as a block holds, there is a gap, which will not close soon.
            let missing = COMMITS - entries.len();
            reach.due = seen + if missing == 0 { COMMITS } else { missing } as u64;
            return Ok(false);
        };
        let entries = &entries[..commits];
        let Some(written) = block::write(entries) else { return Ok(false) };
        let written = written.map_err(|error| unreadable(error.to_string()))?;
        match self.blocks().insert_one(written).await {
            Ok(_) => reach.end = entries.last().map(|last| last.first + last.count),
            // Another process has written it, possibly of another version of Annals with larger or smaller blocks.
            Err(error) if code_of(&error) == Some(DUPLICATE_KEY) => reach.end = None,
            Err(error) => return Err(reading(&error).into()),
        }
        Ok(true)
    }

    /// Removes blocks beyond the end of the log. They remain from an earlier state of a database that was partially restored, and their
    /// commits may get other numbers.
    ///
    /// # Errors
    /// Errors of the server.
    pub(crate) async fn cut_blocks(&self, head: SequenceNumber) -> mongodb::error::Result<()> {
        let blocks = self.blocks();
        let mut removed = blocks.delete_many(doc! { "_id": { "$gte": head as i64 } }).await?.deleted_count;
        // Of the remaining blocks, only the last can end beyond the log.
        let last = blocks.find_one(doc! {}).sort(doc! { "_id": -1 }).projection(doc! { "end": 1 }).await?;
        if let Some(last) = last.filter(|last| natural(last, "end").is_none_or(|end| end > head)) {
            removed += blocks.delete_one(Document::try_from(&*last)?).await?.deleted_count;
        }
        if removed > 0 {
            tracing::warn!(
                database = self.database.name(),
                removed,
                "blocks of {BLOCKS} went beyond the log and were removed"
            );
        }
        Ok(())
    }

    fn blocks(&self) -> Collection<RawDocumentBuf> {
        self.database.collection(BLOCKS)
    }

    /// Returns whether the collection of blocks exists or may be created.
    async fn may_have_blocks(&self) -> Result<bool, ReadError> {
        if self.makes_collections {
            return Ok(true);
        }
        let names = self.database.list_collection_names().filter(doc! { "name": BLOCKS }).await;
        Ok(!names.map_err(|error| reading(&error))?.is_empty())
    }

    async fn has_first_block(&self) -> Result<bool, ReadError> {
        let first = self.blocks().find_one(doc! { "_id": 0_i64 }).projection(doc! { "_id": 1 }).await;
        Ok(first.map_err(|error| reading(&error))?.is_some())
    }

    /// Returns where the last valid block ends. Invalid blocks after it are removed: they remain from an earlier state of this database.
    async fn end_of_blocks(&self) -> Result<SequenceNumber, ReadError> {
        loop {
            // Read first: if the first block exists, the others were written in order after it.
            let begun = self.has_first_block().await?;
            let last = stored(self, block::at(SequenceNumber::MAX)).await.map_err(|error| reading(&error))?;
            let Some(last) = last.first() else { return Ok(0) };
            let why = match block::read(last) {
                Ok(block) if begun => return Ok(block.end),
                // The blocks were dropped while another process was writing them and continued.
                Ok(_) => "those before it are gone".to_owned(),
                Err(why) => why,
            };
            tracing::warn!(database = self.database.name(), why, "a block of {BLOCKS} is removed, and written again");
            // Deletes exactly this document, not another one written in its place.
            let mut this = Document::try_from(&**last).map_err(|error| unreadable(error.to_string()))?;
            this.remove("proof");
            self.blocks().delete_one(this).await.map_err(|error| reading(&error))?;
        }
    }
}

const DUPLICATE_KEY: i32 = 11000;
