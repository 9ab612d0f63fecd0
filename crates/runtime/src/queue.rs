//! The work queues of a tenant: definitions, which are records, and the backend that stores the items.
//!
//! ```text
//!  request ─▶ queue.rs: definition ─▶ WorkQueue ─┬─ queue/records.rs ─▶ queue/turn.rs: core's Machine ─▶ one batch of records
//!                                                └─ crates/redis ─▶ one script
//! ```

mod records;
mod turn;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use annals_core::handlers::{ActRecord, Reason};
use annals_core::queue::{
    CancelledItem, Enqueued, ItemPage, ItemRef, ItemResult, ItemStatus, ItemsBody, ItemsQuery, NewItem, PriorityBody,
    QueueDefinition, QueueError, QueuePage, QueueRecord, QueueStatus, Queues, RenewBody, TakeBody, Taken, WorkQueue,
};
use annals_core::{
    ByteString, Condition, Expected, RecordError, RecordType, Records, Timestamp, TypedRecords, UnknownLog, limits,
};
use async_trait::async_trait;

use crate::host::{Host, Shared, locked};
pub use records::RecordsQueue;

/// How long a definition is used without being read again.
const KNOWN_FOR: Duration = Duration::from_secs(1);

/// The queues of one tenant.
pub(crate) struct TenantQueues {
    shared: Arc<Shared>,
    records: Arc<dyn Records>,
    work: Arc<dyn WorkQueue>,
    known: Mutex<BTreeMap<String, (Timestamp, QueueDefinition)>>,
}

impl Host {
    /// Returns the work queues of a tenant.
    ///
    /// # Errors
    /// [`UnknownLog::Tenant`] if the tenant is not declared.
    pub fn queues(&self, tenant: &str) -> Result<Arc<dyn Queues>, UnknownLog> {
        let shared = Arc::clone(&self.0.shared);
        let mut queues = locked(&self.0.queues);
        if let Some(known) = queues.get(tenant) {
            return Ok(Arc::clone(known) as Arc<dyn Queues>);
        }
        let records = shared.store.records(tenant)?;
        let unknown = || UnknownLog::Tenant(tenant.to_owned());
        let work: Arc<dyn WorkQueue> = match &shared.options.queues {
            Some(backend) => backend.of(shared.store.identity(tenant).ok_or_else(unknown)?.store_id, tenant),
            None => Arc::new(RecordsQueue::new(Arc::clone(&records), Arc::clone(&shared.options.clock))),
        };
        let of_tenant = Arc::new(TenantQueues { shared, records, work, known: Mutex::default() });
        queues.insert(tenant.to_owned(), Arc::clone(&of_tenant));
        Ok(of_tenant)
    }
}

impl TenantQueues {
    fn now(&self) -> Timestamp {
        self.shared.options.clock.now()
    }

    fn definitions(&self) -> TypedRecords<QueueRecord> {
        TypedRecords::declared(Arc::clone(&self.records))
    }

    /// Returns the definition in force.
    async fn definition(&self, queue: &str) -> Result<QueueDefinition, QueueError> {
        let now = self.now();
        // If the clock was set back, the age of the known definition is unknown.
        if let Some((read, known)) = locked(&self.known).get(queue)
            && now >= *read
            && now.since(*read) < KNOWN_FOR
        {
            return Ok(known.clone());
        }
        let found = match self.definitions().get(queue).await {
            Err(RecordError::UnknownCollection(_)) => None,
            found => found?,
        };
        let Some(found) = found else {
            locked(&self.known).remove(queue);
            return Err(QueueError::Unknown(queue.into()));
        };
        let definition = found.value.definition();
        locked(&self.known).insert(queue.to_owned(), (now, definition.clone()));
        Ok(definition)
    }

    async fn status(&self, definition: QueueDefinition) -> Result<QueueStatus, QueueError> {
        let counts = self.work.counts(&definition).await?;
        let oldest_seconds = counts.oldest.map_or(0, |oldest| self.now().since(oldest).as_secs());
        Ok(QueueStatus { definition, counts, oldest_seconds })
    }

    /// Records an act of an operator.
    async fn acted(&self, queue: &str, act: &str, reason: Reason) -> Result<(), QueueError> {
        tracing::info!(queue, act, reason = reason.reason, by = reason.by, "an operator acted on a work queue");
        self.records.declare(<ActRecord as RecordType>::collection()).await?;
        let place = (self.now(), 0, self.shared.options.random.bits());
        let act = ActRecord::new(&format!("queue/{queue}"), act, reason, place);
        self.records.write(vec![TypedRecords::replacement(&act, Expected::AbsentOr(Condition::All))?]).await?;
        Ok(())
    }
}

#[async_trait]
impl Queues for TenantQueues {
    async fn list(&self, after: Option<&str>, limit: usize) -> Result<QueuePage, QueueError> {
        let limit = limit.clamp(1, limits::PAGE_MAX);
        let all = TypedRecords::<QueueRecord>::query().ascending("_id").limit(limit);
        let query = match after {
            Some(after) => all.matching(Condition::gt("_id", after)),
            None => all,
        };
        let (found, next) = match self.definitions().find(query).await {
            Err(RecordError::UnknownCollection(_)) => return Ok(QueuePage::default()),
            found => found?,
        };
        let mut page = QueuePage::default();
        for stored in found {
            page.items.push(self.status(stored.value.definition()).await?);
        }
        page.cursor = page.items.last().filter(|_| next.is_some()).map(|it| it.definition.name.clone());
        Ok(page)
    }

    async fn get(&self, queue: &str) -> Result<QueueStatus, QueueError> {
        let definition = self.definition(queue).await?;
        self.status(definition).await
    }

    async fn put(&self, definition: QueueDefinition) -> Result<bool, QueueError> {
        definition.validate()?;
        self.records.declare(QueueRecord::collection()).await?;
        let new = self.definitions().get(&*definition.name).await?.is_none();
        self.definitions().replace_if(&QueueRecord::of(&definition), Expected::AbsentOr(Condition::All)).await?;
        locked(&self.known).insert(definition.name.to_string(), (self.now(), definition));
        Ok(new)
    }

    async fn delete(&self, queue: &str, reason: Reason) -> Result<(), QueueError> {
        reason.validate()?;
        let definition = self.definition(queue).await?;
        self.work.clear(&definition).await?;
        self.definitions().delete_if(queue, Expected::AbsentOr(Condition::All)).await?;
        locked(&self.known).remove(queue);
        self.acted(queue, "delete", reason).await
    }

    async fn enqueue(&self, queue: &str, item: NewItem) -> Result<Enqueued, QueueError> {
        item.validate()?;
        self.work.enqueue(&self.definition(queue).await?, &item).await
    }

    async fn take(&self, queue: &str, take: TakeBody) -> Result<Taken, QueueError> {
        let definition = self.definition(queue).await?;
        let lease = take.validate(&definition)?;
        let taken = self.work.take(&definition, take.max, lease, &take.worker).await?;
        for id in &taken.lost {
            tracing::error!(queue, item = &**id, "dropped an item of a work queue because its payload is gone");
        }
        Ok(taken)
    }

    async fn renew(&self, queue: &str, renew: RenewBody) -> Result<Vec<ItemResult>, QueueError> {
        let definition = self.definition(queue).await?;
        let (items, lease) = renew.named(&definition)?;
        self.work.renew(&definition, &items, lease).await
    }

    async fn done(&self, queue: &str, items: ItemsBody) -> Result<Vec<ItemResult>, QueueError> {
        let items = items.named()?;
        self.work.done(&self.definition(queue).await?, &items).await
    }

    async fn release(&self, queue: &str, items: ItemsBody) -> Result<Vec<ItemResult>, QueueError> {
        let items = items.named()?;
        self.work.release(&self.definition(queue).await?, &items).await
    }

    async fn release_item(&self, queue: &str, id: &str, reason: Reason) -> Result<ItemResult, QueueError> {
        reason.validate()?;
        let definition = self.definition(queue).await?;
        // Releasing an unknown id has no effect, but an operator should learn that it was mistyped.
        let _ = self.work.item(&definition, id).await?;
        let released = self.work.release(&definition, &[ItemRef::current(id)]).await?.into_iter().next();
        let unanswered = || {
            QueueError::Unavailable(
                "the queue returned no result for the item; read the item before you retry".to_owned(),
            )
        };
        let released = released.ok_or_else(unanswered)?;
        if released.changed {
            self.acted(queue, "release", reason).await?;
        }
        Ok(released)
    }

    async fn item(&self, queue: &str, id: &str) -> Result<ItemStatus, QueueError> {
        self.work.item(&self.definition(queue).await?, id).await
    }

    async fn items(&self, queue: &str, query: ItemsQuery) -> Result<ItemPage, QueueError> {
        self.work.items(&self.definition(queue).await?, &query).await
    }

    async fn prioritise(&self, queue: &str, id: &str, body: PriorityBody) -> Result<ItemStatus, QueueError> {
        let reason = body.reason.map(|reason| Reason { reason, by: body.by });
        reason.as_ref().map_or(Ok(()), Reason::validate)?;
        let status = self.work.prioritise(&self.definition(queue).await?, id, body.priority).await?;
        if let Some(reason) = reason {
            self.acted(queue, "prioritise", reason).await?;
        }
        Ok(status)
    }

    async fn cancel(&self, queue: &str, id: &str, reason: Reason) -> Result<CancelledItem, QueueError> {
        reason.validate()?;
        let cancelled = self.work.cancel(&self.definition(queue).await?, id).await?;
        self.acted(queue, "cancel", reason).await?;
        Ok(CancelledItem { cancelled })
    }
}

/// The status of a tenant's queue, for metrics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TenantQueueStatus {
    /// The tenant.
    pub tenant: ByteString,
    /// The status of one of its queues.
    pub queue: QueueStatus,
}

impl Host {
    /// Reads the status of every queue of every tenant.
    ///
    /// # Errors
    /// See [`QueueError`].
    pub async fn queue_status(&self) -> Result<Vec<TenantQueueStatus>, QueueError> {
        let mut all = Vec::new();
        for tenant in self.store().tenants() {
            let Ok(queues) = self.queues(&tenant) else { continue };
            let mut after: Option<ByteString> = None;
            loop {
                let page = queues.list(after.as_deref(), limits::PAGE_MAX).await?;
                let of = |queue| TenantQueueStatus { tenant: (&*tenant).into(), queue };
                all.extend(page.items.into_iter().map(of));
                after = page.cursor;
                if after.is_none() {
                    break;
                }
            }
        }
        Ok(all)
    }
}
