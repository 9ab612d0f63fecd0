//! Where a processor's events come from.

use std::collections::HashMap;
use std::sync::Arc;

use annals_core::handlers::{HandlerDefinition, HandlerSource, Place, Start};
use annals_core::processing::{Fetched, PartitionBy, Wanted};
use annals_core::{
    AggregateFilter, ByteString, EventLog, Filter, Follower, LogQuery, Matcher, Partitions, ReadError, RecordedEvent,
    StreamFollower, StreamQuery, Streams, Timestamp, event_document, limits,
};
use futures_util::future::try_join_all;

use super::owner::Awaited;
use super::reader::Page;

/// The most pages that one look-up of a partition's next event reads if no index leads to it.
const PAGES_MAX: usize = 4;
/// The number of entries per page if an index leads to the partition and a condition may reject some.
const INDEXED_PAGE: usize = 100;
/// The largest distance between two positions whose events are read together.
const TOGETHER_MAX: u64 = 8;
/// The most reads of separate positions at a time.
const READS_MAX: usize = 8;

/// The source of one processor.
#[derive(Clone)]
pub(crate) struct Source {
    log: Arc<dyn EventLog>,
    streams: Arc<dyn Streams>,
    events: Events,
    /// The condition that its events must satisfy.
    matcher: Option<Arc<Matcher>>,
    partition_by: PartitionBy,
    stop_at: Option<Timestamp>,
}

#[derive(Clone)]
enum Events {
    Log(Filter),
    Stream(ByteString),
}

/// An event, and the part of it that the state machine needs.
pub(crate) type Found = (Fetched, RecordedEvent);

/// The state of following a source.
pub(crate) struct Following {
    from: FollowingFrom,
    /// Events are passed over until the first one at or after this time.
    starts_at: Option<Timestamp>,
}

enum FollowingFrom {
    Log(Follower),
    Stream(StreamFollower),
}

impl Source {
    /// Creates the source of a handler.
    pub fn of(definition: &HandlerDefinition, log: Arc<dyn EventLog>, streams: Arc<dyn Streams>) -> Self {
        let events = match &definition.source {
            HandlerSource::Log { .. } => Events::Log(definition.filter().unwrap_or_default()),
            HandlerSource::Stream(name) => Events::Stream(name.clone()),
        };
        Self {
            log,
            streams,
            events,
            matcher: definition.condition.as_ref().map(|condition| Arc::new(Matcher::new(condition))),
            partition_by: definition.partition_by.clone(),
            stop_at: definition.stop_at,
        }
    }

    /// Creates the source of the same handler with a changed definition.
    pub fn redefined(&self, definition: &HandlerDefinition) -> Self {
        Self::of(definition, Arc::clone(&self.log), Arc::clone(&self.streams))
    }

    /// Follows the source from a position, passing over events until the first one at or after `starts_at`.
    pub fn follow(&self, from: u64, starts_at: Option<Timestamp>) -> Following {
        let from = match &self.events {
            Events::Log(filter) => FollowingFrom::Log(Follower::new(Arc::clone(&self.log), from, filter.clone())),
            Events::Stream(name) => {
                let streams = Arc::clone(&self.streams);
                FollowingFrom::Stream(StreamFollower::new(streams, name.clone(), from, Partitions::All))
            }
        };
        Following { from, starts_at }
    }

    /// Returns the number of its events, which is the position of the next one.
    pub async fn head(&self) -> Result<u64, ReadError> {
        match &self.events {
            Events::Log(_) => self.log.head().await,
            Events::Stream(name) => Ok(self.streams.stream(name).await?.head),
        }
    }

    /// Returns the position at which a processor begins, and the time before which it passes over events from there on.
    pub async fn start(&self, start: Start) -> Result<(u64, Option<Timestamp>), ReadError> {
        match start {
            Start::Beginning => Ok((0, None)),
            Start::Latest => Ok((self.head().await?, None)),
            Start::SequenceNumber(number) => Ok((self.position_of(number).await?, None)),
            Start::Time(time) => match self.at_time(time).await? {
                Some(position) => Ok((position, None)),
                None => Ok((self.head().await?, Some(time))),
            },
        }
    }

    /// Resolves a place to its current position.
    pub async fn place(&self, place: Place) -> Result<u64, ReadError> {
        use annals_core::handlers::End;
        match place {
            Place::Position(position) => Ok(position),
            Place::End(End::Beginning) => Ok(0),
            Place::End(End::Latest) => self.head().await,
            Place::SequenceNumber { sequence_number } => self.position_of(sequence_number).await,
            Place::Time { time } => match self.at_time(time).await? {
                Some(position) => Ok(position),
                None => self.head().await,
            },
        }
    }

    /// Returns the position of the first event at or after a time; `None` if there is no such event yet.
    async fn at_time(&self, time: Timestamp) -> Result<Option<u64>, ReadError> {
        match first_at(&*self.log, time).await? {
            Some(number) => Ok(Some(self.position_of(number).await?)),
            None => Ok(None),
        }
    }

    /// Returns the first event at or after a position, whether or not it satisfies the condition.
    pub async fn first(&self, from: u64) -> Result<Option<RecordedEvent>, ReadError> {
        Ok(self.page(from, 1, None).await?.0.into_iter().next().map(|(_, event)| event))
    }

    /// Returns the events at these ascending positions, whether or not they satisfy the condition, by position; and how many of the
    /// positions that covers. Neighbouring positions take one read, and a few reads are made at a time. Reading ends early once the events
    /// hold about `bytes_max` bytes of data.
    pub async fn at(
        &self,
        positions: &[u64],
        bytes_max: usize,
    ) -> Result<(HashMap<u64, RecordedEvent>, usize), ReadError> {
        let mut read = ReadAt { found: HashMap::with_capacity(positions.len()), covered: 0, bytes: 0, largest: 1 };
        let mut at_once = 1;
        while read.bytes < bytes_max && read.covered < positions.len() {
            let runs: Vec<_> = runs_of(&positions[read.covered..]).take(at_once).collect();
            let pages = runs.iter().map(|(first, last)| {
                let span = usize::try_from(last - first).unwrap_or(usize::MAX).saturating_add(1);
                self.page(*first, span.min(limits::PAGE_MAX), None)
            });
            let pages = try_join_all(pages).await?;
            for ((first, last), (page, next)) in runs.into_iter().zip(pages) {
                read.take(positions, page, next.max(first + 1));
                // A page may be cut because it is large. What follows is read again from there.
                if next <= last && read.covered < positions.len() {
                    break;
                }
            }
            // Twice as many next time, as far as they fit if none is larger than the largest so far.
            let fitting = bytes_max.saturating_sub(read.bytes) / read.largest;
            at_once = (2 * at_once).min(fitting).clamp(1, READS_MAX);
        }
        Ok((read.found, read.covered))
    }

    /// Returns the number of its events, and the age in seconds of the oldest one at or after a position; 0 if there is none.
    pub async fn waiting(&self, position: u64, now: Timestamp) -> Result<(u64, u64), ReadError> {
        let head = self.head().await?;
        let oldest = if head > position { self.first(position).await? } else { None };
        Ok((head, oldest.map_or(0, |event| now.since(event.time).as_secs())))
    }

    /// Returns whether an event satisfies the condition, if there is one.
    fn admits(&self, event: &RecordedEvent) -> bool {
        self.matcher.as_ref().is_none_or(|matcher| matcher.matches(&event_document(event)))
    }

    /// Looks up the next events of failing partitions, and returns for each what [`next_of`](Self::next_of) does: together if an index
    /// leads to them, otherwise one by one, because each holds whole pages. So does one that may reject events of the partition.
    pub async fn next_of_each(&self, wanted: &[Wanted]) -> Result<Vec<(Option<Found>, u64)>, ReadError> {
        if self.matcher.is_none() && wanted.iter().all(|wanted| self.index_of(&wanted.partition).is_some()) {
            return try_join_all(wanted.iter().map(|wanted| self.next_of(wanted))).await;
        }
        let mut found = Vec::with_capacity(wanted.len());
        for wanted in wanted {
            found.push(self.next_of(wanted).await?);
        }
        Ok(found)
    }

    /// Returns the next event of a failing partition, and the position before which there is none.
    async fn next_of(&self, wanted: &Wanted) -> Result<(Option<Found>, u64), ReadError> {
        let (mut from, indexed) = (wanted.from, self.index_of(&wanted.partition));
        for _ in 0..PAGES_MAX {
            if from >= wanted.to {
                return Ok((None, wanted.to));
            }
            let limit = match (&indexed, &self.matcher) {
                (None, _) => limits::PAGE_MAX,
                (Some(_), Some(_)) => INDEXED_PAGE,
                (Some(_), None) => 1,
            };
            let (page, next) = self.page(from, limit, indexed.as_ref()).await?;
            let at_end = page.is_empty();
            let of_it = |(fetched, event): &Found| fetched.partition == wanted.partition && self.admits(event);
            let found = page.into_iter().take_while(|(event, _)| event.position < wanted.to).find(of_it);
            if found.is_some() {
                return Ok((found, wanted.to));
            }
            if at_end {
                return Ok((None, wanted.to));
            }
            from = next;
        }
        Ok((None, from.min(wanted.to)))
    }

    /// Returns the filter by which the log's index leads to a partition, if it does.
    fn index_of(&self, partition: &str) -> Option<AggregateFilter> {
        match (&self.partition_by, &self.events) {
            (PartitionBy::Aggregate, Events::Log(_)) => {
                let (name, id) = partition.split_once('/').filter(|(name, _)| !name.is_empty())?;
                Some(AggregateFilter { name: name.into(), id: Some(id.into()) })
            }
            _ => None,
        }
    }

    /// Reads events from a position, whether or not they satisfy the condition, and returns where the next page begins.
    async fn page(
        &self,
        from: u64,
        limit: usize,
        aggregate: Option<&AggregateFilter>,
    ) -> Result<(Vec<Found>, u64), ReadError> {
        match &self.events {
            Events::Log(filter) => {
                let filter = Filter { aggregate: aggregate.cloned(), ..filter.clone() };
                let page = self.log.read(LogQuery { from: Some(from), limit, backwards: false, filter }).await?;
                Ok((page.events.into_iter().map(|event| self.of_log(event)).collect(), page.next))
            }
            Events::Stream(name) => {
                let query = StreamQuery { from, limit, ..StreamQuery::new(name.clone()) };
                let page = self.streams.read_events(query).await?;
                let found = page.events.into_iter().map(|it| self.found(it.position, it.event));
                Ok((found.collect(), page.next))
            }
        }
    }

    fn of_log(&self, event: RecordedEvent) -> Found {
        self.found(event.sequence_number, event)
    }

    fn found(&self, position: u64, event: RecordedEvent) -> Found {
        let partition = self.partition_by.of(&event);
        (Fetched { position, sequence_number: event.sequence_number, partition, time: event.time }, event)
    }

    /// Returns what to wait for until this event of the log is handled; `None` while it is undecided whether the source includes it.
    pub async fn place_of(&self, event: &RecordedEvent) -> Result<Option<Awaited>, ReadError> {
        let number = event.sequence_number;
        let of_it = |position| Awaited::Event { position, partition: self.partition_by.of(event) };
        let is_its_own = self.admits(event);
        match &self.events {
            Events::Log(filter) if filter.admits(event) && is_its_own => Ok(Some(of_it(number))),
            Events::Log(_) => Ok(Some(Awaited::ReadTo(number + 1))),
            Events::Stream(name) => {
                if self.streams.stream(name).await?.progress <= number {
                    return Ok(None);
                }
                let position = self.streams.position_of(name, number).await?;
                let query = StreamQuery { from: position, limit: 1, ..StreamQuery::new(name.clone()) };
                let entry = self.streams.read(query).await?.entries.into_iter().next();
                let has_it = entry.is_some_and(|entry| entry.sequence_number == number);
                Ok(Some(match has_it {
                    true if is_its_own => of_it(position),
                    true => Awaited::ReadTo(position + 1),
                    false => Awaited::ReadTo(position),
                }))
            }
        }
    }

    /// Returns the position of the event with this sequence number, or of the next event after it.
    pub async fn position_of(&self, sequence_number: u64) -> Result<u64, ReadError> {
        match &self.events {
            Events::Log(_) => Ok(sequence_number),
            Events::Stream(name) => self.streams.position_of(name, sequence_number).await,
        }
    }

    /// Waits until the source advances, and returns the events that it has by then and where it continues. Must not be called again after
    /// the event at which the source ends.
    pub async fn step(&self, following: &mut Following) -> Result<Page, ReadError> {
        let (found, next): (Vec<Found>, u64) = match &mut following.from {
            FollowingFrom::Log(follower) => {
                let events = follower.step().await?;
                (events.into_iter().map(|event| self.of_log(event)).collect(), follower.position())
            }
            FollowingFrom::Stream(follower) => {
                let events = follower.step().await?;
                let found = events.into_iter().map(|it| self.found(it.position, it.event));
                (found.collect(), follower.position())
            }
        };
        Ok(self.own(found, next, &mut following.starts_at))
    }

    /// Returns those of the events read that belong to the source, up to where it ends.
    fn own(&self, found: Vec<Found>, next: u64, starts_at: &mut Option<Timestamp>) -> Page {
        let mut page = Page { events: Vec::with_capacity(found.len()), next, ended: false, begun: false };
        for (fetched, event) in found {
            if starts_at.is_some_and(|start| event.time < start) {
                continue;
            }
            *starts_at = None;
            page.begun = true;
            if !self.admits(&event) {
                continue;
            }
            if self.stop_at.is_some_and(|stop| event.time >= stop) {
                (page.next, page.ended) = (fetched.position, true);
                break;
            }
            page.events.push((fetched, event));
        }
        page
    }
}

/// The events that [`Source::at`] has read so far.
struct ReadAt {
    found: HashMap<u64, RecordedEvent>,
    /// How many of the positions were read.
    covered: usize,
    bytes: usize,
    /// The bytes of the largest page, including those of events that are not wanted.
    largest: usize,
}

impl ReadAt {
    /// Takes the wanted events of a page that ends before `next`.
    fn take(&mut self, positions: &[u64], page: Vec<Found>, next: u64) {
        if page.is_empty() {
            // The source ends before this position.
            self.covered = positions.len();
            return;
        }
        let mut whole = 0;
        for (fetched, event) in page {
            let bytes = event.page_bytes();
            whole += bytes;
            // A page that leaves out other events may end behind its run, where the next one begins.
            if positions.binary_search(&fetched.position).is_ok()
                && self.found.insert(fetched.position, event).is_none()
            {
                self.bytes += bytes;
            }
        }
        self.largest = self.largest.max(whole);
        self.covered = self.covered.max(positions.partition_point(|position| *position < next));
    }
}

/// Returns the first and the last of each run of neighbouring positions.
fn runs_of(positions: &[u64]) -> impl Iterator<Item = (u64, u64)> + '_ {
    let runs = positions.chunk_by(|one, next| next.saturating_sub(*one) <= TOGETHER_MAX);
    runs.filter_map(|run| Some((*run.first()?, *run.last()?)))
}

/// Returns the sequence number of the first event at or after a time; `None` if there is none. Times ascend except after clock jumps and
/// imports, so the event is found by bisection. While any of the 1,000 events before the result also qualifies, the earliest of those is
/// used instead.
async fn first_at(log: &dyn EventLog, time: Timestamp) -> Result<Option<u64>, ReadError> {
    let head = log.head().await?;
    let (mut low, mut high) = (0, head);
    while low < high {
        let middle = low + (high - low) / 2;
        let query = LogQuery { from: Some(middle), limit: 1, ..LogQuery::default() };
        match log.read(query).await?.events.first() {
            Some(event) if event.time < time => low = middle + 1,
            _ => high = middle,
        }
    }
    let mut first = low;
    while first > 0 {
        let query = LogQuery { from: Some(first), limit: limits::PAGE_MAX, backwards: true, ..LogQuery::default() };
        let page = log.read(query).await?;
        let earlier = page.events.iter().filter(|event| event.time >= time).map(|event| event.sequence_number).min();
        match earlier {
            Some(number) => first = number,
            None => break,
        }
    }
    Ok((first < head).then_some(first))
}
