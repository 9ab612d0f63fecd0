//! Prepare keys: the last commit in the log that names a key determines who holds it.
//!
//! No table of keys exists beside the log, so none can differ from it. A key is a term of the commits that change it and is found like
//! the version of an aggregate: in memory, or through a Bloom filter and one frame. A key therefore changes atomically with the events,
//! under the same sync, and is correct after any crash.
//!
//! A change without a commit (`prepare.rs`) is a frame without events. It lies in the log at the point where it happened and consumes no
//! sequence number.
//!
//! A change is checked against these sources, in this order: earlier changes in the same request, the batch, and the segments whose
//! index was in memory when the caller looked, or that are newer. What the caller found in the other segments comes last.

use std::ops::RangeBounds;

use annals_core::{ByteString, KeyChange, KeyChanges, KeyHolder, KeyValue, Release, Reserve, StoreError, Timestamp};

use super::segment::View;
use crate::index::TermMap;
use crate::terms::{ExactTerm, TermKey, short};

/// What is known of a key: `None` if nothing is known, `Some(None)` if nobody holds it, else its holder.
pub(super) type Known = Option<Option<KeyHolder>>;

/// A change of a key, on its way to the log writer.
pub(super) struct Change {
    pub(super) name: ByteString,
    pub(super) key: ByteString,
    pub(super) term: ExactTerm,
    kind: Kind,
    /// The key was looked up in all segments below this number;
    pub(super) probed_below: u64,
    /// this was found there.
    pub(super) probed: Known,
}

enum Kind {
    Release(Option<KeyValue>),
    Reserve(KeyHolder),
    /// Gives a key back without a commit. At exactly `ttl_at` this requires the value.
    Rollback(Option<KeyValue>),
    /// Replaces the holder that has this value, or whichever holder there is if no value is given.
    Reprepare(Option<KeyValue>, KeyHolder),
}

/// Why a change is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyFault {
    Taken,
    NotHeld,
}

/// Returns the changes of a commit, in the order in which they are checked and applied.
pub(super) fn changes(terms: TermKey, keys: KeyChanges) -> Vec<Change> {
    let change = |name: ByteString, key: ByteString, kind| of(terms, name, key, kind);
    let release = keys.release.into_iter().map(|Release { name, key, value }| change(name, key, Kind::Release(value)));
    let reserve = keys.reserve.into_iter().map(|reserve| {
        let (name, key) = (reserve.name.clone(), reserve.key.clone());
        change(name, key, Kind::Reserve(reserve.into()))
    });
    release.chain(reserve).collect()
}

/// Returns the changes that an operation of the key service makes, in the order in which they are checked and applied. Keys are taken
/// first: if neither key of a move is as it must be, the refusal names the new one.
pub(super) fn of_service(terms: TermKey, change: KeyChange) -> Vec<Change> {
    let reserve = |it: Reserve, kind: fn(KeyHolder) -> Kind| {
        let (name, key) = (it.name.clone(), it.key.clone());
        of(terms, name, key, kind(it.into()))
    };
    let rollback = |Release { name, key, value }| of(terms, name, key, Kind::Rollback(value));
    match change {
        KeyChange::Prepare(new) => vec![reserve(new, Kind::Reserve)],
        KeyChange::Rollback(old) => vec![rollback(old)],
        KeyChange::Reprepare { old, new } => {
            let (name, key) = (new.name.clone(), new.key.clone());
            vec![of(terms, name, key, Kind::Reprepare(old, new.into()))]
        }
        KeyChange::Move { old, new } => vec![reserve(new, Kind::Reserve), rollback(old)],
    }
}

fn of(terms: TermKey, name: ByteString, key: ByteString, kind: Kind) -> Change {
    let term = terms.key(&name, &key);
    Change { name, key, term, kind, probed_below: 0, probed: None }
}

impl Change {
    /// Returns who holds the key after this change, which was checked in the log where it was first made.
    pub(super) fn made(&self) -> Option<KeyHolder> {
        match &self.kind {
            Kind::Reserve(new) | Kind::Reprepare(_, new) => Some(new.clone()),
            Kind::Release(_) | Kind::Rollback(_) => None,
        }
    }

    /// Returns who holds the key after this change, given what is `known` at `now`.
    pub(super) fn apply(&self, known: &Known, now: Timestamp) -> Result<Option<KeyHolder>, KeyFault> {
        let holder = known.as_ref().and_then(Option::as_ref);
        match (&self.kind, holder) {
            (Kind::Reserve(_), Some(holder)) if holder.lives(now) => Err(KeyFault::Taken),
            (Kind::Reserve(new), _) => Ok(Some(new.clone())),
            (Kind::Release(value), Some(holder)) if holder.gives_back(value.as_ref(), now) => Ok(None),
            (Kind::Rollback(value), Some(holder)) if holder.rolls_back(value.as_ref(), now) => Ok(None),
            (Kind::Reprepare(old, new), Some(holder)) if old.as_ref().is_none_or(|old| *old == holder.value) => {
                Ok(Some(new.clone()))
            }
            (Kind::Release(_) | Kind::Rollback(_) | Kind::Reprepare(..), _) => Err(KeyFault::NotHeld),
        }
    }
}

/// The holders of keys after the commits of a batch, or after the earlier changes of a request.
pub(super) type Changed = TermMap<ExactTerm, Option<KeyHolder>>;

/// Looks up the last change of a key in the segments with these numbers.
pub(super) fn look_up(
    view: &View,
    numbers: impl RangeBounds<u64>,
    name: &ByteString,
    key: &ByteString,
    term: ExactTerm,
) -> Result<Known, StoreError> {
    for segment in view.segments.iter().rev().filter(|segment| numbers.contains(&segment.at.number)) {
        // Searched from the end and in strides: a key that changes constantly has as many postings as there are commits.
        let mut end = segment.index.commits();
        while end > 0 {
            let start = end.saturating_sub(segment.index.stride());
            for ordinal in segment.index.postings(short(term), start..end)?.into_iter().rev() {
                for record in segment.records(&[ordinal])? {
                    if let Some(change) = change_in(record.keys, name, key) {
                        return Ok(Some(change));
                    }
                }
            }
            end = start;
        }
    }
    Ok(None)
}

/// Returns the holder of a key after a commit with these changes, or `None` if the commit does not name the key, as after a hash
/// collision of terms.
fn change_in(keys: KeyChanges, name: &ByteString, key: &ByteString) -> Option<Option<KeyHolder>> {
    // Releases are applied first, so a reservation in the same commit prevails.
    if let Some(taken) = keys.reserve.into_iter().find(|it| it.name == *name && it.key == *key) {
        return Some(Some(taken.into()));
    }
    keys.release.iter().any(|it| it.name == *name && it.key == *key).then_some(None)
}
