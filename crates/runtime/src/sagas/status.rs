//! The status of sagas and definitions, from stored data.

use std::sync::Arc;

use annals_core::bson::{Bson, DateTime};
use annals_core::handlers::ProcessorRecord;
use annals_core::sagas::{
    SAGA_DEFINITIONS, SAGAS, SagaDefinitionPage, SagaDefinitionRecord, SagaDefinitionStatus, SagaError, SagaPage,
    SagaQuery, SagaRecord, SagaState, SagaStatistics,
};
use annals_core::{
    Aggregation, Condition, Cursor, Figure, GroupQuery, Lease, RecordError, RecordQuery, TypedRecords, limits,
};

use super::HostSagas;

/// The states of sagas that are not over.
const ACTIVE: [&str; 3] = ["created", "running", "compensating"];

/// Returns the condition for parked sagas.
fn is_parked() -> Condition {
    Condition::gt("annals.parked", DateTime::from_millis(0))
}

fn of(name: &str) -> Condition {
    Condition::eq("saga_name", name)
}

impl HostSagas {
    async fn count(&self, condition: Condition) -> Result<u64, SagaError> {
        match self.records.count(SAGAS, &condition).await {
            Err(RecordError::UnknownCollection(_)) => Ok(0),
            count => Ok(count?),
        }
    }

    pub(super) async fn active(&self, name: &str) -> Result<u64, SagaError> {
        self.count(Condition::and([of(name), Condition::is_in("state", ACTIVE)])).await
    }

    /// Returns the number of parked sagas, whose compensations wait for an operator.
    pub(crate) async fn parked(&self, name: &str) -> Result<u64, SagaError> {
        self.count(Condition::and([of(name), is_parked()])).await
    }

    pub(super) async fn page(&self, query: SagaQuery) -> Result<SagaPage, SagaError> {
        self.open()?;
        let SagaQuery { name, state, execution_id, parked, limit, cursor } = query;
        let wanted = [
            name.map(|name| of(&name)),
            state.map(|state| Condition::eq("state", state.name())),
            execution_id.map(|id| Condition::eq("execution_id", id)),
            parked.then(is_parked),
        ];
        let mut query = RecordQuery::new(SAGAS)
            .matching(Condition::and(wanted.into_iter().flatten()))
            .descending("created_at")
            .limit(limit.clamp(1, limits::PAGE_MAX));
        query.after = cursor.map(Cursor::new);
        let (found, next) = match self.typed::<SagaRecord>().find(query).await {
            Err(RecordError::UnknownCollection(_)) => (Vec::new(), None),
            found => found?,
        };
        let items = found.iter().map(|found| found.value.status()).collect();
        Ok(SagaPage { items, cursor: next.map(|cursor| cursor.as_str().to_owned()) })
    }

    pub(super) async fn counted(&self, name: Option<&str>) -> Result<SagaStatistics, SagaError> {
        self.open()?;
        let average = Figure { name: "average".to_owned(), what: Aggregation::Avg, path: "annals.took_ms".to_owned() };
        let query = GroupQuery {
            collection: SAGAS.to_owned(),
            condition: name.map_or(Condition::All, of),
            by: Some("state".to_owned()),
            every: None,
            figures: vec![average],
            limit: limits::PAGE_MAX,
            after: None,
        };
        let page = match self.records.group(query).await {
            Err(RecordError::UnknownCollection(_)) => return Ok(SagaStatistics::default()),
            page => page?,
        };
        let mut statistics = SagaStatistics::default();
        for group in page.groups {
            let Some(state) = group.key.as_str() else { continue };
            statistics.total += group.count;
            statistics.by_state.insert(state.to_owned(), group.count);
            if state == SagaState::Completed.name()
                && let Some(Bson::Double(millis)) = group.figures.first()
            {
                statistics.average_duration_seconds = Some(millis / 1_000.0);
            }
        }
        let parked = name.map_or_else(is_parked, |name| Condition::and([of(name), is_parked()]));
        statistics.parked = self.count(parked).await?;
        Ok(statistics)
    }

    pub(super) async fn definition_status(
        &self,
        record: &SagaDefinitionRecord,
    ) -> Result<SagaDefinitionStatus, SagaError> {
        let newest = record.versions.last().ok_or_else(|| SagaError::UnknownDefinition(record.name.as_str().into()))?;
        let definition = newest.read(&record.name)?;
        let processor = self.typed::<ProcessorRecord>().get(record.processor()).await?;
        let position = processor.map_or(0, |found| found.value.position.cast_unsigned());
        let here = crate::host::locked(&self.running).get(&record.name).map_or(0, |it| *it.position.borrow());
        let (position, head) = (position.max(here), self.log.head().await?);
        let version = |version: i64| u32::try_from(version).unwrap_or(u32::MAX);
        Ok(SagaDefinitionStatus {
            name: record.name.as_str().into(),
            version: version(newest.version),
            versions: record.versions.iter().map(|it| version(it.version)).collect(),
            position,
            head,
            lag: head.saturating_sub(position),
            active: self.active(&record.name).await?,
            parked: self.parked(&record.name).await?,
            owner: self.owner(&record.name).await?,
            definition: definition.shown(),
        })
    }

    /// Returns the process that runs the sagas of a definition.
    async fn owner(&self, name: &str) -> Result<Option<String>, SagaError> {
        let leases = TypedRecords::<Lease>::declared(Arc::clone(&self.records));
        let found = match leases.get(format!("saga/{name}").as_str()).await {
            Err(RecordError::UnknownCollection(_)) => None,
            found => found?,
        };
        let Some(lease) = found.map(|found| found.value) else { return Ok(None) };
        Ok(self.shared.holds(&self.tenant, &self.records, &lease).await?.then_some(lease.holder))
    }

    pub(super) async fn definitions_page(
        &self,
        after: Option<&str>,
        limit: usize,
    ) -> Result<SagaDefinitionPage, SagaError> {
        self.open()?;
        let after = after.map_or(Condition::All, |after| Condition::gt("_id", after));
        let query = RecordQuery::new(SAGA_DEFINITIONS).matching(after).limit(limit.clamp(1, limits::PAGE_MAX));
        let (found, next) = match self.typed::<SagaDefinitionRecord>().find(query).await {
            Err(RecordError::UnknownCollection(_)) => (Vec::new(), None),
            found => found?,
        };
        let mut items = Vec::with_capacity(found.len());
        for record in &found {
            items.push(self.definition_status(&record.value).await?);
        }
        let cursor = next.and(items.last()).map(|last| last.name.clone());
        Ok(SagaDefinitionPage { items, cursor })
    }
}
