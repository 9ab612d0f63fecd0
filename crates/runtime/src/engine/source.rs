//! Where a processor's events come from.

use std::sync::Arc;

use annals_core::handlers::{HandlerDefinition, HandlerSource, Start};
use annals_core::processing::{Fetched, PartitionBy, Wanted};
use annals_core::{
    AggregateFilter, ByteString, EventLog, Filter, Follower, LogQuery, Partitions, ReadError, RecordedEvent,
    StreamFollower, StreamQuery, Streams, limits,
};

use super::owner::Awaited;

/// Pages that one look-up of a partition's next event reads at most, where no index leads to it.
const PAGES_MAX: usize = 4;

/// The source of one processor.
#[derive(Clone)]
pub(crate) struct Source {
    events: Events,
    partition_by: PartitionBy,
}

#[derive(Clone)]
enum Events {
    Log { log: Arc<dyn EventLog>, filter: Filter },
    Stream { streams: Arc<dyn Streams>, name: ByteString },
}

/// An event, and what the state machine knows of it.
pub(crate) type Found = (Fetched, RecordedEvent);

/// What follows a source.
pub(crate) enum Following {
    Log(Follower),
    Stream(StreamFollower),
}

impl Source {
    /// The source of a handler.
    pub fn of(definition: &HandlerDefinition, log: Arc<dyn EventLog>, streams: Arc<dyn Streams>) -> Self {
        let events = match &definition.source {
            HandlerSource::Log { types } => {
                Events::Log { log, filter: Filter { types: types.clone(), ..Filter::default() } }
            }
            HandlerSource::Stream(name) => Events::Stream { streams, name: name.clone() },
        };
        Self { events, partition_by: definition.partition_by.clone() }
    }

    /// Follows it from a position.
    pub fn follow(&self, from: u64) -> Following {
        match &self.events {
            Events::Log { log, filter } => Following::Log(Follower::new(Arc::clone(log), from, filter.clone())),
            Events::Stream { streams, name } => {
                Following::Stream(StreamFollower::new(Arc::clone(streams), name.clone(), from, Partitions::All))
            }
        }
    }

    /// The number of its events: the position that the next one gets.
    pub async fn head(&self) -> Result<u64, ReadError> {
        match &self.events {
            Events::Log { log, .. } => log.head().await,
            Events::Stream { streams, name } => Ok(streams.stream(name).await?.head),
        }
    }

    /// The position where a processor begins.
    pub async fn start(&self, start: Start) -> Result<u64, ReadError> {
        match (start, &self.events) {
            (Start::Beginning, _) => Ok(0),
            (Start::Latest, _) => self.head().await,
            (Start::SequenceNumber(number), Events::Log { .. }) => Ok(number),
            (Start::SequenceNumber(number), Events::Stream { streams, name }) => {
                streams.position_of(name, number).await
            }
        }
    }

    /// The first event at a position or after it.
    pub async fn first(&self, from: u64) -> Result<Option<RecordedEvent>, ReadError> {
        Ok(self.page(from, 1, None).await?.0.into_iter().next().map(|(_, event)| event))
    }

    /// The next event of a failing partition, and up to which position there is none before it.
    pub async fn next_of(&self, wanted: &Wanted) -> Result<(Option<Found>, u64), ReadError> {
        let (mut from, indexed) = (wanted.from, self.index_of(&wanted.partition));
        for _ in 0..PAGES_MAX {
            if from >= wanted.to {
                return Ok((None, wanted.to));
            }
            let limit = if indexed.is_some() { 1 } else { limits::PAGE_MAX };
            let (page, next) = self.page(from, limit, indexed.as_ref()).await?;
            let at_end = page.is_empty();
            let of_it = |(fetched, _): &Found| fetched.partition == wanted.partition;
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

    /// The filter by which the log's index leads to a partition, if it does.
    fn index_of(&self, partition: &str) -> Option<AggregateFilter> {
        match (&self.partition_by, &self.events) {
            (PartitionBy::Aggregate, Events::Log { .. }) => {
                let (name, id) = partition.split_once('/').filter(|(name, _)| !name.is_empty())?;
                Some(AggregateFilter { name: name.into(), id: Some(id.into()) })
            }
            _ => None,
        }
    }

    /// Events from a position on, and where the next page begins.
    async fn page(
        &self,
        from: u64,
        limit: usize,
        aggregate: Option<&AggregateFilter>,
    ) -> Result<(Vec<Found>, u64), ReadError> {
        match &self.events {
            Events::Log { log, filter } => {
                let filter = Filter { aggregate: aggregate.cloned(), ..filter.clone() };
                let page = log.read(LogQuery { from: Some(from), limit, backwards: false, filter }).await?;
                Ok((page.events.into_iter().map(|event| self.of_log(event)).collect(), page.next))
            }
            Events::Stream { streams, name } => {
                let query = StreamQuery { from, limit, ..StreamQuery::new(name.clone()) };
                let page = streams.read_events(query).await?;
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
        (Fetched { position, sequence_number: event.sequence_number, partition }, event)
    }

    /// Returns what to wait for so that this event of the log is handled; none while it is undecided whether the source has it.
    pub async fn place_of(&self, event: &RecordedEvent) -> Result<Option<Awaited>, ReadError> {
        let number = event.sequence_number;
        let of_it = |position| Awaited::Event { position, partition: self.partition_by.of(event) };
        match &self.events {
            Events::Log { filter, .. } if filter.admits(event) => Ok(Some(of_it(number))),
            Events::Log { .. } => Ok(Some(Awaited::ReadTo(number + 1))),
            Events::Stream { streams, name } => {
                if streams.stream(name).await?.progress <= number {
                    return Ok(None);
                }
                let position = streams.position_of(name, number).await?;
                let query = StreamQuery { from: position, limit: 1, ..StreamQuery::new(name.clone()) };
                let entry = streams.read(query).await?.entries.into_iter().next();
                let has_it = entry.is_some_and(|entry| entry.sequence_number == number);
                Ok(Some(if has_it { of_it(position) } else { Awaited::ReadTo(position) }))
            }
        }
    }

    /// The position that an event of this number has, or that the next event after it has.
    pub async fn position_of(&self, sequence_number: u64) -> Result<u64, ReadError> {
        self.start(Start::SequenceNumber(sequence_number)).await
    }

    /// Waits until the source moves on, and returns what it has by then, and where it continues.
    pub async fn step(&self, following: &mut Following) -> Result<(Vec<Found>, u64), ReadError> {
        match following {
            Following::Log(follower) => {
                let events = follower.step().await?;
                Ok((events.into_iter().map(|event| self.of_log(event)).collect(), follower.position()))
            }
            Following::Stream(follower) => {
                let events = follower.step().await?;
                let found = events.into_iter().map(|it| self.found(it.position, it.event));
                Ok((found.collect(), follower.position()))
            }
        }
    }
}
