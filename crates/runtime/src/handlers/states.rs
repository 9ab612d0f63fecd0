//! The states of handlers and filters in the layout of the Dolittle Runtime.

use std::sync::Arc;

use annals_core::bson::Document;
use annals_core::filters::{FilterFailureRecord, FilterProgressRecord, FilterRecord};
use annals_core::handlers::{
    DefinitionRecord, FailingRecord, HandlerDefinition, HandlerError, HandlerSource, ProcessorRecord, StateDocument,
    StateOf, unpartitioned_failure,
};
use annals_core::processing::Failing;
use annals_core::{DEFAULT_SCOPE, Invalid, SequenceNumber, StreamQuery, Streams, Timestamp};

use super::TenantHandlers;
use crate::health::all;

impl TenantHandlers {
    pub(super) async fn state_documents(&self) -> Result<Vec<Document>, HandlerError> {
        self.open()?;
        let mut documents = Vec::new();
        let processors: Vec<ProcessorRecord> = all(&self.records).await?;
        let failing: Vec<FailingRecord> = all(&self.records).await?;
        for record in all::<DefinitionRecord>(&self.records).await? {
            let definition = record.read()?;
            if *definition.scope != *DEFAULT_SCOPE {
                continue;
            }
            let task = format!("handler/{}", record.name);
            let stored = processors.iter().find(|stored| stored.name == task);
            let of_it = failing.iter().filter(|failing| failing.id.processor == task).cloned();
            let of_it: Vec<Failing> = of_it.map(FailingRecord::read).collect();
            documents.push(self.handler_state(&definition, record.start, stored, of_it).await?);
        }
        documents.extend(self.filter_states().await?);
        Ok(documents)
    }

    async fn handler_state(
        &self,
        definition: &HandlerDefinition,
        start: i64,
        stored: Option<&ProcessorRecord>,
        failing: Vec<Failing>,
    ) -> Result<Document, HandlerError> {
        let stream = match &definition.source {
            HandlerSource::Log { .. } => None,
            HandlerSource::Stream(name) => Some(&**name),
        };
        let position = stored.map_or(start, |stored| stored.position).cast_unsigned();
        let mut of_partitions = Vec::with_capacity(failing.len());
        for one in failing {
            let number = self.number_at(stream, one.position).await?;
            of_partitions.push((one, number));
        }
        let state = StateDocument {
            of: StateOf::Handler(&definition.name, stream),
            is_partitioned: definition.partition_by.is_partitioned(),
            place: (position, self.number_at(stream, position).await?),
            last_success: stored.and_then(ProcessorRecord::last_success),
            failing: of_partitions,
        };
        Ok(state.to_document())
    }

    fn default_streams(&self) -> Result<Arc<dyn Streams>, HandlerError> {
        let streams = self.shared.store.streams(&self.tenant, DEFAULT_SCOPE);
        streams.map_err(|error| Invalid::new(error.code(), "scope", error.to_string()).into())
    }

    /// Returns the sequence number of the event at a position of a stream, or of the next event to be evaluated for it.
    async fn number_at(&self, stream: Option<&str>, position: u64) -> Result<SequenceNumber, HandlerError> {
        let Some(name) = stream else { return Ok(position) };
        let streams = self.default_streams()?;
        let query = StreamQuery { from: position, limit: 1, ..StreamQuery::new(name.to_owned()) };
        match streams.read(query).await?.entries.first() {
            Some(entry) => Ok(entry.sequence_number),
            None => Ok(streams.stream(name).await?.progress),
        }
    }

    async fn filter_states(&self) -> Result<Vec<Document>, HandlerError> {
        let failures: Vec<FilterFailureRecord> = all(&self.records).await?;
        let progressed: Vec<FilterProgressRecord> = all(&self.records).await?;
        let streams = self.default_streams()?;
        let mut documents = Vec::new();
        for record in all::<FilterRecord>(&self.records).await? {
            let definition = record.read()?;
            if *definition.name.scope != *DEFAULT_SCOPE {
                continue;
            }
            let stream = &*definition.name.stream;
            let progress = streams.stream(stream).await?.progress;
            let at = progressed.iter().find(|it| it.key == record.key).map(|it| it.at.timestamp_millis());
            let failure = failures.iter().find(|failure| failure.key == record.key).map(|failure| {
                let said = (failure.attempts(), &*failure.reason);
                let number = failure.sequence_number.cast_unsigned();
                (unpartitioned_failure(number, said, failure.retry_at()), number)
            });
            let state = StateDocument {
                of: StateOf::Filter(stream),
                is_partitioned: false,
                place: (progress, progress),
                last_success: at.map(Timestamp::from_millis),
                failing: failure.into_iter().collect(),
            };
            documents.push(state.to_document());
        }
        Ok(documents)
    }
}
