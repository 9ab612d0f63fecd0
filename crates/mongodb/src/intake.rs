//! Runs writes independently of their callers: each on a task of its own, in one of a bounded number of places, and closing drains them. A
//! caller that goes away must not leave a transaction open, which would block the next one.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use annals_core::StoreError;
use tokio::sync::{Semaphore, TryAcquireError};

use crate::answers::Answers;
use crate::patience::{Patience, given_up};

/// A write, boxed so that a task can run it.
pub(crate) type Work<T, E> = Pin<Box<dyn Future<Output = Result<T, E>> + Send>>;

pub(crate) struct Intake {
    places: Arc<Semaphore>,
    most: usize,
    closed: AtomicBool,
    patience: Patience,
}

impl Intake {
    /// Creates an intake for this many concurrent writes.
    pub(crate) fn new(most: usize) -> Self {
        Self {
            places: Arc::new(Semaphore::new(most)),
            most,
            closed: AtomicBool::new(false),
            patience: Patience::default(),
        }
    }

    /// Runs a write to its end.
    ///
    /// # Errors
    /// Errors of the write; `unreachable` without a primary, `overloaded` without a free place, and [`StoreError::Closed`].
    pub(crate) async fn run<T, E>(&self, answers: &Answers, work: Work<T, E>) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
    {
        if self.closed.load(Ordering::SeqCst) {
            return Err(StoreError::Closed.into());
        }
        answers.expected().await?;
        let place = self.places.clone().try_acquire_owned().map_err(|error| match error {
            TryAcquireError::Closed => StoreError::Closed,
            TryAcquireError::NoPermits => StoreError::Overloaded,
        })?;
        let task = tokio::spawn(async move {
            let _place = place;
            work.await
        });
        let answer = self.patience.during(task).await.ok_or_else(given_up)?;
        answer.unwrap_or_else(|_| Err(StoreError::Unreachable("the task that writes has ended".to_owned()).into()))
    }

    /// Accepts no more writes, and waits until those in flight are answered.
    pub(crate) async fn drain(&self) {
        self.closed.store(true, Ordering::SeqCst);
        let all = u32::try_from(self.most).unwrap_or(u32::MAX);
        if let Ok(places) = self.places.acquire_many(all).await {
            places.forget();
        }
        self.stop();
    }

    /// Accepts no more writes.
    pub(crate) fn stop(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.places.close();
    }

    /// Answers writes in flight without waiting for MongoDB any longer.
    pub(crate) fn give_up(&self) {
        self.stop();
        self.patience.end();
    }
}
