//! What this store does not have: refused by name, so that nobody takes nothing for an answer.

use annals_core::{
    Appended, ReadError, SequenceNumber, StoreError, StreamError, StreamEvents, StreamInfo, StreamPage, StreamPosition,
    StreamQuery, Streams, StreamsQuery, Verdicts,
};
use async_trait::async_trait;

/// Streams that are not there.
pub(crate) struct Absent;

fn streams() -> StoreError {
    StoreError::NotSupported("keeping streams (on MongoDB)".to_owned())
}

#[async_trait]
impl Streams for Absent {
    async fn append(&self, _: Verdicts) -> Result<Appended, StreamError> {
        Err(streams().into())
    }

    async fn read(&self, _: StreamQuery) -> Result<StreamPage, ReadError> {
        Err(streams().into())
    }

    async fn read_events(&self, _: StreamQuery) -> Result<StreamEvents, ReadError> {
        Err(streams().into())
    }

    async fn position_of(&self, _: &str, _: SequenceNumber) -> Result<StreamPosition, ReadError> {
        Err(streams().into())
    }

    async fn stream(&self, _: &str) -> Result<StreamInfo, ReadError> {
        Err(streams().into())
    }

    async fn list(&self, _: StreamsQuery) -> Result<Vec<StreamInfo>, ReadError> {
        Err(streams().into())
    }

    async fn wait_past(&self, _: &str, _: StreamPosition) -> Result<StreamPosition, ReadError> {
        Err(streams().into())
    }
}
