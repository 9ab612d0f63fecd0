//! Work that goes on when its caller goes away.

use annals_core::StoreError;

/// Carries work out in a task of its own, and waits for it. A caller that goes away meanwhile, as a client does that disconnects, does not
/// end it: what follows its first write happens too.
///
/// # Errors
/// Those of the work; [`StoreError::Closed`] if the async runtime ends first.
///
/// # Panics
/// When the work does.
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
