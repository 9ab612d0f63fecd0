//! One commit of an aggregate at a time in this process: the next one's version is that of one that was acknowledged, so that a refused
//! one cannot leave a gap behind its successor.

use std::hash::{BuildHasher, RandomState};

use annals_core::Aggregate;
use tokio::sync::{Mutex, MutexGuard};

/// Two aggregates may share a place; then they wait for each other, which costs time and nothing else.
const PLACES: usize = 4096;

pub(crate) struct Turns {
    places: Vec<Mutex<()>>,
    hasher: RandomState,
}

impl Default for Turns {
    fn default() -> Self {
        Self { places: (0..PLACES).map(|_| Mutex::new(())).collect(), hasher: RandomState::new() }
    }
}

impl Turns {
    /// Waits for the aggregate's turn, in the order of asking. It ends when the guard is dropped.
    pub(crate) async fn wait(&self, aggregate: &Aggregate) -> MutexGuard<'_, ()> {
        let place = self.hasher.hash_one(aggregate) as usize % PLACES;
        self.places[place].lock().await
    }
}
