//! Waiting for the head of a log: streams of events that stay open from one wait to the next, so that a follower hears of an event
//! when it happens and does not ask again each time.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use annals_core::SequenceNumber;

use super::http::{EventStream, Happening};

/// Most streams that are kept while nobody waits.
const KEPT_MAX: usize = 8;
/// A kept stream with more events than this before the wanted one is not worth reading on.
const BEHIND_MAX: SequenceNumber = 1_000;

/// Streams that nobody reads now.
#[derive(Clone, Default)]
pub(super) struct Waits(Arc<Mutex<Vec<Wait>>>);

/// A stream that has told of every event from where it was opened up to `next`.
pub(super) struct Wait {
    pub stream: EventStream,
    pub next: SequenceNumber,
}

impl Waits {
    fn lock(&self) -> MutexGuard<'_, Vec<Wait>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The kept stream that is nearest to `head`, if one is near.
    pub fn take(&self, head: SequenceNumber) -> Option<Wait> {
        let mut kept = self.lock();
        let near = |wait: &Wait| wait.next <= head && head - wait.next <= BEHIND_MAX;
        let places = kept.iter().enumerate().filter(|(_, wait)| near(wait));
        let nearest = places.max_by_key(|(_, wait)| wait.next).map(|(place, _)| place)?;
        Some(kept.swap_remove(nearest))
    }

    /// Keeps a stream for the next wait; the oldest makes room.
    pub fn keep(&self, wait: Wait) {
        let mut kept = self.lock();
        if kept.len() == KEPT_MAX {
            kept.remove(0);
        }
        kept.push(wait);
    }
}

impl Wait {
    /// Takes in the events that are known already, for the head is behind them.
    fn read_on(&mut self) {
        while let Some(Happening::Event(number)) = self.stream.received() {
            self.next = number + 1;
        }
    }

    /// Reads on until an event from `head` on has happened: the number behind it. Or what else the stream tells, which is its end.
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
