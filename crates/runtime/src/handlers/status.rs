//! The state of handlers: from the owner where it runs here, else from what is stored.

use std::sync::Arc;

use annals_core::handlers::{
    DefinitionRecord, FAILING_PARTITIONS, FailingRecord, HANDLERS, HandlerDefinition, HandlerError, HandlerPage,
    HandlerState, HandlerStatus, PARKED_EVENTS, PartitionPage, PartitionStatus, ProcessorRecord, partitions_of,
};
use annals_core::{ByteString, Condition, Lease, RecordError, RecordQuery, TypedRecords, limits};
use tokio::sync::oneshot;

use super::TenantHandlers;
use crate::engine::owner::{Command, Snapshot};

impl TenantHandlers {
    pub(super) async fn status(&self, definition: HandlerDefinition) -> Result<HandlerStatus, HandlerError> {
        self.open()?;
        let name = &*definition.name;
        let processor = format!("handler/{name}");
        let stored = self.stored(&processor).await?;
        let live = self.look(name).await?;
        let source = self.source(&definition);
        let start = self.start_of(name).await?;
        let stored_position = stored.as_ref().map_or(start, |stored| stored.position.cast_unsigned());
        let position = live.as_ref().map_or(stored_position, |live| live.position);
        let head = source.head().await?;
        let lag_seconds = match source.first(position).await? {
            Some(event) if head > position => self.clock().now().since(event.time).as_secs(),
            _ => 0,
        };
        let failing = match &live {
            Some(live) => live.failing,
            None => self.count(FAILING_PARTITIONS, &processor).await?,
        };
        let (owner, state) = self.state(&processor, stored.as_ref(), live.as_ref()).await?;
        Ok(HandlerStatus {
            position,
            head,
            lag: head.saturating_sub(position),
            lag_seconds,
            last_progress: stored.as_ref().and_then(ProcessorRecord::last_progress),
            failing,
            parked: self.count(PARKED_EVENTS, &processor).await?,
            state,
            last_reason: match &live {
                Some(live) => live.last_reason.clone(),
                None => stored.and_then(|stored| stored.last_reason),
            },
            owner,
            workers: live.map(|live| live.workers).unwrap_or_default(),
            definition: HandlerStatus::shown(&definition),
            name: definition.name,
        })
    }

    async fn state(
        &self,
        processor: &str,
        stored: Option<&ProcessorRecord>,
        live: Option<&Snapshot>,
    ) -> Result<(Option<String>, HandlerState), HandlerError> {
        let owner = match live {
            Some(_) => Some(self.shared.process.clone()),
            None => self.owner_elsewhere(processor).await?,
        };
        let state = match (live, &owner) {
            _ if stored.is_some_and(|stored| stored.paused) => HandlerState::Paused,
            (Some(live), _) if live.blocked => HandlerState::Blocked,
            (_, Some(_)) => HandlerState::Running,
            (_, None) => HandlerState::Stopped,
        };
        Ok((owner, state))
    }

    /// The other process that owns it now.
    async fn owner_elsewhere(&self, processor: &str) -> Result<Option<String>, HandlerError> {
        if !self.shared.store.is_shared() {
            return Ok(None);
        }
        let leases = TypedRecords::<Lease>::declared(Arc::clone(&self.records));
        let lease = absent(leases.get(processor).await)?;
        let now = self.clock().now();
        Ok(lease.filter(|lease| lease.value.until() > now).map(|lease| lease.value.holder))
    }

    pub(super) async fn stored(&self, processor: &str) -> Result<Option<ProcessorRecord>, HandlerError> {
        let processors = TypedRecords::<ProcessorRecord>::declared(Arc::clone(&self.records));
        Ok(absent(processors.get(processor).await)?.map(|stored| stored.value))
    }

    /// Where a handler begins.
    async fn start_of(&self, name: &str) -> Result<u64, HandlerError> {
        let handlers = TypedRecords::<DefinitionRecord>::declared(Arc::clone(&self.records));
        Ok(absent(handlers.get(name).await)?.map_or(0, |found| found.value.start.cast_unsigned()))
    }

    /// What the owner in this process knows, if it runs.
    async fn look(&self, name: &str) -> Result<Option<Snapshot>, HandlerError> {
        let Some(owner) = self.running(name) else { return Ok(None) };
        let (answer, answered) = oneshot::channel();
        if owner.send(Command::Look { answer }).await.is_err() {
            return Ok(None);
        }
        match answered.await {
            Ok(Ok(snapshot)) => Ok(Some(snapshot)),
            Ok(Err(HandlerError::OwnedElsewhere { .. })) | Err(_) => Ok(None),
            Ok(Err(error)) => Err(error),
        }
    }

    async fn count(&self, collection: &str, processor: &str) -> Result<u64, HandlerError> {
        match self.records.count(collection, &partitions_of(processor)).await {
            Err(RecordError::UnknownCollection(_)) => Ok(0),
            count => Ok(count?),
        }
    }

    pub(super) async fn list_page(&self, after: Option<&str>, limit: usize) -> Result<HandlerPage, HandlerError> {
        let condition = after.map_or(Condition::All, |after| Condition::gt("_id", after));
        let query = RecordQuery::new(HANDLERS).matching(condition).limit(limit.clamp(1, limits::PAGE_MAX));
        let handlers = TypedRecords::<DefinitionRecord>::declared(Arc::clone(&self.records));
        let (found, next) = absent_page(handlers.find(query).await)?;
        let mut items = Vec::with_capacity(found.len());
        for record in &found {
            items.push(self.status(record.value.read()?).await?);
        }
        let cursor = next.and(items.last()).map(|last: &HandlerStatus| last.name.clone());
        Ok(HandlerPage { items, cursor })
    }

    pub(super) async fn partitions_page(
        &self,
        name: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<PartitionPage, HandlerError> {
        let definition = self.definition(name).await?;
        let processor = format!("handler/{name}");
        let after = after.map_or(Condition::All, |after| Condition::gt("_id.partition", after));
        let query = RecordQuery::new(FAILING_PARTITIONS)
            .matching(Condition::and([partitions_of(&processor), after]))
            .ascending("_id.partition")
            .limit(limit.clamp(1, limits::PAGE_MAX));
        let failing = TypedRecords::<FailingRecord>::declared(Arc::clone(&self.records));
        let (found, next) = absent_page(failing.find(query).await)?;
        let position = self.status(definition).await?.position;
        let shown = found.into_iter().map(|record| {
            let failing = record.value.read();
            PartitionStatus {
                behind: position.saturating_sub(failing.position),
                partition: failing.partition,
                position: failing.position,
                sequence_number: failing.sequence_number,
                attempts: failing.attempts,
                reason: failing.reason,
                retry_at: failing.retry_at,
                last_failed: failing.last_failed,
            }
        });
        let items: Vec<PartitionStatus> = shown.collect();
        let cursor: Option<ByteString> = next.and(items.last()).map(|last| last.partition.clone());
        Ok(PartitionPage { items, cursor })
    }
}

/// A collection that is not declared yet holds nothing.
pub(super) fn absent<T>(found: Result<Option<T>, RecordError>) -> Result<Option<T>, RecordError> {
    match found {
        Err(RecordError::UnknownCollection(_)) => Ok(None),
        found => found,
    }
}

fn absent_page<T, C>(found: Result<(Vec<T>, Option<C>), RecordError>) -> Result<(Vec<T>, Option<C>), RecordError> {
    match found {
        Err(RecordError::UnknownCollection(_)) => Ok((Vec::new(), None)),
        found => found,
    }
}
