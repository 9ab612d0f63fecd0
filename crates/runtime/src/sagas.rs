//! The sagas of a tenant: their definitions, and the owners of those that this process runs. The contract is [`Sagas`].
//!
//! ```text
//!  log ─▶ engine/reader.rs ─▶ owner.rs ─▶ core: SagaMachine ─▶ one batch of records: position, sagas with their outboxes
//!                               ▲ ▲                                      │
//!         index: what is due ───┘ └── sending.rs: commits, functions ◀───┘
//! ```

mod acts;
mod definitions;
mod owner;
mod sending;
mod status;
mod write;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};

use annals_core::handlers::{ActRecord, PROCESSORS, ProcessorRecord, Reason};
use annals_core::sagas::{
    PutSaga, SAGA_DEFINITIONS, SagaDefinition, SagaDefinitionPage, SagaDefinitionRecord, SagaDefinitionStatus,
    SagaError, SagaPage, SagaQuery, SagaRecord, SagaRequestRecord, SagaStart, SagaStatistics, SagaStatus, Sagas,
};
use annals_core::{
    Clock, Code, Condition, DEFAULT_SCOPE, EventLog, Expected, Invalid, RecordChange, RecordError, RecordType, Records,
    Revision, StoreError, Stored, Streams, TypedRecords, UnknownLog,
};
use async_trait::async_trait;
use tokio::sync::{Notify, watch};

use crate::engine::journal::Journal;
use crate::engine::source::Source;
use crate::host::{Shared, locked, supervise};
use crate::saga::{Function, SagaProgram};
use owner::Owner;

/// The sagas of one tenant in this process.
pub struct HostSagas {
    shared: Arc<Shared>,
    tenant: String,
    records: Arc<dyn Records>,
    log: Arc<dyn EventLog>,
    streams: Arc<dyn Streams>,
    /// The functions of this program, by definition and version.
    programs: Mutex<HashMap<(String, i64), HashMap<String, Function>>>,
    running: Mutex<HashMap<String, Running>>,
    /// Counts the batches that owners in this process wrote.
    written: watch::Sender<u64>,
    started: AtomicBool,
    me: Weak<Self>,
}

impl std::fmt::Debug for HostSagas {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HostSagas").field("tenant", &self.tenant).finish_non_exhaustive()
    }
}

/// The stored record of a definition, with its revision.
type Seen = (Revision, Arc<SagaDefinitionRecord>);

/// A definition that this process runs, or stands by for.
struct Running {
    seen: watch::Sender<Seen>,
    /// Every event below it has been applied. Closed once the owner has ended.
    position: watch::Receiver<u64>,
    /// Signals that an operator has requested an act on one of its sagas.
    wake: Arc<Notify>,
}

impl HostSagas {
    pub(crate) fn new(shared: Arc<Shared>, tenant: &str) -> Result<Arc<Self>, UnknownLog> {
        let records = shared.store.records(tenant)?;
        let log = shared.store.log(tenant, DEFAULT_SCOPE)?;
        let streams = shared.store.streams(tenant, DEFAULT_SCOPE)?;
        Ok(Arc::new_cyclic(|me| Self {
            shared,
            tenant: tenant.to_owned(),
            records,
            log,
            streams,
            programs: Mutex::default(),
            running: Mutex::default(),
            written: watch::Sender::new(0),
            started: AtomicBool::new(false),
            me: Weak::clone(me),
        }))
    }

    /// Defines sagas whose steps are functions of this program, and runs them for as long as the host runs.
    ///
    /// # Errors
    /// `invalid_saga` if a function is missing; else as [`Sagas::define`].
    pub async fn register(&self, program: SagaProgram) -> Result<PutSaga, SagaError> {
        let SagaProgram { definition, functions } = program;
        if let Some(missing) = definition.functions().into_iter().find(|name| !functions.contains_key(*name)) {
            let message = format!("contain {missing:?}, for which the program has no function");
            return Err(Invalid::new(Code::InvalidSaga, "steps", message).into());
        }
        let name = definition.name.to_string();
        let (put, version) = self.put(definition).await?;
        locked(&self.programs).insert((name.clone(), version), functions);
        self.sync(&name).await?;
        Ok(put)
    }

    fn clock(&self) -> &dyn Clock {
        &*self.shared.options.clock
    }

    fn open(&self) -> Result<(), SagaError> {
        if *self.shared.stop.borrow() { Err(StoreError::Closed.into()) } else { Ok(()) }
    }

    fn typed<T: RecordType>(&self) -> TypedRecords<T> {
        TypedRecords::declared(Arc::clone(&self.records))
    }

    async fn stored(&self, name: &str) -> Result<Option<Stored<SagaDefinitionRecord>>, SagaError> {
        match self.typed::<SagaDefinitionRecord>().get(name).await {
            Err(RecordError::UnknownCollection(_)) => Ok(None),
            found => Ok(found?),
        }
    }

    async fn defined(&self, name: &str) -> Result<Stored<SagaDefinitionRecord>, SagaError> {
        self.open()?;
        self.stored(name).await?.ok_or_else(|| SagaError::UnknownDefinition(name.into()))
    }

    async fn declare(&self) -> Result<(), SagaError> {
        Journal::declare(&self.records).await?;
        self.records.declare(SagaDefinitionRecord::collection()).await?;
        self.records.declare(SagaRequestRecord::collection()).await?;
        Ok(self.records.declare(SagaRecord::collection()).await?)
    }

    /// Starts the defined sagas, unless that has happened, and follows definitions and requests by other processes.
    pub(crate) fn start(&self) {
        if !self.started.swap(true, Ordering::Relaxed) {
            self.follow_definitions();
        }
    }

    pub(crate) fn source(&self, definitions: &[SagaDefinition], name: &str) -> Source {
        let source = SagaDefinition::source(definitions, name);
        Source::of(&source, Arc::clone(&self.log), Arc::clone(&self.streams))
    }

    /// Reads a definition, and starts or ends its owner in this process accordingly.
    async fn sync(&self, name: &str) -> Result<(), SagaError> {
        if self.started.load(Ordering::Relaxed) {
            match self.stored(name).await? {
                Some(found) => self.arrange(name, (found.revision, Arc::new(found.value))),
                // Its owner ends once its channels are dropped.
                None => drop(locked(&self.running).remove(name)),
            }
        }
        Ok(())
    }

    fn arrange(&self, name: &str, seen: Seen) {
        let mut running = locked(&self.running);
        running.retain(|_, running| running.position.has_changed().is_ok());
        if let Some(known) = running.get(name) {
            // An older read may arrive later.
            known.seen.send_if_modified(|known| {
                let is_newer = known.0 < seen.0;
                if is_newer {
                    known.clone_from(&seen);
                }
                is_newer
            });
            return;
        }
        if !self.can_carry_out(name, &seen.1) {
            return;
        }
        let Some(sagas) = self.me.upgrade() else { return };
        let (seen, watched) = watch::channel(seen);
        let (publish, position) = watch::channel(0);
        let wake = Arc::new(Notify::new());
        let owner = Owner::new(sagas, name.to_owned(), watched, publish, Arc::clone(&wake));
        supervise(&self.shared, format!("saga/{}/{name}", self.tenant), owner);
        running.insert(name.to_owned(), Running { seen, position, wake });
    }

    /// Returns whether this process has every function that the newest version needs.
    fn can_carry_out(&self, name: &str, record: &SagaDefinitionRecord) -> bool {
        let Some(newest) = record.versions.last() else { return false };
        match newest.read(name) {
            Err(error) => {
                tracing::warn!(%error, "cannot run the sagas of a definition");
                false
            }
            Ok(definition) => {
                let functions = definition.functions();
                let programs = locked(&self.programs);
                let known = programs.get(&(name.to_owned(), newest.version));
                functions.iter().all(|name| known.is_some_and(|known| known.contains_key(*name)))
            }
        }
    }

    fn function(&self, name: &str, version: i64, step: &str) -> Option<Function> {
        locked(&self.programs).get(&(name.to_owned(), version))?.get(step).cloned()
    }

    fn wake(&self, name: &str) {
        if let Some(running) = locked(&self.running).get(name) {
            running.wake.notify_one();
        }
    }

    /// Stores a definition. Returns what changed, and its version.
    async fn put(&self, definition: SagaDefinition) -> Result<(PutSaga, i64), SagaError> {
        self.open()?;
        self.declare().await?;
        self.start();
        let name = definition.name.to_string();
        loop {
            let found = self.stored(&name).await?;
            let (change, put, version) = match &found {
                None => {
                    let version = definition.version().unwrap_or(1);
                    let mut record = SagaDefinitionRecord::new(&name, self.clock().now());
                    record.add(version, &definition.clone().with_version(version), self.clock().now());
                    let change = TypedRecords::replacement(&record, Expected::Absent)?;
                    (vec![change, self.processor(&record, &definition).await?], PutSaga::Created, version)
                }
                Some(found) => match further(&found.value, &definition)? {
                    Further::Known(version) => {
                        self.sync(&name).await?;
                        return Ok((PutSaga::Unchanged, version));
                    }
                    Further::New(version) => {
                        let mut record = found.value.clone();
                        record.add(version, &definition.clone().with_version(version), self.clock().now());
                        let change = TypedRecords::replacement(&record, Expected::Revision(found.revision))?;
                        (vec![change], PutSaga::Changed, version)
                    }
                },
            };
            match self.records.write(change).await {
                Err(RecordError::NotAsExpected { change: 0, .. }) => {}
                written => {
                    written?;
                    self.sync(&name).await?;
                    return Ok((put, version.into()));
                }
            }
        }
    }

    /// Returns the change that creates the processor of a new definition.
    async fn processor(
        &self,
        record: &SagaDefinitionRecord,
        definition: &SagaDefinition,
    ) -> Result<RecordChange, SagaError> {
        let identity = self.shared.store.identity(&self.tenant).ok_or(StoreError::Closed)?;
        let mut processor = ProcessorRecord::unowned(record.processor(), &identity);
        if definition.start() == SagaStart::Latest {
            processor.position = self.log.head().await?.cast_signed();
        }
        Ok(TypedRecords::replacement(&processor, whatever())?)
    }
}

enum Further {
    Known(i64),
    New(u32),
}

/// Compares a definition with the stored versions.
fn further(record: &SagaDefinitionRecord, definition: &SagaDefinition) -> Result<Further, SagaError> {
    let Some(newest) = record.versions.last() else { return Ok(Further::New(definition.version().unwrap_or(1))) };
    let wanted = definition.version().map(i64::from);
    for known in record.versions.iter().rev() {
        let is_meant = wanted.map_or(known.version == newest.version, |wanted| wanted == known.version);
        if is_meant && !definition.differs(&known.read(&record.name)?) {
            return Ok(Further::Known(known.version));
        }
    }
    match wanted {
        Some(wanted) if wanted <= newest.version => Err(SagaError::NotAllowed {
            act: "define".to_owned(),
            what: format!("version {wanted} of saga definition {:?}", record.name),
            state: format!(
                "version {} is already defined; give the new definition a higher version, or none",
                newest.version
            ),
        }),
        _ => {
            let next = wanted.unwrap_or(newest.version + 1);
            Ok(Further::New(u32::try_from(next).unwrap_or(u32::MAX)))
        }
    }
}

fn whatever() -> Expected {
    Expected::AbsentOr(Condition::All)
}

#[async_trait]
impl Sagas for HostSagas {
    async fn define(&self, definition: SagaDefinition) -> Result<PutSaga, SagaError> {
        if let Some(at) = definition.program_step() {
            let message = "is a function that only its own program can register";
            return Err(Invalid::new(Code::InvalidSaga, at, message).into());
        }
        Ok(self.put(definition).await?.0)
    }

    async fn definitions(&self, after: Option<&str>, limit: usize) -> Result<SagaDefinitionPage, SagaError> {
        self.definitions_page(after, limit).await
    }

    async fn definition(&self, name: &str) -> Result<SagaDefinitionStatus, SagaError> {
        let found = self.defined(name).await?;
        self.definition_status(&found.value).await
    }

    async fn delete_definition(&self, name: &str, reason: Reason) -> Result<(), SagaError> {
        reason.validate()?;
        self.declare().await?;
        loop {
            let found = self.defined(name).await?;
            let active = self.active(name).await?;
            if active > 0 {
                return Err(SagaError::NotAllowed {
                    act: "delete".to_owned(),
                    what: format!("saga definition {name:?}"),
                    state: format!("{active} of its sagas have not ended; cancel them or wait until they end"),
                });
            }
            let act = self.recorded(&found.value.processor(), "delete", reason.clone())?;
            let gone = RecordChange::delete_if(SAGA_DEFINITIONS, name, Expected::Revision(found.revision));
            let processor = RecordChange::delete_if(PROCESSORS, found.value.processor(), whatever());
            match self.records.write(vec![gone, processor, act]).await {
                Err(RecordError::NotAsExpected { change: 0, .. }) => {}
                written => {
                    written?;
                    return self.sync(name).await;
                }
            }
        }
    }

    async fn list(&self, query: SagaQuery) -> Result<SagaPage, SagaError> {
        self.page(query).await
    }

    async fn get(&self, id: &str) -> Result<SagaStatus, SagaError> {
        Ok(self.saga(id).await?.status())
    }

    async fn cancel(&self, id: &str, reason: Reason) -> Result<SagaStatus, SagaError> {
        self.ask(id, "cancel", reason).await
    }

    async fn retry(&self, id: &str, reason: Reason) -> Result<SagaStatus, SagaError> {
        self.ask(id, "retry", reason).await
    }

    async fn statistics(&self, name: Option<&str>) -> Result<SagaStatistics, SagaError> {
        self.counted(name).await
    }
}

impl HostSagas {
    /// Returns the change that records an act.
    fn recorded(&self, of: &str, act: &str, reason: Reason) -> Result<RecordChange, SagaError> {
        let place = (self.clock().now(), 0, self.shared.options.random.bits());
        Ok(TypedRecords::replacement(&ActRecord::new(of, act, reason, place), whatever())?)
    }
}
