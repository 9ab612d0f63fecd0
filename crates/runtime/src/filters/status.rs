//! The status of filters, from stored data.

use std::sync::Arc;

use annals_core::filters::{
    FILTERS, FilterDefinition, FilterError, FilterFailureRecord, FilterKind, FilterPage, FilterProgressRecord,
    FilterRecord, FilterState, FilterStatus,
};
use annals_core::handlers::WorkerStatus;
use annals_core::{
    Condition, Invalid, Lease, ReadError, RecordError, RecordQuery, SequenceNumber, StoreError, Timestamp,
    TypedRecords, limits,
};
use tokio::sync::oneshot;

use super::remote::Command;
use super::source::Source;
use super::{TenantFilters, absent};
use crate::definitions::readable;
use crate::health::{Known, of_failure};

/// Returns the position of a progress in its source, the number of events there, and the age in seconds of the oldest one at or after the
/// position.
async fn place(source: &Source, progress: SequenceNumber, now: Timestamp) -> Result<(u64, u64, u64), ReadError> {
    let position = source.position_of(progress).await?;
    let head = source.head().await?.max(position);
    let oldest = if head > position { source.first(progress).await? } else { None };
    Ok((position, head, oldest.map_or(0, |event| now.since(event.time).as_secs())))
}

impl TenantFilters {
    pub(super) async fn status(&self, definition: FilterDefinition) -> Result<FilterStatus, FilterError> {
        let unknown = |error: annals_core::UnknownLog| Invalid::new(error.code(), "scope", error.to_string());
        let (key, name) = (definition.name.key(), &definition.name);
        let ports = self.ports(&name.scope).map_err(unknown)?;
        // Read before the progress, because a failure is stored after the progress up to its event.
        let failure = self.failure(&key).await?;
        let info = ports.streams.stream(&name.stream).await?;
        let now = self.clock().now();
        let (position, head, lag_seconds) = place(&Source::of(&definition, &ports), info.progress, now).await?;
        let owner = self.owner_of(&key).await?;
        let last_progress = self.progressed(&key).await?;
        let defined = self.record(&key).await?.map(|found| found.value.defined.timestamp_millis());
        let known = Known {
            position,
            head,
            oldest: lag_seconds,
            now,
            is_owned: owner.is_some(),
            progressed: last_progress.or(defined.map(Timestamp::from_millis)).unwrap_or(now),
            stored: None,
        };
        let degraded = of_failure(known.vitals(), failure.as_ref()).complaint();
        Ok(FilterStatus {
            stream: name.stream.clone(),
            scope: name.scope.clone(),
            position,
            head,
            lag: head - position,
            lag_seconds,
            last_progress,
            seconds_since_progress: last_progress.map(|at| now.since(at).as_secs()),
            progress: info.progress,
            entries: info.head,
            state: match &failure {
                Some(failure) if failure.retry_at.is_none() => FilterState::Blocked,
                Some(_) => FilterState::Failing,
                None if owner.is_some() => FilterState::Running,
                None => FilterState::Stopped,
            },
            degraded,
            attempts: failure.as_ref().map(FilterFailureRecord::attempts),
            retry_at: failure.as_ref().and_then(FilterFailureRecord::retry_at),
            last_reason: failure.map(|failure| failure.reason),
            workers: if definition.kind == FilterKind::Remote { self.workers(&key).await } else { Vec::new() },
            owner,
            definition: FilterStatus::shown(&definition),
        })
    }

    /// Returns when the filter last progressed.
    async fn progressed(&self, key: &str) -> Result<Option<Timestamp>, FilterError> {
        let noted = TypedRecords::<FilterProgressRecord>::declared(Arc::clone(&self.records));
        let noted = absent(noted.get(key).await)?;
        Ok(noted.map(|noted| Timestamp::from_millis(noted.value.at.timestamp_millis())))
    }

    /// Returns a filter's position in its source, the number of events there, and the age in seconds of the oldest one not evaluated yet.
    pub(crate) async fn waiting(
        &self,
        definition: &FilterDefinition,
        now: Timestamp,
    ) -> Result<(u64, u64, u64), ReadError> {
        let unknown = |error: annals_core::UnknownLog| StoreError::other(error.code(), error.to_string());
        let ports = self.ports(&definition.name.scope).map_err(unknown)?;
        let progress = ports.streams.stream(&definition.name.stream).await?.progress;
        place(&Source::of(definition, &ports), progress, now).await
    }

    /// Returns the process that evaluates the filter's events now.
    async fn owner_of(&self, key: &str) -> Result<Option<String>, FilterError> {
        let leases = TypedRecords::<Lease>::declared(Arc::clone(&self.records));
        let lease = absent(leases.get(format!("filter/{key}")).await)?.map(|lease| lease.value);
        let Some(lease) = lease else { return Ok(None) };
        let holds = match lease.holder == self.shared.process {
            true => self.running(key).is_some(),
            false => self.shared.holds(&self.tenant, &self.records, &lease).await?,
        };
        Ok(holds.then_some(lease.holder))
    }

    /// Returns the clients that pulled recently from this process.
    async fn workers(&self, key: &str) -> Vec<WorkerStatus> {
        let Some(owner) = self.running(key) else { return Vec::new() };
        let (answer, answered) = oneshot::channel();
        match owner.try_send(Command::Look { answer }) {
            Ok(()) => answered.await.unwrap_or_default(),
            Err(_) => Vec::new(),
        }
    }

    pub(super) async fn list_page(&self, after: Option<&str>, limit: usize) -> Result<FilterPage, FilterError> {
        self.open()?;
        let condition = after.map_or(Condition::All, |after| Condition::gt("_id", after));
        let query = RecordQuery::new(FILTERS).matching(condition).limit(limit.clamp(1, limits::PAGE_MAX));
        let filters = TypedRecords::<FilterRecord>::declared(Arc::clone(&self.records));
        let (found, next) = match filters.find(query).await {
            Err(RecordError::UnknownCollection(_)) => (Vec::new(), None),
            found => found?,
        };
        let mut items = Vec::with_capacity(found.len());
        for record in &found {
            items.push(self.status(record.value.read()?).await?);
        }
        let cursor = next.and(found.last()).map(|last| last.value.key.as_str().into());
        Ok(FilterPage { items, cursor })
    }

    /// Returns the keys of the filters that a process without clients and functions can run.
    pub(super) async fn declared(&self) -> Result<Vec<String>, FilterError> {
        let filters = TypedRecords::<FilterRecord>::declared(Arc::clone(&self.records));
        let keys = readable(&filters).await?.into_iter().filter_map(|record| {
            let kind = record.value.read().ok()?.kind;
            (kind == FilterKind::Declared).then_some(record.value.key)
        });
        Ok(keys.collect())
    }
}
