//! The projections of a tenant: their stored state, and the builds that run in this process. The contract is [`Projections`].
//!
//! ```text
//!  PUT ─▶ ProjectionRecord ─┬─ live ─────▶ build.rs ─▶ fold.rs ─▶ records of one collection ◀── reads
//!           one batch       ├─ building ─▶ build.rs ─▶ fold.rs ─▶ records of another one; swap.rs once it has caught up
//!           changes it      └─ dropped ──▶ removal.rs: deletes records, 1,000 at a time
//! ```

mod acts;
mod build;
mod definitions;
mod fold;
mod removal;
mod restored;
mod retained;
mod status;
mod swap;
mod waiting;

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};

use annals_core::browse::browse_indexes;
use annals_core::bson::Bson;
use annals_core::handlers::{ActPage, ActRecord, PROCESSORS, ProcessorRecord, Reason};
use annals_core::projections::{
    BuildRecord, ProjectionAct, ProjectionDefinition, ProjectionError, ProjectionPage, ProjectionRecord,
    ProjectionStatus, Projections, Projector, PutProjection, Reducer,
};
use annals_core::{
    Clock, Code, Collection, Condition, DEFAULT_SCOPE, EventLog, Expected, Identity, Invalid, Record, RecordChange,
    RecordError, RecordPage, RecordQuery, RecordType, Records, Revision, StoreError, Stored, Streams, TextLanguage,
    TypedRecords, UnknownLog,
};
use async_trait::async_trait;
use tokio::sync::watch;

use crate::engine::source::Source;
use crate::host::{Shared, detached, locked, supervise};
use build::Build;

/// The projections of one tenant in this process.
pub(crate) struct TenantProjections {
    shared: Arc<Shared>,
    tenant: String,
    records: Arc<dyn Records>,
    log: Arc<dyn EventLog>,
    streams: Arc<dyn Streams>,
    /// The reducers of this program, by projection and version.
    reducers: Mutex<HashMap<(String, u32), Arc<Reducer>>>,
    /// The builds that run in this process, by projection and number.
    builds: Mutex<HashMap<(String, i64), Running>>,
    /// The projections whose dropped builds this process is removing.
    removing: Mutex<HashSet<String>>,
    started: AtomicBool,
    me: Weak<Self>,
}

/// The stored record of a projection, with its revision.
type Seen = (Revision, Arc<ProjectionRecord>);

/// A build in this process.
struct Running {
    seen: watch::Sender<Seen>,
    /// Every event below it is folded and stored, or does not match the projection's source. Closed once the build has ended.
    position: watch::Receiver<u64>,
}

impl TenantProjections {
    pub fn new(shared: Arc<Shared>, tenant: &str) -> Result<Arc<Self>, UnknownLog> {
        let records = shared.store.records(tenant)?;
        let log = shared.store.log(tenant, DEFAULT_SCOPE)?;
        let streams = shared.store.streams(tenant, DEFAULT_SCOPE)?;
        Ok(Arc::new_cyclic(|me| Self {
            shared,
            tenant: tenant.to_owned(),
            records,
            log,
            streams,
            reducers: Mutex::default(),
            builds: Mutex::default(),
            removing: Mutex::default(),
            started: AtomicBool::new(false),
            me: Weak::clone(me),
        }))
    }

    fn clock(&self) -> &dyn Clock {
        &*self.shared.options.clock
    }

    fn open(&self) -> Result<(), ProjectionError> {
        if *self.shared.stop.borrow() { Err(StoreError::Closed.into()) } else { Ok(()) }
    }

    fn identity(&self) -> Result<Identity, ProjectionError> {
        Ok(self.shared.store.identity(&self.tenant).ok_or(StoreError::Closed)?)
    }

    fn typed(&self) -> TypedRecords<ProjectionRecord> {
        TypedRecords::declared(Arc::clone(&self.records))
    }

    /// Reads the record of a projection, including deleted ones.
    async fn stored(&self, name: &str) -> Result<Option<Stored<ProjectionRecord>>, ProjectionError> {
        match self.typed().get(name).await {
            Err(RecordError::UnknownCollection(_)) => Ok(None),
            found => Ok(found?),
        }
    }

    /// Returns the collection of a projection's live records.
    pub(crate) async fn collection(&self, name: &str) -> Result<String, ProjectionError> {
        let (record, live) = self.defined(name).await?;
        Ok(record.value.collection_of(live.slot))
    }

    /// Returns the numbers and collections of a projection's live build and of the one that is being built beside it; empty if the
    /// projection is not defined.
    pub(crate) async fn builds_of(&self, name: &str) -> Result<Vec<(i64, String)>, ProjectionError> {
        let Some(found) = self.stored(name).await? else { return Ok(Vec::new()) };
        let record = &found.value;
        let Some(live) = &record.live else { return Ok(Vec::new()) };
        let builds = std::iter::once(live).chain(&record.building);
        Ok(builds.map(|build| (build.number, record.collection_of(build.slot))).collect())
    }

    /// Returns a defined projection and its live build.
    async fn defined(&self, name: &str) -> Result<(Stored<ProjectionRecord>, BuildRecord), ProjectionError> {
        self.open()?;
        let found = self.stored(name).await?;
        let live = found.as_ref().and_then(|found| found.value.live.clone());
        found.zip(live).ok_or_else(|| ProjectionError::Unknown(name.into()))
    }

    /// Registers the reducer for the builds of this program's definition.
    pub fn register(&self, definition: &ProjectionDefinition, reducer: Arc<Reducer>) {
        let key = (definition.name.to_string(), definition.version());
        locked(&self.reducers).insert(key, reducer);
    }

    pub(crate) fn source(&self, definition: &ProjectionDefinition) -> Source {
        Source::of(&definition.source(), Arc::clone(&self.log), Arc::clone(&self.streams))
    }

    /// Starts the defined projections, unless that has happened, and follows definitions by other processes.
    pub fn start(&self) {
        if !self.started.swap(true, Ordering::Relaxed) {
            self.follow_definitions();
        }
    }

    /// Reads a projection, and starts and ends its builds in this process accordingly.
    async fn sync(&self, name: &str) -> Result<(), ProjectionError> {
        if let Some(found) = self.stored(name).await?
            && self.started.load(Ordering::Relaxed)
        {
            self.arrange(name, &(found.revision, Arc::new(found.value)));
        }
        Ok(())
    }

    fn arrange(&self, name: &str, seen: &Seen) {
        let mut builds = locked(&self.builds);
        builds.retain(|_, running| running.position.has_changed().is_ok());
        for (_, running) in builds.iter().filter(|((of, _), _)| of == name) {
            // An older read may arrive later.
            running.seen.send_if_modified(|known| {
                let is_newer = known.0 < seen.0;
                if is_newer {
                    known.clone_from(seen);
                }
                is_newer
            });
        }
        for build in seen.1.live.iter().chain(&seen.1.building) {
            let key = (name.to_owned(), build.number);
            if !builds.contains_key(&key)
                && let Some(running) = self.start_build(name, build, seen)
            {
                builds.insert(key, running);
            }
        }
        if !seen.1.dropped.is_empty() {
            self.remove_dropped(name);
        }
    }

    /// Starts a build, if this process can run it.
    fn start_build(&self, name: &str, build: &BuildRecord, seen: &Seen) -> Option<Running> {
        let projections = self.me.upgrade()?;
        let definition =
            build.read(name).inspect_err(|error| tracing::warn!(%error, "a projection cannot run")).ok()?;
        let reducer = locked(&self.reducers).get(&(name.to_owned(), definition.version())).cloned();
        let reducer = match definition.is_program() {
            true => Some(reducer?),
            false => None,
        };
        let (seen, watched) = watch::channel(seen.clone());
        let (publish, position) = watch::channel(0);
        let task = format!("projection/{}/{name}/{}", self.tenant, build.number);
        let build = Build {
            source: self.source(&definition),
            projector: Projector::new(definition, reducer),
            projections,
            build: build.clone(),
            seen: watched,
            position: publish,
        };
        supervise(&self.shared, task, build);
        Some(Running { seen, position })
    }

    /// Declares the collection of a build.
    async fn declare_records(&self, definition: &ProjectionDefinition, name: &str) -> Result<(), RecordError> {
        let declare = |indexes| self.records.declare(Collection { indexes, ..Collection::new(name) });
        if !definition.is_browse() {
            return declare(definition.indexes().to_vec()).await;
        }
        match declare(browse_indexes(TextLanguage::English)).await {
            Err(RecordError::Store(StoreError::NotSupported(_))) => declare(browse_indexes(TextLanguage::None)).await,
            declared => declared,
        }
    }

    /// Declares the collection of a new build, and returns the change that creates its processor.
    async fn prepared(
        &self,
        record: &ProjectionRecord,
        build: &BuildRecord,
        definition: &ProjectionDefinition,
    ) -> Result<RecordChange, ProjectionError> {
        self.declare_records(definition, &record.collection_of(build.slot)).await?;
        let processor = ProcessorRecord::unowned(record.processor_of(build.number), &self.identity()?);
        Ok(TypedRecords::replacement(&processor, whatever())?)
    }

    /// Writes a changed projection together with related changes. Returns false if it has changed since it was read.
    async fn write(
        &self,
        record: &ProjectionRecord,
        expected: Expected,
        beside: Vec<RecordChange>,
    ) -> Result<bool, ProjectionError> {
        let mut changes = vec![TypedRecords::replacement(record, expected)?];
        changes.extend(beside);
        match self.records.write(changes).await {
            Ok(_) => Ok(true),
            Err(RecordError::NotAsExpected { change: 0, .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    async fn declare(&self) -> Result<(), ProjectionError> {
        self.records.declare(<ProjectionRecord as RecordType>::collection()).await?;
        self.records.declare(<ProcessorRecord as RecordType>::collection()).await?;
        Ok(self.records.declare(<ActRecord as RecordType>::collection()).await?)
    }

    /// Defines a projection, and starts and ends its builds in this process accordingly.
    async fn define(&self, definition: ProjectionDefinition) -> Result<PutProjection, ProjectionError> {
        self.open()?;
        definition.validate()?;
        let name = definition.name.to_string();
        if definition.is_program() && !locked(&self.reducers).contains_key(&(name.clone(), definition.version())) {
            let message = "is a function that only its own program can register";
            return Err(Invalid::new(Code::InvalidProjection, "reducer", message).into());
        }
        self.declare().await?;
        self.start();
        loop {
            let found = self.stored(&name).await?;
            let (mut record, expected) = match found {
                Some(found) => (found.value, Expected::Revision(found.revision)),
                None => (ProjectionRecord::new(&name, self.clock().now()), Expected::Absent),
            };
            let Some(changed) = self.redefined(&mut record, &definition)? else {
                self.sync(&name).await?;
                return Ok(PutProjection::Unchanged);
            };
            let mut beside = Vec::new();
            if let Some(build) = &changed.begun {
                beside.push(self.prepared(&record, build, &definition).await?);
            }
            beside.extend(changed.dropped.iter().map(|build| ended(&record, build)));
            if self.write(&record, expected, beside).await? {
                self.sync(&name).await?;
                return Ok(changed.put);
            }
        }
    }

    /// Applies a definition to a projection. Returns what changes; `None` if nothing does.
    fn redefined(
        &self,
        record: &mut ProjectionRecord,
        definition: &ProjectionDefinition,
    ) -> Result<Option<Redefined>, ProjectionError> {
        let (text, now) = (definition.write(), self.clock().now());
        let Some(newest) = record.newest().cloned() else {
            let build = record.begin(text, "it was defined".to_owned(), now);
            record.live = Some(build.clone());
            record.paused = false;
            return Ok(Some(Redefined { begun: Some(build), dropped: None, put: PutProjection::Created }));
        };
        if newest.definition == text {
            return Ok(None);
        }
        let known = newest.read(&record.name)?.version();
        if known > definition.version() {
            return Err(ProjectionError::NotAllowed {
                act: "define".to_owned(),
                what: format!("version {} of projection {:?}", definition.version(), record.name),
                state: format!("version {known} is already defined; give the new definition a higher version"),
            });
        }
        let dropped = record.building.take();
        dropped.iter().for_each(|build| record.drop_build(build));
        // The live records are of this definition again.
        let begun = match &record.live {
            Some(live) if live.definition == text => None,
            _ => Some(record.begin(text, "its definition changed".to_owned(), now)),
        };
        record.building.clone_from(&begun);
        Ok(Some(Redefined { begun, dropped, put: PutProjection::Changed }))
    }
}

/// The changes that follow from a definition.
struct Redefined {
    begun: Option<BuildRecord>,
    dropped: Option<BuildRecord>,
    put: PutProjection,
}

fn whatever() -> Expected {
    Expected::AbsentOr(Condition::All)
}

/// Returns the change that deletes the processor of a build, so that its owner can write nothing more.
fn ended(record: &ProjectionRecord, build: &BuildRecord) -> RecordChange {
    RecordChange::delete_if(PROCESSORS, record.processor_of(build.number), whatever())
}

#[async_trait]
impl Projections for TenantProjections {
    async fn put(&self, definition: ProjectionDefinition) -> Result<PutProjection, ProjectionError> {
        let projections = self.me.upgrade().ok_or(StoreError::Closed)?;
        detached(async move { projections.define(definition).await }).await
    }

    async fn list(&self, after: Option<&str>, limit: usize) -> Result<ProjectionPage, ProjectionError> {
        self.list_page(after, limit).await
    }

    async fn get(&self, name: &str) -> Result<ProjectionStatus, ProjectionError> {
        let (record, live) = self.defined(name).await?;
        self.status(&record.value, &live).await
    }

    async fn delete(&self, name: &str, reason: Reason) -> Result<(), ProjectionError> {
        let (projections, name) = (self.me.upgrade().ok_or(StoreError::Closed)?, name.to_owned());
        detached(async move { projections.delete_recorded(&name, reason).await }).await
    }

    async fn act(&self, name: &str, act: ProjectionAct, reason: Reason) -> Result<(), ProjectionError> {
        let (projections, name) = (self.me.upgrade().ok_or(StoreError::Closed)?, name.to_owned());
        detached(async move { projections.carry_out(&name, act, reason).await }).await
    }

    async fn acts(&self, name: &str, after: Option<&str>, limit: usize) -> Result<ActPage, ProjectionError> {
        self.acts_page(name, after, limit).await
    }

    async fn find(&self, name: &str, query: RecordQuery) -> Result<RecordPage, ProjectionError> {
        loop {
            let (record, live) = self.defined(name).await?;
            let query = RecordQuery { collection: record.value.collection_of(live.slot), ..query.clone() };
            let page = self.records.find(query).await?;
            // Records are removed only after another build has become live.
            if self.defined(name).await?.1.number == live.number {
                return Ok(page);
            }
        }
    }

    async fn record(&self, name: &str, key: &Bson) -> Result<Option<Record>, ProjectionError> {
        loop {
            let (record, live) = self.defined(name).await?;
            let found = self.records.get(&record.value.collection_of(live.slot), key).await?;
            if self.defined(name).await?.1.number == live.number {
                return Ok(found);
            }
        }
    }
}
