//! Admits one commit of an aggregate at a time in this process: each commit's version follows one that was acknowledged, so a refused
//! commit cannot leave a gap before its successor.
//!
//! Every aggregate has its own lock. A commit may wait for another transaction as long as callers wait for a response, and must not delay
//! another aggregate that happens to share a bucket.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use annals_core::Aggregate;
use tokio::sync::OwnedMutexGuard;

/// The aggregates that have a commit in flight.
#[derive(Default)]
pub(crate) struct Turns {
    taken: Mutex<HashMap<Aggregate, Arc<tokio::sync::Mutex<()>>>>,
}

/// The turn of an aggregate, or a place in the queue for it. It ends on drop.
pub(crate) struct Turn<'a> {
    turns: &'a Turns,
    aggregate: &'a Aggregate,
    /// `None` while queued.
    guard: Option<OwnedMutexGuard<()>>,
}

impl Turns {
    /// Waits for the aggregate's turn, in order of arrival.
    pub(crate) async fn wait<'a>(&'a self, aggregate: &'a Aggregate) -> Turn<'a> {
        let lock = {
            let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
            match taken.get(aggregate) {
                Some(lock) => lock.clone(),
                None => taken.entry(aggregate.clone()).or_default().clone(),
            }
        };
        let mut turn = Turn { turns: self, aggregate, guard: None };
        turn.guard = Some(lock.lock_owned().await);
        turn
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut taken = self.turns.taken.lock().unwrap_or_else(PoisonError::into_inner);
        self.guard = None;
        // Each waiter has a clone of the lock; the last one removes it.
        if taken.get(self.aggregate).is_some_and(|lock| Arc::strong_count(lock) == 1) {
            taken.remove(self.aggregate);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;

    #[tokio::test]
    async fn aggregates_do_not_wait_for_each_other_and_nothing_is_left_of_a_turn() {
        let (turns, a, b) = (Turns::default(), Aggregate::new("order", "a"), Aggregate::new("order", "b"));
        let context = &mut Context::from_waker(Waker::noop());
        let first = turns.wait(&a).await;
        {
            let mut second = pin!(turns.wait(&a));
            assert!(second.as_mut().poll(context).is_pending(), "the same aggregate waits");
            let _other = turns.wait(&b).await;
            // One that waits is given up.
        }
        let mut third = pin!(turns.wait(&a));
        assert!(third.as_mut().poll(context).is_pending());
        drop(first);
        drop(third.await);
        assert!(turns.taken.lock().expect("no panic").is_empty());
    }
}
