//! What this store does not have: refused by name, so that nobody takes nothing for an answer.

use annals_core::bson::Bson;
use annals_core::{
    Appended, ChangeNumber, ChangesError, Collection, Condition, ReadError, Record, RecordChange, RecordError,
    RecordPage, RecordQuery, RecordedChange, Records, SequenceNumber, StoreError, StreamError, StreamEvents,
    StreamInfo, StreamPage, StreamPosition, StreamQuery, Streams, StreamsQuery, Verdicts,
};
use async_trait::async_trait;

/// Records and streams that are not there.
pub(crate) struct Absent;

fn records() -> StoreError {
    StoreError::NotSupported("keeping records (on MongoDB)".to_owned())
}

fn streams() -> StoreError {
    StoreError::NotSupported("keeping streams (on MongoDB)".to_owned())
}

#[async_trait]
impl Records for Absent {
    async fn declare(&self, _: Collection) -> Result<(), RecordError> {
        Err(records().into())
    }

    async fn collections(&self) -> Result<Vec<Collection>, RecordError> {
        Err(records().into())
    }

    async fn write(&self, _: Vec<RecordChange>) -> Result<Vec<ChangeNumber>, RecordError> {
        Err(records().into())
    }

    async fn get(&self, _: &str, _: &Bson) -> Result<Option<Record>, RecordError> {
        Err(records().into())
    }

    async fn find(&self, _: RecordQuery) -> Result<RecordPage, RecordError> {
        Err(records().into())
    }

    async fn count(&self, _: &str, _: &Condition) -> Result<u64, RecordError> {
        Err(records().into())
    }

    async fn changes(&self, _: ChangeNumber, _: usize) -> Result<Vec<RecordedChange>, ChangesError> {
        Err(records().into())
    }

    async fn last_change(&self) -> Result<ChangeNumber, ChangesError> {
        Err(records().into())
    }

    async fn wait_past_change(&self, _: ChangeNumber) -> Result<ChangeNumber, ChangesError> {
        Err(records().into())
    }
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
