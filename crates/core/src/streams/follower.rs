//! Following a stream.

use std::sync::Arc;

use super::{Partitions, StreamEvent, StreamPosition, StreamQuery, Streams};
use crate::{ByteString, ReadError, limits};

/// Follows a stream: first what is there, then what comes, without gap or repeat.
///
/// It pulls, so it holds at most one page, and a slow follower costs nobody else anything.
pub struct StreamFollower {
    streams: Arc<dyn Streams>,
    stream: ByteString,
    partitions: Partitions,
    next: StreamPosition,
}

impl StreamFollower {
    /// Follows a stream from position `from`. It need not exist yet.
    pub fn new(
        streams: Arc<dyn Streams>,
        stream: impl Into<ByteString>,
        from: StreamPosition,
        partitions: Partitions,
    ) -> Self {
        Self { streams, stream: stream.into(), partitions, next: from }
    }

    /// The position from which it goes on: everything below has been returned or is of another partition.
    pub fn position(&self) -> StreamPosition {
        self.next
    }

    /// Waits for the next events, at least one. Cancelling loses nothing.
    ///
    /// # Errors
    /// See [`ReadError`]; the position is unchanged, so calling again retries.
    pub async fn next_page(&mut self) -> Result<Vec<StreamEvent>, ReadError> {
        loop {
            let events = self.step().await?;
            if !events.is_empty() {
                return Ok(events);
            }
        }
    }

    /// Waits until the position moves, and returns the events of the wanted partitions on the way, perhaps none. Cancelling loses
    /// nothing.
    ///
    /// # Errors
    /// As [`next_page`](Self::next_page).
    pub async fn step(&mut self) -> Result<Vec<StreamEvent>, ReadError> {
        loop {
            let query = StreamQuery {
                from: self.next,
                limit: limits::PAGE_MAX,
                partitions: self.partitions.clone(),
                ..StreamQuery::new(self.stream.clone())
            };
            let page = self.streams.read_events(query).await?;
            // A position past the head (the caller looks ahead) waits for that position.
            let next = page.next.max(self.next);
            if !page.events.is_empty() || next > self.next {
                self.next = next;
                return Ok(page.events);
            }
            self.streams.wait_past(&self.stream, next).await?;
        }
    }
}
