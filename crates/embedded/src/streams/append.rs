//! Appends verdicts, inside one engine write: checked against the result of earlier writes, and undone as a whole if refused.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;

use annals_core::{Appended, Code, Included, Invalid, StoreError, StreamError, StreamPosition, Verdicts};

use super::block::{BLOCK, Placed, encode_entries, encode_positions};
use super::keys::{self, NO_PARTITION, PartitionNumber, StreamNumber, seal, unseal};
use super::meta::{Meta, damage};
use super::reader::{Reader, entries, last_postings, partition, positions};
use crate::engine::{Change, View};
use crate::options::{Options, SeededBug};
use crate::varint::{put, take};

/// The scope to which verdicts are appended, and how.
pub(super) struct Place {
    pub(super) scope: String,
    pub(super) incarnation: u32,
    pub(super) options: Options,
}

/// Checks verdicts against the state of the stream, and stores them if they are new.
pub(super) fn append(change: &mut Change, place: &Place, verdicts: &Verdicts) -> Result<Appended, StreamError> {
    let key = keys::stream(&place.scope, &verdicts.stream);
    let meta = match Meta::load(change, &key)? {
        Some(meta) => meta,
        None => Meta {
            number: next_number(change)?,
            head: 0,
            progress: 0,
            partitions: NO_PARTITION,
            incarnation: place.incarnation,
            incarnation_start: 0,
        },
    };
    if verdicts.from == meta.progress {
        return store(change, place, &key, meta, verdicts);
    }
    if verdicts.to > meta.progress {
        return Err(StreamError::Moved { from: verdicts.from, progress: meta.progress });
    }
    repeat(change, place, meta, verdicts)
}

/// Returns the number that the next new stream gets. [`store`] then consumes it.
pub(super) fn next_number(view: &dyn View) -> Result<StreamNumber, StoreError> {
    let key = keys::next_number();
    let Some(sealed) = view.get(&key)? else { return Ok(0) };
    let number = unseal(&key, &sealed).and_then(|mut bytes| take(&mut bytes)?.try_into().ok());
    number.ok_or_else(|| damage(&key, "the next stream's number"))
}

/// Compares events that already have verdicts with the given ones. Returns the original outcome if they are the same.
fn repeat(change: &Change, place: &Place, meta: Meta, verdicts: &Verdicts) -> Result<Appended, StreamError> {
    let mut reader = Reader::new(change, meta);
    let first = reader.position_of(verdicts.from)?;
    let mut given = verdicts.included.iter();
    let mut position = first;
    if place.options.has(SeededBug::TakeAnyVerdictsForARepeat) {
        return Ok(Appended { positions: first..first + verdicts.included.len() as u64, duplicate: true });
    }
    loop {
        let known = if position < meta.head { Some(reader.at(position)?) } else { None };
        let known = known.filter(|known| known.sequence_number < verdicts.to);
        let differs = match (known, given.next()) {
            (None, None) => return Ok(Appended { positions: first..position, duplicate: true }),
            (Some(known), None) => Some(known.sequence_number),
            (None, Some(given)) => Some(given.sequence_number),
            (Some(known), Some(given)) if known.sequence_number != given.sequence_number => {
                Some(known.sequence_number.min(given.sequence_number))
            }
            (Some(known), Some(given)) => {
                (reader.text(known.partition)? != given.partition).then_some(given.sequence_number)
            }
        };
        if let Some(sequence_number) = differs {
            return Err(StreamError::VerdictsDiffer { sequence_number });
        }
        position += 1;
    }
}

fn store(
    change: &mut Change,
    place: &Place,
    key: &[u8],
    mut meta: Meta,
    verdicts: &Verdicts,
) -> Result<Appended, StreamError> {
    if change.get(key)?.is_none() {
        let counter = keys::next_number();
        let mut next = Vec::new();
        put(&mut next, u64::from(meta.number) + 1);
        change.put(&counter, &seal(&counter, next));
    }
    let placed = numbered(change, &mut meta, &verdicts.included)?;
    let first = meta.head;
    put_entries(change, &meta, &placed)?;
    put_postings(change, place, &meta, &placed)?;
    meta.head += placed.len() as u64;
    if !place.options.has(SeededBug::MoveProgressOnItsOwn) {
        meta.progress = verdicts.to;
    }
    change.put(key, &meta.encode(key));
    Ok(Appended { positions: first..meta.head, duplicate: false })
}

/// Implements [`SeededBug::MoveProgressOnItsOwn`]: a separate write that only advances the progress.
pub(super) fn move_progress(change: &mut Change, place: &Place, verdicts: &Verdicts) -> Result<(), StreamError> {
    let key = keys::stream(&place.scope, &verdicts.stream);
    if let Some(mut meta) = Meta::load(change, &key)? {
        meta.progress = meta.progress.max(verdicts.to);
        change.put(&key, &meta.encode(&key));
    }
    Ok(())
}

/// Assigns each event the number of its partition; a new partition gets the next number.
fn numbered(change: &mut Change, meta: &mut Meta, included: &[Included]) -> Result<Vec<Placed>, StreamError> {
    let mut numbers: HashMap<&str, PartitionNumber> = HashMap::new();
    let mut placed = Vec::with_capacity(included.len());
    for (n, Included { sequence_number, partition: text }) in included.iter().enumerate() {
        let partition = match text {
            None => NO_PARTITION,
            Some(text) => match numbers.get(&**text) {
                Some(number) => *number,
                None => {
                    let number = match partition(change, meta, text)? {
                        Some(number) => number,
                        None => new_partition(change, meta, text).ok_or_else(|| no_number_left(n, text))?,
                    };
                    numbers.insert(text, number);
                    number
                }
            },
        };
        placed.push(Placed { sequence_number: *sequence_number, partition });
    }
    Ok(placed)
}

/// Assigns the next number to a partition, or returns `None` if all numbers are used up.
fn new_partition(change: &mut Change, meta: &mut Meta, text: &str) -> Option<PartitionNumber> {
    let number = meta.partitions.checked_add(1)?;
    meta.partitions = number;
    let by_text = keys::partition(meta.number, text);
    let mut value = Vec::new();
    put(&mut value, u64::from(number));
    change.put(&by_text, &seal(&by_text, value));
    let by_number = keys::partition_text(meta.number, number);
    change.put(&by_number, &seal(&by_number, text.as_bytes().to_vec()));
    Some(number)
}

fn no_number_left(n: usize, partition: &str) -> Invalid {
    let message = format!(
        "{partition:?} would be a new partition, and the stream has 4,294,967,295, which is the most; divide its events among fewer \
         partitions, or give the filter a stream of its own"
    );
    Invalid::new(Code::InvalidVerdicts, format!("included[{n}].partition"), message)
}

/// Fills the last block of entries and starts new ones.
fn put_entries(change: &mut Change, meta: &Meta, placed: &[Placed]) -> Result<(), StoreError> {
    let mut rest = placed;
    let mut at = meta.head;
    while !rest.is_empty() {
        let (number, filled) = (at / BLOCK as u64, (at % BLOCK as u64) as usize);
        let mut block = if filled == 0 { Vec::new() } else { entries(change, meta, number)? };
        let key = keys::block(meta.number, number);
        let ascends = block.last().is_none_or(|last| last.sequence_number < rest[0].sequence_number);
        if block.len() != filled || !ascends {
            return Err(damage(&key, "a block of entries"));
        }
        let (now, later) = rest.split_at(rest.len().min(BLOCK - filled));
        block.extend_from_slice(now);
        change.put(&key, &seal(&key, encode_entries(&block)));
        at += now.len() as u64;
        rest = later;
    }
    Ok(())
}

/// Adds the positions of new entries to those of their partitions.
fn put_postings(change: &mut Change, place: &Place, meta: &Meta, placed: &[Placed]) -> Result<(), StoreError> {
    let mut new: BTreeMap<PartitionNumber, Vec<StreamPosition>> = BTreeMap::new();
    for (position, entry) in (meta.head..).zip(placed) {
        new.entry(entry.partition).or_default().push(position);
    }
    for (partition, new) in new {
        let end = Bound::Excluded(keys::postings_from(meta.number, partition, u64::MAX));
        let mut rest = &new[..];
        if let Some((key, value)) = last_postings(change, meta, partition, end)? {
            let mut last = positions(&key, &value)?;
            if last.last().is_none_or(|last| *last >= meta.head) {
                return Err(damage(&key, "a block of positions"));
            }
            if place.options.has(SeededBug::OverwriteFullPostings) && last.len() == BLOCK {
                last.clear();
            }
            let (now, later) = rest.split_at(rest.len().min(BLOCK.saturating_sub(last.len())));
            if !now.is_empty() {
                last.extend_from_slice(now);
                change.put(&key, &seal(&key, encode_positions(&last)));
            }
            rest = later;
        }
        for chunk in rest.chunks(BLOCK) {
            let key = keys::postings_from(meta.number, partition, chunk[0]);
            change.put(&key, &seal(&key, encode_positions(chunk)));
        }
    }
    Ok(())
}
