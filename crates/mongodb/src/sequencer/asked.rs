//! What an operator asks for a held commit, done by the process that leads. It may be asked more than once and by a stream that goes
//! back: what is done is read from `sequencer-held` each time, and what was done is not there any more.

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

/// Held commits that are looked at together.
pub(super) const TOGETHER: usize = 500;
/// Aggregates that are looked up side by side.
const LOOKS: usize = 16;

impl Place {
    /// Does what is asked for one held commit.
    pub(super) async fn answer(&mut self, collection: &str, commit: &str) -> Result<(), Ended> {
        let all = self.log.database.collection::<RawDocumentBuf>(HELD);
        let Some(found) = all.find_one(id_of(collection, commit)).await? else { return Ok(()) };
        let Some(asked) = inner(&found, "asked") else { return Ok(()) };
        let name = text(asked, "id").unwrap_or_default();
        let accept = text(asked, "what") == Some(ACCEPT);
        let Some(held) = HeldCommit::read(&found) else { return Ok(()) };
        tracing::info!(collection, commit, accept, "an operator asks for a held commit");
        self.look_again(&held, accept).await?;
        // If it is still held, whoever asked learns why.
        let answered = doc! { "$set": { "answered": name }, "$unset": { "asked": "" } };
        all.update_one(id_of(collection, commit), answered).await?;
        Ok(())
    }

    /// Gives a held commit its numbers, if it may have them now, and those behind it.
    ///
    /// Who accepts a commit takes every version for missing that is not stored. What is held of the versions before it is stored, so it
    /// goes first: once the log has passed it, it could have no numbers any more.
    async fn look_again(&mut self, held: &HeldCommit, accept: bool) -> Result<(), Ended> {
        let mut wanted = if accept { self.held.before(&held.aggregate, held.version) } else { Vec::new() };
        wanted.push(held.clone());
        for one in wanted {
            // It may have followed on the one before it.
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

    /// Commits that were held and are not stored any more.
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

    /// Takes the versions before this commit for missing, if that is what holds it back.
    async fn accept(&mut self, collection: &str, document: &RawDocument) -> Result<(), Ended> {
        let incoming = Incoming::stored(self.log.database.name(), collection, document.to_owned());
        let Ok((key, commit)) = Arrived::read(incoming).read else { return Ok(()) };
        let head = self.newest(&key).await?.unwrap_or_default();
        if commit.info.version > head.version + 1 {
            tracing::warn!(?key, from = head.version, to = commit.info.version, "versions are accepted as missing");
            self.heads.insert(key, Head { version: commit.info.version - 1, applied: head.applied });
        }
        Ok(())
    }

    /// Looks again at everything that is held back: it may have been mended. Then at what was asked while nobody led.
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

    /// Where an aggregate stands in the log, by its newest entry.
    async fn newest(&self, (name, id): &AggregateKey) -> Result<Option<Head>, Ended> {
        let entries = self.log.database.collection::<RawDocumentBuf>(ENTRIES);
        let newest = entries.find_one(doc! { "aggregate": name, "id": id }).sort(doc! { "version": -1 }).await?;
        Ok(newest.and_then(|found| self.standing(&found)))
    }

    /// Where the aggregate of an entry stands behind it; none, and its commits come too early, where other software has changed the entry.
    pub(super) fn standing(&self, found: &RawDocument) -> Option<Head> {
        match entry::standing(found) {
            Ok((version, applied)) => Some(Head { version, applied }),
            Err(why) => {
                tracing::error!(tenant = self.log.tenant, why, "an entry of the log was changed by other software");
                None
            }
        }
    }

    /// Looks up where these aggregates stand by their newest entries, some at a time.
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
