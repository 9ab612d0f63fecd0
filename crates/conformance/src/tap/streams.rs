//! Streams in front of others.

use std::sync::Arc;

use annals_core::{
    Appended, ReadError, SequenceNumber, StreamError, StreamEvents, StreamInfo, StreamPage, StreamPosition,
    StreamQuery, Streams, StreamsQuery, Verdicts,
};
use async_trait::async_trait;

/// Intercepts the calls between a caller and streams.
#[async_trait]
pub trait TapStreams: Send + Sync + 'static {
    /// Forwards verdicts.
    ///
    /// # Errors
    /// Those of the streams, or of the tap.
    async fn append(&self, streams: &dyn Streams, verdicts: Verdicts) -> Result<Appended, StreamError>;
}

/// Streams behind a tap. Calls that the tap does not intercept are forwarded.
pub struct TappedStreams<T> {
    inner: Arc<dyn Streams>,
    tap: Arc<T>,
}

impl<T: TapStreams> TappedStreams<T> {
    /// Puts `tap` in front of `streams`.
    pub fn new(streams: Arc<dyn Streams>, tap: Arc<T>) -> Arc<Self> {
        Arc::new(Self { inner: streams, tap })
    }
}

#[async_trait]
impl<T: TapStreams> Streams for TappedStreams<T> {
    async fn append(&self, verdicts: Verdicts) -> Result<Appended, StreamError> {
        self.tap.append(&*self.inner, verdicts).await
    }

    async fn read(&self, query: StreamQuery) -> Result<StreamPage, ReadError> {
        self.inner.read(query).await
    }

    async fn read_events(&self, query: StreamQuery) -> Result<StreamEvents, ReadError> {
        self.inner.read_events(query).await
    }

    async fn position_of(&self, stream: &str, sequence_number: SequenceNumber) -> Result<StreamPosition, ReadError> {
        self.inner.position_of(stream, sequence_number).await
    }

    async fn stream(&self, name: &str) -> Result<StreamInfo, ReadError> {
        self.inner.stream(name).await
    }

    async fn list(&self, query: StreamsQuery) -> Result<Vec<StreamInfo>, ReadError> {
        self.inner.list(query).await
    }

    async fn wait_past(&self, stream: &str, head: StreamPosition) -> Result<StreamPosition, ReadError> {
        self.inner.wait_past(stream, head).await
    }
}
