//! Commits that cannot be given numbers yet: visible in `sequencer-held` with the reason, and taken up again when it is gone.
//!
//! ```text
//! sequencer-held: {_id: {coll, commit}, aggregate, id, version, reason, since date, asked?: {id, what}, answered?: id}
//! ```

use std::collections::HashMap;

use annals_core::Version;
use mongodb::Database;
use mongodb::bson::{Bson, Document, RawDocument, RawDocumentBuf, doc};

use super::Ended;
use super::assign::label;
use super::place::{AggregateKey, Head};
use crate::layout::fields::{inner, natural, text};
use crate::layout::names::HELD;

/// A commit that is held back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HeldCommit {
    pub(super) collection: String,
    /// Its `_id`, as text.
    pub(super) commit: String,
    /// Where it is malformed, the name by its collection, and the id as far as there is one.
    pub(super) aggregate: AggregateKey,
    /// 0 where it is malformed, so that it is the next of no aggregate.
    pub(super) version: Version,
    pub(super) reason: String,
}

impl HeldCommit {
    /// One as it is stored; none when its `_id` is no place.
    pub(super) fn read(document: &RawDocument) -> Option<Self> {
        let part = |key: &str| text(document, key).unwrap_or_default().to_owned();
        let id = inner(document, "_id")?;
        let place = |key: &str| text(id, key).unwrap_or_default().to_owned();
        Some(Self {
            collection: place("coll"),
            commit: place("commit"),
            aggregate: (part("aggregate"), part("id")),
            version: natural(document, "version").unwrap_or(0),
            reason: part("reason"),
        })
    }

    pub(super) fn id(&self) -> Document {
        doc! { "coll": &self.collection, "commit": &self.commit }
    }

    /// An update that writes it with the server's time.
    pub(super) fn update(&self) -> Vec<Document> {
        let (aggregate, id) = &self.aggregate;
        let literal = |text: &str| doc! { "$literal": text };
        vec![doc! { "$set": {
            "aggregate": literal(aggregate), "id": literal(id), "version": self.version as i64,
            "reason": literal(&self.reason), "since": { "$ifNull": ["$since", "$$NOW"] },
        } }]
    }
}

/// All that is held back of one log.
#[derive(Default)]
pub(super) struct Held {
    commits: HashMap<(String, String), HeldCommit>,
}

impl Held {
    pub(super) async fn read(database: &Database) -> Result<Self, Ended> {
        let mut found = database.collection::<RawDocumentBuf>(HELD).find(doc! {}).await?;
        let mut held = Self::default();
        while found.advance().await? {
            if let Some(one) = HeldCommit::read(found.current()) {
                held.add(one);
            }
        }
        Ok(held)
    }

    pub(super) fn add(&mut self, held: HeldCommit) {
        tracing::warn!(
            collection = held.collection,
            commit = held.commit,
            reason = held.reason,
            "a commit is held back"
        );
        self.commits.insert((held.collection.clone(), held.commit.clone()), held);
    }

    pub(super) fn count(&self) -> u64 {
        self.commits.len() as u64
    }

    pub(super) fn remove(&mut self, held: &HeldCommit) {
        self.commits.remove(&(held.collection.clone(), held.commit.clone()));
    }

    pub(super) fn find(&self, collection: &str, commit: &str) -> Option<&HeldCommit> {
        if self.commits.is_empty() {
            return None;
        }
        self.commits.get(&(collection.to_owned(), commit.to_owned()))
    }

    pub(super) fn all(&self) -> Vec<HeldCommit> {
        let mut all: Vec<_> = self.commits.values().cloned().collect();
        all.sort_by_key(|held| held.version);
        all
    }

    /// One whose aggregate stands right before it now.
    pub(super) fn ready(&self, heads: &HashMap<AggregateKey, Head>) -> Option<HeldCommit> {
        let is_next =
            |held: &&HeldCommit| heads.get(&held.aggregate).is_some_and(|head| head.version + 1 == held.version);
        self.commits.values().find(is_next).cloned()
    }
}

/// The commit as it is stored now; none when it is gone.
pub(super) async fn fetch(database: &Database, held: &HeldCommit) -> Result<Option<RawDocumentBuf>, Ended> {
    let commits = database.collection::<RawDocumentBuf>(&held.collection);
    if let Some(found) = commits.find_one(doc! { "_id": Bson::from(&*held.commit) }).await? {
        return Ok(Some(found));
    }
    // One whose `_id` is no text is malformed, and is known by what its `_id` looks like.
    let mut others = commits.find(doc! { "_id": { "$not": { "$type": "string" } } }).await?;
    while others.advance().await? {
        if label(others.current()) == held.commit {
            return Ok(Some(others.deserialize_current()?));
        }
    }
    Ok(None)
}
