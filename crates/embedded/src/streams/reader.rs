//! Reads one stream in one state of the engine.

use std::collections::HashMap;
use std::ops::{Bound, Range};

use annals_core::{
    ByteString, Partitions, SequenceNumber, StoreError, StreamEntry, StreamPage, StreamPosition, StreamQuery,
};

use super::block::{BLOCK, Placed, decode_entries, decode_positions};
use super::keys::{self, NO_PARTITION, PartitionNumber, unseal};
use super::meta::{Meta, damage};
use crate::engine::{self, View};
use crate::varint::take;

/// A key of the engine with its value.
type KeyValue = (Vec<u8>, Vec<u8>);

/// Reads a stream. It caches one block, and the texts of the partitions that it has encountered.
pub(super) struct Reader<'v> {
    view: &'v dyn View,
    meta: Meta,
    block: Option<(u64, Vec<Placed>)>,
    texts: HashMap<PartitionNumber, ByteString>,
}

impl<'v> Reader<'v> {
    pub(super) fn new(view: &'v dyn View, meta: Meta) -> Self {
        Self { view, meta, block: None, texts: HashMap::new() }
    }

    /// Returns the entry at a position below the head.
    pub(super) fn at(&mut self, position: StreamPosition) -> Result<Placed, StoreError> {
        let number = position / BLOCK as u64;
        if self.block.as_ref().is_none_or(|(at, _)| *at != number) {
            self.block = Some((number, entries(self.view, &self.meta, number)?));
        }
        let entry = self.block.as_ref().and_then(|(_, entries)| entries.get((position % BLOCK as u64) as usize));
        entry.copied().ok_or_else(|| damage(&keys::block(self.meta.number, number), "a block of entries"))
    }

    /// Returns the text of a partition, or `None` for [`NO_PARTITION`].
    pub(super) fn text(&mut self, partition: PartitionNumber) -> Result<Option<ByteString>, StoreError> {
        if partition == NO_PARTITION {
            return Ok(None);
        }
        if let Some(text) = self.texts.get(&partition) {
            return Ok(Some(text.clone()));
        }
        let key = keys::partition_text(self.meta.number, partition);
        let sealed = self.view.get(&key)?;
        let text = sealed.as_deref().and_then(|sealed| ByteString::try_from(unseal(&key, sealed)?).ok());
        let text = text.ok_or_else(|| damage(&key, "a partition's name"))?;
        self.texts.insert(partition, text.clone());
        Ok(Some(text))
    }

    /// Returns the first position whose event has this sequence number or a higher one, or the head if there is none.
    pub(super) fn position_of(&mut self, number: SequenceNumber) -> Result<StreamPosition, StoreError> {
        let (mut low, mut high) = (0, self.meta.head);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.at(middle)?.sequence_number < number {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low)
    }

    /// Returns the page that a query requests.
    pub(super) fn page(mut self, query: &StreamQuery) -> Result<StreamPage, StoreError> {
        let range = query.range(self.meta.head);
        let positions = match &query.partitions {
            Partitions::All => range.clone().take(query.limit).collect(),
            Partitions::Without => self.positions(NO_PARTITION, &range, query.limit)?,
            Partitions::One(text) => match partition(self.view, &self.meta, text)? {
                Some(partition) => self.positions(partition, &range, query.limit)?,
                None => Vec::new(),
            },
        };
        let next = match positions.last() {
            Some(last) if positions.len() == query.limit => last + 1,
            _ => range.end,
        };
        let mut entries = Vec::with_capacity(positions.len());
        for position in positions {
            let Placed { sequence_number, partition } = self.at(position)?;
            entries.push(StreamEntry { position, sequence_number, partition: self.text(partition)? });
        }
        Ok(StreamPage { entries, next, head: self.meta.head })
    }

    /// Returns the first positions of a partition within a range.
    fn positions(
        &self,
        partition: PartitionNumber,
        range: &Range<StreamPosition>,
        limit: usize,
    ) -> Result<Vec<StreamPosition>, StoreError> {
        let from = keys::postings_from(self.meta.number, partition, range.start);
        // The block that begins at or before the range may extend into it.
        let first = last_postings(self.view, &self.meta, partition, Bound::Included(from.clone()))?;
        let from = first.map_or(from, |(key, _)| key);
        let to = Bound::Excluded(keys::postings_from(self.meta.number, partition, range.end));
        let mut found = Vec::new();
        for block in self.view.ascending(&engine::Range { from: Bound::Included(from), to })? {
            let (key, value) = block?;
            let positions = positions(&key, &value)?;
            let wanted = positions.into_iter().filter(|position| range.contains(position));
            found.extend(wanted.take(limit - found.len()));
            if found.len() == limit {
                break;
            }
        }
        Ok(found)
    }
}

/// Reads a block of entries.
pub(super) fn entries(view: &dyn View, meta: &Meta, number: u64) -> Result<Vec<Placed>, StoreError> {
    let key = keys::block(meta.number, number);
    let sealed = view.get(&key)?;
    let entries = sealed.as_deref().and_then(|sealed| decode_entries(unseal(&key, sealed)?));
    entries.ok_or_else(|| damage(&key, "a block of entries"))
}

/// Decodes a block of a partition's positions.
pub(super) fn positions(key: &[u8], sealed: &[u8]) -> Result<Vec<StreamPosition>, StoreError> {
    let positions = unseal(key, sealed).and_then(decode_positions);
    positions.ok_or_else(|| damage(key, "a block of positions"))
}

/// Returns the last block of a partition's positions whose key is within a bound.
pub(super) fn last_postings(
    view: &dyn View,
    meta: &Meta,
    partition: PartitionNumber,
    to: Bound<Vec<u8>>,
) -> Result<Option<KeyValue>, StoreError> {
    let from = Bound::Included(keys::postings(meta.number, partition));
    view.descending(&engine::Range { from, to })?.next().transpose()
}

/// Returns the number of a partition, or `None` if it has no entry.
pub(super) fn partition(view: &dyn View, meta: &Meta, text: &str) -> Result<Option<PartitionNumber>, StoreError> {
    let key = keys::partition(meta.number, text);
    let Some(sealed) = view.get(&key)? else { return Ok(None) };
    let number = unseal(&key, &sealed).and_then(|mut bytes| take(&mut bytes)?.try_into().ok());
    number.map(Some).ok_or_else(|| damage(&key, "a partition's number"))
}
