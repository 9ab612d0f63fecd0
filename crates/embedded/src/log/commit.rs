//! The caller's side of a commit: everything that can be done, and can fail, before the log writer sees it.

use annals_core::{
    ByteString, Code, CommitError, CommitOutcome, DEFAULT_TENANT_ID, Invalid, NewCommit, StoreError, Uuid, new_uuid,
};
use tokio::sync::oneshot;

use super::core::Core;
use super::lookup::{self, Found};
use super::queue::{Encoded, Verdict, Waiting};
use crate::record::{self, derived_event_id};

pub(super) async fn commit(core: &Core, commit: NewCommit) -> Result<CommitOutcome, CommitError> {
    commit.validate()?;
    if let Some(refusal) = core.refusal() {
        return Err(refusal.into());
    }
    let now = core.options.clock.now();
    let commit_id = new_uuid(now, &*core.options.random);
    let content = Content {
        digest: commit.content_digest(&core.key.0),
        tenant_id: commit.tenant_id.clone().unwrap_or(ByteString::from_static(DEFAULT_TENANT_ID)),
    };
    let event_ids: Vec<Uuid> = (0..)
        .zip(&commit.events)
        .map(|(n, event)| event.id.unwrap_or_else(|| derived_event_id(commit_id, n)))
        .collect();
    if commit.events.iter().any(|event| event.id.is_some()) {
        valid_ids(&event_ids)?;
    }
    let payload = record::encode(&commit, commit_id, content.digest, now);
    let expected = commit.expected_version;
    let room = room_for(core, payload.len()).await?;
    let mut encoded = Box::new(Encoded {
        aggregate_term: core.key.aggregate(&commit.aggregate),
        request_term: match &commit.request_id {
            Some(id) => core.key.request(&commit.aggregate, id),
            None => core.key.request(&commit.aggregate, &commit_id.to_string()),
        },
        terms: core.key.of_new(&commit),
        events: commit.events.len() as u32,
        aggregate: commit.aggregate,
        request_id: commit.request_id,
        tenant_id: content.tenant_id.clone(),
        expected,
        payload_crc: crc32c::crc32c(&payload),
        payload,
        probed_head: None,
        head_probed_below: 0,
        request_probed_below: 0,
        _room: room,
    });
    if let Some(found) = core.noticed(probe(core, &mut encoded))? {
        return content.outcome_of(&core.noticed(found.record())?);
    }
    let (answer, answered) = oneshot::channel();
    core.queue.push(Waiting { commit: encoded, answer })?;
    // A writer that is gone without an answer has left the outcome open.
    let (verdict, _) = answered.await.map_err(|_| StoreError::Failed("the log writer has ended".to_owned()))?;
    match verdict? {
        Verdict::Committed { sequence_number, version } => Ok(CommitOutcome {
            commit_id,
            version,
            first_sequence_number: sequence_number,
            event_ids,
            duplicate: false,
        }),
        Verdict::Repeat(found) => content.outcome_of(&core.noticed(found.record())?),
        Verdict::Conflict { actual } => {
            Err(CommitError::VersionConflict { expected: expected.to_string(), actual_version: actual })
        }
        Verdict::OtherTenant { tenant_id } => {
            Err(CommitError::AggregateOfOtherTenant { tenant_id: tenant_id.to_string() })
        }
    }
}

/// What a repeat is compared with.
struct Content {
    digest: u128,
    tenant_id: ByteString,
}

impl Content {
    /// The first outcome, if this is the same request again.
    fn outcome_of(&self, first: &record::Record) -> Result<CommitOutcome, CommitError> {
        let info = &first.commit.info;
        if info.tenant_id != self.tenant_id {
            return Err(CommitError::AggregateOfOtherTenant { tenant_id: info.tenant_id.to_string() });
        }
        if first.digest != self.digest {
            let request_id = info.request_id.as_deref().unwrap_or_default().to_owned();
            return Err(CommitError::RequestIdReused { request_id });
        }
        Ok(CommitOutcome {
            commit_id: info.commit_id,
            version: info.version,
            first_sequence_number: first.commit.events[0].sequence_number,
            event_ids: first.commit.events.iter().map(|event| event.id).collect(),
            duplicate: true,
        })
    }
}

/// An id that a client gave could be one that the store made for a neighbour.
fn valid_ids(ids: &[Uuid]) -> Result<(), Invalid> {
    let mut sorted = ids.to_vec();
    sorted.sort_unstable();
    match sorted.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(Invalid::new(Code::InvalidEvents, "events", format!("event id {} is taken", pair[0]))),
        None => Ok(()),
    }
}

async fn room_for(core: &Core, bytes: usize) -> Result<tokio::sync::OwnedSemaphorePermit, StoreError> {
    let kib = (bytes / 1024 + 1) as u32;
    core.room.clone().acquire_many_owned(kib).await.map_err(|_| StoreError::Closed)
}

/// Looks the aggregate and the request up in the closed segments, so that the writer need not read files. What is in memory is
/// left to the writer; should a segment move to a file meanwhile, the writer sees by its number that it was not probed.
fn probe(core: &Core, commit: &mut Encoded) -> Result<Option<Found>, StoreError> {
    let view = core.view();
    let below = view.first_in_memory();
    if core.known.read().get(commit.aggregate_term).is_none() {
        commit.head_probed_below = below;
        commit.probed_head = lookup::head(&view, ..below, &commit.aggregate, commit.aggregate_term)?;
    }
    commit.request_probed_below = below;
    match &commit.request_id {
        Some(id) => lookup::request(&view, ..below, &commit.aggregate, id, commit.request_term),
        None => Ok(None),
    }
}
