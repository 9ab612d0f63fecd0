//! Comparison of what a filter would have included with what its stream holds. It reads page by page, so a long log takes time but no
//! memory.

use std::collections::VecDeque;
use std::ops::Range;

use annals_core::{
    Included, ReadError, RecordedEvent, SequenceNumber, StreamEntry, StreamPosition, StreamQuery, Streams, limits,
};

use super::source::Source;

/// Entries of a stream whose events have sequence numbers in a range.
struct Entries<'a> {
    streams: &'a dyn Streams,
    stream: &'a str,
    next: StreamPosition,
    to: SequenceNumber,
    page: VecDeque<StreamEntry>,
}

impl<'a> Entries<'a> {
    async fn of(streams: &'a dyn Streams, stream: &'a str, range: Range<SequenceNumber>) -> Result<Self, ReadError> {
        let next = streams.position_of(stream, range.start).await?;
        Ok(Self { streams, stream, next, to: range.end, page: VecDeque::new() })
    }

    async fn next(&mut self) -> Result<Option<StreamEntry>, ReadError> {
        if self.page.is_empty() {
            let query =
                StreamQuery { from: self.next, limit: limits::PAGE_MAX, ..StreamQuery::new(self.stream.to_owned()) };
            let page = self.streams.read(query).await?;
            self.next = page.next;
            self.page = page.entries.into();
        }
        let of_range = |entry: &StreamEntry| entry.sequence_number < self.to;
        Ok(self.page.pop_front().filter(of_range))
    }
}

/// Returns the first event of a range whose entry differs from the stream's: it is missing on one side, or in another partition.
pub(super) async fn first_difference(
    source: &Source,
    (streams, stream): (&dyn Streams, &str),
    range: Range<SequenceNumber>,
    entry_of: impl Fn(&RecordedEvent) -> Option<Included>,
) -> Result<Option<SequenceNumber>, ReadError> {
    let mut stored = Entries::of(streams, stream, range.clone()).await?;
    let mut from = range.start;
    while from < range.end {
        let run = source.read(from, range.end).await?;
        for expected in run.events.iter().filter_map(|(_, event)| entry_of(event)) {
            match stored.next().await? {
                None => return Ok(Some(expected.sequence_number)),
                Some(found) if found.sequence_number != expected.sequence_number => {
                    return Ok(Some(found.sequence_number.min(expected.sequence_number)));
                }
                Some(found) if found.partition != expected.partition => return Ok(Some(found.sequence_number)),
                Some(_) => {}
            }
        }
        from = run.next;
    }
    Ok(stored.next().await?.map(|entry| entry.sequence_number))
}

/// Returns the first event of a range on which two evaluations differ. The source must have every such event.
pub(super) async fn first_change<T: PartialEq>(
    source: &Source,
    range: Range<SequenceNumber>,
    before: impl Fn(&RecordedEvent) -> T,
    after: impl Fn(&RecordedEvent) -> T,
) -> Result<Option<SequenceNumber>, ReadError> {
    let mut from = range.start;
    while from < range.end {
        let run = source.read(from, range.end).await?;
        let changed = run.events.iter().find(|(_, event)| before(event) != after(event));
        if let Some((_, event)) = changed {
            return Ok(Some(event.sequence_number));
        }
        from = run.next;
    }
    Ok(None)
}
