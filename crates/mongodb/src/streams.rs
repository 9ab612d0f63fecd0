//! The streams of one scope of a tenant, in its database: the verdicts of filters on the log's events, in the Dolittle Runtime's layout.
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
//! INVARIANTS, each maintained by the one transaction that changes a stream:
//! - The positions of a stream's entries are 0 to `head - 1`, in order of sequence number.
//! - No entry's sequence number is at or past `progress`, and `progress` is at most the log's head.
//! - Entries are never changed, so a page needs no snapshot: every entry below a head that was read exists.

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

/// Polling interval of a waiter, for appends by other processes.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The streams of one scope of a tenant.
pub(crate) struct MongoStreams {
    inner: Arc<Inner>,
}

/// The state that an append still needs after its caller is gone.
struct Inner {
    log: LogOfStreams,
    collections: Collections,
    identity: Identity,
    random: Arc<dyn Randomness>,
    /// Whether missing collections and indexes are created.
    create: bool,
    known: Mutex<HashMap<String, Arc<Known>>>,
    waiting: Lines,
    intake: Intake,
}

/// A stream that this process appends to.
#[derive(Default)]
struct Known {
    /// Its collection, once its indexes were checked.
    collection: OnceCell<String>,
    /// Held during an append: there is one at a time in this process, because transactions on one state conflict.
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

    /// Accepts no more verdicts, waits until those in flight are answered, and wakes all waiters.
    pub(crate) async fn close(&self) {
        self.inner.intake.drain().await;
        self.inner.waiting.close();
    }

    /// Answers requests in flight without waiting for MongoDB any longer.
    pub(crate) fn give_up(&self) {
        self.inner.intake.give_up();
        self.inner.waiting.close();
    }

    /// Accepts no more verdicts, and wakes all waiters.
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
        // If the events are large, only the first ones are read.
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
        // Subscribe before reading, so that no later append of this process is missed.
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
