//! The event log of one tenant.
//!
//! ```text
//! commit ─▶ commit.rs: judge ─▶ bulk.rs: gather ─▶ batch.rs: insert, majority ─▶ {aggregate}_event_stream
//!                                                                                     │ change stream
//!   answer ◀─ numbers.rs ◀──────────────────── sequencer: one transaction a batch ◀───┘
//!                                                  └─▶ event-log, event-log-commits, aggregates
//! read   ─▶ read.rs, scan.rs: annals-blocks, event-log-commits ─▶ fetch.rs: commits ─▶ events
//!                                                                                    aggregates.rs: commits of one, and ids
//! ```

mod adopted;
mod aggregates;
mod ahead;
mod batch;
mod blocked;
pub(crate) mod blocks;
mod bulk;
mod commit;
mod entries;
mod events;
mod fetch;
pub(crate) mod heads;
mod keyed;
mod names;
pub(crate) mod numbers;
mod prepare;
mod read;
mod repeat;
mod scan;
pub(crate) mod tail;
mod turns;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use annals_core::{
    Aggregate, AggregateCommits, AggregateIdsQuery, AggregateNamesQuery, AggregateQuery, ByteString, Clock, Code,
    CommitError, CommitOutcome, EventLog, KnownAggregate, LogPage, LogQuery, LogStatus, NewCommit, NewTransaction,
    OpenError, Randomness, ReadError, ScanQuery, SequenceNumber, StoreError, TransactionError, Version, Visit,
};
use annals_system::sleep;
use async_trait::async_trait;
use mongodb::bson::{RawDocumentBuf, doc};
use mongodb::options::{FindOneOptions, ReadConcern};
use mongodb::{ClientSession, Database};
use tokio::sync::Semaphore;

use crate::answers::{Answers, no_answer};
use crate::layout::entry::{self, Entry};
use crate::layout::fields::{natural, text};
use crate::layout::names::{ENTRIES, EVENT_LOG, EVENT_LOG_METADATA, HELD, event_stream};
use crate::layout::schema::Schema;
use crate::options::{Options, Requests};
use crate::patience::Patience;
use crate::refused::{malformed, message_of, reading, unreadable};
use crate::sessions::Sessions;
pub(crate) use adopted::Adopted;
use ahead::Ahead;
use blocks::{Kept, Lacking};
use bulk::Bulk;
use fetch::Pace;
use heads::{Epoch, Head, Heads};
use numbers::{Expected, Numbers, Place};
use tail::Tail;
use turns::Turns;

/// How often a waiter checks for itself, in case an announcement is missed.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long a reader waits for the sequence number of a stored commit: less than for a response of MongoDB. Another process takes over the
/// sequencer within five seconds.
const NUMBER_TIME_MAX: Duration = Duration::from_secs(15);
/// How often, and at which interval, a head is read again that is lower than one seen before.
const BEHIND_MAX: usize = 200;
const BEHIND_PAUSE: Duration = Duration::from_millis(25);

/// The event log of one tenant's default scope.
pub(crate) struct Log {
    pub(crate) tenant: String,
    pub(crate) database: Database,
    pub(crate) numbers: Arc<Numbers>,
    pub(crate) tail: Tail,
    ahead: Ahead,
    lacking: Lacking,
    /// Whether missing collections are created.
    makes_collections: bool,
    /// The number of commits of a page that are fetched together.
    pace: Pace,
    /// For tasks that outlive a call.
    itself: Weak<Self>,
    /// The number of held commits.
    pub(crate) held: Count,
    /// The number of commits that this process has numbered, for `sequencer/missing.rs`.
    pub(crate) numbered: Count,
    schema: Schema,
    /// The database of the prepare keys.
    keys: Database,
    keys_schema: Schema,
    requests: Requests,
    bulk: Bulk,
    outcome_time: Duration,
    pub(crate) means: Means,
    heads: Arc<Heads>,
    turns: Turns,
    /// Held by the waiter that checks on behalf of all waiters.
    looking: tokio::sync::Mutex<()>,
    places: Semaphore,
    places_max: usize,
    pub(crate) context: String,
    pub(crate) adopted: Adopted,
    /// Why the log cannot get numbers, according to the stored state: other software assigned some, or removed documents that had some.
    disturbed: Mutex<Option<(Code, String)>>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) random: Arc<dyn Randomness>,
    closed: AtomicBool,
    patience: Patience,
}

/// What the parts of a store share for requests to MongoDB.
#[derive(Clone)]
pub(crate) struct Means {
    pub(crate) answers: Arc<Answers>,
    /// For transactions.
    pub(crate) sessions: Arc<Sessions>,
    /// Blocks cached in memory.
    pub(crate) blocks: Arc<Kept>,
}

/// A counter that the sequencer sets.
#[derive(Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    pub(crate) fn set(&self, count: u64) {
        self.0.store(count, Ordering::Relaxed);
    }

    pub(crate) fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Log {
    pub(crate) fn new(
        tenant: &str,
        database: Database,
        keys: Database,
        options: &Options,
        context: String,
        adopted: Adopted,
        means: Means,
    ) -> Arc<Self> {
        let heads = Arc::<Heads>::default();
        Arc::new_cyclic(|itself| Self {
            tenant: tenant.to_owned(),
            keys_schema: Schema::of_keys(keys.clone(), options),
            keys,
            schema: Schema::new(database.clone(), options).of_log(adopted.reader.store_id, heads.clone()),
            requests: options.requests,
            bulk: Bulk::new(database.clone(), options.outcome_time),
            outcome_time: options.outcome_time,
            means,
            database,
            numbers: Arc::default(),
            tail: Tail::default(),
            ahead: Ahead::default(),
            lacking: Lacking::default(),
            makes_collections: options.auto_init_schema,
            pace: Pace::default(),
            itself: itself.clone(),
            held: Count::default(),
            numbered: Count::default(),
            heads,
            turns: Turns::default(),
            looking: tokio::sync::Mutex::default(),
            places: Semaphore::new(options.waiting_max),
            places_max: options.waiting_max,
            context,
            adopted,
            disturbed: Mutex::default(),
            clock: options.clock.clone(),
            random: options.random.clone(),
            closed: AtomicBool::new(false),
            patience: Patience::default(),
        })
    }

    /// Records why the log cannot get numbers, or that it can again.
    pub(crate) fn disturb(&self, why: Option<(Code, String)>) {
        *self.disturbed.lock().unwrap_or_else(PoisonError::into_inner) = why;
    }

    fn disturbed(&self) -> Option<StoreError> {
        let why = self.disturbed.lock().unwrap_or_else(PoisonError::into_inner).clone();
        why.map(|(code, why)| StoreError::other(code, why))
    }

    /// Checks the indexes of the collections that this process commits to.
    ///
    /// # Errors
    /// `unreachable`.
    pub(crate) async fn look_at_schema(&self) -> Result<(), OpenError> {
        self.schema.look_again().await
    }

    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// Accepts no more commits, and waits until those in flight are answered.
    pub(crate) async fn drain(&self) {
        self.closed.store(true, Ordering::SeqCst);
        let all = u32::try_from(self.places_max).unwrap_or(u32::MAX);
        if let Ok(places) = self.places.acquire_many(all).await {
            places.forget();
        }
        self.places.close();
    }

    /// Answers the requests in flight without waiting for MongoDB any longer.
    pub(crate) fn give_up(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.places.close();
        self.patience.end();
    }

    pub(crate) fn status(&self) -> LogStatus {
        LogStatus {
            tenant: self.tenant.clone(),
            scope: annals_core::DEFAULT_SCOPE.to_owned(),
            head: self.numbers.seen(),
            refusing: self.is_closed().then_some(StoreError::Closed).or_else(|| self.disturbed()),
            records_refusing: None,
            commits: self.bulk.counts.stored.load(Ordering::Relaxed),
            syncs: self.bulk.counts.batches.load(Ordering::Relaxed),
            sync_times: self.bulk.counts.times.times(),
            bytes: self.bulk.counts.bytes.load(Ordering::Relaxed),
            recovery: Vec::new(),
            sequencer: None,
        }
    }

    /// Reads the head of an aggregate, as stored by a majority.
    async fn read_head(&self, collection: &str, aggregate: &Aggregate) -> Result<Head, StoreError> {
        let epoch = self.heads.epoch();
        let newest = self.newest(collection, aggregate, FindOneOptions::default()).await;
        let newest = newest.map_err(|error| reading(&error))?;
        let logged = self.logged_version(aggregate).await?;
        let head = self.head_of(collection, aggregate, newest, logged).await?;
        Ok(self.learned(aggregate, head, epoch))
    }

    /// Reads the head of an aggregate with a linearizable read, so that a refusal may rely on it. A primary that is cut off without
    /// knowing it has no majority to confirm the read.
    async fn confirm_head(&self, collection: &str, aggregate: &Aggregate) -> Result<Head, StoreError> {
        let epoch = self.heads.epoch();
        let (time, concern) = (self.outcome_time, ReadConcern::linearizable());
        let options = FindOneOptions::builder().read_concern(concern).max_time(time).build();
        let newest = tokio::time::timeout(time, self.newest(collection, aggregate, options)).await;
        let newest = newest.map_err(|_| no_answer(time));
        let newest = newest.and_then(|newest| newest.map_err(|error| message_of(&error))).map_err(|why| {
            StoreError::Unreachable(format!("the version of {aggregate} could not be confirmed by a majority: {why}"))
        })?;
        let logged = self.logged_version(aggregate).await?;
        let head = self.head_of(collection, aggregate, newest, logged).await?;
        Ok(self.learned(aggregate, head, epoch))
    }

    /// Caches a head. One without a tenantId is not cached: the commits are gone, and the owner is unknown.
    fn learned(&self, aggregate: &Aggregate, head: Head, epoch: Epoch) -> Head {
        if !head.tenant_id.is_empty() {
            self.heads.learn(aggregate, head.clone(), epoch);
        }
        head
    }

    async fn newest(
        &self,
        collection: &str,
        aggregate: &Aggregate,
        mut options: FindOneOptions,
    ) -> mongodb::error::Result<Option<RawDocumentBuf>> {
        options.sort = Some(doc! { "version": -1 });
        options.projection = Some(doc! { "version": 1, "tenantId": 1 });
        let commits = self.database.collection::<RawDocumentBuf>(collection);
        commits.find_one(doc! { "aggregateId": &*aggregate.id }).with_options(options).await
    }

    /// Returns the head according to the newest stored commit, or to the log if that has a later version. Other software may have deleted
    /// a numbered commit, and no version is used twice.
    async fn head_of(
        &self,
        collection: &str,
        aggregate: &Aggregate,
        newest: Option<RawDocumentBuf>,
        logged: Version,
    ) -> Result<Head, StoreError> {
        let Some(found) = newest else {
            let head = adopted::head(self, aggregate).await?;
            // The owner is unknown, because the commits are gone.
            return Ok(if head.version < logged { Head { version: logged, ..Head::NONE } } else { head });
        };
        let version = natural(&found, "version").ok_or_else(|| {
            let why = format!("it sorts as the newest commit of {aggregate}, and its version is no whole number");
            malformed(&self.database, collection, &found, why)
        })?;
        let tenant_id = text(&found, "tenantId").unwrap_or(annals_core::DEFAULT_TENANT_ID).into();
        Ok(Head { version: version.max(logged), tenant_id })
    }

    /// Returns the newest version of an aggregate in the log; 0 if there is none.
    async fn logged_version(&self, aggregate: &Aggregate) -> Result<Version, StoreError> {
        let entries = self.database.collection::<RawDocumentBuf>(ENTRIES);
        let newest = entries.find_one(doc! { "aggregate": &*aggregate.name, "id": &*aggregate.id });
        let newest = newest.sort(doc! { "version": -1 }).projection(doc! { "_id": 0, "version": 1 }).await;
        Ok(newest.map_err(|error| reading(&error))?.and_then(|found| natural(&found, "version")).unwrap_or(0))
    }

    /// Returns the entry of a commit, if the log has it.
    pub(crate) async fn entry(&self, place: &Place) -> Result<Option<Entry>, StoreError> {
        let entries = self.database.collection::<RawDocumentBuf>(ENTRIES);
        let found = entries.find_one(doc! { "coll": &place.collection, "commit": &place.commit }).await;
        let found = found.map_err(|error| reading(&error))?;
        found.map(|found| entry::read(&found)).transpose().map_err(StoreError::Damaged)
    }

    /// Waits until the sequencer has numbered a stored commit, and returns its first number, or `None` after `time`. `old` means that it
    /// may already have one, which is not announced again. A failed look-up is retried, because the commit is stored.
    async fn numbered(&self, mut expected: Expected<'_>, old: bool, time: Duration) -> Option<SequenceNumber> {
        let place = expected.place.clone();
        let mut look = old;
        let waiting = async {
            loop {
                if look {
                    match self.entry(&place).await {
                        Ok(Some(entry)) => return Some(entry.first),
                        Ok(None) => {}
                        Err(error) => tracing::warn!(%error, "a commit's number could not be looked up; trying again"),
                    }
                }
                match tokio::time::timeout(LOOK_EVERY, &mut expected.number).await {
                    Ok(Ok(first)) => return Some(first),
                    // The store is closed here; a sequencer in another process may continue.
                    Ok(Err(_)) => sleep(LOOK_EVERY).await,
                    Err(_) => {}
                }
                // No numbers are assigned until that has ended.
                if self.disturbed().is_some() {
                    return None;
                }
                expected = self.numbers.expect(place.clone());
                look = true;
            }
        };
        tokio::time::timeout(time, self.patience.during(waiting)).await.ok().flatten().flatten()
    }

    /// Returns the first sequence number and the number of events of a stored commit, for a reader.
    async fn number_of(&self, place: Place) -> Result<(SequenceNumber, u64), StoreError> {
        if let Some(why) = self.held_back(&place).await? {
            return Err(held(&place, &why));
        }
        let expected = self.numbers.expect(place.clone());
        if self.numbered(expected, true, NUMBER_TIME_MAX).await.is_some()
            && let Some(entry) = self.entry(&place).await?
        {
            return Ok((entry.first, entry.count));
        }
        // It may have become held in the meantime.
        if let Some(why) = self.held_back(&place).await? {
            return Err(held(&place, &why));
        }
        Err({
            let what = format!("commit {} is stored, and has no number yet", place.commit);
            match self.disturbed() {
                Some(disturbed) => StoreError::other(disturbed.code(), format!("{what}: {disturbed}")),
                None => StoreError::Unreachable(format!("{what}: no sequencer is at work, or it has much to do")),
            }
        })
    }

    /// Returns why a commit is held, if it is.
    async fn held_back(&self, place: &Place) -> Result<Option<String>, StoreError> {
        let held = self.database.collection::<RawDocumentBuf>(HELD);
        let id = doc! { "coll": &place.collection, "commit": &place.commit };
        let found = held.find_one(doc! { "_id": { "$eq": id } }).await.map_err(|error| reading(&error))?;
        Ok(found.map(|found| text(&found, "reason").unwrap_or("malformed").to_owned()))
    }

    /// Waits until an aggregate's newest commit is in the log: a refusal reveals this commit, and a reader that learns of it must find it
    /// there.
    async fn until_logged(&self, collection: &str, aggregate: &Aggregate) -> Result<(), StoreError> {
        let version = self.read_head(collection, aggregate).await?.version as i64;
        let (name, id) = (&*aggregate.name, &*aggregate.id);
        let entries = self.database.collection::<RawDocumentBuf>(ENTRIES);
        let entry = entries.find_one(doc! { "aggregate": name, "id": id, "version": version });
        if version == 0 || entry.await.map_err(|error| reading(&error))?.is_some() {
            return Ok(());
        }
        let commits = self.database.collection::<RawDocumentBuf>(collection);
        let commit = commits.find_one(doc! { "aggregateId": id, "version": version }).projection(doc! { "_id": 1 });
        let commit = commit.await.map_err(|error| reading(&error))?;
        match commit.as_deref().and_then(|commit| text(commit, "_id")) {
            Some(commit) => self.number_of(Place::new(collection, commit)).await.map(|_| ()),
            None => Ok(()),
        }
    }

    /// Reads the head of the log, as stored by a majority.
    pub(crate) async fn read_log_head(&self) -> Result<SequenceNumber, ReadError> {
        self.head_read(None).await
    }

    /// Reads the head in a session: later reads in it see the same or a later state.
    pub(crate) async fn read_log_head_in(&self, session: &mut ClientSession) -> Result<SequenceNumber, ReadError> {
        self.head_read(Some(session)).await
    }

    /// Reads a head that is never lower than one this process has seen. A new primary may show an earlier state for a moment, and a
    /// follower that believed it would move backwards.
    async fn head_read(&self, mut session: Option<&mut ClientSession>) -> Result<SequenceNumber, ReadError> {
        let metadata = self.database.collection::<RawDocumentBuf>(EVENT_LOG_METADATA);
        let mut head = 0;
        for _ in 0..BEHIND_MAX {
            let find = metadata.find_one(doc! { "_id": EVENT_LOG });
            let found = match session.as_deref_mut() {
                Some(session) => find.session(session).await,
                None => find.await,
            };
            head = match found.map_err(|error| reading(&error))? {
                None => 0,
                Some(found) => natural(&found, "NextEventOffset")
                    .ok_or_else(|| unreadable("event-log-metadata: NextEventOffset is no whole number"))?,
            };
            if head >= self.numbers.seen() {
                self.numbers.publish(head);
                return Ok(head);
            }
            sleep(BEHIND_PAUSE).await;
        }
        let sentence = format!(
            "the log had {} events, and MongoDB shows {head}: it is behind, or another state of it was restored; then open the store again",
            self.numbers.seen()
        );
        Err(StoreError::Unreachable(sentence).into())
    }
}

/// Returns the error for a caller that needs the sequence number of a held commit.
fn held(place: &Place, why: &str) -> StoreError {
    let Place { collection, commit } = place;
    let sentence = format!(
        "commit {commit:?} of {collection} is held, so it has no sequence number: {why}; see `annals held list`"
    );
    StoreError::other(Code::CommitHeld, sentence)
}

#[async_trait]
impl EventLog for Log {
    async fn commit(&self, commit: NewCommit) -> Result<CommitOutcome, CommitError> {
        commit::commit(self, commit).await
    }

    async fn transact(&self, transaction: NewTransaction) -> Result<Vec<CommitOutcome>, TransactionError> {
        transaction.validate()?;
        Err(StoreError::NotSupported("a transaction over several aggregates (on MongoDB)".to_owned()).into())
    }

    async fn read_aggregate(&self, query: AggregateQuery) -> Result<AggregateCommits, ReadError> {
        query.validate()?;
        self.means.answers.of(aggregates::read(self, query)).await
    }

    async fn aggregate_version(&self, aggregate: &Aggregate) -> Result<Version, ReadError> {
        aggregate.validate()?;
        let collection = event_stream(&aggregate.name)?;
        let head = self.means.answers.of(async { Ok(self.read_head(&collection, aggregate).await?) });
        head.await.map(|head: Head| head.version)
    }

    async fn request_exists(&self, aggregate: &Aggregate, request_id: &str) -> Result<bool, ReadError> {
        aggregate.validate()?;
        let collection = event_stream(&aggregate.name)?;
        self.means.answers.of(repeat::exists(self, &collection, aggregate, request_id)).await
    }

    async fn request_outcome(
        &self,
        aggregate: &Aggregate,
        request_id: &str,
    ) -> Result<Option<CommitOutcome>, ReadError> {
        aggregate.validate()?;
        let collection = event_stream(&aggregate.name)?;
        self.means.answers.of(repeat::outcome(self, &collection, aggregate, request_id)).await
    }

    async fn aggregate_names(&self, query: AggregateNamesQuery) -> Result<Vec<ByteString>, ReadError> {
        query.validate()?;
        self.means.answers.of(names::list(self, query)).await
    }

    async fn aggregate_ids(&self, query: AggregateIdsQuery) -> Result<Vec<KnownAggregate>, ReadError> {
        query.validate()?;
        self.means.answers.of(aggregates::ids(self, query)).await
    }

    async fn read(&self, query: LogQuery) -> Result<LogPage, ReadError> {
        query.validate()?;
        self.means.answers.of(read::page(self, query)).await
    }

    async fn scan(&self, query: ScanQuery, visit: &mut Visit<'_>) -> Result<SequenceNumber, ReadError> {
        scan::scan(self, query, visit).await
    }

    async fn head(&self) -> Result<SequenceNumber, ReadError> {
        self.means.answers.of(self.read_log_head()).await
    }

    async fn wait_past(&self, head: SequenceNumber) -> Result<SequenceNumber, ReadError> {
        let mut announced = self.numbers.subscribe();
        loop {
            match *announced.borrow_and_update() {
                None => return Err(StoreError::Closed.into()),
                Some(known) if known > head => return Ok(known),
                Some(_) => {}
            }
            // An announcement is only a wake-up; the stored head decides.
            let known = self.means.answers.of(self.read_log_head()).await?;
            if known > head {
                return Ok(known);
            }
            // A single waiter reads on behalf of all: the head that it reads is announced to the others.
            tokio::select! {
                _ = announced.changed() => {}
                _looking = self.looking.lock() => {
                    let _ = tokio::time::timeout(LOOK_EVERY, announced.changed()).await;
                }
            }
        }
    }
}
