//! The model as a port, so that the suite is tested before any backend is.

use std::sync::{Arc, Mutex};

use annals_core::{
    Appended, EventLog, LogQuery, ReadError, SequenceNumber, StoreError, StreamError, StreamEvent, StreamEvents,
    StreamInfo, StreamPage, StreamPosition, StreamQuery, Streams, StreamsQuery, Verdicts, limits, valid_name,
};
use async_trait::async_trait;
use tokio::sync::watch;

use super::StreamsModel;

pub(crate) struct ReferenceStreams {
    pub model: Arc<Mutex<StreamsModel>>,
    pub log: Arc<dyn EventLog>,
    /// False once closed.
    pub open: watch::Sender<bool>,
}

#[async_trait]
impl Streams for ReferenceStreams {
    async fn append(&self, verdicts: Verdicts) -> Result<Appended, StreamError> {
        verdicts.validate()?;
        let head = self.log.head().await.expect("the model's log has a head");
        let mut model = self.model.lock().expect("unpoisoned");
        if !*self.open.borrow() {
            return Err(StoreError::Closed.into());
        }
        let outcome = model.append(&verdicts, head);
        self.open.send_modify(|_| ());
        outcome
    }

    async fn read(&self, query: StreamQuery) -> Result<StreamPage, ReadError> {
        query.validate()?;
        Ok(self.model.lock().expect("unpoisoned").read(&query))
    }

    async fn read_events(&self, query: StreamQuery) -> Result<StreamEvents, ReadError> {
        let page = self.read(query).await?;
        let mut found = StreamEvents { events: Vec::new(), next: page.next, head: page.head };
        let mut bytes = 0;
        for entry in page.entries {
            if bytes >= limits::PAGE_BYTES_MAX {
                found.next = entry.position;
                break;
            }
            let one = LogQuery { from: Some(entry.sequence_number), limit: 1, ..LogQuery::default() };
            let event = self.log.read(one).await?.events.remove(0);
            bytes += event.page_bytes();
            found.events.push(StreamEvent { position: entry.position, partition: entry.partition, event });
        }
        Ok(found)
    }

    async fn position_of(&self, stream: &str, sequence_number: SequenceNumber) -> Result<StreamPosition, ReadError> {
        valid_name("stream", stream)?;
        Ok(self.model.lock().expect("unpoisoned").position_of(stream, sequence_number))
    }

    async fn stream(&self, name: &str) -> Result<StreamInfo, ReadError> {
        valid_name("stream", name)?;
        Ok(self.model.lock().expect("unpoisoned").stream(name))
    }

    async fn list(&self, query: StreamsQuery) -> Result<Vec<StreamInfo>, ReadError> {
        query.validate()?;
        Ok(self.model.lock().expect("unpoisoned").list(&query))
    }

    async fn wait_past(&self, stream: &str, head: StreamPosition) -> Result<StreamPosition, ReadError> {
        valid_name("stream", stream)?;
        let mut changes = self.open.subscribe();
        loop {
            let now = self.stream(stream).await?.head;
            if now > head {
                return Ok(now);
            }
            if !*changes.borrow_and_update() {
                return Err(StoreError::Closed.into());
            }
            // Only a change after the look above ends the wait.
            if self.stream(stream).await?.head <= head {
                changes.changed().await.map_err(|_| StoreError::Closed)?;
            }
        }
    }
}

mod passes {
    crate::streams!(crate::reference::ReferenceSubject::new());
}
