//! Receives events over the event horizon: a batch is checked against the position of its subscription at majority, and stored by one
//! transaction that advances that position.
//!
//! ```text
//! state ─▶ repeat, moved, other events ─▶ answer
//!   ▲ └──▶ transaction: next number moved · state moved · events · what came with them ─▶ commit, majority ─▶ answer
//!   └─ moved meanwhile, or aborted ──────────────────────────────────────────────────────────┘
//! ```
//!
//! INVARIANTS, each maintained by that transaction:
//! - The position of a subscription follows from its last event.
//! - Sequence numbers of the scope's log are assigned by moving `NextEventOffset` from its expected value, so two writers never assign the
//!   same number.
//! - An event of a subscription is in the log at most once, because the state is moved from its expected position. In case other software
//!   sets a state back, a unique index covers the producer's numbers as well.
//!
//! An outcome that cannot be determined in time is `unreachable`. The caller sends the batch again; it is then stored, or is a repeat.

use std::sync::Arc;

use annals_core::{
    Clock, Code, Invalid, Randomness, ReceiveError, Received, ReceivedBatch, Receiving, SequenceNumber, StoreError,
    Subscription, SubscriptionState, Timestamp,
};
use annals_system::Instant;
use async_trait::async_trait;
use mongodb::ClientSession;
use mongodb::bson::{Bson, Document, RawDocumentBuf, doc, serialize_to_raw_document_buf};
use mongodb::error::Error;
use tokio::sync::{Mutex, OnceCell};

use super::{ScopeLog, end};
use crate::intake::Intake;
use crate::layout::fields::natural;
use crate::layout::names::EVENT_LOG_METADATA;
use crate::layout::received::{Arrival, Key, Standing, event, standing, state_after};
use crate::layout::schema;
use crate::layout::writer::decimal;
use crate::options::Options;
use crate::refused::{code_of, malformed, message_of, reading, unready};
use crate::transaction::{Backoff, Ended, Fill, NotInserted, TIME_MAX, attempt, insert};

const DUPLICATE_KEY: i32 = 11000;

/// Receives events into a scope.
pub(crate) struct ScopeReceiving {
    inner: Arc<Inner>,
}

struct Inner {
    log: Arc<ScopeLog>,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Randomness>,
    /// Whether missing collections and indexes are created.
    create: bool,
    ready: OnceCell<()>,
    /// Held during a transaction: there is one at a time in this process, because each moves the scope's next number.
    turn: Mutex<()>,
    intake: Intake,
}

impl ScopeReceiving {
    pub(crate) fn new(log: Arc<ScopeLog>, options: &Options) -> Self {
        let inner = Inner {
            log,
            clock: options.clock.clone(),
            random: options.random.clone(),
            create: options.auto_init_schema,
            ready: OnceCell::new(),
            turn: Mutex::default(),
            intake: Intake::new(options.waiting_max),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Accepts no more batches, and waits until those in flight are answered.
    pub(crate) async fn close(&self) {
        self.inner.intake.drain().await;
    }

    /// Answers batches in flight without waiting for MongoDB any longer.
    pub(crate) fn give_up(&self) {
        self.inner.intake.give_up();
    }
}

#[async_trait]
impl Receiving for ScopeReceiving {
    async fn receive(&self, batch: ReceivedBatch) -> Result<Received, ReceiveError> {
        batch.validate()?;
        within_layout(&batch)?;
        let inner = self.inner.clone();
        let work = Box::pin(async move { inner.receive(&batch).await });
        self.inner.intake.run(&self.inner.log.means.answers, work).await
    }

    async fn state(&self, subscription: &Subscription) -> Result<SubscriptionState, ReceiveError> {
        subscription.validate()?;
        let key = Key::of(subscription);
        Ok(self.inner.log.means.answers.of(self.inner.standing(&key)).await?.state())
    }
}

/// Checks the batch against the layout's limits: numbers are int64, and one past each is stored.
fn within_layout(batch: &ReceivedBatch) -> Result<(), Invalid> {
    const MOST: u64 = i64::MAX as u64 - 1;
    for (place, event) in batch.events.iter().enumerate() {
        for (field, number) in [("position", event.position), ("sequence_number", event.sequence_number)] {
            if number > MOST {
                let message = format!("is {number}; on MongoDB it is at most {MOST}");
                return Err(Invalid::new(Code::InvalidRange, format!("events[{place}].{field}"), message));
            }
        }
    }
    Ok(())
}

/// The next sequence number of the scope's log.
struct Next {
    number: SequenceNumber,
    /// Its stored value; `None` if the log has no such document.
    stored: Option<SequenceNumber>,
}

impl Inner {
    async fn receive(&self, batch: &ReceivedBatch) -> Result<Received, ReceiveError> {
        self.ready.get_or_try_init(|| self.begin()).await?;
        let _turn = self.turn.lock().await;
        let key = Key::of(&batch.subscription);
        let ends = Instant::now() + TIME_MAX;
        let mut backoff = Backoff::default();
        loop {
            let standing = self.standing(&key).await?;
            if batch.from < standing.position && batch.next() <= standing.position {
                return self.repeat(batch, &key, &standing).await;
            }
            if batch.from != standing.position {
                return Err(ReceiveError::Moved { from: batch.from, stored: standing.state() });
            }
            let first = &batch.events[0];
            if first.sequence_number < standing.next_number {
                return Err(other_events(batch, 0));
            }
            let next = self.next().await?;
            let writes = Writes::of(self, batch, &key, &standing, &next, self.clock.now())?;
            let why = match attempt(&self.log.means, &writes, ends).await {
                Ended::Stored => {
                    self.log.end.received(next.number, next.number + batch.events.len() as u64);
                    return Ok(Received { first: next.number, state: batch.state(), duplicate: false });
                }
                Ended::Left(Left::Refused(error)) => return Err(error.into()),
                Ended::Refused(error) => {
                    let sentence = format!("MongoDB refuses the events: {}", message_of(&error));
                    return Err(StoreError::ReadOnly(sentence).into());
                }
                Ended::Unknown(error) => return Err(unreachable(&error)),
                Ended::Left(Left::Moved) => "other writers were always faster".to_owned(),
                Ended::Again(error) => message_of(&error),
            };
            if Instant::now() >= ends {
                return Err(StoreError::Unreachable(format!("the events could not be stored in time: {why}")).into());
            }
            backoff.pause(self.random.bits()).await;
        }
    }

    /// Creates what is missing, since nothing can be created inside a transaction.
    async fn begin(&self) -> Result<(), StoreError> {
        let ScopeLog { database, collection, subscriptions, arrivals, .. } = &*self.log;
        schema::ensure_received(database, subscriptions, arrivals, self.create).await.map_err(unready)?;
        let last = end::last(database, collection).await.map_err(|error| reading(&error))?;
        let offsets = database.collection::<Document>(EVENT_LOG_METADATA);
        let fresh = doc! { "$setOnInsert": { "NextEventOffset": decimal(last) } };
        match offsets.update_one(doc! { "_id": collection }, fresh).upsert(true).await {
            // Another process began at the same time.
            Err(error) if code_of(&error) == Some(DUPLICATE_KEY) => Ok(()),
            other => other.map(|_| ()).map_err(|error| reading(&error)),
        }
    }

    /// Reads the position of a subscription at majority.
    async fn standing(&self, key: &Key) -> Result<Standing, StoreError> {
        let ScopeLog { database, subscriptions, .. } = &*self.log;
        let states = database.collection::<RawDocumentBuf>(subscriptions);
        let found = states.find_one(key.of_state()).await.map_err(|error| reading(&error))?;
        let Some(found) = found else { return Ok(Standing::default()) };
        standing(&found).map_err(|why| malformed(database, subscriptions, &found, why))
    }

    /// Determines the next number as the Runtime does: numbers missing at the end of a log are not assigned again.
    async fn next(&self) -> Result<Next, StoreError> {
        let ScopeLog { database, collection, .. } = &*self.log;
        let offsets = database.collection::<RawDocumentBuf>(EVENT_LOG_METADATA);
        let offset = async { offsets.find_one(doc! { "_id": collection }).await };
        let found = tokio::try_join!(end::last(database, collection), offset);
        let (last, offset) = found.map_err(|error| reading(&error))?;
        let stored = match &offset {
            None => None,
            Some(offset) => {
                let why = "NextEventOffset is missing or no whole number from 0";
                let number = natural(offset, "NextEventOffset");
                Some(number.ok_or_else(|| malformed(database, EVENT_LOG_METADATA, offset, why))?)
            }
        };
        Ok(Next { number: last.max(stored.unwrap_or(0)), stored })
    }

    /// Answers a batch that ends at or before the position of the subscription.
    async fn repeat(&self, batch: &ReceivedBatch, key: &Key, standing: &Standing) -> Result<Received, ReceiveError> {
        let numbers: Vec<_> = batch.events.iter().map(|event| Bson::Int64(event.sequence_number as i64)).collect();
        let mut filter = key.of_arrivals();
        filter.insert("external", doc! { "$in": numbers });
        let mut known = self.arrivals(filter, batch.events.len() as i64).await?.into_iter().peekable();
        let mut first = None;
        for (place, event) in batch.events.iter().enumerate() {
            match known.next_if(|arrival| arrival.external as u64 == event.sequence_number) {
                Some(arrival) if arrival.position as u64 == event.position => {
                    first.get_or_insert(arrival.number as SequenceNumber);
                }
                _ if self.is_of_before(batch, key, place).await? => {
                    return Err(ReceiveError::Moved { from: batch.from, stored: standing.state() });
                }
                _ => return Err(other_events(batch, place)),
            }
        }
        Ok(Received { first: first.unwrap_or_default(), state: standing.state(), duplicate: true })
    }

    /// Returns whether an event is earlier than everything that this store has received of the subscription. A Runtime received such
    /// events, so they cannot be compared.
    async fn is_of_before(&self, batch: &ReceivedBatch, key: &Key, place: usize) -> Result<bool, StoreError> {
        let first = self.arrivals(key.of_arrivals(), 1).await?;
        Ok(first.first().is_none_or(|first| batch.events[place].position < first.position as u64))
    }

    /// Returns the arrivals of one subscription that match the filter, in order of the producer's numbers.
    async fn arrivals(&self, filter: Document, limit: i64) -> Result<Vec<Arrival>, StoreError> {
        let ScopeLog { database, arrivals, .. } = &*self.log;
        let kept = database.collection::<RawDocumentBuf>(arrivals);
        let found = kept.find(filter).sort(doc! { "external": 1 }).limit(limit);
        let mut found = found.await.map_err(|error| reading(&error))?;
        let mut all = Vec::new();
        while found.advance().await.map_err(|error| reading(&error))? {
            let document = found.current();
            all.push(Arrival::read(document).map_err(|why| malformed(database, arrivals, document, why))?);
        }
        Ok(all)
    }
}

fn other_events(batch: &ReceivedBatch, place: usize) -> ReceiveError {
    let event = &batch.events[place];
    ReceiveError::OtherEvents { position: event.position, sequence_number: event.sequence_number }
}

fn unreachable(error: &Error) -> ReceiveError {
    StoreError::Unreachable(message_of(error)).into()
}

/// Why nothing was stored.
enum Left {
    /// The subscription or the log is not at the expected position.
    Moved,
    /// A document was refused.
    Refused(StoreError),
}

/// The content of a transaction.
struct Writes<'a> {
    log: &'a ScopeLog,
    key: &'a Key,
    standing: &'a Standing,
    next: &'a Next,
    /// The new state of the subscription.
    state: Document,
    events: Vec<RawDocumentBuf>,
    arrivals: Vec<RawDocumentBuf>,
}

impl<'a> Writes<'a> {
    fn of(
        inner: &'a Inner,
        batch: &ReceivedBatch,
        key: &'a Key,
        standing: &'a Standing,
        next: &'a Next,
        at: Timestamp,
    ) -> Result<Self, StoreError> {
        let mapping = &*inner.log.reader.mapping;
        let unfit = |error: mongodb::bson::error::Error| StoreError::Io(error.to_string());
        let (mut events, mut arrivals) = (Vec::new(), Vec::new());
        for (place, incoming) in batch.events.iter().enumerate() {
            events.push(event(batch, incoming, next.number + place as u64, at, mapping).map_err(unfit)?);
            let arrival = Arrival::of(batch, key, place, next.number, mapping);
            arrivals.push(serialize_to_raw_document_buf(&arrival).map_err(unfit)?);
        }
        Ok(Self { log: &inner.log, key, standing, next, state: state_after(batch, at), events, arrivals })
    }

    async fn move_next(&self, session: &mut ClientSession) -> mongodb::error::Result<bool> {
        let mut believed = doc! { "_id": &self.log.collection };
        if let Some(stored) = self.next.stored {
            believed.insert("NextEventOffset", decimal(stored));
        }
        let offset = doc! { "$set": { "NextEventOffset": decimal(self.next.number + self.events.len() as u64) } };
        let offsets = self.log.database.collection::<Document>(EVENT_LOG_METADATA);
        let moving = offsets.update_one(believed, offset).upsert(self.next.stored.is_none());
        let moved = moving.session(session).await?;
        Ok(moved.matched_count + u64::from(moved.upserted_id.is_some()) == 1)
    }

    async fn move_state(&self, session: &mut ClientSession) -> mongodb::error::Result<bool> {
        let states = self.log.database.collection::<Document>(&self.log.subscriptions);
        let believed = match &self.standing.id {
            Some(id) => doc! { "_id": id, "Position": decimal(self.standing.position) },
            None => self.key.of_new_state(),
        };
        let is_new = self.standing.id.is_none();
        let moving = states.update_one(believed, doc! { "$set": &self.state }).upsert(is_new).session(session);
        match moving.await {
            // Another writer has created it.
            Ok(moved) if is_new => Ok(moved.upserted_id.is_some()),
            Ok(moved) => Ok(moved.matched_count == 1),
            Err(error) if code_of(&error) == Some(DUPLICATE_KEY) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

#[async_trait]
impl Fill for Writes<'_> {
    type Left = Left;

    async fn fill(&self, session: &mut ClientSession) -> mongodb::error::Result<Result<(), Left>> {
        if !self.move_next(session).await? || !self.move_state(session).await? {
            return Ok(Err(Left::Moved));
        }
        let ScopeLog { database, collection, arrivals, .. } = self.log;
        if let Some(error) = insert(database, session, collection, &self.events).await? {
            return Ok(Err(event_refused(collection, &error.into())));
        }
        let error = insert(database, session, arrivals, &self.arrivals).await?;
        Ok(error.map_or(Ok(()), |error| Err(arrival_refused(self.log, &error.into()))))
    }
}

fn event_refused(collection: &str, error: &NotInserted) -> Left {
    if error.has_same_id() {
        // Other software has written this number without moving the offset first, as a Runtime does.
        return Left::Moved;
    }
    Left::Refused(StoreError::ReadOnly(format!("MongoDB refuses an event of {collection}: {}", error.message)))
}

/// Returns why an arrival was refused. The subscription and the log were at the expected positions, so an existing document does not
/// belong to them.
fn arrival_refused(log: &ScopeLog, error: &NotInserted) -> Left {
    let ScopeLog { arrivals, subscriptions, .. } = log;
    let Some((_, value)) = &error.duplicate else {
        let sentence = format!("MongoDB refuses a document of {arrivals}: {}", error.message);
        return Left::Refused(StoreError::ReadOnly(sentence));
    };
    let sentence = if error.has_same_id() {
        format!("{arrivals} has {value}, whose event is gone from the log; delete that document")
    } else {
        format!(
            "{arrivals} says that {value} has been received, and {subscriptions} says that it has not; other software has set the \
             subscription back, so set its Position after its last received event"
        )
    };
    Left::Refused(StoreError::other(Code::MalformedDocument, sentence))
}
