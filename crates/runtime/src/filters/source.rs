//! The source of a filter: the events of a log or of another stream, in log order.

use std::sync::Arc;
use std::time::Duration;

use annals_core::filters::FilterDefinition;
use annals_core::{
    ByteString, Clock, EventLog, Filter, Follower, LogQuery, ReadError, RecordedEvent, SequenceNumber, StreamQuery,
    Streams, limits,
};

use super::Ports;

/// How often to check a stream whose own filter has not evaluated the whole log. Idle streams are not checked.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The source of a filter.
#[derive(Clone)]
pub(super) enum Source {
    /// The events of a log that the filter can include.
    Log { log: Arc<dyn EventLog>, filter: Filter },
    /// The events of a stream.
    Stream { log: Arc<dyn EventLog>, streams: Arc<dyn Streams>, name: ByteString },
}

/// Events of a source with their positions there, and the sequence number below which there are no others.
pub(super) struct Run {
    pub events: Vec<(u64, RecordedEvent)>,
    pub next: SequenceNumber,
}

impl Source {
    /// Returns the source of a definition.
    pub fn of(definition: &FilterDefinition, ports: &Ports) -> Self {
        match &definition.source {
            None => Self::Log { log: Arc::clone(&ports.log), filter: definition.filter() },
            Some(name) => {
                Self::Stream { log: Arc::clone(&ports.log), streams: Arc::clone(&ports.streams), name: name.clone() }
            }
        }
    }

    /// Waits until the source has advanced beyond `from`, and returns a page, which may have no events.
    pub async fn step(&self, from: SequenceNumber, clock: &dyn Clock) -> Result<Run, ReadError> {
        match self {
            Self::Log { log, filter } => {
                let mut follower = Follower::new(Arc::clone(log), from, filter.clone());
                let events = follower.step().await?;
                Ok(Run { events: of_log(events), next: follower.position() })
            }
            Self::Stream { log, streams, name } => loop {
                // Read the log's head first, so that events that are not evaluated yet show as progress below it.
                let log_head = log.head().await?;
                let info = streams.stream(name).await?;
                if info.progress > from {
                    let run = of_stream(&**streams, name, from, info.head).await?;
                    let next = if run.next == SequenceNumber::MAX { info.progress } else { run.next };
                    return Ok(Run { next, ..run });
                }
                tokio::select! {
                    head = streams.wait_past(name, info.head) => drop(head?),
                    head = log.wait_past(log_head), if info.progress >= log_head => drop(head?),
                    () = clock.sleep(LOOK_EVERY), if info.progress < log_head => {}
                }
            },
        }
    }

    /// Reads a page of the range from `from` to `to`, exclusive, which the source must have reached.
    pub async fn read(&self, from: SequenceNumber, to: SequenceNumber) -> Result<Run, ReadError> {
        let mut run = match self {
            Self::Log { log, filter } => {
                let query =
                    LogQuery { from: Some(from), limit: limits::PAGE_MAX, backwards: false, filter: filter.clone() };
                let page = log.read(query).await?;
                let next = if page.events.is_empty() { to } else { page.next };
                Run { events: of_log(page.events), next }
            }
            Self::Stream { streams, name, .. } => {
                let head = streams.stream(name).await?.head;
                of_stream(&**streams, name, from, head).await?
            }
        };
        run.events.retain(|(_, event)| event.sequence_number < to);
        run.next = run.next.min(to);
        Ok(run)
    }

    /// Returns the number of its events.
    pub async fn head(&self) -> Result<u64, ReadError> {
        match self {
            Self::Log { log, .. } => log.head().await,
            Self::Stream { streams, name, .. } => Ok(streams.stream(name).await?.head),
        }
    }

    /// Returns the position of the event with this sequence number, or of the first one after it.
    pub async fn position_of(&self, sequence_number: SequenceNumber) -> Result<u64, ReadError> {
        match self {
            Self::Log { .. } => Ok(sequence_number),
            Self::Stream { streams, name, .. } => streams.position_of(name, sequence_number).await,
        }
    }

    /// Returns the first event at or after this sequence number, whether or not the filter admits it.
    pub async fn first(&self, from: SequenceNumber) -> Result<Option<RecordedEvent>, ReadError> {
        match self {
            Self::Log { log, .. } => {
                let query = LogQuery { from: Some(from), limit: 1, ..LogQuery::default() };
                Ok(log.read(query).await?.events.into_iter().next())
            }
            Self::Stream { streams, name, .. } => {
                let from = streams.position_of(name, from).await?;
                let query = StreamQuery { from, limit: 1, ..StreamQuery::new(name.clone()) };
                Ok(streams.read_events(query).await?.events.into_iter().next().map(|it| it.event))
            }
        }
    }
}

fn of_log(events: Vec<RecordedEvent>) -> Vec<(u64, RecordedEvent)> {
    events.into_iter().map(|event| (event.sequence_number, event)).collect()
}

/// Reads a page of a stream up to this head. If the page ends there, its `next` is the greatest sequence number.
async fn of_stream(
    streams: &dyn Streams,
    name: &ByteString,
    from: SequenceNumber,
    head: u64,
) -> Result<Run, ReadError> {
    let first = streams.position_of(name, from).await?;
    if first >= head {
        return Ok(Run { events: Vec::new(), next: SequenceNumber::MAX });
    }
    let query = StreamQuery { from: first, to: head, limit: limits::PAGE_MAX, ..StreamQuery::new(name.clone()) };
    let page = streams.read_events(query).await?;
    let next = match page.events.last() {
        Some(last) if page.next < head => last.event.sequence_number + 1,
        _ => SequenceNumber::MAX,
    };
    Ok(Run { events: page.events.into_iter().map(|it| (it.position, it.event)).collect(), next })
}
