//! Blocking writes, for code that runs while a store is being opened and cannot await.

use std::sync::mpsc;

use annals_core::StoreError;

use super::{Change, Engine, writer};

impl Engine {
    /// Does the same as [`write`](Self::write), for a caller that may block.
    ///
    /// # Errors
    /// As for [`write`](Self::write).
    pub(crate) fn write_blocking<T, E>(
        &self,
        work: impl FnOnce(&mut Change) -> Result<T, E> + Send + 'static,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
    {
        let (answer, wait) = mpsc::sync_channel(1);
        let job = Box::new(move |change: &mut Change| -> writer::Answer {
            let outcome = change.run(work);
            Box::new(move |synced: Result<(), StoreError>| {
                let _ = answer.send(synced.map_err(E::from).and(outcome));
            })
        });
        self.start()?;
        self.shared.queue.push(job)?;
        wait.recv().unwrap_or_else(|_| Err(StoreError::Failed("its writer thread has ended".to_owned()).into()))
    }
}
