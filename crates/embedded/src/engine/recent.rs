//! The newest writes, in memory: what the map in the file does not hold yet.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::iter::Peekable;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use rpds::RedBlackTreeMapSync;

use super::view::{Entries, Range};

/// A key.
pub(super) type Key = Arc<[u8]>;
/// A key's value; none where the key was removed.
pub(super) type Value = Option<Arc<[u8]>>;
/// One change of a key.
pub(super) type Write = (Key, Value);

/// What an entry takes in memory beside its key and value, about: two counted allocations and a node of the tree.
const ENTRY_BYTES: usize = 160;

/// The newest value of each key that was written. A copy costs nothing and stays as it is, so each reader has its own.
#[derive(Clone, Default)]
pub(super) struct Recent {
    values: RedBlackTreeMapSync<Key, Value>,
    /// About what it takes in memory; keys that are written again count again, as they do in the journal.
    bytes: usize,
}

impl Recent {
    pub(super) fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// About what it takes in memory, and in the journal.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Writes to a key. Answers what had been written to it, if anything.
    pub(super) fn set(&mut self, (key, value): Write) -> Option<Value> {
        let before = self.values.get(&key).cloned();
        self.bytes += key.len() + value.as_ref().map_or(0, |value| value.len()) + ENTRY_BYTES;
        self.values.insert_mut(key, value);
        before
    }

    /// Undoes the last write to a key, before which this had been written to it.
    pub(super) fn unset(&mut self, key: Key, before: Option<Value>) {
        match before {
            Some(value) => self.values.insert_mut(key, value),
            None => drop(self.values.remove_mut(&key)),
        }
    }

    /// What was written last to this key, if anything was: a value, or that it was removed.
    pub(super) fn get(&self, key: &[u8]) -> Option<&Value> {
        self.values.get(key)
    }

    /// All that was written, in the order of the keys' bytes.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&Key, &Value)> {
        self.values.iter()
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
        let bounds = range.bounds().filter(|_| !self.is_empty())?;
        Some(self.values.range(Within(bounds.0.map(<[u8]>::to_vec), bounds.1.map(<[u8]>::to_vec))))
    }
}

/// Bounds that are compared with parts of keys.
struct Within(Bound<Vec<u8>>, Bound<Vec<u8>>);

impl RangeBounds<[u8]> for Within {
    fn start_bound(&self) -> Bound<&[u8]> {
        self.0.as_ref().map(Borrow::borrow)
    }

    fn end_bound(&self) -> Bound<&[u8]> {
        self.1.as_ref().map(Borrow::borrow)
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
        (0..random.usize(1..4)).map(|_| random.u8(0..3)).collect()
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
            for _ in 0..random.usize(0..20) {
                let (key, value) = (key(random), random.bool().then(|| key(random)));
                let before = recent.get(&key).cloned();
                assert_eq!(recent.set((key.clone().into(), value.clone().map(Into::into))), before, "seed {seed}");
                if random.u8(0..4) == 0 {
                    recent.unset(key.clone().into(), before);
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
}
