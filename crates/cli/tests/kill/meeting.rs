//! Where clients and the one who kills meet: clients learn where the server is, and say when they have learnt that it is gone.

use std::sync::Arc;

use annals::{CommitError, EventLog, ReadError, StoreError};
use annals_conformance::history::History;
use tokio::sync::watch;

/// Where the server is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Place {
    /// Counts the servers; none yet is 0.
    generation: u64,
    pub url: String,
    /// Whether it is the last one, which is not killed any more.
    pub last: bool,
}

/// The side of the one who kills.
pub struct Meeting {
    place: watch::Sender<Place>,
    waiting: watch::Sender<usize>,
    answers: watch::Sender<u64>,
}

impl Default for Meeting {
    fn default() -> Self {
        Self { place: watch::Sender::default(), waiting: watch::Sender::new(0), answers: watch::Sender::new(0) }
    }
}

impl Meeting {
    pub fn guest(&self, name: String, history: Arc<History>) -> Guest {
        let place = self.place.subscribe();
        Guest { name, history, place, known: 0, waiting: self.waiting.clone(), answers: self.answers.clone() }
    }

    /// Lets the clients go to a server.
    pub fn open(&self, url: &str) {
        self.announce(url, false);
    }

    /// Lets the clients go to the last server, to bring to an end what they have begun.
    pub fn finish(&self, url: &str) {
        self.announce(url, true);
    }

    /// Every client waits when this is called.
    fn announce(&self, url: &str, last: bool) {
        self.waiting.send_replace(0);
        self.place.send_modify(|place| {
            *place = Place { generation: place.generation + 1, url: url.to_owned(), last };
        });
    }

    /// Waits until clients were answered this many times more.
    pub async fn answers(&self, count: u64) {
        let mut answers = self.answers.subscribe();
        let enough = *answers.borrow() + count;
        answers.wait_for(|answered| *answered >= enough).await.expect("the sender lives");
    }

    /// Waits until every client waits for the next server, so nothing of theirs is under way.
    pub async fn all_know(&self, clients: usize) {
        self.waiting.subscribe().wait_for(|waiting| *waiting == clients).await.expect("the sender lives");
    }
}

/// The side of a client.
pub struct Guest {
    name: String,
    history: Arc<History>,
    place: watch::Receiver<Place>,
    known: u64,
    waiting: watch::Sender<usize>,
    answers: watch::Sender<u64>,
}

impl Guest {
    /// Waits for the next server.
    pub async fn next(&mut self) -> Place {
        self.waiting.send_modify(|waiting| *waiting += 1);
        let known = self.known;
        let place = self.place.wait_for(|place| place.generation > known).await.expect("the sender lives").clone();
        self.known = place.generation;
        place
    }

    /// The log at a server, with everything recorded that it tells.
    pub fn log(&self, place: &Place) -> Arc<dyn EventLog> {
        self.history.watch(&self.name, crate::client(&place.url))
    }

    /// Counts an answer.
    pub fn answered(&self) {
        self.answers.send_modify(|answers| *answers += 1);
    }
}

/// Whether a commit's error only says that the server is gone.
pub fn is_gone(error: &CommitError) -> bool {
    matches!(error, CommitError::Store(StoreError::Unreachable(_)))
}

/// The same of a read.
pub fn is_gone_reading(error: &ReadError) -> bool {
    matches!(error, ReadError::Store(StoreError::Unreachable(_)))
}
