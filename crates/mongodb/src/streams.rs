//! The streams of one scope of a tenant, in its database: what filters said of the log's events, in the layout of the Dolittle Runtime.
//!
//! ```text
//!   ../layout/stream.rs  an entry as a document of stream-<id> or public-stream-<id>
//!   collections.rs       the collections of a scope, and the log that its streams are of
//!   meta.rs              annals-streams: how each stream is
//!   append.rs            judge · one transaction: state from where it is believed to be, entries, offset · what is not known is resolved
//!   entries.rs           events of the log as entries
//!   reader.rs            pages, positions, repeats
//! ```
//!
//! Invariants, each kept by the one transaction that changes a stream:
//! - The positions of a stream's entries are 0 to `head - 1`, in the order of their sequence numbers.
//! - No entry's sequence number is at or past `progress`, and `progress` is at or below the log's head.
//! - Entries are never changed, so a page needs no snapshot: what is below a head that was read is there.

mod append;
mod collections;
mod entries;
mod meta;
mod reader;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use annals_core::{
    Appended, Identity, Randomness, ReadError, SequenceNumber, StoreError, StreamError, StreamEvent, StreamEvents,
    StreamInfo, StreamPage, StreamPosition, StreamQuery, Streams, StreamsQuery, Verdicts, valid_name,
};
use annals_system::{Instant, Lines};
use async_trait::async_trait;
use tokio::sync::OnceCell;

use crate::answers::Answers;
use crate::intake::Intake;
use crate::options::Options;
use collections::Collections;
pub(crate) use collections::LogOfStreams;

/// How often a waiting task looks for what other processes append.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The streams of one scope of a tenant.
pub(crate) struct MongoStreams {
    inner: Arc<Inner>,
}

/// What an append that its caller has left still needs.
struct Inner {
    log: LogOfStreams,
    collections: Collections,
    identity: Identity,
    random: Arc<dyn Randomness>,
    /// Whether collections and indexes are made when they are missing.
    create: bool,
    known: Mutex<HashMap<String, Arc<Known>>>,
    waiting: Lines,
    intake: Intake,
}

/// A stream that this process appends to.
#[derive(Default)]
struct Known {
    /// Its collection, once that is as it must be.
    collection: OnceCell<String>,
    /// One append at a time in this process: transactions on one state are in each other's way.
    turn: tokio::sync::Mutex<()>,
}

impl MongoStreams {
    pub(crate) fn new(log: LogOfStreams, identity: Identity, options: &Options) -> Self {
        let inner = Inner {
            collections: log.collections(),
            log,
            identity,
            random: options.random.clone(),
            create: options.auto_init_schema,
            known: Mutex::default(),
            waiting: Lines::default(),
            intake: Intake::new(options.waiting_max),
        };
        Self { inner: Arc::new(inner) }
    }

    fn answers(&self) -> &Answers {
        &self.inner.log.means().answers
    }

    /// Takes no more verdicts, waits until those in flight are answered, and wakes who waits.
    pub(crate) async fn close(&self) {
        self.inner.intake.drain().await;
        self.inner.waiting.close();
    }

    /// Answers what is in flight without waiting for MongoDB any longer.
    pub(crate) fn give_up(&self) {
        self.inner.intake.give_up();
        self.inner.waiting.close();
    }

    /// Takes no more verdicts, and wakes who waits.
    pub(crate) fn stop(&self) {
        self.inner.intake.stop();
        self.inner.waiting.close();
    }
}

impl Inner {
    fn known(&self, stream: &str) -> Arc<Known> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.entry(stream.to_owned()).or_default().clone()
    }
}

#[async_trait]
impl Streams for MongoStreams {
    async fn append(&self, verdicts: Verdicts) -> Result<Appended, StreamError> {
        verdicts.validate()?;
        let inner = self.inner.clone();
        let work = Box::pin(async move { append::append(&inner, &verdicts).await });
        self.inner.intake.run(self.answers(), work).await
    }

    async fn read(&self, query: StreamQuery) -> Result<StreamPage, ReadError> {
        query.validate()?;
        self.answers().of(reader::page(&self.inner.collections, &query)).await
    }

    async fn read_events(&self, query: StreamQuery) -> Result<StreamEvents, ReadError> {
        let page = self.read(query).await?;
        let numbers: Vec<_> = page.entries.iter().map(|entry| entry.sequence_number).collect();
        let events = self.answers().of(self.inner.log.events(&numbers)).await?;
        // Where the events are large, only the first are read.
        let next = page.entries.get(events.len()).map_or(page.next, |entry| entry.position);
        let joined = page.entries.into_iter().zip(events);
        let events =
            joined.map(|(entry, event)| StreamEvent { position: entry.position, partition: entry.partition, event });
        Ok(StreamEvents { events: events.collect(), next, head: page.head })
    }

    async fn position_of(&self, stream: &str, sequence_number: SequenceNumber) -> Result<StreamPosition, ReadError> {
        valid_name("stream", stream)?;
        let found = async {
            match meta::shown(&self.inner.collections, stream).await? {
                Some(meta) => reader::position_of(&self.inner.collections, &meta, sequence_number).await,
                None => Ok(0),
            }
        };
        self.answers().of(found).await
    }

    async fn stream(&self, name: &str) -> Result<StreamInfo, ReadError> {
        valid_name("stream", name)?;
        let meta = self.answers().of(meta::shown(&self.inner.collections, name)).await?;
        Ok(meta.map_or_else(|| StreamInfo::unknown(name), |meta| meta.info(name)))
    }

    async fn list(&self, query: StreamsQuery) -> Result<Vec<StreamInfo>, ReadError> {
        query.validate()?;
        self.answers().of(meta::list(&self.inner.collections, &query)).await
    }

    async fn wait_past(&self, stream: &str, head: StreamPosition) -> Result<StreamPosition, ReadError> {
        valid_name("stream", stream)?;
        // In line first and then looking: what this process appends after the look wakes it.
        let mut line = self.inner.waiting.join(stream);
        loop {
            let known = meta::shown(&self.inner.collections, stream).await?.map_or(0, |meta| meta.head);
            if known > head {
                return Ok(known);
            }
            match (Instant::now() + LOOK_EVERY).limit(line.past(head)).await {
                Some(Some(moved)) => return Ok(moved),
                Some(None) => return Err(StoreError::Closed.into()),
                // Other processes append too.
                None => {}
            }
        }
    }
}
