//! Whether streams are as they must be: the invariants at the top of `streams.rs`, read anew from everything that is stored.
//!
//! It holds one block and one partition's name at a time, so its memory does not depend on what is stored. The first fault of a stream
//! ends the check of that stream.

use std::collections::BTreeSet;
use std::ops::Bound;

use annals_core::StoreError;

use super::block::BLOCK;
use super::cut::{self, Kept};
use super::keys::{self, NO_PARTITION, PartitionNumber};
use super::meta::{Meta, damage};
use super::reader::{Reader, entries, partition, positions};
use crate::engine::{Range, View};

/// What is wrong with a scope's streams; nothing when they are as they must be.
pub(super) fn faults(view: &dyn View, scope: &str) -> Vec<StoreError> {
    let kept = match cut::all(view, scope) {
        Ok(kept) => kept,
        Err(fault) => return vec![fault],
    };
    let mut numbers = BTreeSet::new();
    let mut faults = Vec::new();
    for (key, meta) in kept {
        let twice = !numbers.insert(meta.number);
        let checked = if twice { Err(damage(&key, "the number of a stream, which another has too,")) } else { Ok(()) };
        faults.extend(checked.and_then(|()| check(view, &(key, meta))).err());
    }
    faults
}

fn check(view: &dyn View, (key, meta): &Kept) -> Result<(), StoreError> {
    let last = check_entries(view, meta)?;
    if last.is_some_and(|last| last >= meta.progress) || meta.incarnation_start > meta.head {
        return Err(damage(key, "the state of a stream"));
    }
    check_names(view, meta)?;
    let mut places = 0;
    for partition in NO_PARTITION..=meta.partitions {
        places += check_postings(view, meta, partition)?;
    }
    // Each place was found to be that of an entry of its partition, so as many places as entries are all of them.
    if places == meta.head { Ok(()) } else { Err(damage(key, "the number of positions of a stream")) }
}

/// Every block is full but the last, everything ascends, and nothing stands behind the head. The last sequence number.
fn check_entries(view: &dyn View, meta: &Meta) -> Result<Option<u64>, StoreError> {
    let mut last = None;
    let blocks = meta.head.div_ceil(BLOCK as u64);
    for number in 0..blocks {
        let block = entries(view, meta, number)?;
        let due = (meta.head - number * BLOCK as u64).min(BLOCK as u64) as usize;
        let ascends =
            block.iter().all(|entry| last.replace(entry.sequence_number).is_none_or(|l| l < entry.sequence_number));
        if block.len() != due || !ascends || block.iter().any(|entry| entry.partition > meta.partitions) {
            return Err(damage(&keys::block(meta.number, number), "a block of entries"));
        }
    }
    let from = Bound::Included(keys::block(meta.number, blocks));
    let to = Bound::Included(keys::block(meta.number, u64::MAX));
    match view.ascending(&Range { from, to })?.next().transpose()? {
        Some((key, _)) => Err(damage(&key, "a block of entries behind the head")),
        None => Ok(last),
    }
}

/// Each partition has a name of its own, and each name the number that has it.
fn check_names(view: &dyn View, meta: &Meta) -> Result<(), StoreError> {
    let mut names = 0;
    for entry in view.ascending(&Range::prefix(&keys::partition(meta.number, "")))? {
        let (key, _) = entry?;
        let text = std::str::from_utf8(&key[keys::partition(meta.number, "").len()..]);
        let text = text.map_err(|_| damage(&key, "a partition's name"))?;
        let number = partition(view, meta, text)?.filter(|number| (1..=meta.partitions).contains(number));
        let number = number.ok_or_else(|| damage(&key, "a partition's number"))?;
        if Reader::new(view, *meta).text(number)?.as_deref() != Some(text) {
            return Err(damage(&key, "a partition's number"));
        }
        names += 1;
    }
    match names == u64::from(meta.partitions) {
        true => Ok(()),
        false => Err(damage(&keys::partition(meta.number, ""), "the number of a stream's partitions")),
    }
}

/// The positions of a partition ascend, and each is that of one of its entries. Their number.
fn check_postings(view: &dyn View, meta: &Meta, partition: PartitionNumber) -> Result<u64, StoreError> {
    let mut reader = Reader::new(view, *meta);
    let (mut places, mut next) = (0, 0);
    for entry in view.ascending(&Range::prefix(&keys::postings(meta.number, partition)))? {
        let (key, value) = entry?;
        let block = positions(&key, &value)?;
        if block.first().is_none_or(|first| keys::postings_from(meta.number, partition, *first) != key) {
            return Err(damage(&key, "a block of positions"));
        }
        for position in block {
            if !(next..meta.head).contains(&position) || reader.at(position)?.partition != partition {
                return Err(damage(&key, "a block of positions"));
            }
            next = position + 1;
            places += 1;
        }
    }
    Ok(places)
}
