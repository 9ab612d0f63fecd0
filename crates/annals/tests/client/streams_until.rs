//! The same as [`Until`](crate::until::Until) for streams: once its server was stopped, what cannot be reached is closed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use annals::{
    Appended, ReadError, SequenceNumber, StoreError, StreamError, StreamEvents, StreamInfo, StreamPage, StreamPosition,
    StreamQuery, Streams, StreamsClient, StreamsQuery, Verdicts,
};
use async_trait::async_trait;

pub struct StreamsUntil {
    pub client: StreamsClient,
    pub closed: Arc<AtomicBool>,
}

impl StreamsUntil {
    fn judge(&self, error: StoreError) -> StoreError {
        match error {
            StoreError::Unreachable(_) if self.closed.load(Ordering::SeqCst) => StoreError::Closed,
            other => other,
        }
    }

    fn told<T>(&self, result: Result<T, ReadError>) -> Result<T, ReadError> {
        result.map_err(|error| match error {
            ReadError::Store(error) => ReadError::Store(self.judge(error)),
            other => other,
        })
    }
}

#[async_trait]
impl Streams for StreamsUntil {
    async fn append(&self, verdicts: Verdicts) -> Result<Appended, StreamError> {
        self.client.append(verdicts).await.map_err(|error| match error {
            StreamError::Store(error) => StreamError::Store(self.judge(error)),
            other => other,
        })
    }

    async fn read(&self, query: StreamQuery) -> Result<StreamPage, ReadError> {
        self.told(self.client.read(query).await)
    }

    async fn read_events(&self, query: StreamQuery) -> Result<StreamEvents, ReadError> {
        self.told(self.client.read_events(query).await)
    }

    async fn position_of(&self, stream: &str, number: SequenceNumber) -> Result<StreamPosition, ReadError> {
        self.told(self.client.position_of(stream, number).await)
    }

    async fn stream(&self, name: &str) -> Result<StreamInfo, ReadError> {
        self.told(self.client.stream(name).await)
    }

    async fn list(&self, query: StreamsQuery) -> Result<Vec<StreamInfo>, ReadError> {
        self.told(self.client.list(query).await)
    }

    async fn wait_past(&self, stream: &str, head: StreamPosition) -> Result<StreamPosition, ReadError> {
        self.told(self.client.wait_past(stream, head).await)
    }
}
