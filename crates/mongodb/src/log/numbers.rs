//! What the sequencer announces to callers in this process: the head of the log, and the sequence numbers of commits.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use annals_core::SequenceNumber;
use tokio::sync::{oneshot, watch};

/// The head of a log, and the callers that wait for a number.
pub(crate) struct Numbers {
    /// The highest head that this process has seen; `None` once the store is closed.
    head: watch::Sender<Option<SequenceNumber>>,
    waiting: Mutex<HashMap<Place, Vec<oneshot::Sender<SequenceNumber>>>>,
}

/// A subscription to the number of a commit, until it is dropped.
pub(crate) struct Expected<'a> {
    numbers: &'a Numbers,
    pub(crate) place: Place,
    pub(crate) number: oneshot::Receiver<SequenceNumber>,
}

impl Drop for Expected<'_> {
    /// Removes the waiter, since the number may never be assigned: the commit may have been refused.
    fn drop(&mut self) {
        self.number.close();
        let mut waiting = self.numbers.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(senders) = waiting.get_mut(&self.place) {
            senders.retain(|sender| !sender.is_closed());
            if senders.is_empty() {
                waiting.remove(&self.place);
            }
        }
    }
}

/// Where a commit is stored.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    pub(crate) collection: String,
    /// Its `_id`.
    pub(crate) commit: String,
}

impl Place {
    pub(crate) fn new(collection: &str, commit: &str) -> Self {
        Self { collection: collection.to_owned(), commit: commit.to_owned() }
    }
}

impl Default for Numbers {
    fn default() -> Self {
        Self { head: watch::Sender::new(Some(0)), waiting: Mutex::default() }
    }
}

impl Numbers {
    /// Announces a head. A late announcement of an earlier head has no effect.
    pub(crate) fn publish(&self, head: SequenceNumber) {
        self.head.send_if_modified(|known| match known {
            Some(known) if *known < head => {
                *known = head;
                true
            }
            _ => false,
        });
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<Option<SequenceNumber>> {
        self.head.subscribe()
    }

    /// Returns the highest head seen; 0 once closed.
    pub(crate) fn seen(&self) -> SequenceNumber {
        self.head.borrow().unwrap_or(0)
    }

    /// Closes the channel and wakes all waiters.
    pub(crate) fn close(&self) {
        self.head.send_replace(None);
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Subscribes to the number of a commit, which need not be stored yet.
    pub(crate) fn expect(&self, place: Place) -> Expected<'_> {
        let (sender, number) = oneshot::channel();
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.entry(place.clone()).or_default().push(sender);
        Expected { numbers: self, place, number }
    }

    /// Announces the number of a commit to its waiters.
    pub(crate) fn give(&self, place: &Place, first: SequenceNumber) {
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner).remove(place);
        for sender in waiting.into_iter().flatten() {
            // The waiter may be gone.
            let _ = sender.send(first);
        }
    }

    /// Announces the numbers of many commits at once, by collection and `_id`.
    pub(crate) fn give_all<'a>(&self, numbered: impl Iterator<Item = (&'a str, &'a str, SequenceNumber)>) {
        let mut given = Vec::new();
        {
            let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            for (collection, commit, first) in numbered {
                // Usually there are no waiters.
                if waiting.is_empty() {
                    break;
                }
                given.extend(waiting.remove(&Place::new(collection, commit)).map(|senders| (senders, first)));
            }
        }
        for (sender, first) in given.into_iter().flat_map(|(all, first)| all.into_iter().map(move |one| (one, first))) {
            // The waiter may be gone.
            let _ = sender.send(first);
        }
    }

    /// Returns the commits that callers wait for.
    pub(crate) fn waiting(&self) -> Vec<Place> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).keys().cloned().collect()
    }
}
