//! The newest writes, in memory: what the map in the file does not hold yet.

use std::cmp::Ordering;
use std::iter::Peekable;
use std::ops::Bound;
use std::sync::Arc;

use super::view::{Entries, Range};

/// A key.
pub(super) type Key = Arc<[u8]>;
/// A key's value; none where the key was removed.
pub(super) type Value = Option<Arc<[u8]>>;
/// One change of a key.
pub(super) type Write = (Key, Value);

/// What an entry takes in memory beside its key and value, about: two counted allocations and its place in a chunk.
const ENTRY_BYTES: usize = 96;
/// Most writes of a chunk. A longer one makes a search no cheaper, and the first write to it after a copy dearer.
const CHUNK_MAX: usize = 64;

/// The newest value of each key that was written. A copy costs nothing and stays as it is, so each reader has its own.
///
/// The writes are in chunks, in the order of their keys, which copies share. The first write after a copy copies the list of chunks, and
/// the first write to a chunk copies that chunk, so a batch copies what it changes once.
#[derive(Clone, Default)]
pub(super) struct Recent {
    /// None is empty.
    chunks: Arc<Vec<Chunk>>,
    /// About what it takes in memory; keys that are written again count again, as they do in the journal.
    bytes: usize,
}

/// Writes that follow each other, in the order of their keys.
#[derive(Clone)]
struct Chunk {
    /// No key of it is lower, and every key of the chunks before is.
    from: Key,
    writes: Arc<Vec<Write>>,
}

impl Chunk {
    /// A chunk of writes, at least one of them.
    fn of(writes: Vec<Write>) -> Self {
        Self { from: writes[0].0.clone(), writes: Arc::new(writes) }
    }
}

/// The place of the chunk that has a key, if one has it. The first takes keys below all others.
fn chunk_of(chunks: &[Chunk], key: &[u8]) -> usize {
    chunks.partition_point(|chunk| *chunk.from <= *key).saturating_sub(1)
}

/// The place of a key in a chunk, or where it would stand.
fn place_of(writes: &[Write], key: &[u8]) -> Result<usize, usize> {
    writes.binary_search_by(|(known, _)| (**known).cmp(key))
}

impl Recent {
    pub(super) fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// About what it takes in memory, and in the journal.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Writes to a key. Answers what had been written to it, if anything.
    pub(super) fn set(&mut self, (key, value): Write) -> Option<Value> {
        self.bytes += key.len() + value.as_ref().map_or(0, |value| value.len()) + ENTRY_BYTES;
        let chunks = Arc::make_mut(&mut self.chunks);
        if chunks.is_empty() {
            chunks.push(Chunk::of(vec![(key, value)]));
            return None;
        }
        let chunk = chunk_of(chunks, &key);
        let found = &mut chunks[chunk];
        let writes = Arc::make_mut(&mut found.writes);
        let at = match place_of(writes, &key) {
            Ok(at) => return Some(std::mem::replace(&mut writes[at].1, value)),
            Err(at) => at,
        };
        if at == 0 {
            found.from = key.clone();
        }
        writes.insert(at, (key, value));
        if writes.len() > CHUNK_MAX {
            let second = Chunk::of(writes.split_off(CHUNK_MAX / 2));
            chunks.insert(chunk + 1, second);
        }
        None
    }

    /// Undoes the last write to a key, before which this had been written to it.
    pub(super) fn unset(&mut self, key: &[u8], before: Option<Value>) {
        let chunks = Arc::make_mut(&mut self.chunks);
        let chunk = chunk_of(chunks, key);
        let Some(found) = chunks.get_mut(chunk) else { return };
        let writes = Arc::make_mut(&mut found.writes);
        let Ok(at) = place_of(writes, key) else { return };
        match before {
            Some(value) => writes[at].1 = value,
            None => drop(writes.remove(at)),
        }
        if writes.is_empty() {
            drop(chunks.remove(chunk));
        }
    }

    /// What was written last to this key, if anything was: a value, or that it was removed.
    pub(super) fn get(&self, key: &[u8]) -> Option<&Value> {
        let writes = &self.chunks.get(chunk_of(&self.chunks, key))?.writes;
        let at = place_of(writes, key).ok()?;
        Some(&writes[at].1)
    }

    /// All that was written, in the order of the keys' bytes.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&Key, &Value)> {
        self.chunks.iter().flat_map(|chunk| chunk.writes.iter()).map(|write| (&write.0, &write.1))
    }

    /// The entries of a range as this leaves those below it, lowest key first.
    pub(super) fn ascending_over<'a>(&'a self, range: &Range, below: Entries<'a>) -> Entries<'a> {
        match self.within(range) {
            Some(above) => merged(above, below, Ord::cmp),
            None => below,
        }
    }

    /// The entries of a range as this leaves those below it, highest key first.
    pub(super) fn descending_over<'a>(&'a self, range: &Range, below: Entries<'a>) -> Entries<'a> {
        match self.within(range) {
            Some(above) => merged(above.rev(), below, |a, b| b.cmp(a)),
            None => below,
        }
    }

    /// What was written in a range; none when nothing can be in it.
    fn within<'a>(&'a self, range: &Range) -> Option<impl DoubleEndedIterator<Item = (&'a Key, &'a Value)> + use<'a>> {
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
        let writes = chunks.iter().enumerate().flat_map(move |(n, chunk)| {
            let first = if n == 0 { start.1 } else { 0 };
            let until = if n == last { end.1 } else { chunk.writes.len() };
            chunk.writes.get(first..until).unwrap_or_default()
        });
        Some(writes.map(|write| (&write.0, &write.1)))
    }

    /// Where the keys end of which this holds; it holds of none above another of which it does not. The chunk, and the place in it.
    fn place(&self, is_before: impl Fn(&[u8]) -> bool) -> (usize, usize) {
        let chunk = self.chunks.partition_point(|chunk| is_before(&chunk.from)).saturating_sub(1);
        let within = |chunk: &Chunk| chunk.writes.partition_point(|(key, _)| is_before(key));
        (chunk, self.chunks.get(chunk).map_or(0, within))
    }
}

/// Entries with those written above them put in their places; both in the order that `compare` says.
fn merged<'a>(
    above: impl Iterator<Item = (&'a Key, &'a Value)> + 'a,
    below: Entries<'a>,
    compare: impl Fn(&[u8], &[u8]) -> Ordering + 'a,
) -> Entries<'a> {
    let (mut above, mut below) = (above.peekable(), below.peekable());
    Box::new(std::iter::from_fn(move || next(&mut above, &mut below, &compare)))
}

/// The next of both. Where both have a key, what is above counts; a key that was removed is passed over.
fn next<'a>(
    above: &mut Peekable<impl Iterator<Item = (&'a Key, &'a Value)>>,
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
            let writes = [20, 20, 20, 20 * CHUNK_MAX][random.usize(0..4)];
            for _ in 0..random.usize(0..writes) {
                let (key, value) = (key(random), random.bool().then(|| key(random)));
                let before = recent.get(&key).cloned();
                assert_eq!(recent.set((key.clone().into(), value.clone().map(Into::into))), before, "seed {seed}");
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
        let number = |n: u32| -> Key { n.to_be_bytes().into() };
        let mut recent = Recent::default();
        (0..2_000).for_each(|n| drop(recent.set((number(n * 7 % 2_000), Some(number(n))))));
        let copy = recent.clone();
        let before: Vec<Write> = copy.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
        assert!(before.is_sorted_by(|a, b| a.0 < b.0) && before.len() == 2_000);
        for n in 1_000..3_000 {
            let known = recent.set((number(n), None));
            assert_eq!(known.is_some(), n < 2_000);
            if n % 2 == 0 {
                recent.unset(&number(n), known);
            }
        }
        assert!(copy.iter().map(|(key, value)| (key.clone(), value.clone())).eq(before));
        assert_eq!(recent.iter().filter(|(_, value)| value.is_none()).count(), 1_000);
        assert_eq!(recent.iter().count(), 2_500);
    }

    #[test]
    fn nothing_is_left_where_every_write_is_undone() {
        let mut recent = Recent::default();
        for n in 0..1_000_u16 {
            recent.set((n.to_be_bytes().into(), None));
        }
        (0..1_000_u16).rev().for_each(|n| recent.unset(&n.to_be_bytes(), None));
        assert!(recent.is_empty() && recent.get(&[0, 0]).is_none());
    }
}
