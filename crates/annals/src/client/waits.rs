//! Waits for the head of a log to move. Event streams stay open between waits, so that a follower learns of an event at once instead of
//! polling.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use annals_core::SequenceNumber;

use super::http::{EventStream, Happening};

/// Maximum number of idle streams that are kept.
const KEPT_MAX: usize = 8;
/// An idle stream is not reused if it lags further behind the wanted event than this many events.
const BEHIND_MAX: SequenceNumber = 1_000;

/// Idle streams.
#[derive(Clone, Default)]
pub(super) struct Waits(Arc<Mutex<Vec<Wait>>>);

/// A stream that has reported every event from where it was opened up to, but not including, `next`.
pub(super) struct Wait {
    pub stream: EventStream,
    pub next: SequenceNumber,
}

impl Waits {
    fn lock(&self) -> MutexGuard<'_, Vec<Wait>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the idle stream that is closest behind `head`, if one is close enough.
    pub fn take(&self, head: SequenceNumber) -> Option<Wait> {
        let mut kept = self.lock();
        let near = |wait: &Wait| wait.next <= head && head - wait.next <= BEHIND_MAX;
        let places = kept.iter().enumerate().filter(|(_, wait)| near(wait));
        let nearest = places.max_by_key(|(_, wait)| wait.next).map(|(place, _)| place)?;
        Some(kept.swap_remove(nearest))
    }

    /// Keeps a stream for the next wait. The oldest one makes room.
    pub fn keep(&self, wait: Wait) {
        let mut kept = self.lock();
        if kept.len() == KEPT_MAX {
            kept.remove(0);
        }
        kept.push(wait);
    }
}

impl Wait {
    /// Skips the events that were already received, because the head is past them.
    fn read_on(&mut self) {
        while let Some(Happening::Event(number)) = self.stream.received() {
            self.next = number + 1;
        }
    }

    /// Waits for an event at or after `head` and returns the number that follows it. Returns any other item if the stream ends instead.
    pub async fn past(&mut self, head: SequenceNumber) -> Result<Result<SequenceNumber, Option<Happening>>, String> {
        loop {
            match self.stream.next().await? {
                Some(Happening::Head(number)) if number > head => return Ok(Ok(number)),
                Some(Happening::Head(_)) => {}
                Some(Happening::Event(number)) => {
                    self.next = number + 1;
                    if number >= head {
                        self.read_on();
                        return Ok(Ok(self.next));
                    }
                }
                other => return Ok(Err(other)),
            }
        }
    }
}
