//! Streams: the verdicts of filters on the log's events, stored as positions into the log. The events themselves are stored once, in the
//! log.
//!
//! ```text
//!   keys.rs      the keys in the engine, and the checksums of values
//!   block.rs     entries and positions as bytes, 1 to 3 an entry
//!   meta.rs      how a stream is
//!   append.rs    engine's writer    judge · number partitions · fill blocks · move head and progress
//!   reader.rs    caller's task      block → entries; partition → positions → entries
//!   cut.rs       at opening         what a restore makes of streams
//!   check.rs     caller's task      whether all of it is as it must be
//! ```
//!
//! Invariants, each maintained by the single engine write that changes a stream:
//! - Block `n` holds the entries of the positions from `n × 256` on. All blocks but the last hold 256 entries; together they hold `head`
//!   entries.
//! - Each position occurs exactly once in the positions of its entry's partition, and in no other's.
//! - The sequence number of every entry is below `progress`, and `progress` is at most the log's durable head.

mod append;
mod block;
mod check;
mod cut;
mod keys;
mod meta;
mod reader;

#[cfg(test)]
mod tests;

use std::ops::Bound;
use std::sync::Arc;

use annals_core::{
    Appended, DEFAULT_SCOPE, Identity, ReadError, SequenceNumber, StoreError, StreamError, StreamEvent, StreamEvents,
    StreamInfo, StreamPage, StreamPosition, StreamQuery, Streams, StreamsQuery, Verdicts, valid_name,
};
use annals_system::Lines;
use async_trait::async_trait;

pub(crate) use self::check::{Owner, check};
pub(crate) use self::cut::would_stay;
pub(crate) use self::keys::entry_is_whole;

use self::append::Place;
use self::cut::Fork;
use self::meta::Meta;
use self::reader::Reader;
use crate::Options;
use crate::engine::{Engine, Range};
use crate::log::Log;
use crate::options::SeededBug;

/// The streams of one scope.
pub(crate) struct LogStreams {
    engine: Arc<Engine>,
    log: Arc<Log>,
    place: Arc<Place>,
    waiting: Arc<Lines>,
    /// Why every request is refused: the streams do not belong to this log.
    unfit: Option<StoreError>,
}

impl LogStreams {
    /// Cuts streams of earlier incarnations, and checks that all streams belong to this log. Blocks while it writes, which happens only
    /// after a restore.
    ///
    /// # Errors
    /// Why nothing could be written.
    pub(crate) fn open(
        engine: Arc<Engine>,
        log: Arc<Log>,
        scope: &str,
        identity: &Identity,
        options: &Options,
    ) -> Result<Self, StoreError> {
        let place = Place { scope: scope.to_owned(), incarnation: identity.incarnation, options: options.clone() };
        let unfit = match fit(&engine, &log, &place, identity) {
            Ok(()) => None,
            Err(damage @ (StoreError::Damaged(_) | StoreError::RecordsDamaged(_))) => {
                tracing::error!(scope, %damage, "streams are refused");
                Some(damage)
            }
            Err(error) => return Err(error),
        };
        Ok(Self { engine, log, place: Arc::new(place), waiting: Arc::default(), unfit })
    }

    /// Wakes all waiters. Writes in progress are ended by the engine.
    pub(crate) fn close(&self) {
        self.waiting.close();
    }

    /// Returns the faults of this scope's streams; empty if there are none.
    pub(crate) fn faults(&self) -> Vec<StoreError> {
        if let Some(unfit) = &self.unfit {
            return vec![unfit.clone()];
        }
        self.engine.read(|view| Ok::<_, StoreError>(check::faults(view, &self.place.scope))).unwrap_or_else(|e| vec![e])
    }

    /// Runs `work` on the durable state of a stream. Returns `unknown` if nothing was ever appended to it.
    fn with<T>(
        &self,
        stream: &str,
        unknown: T,
        work: impl FnOnce(Reader<'_>, Meta) -> Result<T, StoreError>,
    ) -> Result<T, ReadError> {
        self.fit()?;
        let key = keys::stream(&self.place.scope, stream);
        let read = self.engine.read(|view| match Meta::load(view, &key)? {
            Some(meta) => work(Reader::new(view, meta), meta),
            None => Ok(unknown),
        });
        Ok(read?)
    }

    fn fit(&self) -> Result<(), StoreError> {
        self.unfit.clone().map_or(Ok(()), Err)
    }

    fn head(&self, stream: &str) -> Result<StreamPosition, ReadError> {
        self.with(stream, 0, |_, meta| Ok(meta.head))
    }
}

/// Cuts what a restore left behind, and compares the rest with the log.
fn fit(engine: &Engine, log: &Log, place: &Place, identity: &Identity) -> Result<(), StoreError> {
    let mut streams = engine.read(|view| cut::all(view, &place.scope))?;
    if let Some((key, meta)) = streams.iter().find(|(_, meta)| meta.incarnation > place.incarnation) {
        let (name, now) = (name(key), place.incarnation);
        let message = format!(
            "stream {name} has incarnation {}, but the store has {now}; restore both from one backup",
            meta.incarnation
        );
        return Err(StoreError::RecordsDamaged(message));
    }
    let earlier = |(_, meta): &&cut::Kept| meta.incarnation < place.incarnation;
    let earlier: Vec<_> = streams.iter().filter(earlier).cloned().collect();
    if !earlier.is_empty() && !place.options.has(SeededBug::KeepStreamsOfEarlierIncarnations) {
        let fork = fork(log, place, identity)?;
        tracing::info!(scope = place.scope, streams = earlier.len(), from = fork.start, "a restore cuts streams");
        engine.write_blocking(move |change| earlier.into_iter().try_for_each(|kept| cut::cut(change, kept, fork)))?;
        streams = engine.read(|view| cut::all(view, &place.scope))?;
    }
    let head = log.durable_head();
    match streams.iter().find(|(_, meta)| meta.progress > head).filter(|_| log.unless_cut_short().is_ok()) {
        Some((key, meta)) => Err(StoreError::RecordsDamaged(format!(
            "stream {} was evaluated up to {}, but the log has {head} events, so the log has lost events; restore a backup",
            name(key),
            meta.progress
        ))),
        None => Ok(()),
    }
}

/// Returns where this incarnation of the log began. For the default scope the store's identity records it. Any other log, when first
/// opened in an incarnation, ends exactly there.
fn fork(log: &Log, place: &Place, identity: &Identity) -> Result<Fork, StoreError> {
    let start = match (log.unless_cut_short(), place.scope == DEFAULT_SCOPE) {
        (Ok(()), true) => identity.incarnation_start.min(log.durable_head()),
        (Ok(()), false) => log.durable_head(),
        (Err(_), true) => identity.incarnation_start,
        (Err(damage), false) => return Err(damage),
    };
    Ok(Fork { incarnation: place.incarnation, start })
}

/// Returns the name in a stream's key.
fn name(key: &[u8]) -> String {
    let name = key.rsplit(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(name).into_owned()
}

fn info(key: &[u8], meta: &Meta) -> StreamInfo {
    StreamInfo {
        name: name(key).into(),
        head: meta.head,
        progress: meta.progress,
        incarnation_start: meta.incarnation_start,
    }
}

#[async_trait]
impl Streams for LogStreams {
    async fn append(&self, verdicts: Verdicts) -> Result<Appended, StreamError> {
        verdicts.validate()?;
        self.fit()?;
        let head = self.log.durable_head();
        if verdicts.to > head {
            self.log.unless_cut_short()?;
            return Err(StreamError::BeyondLog { to: verdicts.to, head });
        }
        let verdicts = Arc::new(verdicts);
        let (place, given) = (self.place.clone(), verdicts.clone());
        let (waiting, stream) = (self.waiting.clone(), verdicts.stream.clone());
        let appended = self
            .engine
            .write_then(
                move |change| append::append(change, &place, &given),
                move |appended| waiting.moved(&stream, appended.positions.end),
            )
            .await?;
        if self.place.options.has(SeededBug::MoveProgressOnItsOwn) {
            let place = self.place.clone();
            self.engine.write(move |change| append::move_progress(change, &place, &verdicts)).await?;
        }
        Ok(appended)
    }

    async fn read(&self, query: StreamQuery) -> Result<StreamPage, ReadError> {
        query.validate()?;
        let empty = StreamPage { entries: Vec::new(), next: 0, head: 0 };
        self.with(&query.stream, empty, |reader, _| reader.page(&query))
    }

    async fn read_events(&self, query: StreamQuery) -> Result<StreamEvents, ReadError> {
        let page = self.read(query).await?;
        let numbers: Vec<_> = page.entries.iter().map(|entry| entry.sequence_number).collect();
        let events = self.log.events(&numbers)?;
        // If the events are large, only the first ones were read.
        let next = page.entries.get(events.len()).map_or(page.next, |entry| entry.position);
        let joined = page.entries.into_iter().zip(events);
        let events =
            joined.map(|(entry, event)| StreamEvent { position: entry.position, partition: entry.partition, event });
        Ok(StreamEvents { events: events.collect(), next, head: page.head })
    }

    async fn position_of(&self, stream: &str, sequence_number: SequenceNumber) -> Result<StreamPosition, ReadError> {
        valid_name("stream", stream)?;
        self.with(stream, 0, |mut reader, _| reader.position_of(sequence_number))
    }

    async fn stream(&self, name: &str) -> Result<StreamInfo, ReadError> {
        valid_name("stream", name)?;
        let key = keys::stream(&self.place.scope, name);
        self.with(name, StreamInfo::unknown(name), |_, meta| Ok(info(&key, &meta)))
    }

    async fn list(&self, query: StreamsQuery) -> Result<Vec<StreamInfo>, ReadError> {
        query.validate()?;
        self.fit()?;
        let mut range = Range::prefix(&keys::scope(&self.place.scope));
        if let Some(after) = &query.after {
            range.from = Bound::Excluded(keys::stream(&self.place.scope, after));
        }
        let listed = self.engine.read(|view| {
            let entries = view.ascending(&range)?.take(query.limit);
            let info = |entry: Result<(Vec<u8>, Vec<u8>), StoreError>| {
                let (key, value) = entry?;
                Ok(info(&key, &Meta::decode(&key, &value)?))
            };
            entries.map(info).collect::<Result<_, StoreError>>()
        });
        Ok(listed?)
    }

    async fn wait_past(&self, stream: &str, head: StreamPosition) -> Result<StreamPosition, ReadError> {
        valid_name("stream", stream)?;
        // Join before reading, so that a later append wakes this waiter.
        let mut line = self.waiting.join(stream);
        let known = self.head(stream)?;
        if known > head {
            return Ok(known);
        }
        line.past(head).await.ok_or_else(|| StoreError::Closed.into())
    }
}
