//! The caller's side of a commit: everything that can be done, and can fail, before the log writer sees it. A commit is handled as a
//! transaction with a single commit.

use annals_core::{
    Aggregate, ByteString, Code, CommitError, CommitOutcome, DEFAULT_TENANT_ID, Invalid, NewCommit, NewTransaction,
    SequenceNumber, StoreError, Timestamp, TransactionError, TransactionPlace, Uuid, Version, new_uuid,
};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::conditions::{self, Condition, Match};
use super::core::Core;
use super::keys::{self, KeyFault};
use super::lookup::{self, Found};
use super::queue::{Encoded, Expected, Part, ProbedHead, Refusal, Request, Verdict, Waiting};
use crate::options::SeededBug;
use crate::record::{self, Stamp, derived_event_id};

pub(super) async fn commit(core: &Core, commit: NewCommit) -> Result<CommitOutcome, CommitError> {
    commit.validate()?;
    let now = core.options.clock.now().nearest_writable();
    let digest = commit.content_digest(&core.key.0);
    let kept = Kept::of(core, &commit, now)?;
    let request_id = commit.request_id.clone();
    let stamp = Stamp { commit_id: kept.commit_id, digest, now, transaction: None, received: None };
    let first = encode(core, commit, &stamp, &kept.tenant_id)?;
    let room = room_for(core, first.payload.len()).await?;
    match judged(core, Request::commit_of(first, request_id, now, room)).await? {
        Verdict::Committed { sequence_number, versions } => {
            Ok(kept.outcome(sequence_number, versions.iter().next().unwrap_or_default()))
        }
        Verdict::Repeat(found) => {
            let outcomes = repeated(core, &found, digest, std::slice::from_ref(&kept));
            outcomes.map(|mut outcomes| outcomes.remove(0)).map_err(|refused| refused.error)
        }
        Verdict::Refused(part, refusal) => Err(refused(part, refusal).error),
    }
}

pub(super) async fn transact(core: &Core, transaction: NewTransaction) -> Result<Vec<CommitOutcome>, TransactionError> {
    transaction.validate()?;
    let now = core.options.clock.now().nearest_writable();
    let digest = transaction.content_digest(&core.key.0);
    // `wait` is ignored: sequence numbers are assigned when the transaction is stored.
    let NewTransaction { commits, expect, request_id, wait: _ } = transaction;
    let count = commits.len() as u32;
    let mut kept = Vec::with_capacity(commits.len());
    let mut encoded = Vec::with_capacity(commits.len());
    for (place, mut commit) in (0..).zip(commits) {
        let own = Kept::of(core, &commit, now).map_err(|invalid| {
            let path = format!("commits[{place}].{}", invalid.path);
            TransactionError::commit(place as usize, Invalid { path, ..invalid })
        })?;
        let digest = if place == 0 { digest } else { commit.content_digest(&core.key.0) };
        if place == 0 {
            commit.request_id.clone_from(&request_id);
        }
        let id = kept.first().map_or(own.commit_id, |first: &Kept| first.commit_id);
        let transaction = Some(TransactionPlace { id, place, count });
        let stamp = Stamp { commit_id: own.commit_id, digest, now, transaction, received: None };
        encoded.push(encode(core, commit, &stamp, &own.tenant_id)?);
        kept.push(own);
    }
    let room = room_for(core, encoded.iter().map(|commit| commit.payload.len()).sum()).await?;
    let first = encoded.remove(0);
    let expect = expect.into_iter().map(|it| Expected {
        aggregate_term: core.key.aggregate(&it.aggregate),
        aggregate: it.aggregate,
        version: it.expected_version,
        probed: ProbedHead::default(),
    });
    let expect = expect.collect();
    let first = Request::commit_of(first, request_id, now, room);
    match judged(core, Box::new(Request { others: encoded, expect, ..*first })).await? {
        Verdict::Committed { mut sequence_number, versions } => {
            let outcomes = kept.into_iter().zip(versions.iter()).map(|(kept, version)| {
                let first = sequence_number;
                sequence_number += kept.event_ids.len() as u64;
                kept.outcome(first, version)
            });
            Ok(outcomes.collect())
        }
        Verdict::Repeat(found) => repeated(core, &found, digest, &kept),
        Verdict::Refused(part, refusal) => Err(refused(part, refusal)),
    }
}

/// What the caller keeps of a commit: the values of its outcome, and the tenantId to compare a repeat with.
struct Kept {
    commit_id: Uuid,
    event_ids: Vec<Uuid>,
    tenant_id: ByteString,
}

impl Kept {
    fn of(core: &Core, commit: &NewCommit, now: Timestamp) -> Result<Self, Invalid> {
        let commit_id = new_uuid(now, &*core.options.random);
        let ids = (0..).zip(&commit.events);
        let event_ids: Vec<Uuid> =
            ids.map(|(n, event)| event.id.unwrap_or_else(|| derived_event_id(commit_id, n))).collect();
        if commit.events.iter().any(|event| event.id.is_some()) {
            valid_ids(&event_ids)?;
        }
        let tenant_id = commit.tenant_id.clone().unwrap_or(ByteString::from_static(DEFAULT_TENANT_ID));
        Ok(Self { commit_id, event_ids, tenant_id })
    }

    fn outcome(self, first_sequence_number: SequenceNumber, version: Version) -> CommitOutcome {
        let Self { commit_id, event_ids, .. } = self;
        CommitOutcome {
            commit_id,
            version,
            first_sequence_number: Some(first_sequence_number),
            event_ids,
            duplicate: false,
            stage: None,
        }
    }
}

/// Rejects an event id that occurs twice: an id chosen by the client may equal one that the store derived for another event of the
/// commit.
fn valid_ids(ids: &[Uuid]) -> Result<(), Invalid> {
    let mut sorted = ids.to_vec();
    sorted.sort_unstable();
    match sorted.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(Invalid::new(
            Code::InvalidEvents,
            "events",
            format!("event id {} occurs twice in the commit; give each event its own", pair[0]),
        )),
        None => Ok(()),
    }
}

/// How often a request's append conditions are searched before it fails as overloaded. A search is repeated if others commit matching
/// candidates faster than the writer can check them.
const SEARCHES_MAX: u32 = 32;

/// Queues a request for the log writer and waits for its verdict.
pub(super) async fn judged(core: &Core, request: Box<Request>) -> Result<Verdict, StoreError> {
    if let Some(refusal) = core.refusal() {
        return Err(refusal);
    }
    core.check_disk(request.now)?;
    let mut request = match core.noticed(probe(core, request))? {
        Probed::Repeat(found) => return Ok(Verdict::Repeat(found)),
        Probed::New(request) => request,
    };
    let mut searches = 0;
    loop {
        if request.conditions_mut().next().is_some() {
            if searches == SEARCHES_MAX {
                return Err(StoreError::Overloaded);
            }
            searches += 1;
            // Boxed because it is rare, so that the futures of other requests do not reserve space for it.
            core.noticed(Box::pin(conditions::search(core, &mut request)).await)?;
        }
        let (answer, answered) = oneshot::channel();
        core.queue.push(Waiting { request, answer })?;
        // If the writer ends without answering, the outcome is unknown.
        let (verdict, back) = answered.await.map_err(|_| StoreError::Failed("the log writer has ended".to_owned()))?;
        match verdict? {
            Some(verdict) => return Ok(verdict),
            None => request = back,
        }
    }
}

pub(super) fn refused(part: Part, refusal: Refusal) -> TransactionError {
    let error = match refusal {
        Refusal::Conflict { expected, actual } => {
            CommitError::VersionConflict { expected: expected.to_string(), actual_version: actual }
        }
        Refusal::OtherTenant { tenant_id } => CommitError::AggregateOfOtherTenant { tenant_id: tenant_id.to_string() },
        Refusal::OtherNumber { expected, actual } => CommitError::OtherEvents { expected, actual },
        Refusal::Condition(found) => {
            let Match { pattern, sequence_number } = found;
            CommitError::AppendConditionFailed { pattern, sequence_number }
        }
        Refusal::Key { fault, name, key } => {
            let (name, key) = (name.to_string(), key.to_string());
            match fault {
                KeyFault::Taken => CommitError::KeyTaken { name, key },
                KeyFault::NotHeld => CommitError::KeyNotHeld { name, key },
            }
        }
    };
    match part {
        Part::Commit(place) => TransactionError::commit(place, error),
        Part::Expectation(place) => TransactionError::expectation(place, error),
    }
}

/// Encodes a commit and computes everything that the log writer needs to know about it.
pub(super) fn encode(
    core: &Core,
    commit: NewCommit,
    stamp: &Stamp,
    tenant_id: &ByteString,
) -> Result<Encoded, StoreError> {
    let aggregate = commit.aggregate.clone();
    let request = commit.request_id.clone().unwrap_or_else(|| stamp.commit_id.to_string().into());
    encode_as(core, commit, stamp, tenant_id, aggregate, &request)
}

/// Encodes a commit that the index files under another aggregate and request id than its own.
pub(super) fn encode_as(
    core: &Core,
    commit: NewCommit,
    stamp: &Stamp,
    tenant_id: &ByteString,
    aggregate: Aggregate,
    request: &str,
) -> Result<Encoded, StoreError> {
    let payload = record::encode(&commit, stamp);
    let terms = core.key.of_new(&commit);
    let condition = commit.append_condition.map(|condition| Box::new(Condition::new(condition)));
    Ok(Encoded {
        aggregate_term: core.key.aggregate(&aggregate),
        request_term: core.key.request(&aggregate, request),
        terms,
        keys: keys::changes(core.key, commit.keys),
        events: commit.events.len() as u32,
        aggregate,
        tenant_id: tenant_id.clone(),
        expected: commit.expected_version,
        condition,
        payload_crc: crc32c::crc32c(&payload),
        payload,
        probed: ProbedHead::default(),
    })
}

pub(super) async fn room_for(core: &Core, bytes: usize) -> Result<OwnedSemaphorePermit, StoreError> {
    let kib = (bytes / 1024 + 1) as u32;
    core.room.clone().acquire_many_owned(kib).await.map_err(|_| StoreError::Closed)
}

/// Returns the original outcomes if this request is a repeat of the one found.
fn repeated(core: &Core, found: &Found, digest: u128, kept: &[Kept]) -> Result<Vec<CommitOutcome>, TransactionError> {
    let first = core.noticed(found.record())?;
    if first.commit.info.tenant_id != kept[0].tenant_id {
        let tenant_id = first.commit.info.tenant_id.to_string();
        return Err(TransactionError::commit(0, CommitError::AggregateOfOtherTenant { tenant_id }));
    }
    if first.digest != digest {
        let request_id = first.commit.info.request_id.as_deref().unwrap_or_default().to_owned();
        return Err(CommitError::RequestIdReused { request_id }.into());
    }
    let mut outcomes = Vec::with_capacity(kept.len());
    let others = core.noticed(found.others(&first))?;
    for (place, (record, kept)) in std::iter::once(first).chain(others).zip(kept).enumerate() {
        let info = &record.commit.info;
        if info.tenant_id != kept.tenant_id {
            let tenant_id = info.tenant_id.to_string();
            return Err(TransactionError::commit(place, CommitError::AggregateOfOtherTenant { tenant_id }));
        }
        outcomes.push(CommitOutcome {
            commit_id: info.commit_id,
            version: info.version,
            first_sequence_number: Some(record.commit.events[0].sequence_number),
            event_ids: record.commit.events.iter().map(|event| event.id).collect(),
            duplicate: true,
            stage: None,
        });
    }
    Ok(outcomes)
}

pub(super) enum Probed {
    Repeat(Found),
    New(Box<Request>),
}

/// Looks up the aggregates and the request in closed segments, so that the writer does not have to read files. Segments in memory are
/// left to the writer. If one of them moves to a file meanwhile, the writer sees from its number that it was not probed.
pub(super) fn probe(core: &Core, mut request: Box<Request>) -> Result<Probed, StoreError> {
    let view = core.view();
    let below = view.first_in_memory();
    request.request_probed_below = below;
    if let Some(id) = &request.request_id {
        let first = &request.first;
        let found = lookup::request(&view, ..below, &first.aggregate, id, first.request_term)?;
        // The writer checks a transaction's other aggregates against its tenantId before it checks the request id.
        request.repeats = match found {
            Some(found) if request.others.is_empty() => return Ok(Probed::Repeat(found)),
            found => found,
        };
    }
    let Request { first, others, expect, .. } = &mut *request;
    for change in std::iter::once(&mut *first).chain(&mut *others).flat_map(|commit| &mut commit.keys) {
        change.probed_below = below;
        if core.options.has(SeededBug::ForgetSealedKeys) {
            continue;
        }
        change.probed = keys::look_up(&view, ..below, &change.name, &change.key, change.term)?;
    }
    let commits = std::iter::once(first).chain(others).filter(|commit| commit.events > 0);
    let commits = commits.map(|commit| (&commit.aggregate, commit.aggregate_term, &mut commit.probed));
    let expected = expect.iter_mut().map(|it| (&it.aggregate, it.aggregate_term, &mut it.probed));
    for (aggregate, term, probed) in commits.chain(expected) {
        if core.known.read().get(term).is_none() {
            *probed = ProbedHead { below, head: lookup::head(&view, ..below, aggregate, term)? };
        }
    }
    Ok(Probed::New(request))
}
