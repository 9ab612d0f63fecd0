//! Checks the invariants at the top of `streams.rs` against everything that is stored.
//!
//! Only one block and the name of one partition are held at a time, so memory does not depend on how much is stored. The check of a
//! stream ends at its first fault.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use annals_core::StoreError;

use super::block::BLOCK;
use super::cut::{self, Kept};
use super::keys::{self, NO_PARTITION, PartitionNumber};
use super::meta::{Meta, damage};
use super::reader::{Reader, entries, partition, positions};
use crate::engine::{Range, View, after_prefix};

/// The amounts that were found.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct StreamsFound {
    pub(crate) streams: u64,
    pub(crate) entries: u64,
}

/// The store to which the streams belong.
pub(crate) struct Owner<'a> {
    /// The store's incarnation, if it is known.
    pub(crate) incarnation: Option<u32>,
    /// The number of events in each log.
    pub(crate) heads: &'a BTreeMap<String, u64>,
}

/// Checks all streams of a map and reports faults by scope. What a restore left behind is not a fault: it is cut when the store is
/// opened.
///
/// # Errors
/// Why the map cannot be read.
pub(crate) fn check(
    view: &dyn View,
    owner: &Owner<'_>,
    fault: &mut dyn FnMut(Option<&str>, String),
) -> Result<StreamsFound, StoreError> {
    let mut found = StreamsFound::default();
    let mut numbers = BTreeSet::new();
    for scope in scopes(view)? {
        let head = owner.heads.get(&scope).copied().unwrap_or(0);
        for error in faults(view, &scope) {
            fault(Some(&scope), error.to_string());
        }
        for (key, meta) in cut::all(view, &scope).unwrap_or_default() {
            found.streams += 1;
            found.entries += meta.head;
            numbers.insert(meta.number);
            let name = super::name(&key);
            match owner.incarnation {
                Some(now) if meta.incarnation > now => {
                    let of = meta.incarnation;
                    fault(Some(&scope), format!("stream {name} has incarnation {of}, but the store has {now}"));
                }
                Some(now) if meta.incarnation == now && meta.progress > head => {
                    let to = meta.progress;
                    fault(
                        Some(&scope),
                        format!("stream {name} was evaluated up to {to}, but the log has {head} events"),
                    );
                }
                _ => {}
            }
        }
    }
    strangers(view, &numbers, fault)?;
    Ok(found)
}

/// Returns the scopes that have streams.
fn scopes(view: &dyn View) -> Result<Vec<String>, StoreError> {
    let mut found = Vec::new();
    let mut range = Range::prefix(keys::ALL_STREAMS);
    while let Some((key, _)) = view.ascending(&range)?.next().transpose()? {
        let scope = key[keys::ALL_STREAMS.len()..].split(|byte| *byte == 0).next().unwrap_or_default();
        let scope = String::from_utf8_lossy(scope).into_owned();
        let after = after_prefix(&keys::scope(&scope)).filter(|after| *after > key);
        let Some(after) = after else { return Err(damage(&key, "the name of a stream")) };
        range.from = Bound::Included(after);
        found.push(scope);
    }
    Ok(found)
}

/// Checks that nothing is stored for streams that do not exist, and that no number will be assigned twice.
fn strangers(
    view: &dyn View,
    numbers: &BTreeSet<u32>,
    fault: &mut dyn FnMut(Option<&str>, String),
) -> Result<(), StoreError> {
    let next = super::append::next_number(view);
    if next.as_ref().is_ok_and(|next| numbers.last().is_some_and(|last| last >= next)) {
        fault(None, "the number for the next stream is already assigned".to_owned());
    }
    if let Err(error) = next {
        fault(None, error.to_string());
    }
    for kind in keys::KINDS_OF_A_STREAM {
        let mut range = Range::prefix(&kind);
        while let Some((key, _)) = view.ascending(&range)?.next().transpose()? {
            let number = key.get(2..6).and_then(|bytes| bytes.try_into().ok()).map(u32::from_be_bytes);
            let after = number.and_then(|number| after_prefix(&[&kind[..], &number.to_be_bytes()].concat()));
            if number.is_none_or(|number| !numbers.contains(&number)) {
                fault(None, format!("key {} belongs to a missing stream", key.escape_ascii()));
            }
            let Some(after) = after else { break };
            range.from = Bound::Included(after);
        }
    }
    for range in keys::unused() {
        if let Some((key, _)) = view.ascending(&range)?.next().transpose()? {
            fault(None, format!("key {} belongs to no stream", key.escape_ascii()));
        }
    }
    Ok(())
}

/// Returns the faults of a scope's streams; empty if there are none.
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
        faults.extend(checked.and_then(|()| check_stream(view, &(key, meta))).err());
    }
    faults
}

fn check_stream(view: &dyn View, (key, meta): &Kept) -> Result<(), StoreError> {
    let last = check_entries(view, meta)?;
    if last.is_some_and(|last| last >= meta.progress) || meta.incarnation_start > meta.head {
        return Err(damage(key, "the state of a stream"));
    }
    check_names(view, meta)?;
    let mut places = 0;
    for partition in NO_PARTITION..=meta.partitions {
        places += check_postings(view, meta, partition)?;
    }
    // Each position was found to belong to an entry of its partition, so as many positions as entries means all of them.
    if places == meta.head { Ok(()) } else { Err(damage(key, "the number of positions of a stream")) }
}

/// Checks that every block but the last is full, that sequence numbers ascend, and that nothing follows the head. Returns the last
/// sequence number.
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
        Some((key, _)) => Err(damage(&key, "a block of entries after the head")),
        None => Ok(last),
    }
}

/// Checks that each partition has a name of its own, and each name the number of its partition.
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

/// Checks that the positions of a partition ascend, and that each belongs to one of its entries. Returns their number.
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
