//! Which prepare keys changes without a commit have left otherwise than commits alone would: what copies of commits do not say.

use std::collections::BTreeMap;

use annals_core::{ByteString, KeyHolder, KeyState, SequenceNumber, StoreError};

use super::core::Core;
use super::segment::{Segment, runs};
use super::stats::give_way;
use crate::record::Record;

/// Frames are looked up in groups of so many, after each of which other tasks have their turn.
const GROUP: u32 = 64;

/// Who holds a key after all changes, and who would after those of commits.
#[derive(Default)]
struct Held {
    all: Option<KeyHolder>,
    by_commits: Option<KeyHolder>,
}

type Keys = BTreeMap<(ByteString, ByteString), Held>;

/// The keys as they were when the event `to` came, ascending.
pub(super) async fn keys(core: &Core, to: SequenceNumber) -> Result<Vec<KeyState>, StoreError> {
    let view = core.view();
    // The few that matter first, so that not all keys of all commits are held.
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

/// Whether changes without a commit may be among the frames: such a one has the number of what comes behind it.
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
    // Where frames came meanwhile, the number behind them says nothing of those that were looked at.
    Ok(last == Some(next) || segment.index.commits() != frames)
}

/// Visits the frames of a segment in order. Other tasks have their turn between groups of them.
pub(super) async fn each(segment: &Segment, mut visit: impl FnMut(&Record)) -> Result<(), StoreError> {
    let frames = segment.index.commits();
    for begin in (0..frames).step_by(GROUP as usize) {
        let ordinals: Vec<u32> = (begin..frames.min(begin + GROUP)).collect();
        let entries = segment.index.entries(&ordinals)?;
        for run in runs(&entries) {
            for record in segment.read(run)? {
                visit(&record?);
            }
        }
        give_way().await;
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
    // Releases come first, so that a reservation of the same commit is what stands.
    record.keys.release.iter().for_each(|it| made(&it.name, &it.key, None));
    record.keys.reserve.iter().for_each(|it| made(&it.name, &it.key, Some(it.clone().into())));
}
