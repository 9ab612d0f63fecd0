//! Cuts streams after a restore: entries of an earlier incarnation, from the fork on, refer to events that the log does not have.
//!
//! This happens when the store is opened, for all streams of a scope in one write, before any request about them is answered. Otherwise a
//! store that is opened and then restored again would cut them at a later fork.

use std::collections::BTreeSet;
use std::ops::Bound;

use annals_core::{SequenceNumber, StoreError, StreamPosition};

use super::block::{BLOCK, encode_entries, encode_positions};
use super::keys::{self, seal};
use super::meta::Meta;
use super::reader::{Reader, entries, last_postings, positions};
use crate::engine::{Change, Range, View};

/// A stream's key and state.
pub(super) type Kept = (Vec<u8>, Meta);

/// Where an incarnation of a log began.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fork {
    pub(super) incarnation: u32,
    /// The first sequence number that belongs to the incarnation.
    pub(super) start: SequenceNumber,
}

/// Returns all streams of a scope.
pub(super) fn all(view: &dyn View, scope: &str) -> Result<Vec<Kept>, StoreError> {
    let mut found = Vec::new();
    for entry in view.ascending(&Range::prefix(&keys::scope(scope)))? {
        let (key, value) = entry?;
        let meta = Meta::decode(&key, &value)?;
        found.push((key, meta));
    }
    Ok(found)
}

/// Returns, for each stream of a scope, how many entries it has and how many remain if the log is cut at a number. Opening the store will
/// cut them accordingly.
pub(crate) fn would_stay(
    view: &dyn View,
    scope: &str,
    at: SequenceNumber,
) -> Result<Vec<(String, u64, u64)>, StoreError> {
    let streams = all(view, scope)?.into_iter();
    let stays = streams.map(|(key, meta)| Ok((super::name(&key), meta.head, Reader::new(view, meta).position_of(at)?)));
    stays.collect()
}

/// Cuts a stream of an earlier incarnation at the fork, and assigns it to the current one.
pub(super) fn cut(change: &mut Change, (key, mut meta): Kept, fork: Fork) -> Result<(), StoreError> {
    let head = Reader::new(change, meta).position_of(fork.start)?;
    cut_entries(change, &meta, head)?;
    meta.head = head;
    meta.progress = meta.progress.min(fork.start);
    (meta.incarnation, meta.incarnation_start) = (fork.incarnation, head);
    change.put(&key, &meta.encode(&key));
    Ok(())
}

/// Removes the entries from position `head` on, and their positions from those of their partitions.
fn cut_entries(change: &mut Change, meta: &Meta, head: StreamPosition) -> Result<(), StoreError> {
    let mut partitions = BTreeSet::new();
    for number in head / BLOCK as u64..meta.head.div_ceil(BLOCK as u64) {
        let mut block = entries(change, meta, number)?;
        let stays = head.saturating_sub(number * BLOCK as u64).min(BLOCK as u64) as usize;
        partitions.extend(block.iter().skip(stays).map(|entry| entry.partition));
        block.truncate(stays);
        let key = keys::block(meta.number, number);
        match block.is_empty() {
            true => change.remove(&key),
            false => change.put(&key, &seal(&key, encode_entries(&block))),
        }
    }
    for partition in partitions {
        let end = Bound::Excluded(keys::postings_from(meta.number, partition, u64::MAX));
        while let Some((key, value)) = last_postings(change, meta, partition, end.clone())? {
            let mut block = positions(&key, &value)?;
            let all = block.len();
            block.retain(|position| *position < head);
            match block.len() {
                0 => change.remove(&key),
                stays if stays < all => {
                    change.put(&key, &seal(&key, encode_positions(&block)));
                    break;
                }
                _ => break,
            }
        }
    }
    Ok(())
}
