//! An operator's requests to the sequencer. The process that receives a request need not be the leader. It records the request in the
//! document of the held commit, and the leader sees it in its change stream (`sequencer/asked.rs`). The outcome is read from the same
//! document.
//!
//! ```text
//! ask ─▶ sequencer-held: asked {id, what} ─▶ change stream ─▶ leader ─▶ numbered: the document is gone, and event-log-commits has it
//!                                                                       held still: answered id, reason
//! ```

use std::sync::Arc;
use std::time::Duration;

use annals_core::{
    Ask, Asked, Code, HeldCommit, HeldId, Invalid, Leader, ReadError, SequencerState, Sequencing, StoreError,
    Timestamp, limits, new_uuid,
};
use annals_system::sleep;
use async_trait::async_trait;
use mongodb::bson::{Document, RawDocument, RawDocumentBuf, doc};

use crate::layout::fields::{inner, integer, natural, text};
use crate::layout::names::{HELD, SEQUENCER};
use crate::log::Log;
use crate::log::numbers::Place;
use crate::refused::reading;
use crate::sequencer::{Cluster, contexts, missing};

/// Timeout for the answer to a request: longer than another process needs to take over the lease.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(10);
/// Interval between two checks for an answer.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// The sequencer as a port, for the log of one tenant.
pub(crate) struct AskSequencer {
    pub(crate) log: Arc<Log>,
    pub(crate) cluster: Arc<Cluster>,
}

#[async_trait]
impl Sequencing for AskSequencer {
    async fn state(&self) -> Result<SequencerState, ReadError> {
        self.log.means.answers.of(self.read_state()).await
    }

    async fn held(&self, after: Option<HeldId>, limit: usize) -> Result<Vec<HeldCommit>, ReadError> {
        if !(1..=limits::PAGE_MAX).contains(&limit) {
            let message = format!("is {limit}; 1 to {} are allowed", limits::PAGE_MAX);
            return Err(Invalid::new(Code::InvalidQuery, "limit", message).into());
        }
        let filter = after.map_or_else(Document::new, |after| doc! { "_id": { "$gt": id_of(&after) } });
        let all = self.log.database.collection::<RawDocumentBuf>(HELD);
        let list = async {
            let find = all.find(filter).sort(doc! { "_id": 1 }).limit(i64::try_from(limit).unwrap_or(i64::MAX));
            let mut found = find.await.map_err(|error| reading(&error))?;
            let mut held = Vec::new();
            while found.advance().await.map_err(|error| reading(&error))? {
                held.extend(held_commit(found.current()));
            }
            Ok(held)
        };
        self.log.means.answers.of(list).await
    }

    async fn ask(&self, commit: HeldId, what: Ask) -> Result<Asked, ReadError> {
        let all = self.log.database.collection::<RawDocumentBuf>(HELD);
        let name = new_uuid(self.log.clock.now(), &*self.log.random).to_string();
        let word = match what {
            Ask::Retry => RETRY,
            Ask::Accept => ACCEPT,
        };
        let ask = doc! { "$set": { "asked": { "id": &name, "what": word } } };
        let note = async { all.update_one(doc! { "_id": id_of(&commit) }, ask).await.map_err(|error| reading(&error)) };
        let noted = self.log.means.answers.of(note).await?;
        if noted.matched_count == 0 {
            let HeldId { collection, commit } = commit;
            let message = format!("the sequencer holds back no commit {commit:?} of {collection}");
            return Err(Invalid::new(Code::UnknownHeldCommit, "", message).into());
        }
        let answer = async {
            loop {
                if let Some(asked) = self.answered(&commit, &name).await? {
                    return Ok(asked);
                }
                sleep(LOOK_EVERY).await;
            }
        };
        tokio::time::timeout(ANSWER_TIME_MAX, answer).await.unwrap_or_else(|_| {
            let sentence = "no sequencer has answered yet; what was asked stays, and the next one does it";
            Err(StoreError::Unreachable(sentence.to_owned()).into())
        })
    }
}

impl AskSequencer {
    async fn read_state(&self) -> Result<SequencerState, ReadError> {
        let asked = |error: mongodb::error::Error| reading(&error);
        let head = self.log.read_log_head().await?;
        let held = self.log.database.collection::<Document>(HELD).count_documents(doc! {}).await.map_err(asked)?;
        let leader = match self.cluster.logs.first() {
            Some(first) => {
                // Compared with the server's clock, like the lease itself.
                let now = doc! { "_id": "lease", "$expr": { "$gt": ["$until", "$$NOW"] } };
                let state = first.database.collection::<RawDocumentBuf>(SEQUENCER);
                let lease = state.find_one(now).await.map_err(asked)?;
                lease.as_deref().and_then(|lease| leader(lease, &self.cluster.holder))
            }
            None => None,
        };
        let other_contexts = contexts::others(&self.log.database).await.map_err(asked)?;
        let missing = missing::found(&self.log.database).await.map_err(asked)?;
        Ok(SequencerState { leader, head, held, other_contexts, missing })
    }

    /// Returns the outcome of the request with the id `name`, once there is one.
    async fn answered(&self, commit: &HeldId, name: &str) -> Result<Option<Asked>, ReadError> {
        let all = self.log.database.collection::<RawDocumentBuf>(HELD);
        let found = all.find_one(doc! { "_id": id_of(commit) }).await.map_err(|error| reading(&error))?;
        let Some(found) = found else {
            let entry = self.log.entry(&Place::new(&commit.collection, &commit.commit)).await?;
            return Ok(Some(entry.map_or(Asked::Gone, |entry| Asked::Numbered { sequence_number: entry.first })));
        };
        let answered = text(&found, "answered").is_some_and(|answered| answered == name);
        Ok(answered.then(|| Asked::Held { reason: text(&found, "reason").unwrap_or_default().to_owned() }))
    }
}

pub(crate) const RETRY: &str = "retry";
pub(crate) const ACCEPT: &str = "accept";

fn id_of(commit: &HeldId) -> Document {
    doc! { "coll": &commit.collection, "commit": &commit.commit }
}

fn held_commit(document: &RawDocument) -> Option<HeldCommit> {
    let id = inner(document, "_id")?;
    let part = |document: &RawDocument, key: &str| text(document, key).unwrap_or_default().to_owned();
    Some(HeldCommit {
        id: HeldId { collection: part(id, "coll"), commit: part(id, "commit") },
        aggregate_name: part(document, "aggregate"),
        aggregate_id: part(document, "id"),
        version: natural(document, "version").unwrap_or(0),
        reason: part(document, "reason"),
        since: time(document, "since"),
    })
}

fn leader(lease: &RawDocument, own: &str) -> Option<Leader> {
    let holder = text(lease, "holder")?.to_owned();
    Some(Leader {
        process: text(lease, "process").unwrap_or_default().to_owned(),
        epoch: natural(lease, "epoch").unwrap_or(0),
        until: time(lease, "until")?,
        lag_ms: integer(lease, "lag").and_then(|lag| u64::try_from(lag).ok()).unwrap_or(0),
        here: holder == own,
        holder,
    })
}

fn time(document: &RawDocument, key: &str) -> Option<Timestamp> {
    let date = document.get_datetime(key).ok()?;
    Some(Timestamp::from_millis(date.timestamp_millis()))
}
