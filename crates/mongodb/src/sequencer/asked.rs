//! Executes an operator's requests about held commits in the leader. A request may be seen more than once, also by a stream that resumes
//! earlier: the current state is read from `sequencer-held` each time, and a completed request is no longer there.

use std::collections::HashSet;

use annals_core::Version;
use futures_util::TryStreamExt;
use futures_util::future::try_join_all;
use mongodb::bson::{Document, RawDocument, RawDocumentBuf, doc};

use super::Ended;
use super::assign::{Arrived, CommitKey};
use super::held::{HeldCommit, fetch};
use super::place::{AggregateKey, Head, Place};
use super::stream::Incoming;
use crate::layout::entry;
use crate::layout::fields::{inner, text};
use crate::layout::names::{ENTRIES, HELD};
use crate::sequencing::ACCEPT;

/// Held commits that are fetched together.
pub(super) const TOGETHER: usize = 500;
/// Aggregates that are looked up concurrently.
const LOOKS: usize = 16;

impl Place {
    /// Executes the request about one held commit.
    pub(super) async fn answer(&mut self, collection: &str, commit: &str) -> Result<(), Ended> {
        let all = self.log.database.collection::<RawDocumentBuf>(HELD);
        let Some(found) = all.find_one(id_of(collection, commit)).await? else { return Ok(()) };
        let Some(asked) = inner(&found, "asked") else { return Ok(()) };
        let name = text(asked, "id").unwrap_or_default();
        let accept = text(asked, "what") == Some(ACCEPT);
        let Some(held) = HeldCommit::read(&found) else { return Ok(()) };
        tracing::info!(collection, commit, accept, "an operator asks for a held commit");
        self.look_again(&held, accept).await?;
        // If it is still held, the operator learns why.
        let answered = doc! { "$set": { "answered": name }, "$unset": { "asked": "" } };
        all.update_one(id_of(collection, commit), answered).await?;
        Ok(())
    }

    /// Assigns numbers to a held commit, if that is possible now, and to those that wait for it.
    ///
    /// INVARIANT: accepting a commit declares only versions missing that are not stored. Held commits of lower versions are stored, so
    /// they go first: once the log has passed a version, it can no longer be numbered.
    async fn look_again(&mut self, held: &HeldCommit, accept: bool) -> Result<(), Ended> {
        let mut wanted = if accept { self.held.before(&held.aggregate, held.version) } else { Vec::new() };
        wanted.push(held.clone());
        for one in wanted {
            // It may have been released after the previous one.
            if self.held.find(&one.collection, &one.commit).is_none() && one != *held {
                continue;
            }
            let (there, gone) = fetch(&self.log.database, &[one]).await?;
            self.forget(gone).await?;
            for (one, document) in there {
                if accept {
                    self.accept(&one.collection, &document).await?;
                }
                self.sequence(vec![Incoming::stored(self.log.database.name(), &one.collection, document)]).await?;
            }
        }
        Ok(())
    }

    /// Removes held commits that are no longer stored.
    pub(super) async fn forget(&mut self, gone: Vec<HeldCommit>) -> Result<(), Ended> {
        if gone.is_empty() {
            return Ok(());
        }
        let ids: Vec<Document> = gone.iter().map(HeldCommit::id).collect();
        let all = self.log.database.collection::<Document>(HELD);
        all.delete_many(doc! { "_id": { "$in": ids } }).await?;
        for one in gone {
            tracing::info!(collection = one.collection, commit = one.commit, "a held commit is gone");
            self.held.remove(&one);
        }
        self.log.held.set(self.held.count());
        Ok(())
    }

    /// Declares the versions before this commit missing, if they are what it waits for.
    async fn accept(&mut self, collection: &str, document: &RawDocument) -> Result<(), Ended> {
        let incoming = Incoming::stored(self.log.database.name(), collection, document.to_owned());
        let Ok((key, commit)) = Arrived::read(incoming).read else { return Ok(()) };
        let head = self.newest(&key).await?.unwrap_or_default();
        if commit.info.version > head.version + 1 {
            tracing::warn!(?key, from = head.version, to = commit.info.version, "versions are taken for missing");
            self.heads.insert(key, Head { version: commit.info.version - 1, applied: head.applied });
        }
        Ok(())
    }

    /// Examines all held commits again, since they may have been repaired. Then executes the requests that were made while there was no
    /// leader.
    pub(super) async fn retry_held(&mut self) -> Result<(), Ended> {
        let mut all = self.held.all();
        while !all.is_empty() {
            let some = &all[..all.len().min(TOGETHER)];
            let (there, gone) = fetch(&self.log.database, some).await?;
            let looked_at: HashSet<CommitKey> =
                there.iter().map(|(one, _)| one).chain(&gone).map(HeldCommit::key).collect();
            self.forget(gone).await?;
            let of = |(one, document): (HeldCommit, RawDocumentBuf)| {
                Incoming::stored(self.log.database.name(), &one.collection, document)
            };
            let commits = there.into_iter().map(of).collect();
            self.sequence(commits).await?;
            all.retain(|one| !looked_at.contains(&one.key()));
        }
        let all = self.log.database.collection::<RawDocumentBuf>(HELD);
        let asked = all.find(doc! { "asked": { "$exists": true } }).await?;
        let asked: Vec<RawDocumentBuf> = asked.try_collect().await?;
        for one in asked.iter().filter_map(|found| HeldCommit::read(found)) {
            self.answer(&one.collection, &one.commit).await?;
        }
        Ok(())
    }

    /// Returns the head of an aggregate in the log, from its newest entry.
    async fn newest(&self, (name, id): &AggregateKey) -> Result<Option<Head>, Ended> {
        let entries = self.log.database.collection::<RawDocumentBuf>(ENTRIES);
        let newest = entries.find_one(doc! { "aggregate": name, "id": id }).sort(doc! { "version": -1 }).await?;
        Ok(newest.and_then(|found| self.standing(&found)))
    }

    /// Returns the head of an aggregate after an entry. Returns `None` if other software has changed the entry; commits of the aggregate
    /// are then held.
    pub(super) fn standing(&self, found: &RawDocument) -> Option<Head> {
        match entry::standing(found) {
            Ok((version, applied)) => Some(Head { version, applied }),
            Err(why) => {
                tracing::error!(tenant = self.log.tenant, why, "an entry of the log was changed by other software");
                None
            }
        }
    }

    /// Looks up the heads of these aggregates from their newest entries, [`LOOKS`] at a time.
    pub(super) async fn look_up_newest(&mut self, aggregates: Vec<(AggregateKey, Version)>) -> Result<(), Ended> {
        for some in aggregates.chunks(LOOKS) {
            let newest = try_join_all(some.iter().map(|(key, _)| self.newest(key))).await?;
            for ((key, _), head) in some.iter().zip(newest) {
                self.heads.extend(head.map(|head| (key.clone(), head)));
            }
        }
        Ok(())
    }
}

fn id_of(collection: &str, commit: &str) -> Document {
    doc! { "_id": { "coll": collection, "commit": commit } }
}
