//! A commit: checked on the caller's task, inserted with the next batch, answered when it is stored or has its sequence numbers.
//!
//! Checks, in this order: the rules of a commit, unsupported features, the aggregate's tenantId, the request id, prepare keys, the
//! version. The unique indexes decide; the head known to this process only determines which version to try. INVARIANT: a commit uses the
//! version after one that a majority has stored, so an aggregate never gets a gap. The index refuses a version that exists, so no version
//! is filled in later.

use annals_core::{
    CommitError, CommitOutcome, ExpectedVersion, NewCommit, Reached, StoreError, Timestamp, Version, event_uuid,
    new_uuid,
};
use tokio::sync::TryAcquireError;
use uuid::Uuid;

use super::Log;
use super::batch::Outcome;
use super::heads::Head;
use super::keyed::{self, Keyed, Task};
use super::numbers::Place;
use super::repeat;
use crate::layout::commit::{Given, write};
use crate::layout::foreign::StoredCommit;
use crate::layout::names::new_event_stream;
use crate::layout::schema::{Ready, ready};
use crate::options::Requests;
use crate::patience::given_up;
use crate::refused::not_ready;

/// How often other processes may overtake a commit at any version before it is refused.
const OVERTAKEN_MAX: usize = 1000;

/// The size in bytes of the largest document that MongoDB stores.
const DOCUMENT_BYTES_MAX: usize = 16 * 1024 * 1024;

/// A commit with its ids, which do not depend on the version that it gets.
struct Request<'a> {
    commit: &'a NewCommit,
    commit_id: String,
    request_id: String,
    event_ids: Vec<Uuid>,
    now: Timestamp,
}

pub(super) async fn commit(log: &Log, commit: NewCommit) -> Result<CommitOutcome, CommitError> {
    if log.is_closed() {
        return Err(StoreError::Closed.into());
    }
    commit.validate()?;
    supported(&commit)?;
    new_event_stream(&commit.aggregate.name)?;
    log.adopted.reader.mapping.only_name(&commit.aggregate.name)?;
    if let Some(disturbed) = log.disturbed() {
        return Err(disturbed.into());
    }
    log.means.answers.expected().await?;
    let _place = log.places.try_acquire().map_err(|error| match error {
        TryAcquireError::Closed => StoreError::Closed,
        TryAcquireError::NoPermits => StoreError::Overloaded,
    })?;
    let making = tokio::time::timeout(log.outcome_time, ready(&log.schema, &commit.aggregate.name));
    let collection = log.patience.during(making).await.ok_or(StoreError::Closed)?;
    let (collection, there) = collection
        .map_err(|_| StoreError::Unreachable("its collection could not be made ready in time".to_owned()))??;
    let timed = tokio::time::timeout(log.outcome_time, keyed::ready(log, &commit.keys)).await;
    timed
        .map_err(|_| StoreError::Unreachable("its keys' collections could not be made ready in time".to_owned()))??;
    let request = Request::new(log, &commit);
    let logged = commit.wait.until >= Reached::Logged;
    // Subscribe before the commit is stored, so that its number cannot be missed.
    let expected = logged.then(|| log.numbers.expect(Place::new(&collection, &request.commit_id)));
    let storing = async {
        let turn = tokio::time::timeout(log.outcome_time, log.turns.wait(&commit.aggregate)).await;
        let _turn = turn.map_err(|_| StoreError::Overloaded)?;
        store(log, &collection, there, &request).await
    };
    let stored = log.patience.during(storing).await.unwrap_or_else(|| {
        let sentence = format!("the store was closed before MongoDB answered (request id {:?})", request.request_id);
        Err(StoreError::Unreachable(sentence).into())
    });
    let Stored { version, repeated } = match stored {
        Ok(stored) => stored,
        Err(error @ CommitError::Store(_)) => return Err(error),
        Err(refusal) => {
            // A caller that waits for the log learns nothing that is not in it.
            if logged {
                let waiting = log.until_logged(&collection, &commit.aggregate);
                log.patience.during(waiting).await.ok_or_else(given_up)??;
            }
            return Err(refusal);
        }
    };
    let (expected, commit_id, event_ids, duplicate) = match repeated {
        None => (expected, request.uuid(), request.event_ids, false),
        Some(first) => {
            let expected = logged.then(|| log.numbers.expect(Place::new(&collection, &first.key)));
            (expected, first.info.commit_id, first.events.iter().map(|event| event.id).collect(), true)
        }
    };
    let first_sequence_number = match expected {
        Some(expected) => log.numbered(expected, duplicate, commit.wait.time()).await,
        None => None,
    };
    if logged
        && first_sequence_number.is_none()
        && let Some(disturbed) = log.disturbed()
    {
        // The commit gets no number until an operator acts, so a caller that waits for one gets an error now, for the reason for which the
        // next commit is refused.
        let sentence = format!("commit {commit_id} is stored, and gets its number once this has ended: {disturbed}");
        return Err(StoreError::other(disturbed.code(), sentence).into());
    }
    Ok(CommitOutcome { commit_id, version, first_sequence_number, event_ids, duplicate, stage: None })
}

/// Refuses features that this store does not support, by name.
fn supported(commit: &NewCommit) -> Result<(), StoreError> {
    if commit.append_condition.is_some() {
        return Err(StoreError::NotSupported("an append condition (on MongoDB)".to_owned()));
    }
    Ok(())
}

impl<'a> Request<'a> {
    fn new(log: &Log, commit: &'a NewCommit) -> Self {
        let now = log.clock.now();
        let id = new_uuid(now, &*log.random);
        let commit_id = id.to_string();
        let ids = commit.events.iter().enumerate();
        Self {
            request_id: commit.request_id.as_deref().unwrap_or(&commit_id).to_owned(),
            event_ids: ids.map(|(place, event)| event.id.unwrap_or_else(|| event_uuid(id, place as u32))).collect(),
            commit,
            commit_id,
            now,
        }
    }

    fn uuid(&self) -> Uuid {
        Uuid::try_parse(&self.commit_id).unwrap_or_default()
    }

    fn tenant_id(&self) -> &str {
        self.commit.tenant_id.as_deref().unwrap_or(annals_core::DEFAULT_TENANT_ID)
    }

    fn task<'b>(&'b self, collection: &'b str, into: Uuid, document: &'b [u8]) -> Task<'b> {
        Task { keys: &self.commit.keys, commit: Some((collection, into, document)), now: self.now }
    }

    fn document(&self, log: &Log, version: Version) -> Result<Vec<u8>, CommitError> {
        let full =
            |_| StoreError::ReadOnly("the aggregate has as many versions as MongoDB's layout can count".to_owned());
        let document = write(
            self.commit,
            &Given {
                commit_id: &self.commit_id,
                request_id: &self.request_id,
                context: &log.context,
                version: i32::try_from(version).map_err(full)?,
                event_ids: &self.event_ids,
                now: self.now,
            },
        );
        if document.len() > DOCUMENT_BYTES_MAX {
            let message = format!(
                "{} bytes as a document, with the names and ids of its events; MongoDB stores at most {DOCUMENT_BYTES_MAX}",
                document.len()
            );
            return Err(annals_core::Invalid::new(annals_core::Code::CommitTooLarge, "events", message).into());
        }
        Ok(document)
    }
}

/// The outcome of a stored commit: its version, and the first commit of its request if this one was a repeat.
struct Stored {
    version: Version,
    repeated: Option<StoredCommit>,
}

/// Returns the head after which a commit is tried first. A first commit needs no look-up, because the unique index detects an existing
/// one, unless the collection replaced another.
async fn first_head(log: &Log, collection: &str, there: Ready, commit: &NewCommit) -> Result<Head, StoreError> {
    let first_only = matches!(commit.expected_version, ExpectedVersion::Empty | ExpectedVersion::Exact(0));
    match log.heads.get(&commit.aggregate) {
        Some(head) => Ok(head),
        None if first_only && !log.adopted.there && !there.replaced => Ok(Head::NONE),
        None => log.read_head(collection, &commit.aggregate).await,
    }
}

async fn store(log: &Log, collection: &str, there: Ready, request: &Request<'_>) -> Result<Stored, CommitError> {
    let mut into = there.uuid;
    let mut epoch = log.heads.epoch();
    let commit = request.commit;
    let expected = commit.expected_version;
    // Whether `head` was read after this commit began, so that a refusal may rely on it.
    let (mut head, mut current) = (first_head(log, collection, there, commit).await?, false);
    let mut collided = false;
    for _ in 0..OVERTAKEN_MAX {
        // The tenantId is unknown if the aggregate's commits were deleted.
        let known = head.version > 0 && !head.tenant_id.is_empty();
        if known && *head.tenant_id != *request.tenant_id() {
            return Err(CommitError::AggregateOfOtherTenant { tenant_id: head.tenant_id.to_string() });
        }
        let admitted = expected.admits(head.version);
        if !admitted && !current {
            (head, current) = (log.confirm_head(collection, &commit.aggregate).await?, true);
            continue;
        }
        // Looked up after the head was read: a request stored in the meantime is found.
        if (collided || !admitted)
            && commit.request_id.is_some()
            && let Some(first) = repeat::find(log, collection, &commit.aggregate, &request.request_id).await?
        {
            return repeated(first, request);
        }
        if !admitted {
            if let Some(refusal) = keyed::refusal(log, &commit.keys, request.now).await? {
                return Err(refusal);
            }
            let (expected, actual_version) = (expected.to_string(), head.version);
            return Err(CommitError::VersionConflict { expected, actual_version });
        }
        let version = head.version + 1;
        let document = request.document(log, version)?;
        let outcome = match commit.keys.is_empty() {
            true => log.bulk.insert(collection, into, request.commit_id.clone(), document).await,
            false => match keyed::carry_out(log, request.task(collection, into, &document)).await? {
                Keyed::Outcome(outcome) => outcome,
                Keyed::Refused(refusal) => {
                    // A repeat finds its own keys taken.
                    if commit.request_id.is_some()
                        && let Some(first) =
                            repeat::find(log, collection, &commit.aggregate, &request.request_id).await?
                    {
                        return repeated(first, request);
                    }
                    return Err(refusal);
                }
            },
        };
        match outcome {
            Outcome::Stored => {
                let tenant_id = request.tenant_id().into();
                log.heads.learn(&commit.aggregate, Head { version, tenant_id }, epoch);
                return Ok(Stored { version, repeated: None });
            }
            Outcome::Duplicate(index) => {
                let known = !index.is_empty();
                let of_requests = match known {
                    true => index.len() == 1 && index.iter().all(|field| field == "requestId"),
                    false => {
                        log.requests == Requests::Global
                            && repeat::elsewhere(log, collection, &request.request_id).await?
                    }
                };
                let of_other = of_requests
                    && repeat::find(log, collection, &commit.aggregate, &request.request_id).await?.is_none();
                if of_other {
                    // Here request ids are unique across all aggregates of the name, and this one belongs to another aggregate.
                    return Err(CommitError::RequestIdReused { request_id: request.request_id.clone() });
                }
                // The refused insert was acknowledged by a majority. An aborted transaction was not, and a response that cannot be parsed
                // proves nothing.
                head = match commit.keys.is_empty() && known {
                    true => log.read_head(collection, &commit.aggregate).await?,
                    false => log.confirm_head(collection, &commit.aggregate).await?,
                };
                current = true;
                collided = true;
            }
            Outcome::Refused(why) => {
                return Err(StoreError::ReadOnly(format!("MongoDB refuses the commit: {why}")).into());
            }
            Outcome::NotSent => return Err(StoreError::Overloaded.into()),
            Outcome::Replaced => {
                into = renewed(log, collection, into).await?;
                epoch = log.heads.epoch();
                (head, current) = (log.read_head(collection, &commit.aggregate).await?, false);
            }
            Outcome::Unknown(why) => {
                return Err(StoreError::Unreachable(format!("{why} (request id {:?})", request.request_id)).into());
            }
        }
    }
    Err(StoreError::Overloaded.into())
}

/// Prepares a collection in place of one that was dropped or renamed.
async fn renewed(log: &Log, collection: &str, before: Uuid) -> Result<Uuid, CommitError> {
    log.schema.forget(collection, before);
    log.schema.ensure(collection).await.map(|ready| ready.uuid).map_err(not_ready)
}

fn repeated(first: StoredCommit, request: &Request<'_>) -> Result<Stored, CommitError> {
    if !repeat::is_same(&first, request.commit) {
        return Err(CommitError::RequestIdReused { request_id: request.request_id.clone() });
    }
    Ok(Stored { version: first.info.version, repeated: Some(first) })
}
