//! Follows a stream.

use std::sync::Arc;

use super::{Partitions, StreamEvent, StreamPosition, StreamQuery, Streams};
use crate::{ByteString, ReadError, limits};

/// Follows a stream: first its existing events, then new ones, without gaps or duplicates.
///
/// It pulls, so it holds at most one page, and a slow follower delays nobody else.
pub struct StreamFollower {
    streams: Arc<dyn Streams>,
    stream: ByteString,
    partitions: Partitions,
    next: StreamPosition,
}

impl StreamFollower {
    /// Creates a follower that starts at position `from`. The stream need not exist yet.
    pub fn new(
        streams: Arc<dyn Streams>,
        stream: impl Into<ByteString>,
        from: StreamPosition,
        partitions: Partitions,
    ) -> Self {
        Self { streams, stream: stream.into(), partitions, next: from }
    }

    /// Returns the position from which it resumes. Every entry below it has been returned or is of another partition.
    pub fn position(&self) -> StreamPosition {
        self.next
    }

    /// Moves the position back to `to`, so that the entries from there on are returned again. It never moves forward.
    pub fn go_back_to(&mut self, to: StreamPosition) {
        self.next = self.next.min(to);
    }

    /// Waits for the next events and returns at least one. Cancelling loses nothing.
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

    /// Waits until the position advances, and returns the events of the wanted partitions on the way, possibly none. Cancelling loses
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
            // If the position is past the head, wait for that position.
            let next = page.next.max(self.next);
            if !page.events.is_empty() || next > self.next {
                self.next = next;
                return Ok(page.events);
            }
            self.streams.wait_past(&self.stream, next).await?;
        }
    }
}
