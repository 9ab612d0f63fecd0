//! What the sequencer tells the callers of this process: how far the log has come, and which number a commit got.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use annals_core::SequenceNumber;
use tokio::sync::{oneshot, watch};

/// How far a log has come, and who waits for a number of it.
pub(crate) struct Numbers {
    /// The highest head that this process has seen; none once the store is closed.
    head: watch::Sender<Option<SequenceNumber>>,
    waiting: Mutex<HashMap<Place, Vec<oneshot::Sender<SequenceNumber>>>>,
}

/// A number that is asked for, until this is dropped.
pub(crate) struct Expected<'a> {
    numbers: &'a Numbers,
    pub(crate) place: Place,
    pub(crate) number: oneshot::Receiver<SequenceNumber>,
}

impl Drop for Expected<'_> {
    /// Nobody may ever give the number: the commit may have been refused.
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
    /// Announces that the log has come so far. An older announcement that comes late changes nothing.
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

    /// The highest head seen; 0 once closed.
    pub(crate) fn seen(&self) -> SequenceNumber {
        self.head.borrow().unwrap_or(0)
    }

    /// Wakes everybody with the news that nothing more comes.
    pub(crate) fn close(&self) {
        self.head.send_replace(None);
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Asks for the number of a commit, which need not be stored yet.
    pub(crate) fn expect(&self, place: Place) -> Expected<'_> {
        let (sender, number) = oneshot::channel();
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.entry(place.clone()).or_default().push(sender);
        Expected { numbers: self, place, number }
    }

    /// Tells everybody who waits for it.
    pub(crate) fn give(&self, place: &Place, first: SequenceNumber) {
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner).remove(place);
        for sender in waiting.into_iter().flatten() {
            // Whoever asked may have gone away.
            let _ = sender.send(first);
        }
    }

    /// The same for many commits at once, by collection and `_id`.
    pub(crate) fn give_all<'a>(&self, numbered: impl Iterator<Item = (&'a str, &'a str, SequenceNumber)>) {
        let mut given = Vec::new();
        {
            let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            for (collection, commit, first) in numbered {
                // Mostly nobody waits for any.
                if waiting.is_empty() {
                    break;
                }
                given.extend(waiting.remove(&Place::new(collection, commit)).map(|senders| (senders, first)));
            }
        }
        for (sender, first) in given.into_iter().flat_map(|(all, first)| all.into_iter().map(move |one| (one, first))) {
            // Whoever asked may have gone away.
            let _ = sender.send(first);
        }
    }

    /// The commits that somebody waits for.
    pub(crate) fn waiting(&self) -> Vec<Place> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).keys().cloned().collect()
    }
}
