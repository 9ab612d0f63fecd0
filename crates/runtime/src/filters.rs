//! The filters of a tenant: their definitions, and the owners that evaluate events. The contract is [`Filters`].
//!
//! ```text
//!  put ─▶ filters/change.rs: would the stream hold the same? ─▶ record, layout ─▶ the owner begins again
//!  source ─▶ filters/owner.rs ─┬─ filters/fill.rs    by the definition, or by a function ─┐
//!                              └─ filters/remote.rs  by a client: pull, settle ───────────┴▶ Streams::append at the progress
//! ```
//!
//! INVARIANT: the position of a filter is the progress of its stream. The entries and the progress move in one write, which expects the
//! progress at which the evaluation began. An owner that lost its lease therefore neither appends an event twice nor skips one.

mod change;
mod compare;
mod fill;
mod owner;
mod remote;
mod running;
mod source;
mod status;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use annals_core::filters::{
    FILTER_FAILURES, FILTER_PROGRESS, FILTERS, FilterDefinition, FilterError, FilterFailureRecord, FilterKind,
    FilterName, FilterPage, FilterProgressRecord, FilterRecord, FilterSettleBody, FilterStatus, Filters, Verdict,
};
use annals_core::handlers::{ActPage, ActRecord, Delivery, PullBody, Reason, SettleResult};
use annals_core::{
    Clock, Condition, EventLog, Expected, Invalid, Lease, RecordChange, RecordError, RecordType, RecordedEvent,
    Records, Store, StoreError, StreamDefinitions, Streams, TypedRecords, UnknownLog,
};
use async_trait::async_trait;
use tokio::sync::{mpsc, oneshot, watch};

use crate::handlers::acts_of;
use crate::host::{Host, Shared, detached, locked, supervise};
use owner::Owner;
use remote::{Command, Pull};

/// The maximum number of requests that wait for the owner of a remote filter.
const WAITING_MAX: usize = 1_024;

/// Evaluates the events of a filter in this process. It is called once for each event that the definition admits, in order, and again for
/// events whose verdicts were not stored before a restart. The verdict should depend on the event alone.
pub trait EventFilter: Send + Sync + 'static {
    /// Returns the verdict on an event. A panic counts as a failure, after which the event is retried.
    fn verdict(&self, event: &RecordedEvent) -> Verdict;
}

impl<F: Fn(&RecordedEvent) -> Verdict + Send + Sync + 'static> EventFilter for F {
    fn verdict(&self, event: &RecordedEvent) -> Verdict {
        self(event)
    }
}

/// The filters of one tenant in this process.
pub(crate) struct TenantFilters {
    shared: Arc<Shared>,
    tenant: String,
    records: Arc<dyn Records>,
    slots: Mutex<HashMap<String, Arc<Slot>>>,
    watching: Mutex<bool>,
    me: Weak<Self>,
}

/// A filter as seen by this process, whether or not its owner runs here.
struct Slot {
    /// Held while the definition changes and during each append, so that an append always uses the definition in force.
    turn: tokio::sync::Mutex<()>,
    /// Counts the changes of the definition.
    changed: watch::Sender<u64>,
    owner: Mutex<Option<mpsc::Sender<Command>>>,
    function: Mutex<Option<Arc<dyn EventFilter>>>,
}

/// The ports that a filter reads and writes.
#[derive(Clone)]
pub(crate) struct Ports {
    log: Arc<dyn EventLog>,
    streams: Arc<dyn Streams>,
    definitions: Arc<dyn StreamDefinitions>,
}

impl Host {
    /// Returns the filters of a tenant.
    ///
    /// # Errors
    /// [`UnknownLog::Tenant`] if the tenant is not declared.
    pub fn filters(&self, tenant: &str) -> Result<Arc<dyn Filters>, UnknownLog> {
        Ok(self.filters_of(tenant)?)
    }

    pub(crate) fn start_filters(&self) {
        for tenant in self.store().tenants() {
            if let Ok(filters) = self.filters_of(&tenant) {
                filters.watch();
            }
        }
    }

    /// Defines a filter whose events are evaluated by `function` in this process for as long as the host runs. If several processes do
    /// the same, one of them evaluates the events at a time.
    ///
    /// # Errors
    /// As [`Filters::put`]; the verdicts of the function are compared with what the stream already holds.
    pub async fn filter(
        &self,
        tenant: &str,
        definition: FilterDefinition,
        function: impl EventFilter,
    ) -> Result<(), FilterError> {
        let unknown = |error: UnknownLog| Invalid::new(error.code(), "tenant", error.to_string());
        let filters = self.filters_of(tenant).map_err(unknown)?;
        let definition = FilterDefinition { kind: FilterKind::Function, ..definition };
        filters.change(definition, Some(Arc::new(function))).await.map(drop)
    }
}

impl TenantFilters {
    pub fn new(shared: Arc<Shared>, tenant: &str) -> Result<Arc<Self>, UnknownLog> {
        let records = shared.store.records(tenant)?;
        Ok(Arc::new_cyclic(|me| Self {
            shared,
            tenant: tenant.to_owned(),
            records,
            slots: Mutex::default(),
            watching: Mutex::default(),
            me: Weak::clone(me),
        }))
    }

    fn clock(&self) -> &Arc<dyn Clock> {
        &self.shared.options.clock
    }

    fn store(&self) -> &Arc<dyn Store> {
        &self.shared.store
    }

    fn open(&self) -> Result<(), FilterError> {
        if *self.shared.stop.borrow() { Err(StoreError::Closed.into()) } else { Ok(()) }
    }

    fn ports(&self, scope: &str) -> Result<Ports, UnknownLog> {
        Ok(Ports {
            log: self.store().log(&self.tenant, scope)?,
            streams: self.store().streams(&self.tenant, scope)?,
            definitions: self.store().stream_definitions(&self.tenant, scope)?,
        })
    }

    /// Returns the name with its scope spelled as the store spells it.
    fn canonical(&self, name: &FilterName) -> FilterName {
        FilterName::of_scope(self.store().scope_name(&name.scope).into_owned(), name.stream.clone())
    }

    fn slot(&self, key: &str) -> Arc<Slot> {
        let new = || Slot {
            turn: tokio::sync::Mutex::default(),
            changed: watch::Sender::new(0),
            owner: Mutex::default(),
            function: Mutex::default(),
        };
        Arc::clone(locked(&self.slots).entry(key.to_owned()).or_insert_with(|| Arc::new(new())))
    }

    async fn record(&self, key: &str) -> Result<Option<annals_core::Stored<FilterRecord>>, FilterError> {
        let filters = TypedRecords::<FilterRecord>::declared(Arc::clone(&self.records));
        Ok(absent(filters.get(key).await)?)
    }

    async fn definition(&self, name: &FilterName) -> Result<FilterDefinition, FilterError> {
        match self.record(&name.key()).await? {
            Some(found) => Ok(found.value.read()?),
            None => Err(FilterError::Unknown(name.key())),
        }
    }

    async fn failure(&self, key: &str) -> Result<Option<FilterFailureRecord>, FilterError> {
        let failures = TypedRecords::<FilterFailureRecord>::declared(Arc::clone(&self.records));
        Ok(absent(failures.get(key).await)?.map(|stored| stored.value))
    }

    async fn forget_failure(&self, key: &str) -> Result<(), FilterError> {
        match self.records.delete_if(FILTER_FAILURES, key.into(), whatever()).await {
            Ok(_) | Err(RecordError::UnknownCollection(_)) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    async fn declare(&self) -> Result<(), RecordError> {
        self.records.declare(<Lease as RecordType>::collection()).await?;
        self.records.declare(<FilterRecord as RecordType>::collection()).await?;
        self.records.declare(<FilterFailureRecord as RecordType>::collection()).await?;
        self.records.declare(<FilterProgressRecord as RecordType>::collection()).await?;
        self.records.declare(<ActRecord as RecordType>::collection()).await
    }

    /// Starts the owner of a filter, unless it runs already.
    fn start(&self, key: &str) -> Option<mpsc::Sender<Command>> {
        let filters = self.me.upgrade()?;
        let slot = self.slot(key);
        let mut owner = locked(&slot.owner);
        if let Some(commands) = owner.as_ref().filter(|commands| !commands.is_closed()) {
            return Some(commands.clone());
        }
        let (send, commands) = mpsc::channel(WAITING_MAX);
        *owner = Some(send.clone());
        drop(owner);
        let task = format!("filter/{}/{key}", self.tenant);
        supervise(&self.shared, task, Owner { filters, key: key.to_owned(), slot, commands });
        Some(send)
    }

    /// Returns the owner of a filter in this process, if it runs.
    fn running(&self, key: &str) -> Option<mpsc::Sender<Command>> {
        let slot = locked(&self.slots).get(key).map(Arc::clone)?;
        let owner = locked(&slot.owner);
        owner.clone().filter(|commands| !commands.is_closed())
    }

    /// Returns the owner of a remote filter.
    async fn remote(&self, act: &str, name: &FilterName) -> Result<mpsc::Sender<Command>, FilterError> {
        self.open()?;
        let name = self.canonical(name);
        let definition = self.definition(&name).await?;
        if definition.kind != FilterKind::Remote {
            let state = "it is not remote; the server evaluates its events itself".to_owned();
            return Err(FilterError::NotAllowed { act: act.to_owned(), name: name.key(), state });
        }
        self.start(&name.key()).ok_or(FilterError::Store(StoreError::Closed))
    }

    /// Deletes a definition and the filter's stored state, and ends the owner in this process.
    async fn remove(&self, name: &FilterName, reason: Reason) -> Result<(), FilterError> {
        self.open()?;
        reason.validate()?;
        let name = self.canonical(name);
        let key = name.key();
        self.definition(&name).await?;
        self.records.declare(<ActRecord as RecordType>::collection()).await?;
        let slot = self.slot(&key);
        let turn = slot.turn.lock().await;
        let place = (self.clock().now(), 0, self.shared.options.random.bits());
        let act = ActRecord::new(&format!("filter/{key}"), "delete", reason, place);
        let recorded = TypedRecords::replacement(&act, whatever())?;
        let deleted = RecordChange::delete_if(FILTERS, key.as_str(), Expected::Present);
        match self.records.write(vec![deleted, recorded]).await {
            Err(RecordError::NotAsExpected { .. }) => return Err(FilterError::Unknown(key)),
            written => written?,
        };
        let ports = self.ports(&name.scope).map_err(|error| Invalid::new(error.code(), "scope", error.to_string()))?;
        ports.definitions.delete(&name.stream).await?;
        self.forget_failure(&key).await?;
        match self.records.delete_if(FILTER_PROGRESS, key.as_str().into(), whatever()).await {
            Ok(_) | Err(RecordError::UnknownCollection(_)) => {}
            Err(error) => return Err(error.into()),
        }
        *locked(&slot.function) = None;
        slot.changed.send_modify(|count| *count += 1);
        drop(turn);
        Ok(())
    }
}

#[async_trait]
impl Filters for TenantFilters {
    async fn put(&self, definition: FilterDefinition) -> Result<bool, FilterError> {
        if definition.kind == FilterKind::Function {
            let message =
                "only the program that has the function can define such a filter; use types, condition or remote";
            return Err(Invalid::new(annals_core::Code::InvalidFilter, "function", message).into());
        }
        self.change(definition, None).await
    }

    async fn list(&self, after: Option<&str>, limit: usize) -> Result<FilterPage, FilterError> {
        self.list_page(after, limit).await
    }

    async fn get(&self, name: &FilterName) -> Result<FilterStatus, FilterError> {
        self.open()?;
        let name = self.canonical(name);
        self.status(self.definition(&name).await?).await
    }

    async fn delete(&self, name: &FilterName, reason: Reason) -> Result<(), FilterError> {
        let (filters, name) = (self.me.upgrade().ok_or(StoreError::Closed)?, name.clone());
        detached(async move { filters.remove(&name, reason).await }).await
    }

    async fn pull(&self, name: &FilterName, pull: PullBody) -> Result<Vec<Delivery>, FilterError> {
        pull.validate()?;
        let ends = self.clock().now().plus(Duration::from_millis(pull.wait_ms));
        loop {
            let owner = self.remote("pull from", name).await?;
            let (answer, answered) = oneshot::channel();
            if owner.send(Command::Pull(Pull { body: pull.clone(), ends, answer })).await.is_ok()
                && let Ok(handed) = answered.await
            {
                return Ok(handed?.accept());
            }
            // An owner that ended is replaced by a new one, and one that is restarted keeps the requests that wait for it.
            tokio::task::yield_now().await;
        }
    }

    async fn settle(&self, name: &FilterName, settle: FilterSettleBody) -> Result<Vec<SettleResult>, FilterError> {
        let owner = self.remote("settle events of", name).await?;
        let (answer, answered) = oneshot::channel();
        let closed = || {
            FilterError::Store(StoreError::Unreachable("the filter was restarted in the meantime; retry".to_owned()))
        };
        owner.send(Command::Settle { results: settle.results, answer }).await.map_err(|_| closed())?;
        answered.await.map_err(|_| closed())?
    }

    async fn acts(&self, name: &FilterName, after: Option<&str>, limit: usize) -> Result<ActPage, FilterError> {
        self.open()?;
        let name = self.canonical(name);
        let page = acts_of(&self.records, &format!("filter/{}", name.key()), after, limit).await?;
        if page.items.is_empty() && after.is_none() {
            self.definition(&name).await?;
        }
        Ok(page)
    }
}

fn whatever() -> Expected {
    Expected::AbsentOr(Condition::All)
}

/// Treats a collection that is not declared yet as empty.
fn absent<T>(found: Result<Option<T>, RecordError>) -> Result<Option<T>, RecordError> {
    match found {
        Err(RecordError::UnknownCollection(_)) => Ok(None),
        found => found,
    }
}
