//! Commits that cannot be numbered yet. They are listed in `sequencer-held` with the reason, and released when it no longer applies.
//!
//! ```text
//! sequencer-held: {_id: {coll, commit}, aggregate, id, version, reason, since date, asked?: {id, what}, answered?: id}
//! ```

use std::collections::{BTreeSet, HashMap};

use annals_core::Version;
use mongodb::bson::{Document, RawDocument, RawDocumentBuf, doc};
use mongodb::{ClientSession, Database};

use super::Ended;
use super::assign::{CommitKey, begins, label};
use super::place::{AggregateKey, Head};
use crate::layout::fields::{inner, natural, text};
use crate::layout::names::HELD;
use crate::refused::WriteRefused;

/// Prefix of the reason of a commit that arrived before its predecessor.
pub(super) const GAP: &str = "gap: ";
/// Approximate limit of the bytes of held commits that are fetched together.
const FETCH_BYTES_MAX: usize = 16 * 1024 * 1024;

/// A held commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HeldCommit {
    pub(super) collection: String,
    /// Its `_id`, as text.
    pub(super) commit: String,
    /// If it is malformed: the name according to its collection, and the id if it has one.
    pub(super) aggregate: AggregateKey,
    /// 0 if it is malformed, so that it is never the next version of an aggregate.
    pub(super) version: Version,
    pub(super) reason: String,
}

impl HeldCommit {
    /// Reads a held commit from its document; `None` if the `_id` is not that of a held commit.
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

    /// Returns whether it is released automatically once its predecessor is numbered. Other reasons need an operator.
    fn waits(&self) -> bool {
        self.version > 0 && self.reason.starts_with(GAP)
    }

    pub(super) fn key(&self) -> CommitKey {
        (self.collection.clone(), self.commit.clone())
    }

    pub(super) fn id(&self) -> Document {
        doc! { "coll": &self.collection, "commit": &self.commit }
    }

    /// Returns an update that stores it with the server's time.
    fn update(&self) -> Document {
        let (aggregate, id) = &self.aggregate;
        let literal = |text: &str| doc! { "$literal": text };
        let set = doc! { "$set": {
            "aggregate": literal(aggregate), "id": literal(id), "version": self.version as i64,
            "reason": literal(&self.reason), "since": { "$ifNull": ["$since", "$$NOW"] },
        } };
        doc! { "q": { "_id": self.id() }, "u": [set], "upsert": true }
    }
}

/// All held commits of a log.
#[derive(Default)]
pub(super) struct Held {
    commits: HashMap<CommitKey, HeldCommit>,
    /// Commits that wait for an earlier version, by aggregate and in order of version.
    waiting: HashMap<AggregateKey, BTreeSet<(Version, CommitKey)>>,
}

impl Held {
    pub(super) async fn read(database: &Database) -> Result<Self, Ended> {
        let mut found = database.collection::<RawDocumentBuf>(HELD).find(doc! {}).await?;
        let mut held = Self::default();
        while found.advance().await? {
            if let Some(one) = HeldCommit::read(found.current()) {
                held.note(one);
            }
        }
        Ok(held)
    }

    /// Adds a commit that has just become held.
    pub(super) fn add(&mut self, held: HeldCommit) {
        tracing::warn!(
            collection = held.collection,
            commit = held.commit,
            reason = held.reason,
            "a commit is held back"
        );
        self.note(held);
    }

    fn note(&mut self, held: HeldCommit) {
        self.remove(&held);
        if held.waits() {
            let waiting = self.waiting.entry(held.aggregate.clone()).or_default();
            waiting.insert((held.version, held.key()));
        }
        self.commits.insert(held.key(), held);
    }

    pub(super) fn count(&self) -> u64 {
        self.commits.len() as u64
    }

    pub(super) fn remove(&mut self, held: &HeldCommit) {
        let Some(removed) = self.commits.remove(&held.key()) else { return };
        if let Some(waiting) = self.waiting.get_mut(&removed.aggregate) {
            waiting.remove(&(removed.version, removed.key()));
            if waiting.is_empty() {
                self.waiting.remove(&removed.aggregate);
            }
        }
    }

    pub(super) fn find(&self, collection: &str, commit: &str) -> Option<&HeldCommit> {
        if self.commits.is_empty() {
            return None;
        }
        self.commits.get(&(collection.to_owned(), commit.to_owned()))
    }

    /// Returns all held commits in order of version.
    pub(super) fn all(&self) -> Vec<HeldCommit> {
        let mut all: Vec<_> = self.commits.values().cloned().collect();
        all.sort_by_key(|held| held.version);
        all
    }

    /// Records that these were examined: those that are still held no longer wait for an earlier version.
    pub(super) fn looked_at(&mut self, some: &[HeldCommit]) {
        for one in some {
            if let Some(waiting) = self.waiting.get_mut(&one.aggregate) {
                waiting.remove(&(one.version, one.key()));
            }
        }
        self.waiting.retain(|_, waiting| !waiting.is_empty());
    }

    /// Returns the waiting commits of an aggregate below a version, in order of version.
    pub(super) fn before(&self, key: &AggregateKey, version: Version) -> Vec<HeldCommit> {
        let of = self.waiting.get(key).into_iter().flatten();
        of.take_while(|(its, _)| *its < version).filter_map(|(_, key)| self.commits.get(key).cloned()).collect()
    }

    /// Returns at most `most` commits that can be numbered: for each aggregate, the next version and those that follow without a gap.
    pub(super) fn ready(&self, heads: &HashMap<AggregateKey, Head>, most: usize) -> Vec<HeldCommit> {
        let mut ready = Vec::new();
        for (key, waiting) in &self.waiting {
            let Some(head) = heads.get(key) else { continue };
            let first = head.version + 1;
            let behind = waiting.iter().skip_while(|(version, _)| *version < first);
            for (next, (version, key)) in (first..).zip(behind) {
                if *version != next || ready.len() == most {
                    break;
                }
                ready.extend(self.commits.get(key).cloned());
            }
        }
        ready
    }
}

/// Maximum number of held commits written by one command.
const WRITTEN_MAX: usize = 500;

/// Inserts and deletes documents of held commits in the session's transaction.
pub(super) async fn write(
    database: &Database,
    session: &mut ClientSession,
    held: &[HeldCommit],
    released: &[HeldCommit],
) -> mongodb::error::Result<()> {
    for some in held.chunks(WRITTEN_MAX) {
        let updates: Vec<Document> = some.iter().map(HeldCommit::update).collect();
        let answer = database.run_command(doc! { "update": HELD, "updates": updates }).session(&mut *session).await?;
        if let Some(refused) = WriteRefused::first(&answer) {
            return Err(refused.into());
        }
    }
    for some in released.chunks(WRITTEN_MAX) {
        let ids: Vec<Document> = some.iter().map(HeldCommit::id).collect();
        let all = database.collection::<Document>(HELD);
        all.delete_many(doc! { "_id": { "$in": ids } }).session(&mut *session).await?;
    }
    Ok(())
}

/// Returns the documents of held commits, in the same order, and the held commits whose documents are gone. If they are large together,
/// some are in neither list.
pub(super) async fn fetch(
    database: &Database,
    held: &[HeldCommit],
) -> Result<(Vec<(HeldCommit, RawDocumentBuf)>, Vec<HeldCommit>), Ended> {
    let mut wanted: HashMap<&str, Vec<&str>> = HashMap::new();
    for one in held {
        wanted.entry(&one.collection).or_default().push(&one.commit);
    }
    let mut stored: HashMap<CommitKey, RawDocumentBuf> = HashMap::new();
    let mut bytes = 0;
    for (collection, ids) in wanted {
        let commits = database.collection::<RawDocumentBuf>(collection);
        let mut found = commits.find(doc! { "_id": { "$in": ids } }).await?;
        while bytes < FETCH_BYTES_MAX && found.advance().await? {
            let document = found.current();
            bytes += document.as_bytes().len();
            stored.insert((collection.to_owned(), label(document)), document.to_owned());
        }
    }
    let (mut there, mut gone) = (Vec::with_capacity(held.len()), Vec::new());
    for one in held {
        let document = match stored.remove(&one.key()) {
            Some(document) => Some(document),
            None if bytes >= FETCH_BYTES_MAX => continue,
            None => strange(database, one).await?,
        };
        match document {
            Some(document) => there.push((one.clone(), document)),
            None => gone.push(one.clone()),
        }
    }
    Ok((there, gone))
}

/// Finds a held commit whose `_id` is not a string or is very long. Such a commit is malformed, and is identified by the label of its
/// `_id`.
async fn strange(database: &Database, held: &HeldCommit) -> Result<Option<RawDocumentBuf>, Ended> {
    let long = begins(&held.commit).map(|beginning| format!("{beginning}\u{10ffff}"));
    let long = long.zip(begins(&held.commit)).map(|(end, beginning)| doc! { "_id": { "$gte": beginning, "$lt": end } });
    let any: Vec<Document> = long.into_iter().chain([doc! { "_id": { "$not": { "$type": "string" } } }]).collect();
    let commits = database.collection::<RawDocumentBuf>(&held.collection);
    let mut others = commits.find(doc! { "$or": any }).await?;
    while others.advance().await? {
        if label(others.current()) == held.commit {
            return Ok(Some(others.current().to_owned()));
        }
    }
    Ok(None)
}
