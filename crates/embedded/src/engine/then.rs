//! Writing where somebody else is to be told too.

use annals_core::StoreError;
use tokio::sync::oneshot;

use super::{Change, Engine, writer};

impl Engine {
    /// The same as [`write`](Self::write); `then` is given the outcome on the writer's thread, when it is durable and readers see it and
    /// before the caller has it, also if the caller has gone away.
    ///
    /// # Errors
    /// As there.
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
        let unanswered = || self.refusal().unwrap_or_else(|| StoreError::Failed("its writer ended".to_owned()));
        wait.await.unwrap_or_else(|_| Err(unanswered().into()))
    }
}
