//! What a processor does with an event.

use std::sync::Arc;

use annals_core::{CommitError, ReadError, RecordedEvent, StoreError};
use async_trait::async_trait;

/// Does something with each event of a log.
///
/// # At least once
/// An event is handed over again when its handling failed, and when the process ended after handling it and before its position
/// was kept. So handling one twice must do no harm: name what it causes after its sequence number or id, for example as the request
/// id of a commit.
#[async_trait]
pub trait Handler: Send + Sync + 'static {
    /// Handles one event. The next one is handed over after this returns `Ok`, never before.
    ///
    /// # Errors
    /// [`HandlerError::Retry`] to get the same event again later, [`HandlerError::Stop`] to end the processor before it.
    async fn handle(&self, event: &RecordedEvent) -> Result<(), HandlerError>;
}

/// A handler that its owner keeps a hold of.
#[async_trait]
impl<H: Handler + ?Sized> Handler for Arc<H> {
    async fn handle(&self, event: &RecordedEvent) -> Result<(), HandlerError> {
        (**self).handle(event).await
    }
}

/// Why an event could not be handled. Neither kind skips it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HandlerError {
    /// Hand the same event over again, after the delay that the retry policy says.
    Retry(String),
    /// End the processor. Its position stays before this event, so whoever starts it again from there gets it again.
    Stop(String),
}

impl std::fmt::Display for HandlerError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Retry(message) | Self::Stop(message) => f.write_str(message),
        }
    }
}

impl std::error::Error for HandlerError {}

/// A closing store ends the processor; anything else may pass.
impl From<StoreError> for HandlerError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Closed => Self::Stop(error.to_string()),
            _ => Self::Retry(error.to_string()),
        }
    }
}

impl From<CommitError> for HandlerError {
    fn from(error: CommitError) -> Self {
        match error {
            CommitError::Store(error) => error.into(),
            _ => Self::Retry(error.to_string()),
        }
    }
}

impl From<ReadError> for HandlerError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Store(error) => error.into(),
            _ => Self::Retry(error.to_string()),
        }
    }
}
