//! Waiting for entries: who waits is woken by an append to its own stream, never by what else the engine writes.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use annals_core::{ByteString, StoreError, StreamPosition};
use tokio::sync::watch;

/// Those who wait for entries of a scope's streams.
#[derive(Default)]
pub(super) struct Waiting(Mutex<Lines>);

/// A line of those who wait for each stream that somebody waits for.
#[derive(Default)]
struct Lines {
    of: HashMap<ByteString, watch::Sender<State>>,
    closed: bool,
}

/// What those in a line are told.
#[derive(Debug, Clone, Copy)]
struct State {
    /// The highest head that was made durable while somebody waited.
    head: StreamPosition,
    closed: bool,
}

/// Somebody's place in line. The stream is forgotten when the last of them goes.
struct Place<'w> {
    waiting: &'w Waiting,
    stream: &'w str,
    states: watch::Receiver<State>,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut lines = self.waiting.lines();
        // This one is still counted.
        if lines.of.get(self.stream).is_some_and(|line| line.receiver_count() <= 1) {
            lines.of.remove(self.stream);
        }
    }
}

impl Waiting {
    fn lines(&self) -> MutexGuard<'_, Lines> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes who waits for this stream; its head is durable and readers see it.
    pub(super) fn moved(&self, stream: &str, head: StreamPosition) {
        if let Some(line) = self.lines().of.get(stream) {
            line.send_modify(|state| state.head = head.max(state.head));
        }
    }

    /// Wakes everybody.
    pub(super) fn close(&self) {
        let mut lines = self.lines();
        lines.closed = true;
        lines.of.values().for_each(|line| line.send_modify(|state| state.closed = true));
    }

    /// Waits until the head of a stream, which is read by `now`, is greater than `head`.
    pub(super) async fn past<E: From<StoreError>>(
        &self,
        stream: &str,
        head: StreamPosition,
        now: impl Fn() -> Result<StreamPosition, E>,
    ) -> Result<StreamPosition, E> {
        // In line first and then looking: what becomes durable after the look is told.
        let mut place = self.line_up(stream);
        let known = now()?;
        if known > head {
            return Ok(known);
        }
        match place.states.wait_for(|state| state.closed || state.head > head).await {
            Ok(state) if state.head > head => Ok(state.head),
            _ => Err(StoreError::Closed.into()),
        }
    }

    fn line_up<'w>(&'w self, stream: &'w str) -> Place<'w> {
        let mut lines = self.lines();
        let state = State { head: 0, closed: lines.closed };
        let line = lines.of.entry(stream.into()).or_insert_with(|| watch::Sender::new(state));
        Place { waiting: self, stream, states: line.subscribe() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_stream_is_forgotten_when_nobody_waits_for_it() {
        let waiting = Waiting::default();
        let now = || Ok::<_, StoreError>(3);
        assert_eq!(waiting.past("s", 2, now).await, Ok(3));
        assert!(waiting.lines().of.is_empty(), "nobody waits");
        let (first, second) = (waiting.past("s", 3, now), waiting.past("s", 4, now));
        let moving = async {
            tokio::task::yield_now().await;
            assert_eq!(waiting.lines().of.len(), 1);
            waiting.moved("other", 9);
            waiting.moved("s", 4);
            waiting.moved("s", 5);
        };
        assert_eq!(tokio::join!(first, second, moving), (Ok(5), Ok(5), ()));
        assert!(waiting.lines().of.is_empty());
        let given_up = tokio::time::timeout(std::time::Duration::ZERO, waiting.past("s", 3, now)).await;
        assert!(given_up.is_err() && waiting.lines().of.is_empty());
        waiting.close();
        assert_eq!(waiting.past("s", 3, now).await, Err(StoreError::Closed));
    }
}
