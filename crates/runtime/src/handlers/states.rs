//! The states of handlers and filters in the layout of the Dolittle Runtime.

use annals_core::bson::Document;
use annals_core::filters::{FilterFailureRecord, FilterProgressRecord, FilterRecord};
use annals_core::handlers::{
    DefinitionRecord, FailingRecord, HandlerDefinition, HandlerError, HandlerSource, ProcessorRecord, StateDocument,
    StateOf, unpartitioned_failure,
};
use annals_core::processing::Failing;
use annals_core::{Invalid, SequenceNumber, StreamQuery, Streams, Timestamp};

use super::TenantHandlers;
use crate::health::all;

impl TenantHandlers {
    pub(super) async fn state_documents(&self, scope: &str) -> Result<Vec<Document>, HandlerError> {
        self.open()?;
        let streams = self.shared.store.streams(&self.tenant, scope);
        let streams = streams.map_err(|error| Invalid::new(error.code(), "scope", error.to_string()))?;
        let mut documents = Vec::new();
        let processors: Vec<ProcessorRecord> = all(&self.records).await?;
        let failing: Vec<FailingRecord> = all(&self.records).await?;
        for record in all::<DefinitionRecord>(&self.records).await? {
            let definition = record.read()?;
            if !self.is_scope(&definition.scope, scope) {
                continue;
            }
            let task = format!("handler/{}", record.name);
            let stored = processors.iter().find(|stored| stored.name == task);
            let of_it = failing.iter().filter(|failing| failing.id.processor == task).cloned();
            let of_it: Vec<Failing> = of_it.map(FailingRecord::read).collect();
            documents.push(handler_state(&*streams, &definition, record.start, (stored, of_it)).await?);
        }
        documents.extend(self.filter_states(scope, &*streams).await?);
        Ok(documents)
    }

    /// Returns whether two names are those of one scope.
    fn is_scope(&self, one: &str, other: &str) -> bool {
        let store = &self.shared.store;
        store.scope_name(one) == store.scope_name(other)
    }

    async fn filter_states(&self, scope: &str, streams: &dyn Streams) -> Result<Vec<Document>, HandlerError> {
        let failures: Vec<FilterFailureRecord> = all(&self.records).await?;
        let progressed: Vec<FilterProgressRecord> = all(&self.records).await?;
        let mut documents = Vec::new();
        for record in all::<FilterRecord>(&self.records).await? {
            let definition = record.read()?;
            if !self.is_scope(&definition.name.scope, scope) {
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

async fn handler_state(
    streams: &dyn Streams,
    definition: &HandlerDefinition,
    start: i64,
    (stored, failing): (Option<&ProcessorRecord>, Vec<Failing>),
) -> Result<Document, HandlerError> {
    let stream = match &definition.source {
        HandlerSource::Log { .. } => None,
        HandlerSource::Stream(name) => Some(&**name),
    };
    let position = stored.map_or(start, |stored| stored.position).cast_unsigned();
    let mut of_partitions = Vec::with_capacity(failing.len());
    for one in failing {
        let number = number_at(streams, stream, one.position).await?;
        of_partitions.push((one, number));
    }
    let state = StateDocument {
        of: StateOf::Handler(&definition.name, stream),
        is_partitioned: definition.partition_by.is_partitioned(),
        place: (position, number_at(streams, stream, position).await?),
        last_success: stored.and_then(ProcessorRecord::last_success),
        failing: of_partitions,
    };
    Ok(state.to_document())
}

/// Returns the sequence number of the event at a position of a stream, or of the next event to be evaluated for it.
async fn number_at(streams: &dyn Streams, stream: Option<&str>, position: u64) -> Result<SequenceNumber, HandlerError> {
    let Some(name) = stream else { return Ok(position) };
    let query = StreamQuery { from: position, limit: 1, ..StreamQuery::new(name.to_owned()) };
    match streams.read(query).await?.entries.first() {
        Some(entry) => Ok(entry.sequence_number),
        None => Ok(streams.stream(name).await?.progress),
    }
}
