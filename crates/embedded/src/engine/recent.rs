//! The newest writes, in memory: what the map's file does not hold yet.

use std::cmp::Ordering;
use std::iter::Peekable;
use std::ops::Bound;
use std::sync::Arc;

use super::view::{Entries, Range};

/// A key.
pub(super) type Key = Arc<[u8]>;
/// A key's value; `None` if the key was removed.
pub(super) type Value = Option<Arc<[u8]>>;
/// One change of a key.
pub(super) type Write = (Key, Value);

/// The approximate memory of an entry beyond its key and value, in bytes.
const ENTRY_BYTES: usize = 64;
/// The most entries of a chunk, and the most bytes of its keys (unless it has a single entry). The first write to a chunk after a copy
/// copies them.
const CHUNK_MAX: (usize, usize) = (128, 16 * 1024);
/// Values up to this length are stored inside their chunk. Longer ones are stored separately, so that copies share them.
const SHORT_MAX: usize = 22;

/// The newest value of each key that was written. A copy is cheap and immutable, so each reader has its own.
///
/// The writes are kept in chunks in key order, which copies share. The first write after a copy copies the list of chunks, and the first
/// write to a chunk copies that chunk. A batch therefore copies what it changes only once.
#[derive(Clone, Default)]
pub(super) struct Recent {
    /// No chunk is empty.
    chunks: Arc<Vec<Arc<Chunk>>>,
    /// Its approximate memory. A key that is written again counts again, as it does in the journal; a write that was undone does not count.
    bytes: usize,
}

/// Adjacent writes, in key order.
#[derive(Clone, Default)]
struct Chunk {
    /// The keys, concatenated.
    keys: Vec<u8>,
    /// The offset at which each key ends.
    ends: Vec<u32>,
    values: Vec<Stored>,
}

/// The last value written to a key.
#[derive(Clone)]
pub(super) enum Stored {
    Removed,
    Short { length: u8, bytes: [u8; SHORT_MAX] },
    Long(Arc<[u8]>),
}

impl From<&Value> for Stored {
    fn from(value: &Value) -> Self {
        match value {
            None => Self::Removed,
            Some(value) if value.len() <= SHORT_MAX => {
                let mut bytes = [0; SHORT_MAX];
                bytes[..value.len()].copy_from_slice(value);
                Self::Short { length: value.len() as u8, bytes }
            }
            Some(value) => Self::Long(value.clone()),
        }
    }
}

impl Stored {
    /// Returns the value, or `None` if the key was removed.
    fn value(&self) -> Option<&[u8]> {
        match self {
            Self::Removed => None,
            Self::Short { length, bytes } => Some(&bytes[..usize::from(*length)]),
            Self::Long(value) => Some(&value[..]),
        }
    }
}

impl Chunk {
    fn len(&self) -> usize {
        self.ends.len()
    }

    fn is_full(&self) -> bool {
        self.len() > CHUNK_MAX.0 || self.len() > 1 && self.keys.len() > CHUNK_MAX.1
    }

    /// Returns the offset at which a key begins, or would begin after the last one.
    fn start(&self, at: usize) -> usize {
        at.checked_sub(1).map_or(0, |before| self.ends[before] as usize)
    }

    fn key(&self, at: usize) -> &[u8] {
        &self.keys[self.start(at)..self.ends[at] as usize]
    }

    fn entry(&self, at: usize) -> (&[u8], Option<&[u8]>) {
        (self.key(at), self.values[at].value())
    }

    /// Returns the number of keys for which `is_before` holds. The keys for which it holds must precede all others.
    fn count(&self, is_before: impl Fn(&[u8]) -> bool) -> usize {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low + (high - low) / 2;
            if is_before(self.key(middle)) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// Returns the place of a key, or the place at which to insert it.
    fn find(&self, key: &[u8]) -> Result<usize, usize> {
        let at = self.count(|known| known < key);
        if at < self.len() && self.key(at) == key { Ok(at) } else { Err(at) }
    }

    fn insert(&mut self, at: usize, key: &[u8], value: Stored) {
        let start = self.start(at);
        self.keys.extend_from_slice(key);
        self.keys[start..].rotate_right(key.len());
        self.ends[at..].iter_mut().for_each(|end| *end += key.len() as u32);
        self.ends.insert(at, (start + key.len()) as u32);
        self.values.insert(at, value);
    }

    fn remove(&mut self, at: usize) {
        let (start, end) = (self.start(at), self.ends.remove(at));
        drop(self.keys.drain(start..end as usize));
        self.ends[at..].iter_mut().for_each(|other| *other -= end - start as u32);
        drop(self.values.remove(at));
    }

    /// Removes and returns the entries from this place on.
    fn split_off(&mut self, at: usize) -> Self {
        let start = self.start(at);
        let ends = self.ends.split_off(at).into_iter().map(|end| end - start as u32).collect();
        Self { keys: self.keys.split_off(start), ends, values: self.values.split_off(at) }
    }
}

/// Returns the place of the chunk that may hold a key. The first chunk also takes keys below all others.
fn chunk_of(chunks: &[Arc<Chunk>], key: &[u8]) -> usize {
    chunks.partition_point(|chunk| chunk.key(0) <= key).saturating_sub(1)
}

/// Returns the approximate memory of one write.
fn bytes_of(key: &[u8], value: Option<&[u8]>) -> usize {
    key.len() + value.map_or(0, <[u8]>::len) + ENTRY_BYTES
}

impl Recent {
    pub(super) fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// Returns the approximate size in memory and in the journal.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Writes to a key. Returns what had been written to it before, if anything.
    pub(super) fn set(&mut self, (key, value): &Write) -> Option<Stored> {
        self.bytes += bytes_of(key, value.as_deref());
        let chunks = Arc::make_mut(&mut self.chunks);
        let place = chunk_of(chunks, key);
        if chunks.is_empty() {
            chunks.push(Arc::default());
        }
        let chunk = Arc::make_mut(&mut chunks[place]);
        match chunk.find(key) {
            Ok(at) => return Some(std::mem::replace(&mut chunk.values[at], value.into())),
            Err(at) => chunk.insert(at, key, value.into()),
        }
        if chunk.is_full() {
            let second = chunk.split_off(chunk.len() / 2);
            chunks.insert(place + 1, Arc::new(second));
        }
        None
    }

    /// Undoes the last write to a key and restores what had been written before.
    pub(super) fn unset(&mut self, key: &[u8], before: Option<Stored>) {
        let chunks = Arc::make_mut(&mut self.chunks);
        let place = chunk_of(chunks, key);
        let Some(chunk) = chunks.get_mut(place).map(Arc::make_mut) else { return };
        let Ok(at) = chunk.find(key) else { return };
        self.bytes -= bytes_of(key, chunk.values[at].value());
        match before {
            Some(value) => chunk.values[at] = value,
            None => chunk.remove(at),
        }
        if chunk.len() == 0 {
            drop(chunks.remove(place));
        }
    }

    /// Returns what was last written to this key, if anything: a value, or its removal.
    pub(super) fn get(&self, key: &[u8]) -> Option<Option<&[u8]>> {
        let chunk = self.chunks.get(chunk_of(&self.chunks, key))?;
        let at = chunk.find(key).ok()?;
        Some(chunk.values[at].value())
    }

    /// Returns all writes, in byte order of the keys.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&[u8], Option<&[u8]>)> {
        self.chunks.iter().flat_map(|chunk| (0..chunk.len()).map(move |at| chunk.entry(at)))
    }

    /// Applies these writes to the entries `below` of a range, lowest key first.
    pub(super) fn ascending_over<'a>(&'a self, range: &Range, below: Entries<'a>) -> Entries<'a> {
        match self.within(range) {
            Some(above) => merged(above, below, Ord::cmp),
            None => below,
        }
    }

    /// Applies these writes to the entries `below` of a range, highest key first.
    pub(super) fn descending_over<'a>(&'a self, range: &Range, below: Entries<'a>) -> Entries<'a> {
        match self.within(range) {
            Some(above) => merged(above.rev(), below, |a, b| b.cmp(a)),
            None => below,
        }
    }

    /// Returns the writes in a range, or `None` if there cannot be any.
    fn within<'a>(
        &'a self,
        range: &Range,
    ) -> Option<impl DoubleEndedIterator<Item = (&'a [u8], Option<&'a [u8]>)> + use<'a>> {
        let (from, to) = range.bounds().filter(|_| !self.is_empty())?;
        let start = self.place(|key| match from {
            Bound::Included(from) => key < from,
            Bound::Excluded(from) => key <= from,
            Bound::Unbounded => false,
        });
        let end = self.place(|key| match to {
            Bound::Included(to) => key <= to,
            Bound::Excluded(to) => key < to,
            Bound::Unbounded => true,
        });
        let chunks = self.chunks.get(start.0..=end.0).unwrap_or_default();
        let last = chunks.len().saturating_sub(1);
        Some(chunks.iter().enumerate().flat_map(move |(n, chunk)| {
            let first = if n == 0 { start.1 } else { 0 };
            let until = if n == last { end.1 } else { chunk.len() };
            (first..until).map(move |at| chunk.entry(at))
        }))
    }

    /// Returns the end of the keys for which `is_before` holds, as a chunk and a place in it. Those keys must precede all others.
    fn place(&self, is_before: impl Fn(&[u8]) -> bool) -> (usize, usize) {
        let place = self.chunks.partition_point(|chunk| is_before(chunk.key(0))).saturating_sub(1);
        (place, self.chunks.get(place).map_or(0, |chunk| chunk.count(is_before)))
    }
}

/// Merges the entries below with the writes above them; both are in the order of `compare`.
fn merged<'a>(
    above: impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)> + 'a,
    below: Entries<'a>,
    compare: impl Fn(&[u8], &[u8]) -> Ordering + 'a,
) -> Entries<'a> {
    let (mut above, mut below) = (above.peekable(), below.peekable());
    Box::new(std::iter::from_fn(move || next(&mut above, &mut below, &compare)))
}

/// Returns the next entry of both. If both have a key, the upper one wins; removed keys are skipped.
fn next<'a>(
    above: &mut Peekable<impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)>>,
    below: &mut Peekable<Entries<'a>>,
    compare: &impl Fn(&[u8], &[u8]) -> Ordering,
) -> Option<<Entries<'a> as Iterator>::Item> {
    loop {
        let Some((key, _)) = above.peek() else { return below.next() };
        let order = match below.peek() {
            Some(Ok((other, _))) => compare(key, other),
            Some(Err(_)) => Ordering::Greater,
            None => Ordering::Less,
        };
        match order {
            Ordering::Greater => return below.next(),
            Ordering::Equal => drop(below.next()),
            Ordering::Less => {}
        }
        if let Some((key, Some(value))) = above.next() {
            return Some(Ok((key.to_vec(), value.to_vec())));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    type Model = BTreeMap<Vec<u8>, Vec<u8>>;

    fn entries<'a>(model: impl Iterator<Item = (&'a Vec<u8>, &'a Vec<u8>)> + 'a) -> Entries<'a> {
        Box::new(model.map(|(key, value)| Ok((key.clone(), value.clone()))))
    }

    fn key(random: &mut fastrand::Rng) -> Vec<u8> {
        (0..random.usize(1..6)).map(|_| random.u8(0..4)).collect()
    }

    fn owned(value: Option<Option<&[u8]>>) -> Option<Option<Vec<u8>>> {
        value.map(|value| value.map(<[u8]>::to_vec))
    }

    fn bound(random: &mut fastrand::Rng) -> Bound<Vec<u8>> {
        match random.u8(0..3) {
            0 => Bound::Unbounded,
            1 => Bound::Included(key(random)),
            _ => Bound::Excluded(key(random)),
        }
    }

    /// What a range holds, in both directions.
    fn within(model: &Model, range: &Range) -> Vec<(Vec<u8>, Vec<u8>)> {
        let Some((from, to)) = range.bounds() else { return Vec::new() };
        model.range::<[u8], _>((from, to)).map(|(key, value)| (key.clone(), value.clone())).collect()
    }

    #[test]
    fn what_is_recent_stands_above_what_is_below_in_both_directions() {
        for seed in 0..2_000 {
            let random = &mut fastrand::Rng::with_seed(seed);
            let below: Model = (0..random.usize(0..20)).map(|_| (key(random), key(random))).collect();
            let (mut recent, mut model) = (Recent::default(), below.clone());
            // Some fill many chunks.
            let writes = [20, 20, 20, 10 * CHUNK_MAX.0][random.usize(0..4)];
            for _ in 0..random.usize(0..writes) {
                let (key, value) = (key(random), random.bool().then(|| key(random).repeat(random.usize(1..9))));
                let known = owned(recent.get(&key));
                let before = recent.set(&(key.clone().into(), value.clone().map(Into::into)));
                assert_eq!(owned(before.as_ref().map(Stored::value)), known, "seed {seed}");
                assert_eq!(owned(recent.get(&key)), Some(value.clone()), "seed {seed}");
                if random.u8(0..4) == 0 {
                    recent.unset(&key, before);
                    continue;
                }
                match value {
                    Some(value) => model.insert(key, value),
                    None => model.remove(&key),
                };
            }
            let range = Range { from: bound(random), to: bound(random) };
            let (wanted, under) = (within(&model, &range), within(&below, &range).into_iter().collect::<Model>());
            let up: Result<Vec<_>, _> = recent.ascending_over(&range, entries(under.iter())).collect();
            let down: Result<Vec<_>, _> = recent.descending_over(&range, entries(under.iter().rev())).collect();
            let (up, mut down) = (up.expect("it is read"), down.expect("it is read"));
            down.reverse();
            assert_eq!((&up, &down), (&wanted, &wanted), "seed {seed}");
        }
    }

    #[test]
    fn a_copy_stays_as_it_is_while_more_is_written_and_undone() {
        // Some keys are so long that fewer of them fill a chunk.
        let number = |n: u32| -> Key { [&n.to_be_bytes()[..], &vec![7; n as usize % 3 * 400][..]].concat().into() };
        let all = |recent: &Recent| -> Vec<_> {
            recent.iter().map(|(key, value)| (key.to_vec(), value.map(<[u8]>::to_vec))).collect()
        };
        let mut recent = Recent::default();
        (0..2_000).for_each(|n| drop(recent.set(&(number(n * 7 % 2_000), Some(number(n))))));
        let copy = recent.clone();
        let before = all(&copy);
        assert!(before.is_sorted_by(|a, b| a.0 < b.0) && before.len() == 2_000);
        for n in 1_000..3_000 {
            let known = recent.set(&(number(n), None));
            assert_eq!(known.is_some(), n < 2_000);
            if n % 2 == 0 {
                recent.unset(&number(n), known);
            }
        }
        assert_eq!(all(&copy), before);
        assert_eq!(all(&recent).iter().filter(|(_, value)| value.is_none()).count(), 1_000);
        assert_eq!(all(&recent).len(), 2_500);
    }

    #[test]
    fn nothing_is_left_where_every_write_is_undone() {
        let mut recent = Recent::default();
        for n in 0..1_000_u16 {
            recent.set(&(n.to_be_bytes().into(), None));
        }
        (0..1_000_u16).rev().for_each(|n| recent.unset(&n.to_be_bytes(), None));
        assert!(recent.is_empty() && recent.get(&[0, 0]).is_none());
    }

    #[test]
    fn an_undone_write_does_not_count_as_memory() {
        let mut recent = Recent::default();
        let write = |value: Option<usize>| -> Write { (Key::from([1, 2]), value.map(|length| vec![0; length].into())) };
        recent.set(&write(Some(10)));
        let counted = recent.bytes();
        for length in [None, Some(3), Some(10), Some(5_000)] {
            let before = recent.set(&write(length));
            assert!(recent.bytes() > counted, "a key that is written again counts again");
            recent.unset(&[1, 2], before);
            assert_eq!(recent.bytes(), counted, "{length:?}");
        }
        recent.unset(&[1, 2], None);
        assert_eq!(recent.bytes(), 0);
    }
}
