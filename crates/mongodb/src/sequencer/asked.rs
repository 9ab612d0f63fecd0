//! What an operator asks for a held commit, done by the process that leads. It may be asked more than once and by a stream that goes
//! back: what is done is read from `sequencer-held` each time, and what was done is not there any more.

use annals_core::Version;
use mongodb::bson::{Document, RawDocument, RawDocumentBuf, doc};

use super::Ended;
use super::assign::Arrived;
use super::held::{HeldCommit, fetch};
use super::place::{AggregateKey, Head, Place};
use super::stream::Incoming;
use crate::layout::entry;
use crate::layout::fields::{inner, text};
use crate::layout::names::{ENTRIES, HELD};
use crate::sequencing::ACCEPT;

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
    pub(super) async fn look_again(&mut self, held: &HeldCommit, accept: bool) -> Result<(), Ended> {
        let database = self.log.database.clone();
        let Some(document) = fetch(&database, held).await? else {
            let all = database.collection::<Document>(HELD);
            all.delete_one(doc! { "_id": held.id() }).await?;
            self.held.remove(held);
            self.log.held.set(self.held.count());
            tracing::info!(collection = held.collection, commit = held.commit, "a held commit is gone");
            return Ok(());
        };
        if accept {
            self.accept(&held.collection, &document).await?;
        }
        self.sequence(vec![Incoming::stored(database.name(), &held.collection, document)]).await
    }

    /// Takes the versions before this commit for missing, if that is what holds it back.
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

    /// Where an aggregate stands in the log, by its newest entry.
    pub(super) async fn newest(&self, (name, id): &AggregateKey) -> Result<Option<Head>, Ended> {
        let entries = self.log.database.collection::<RawDocumentBuf>(ENTRIES);
        let newest = entries.find_one(doc! { "aggregate": name, "id": id }).sort(doc! { "version": -1 }).await?;
        let read = |found: RawDocumentBuf| {
            let (version, applied) = entry::standing(&found).map_err(Ended::Damaged)?;
            Ok(Head { version, applied })
        };
        newest.map(read).transpose()
    }

    /// Knows where these aggregates stand although the version before the one that came is not in the log: then there is a gap.
    pub(super) async fn look_up_gaps(&mut self, missing: Vec<(AggregateKey, Version)>) -> Result<(), Ended> {
        for (key, _) in missing {
            if let Some(head) = self.newest(&key).await? {
                self.heads.insert(key, head);
            }
        }
        Ok(())
    }
}

fn id_of(collection: &str, commit: &str) -> Document {
    doc! { "_id": { "coll": collection, "commit": commit } }
}
