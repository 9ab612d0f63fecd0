//! The streams of a server's tenant, over HTTP, behind the same port as streams in this process.

use annals_core::{
    Appended, ByteString, Partitions, ReadError, SequenceNumber, StoreError, StreamError, StreamEvents, StreamInfo,
    StreamPage, StreamPosition, StreamQuery, Streams, StreamsQuery, Verdicts, valid_name, wire,
};
use async_trait::async_trait;
use serde::Deserialize;

use super::{Client, Path, answers, commits};

/// The largest integer of a JSON body. No log reaches this number, so verdicts beyond it are past every head.
const NUMBER_MAX: u64 = i64::MAX as u64;

/// The streams of one tenant and scope of a server. It keeps the contract of [`Streams`].
#[derive(Clone)]
pub struct StreamsClient(Client);

impl Client {
    /// Returns the streams of the same tenant and scope, over the same connections.
    pub fn streams(&self) -> StreamsClient {
        StreamsClient(self.clone())
    }
}

/// `GET /v1/streams`.
#[derive(Deserialize)]
struct List {
    streams: Vec<StreamInfo>,
}

impl StreamsClient {
    fn page(&self, query: &StreamQuery, below: &[&str]) -> String {
        let segments = [&["streams", &*query.stream], below].concat();
        let path = self.0.path(&segments).number("from", query.from).number("limit", query.limit);
        let path = path.maybe("to", (query.to != StreamPosition::MAX).then_some(query.to));
        let path = match &query.partitions {
            Partitions::All => path,
            Partitions::Without => path.with("without_partition", "true"),
            Partitions::One(partition) => path.with("partition", partition),
        };
        path.done()
    }

    fn state(&self, stream: &str) -> Path {
        self.0.path(&["streams", stream, "state"])
    }
}

/// Returns the body for these verdicts. Verdicts that exceed [`NUMBER_MAX`] are replaced by others that every log refuses in the same way.
fn body(verdicts: &Verdicts) -> wire::VerdictsBody {
    if verdicts.to <= NUMBER_MAX {
        return verdicts.into();
    }
    wire::VerdictsBody { from: verdicts.from.min(NUMBER_MAX - 1), to: NUMBER_MAX, included: Vec::new() }
}

#[async_trait]
impl Streams for StreamsClient {
    async fn append(&self, verdicts: Verdicts) -> Result<Appended, StreamError> {
        verdicts.validate()?;
        let json = serde_json::to_vec(&body(&verdicts))
            .map_err(|error| StoreError::Unreachable(format!("the verdicts cannot be written as JSON: {error}")))?;
        let (path, json) = (self.0.path(&["streams", &verdicts.stream, "verdicts"]).done(), bytes::Bytes::from(json));
        // Verdicts that were appended before the connection broke count as a repeat, so it is safe to retry.
        let answer = match self.0.http.post(&path, json.clone()).await {
            Ok(answer) => answer,
            Err(_) => self.0.http.post(&path, json).await.map_err(StoreError::Unreachable)?,
        };
        answers::appended(&answer, &verdicts)
    }

    async fn read(&self, query: StreamQuery) -> Result<StreamPage, ReadError> {
        query.validate()?;
        self.0.get(self.page(&query, &["entries"])).await
    }

    async fn read_events(&self, query: StreamQuery) -> Result<StreamEvents, ReadError> {
        query.validate()?;
        let answer = self.0.answer(&self.page(&query, &[]), commits::MEDIA_TYPE).await?;
        let mut events = Vec::with_capacity(query.limit);
        let end = answers::read_found_of_stream(&answer, |event| events.push(event))?;
        Ok(StreamEvents { events, next: end.next, head: end.head })
    }

    async fn position_of(&self, stream: &str, sequence_number: SequenceNumber) -> Result<StreamPosition, ReadError> {
        valid_name("stream", stream)?;
        let path = self.0.path(&["streams", stream, "positions", &sequence_number.to_string()]).done();
        Ok(self.0.get::<wire::PositionAnswer>(path).await?.position)
    }

    async fn stream(&self, name: &str) -> Result<StreamInfo, ReadError> {
        valid_name("stream", name)?;
        self.0.get(self.state(name).done()).await
    }

    async fn list(&self, query: StreamsQuery) -> Result<Vec<StreamInfo>, ReadError> {
        query.validate()?;
        let path = self.0.path(&["streams"]).maybe("after", query.after.as_ref().map(ByteString::to_string));
        Ok(self.0.get::<List>(path.number("limit", query.limit).done()).await?.streams)
    }

    async fn wait_past(&self, stream: &str, head: StreamPosition) -> Result<StreamPosition, ReadError> {
        valid_name("stream", stream)?;
        loop {
            let path = self.state(stream).number("past", head).done();
            let now = self.0.get::<StreamInfo>(path).await?.head;
            if now > head {
                return Ok(now);
            }
        }
    }
}
