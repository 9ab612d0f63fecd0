//! The status of handlers: from the owner if it runs in this process, else from the store.

use std::sync::Arc;
use std::time::Duration;

use annals_core::handlers::{
    DefinitionRecord, FAILING_PARTITIONS, FailingRecord, HandlerDefinition, HandlerError, HandlerPage, HandlerState,
    HandlerStatus, PARKED_EVENTS, PartitionPage, PartitionState, PartitionStatus, ProcessorRecord, ReplayStatus,
    partitions_of,
};
use annals_core::{ByteString, Condition, Lease, RecordError, RecordQuery, Timestamp, TypedRecords, limits};
use tokio::sync::oneshot;

use super::TenantHandlers;
use crate::engine::owner::{Command, Snapshot};
use crate::health::Known;

/// The maximum time for the owner in this process to report its workers.
const LOOK_MAX: Duration = Duration::from_secs(2);

impl TenantHandlers {
    pub(super) async fn status(&self, definition: HandlerDefinition) -> Result<HandlerStatus, HandlerError> {
        self.open()?;
        let name = &*definition.name;
        let processor = self.kind.processor_of(name);
        // The owner stores its state before it answers, so everything but the workers comes from the store.
        let live = self.look(name).await?;
        let stored = self.stored(&processor).await?;
        let source = self.source(&definition)?;
        let defined = self.definition_record(name).await?.ok_or_else(|| HandlerError::Unknown(name.into()))?;
        let position = stored.as_ref().map_or(defined.start, |stored| stored.position).cast_unsigned();
        let now = self.clock().now();
        let (head, lag_seconds) = source.waiting(position, now).await?;
        let owner = match live {
            Some(_) => Some(self.shared.process.clone()),
            None => self.owner_elsewhere(&processor).await?,
        };
        let last_progress = stored.as_ref().and_then(ProcessorRecord::last_progress);
        let known = Known {
            position,
            head,
            oldest: lag_seconds,
            now,
            is_owned: owner.is_some(),
            progressed: last_progress.unwrap_or(Timestamp::from_millis(defined.defined.timestamp_millis())),
            stored: stored.as_ref(),
        };
        let vitals = known.vitals();
        let (failing, blocked, degraded) = (vitals.failing, vitals.stuck, vitals.complaint());
        let state = state_of(stored.as_ref(), owner.is_some());
        Ok(HandlerStatus {
            position,
            head,
            lag: head.saturating_sub(position),
            lag_seconds,
            last_progress,
            seconds_since_progress: last_progress.map(|at| now.since(at).as_secs()),
            failing,
            blocked,
            parked: self.count(PARKED_EVENTS, &processor).await?,
            state,
            degraded,
            replay: stored.as_ref().and_then(|stored| stored.replay.clone()).map(|replay| ReplayStatus {
                id: replay.id.into(),
                from: replay.from.cast_unsigned(),
                to: replay.to.cast_unsigned(),
            }),
            duplicates: stored.as_ref().map_or(0, |stored| stored.duplicates.cast_unsigned()),
            ended: stored.as_ref().is_some_and(|stored| stored.ended),
            last_reason: match state {
                HandlerState::Blocked if definition.partition_by.is_partitioned() => Some(format!(
                    "{failing} partitions are failing, which is the maximum; nothing new is delivered until some of them succeed, or are skipped or parked"
                )),
                _ => stored.and_then(|stored| stored.last_reason),
            },
            owner,
            workers: live.map(|live| live.workers).unwrap_or_default(),
            definition: HandlerStatus::shown(&definition),
            name: definition.name,
        })
    }

    /// Returns the other process that owns it now, if any.
    async fn owner_elsewhere(&self, processor: &str) -> Result<Option<String>, HandlerError> {
        let leases = TypedRecords::<Lease>::declared(Arc::clone(&self.records));
        let lease = absent(leases.get(processor).await)?.map(|lease| lease.value);
        // If this process were the owner, it would have answered.
        let Some(lease) = lease.filter(|lease| lease.holder != self.shared.process) else { return Ok(None) };
        Ok(self.shared.holds(&self.tenant, &self.records, &lease).await?.then_some(lease.holder))
    }

    pub(super) async fn stored(&self, processor: &str) -> Result<Option<ProcessorRecord>, HandlerError> {
        let processors = TypedRecords::<ProcessorRecord>::declared(Arc::clone(&self.records));
        Ok(absent(processors.get(processor).await)?.map(|stored| stored.value))
    }

    async fn definition_record(&self, name: &str) -> Result<Option<DefinitionRecord>, HandlerError> {
        Ok(absent(self.definitions().get(name).await)?.map(|found| found.value))
    }

    /// Returns what the owner in this process knows, if it runs.
    async fn look(&self, name: &str) -> Result<Option<Snapshot>, HandlerError> {
        let Some(owner) = self.running(name) else { return Ok(None) };
        let (answer, answered) = oneshot::channel();
        if owner.send(Command::Look { answer }).await.is_err() {
            return Ok(None);
        }
        let answered = tokio::select! {
            answered = answered => answered,
            // Do not wait for an owner that hangs; the lease shows who owns the processor.
            () = self.clock().sleep(LOOK_MAX) => return Ok(None),
        };
        match answered {
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

    /// Returns one page of the definitions after a name.
    pub(crate) async fn defined(&self, after: Option<&str>) -> Result<Vec<HandlerDefinition>, HandlerError> {
        let condition = after.map_or(Condition::All, |after| Condition::gt("_id", after));
        let query = RecordQuery::new(self.kind.definitions()).matching(condition).limit(limits::PAGE_MAX);
        let (found, _) = absent_page(self.definitions().find(query).await)?;
        found.iter().map(|record| Ok(record.value.read()?)).collect()
    }

    pub(super) async fn list_page(&self, after: Option<&str>, limit: usize) -> Result<HandlerPage, HandlerError> {
        let condition = after.map_or(Condition::All, |after| Condition::gt("_id", after));
        let query =
            RecordQuery::new(self.kind.definitions()).matching(condition).limit(limit.clamp(1, limits::PAGE_MAX));
        let (found, next) = absent_page(self.definitions().find(query).await)?;
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
        let position = self.status(self.definition(name).await?).await?.position;
        let processor = self.kind.processor_of(name);
        let after = after.map_or(Condition::All, |after| Condition::gt("_id.partition", after));
        let query = RecordQuery::new(FAILING_PARTITIONS)
            .matching(Condition::and([partitions_of(&processor), after]))
            .ascending("_id.partition")
            .limit(limit.clamp(1, limits::PAGE_MAX));
        let failing = TypedRecords::<FailingRecord>::declared(Arc::clone(&self.records));
        let (found, next) = absent_page(failing.find(query).await)?;
        let now = self.clock().now();
        let shown = found.into_iter().map(|record| {
            let failing = record.value.read();
            let state = match (failing.attempts, failing.retry_at) {
                (0, _) => PartitionState::CatchingUp,
                (_, Some(_)) => PartitionState::Retrying,
                (_, None) => PartitionState::Blocked,
            };
            PartitionStatus {
                state,
                behind: position.saturating_sub(failing.position),
                lag_seconds: now.since(failing.event_time).as_secs(),
                since: failing.since,
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

/// Treats a collection that is not declared yet as empty.
pub(super) fn absent<T>(found: Result<Option<T>, RecordError>) -> Result<Option<T>, RecordError> {
    match found {
        Err(RecordError::UnknownCollection(_)) => Ok(None),
        found => found,
    }
}

/// Returns the state of a handler, given its stored record and whether a process hands out its events.
pub(super) fn state_of(stored: Option<&ProcessorRecord>, is_owned: bool) -> HandlerState {
    match stored {
        Some(stored) if stored.paused => HandlerState::Paused,
        Some(stored) if stored.is_blocked => HandlerState::Blocked,
        Some(stored) if stored.ended => HandlerState::Stopped,
        _ if is_owned => HandlerState::Running,
        _ => HandlerState::Stopped,
    }
}

pub(super) fn absent_page<T, C>(
    found: Result<(Vec<T>, Option<C>), RecordError>,
) -> Result<(Vec<T>, Option<C>), RecordError> {
    match found {
        Err(RecordError::UnknownCollection(_)) => Ok((Vec::new(), None)),
        found => found,
    }
}
