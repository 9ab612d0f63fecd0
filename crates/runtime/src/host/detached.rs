//! Work that continues after its caller has gone.

use annals_core::StoreError;

/// Runs work in a task of its own and waits for it. If the caller is dropped meanwhile, for example because its client disconnected, the
/// work still runs to completion, including everything after its first write.
///
/// # Errors
/// Those of the work; [`StoreError::Closed`] if the async runtime ends first.
///
/// # Panics
/// If the work panics.
pub(crate) async fn detached<T, E>(work: impl Future<Output = Result<T, E>> + Send + 'static) -> Result<T, E>
where
    T: Send + 'static,
    E: From<StoreError> + Send + 'static,
{
    match tokio::spawn(work).await {
        Ok(done) => done,
        Err(ended) => match ended.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_) => Err(StoreError::Closed.into()),
        },
    }
}
