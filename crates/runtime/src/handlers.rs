//! The handlers of a tenant: their stored state, and the owners of those from which workers pull. The contract is [`Handlers`].

mod acts;
mod claimed;
mod definitions;
mod lettered;
mod replayed;
mod states;
mod status;
mod waiting;

pub(crate) use acts::acts_of;
pub(crate) use lettered::LetteredHandlers;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use annals_core::bson::Document;
use annals_core::groups::GUARDED;
use annals_core::handlers::{
    Act, ActPage, ActRecord, DefinitionRecord, Delivery, FAILING_PARTITIONS, HANDLERS, HandlerDefinition, HandlerError,
    HandlerPage, HandlerStatus, Handlers, PARKED_EVENTS, PROCESSORS, PartitionPage, PullBody, Reason, SettleBody,
    SettleResult, partitions_of,
};
use annals_core::{
    Clock, Condition, DEFAULT_SCOPE, EventLog, Expected, Invalid, RecordChange, RecordError, RecordQuery, RecordType,
    Records, StoreError, TypedRecords, UnknownLog, limits,
};
use async_trait::async_trait;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot, watch};

use crate::engine::local::Local;
use crate::engine::owner::{Command, Owner, Settling};
use crate::engine::source::Source;
use crate::groups::GROUPS;
use crate::handler::Handler;
use crate::health::all;
use crate::host::{Host, Leases, Shared, detached, locked, supervise};

/// The maximum number of requests that wait for an owner.
const WAITING_MAX: usize = 1_024;

/// The kind of a tenant's processors that people define and workers pull from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Handlers,
    Groups,
}

impl Kind {
    /// Returns the collection of their definitions.
    pub fn definitions(self) -> &'static str {
        match self {
            Self::Handlers => HANDLERS,
            Self::Groups => GROUPS,
        }
    }

    /// Returns the name of the processor of one of them, which is unique in its tenant.
    pub(crate) fn processor_of(self, name: &str) -> String {
        match self {
            Self::Handlers => format!("handler/{name}"),
            Self::Groups => format!("group/{name}"),
        }
    }

    /// Returns the name of its task in this process.
    fn task_of(self, tenant: &str, name: &str) -> String {
        match self {
            Self::Handlers => format!("handler/{tenant}/{name}"),
            Self::Groups => format!("group/{tenant}/{name}"),
        }
    }
}

/// The handlers of one tenant in this process, or its groups.
pub(crate) struct TenantHandlers {
    shared: Arc<Shared>,
    kind: Kind,
    tenant: String,
    records: Arc<dyn Records>,
    /// The log that commits go to.
    log: Arc<dyn EventLog>,
    owners: Mutex<HashMap<String, Running>>,
    /// Whether the definitions, which other processes may change, are being watched.
    watched: AtomicBool,
    me: Weak<Self>,
}

/// The owner of a handler in this process.
struct Running {
    commands: mpsc::Sender<Command>,
    /// Whether a handler of this process is its worker. This outlives the owner.
    local: Arc<AtomicBool>,
    scope: String,
}

/// Set once the host is drained.
pub(crate) struct StopSignal(watch::Receiver<bool>);

impl StopSignal {
    pub async fn stopped(&self) {
        let mut stop = self.0.clone();
        // A host that was dropped counts as drained.
        let _ = stop.wait_for(|stop| *stop).await;
    }
}

impl Host {
    /// Defines a handler, and processes its events with `handler` in this process for as long as the host runs. If several processes do
    /// the same, one of them hands out the events at a time.
    ///
    /// # Errors
    /// [`UnknownLog`] as [`HandlerError::Invalid`]; else as [`Handlers::put`].
    pub async fn handle(
        &self,
        tenant: &str,
        definition: HandlerDefinition,
        handler: impl Handler,
    ) -> Result<(), HandlerError> {
        let unknown = |error: UnknownLog| annals_core::Invalid::new(error.code(), "tenant", error.to_string());
        let handlers = self.tenant(tenant).map_err(unknown)?;
        self.dead_letters_of(tenant).map_err(unknown)?.start();
        handlers.put(definition.clone()).await?;
        handlers.work(definition, Arc::new(handler))
    }
}

impl Host {
    /// Returns the scope whose events a handler hands out in this process.
    pub fn handler_scope(&self, tenant: &str, name: &str) -> String {
        self.tenant(tenant).map_or_else(|_| DEFAULT_SCOPE.to_owned(), |handlers| handlers.scope_of(name))
    }

    /// Returns the scope in the stored definition of a handler.
    ///
    /// # Errors
    /// [`HandlerError::Unknown`] if no handler has this name; [`UnknownLog`] as [`HandlerError::Invalid`].
    pub async fn defined_scope(&self, tenant: &str, name: &str) -> Result<String, HandlerError> {
        let unknown = |error: UnknownLog| Invalid::new(error.code(), "tenant", error.to_string());
        let handlers = self.tenant(tenant).map_err(unknown)?;
        Ok(handlers.definition(name).await?.scope.to_string())
    }

    /// Returns the name and the scope of every handler of a tenant. Definitions that cannot be read are left out.
    ///
    /// # Errors
    /// [`UnknownLog`] as [`HandlerError::Invalid`]; else see [`HandlerError`].
    pub async fn defined_scopes(&self, tenant: &str) -> Result<Vec<(String, String)>, HandlerError> {
        let unknown = |error: UnknownLog| Invalid::new(error.code(), "tenant", error.to_string());
        let handlers = self.tenant(tenant).map_err(unknown)?;
        let stored: Vec<DefinitionRecord> = all(&handlers.records).await?;
        let read = stored.into_iter().filter_map(|stored| {
            let definition = stored.read().ok()?;
            Some((stored.name, definition.scope.to_string()))
        });
        Ok(read.collect())
    }
}

impl TenantHandlers {
    pub fn new(shared: Arc<Shared>, tenant: &str, kind: Kind) -> Result<Arc<Self>, UnknownLog> {
        let records = shared.store.records(tenant)?;
        let log = shared.store.log(tenant, DEFAULT_SCOPE)?;
        Ok(Arc::new_cyclic(|me| Self {
            shared,
            kind,
            tenant: tenant.to_owned(),
            records,
            log,
            owners: Mutex::default(),
            watched: AtomicBool::new(false),
            me: Weak::clone(me),
        }))
    }

    /// Processes the events of a definition in this process for as long as the host runs.
    ///
    /// # Errors
    /// As [`Handlers::put`].
    pub fn work(
        self: &Arc<Self>,
        definition: HandlerDefinition,
        handler: Arc<dyn Handler>,
    ) -> Result<(), HandlerError> {
        let name = definition.name.to_string();
        let (lanes, batch) = (definition.concurrency as usize, definition.batch as usize);
        self.start(self.canonical(definition), true)?;
        let (log, shared) = (Arc::clone(&self.log), Arc::clone(&self.shared));
        let task = match self.kind {
            Kind::Handlers => format!("worker/{}/{name}", self.tenant),
            Kind::Groups => format!("consumer/{}/{name}", self.tenant),
        };
        let clock = Arc::clone(&shared.options.clock);
        let origin = self.kind.processor_of(&name);
        let handlers = Arc::clone(self);
        supervise(&shared, task, Local { handlers, name, origin, handler, log, clock, lanes, batch });
        Ok(())
    }

    /// Returns the definitions of this kind.
    pub(super) fn definitions(&self) -> TypedRecords<DefinitionRecord> {
        TypedRecords::declared_as(Arc::clone(&self.records), self.kind.definitions())
    }

    /// Returns the name of the processor of one of them.
    pub fn processor_of(&self, name: &str) -> String {
        self.kind.processor_of(name)
    }

    /// Keeps the life of this process in the tenant until the returned value is dropped.
    pub fn stay_alive(&self) -> Leases {
        Leases::new(&self.shared, &self.tenant, Arc::clone(&self.records), "alive".to_owned())
    }

    pub fn stop(&self) -> StopSignal {
        StopSignal(self.shared.stop.subscribe())
    }

    fn clock(&self) -> &dyn Clock {
        &*self.shared.options.clock
    }

    fn open(&self) -> Result<(), HandlerError> {
        if *self.shared.stop.borrow() { Err(StoreError::Closed.into()) } else { Ok(()) }
    }

    pub(crate) async fn definition(&self, name: &str) -> Result<HandlerDefinition, HandlerError> {
        let found = match self.definitions().get(name).await {
            Err(RecordError::UnknownCollection(_)) => None,
            found => found?,
        };
        match found {
            Some(found) => Ok(found.value.read()?),
            None => Err(HandlerError::Unknown(name.into())),
        }
    }

    pub(crate) fn source(&self, definition: &HandlerDefinition) -> Result<Source, HandlerError> {
        let (store, scope) = (&self.shared.store, &*definition.scope);
        let ports = store.log(&self.tenant, scope).and_then(|log| Ok((log, store.streams(&self.tenant, scope)?)));
        let (log, streams) = ports.map_err(|error| Invalid::new(error.code(), "scope", error.to_string()))?;
        Ok(Source::of(definition, log, streams))
    }

    /// Returns the definition with its scope spelled as the store spells it.
    fn canonical(&self, definition: HandlerDefinition) -> HandlerDefinition {
        let scope = self.shared.store.scope_name(&definition.scope).into_owned().into();
        HandlerDefinition { scope, ..definition }
    }

    /// Returns the scope of a handler whose owner is or was in this process.
    pub fn scope_of(&self, name: &str) -> String {
        let owners = locked(&self.owners);
        owners.get(name).map_or_else(|| DEFAULT_SCOPE.to_owned(), |owner| owner.scope.clone())
    }

    /// Returns the owner of a handler in this process, if it runs.
    fn running(&self, name: &str) -> Option<mpsc::Sender<Command>> {
        let owners = locked(&self.owners);
        owners.get(name).map(|owner| owner.commands.clone()).filter(|owner| !owner.is_closed())
    }

    /// Starts the owner of a handler, unless it runs already.
    fn start(&self, definition: HandlerDefinition, local: bool) -> Result<mpsc::Sender<Command>, HandlerError> {
        self.watch_definitions();
        let (source, scope) = (self.source(&definition)?, definition.scope.to_string());
        let mut owners = locked(&self.owners);
        let name = definition.name.to_string();
        let known = owners.get(&name);
        let is_local = known.map_or_else(Arc::default, |owner| Arc::clone(&owner.local));
        is_local.fetch_or(local, Ordering::Relaxed);
        if let Some(owner) = known.filter(|owner| !owner.commands.is_closed()) {
            return Ok(owner.commands.clone());
        }
        let (send, commands) = mpsc::channel(WAITING_MAX);
        let owner = Owner {
            shared: Arc::clone(&self.shared),
            tenant: self.tenant.clone(),
            task: self.kind.processor_of(&name),
            definitions: self.kind.definitions(),
            records: Arc::clone(&self.records),
            source,
            definition,
            commands,
            local: Arc::clone(&is_local),
        };
        supervise(&self.shared, self.kind.task_of(&self.tenant, &name), owner);
        owners.insert(name, Running { commands: send.clone(), local: is_local, scope });
        Ok(send)
    }

    async fn owner(&self, name: &str) -> Result<mpsc::Sender<Command>, HandlerError> {
        self.open()?;
        match self.running(name) {
            Some(owner) => Ok(owner),
            None => self.start(self.definition(name).await?, false),
        }
    }

    /// Sends a request to the owner of a handler, again if the owner ended or was restarted without answering. All requests sent this way
    /// are safe to carry out twice.
    async fn ask<T>(
        &self,
        name: &str,
        mut command: impl FnMut(oneshot::Sender<Result<T, HandlerError>>) -> Command,
    ) -> Result<T, HandlerError> {
        loop {
            let owner = self.owner(name).await?;
            let (answer, answered) = oneshot::channel();
            if owner.send(command(answer)).await.is_ok()
                && let Ok(answer) = answered.await
            {
                return answer;
            }
            self.open()?;
            // An owner that ended is replaced by a new one, and one that is restarted keeps the requests that wait for it.
            tokio::task::yield_now().await;
        }
    }

    /// Takes deliveries of the handler's own events.
    async fn take_own(&self, name: &str, body: PullBody) -> Result<Vec<Delivery>, HandlerError> {
        let ends = self.clock().now().plus(Duration::from_millis(body.wait_ms));
        let pull = |answer| {
            let left = ends.since(self.clock().now());
            let wait_ms = u64::try_from(left.as_millis()).unwrap_or(0);
            Command::Pull { body: PullBody { wait_ms, ..body.clone() }, answer }
        };
        Ok(self.ask(name, pull).await?.accept())
    }

    /// Makes the owner of a handler in this process look for dead letters that became due.
    pub fn look_for_letters(&self, name: &str) {
        let Some(owner) = self.running(name) else { return };
        if let Err(TrySendError::Full(look)) = owner.try_send(Command::Letters) {
            // By itself, the owner might not look again for an hour.
            tokio::spawn(async move {
                // An owner that has ended looks when it begins again.
                let _ = owner.send(look).await;
            });
        }
    }

    /// Settles deliveries of the handler's own events, each with its effects.
    async fn settle_own(&self, name: &str, settling: Vec<Settling>) -> Result<Vec<SettleResult>, HandlerError> {
        let owner = self.owner(name).await?;
        let (answer, answered) = oneshot::channel();
        let closed = || {
            HandlerError::Store(StoreError::Unreachable("the handler was restarted in the meantime; retry".to_owned()))
        };
        owner.send(Command::Settle { settling, answer }).await.map_err(|_| closed())?;
        answered.await.map_err(|_| closed())?
    }

    /// Deletes the records of a collection that match a condition, batch by batch.
    async fn delete_all(&self, collection: &str, which: Condition) -> Result<(), HandlerError> {
        let query = RecordQuery::new(collection).matching(which).limit(limits::PAGE_MAX);
        loop {
            let page = match self.records.find(query.clone()).await {
                Err(RecordError::UnknownCollection(_)) => return Ok(()),
                page => page?,
            };
            let delete = |record: &annals_core::Record| {
                let id = record.document.get("_id").ok().flatten()?;
                let id = annals_core::bson::Bson::try_from(id).ok()?;
                Some(RecordChange::delete_if(collection, id, Expected::AbsentOr(Condition::All)))
            };
            let changes: Vec<_> = page.records.iter().filter_map(delete).collect();
            if changes.is_empty() {
                return Ok(());
            }
            self.records.write(changes).await?;
        }
    }

    /// Stores a definition, and applies it to the owner in this process.
    async fn define(&self, definition: HandlerDefinition) -> Result<bool, HandlerError> {
        self.open()?;
        definition.validate()?;
        let definition = self.canonical(definition);
        let source = self.source(&definition)?;
        let records = Arc::clone(&self.records);
        let handlers = TypedRecords::<DefinitionRecord>::declare_as(records, self.kind.definitions()).await?;
        loop {
            let Some(found) = handlers.get(&*definition.name).await? else {
                // "Latest" means the time of definition, not of the first pull, so the start is stored as a position.
                let start = source.start(definition.start).await?;
                let identity = self.shared.store.identity(&self.tenant).ok_or(StoreError::Closed)?;
                let record = DefinitionRecord::of(&definition, start, &identity, self.clock().now());
                match handlers.insert(&record).await {
                    Ok(_) => return Ok(true),
                    Err(RecordError::DuplicateKey { .. }) => continue,
                    Err(error) => return Err(error.into()),
                }
            };
            let known = found.value.read()?;
            if let Some(setting) = known.fixed_difference(&definition) {
                return Err(HandlerError::Changed { name: definition.name.clone(), setting: setting.to_owned() });
            }
            if known.write() != definition.write() {
                let record = DefinitionRecord { definition: definition.write(), ..found.value };
                match handlers.replace_if(&record, Expected::Revision(found.revision)).await {
                    Ok(_) => {}
                    Err(RecordError::NotAsExpected { .. }) => continue,
                    Err(error) => return Err(error.into()),
                }
                if let Some(owner) = self.running(&definition.name) {
                    let _ = owner.send(Command::Redefine { definition: Box::new(definition) }).await;
                }
            }
            return Ok(false);
        }
    }

    /// Deletes a definition, ends the owner in this process, and deletes the processor's stored state.
    async fn remove(&self, name: &str, reason: Reason) -> Result<(), HandlerError> {
        self.open()?;
        reason.validate()?;
        self.definition(name).await?;
        let any = || Expected::AbsentOr(Condition::All);
        self.records.declare(<ActRecord as RecordType>::collection()).await?;
        // Sorts it after every write of the owner.
        let place = (self.clock().now(), u64::MAX, self.shared.options.random.bits());
        let act = ActRecord::new(&self.kind.processor_of(name), "delete", reason, place);
        let recorded = TypedRecords::replacement(&act, any())?;
        let deleted = RecordChange::delete_if(self.kind.definitions(), name, Expected::Present);
        match self.records.write(vec![deleted, recorded]).await {
            Err(RecordError::NotAsExpected { .. }) => return Err(HandlerError::Unknown(name.into())),
            written => written?,
        };
        if let Some(owner) = self.running(name) {
            let (answer, answered) = oneshot::channel();
            if owner.send(Command::Delete { answer }).await.is_ok() {
                let _ = answered.await;
                // The owner may still write after its answer; wait until its channel is closed.
                owner.closed().await;
            }
        }
        let processor = self.kind.processor_of(name);
        match self.records.delete_if(PROCESSORS, processor.as_str().into(), any()).await {
            Ok(_) | Err(RecordError::UnknownCollection(_)) => {}
            Err(error) => return Err(error.into()),
        }
        self.delete_all(FAILING_PARTITIONS, partitions_of(&processor)).await?;
        self.delete_all(PARKED_EVENTS, partitions_of(&processor)).await?;
        self.delete_all(GUARDED, Condition::eq("processor", processor)).await
    }
}

#[async_trait]
impl Handlers for TenantHandlers {
    async fn put(&self, definition: HandlerDefinition) -> Result<bool, HandlerError> {
        let handlers = self.me.upgrade().ok_or(StoreError::Closed)?;
        detached(async move { handlers.define(definition).await }).await
    }

    async fn list(&self, after: Option<&str>, limit: usize) -> Result<HandlerPage, HandlerError> {
        self.list_page(after, limit).await
    }

    async fn get(&self, name: &str) -> Result<HandlerStatus, HandlerError> {
        self.status(self.definition(name).await?).await
    }

    async fn delete(&self, name: &str, reason: Reason) -> Result<(), HandlerError> {
        let (handlers, name) = (self.me.upgrade().ok_or(StoreError::Closed)?, name.to_owned());
        detached(async move { handlers.remove(&name, reason).await }).await
    }

    async fn pull(&self, name: &str, pull: PullBody) -> Result<Vec<Delivery>, HandlerError> {
        pull.validate()?;
        self.take(name, pull, false).await
    }

    async fn settle(&self, name: &str, settle: SettleBody) -> Result<Vec<SettleResult>, HandlerError> {
        let alone = |settlement| Settling { settlements: vec![settlement], effects: Vec::new() };
        self.settle_all(name, settle.results.into_iter().map(alone).collect()).await
    }

    async fn partitions(&self, name: &str, after: Option<&str>, limit: usize) -> Result<PartitionPage, HandlerError> {
        self.partitions_page(name, after, limit).await
    }

    async fn act(&self, name: &str, act: Act, reason: Reason) -> Result<(), HandlerError> {
        self.carry_out(name, act, reason).await
    }

    async fn acts(&self, name: &str, after: Option<&str>, limit: usize) -> Result<ActPage, HandlerError> {
        self.acts_page(name, after, limit).await
    }

    async fn states(&self, scope: &str) -> Result<Vec<Document>, HandlerError> {
        self.state_documents(scope).await
    }
}
