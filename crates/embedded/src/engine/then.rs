//! Writes whose outcome a third party is notified of as well.

use annals_core::StoreError;
use tokio::sync::oneshot;

use super::{Change, Engine, writer};

impl Engine {
    /// Does the same as [`write`](Self::write), and passes the outcome to `then` on the writer's thread. `then` runs once the write is
    /// durable and visible to readers, before the caller gets its answer, and even if the caller has gone away.
    ///
    /// # Errors
    /// As for [`write`](Self::write).
    pub(crate) async fn write_then<T, E>(
        &self,
        work: impl FnOnce(&mut Change) -> Result<T, E> + Send + 'static,
        then: impl FnOnce(&T) + Send + 'static,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
    {
        let _room = self.shared.room.acquire().await.map_err(|_| StoreError::Closed)?;
        let (answer, wait) = oneshot::channel();
        let job = Box::new(move |change: &mut Change| -> writer::Answer {
            let outcome = change.run(work);
            Box::new(move |synced: Result<(), StoreError>| {
                let outcome = synced.map_err(E::from).and(outcome).inspect(then);
                let _ = answer.send(outcome);
            })
        });
        self.start()?;
        self.shared.queue.push(job)?;
        let unanswered =
            || self.refusal().unwrap_or_else(|| StoreError::Failed("its writer thread has ended".to_owned()));
        wait.await.unwrap_or_else(|_| Err(unanswered().into()))
    }
}
