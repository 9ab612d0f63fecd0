//! The sequencer's state of one log: its next sequence number, the heads of its aggregates, and its held commits.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use annals_core::{Code, SequenceNumber, Version};
use annals_system::Instant;
use mongodb::bson::{Document, RawDocumentBuf, doc};
use uuid::Uuid;

use super::aggregates::Known;
use super::asked::TOGETHER;
use super::assign::{Arrived, CommitKey, Numbered, Obstacles, Taken, assign, first_versions, label};
use super::bound::Bound;
use super::contexts::Contexts;
use super::held::{self, Held, HeldCommit};
use super::lease::Lease;
use super::progress::Progress;
use super::state::{self, Token};
use super::step::AtStep;
use super::steps::Steps;
use super::stream::Incoming;
use super::write::{self, Room, Written};
use super::writing::Writing;
use super::{Cluster, Ended};
use crate::layout::fields::{natural, text};
use crate::layout::mapping::Kind;
use crate::layout::names::{ENTRIES, EVENT_LOG, EVENT_LOG_METADATA, SEQUENCER};
use crate::layout::register;
use crate::layout::writer::{decimal, uuid_value};
use crate::log::Log;
use crate::log::numbers::Place as CommitPlace;
use crate::reach;
use crate::refused::{code_of, message_of};

/// The position of an aggregate in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Head {
    pub(super) version: Version,
    /// Number of events that the aggregate applied.
    pub(super) applied: u64,
}

/// An aggregate's name and id.
pub(super) type AggregateKey = (String, String);

/// How often the resume token is saved with a batch. It may lag, because a restart recognises what the log already has after it, and
/// saving it costs a round trip inside the transaction.
const SAVE_EVERY: Duration = Duration::from_millis(500);

/// How much is looked up before a batch is written. A refusal by a unique index leads to a retry with more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Care {
    /// Commits from the stream are assumed to be new, and to follow the known heads.
    Little,
    /// The head of each aggregate is read from its newest entry.
    More,
    /// In addition, each commit is written alone.
    Most,
}

/// Heads that are cached. When there are more, all are forgotten and looked up again.
const HEADS_MAX: usize = 200_000;

pub(super) struct Place {
    pub(super) log: Arc<Log>,
    pub(super) session: Writing,
    /// The collections that it writes to, by UUID.
    pub(super) bound: Bound,
    /// The size limit of a transaction.
    pub(super) room: Room,
    pub(super) at_step: AtStep,
    pub(super) steps: Arc<Steps>,
    /// The next sequence number.
    pub(super) next: SequenceNumber,
    pub(super) token: Option<Token>,
    pub(super) heads: HashMap<AggregateKey, Head>,
    pub(super) aggregates: Known,
    pub(super) held: Held,
    /// Whether incoming commits may already be in the log: from the opening of the stream until the first new one. INVARIANT: this only
    /// avoids refusals by the unique index; correctness does not depend on it.
    replaying: bool,
    /// When the position was last saved.
    saved: Option<Instant>,
    contexts: Contexts,
    progress: Arc<Progress>,
}

impl Place {
    /// Returns whether this commit is held.
    pub(super) fn holds(&self, collection: &str, commit: &str) -> bool {
        self.held.find(collection, commit).is_some()
    }

    pub(super) async fn open(cluster: &Cluster, lease: &Lease, log: Arc<Log>, forgotten: bool) -> Result<Self, Ended> {
        // The offset decides whether a batch may be written, so no earlier write needs to be awaited. A causally consistent session would
        // wait for the majority to have the writes of others.
        let session = cluster.client.start_session().causal_consistency(false).await?;
        let session = Writing::new(session, lease.left.clone());
        // Read at a single point in time: an offset that moved without an entry means that other software assigned numbers.
        let reach = reach::read(&log.database).await?;
        if let Some(fault) = reach::fault_of_open(log.database.name(), &reach) {
            log.disturb(Some((fault.code, fault.message.clone())));
            return Err(Ended::Disturbed(fault.message));
        }
        log.disturb(None);
        let next = reach.known();
        log.numbers.publish(next);
        let missing = || Ended::Damaged(format!("{}: a collection of the log is missing", log.database.name()));
        let bound = Bound::of(&log.database).await?.ok_or_else(missing)?;
        match log.cut_blocks(next).await {
            // A user without the right to delete blocks has no right to write them either.
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
        let (at_step, steps) = (cluster.at_step, Arc::clone(&cluster.steps));
        let (heads, aggregates, contexts) = (HashMap::new(), Known::default(), Contexts::default());
        let (replaying, saved, room) = (true, None, Room::default());
        Ok(Self {
            log,
            session,
            bound,
            room,
            at_step,
            steps,
            next,
            token,
            heads,
            aggregates,
            held,
            replaying,
            saved,
            contexts,
            progress: cluster.progress.clone(),
        })
    }

    /// Admits a collection of commits: everything stored in the collection it replaced has been processed.
    pub(super) async fn admit(&self, collection: &str, uuid: Uuid) -> Result<(), Ended> {
        register::admit(&self.log.database, collection, uuid).await?;
        tracing::info!(tenant = self.log.tenant, collection, "a collection of commits was replaced; commits go on");
        Ok(())
    }

    pub(super) fn session_id(&self) -> Document {
        self.session.id().clone()
    }

    /// Saves the stream position of a log for which the stream had no commits.
    pub(super) async fn save(&mut self, token: &Token) -> Result<(), Ended> {
        state::save(&self.log.database, token, self.next).await?;
        self.token = Some(token.clone());
        Ok(())
    }

    /// Assigns numbers to commits in order of arrival, and to some held commits that they unblock.
    pub(super) async fn sequence(&mut self, commits: Vec<Incoming>) -> Result<(), Ended> {
        self.take(commits).await?;
        self.release().await.map(drop)
    }

    async fn take(&mut self, commits: Vec<Incoming>) -> Result<(), Ended> {
        let token = commits.iter().rev().find_map(|commit| commit.token.clone());
        let began = Instant::now();
        let due = self.saved.is_none_or(|saved| began - saved >= SAVE_EVERY);
        self.contexts.note(&self.log, &commits).await?;
        let mut arrived: Vec<Arrived> = commits.into_iter().map(Arrived::read).collect();
        let mut numbered_before = Vec::new();
        let mut obstacles = Obstacles::default();
        let mut care = Care::Little;
        loop {
            if self.replaying {
                let known = self.leave_out_known(&mut arrived, |_| true, &mut numbered_before).await?;
                self.replaying = known;
            }
            // A stream that resumes earlier shows a commit as it was inserted, even if it has been repaired and numbered since. Commits
            // that cannot be read are therefore looked up in the log by collection and `_id` alone.
            self.leave_out_known(&mut arrived, |one| one.read.is_err(), &mut numbered_before).await?;
            self.look_up_heads(&arrived, care).await?;
            obstacles.late = self.late(&arrived).await?;
            let mut batch = assign(&arrived, &self.heads, &self.held, &obstacles);
            batch.released.extend(numbered_before.iter().cloned());
            match write::write(self, &batch, token.as_ref().filter(|_| due), care == Care::Most).await? {
                Written::Done => {
                    batch.released.iter().for_each(|held| self.held.remove(held));
                    batch.held.iter().for_each(|held| self.held.add(held.clone()));
                    self.log.held.set(self.held.count());
                    if due && token.is_some() && !batch.is_empty() {
                        self.saved = Some(began);
                    }
                    break;
                }
                Written::Refused(commits) => obstacles.refused.extend(commits),
                // Part of the batch is in the log, or seems to be: look more closely and retry the rest.
                Written::Known(_) if care == Care::Little => {
                    care = Care::More;
                    self.replaying = true;
                    self.heads.clear();
                    self.aggregates.forget();
                }
                Written::Known(part) => match self.conflict(&batch.numbered[part]).await? {
                    Some((commit, why)) => drop(obstacles.refused.insert(commit, why)),
                    None => care = Care::Most,
                },
            }
        }
        self.token = token.or(self.token.take());
        Ok(())
    }

    /// Removes those of the selected commits that are already in the log, and returns whether there were any. Those of them that are still
    /// marked as held are added to `held`: their numbers were written, but not their release.
    async fn leave_out_known(
        &self,
        arrived: &mut Vec<Arrived>,
        asked_about: impl Fn(&Arrived) -> bool,
        held: &mut Vec<HeldCommit>,
    ) -> Result<bool, Ended> {
        let wanted = arrived.iter().filter(|one| asked_about(one));
        let wanted: Vec<_> = wanted.map(|one| (&*one.collection, &*one.commit)).collect();
        if wanted.is_empty() {
            return Ok(false);
        }
        let known = self.known(&wanted).await?;
        held.extend(known.iter().filter_map(|(collection, commit)| self.held.find(collection, commit).cloned()));
        arrived.retain(|one| !known.contains(&(one.collection.clone(), one.commit.clone())));
        Ok(!known.is_empty())
    }

    /// Returns the commit that a unique index refuses although none of `part` is in the log, with the reason. Returns `None` if the
    /// conflict is not found; the commits are then tried one by one.
    ///
    /// # Errors
    /// If other software has assigned the next sequence numbers. The log then gets no numbers until that ends.
    async fn conflict(&self, part: &[Numbered<'_>]) -> Result<Option<(CommitKey, String)>, Ended> {
        let database = &self.log.database;
        for name in [EVENT_LOG, ENTRIES] {
            let all = database.collection::<RawDocumentBuf>(name);
            let last = all.find_one(doc! {}).sort(doc! { "_id": -1 }).projection(doc! { "_id": 1 }).await?;
            let Some(last) = last.filter(|last| natural(last, "_id").is_none_or(|number| number >= self.next)) else {
                continue;
            };
            if read_next(&self.log).await? != self.next {
                return Err(Ended::Deposed("another process has moved the log"));
            }
            return Err(self.disturbed(&format!("{name} has {}, which was the next number", label(&last))));
        }
        for one in part {
            if let Some(why) = self.same_version(one).await? {
                return Ok(Some(((one.collection.to_owned(), one.commit.key.clone()), why)));
            }
        }
        Ok(match part {
            [one] => {
                let why = "refused: a unique index of the log has its values already, and no document says so";
                Some(((one.collection.to_owned(), one.commit.key.clone()), why.to_owned()))
            }
            _ => None,
        })
    }

    /// Returns the reason if `event-log` already has one of the versions of this commit's events. It identifies an aggregate by the UUID
    /// of its name, and several names may map to one UUID.
    async fn same_version(&self, one: &Numbered<'_>) -> Result<Option<String>, Ended> {
        let (name, id) = one.key;
        let uuid = self.log.adopted.reader.mapping.uuid(Kind::Aggregate, name);
        let versions = doc! { "$gte": decimal(one.before.applied), "$lt": decimal(one.after().applied) };
        let events = self.log.database.collection::<RawDocumentBuf>(EVENT_LOG);
        let same = doc! {
            "Aggregate.WasAppliedByAggregate": true, "Aggregate.TypeId": uuid_value(uuid), "Metadata.EventSource": id,
            "Aggregate.Version": versions,
        };
        let Some(event) = events.find_one(same).projection(doc! { "_id": 1 }).await? else { return Ok(None) };
        let number = natural(&event, "_id").unwrap_or(0);
        let entries = self.log.database.collection::<RawDocumentBuf>(ENTRIES);
        let entry = entries.find_one(doc! { "_id": { "$lte": number as i64 } }).sort(doc! { "_id": -1 }).await?;
        let other = entry.as_deref().and_then(|entry| text(entry, "aggregate")).unwrap_or("another one");
        Ok(Some(format!(
            "taken: aggregate name {name:?} stands for the UUID {uuid}, and so does {other:?}, whose event {number} has this version of {id:?}"
        )))
    }

    fn disturbed(&self, what: &str) -> Ended {
        let name = self.log.database.name();
        let sentence =
            format!("database {name}: {what}: events are numbered by other software, most often a Dolittle Runtime");
        self.log.disturb(Some((Code::ForeignNumbers, sentence.clone())));
        Ended::Disturbed(sentence)
    }

    /// Records the commits written up to the sequence number `next`, and wakes their waiters.
    pub(super) fn note(&mut self, written: &[Numbered<'_>], next: SequenceNumber) {
        if self.heads.len() > HEADS_MAX {
            self.heads.clear();
        }
        let mut first = std::mem::replace(&mut self.next, next);
        self.progress.moves();
        self.log.numbered.add(written.len() as u64);
        // INVARIANT: the tail has the commits before any reader is woken.
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

    /// Returns which of these commits, by collection and `_id`, are already in the log.
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
                let entry = found.current();
                if let Some(commit) = text(entry, "commit") {
                    let first = natural(entry, "_id");
                    first.iter().for_each(|first| self.log.numbers.give(&CommitPlace::new(collection, commit), *first));
                    known.insert((collection.to_owned(), commit.to_owned()));
                }
            }
        }
        Ok(known)
    }

    /// Returns the commits whose version the log has already passed without them: a gap was accepted earlier, or the version was used
    /// again after its commit had been deleted.
    async fn late(&self, arrived: &[Arrived]) -> Result<HashMap<CommitKey, Option<Taken>>, Ended> {
        let is_passed = |one: &&Arrived| match &one.read {
            Ok((key, commit)) => self.heads.get(key).is_some_and(|head| commit.info.version <= head.version),
            Err(_) => false,
        };
        let passed: Vec<&Arrived> = arrived.iter().filter(is_passed).collect();
        let places: Vec<(&str, &str)> = passed.iter().map(|one| (&*one.collection, &*one.commit)).collect();
        let known = if places.is_empty() { HashSet::new() } else { self.known(&places).await? };
        let mut late = HashMap::new();
        for one in passed {
            let place = (one.collection.clone(), one.commit.clone());
            if let (Ok((key, commit)), false) = (&one.read, known.contains(&place)) {
                late.insert(place, self.taken(key, commit.info.version).await?);
            }
        }
        Ok(late)
    }

    /// Returns the commit that has this version of the aggregate in the log.
    async fn taken(&self, (name, id): &AggregateKey, version: Version) -> Result<Option<Taken>, Ended> {
        let entries = self.log.database.collection::<RawDocumentBuf>(ENTRIES);
        let entry = entries.find_one(doc! { "aggregate": name, "id": id, "version": version as i64 }).await?;
        let taken = |entry: RawDocumentBuf| {
            Some(Taken { commit: text(&entry, "commit")?.to_owned(), first: natural(&entry, "_id")? })
        };
        Ok(entry.and_then(taken))
    }

    /// Looks up unknown heads by the entry of the version before each aggregate's first commit in the batch. With [`Care::Little`], a
    /// first version needs no look-up; with more care, every head is looked up by its newest entry.
    async fn look_up_heads(&mut self, arrived: &[Arrived], care: Care) -> Result<(), Ended> {
        let unknown = first_versions(arrived).into_iter().filter(|(key, _)| !self.heads.contains_key(*key));
        let unknown: Vec<(AggregateKey, Version)> = unknown.map(|(key, version)| (key.clone(), version)).collect();
        if care != Care::Little {
            return self.look_up_newest(unknown).await;
        }
        let before = unknown.iter().filter(|(_, version)| *version > 1);
        let before =
            before.map(|((name, id), version)| doc! { "aggregate": name, "id": id, "version": *version as i64 - 1 });
        let before: Vec<Document> = before.collect();
        if before.is_empty() {
            return Ok(());
        }
        let entries = self.log.database.collection::<RawDocumentBuf>(ENTRIES);
        let mut found = entries.find(doc! { "$or": before }).await?;
        while found.advance().await? {
            let document = found.current();
            let part = |key: &str| text(document, key).unwrap_or_default().to_owned();
            if let Some(head) = self.standing(document) {
                self.heads.insert((part("aggregate"), part("id")), head);
            }
        }
        // If the previous version is not in the log, there is a gap.
        let missing = unknown.into_iter().filter(|(key, version)| *version > 1 && !self.heads.contains_key(key));
        self.look_up_newest(missing.collect()).await
    }

    /// Assigns numbers to held commits that are ready, a limited number at a time so that new commits are not delayed. Returns whether
    /// there may be more.
    pub(super) async fn release(&mut self) -> Result<bool, Ended> {
        let ready = self.held.ready(&self.heads, TOGETHER);
        if ready.is_empty() {
            return Ok(false);
        }
        let (there, gone) = held::fetch(&self.log.database, &ready).await?;
        let looked_at: Vec<HeldCommit> = there.iter().map(|(one, _)| one).chain(&gone).cloned().collect();
        self.forget(gone).await?;
        let database = self.log.database.name().to_owned();
        let of = |(one, document): (HeldCommit, RawDocumentBuf)| Incoming::stored(&database, &one.collection, document);
        self.take(there.into_iter().map(of).collect()).await?;
        // A commit that changed since it was held is examined again by the next leader.
        self.held.looked_at(&looked_at);
        Ok(true)
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

/// Reads the next sequence number of a log, as stored by a majority.
pub(super) async fn read_next(log: &Log) -> Result<SequenceNumber, Ended> {
    let metadata = log.database.collection::<RawDocumentBuf>(EVENT_LOG_METADATA);
    let found = metadata.find_one(doc! { "_id": EVENT_LOG }).await?;
    let next = found.as_deref().and_then(|found| natural(found, "NextEventOffset"));
    next.ok_or_else(|| Ended::Damaged(format!("{}: {EVENT_LOG_METADATA} has no number", log.database.name())))
}
