//! Commits that are copied from one log to another: read whole, and stored unchanged.

use annals_core::{
    CommitCopy, CommitError, CommitInfo, ExpectedVersion, NewCommit, NewTransaction, SequenceNumber, StoreError,
    Timestamp,
};
use tokio::sync::oneshot;

use super::commit::{Probed, encode, encode_as, probe, refused, room_for};
use super::core::Core;
use super::queue::{Answer, Encoded, Request, Verdict, Waiting};
use super::segment::runs;
use crate::record::{Stamp, aggregate_of};

/// Commits are looked up in groups of this size.
const GROUP: u32 = 64;
/// A page ends once it holds this many commits, or this many bytes of frames.
const COMMITS_MAX: usize = 1_000;
const BYTES_MAX: u64 = 16 * 1024 * 1024;

/// Returns the commits that begin at or after `from`, up to the bounds of a page.
pub(super) fn read(core: &Core, from: SequenceNumber) -> Result<Vec<CommitCopy>, StoreError> {
    let head = core.head();
    let view = core.view();
    let mut copies = Vec::new();
    let mut bytes = 0;
    let start = view.position_of(from).unwrap_or(0);
    for segment in view.segments[start..].iter().take_while(|segment| segment.first < head) {
        let first = segment.index.ordinal_of(from)?.unwrap_or(0);
        for begin in (first..segment.index.commits()).step_by(GROUP as usize) {
            let ordinals: Vec<u32> = (begin..segment.index.commits().min(begin + GROUP)).collect();
            let entries = segment.index.entries(&ordinals)?;
            for run in runs(&entries) {
                for (record, entry) in segment.read(run)?.zip(run) {
                    if entry.sequence_number < from {
                        continue;
                    }
                    if entry.sequence_number >= head || copies.len() >= COMMITS_MAX || bytes >= BYTES_MAX {
                        return Ok(copies);
                    }
                    let record = record?;
                    if !record.is_commit() {
                        continue;
                    }
                    // What a packed segment stores may be much smaller.
                    let data: u64 = record.commit.events.iter().map(|event| event.data.as_bytes().len() as u64).sum();
                    bytes += u64::from(entry.length).max(data);
                    copies.push(CommitCopy { commit: record.commit, keys: record.keys });
                }
            }
        }
    }
    Ok(copies)
}

/// Stores copies. They are queued in order and pipelined: the writer has many of them before the first answer is awaited.
pub(super) async fn store(core: &Core, copies: Vec<CommitCopy>) -> Result<(), CommitError> {
    let mut waiting = Vec::new();
    let mut bytes = 0;
    let mut open = Vec::new();
    for copy in copies {
        let ends = copy.ends();
        bytes += copy.commit.events.iter().map(|event| event.data.as_bytes().len() as u64).sum::<u64>();
        open.push(copy);
        if ends {
            waiting.push(begin(core, std::mem::take(&mut open)).await?);
        }
        // Queued copies take room that later ones need.
        if bytes >= BYTES_MAX {
            settle(core, &mut waiting).await?;
            bytes = 0;
        }
    }
    settle(core, &mut waiting).await
}

/// A queued copy: the receiver of its answer, and the sequence number it must get.
type Begun = (oneshot::Receiver<Answer>, SequenceNumber);

async fn settle(core: &Core, waiting: &mut Vec<Begun>) -> Result<(), CommitError> {
    for (answered, due) in waiting.drain(..) {
        let (verdict, _) = answered.await.map_err(|_| StoreError::Failed("the log writer has ended".to_owned()))?;
        match verdict? {
            Some(Verdict::Committed { .. }) => {}
            Some(Verdict::Repeat(found)) => {
                let actual = core.noticed(found.record())?.commit.events[0].sequence_number;
                return Err(CommitError::OtherEvents { expected: due, actual });
            }
            Some(Verdict::Refused(part, refusal)) => return Err(refused(part, refusal).error),
            // A copy has no append condition.
            None => return Err(StoreError::Overloaded.into()),
        }
    }
    Ok(())
}

/// Encodes a copy of a commit.
fn encode_copy(
    core: &Core,
    commit: NewCommit,
    info: &CommitInfo,
    digest: u128,
    now: Timestamp,
) -> Result<Encoded, StoreError> {
    let (commit_id, transaction) = (info.commit_id, info.transaction);
    let Some(from) = &info.received else {
        let stamp = Stamp { commit_id, digest, now, transaction, received: None };
        return encode(core, commit, &stamp, &info.tenant_id);
    };
    let stamp = Stamp { commit_id, digest: 0, now, transaction, received: Some(from.clone()) };
    let commit = NewCommit { expected_version: ExpectedVersion::Any, request_id: None, ..commit };
    let request = from.sequence_number.to_string();
    encode_as(core, commit, &stamp, &info.tenant_id, aggregate_of(&from.subscription), &request)
}

/// Queues a commit, or all commits of a transaction, for the writer.
async fn begin(core: &Core, copies: Vec<CommitCopy>) -> Result<Begun, CommitError> {
    let first = copies.first().and_then(|copy| copy.commit.events.first());
    let due = first.map_or(0, |event| event.sequence_number);
    let infos: Vec<_> = copies.iter().map(|copy| copy.commit.info.clone()).collect();
    let commits: Vec<NewCommit> = copies.into_iter().map(CommitCopy::into_new).collect();
    // A received event has no aggregate of its own, so it would not pass as a commit.
    let own = commits.iter().zip(&infos).filter(|(_, info)| info.received.is_none());
    own.map(|(commit, _)| commit).try_for_each(NewCommit::validate)?;
    let now = core.options.clock.now().nearest_writable();
    let received = infos.first().and_then(|info| info.received.as_ref());
    let request_id = match received {
        Some(from) => Some(from.sequence_number.to_string().into()),
        None => commits.first().and_then(|commit| commit.request_id.clone()),
    };
    // The first digest of a transaction covers all of it, and its commits have no request ids of their own.
    let whole = infos.first().is_some_and(|info| info.transaction.is_some()).then(|| {
        let commits = commits.iter().map(|commit| NewCommit { request_id: None, ..commit.clone() });
        NewTransaction::new(commits).content_digest(&core.key.0)
    });
    let mut encoded = Vec::with_capacity(commits.len());
    for (commit, info) in commits.into_iter().zip(infos) {
        let own = commit.content_digest(&core.key.0);
        let digest = whole.filter(|_| encoded.is_empty()).unwrap_or(own);
        encoded.push(encode_copy(core, commit, &info, digest, now)?);
    }
    let room = room_for(core, encoded.iter().map(|commit| commit.payload.len()).sum()).await?;
    let first = encoded.remove(0);
    let mut request = Request::commit_of(first, request_id, now, room);
    request.others = encoded;
    request.copied_to = Some(due);
    if let Some(refusal) = core.refusal() {
        return Err(refusal.into());
    }
    core.check_disk(now)?;
    let request = match core.noticed(probe(core, request))? {
        Probed::Repeat(found) => {
            let actual = core.noticed(found.record())?.commit.events[0].sequence_number;
            return Err(CommitError::OtherEvents { expected: due, actual });
        }
        Probed::New(request) => request,
    };
    let (answer, answered) = oneshot::channel();
    core.queue.push(Waiting { request, answer })?;
    Ok((answered, due))
}
