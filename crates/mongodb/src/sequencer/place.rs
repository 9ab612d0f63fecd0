//! A log as the sequencer knows it: where it stands, where its aggregates stand in it, and what is held back.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use annals_core::{SequenceNumber, Version};
use annals_system::Instant;
use mongodb::ClientSession;
use mongodb::bson::{Document, RawDocumentBuf, doc};

use super::aggregates::Known;
use super::assign::{Arrived, Numbered, assign, first_versions};
use super::contexts::Contexts;
use super::held::{self, Held};
use super::state::{self, Token};
use super::step::AtStep;
use super::stream::Incoming;
use super::write::{self, Written};
use super::{Cluster, Ended};
use crate::layout::entry;
use crate::layout::fields::natural;
use crate::layout::names::{ENTRIES, EVENT_LOG, EVENT_LOG_METADATA, SEQUENCER};
use crate::log::Log;
use crate::log::numbers::Place as CommitPlace;
use crate::reach;
use crate::refused::{code_of, message_of};

/// An aggregate in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Head {
    pub(super) version: Version,
    /// Events that it applied.
    pub(super) applied: u64,
}

/// An aggregate's name and id.
pub(super) type AggregateKey = (String, String);

/// How often the position in the stream is saved with what is written: what the log has beyond it is told apart after a restart, so it
/// may lie behind, and saving it costs a round trip inside the transaction.
const SAVE_EVERY: Duration = Duration::from_millis(500);

/// Aggregates whose heads are kept. Beyond it all are forgotten and looked up again.
const HEADS_MAX: usize = 200_000;

pub(super) struct Place {
    pub(super) log: Arc<Log>,
    pub(super) session: ClientSession,
    pub(super) at_step: AtStep,
    /// The number that the next event gets.
    pub(super) next: SequenceNumber,
    pub(super) token: Option<Token>,
    pub(super) heads: HashMap<AggregateKey, Head>,
    pub(super) aggregates: Known,
    pub(super) held: Held,
    /// Whether what comes may be in the log already: from the opening of the stream until something came that was not. It spares what
    /// the unique index would refuse, and decides nothing.
    replaying: bool,
    /// When the position was saved; none before the first time.
    saved: Option<Instant>,
    contexts: Contexts,
}

impl Place {
    /// Whether this commit is held.
    pub(super) fn holds(&self, collection: &str, commit: &str) -> bool {
        self.held.find(collection, commit).is_some()
    }

    pub(super) async fn open(cluster: &Cluster, log: Arc<Log>, forgotten: bool) -> Result<Self, Ended> {
        // The offset decides whether a batch may be written. Nothing before it needs to be waited for: a session that is causally
        // consistent would wait for the majority to have what others wrote meanwhile.
        let session = cluster.client.start_session().causal_consistency(false).await?;
        // One moment: who moved the offset without an entry gave numbers that nobody here knows of.
        let reach = reach::read(&log.database).await?;
        if let Some(fault) = reach::fault(log.database.name(), &reach) {
            log.disturb(Some(fault.message.clone()));
            return Err(Ended::Disturbed(fault.message));
        }
        log.disturb(None);
        let next = reach.known();
        log.numbers.publish(next);
        match log.cut_blocks(next).await {
            // Who may not remove them may not write them either.
            Err(error) if code_of(&error).is_some() => {
                tracing::warn!(error = message_of(&error), tenant = log.tenant, "blocks of entries cannot be kept");
            }
            other => other?,
        }
        let mut token = if forgotten { None } else { state::read(&log.database).await? };
        if let Some(ahead) = &token
            && state::is_ahead(&cluster.client, ahead).await?
        {
            tracing::warn!(
                tenant = log.tenant,
                "the position in the change stream is of another cluster; it is not used"
            );
            token = None;
        }
        let held = Held::read(&log.database).await?;
        log.held.set(held.count());
        let at_step = cluster.at_step;
        let (heads, aggregates, contexts) = (HashMap::new(), Known::default(), Contexts::default());
        let (replaying, saved) = (true, None);
        Ok(Self { log, session, at_step, next, token, heads, aggregates, held, replaying, saved, contexts })
    }

    pub(super) fn session_id(&self) -> Document {
        self.session.id().clone()
    }

    /// Saves how far the log has come where nothing of its own came.
    pub(super) async fn save(&mut self, token: &Token) -> Result<(), Ended> {
        state::save(&self.log.database, token).await?;
        self.token = Some(token.clone());
        Ok(())
    }

    /// Gives numbers to commits in the order in which they come.
    pub(super) async fn sequence(&mut self, commits: Vec<Incoming>) -> Result<(), Ended> {
        self.take(commits).await?;
        self.release_held().await
    }

    async fn take(&mut self, commits: Vec<Incoming>) -> Result<(), Ended> {
        let token = commits.iter().rev().find_map(|commit| commit.token.clone());
        let began = Instant::now();
        let due = self.saved.is_none_or(|saved| began - saved >= SAVE_EVERY);
        self.contexts.note(&self.log, &commits).await?;
        let mut arrived: Vec<Arrived> = commits.into_iter().map(Arrived::read).collect();
        loop {
            let looked = self.replaying;
            if looked {
                let wanted: Vec<_> = arrived.iter().map(|one| (&*one.collection, &*one.commit)).collect();
                let known = self.known(&wanted).await?;
                arrived.retain(|one| !known.contains(&(one.collection.clone(), one.commit.clone())));
                self.replaying = !known.is_empty();
            }
            self.leave_out_mended(&mut arrived).await?;
            self.look_up_heads(&arrived).await?;
            let late = self.late(&arrived).await?;
            let batch = assign(&arrived, &self.heads, &self.held, &late);
            match write::write(self, &batch, token.as_ref().filter(|_| due)).await? {
                Written::Done => {
                    batch.released.iter().for_each(|held| self.held.remove(held));
                    batch.held.iter().for_each(|held| self.held.add(held.clone()));
                    self.log.held.set(self.held.count());
                    if due && token.is_some() && !batch.is_empty() {
                        self.saved = Some(began);
                    }
                    break;
                }
                Written::Known if looked && !self.replaying => {
                    return Err(self.disturbed("an event has a number already that was the next one"));
                }
                // Something of it is in the log already: told apart, and the rest once more.
                Written::Known => {
                    self.replaying = true;
                    self.heads.clear();
                    self.aggregates.forget();
                }
            }
        }
        self.token = token.or(self.token.take());
        Ok(())
    }

    fn disturbed(&self, what: &str) -> Ended {
        let name = self.log.database.name();
        let sentence =
            format!("database {name}: {what}: events are numbered by other software, most often a Dolittle Runtime");
        self.log.disturb(Some(sentence.clone()));
        Ended::Disturbed(sentence)
    }

    /// Sees that no event has a number that was not given here. Cheap, for who looks now and then.
    pub(super) async fn look_for_others(&self) -> Result<(), Ended> {
        let events = self.log.database.collection::<RawDocumentBuf>(EVENT_LOG);
        let last = events.find_one(doc! {}).sort(doc! { "_id": -1 }).projection(doc! { "_id": 1 }).await?;
        match last.as_deref().map(|last| natural(last, "_id")) {
            Some(Some(number)) if number < self.next => Ok(()),
            None => Ok(()),
            Some(number) => {
                let number = number.map_or("an _id that is no number".to_owned(), |number| format!("number {number}"));
                Err(self.disturbed(&format!("{EVENT_LOG} has {number}, and Annals has given {} numbers", self.next)))
            }
        }
    }

    /// Remembers what was written up to the number `next`, and tells who waits.
    pub(super) fn note(&mut self, written: &[Numbered<'_>], next: SequenceNumber) {
        if self.heads.len() > HEADS_MAX {
            self.heads.clear();
        }
        let mut first = std::mem::replace(&mut self.next, next);
        // Before anybody is woken to read it.
        self.log.tail.push(first, written.iter().map(|one| one.commit));
        self.log.numbers.publish(next);
        self.log.numbers.give_all(written.iter().map(|one| {
            let number = first;
            first += one.commit.events.len() as u64;
            (one.collection, &*one.commit.key, number)
        }));
        for one in written {
            match self.heads.get_mut(one.key) {
                Some(head) => *head = one.after(),
                None => drop(self.heads.insert(one.key.clone(), one.after())),
            }
        }
    }

    /// Which of these, by collection and `_id`, are in the log already.
    pub(super) async fn known(&self, wanted: &[(&str, &str)]) -> Result<HashSet<(String, String)>, Ended> {
        let mut by_collection: HashMap<&str, Vec<&str>> = HashMap::new();
        for (collection, commit) in wanted {
            by_collection.entry(collection).or_default().push(commit);
        }
        let mut known = HashSet::new();
        for (collection, commits) in by_collection {
            let filter = doc! { "coll": collection, "commit": { "$in": commits } };
            let mut found = self.log.database.collection::<RawDocumentBuf>(ENTRIES).find(filter).await?;
            while found.advance().await? {
                let entry = entry::read(found.current()).map_err(Ended::Damaged)?;
                self.log.numbers.give(&CommitPlace::new(&entry.collection, &entry.commit), entry.first);
                known.insert((entry.collection.to_string(), entry.commit));
            }
        }
        Ok(known)
    }

    /// A stream that goes back shows a commit as it was inserted, although it was mended since and has its numbers: what cannot be read is
    /// looked for in the log by its place alone.
    async fn leave_out_mended(&self, arrived: &mut Vec<Arrived>) -> Result<(), Ended> {
        let malformed = arrived.iter().filter(|one| one.read.is_err());
        let malformed: Vec<_> = malformed.map(|one| (&*one.collection, &*one.commit)).collect();
        if malformed.is_empty() {
            return Ok(());
        }
        let known = self.known(&malformed).await?;
        arrived.retain(|one| !known.contains(&(one.collection.clone(), one.commit.clone())));
        Ok(())
    }

    /// Which of these have a version that the log has passed without them: gaps before later ones were accepted.
    async fn late(&mut self, arrived: &[Arrived]) -> Result<HashSet<(String, String)>, Ended> {
        let passed = arrived.iter().filter(|one| match &one.read {
            Ok((key, commit)) => self.heads.get(key).is_some_and(|head| commit.info.version <= head.version),
            Err(_) => false,
        });
        let passed: Vec<(&str, &str)> = passed.map(|one| (&*one.collection, &*one.commit)).collect();
        if passed.is_empty() {
            return Ok(HashSet::new());
        }
        let known = self.known(&passed).await?;
        let owned = passed.into_iter().map(|(collection, commit)| (collection.to_owned(), commit.to_owned()));
        Ok(owned.filter(|one| !known.contains(one)).collect())
    }

    /// Looks up where the aggregates stand that are not known, by the entry before their first commit here. A first version needs none.
    async fn look_up_heads(&mut self, arrived: &[Arrived]) -> Result<(), Ended> {
        let before: Vec<Document> = first_versions(arrived)
            .into_iter()
            .filter(|(key, version)| *version > 1 && !self.heads.contains_key(*key))
            .map(|((name, id), version)| doc! { "aggregate": name, "id": id, "version": version as i64 - 1 })
            .collect();
        if before.is_empty() {
            return Ok(());
        }
        let entries = self.log.database.collection::<RawDocumentBuf>(ENTRIES);
        let mut found = entries.find(doc! { "$or": before }).await?;
        while found.advance().await? {
            let document = found.current();
            let (version, applied) = entry::standing(document).map_err(Ended::Damaged)?;
            let part = |key: &str| crate::layout::fields::text(document, key).unwrap_or_default().to_owned();
            self.heads.insert((part("aggregate"), part("id")), Head { version, applied });
        }
        let missing = first_versions(arrived).into_iter();
        let missing = missing.filter(|(key, version)| *version > 1 && !self.heads.contains_key(*key));
        let missing: Vec<_> = missing.map(|(key, version)| (key.clone(), version)).collect();
        self.look_up_gaps(missing).await
    }

    /// Takes what was held back for a gap that is closed now.
    async fn release_held(&mut self) -> Result<(), Ended> {
        while let Some(ready) = self.held.ready(&self.heads) {
            match held::fetch(&self.log.database, &ready).await? {
                Some(document) => {
                    let commit = Incoming::stored(self.log.database.name(), &ready.collection, document);
                    self.take(vec![commit]).await?;
                    // If it is not what it was when it was held, it is looked at again by the next sequencer.
                    self.held.remove(&ready);
                }
                None => self.held.remove(&ready),
            }
        }
        Ok(())
    }

    /// Looks again at everything that is held back: it may have been mended.
    pub(super) async fn retry_held(&mut self) -> Result<(), Ended> {
        for one in self.held.all() {
            self.look_again(&one, false).await?;
            // Also what was asked while nobody led.
            if self.held.find(&one.collection, &one.commit).is_some() {
                self.answer(&one.collection, &one.commit).await?;
            }
        }
        Ok(())
    }

    /// Records that the events from this number on were found without the change stream, so that their order across aggregates is that of
    /// their times.
    pub(super) async fn note_recovered(&self, from: SequenceNumber) -> Result<(), Ended> {
        let range = doc! { "$push": { "recovered": { "from": from as i64, "to": self.next as i64 } } };
        let state = self.log.database.collection::<Document>(SEQUENCER);
        state.update_one(state::of_log(), range).upsert(true).await?;
        Ok(())
    }
}

/// The number that the next event of this log gets, at majority.
pub(super) async fn read_next(log: &Log) -> Result<SequenceNumber, Ended> {
    let metadata = log.database.collection::<RawDocumentBuf>(EVENT_LOG_METADATA);
    let found = metadata.find_one(doc! { "_id": EVENT_LOG }).await?;
    let next = found.as_deref().and_then(|found| natural(found, "NextEventOffset"));
    next.ok_or_else(|| Ended::Damaged(format!("{}: {EVENT_LOG_METADATA} has no number", log.database.name())))
}
