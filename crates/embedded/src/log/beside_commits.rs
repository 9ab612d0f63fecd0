//! Finds prepare keys whose holder differs from what commits alone would have left, because they were changed without a commit. Copies of
//! commits lack this information.

use std::collections::BTreeMap;

use annals_core::{ByteString, KeyHolder, KeyState, SequenceNumber, StoreError};

use super::core::Core;
use super::segment::{Segment, runs};
use super::stats::give_way;
use crate::record::Record;
use crate::turn::Turn;

/// Frames are looked up in groups of this size.
const GROUP: u32 = 64;

/// The holder of a key after all changes, and the holder after those of commits alone.
#[derive(Default)]
struct Held {
    all: Option<KeyHolder>,
    by_commits: Option<KeyHolder>,
}

type Keys = BTreeMap<(ByteString, ByteString), Held>;

/// Returns the keys as of the arrival of event `to`, ascending.
pub(super) async fn keys(core: &Core, to: SequenceNumber) -> Result<Vec<KeyState>, StoreError> {
    let view = core.view();
    // The few affected keys are collected first, so that not every key of every commit is held.
    let mut keys = Keys::new();
    for segment in &view.segments {
        if may_have(segment)? {
            let note = |record: &Record| {
                if !record.is_commit() && record.first <= to {
                    keys.extend(record.keys.names().map(|(name, key)| ((name.clone(), key.clone()), Held::default())));
                }
            };
            each(segment, note).await?;
        }
    }
    if keys.is_empty() {
        return Ok(Vec::new());
    }
    for segment in view.segments.iter().take_while(|segment| segment.first <= to) {
        each(segment, |record| apply(&mut keys, record, to)).await?;
    }
    let differs = |((name, key), held): ((ByteString, ByteString), Held)| {
        (held.all != held.by_commits).then_some(KeyState { name, key, holder: held.all })
    };
    Ok(keys.into_iter().filter_map(differs).collect())
}

/// Returns whether the segment may contain changes without a commit. The frame of such a change carries the sequence number of the frame
/// after it.
fn may_have(segment: &Segment) -> Result<bool, StoreError> {
    let frames = segment.index.commits();
    let mut last = None;
    for begin in (0..frames).step_by(GROUP as usize) {
        let ordinals: Vec<u32> = (begin..frames.min(begin + GROUP)).collect();
        for entry in segment.index.entries(&ordinals)? {
            if last.replace(entry.sequence_number) == Some(entry.sequence_number) {
                return Ok(true);
            }
        }
    }
    let (_, next) = segment.index.reach();
    // If frames were added meanwhile, the number after them says nothing about those already examined.
    Ok(last == Some(next) || segment.index.commits() != frames)
}

/// Visits the frames of a segment in order. It yields by time rather than by group: a group of large frames takes a thousand times as long
/// as one of small ones.
pub(super) async fn each(segment: &Segment, mut visit: impl FnMut(&Record)) -> Result<(), StoreError> {
    let frames = segment.index.commits();
    let mut turn = Turn::begin();
    for begin in (0..frames).step_by(GROUP as usize) {
        let ordinals: Vec<u32> = (begin..frames.min(begin + GROUP)).collect();
        let entries = segment.index.entries(&ordinals)?;
        for run in runs(&entries) {
            for record in segment.read(run)? {
                visit(&record?);
            }
            if turn.is_over() {
                give_way().await;
                turn = Turn::begin();
            }
        }
    }
    Ok(())
}

fn apply(keys: &mut Keys, record: &Record, to: SequenceNumber) {
    let by_commit = record.is_commit();
    if record.first > to || (by_commit && record.first == to) {
        return;
    }
    let mut made = |name: &ByteString, key: &ByteString, holder: Option<KeyHolder>| {
        let Some(held) = keys.get_mut(&(name.clone(), key.clone())) else { return };
        if by_commit {
            held.by_commits.clone_from(&holder);
        }
        held.all = holder;
    };
    // Releases are applied first, so a reservation in the same commit prevails.
    record.keys.release.iter().for_each(|it| made(&it.name, &it.key, None));
    record.keys.reserve.iter().for_each(|it| made(&it.name, &it.key, Some(it.clone().into())));
}
