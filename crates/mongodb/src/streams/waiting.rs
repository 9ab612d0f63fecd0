//! Waiting for entries: who waits is woken by an append of this process to its own stream, and looks for itself now and then, because
//! other processes append too.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use annals_core::{ByteString, ReadError, StoreError, StreamPosition};
use tokio::sync::watch;

use super::collections::Collections;
use super::meta;

/// How often who waits looks for itself.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Those who wait for entries of a tenant's streams.
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
    /// The highest head that was acknowledged while somebody waited.
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

    /// Wakes who waits for this stream; its head is acknowledged, and readers see it.
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

    /// Waits until the head of a stream is greater than `head`.
    pub(super) async fn past(
        &self,
        collections: &Collections,
        stream: &str,
        head: StreamPosition,
    ) -> Result<StreamPosition, ReadError> {
        // In line first and then looking: what is acknowledged after the look is told.
        let mut place = self.line_up(stream);
        loop {
            let known = meta::shown(collections, stream).await?.map_or(0, |meta| meta.head);
            if known > head {
                return Ok(known);
            }
            let told = place.states.wait_for(|state| state.closed || state.head > head);
            match tokio::time::timeout(LOOK_EVERY, told).await {
                Ok(Ok(state)) if state.head > head => return Ok(state.head),
                Ok(_) => return Err(StoreError::Closed.into()),
                Err(_) => {}
            }
        }
    }

    fn line_up<'w>(&'w self, stream: &'w str) -> Place<'w> {
        let mut lines = self.lines();
        let state = State { head: 0, closed: lines.closed };
        let line = lines.of.entry(stream.into()).or_insert_with(|| watch::Sender::new(state));
        Place { waiting: self, stream, states: line.subscribe() }
    }
}
