//! The health of every handler, filter, projection, saga and subscription, derived from the store. What a worker or an owner claims about
//! itself does not count.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use annals_core::dead_letters::{CRITICAL_ABOVE, Level, WARNING_ABOVE};
use annals_core::filters::{FilterDefinition, FilterFailureRecord, FilterProgressRecord, FilterRecord};
use annals_core::handlers::{DefinitionRecord, ProcessorRecord};
use annals_core::processing::Vitals;
use annals_core::projections::{BuildRecord, ProjectionRecord};
use annals_core::sagas::SagaDefinitionRecord;
use annals_core::spread::ProcessRecord;
use annals_core::{
    Condition, Lease, ReadError, RecordError, RecordQuery, RecordType, Records, StoreError, Timestamp, TypedRecords,
    limits,
};
use futures_util::future::{BoxFuture, FutureExt};

use crate::filters::TenantFilters;
use crate::groups::GROUPS;
use crate::handlers::TenantHandlers;
use crate::host::{Host, Shared};
use crate::projections::TenantProjections;
use crate::sagas::HostSagas;

/// How long a result is reused, so that frequent probes cost little.
const KEPT: Duration = Duration::from_secs(1);
/// How long the store may take to respond before it is reported as unresponsive.
const PATIENCE: Duration = Duration::from_secs(2);

/// The result of reading the health of all processors.
pub(crate) type Read = Result<Arc<Vec<ProcessorHealth>>, ReadError>;

/// The health of a handler, filter, projection, subscription, or of the sagas of a definition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessorHealth {
    /// Its tenant.
    pub tenant: String,
    /// `handler`, `group`, `filter`, `projection`, `saga`, `subscription`, `archive`, or `dead_letters` while too many are open.
    pub kind: &'static str,
    /// Its name; for a filter outside the default scope, `SCOPE/STREAM`.
    pub name: String,
    /// Everything below this position of its source is processed, or belongs to a failing partition.
    pub position: u64,
    /// The number of events in its source.
    pub head: u64,
    /// The age in seconds of the oldest event that it has not processed; 0 if there is none.
    pub lag_seconds: u64,
    /// Seconds since it last progressed, or since it was defined.
    pub seconds_since_progress: u64,
    /// The number of failing partitions.
    pub failing: u64,
    /// The number of failing partitions that are blocked until an operator acts.
    pub blocked: u64,
    /// The number of its open dead letters.
    pub letters: u64,
    /// The process that runs it, if any.
    pub owner: Option<String>,
    /// Why it is degraded; `None` if it is healthy.
    pub degraded: Option<String>,
}

impl ProcessorHealth {
    /// Returns the number of positions of its source that it has not processed.
    pub fn lag(&self) -> u64 {
        self.head.saturating_sub(self.position)
    }
}

/// What is known about a processor before its source is read.
pub(crate) struct Known<'a> {
    pub position: u64,
    pub head: u64,
    pub oldest: u64,
    pub now: Timestamp,
    pub is_owned: bool,
    /// When it last progressed, or was defined.
    pub progressed: Timestamp,
    pub stored: Option<&'a ProcessorRecord>,
}

impl<'a> Known<'a> {
    /// Returns the vital signs of a processor whose state is a [`ProcessorRecord`].
    pub fn vitals(&self) -> Vitals<'a> {
        let stored = self.stored;
        let number = |of: fn(&ProcessorRecord) -> i64| stored.map_or(0, |stored| of(stored).cast_unsigned());
        Vitals {
            is_blocked: stored.is_some_and(|it| it.is_blocked),
            is_held: false,
            is_at_rest: stored.is_some_and(|it| it.paused || it.ended),
            is_owned: self.is_owned,
            failing: number(|it| it.failing),
            stuck: number(|it| it.blocked),
            oldest: self.oldest,
            since_progress: self.now.since(self.progressed).as_secs(),
            reason: stored.and_then(|it| it.last_reason.as_deref()),
        }
    }
}

impl Host {
    /// Returns the health of every handler, filter, projection, saga definition and subscription of all tenants, from the store. The
    /// result is at most one second old.
    ///
    /// # Errors
    /// If the store cannot be read, or does not respond within 2 s.
    pub fn health(&self) -> BoxFuture<'_, Result<Arc<Vec<ProcessorHealth>>, ReadError>> {
        self.known_health().boxed()
    }

    async fn known_health(&self) -> Read {
        let clock = &self.0.shared.options.clock;
        let mut known = self.0.health.lock().await;
        let now = clock.now();
        if let Some((at, health)) = &*known
            && *at <= now
            && now.since(*at) < KEPT
        {
            return health.clone();
        }
        let read = tokio::select! {
            read = self.read_health() => read.map(Arc::new),
            () = clock.sleep(PATIENCE) => {
                Err(StoreError::Unreachable(format!("the store did not answer within {PATIENCE:?}")).into())
            }
        };
        // Keep failures too, so that the other requests that wait here do not each ask a store that does not respond.
        *known = Some((clock.now(), read.clone()));
        read
    }

    async fn read_health(&self) -> Result<Vec<ProcessorHealth>, ReadError> {
        let mut health = Vec::new();
        for tenant in self.store().tenants() {
            let unknown = |error: annals_core::UnknownLog| StoreError::other(error.code(), error.to_string());
            let records = self.store().records(&tenant).map_err(unknown)?;
            let letters = self.dead_letters_of(&tenant).map_err(unknown)?;
            let by_consumer = letters.open_by_consumer().await.map_err(failed)?;
            let stored = Stored::read(&self.0.shared, &tenant, &records).await?;
            let stored = Stored { letters: by_consumer, ..stored };
            let mut of_tenant = OfTenant { tenant: &tenant, stored: &stored, health: &mut health };
            of_tenant.handlers("handler", &stored.handlers, &*self.tenant(&tenant).map_err(unknown)?).await?;
            of_tenant.handlers("group", &stored.groups, &*self.groups_of(&tenant).map_err(unknown)?).await?;
            of_tenant.filters(&*self.filters_of(&tenant).map_err(unknown)?).await?;
            of_tenant.projections(&*self.projections_of(&tenant).map_err(unknown)?).await?;
            of_tenant.sagas(&*self.sagas(&tenant).map_err(unknown)?).await?;
            health.extend(self.horizon_of(&tenant).map_err(unknown)?.health().await?);
            health.extend(self.archive_of(&tenant).map_err(unknown)?.health().await?);
            of_tenant_letters(&tenant, stored.letters.values().sum(), &mut health);
        }
        Ok(health)
    }
}

/// Adds a degraded processor if there are more open dead letters than a threshold.
fn of_tenant_letters(tenant: &str, open: u64, health: &mut Vec<ProcessorHealth>) {
    let level = Level::of(open);
    let above = match level {
        Level::Normal => return,
        Level::Warning => WARNING_ABOVE,
        Level::Critical => CRITICAL_ABOVE,
    };
    health.push(ProcessorHealth {
        tenant: tenant.to_owned(),
        kind: "dead_letters",
        name: "open".to_owned(),
        position: 0,
        head: 0,
        lag_seconds: 0,
        seconds_since_progress: 0,
        failing: open,
        blocked: 0,
        letters: open,
        owner: None,
        degraded: Some(format!(
            "{level}: {open} dead letters are open, which exceeds {above}; retry or discard them",
            level = level.name()
        )),
    });
}

/// The stored records of all processors of a tenant.
struct Stored {
    handlers: Vec<DefinitionRecord>,
    groups: Vec<DefinitionRecord>,
    /// The number of open letters of each consumer.
    letters: BTreeMap<String, u64>,
    processors: HashMap<String, ProcessorRecord>,
    filters: Vec<FilterRecord>,
    failures: HashMap<String, FilterFailureRecord>,
    filtered: HashMap<String, FilterProgressRecord>,
    projections: Vec<ProjectionRecord>,
    sagas: Vec<SagaDefinitionRecord>,
    /// The holders of the leases in force, by task.
    owners: HashMap<String, String>,
    now: Timestamp,
}

impl Stored {
    async fn read(shared: &Shared, tenant: &str, records: &Arc<dyn Records>) -> Result<Self, ReadError> {
        let now = shared.options.clock.now();
        let leases: Vec<Lease> = all(records).await?;
        let heartbeats: HashMap<String, ProcessRecord> = match shared.store.is_shared() {
            true => all(records).await?.into_iter().map(|it: ProcessRecord| (it.process.clone(), it)).collect(),
            false => HashMap::new(),
        };
        let in_force =
            leases.into_iter().filter(|lease| shared.is_in_force(tenant, lease, heartbeats.get(&lease.holder), now));
        Ok(Self {
            handlers: all(records).await?,
            groups: all_in(records, GROUPS).await?,
            letters: BTreeMap::new(),
            processors: all(records).await?.into_iter().map(|it: ProcessorRecord| (it.name.clone(), it)).collect(),
            filters: all(records).await?,
            failures: all(records).await?.into_iter().map(|it: FilterFailureRecord| (it.key.clone(), it)).collect(),
            filtered: all(records).await?.into_iter().map(|it: FilterProgressRecord| (it.key.clone(), it)).collect(),
            projections: all(records).await?,
            sagas: all(records).await?,
            owners: in_force.map(|lease| (lease.task, lease.holder)).collect(),
            now,
        })
    }
}

/// Reads all records of a type; none if its collection is not declared yet.
pub(crate) async fn all<T: RecordType>(records: &Arc<dyn Records>) -> Result<Vec<T>, ReadError> {
    all_in(records, T::COLLECTION).await
}

/// Reads all records of a type in a collection of this name.
async fn all_in<T: RecordType>(records: &Arc<dyn Records>, collection: &'static str) -> Result<Vec<T>, ReadError> {
    let typed = TypedRecords::<T>::declared_as(Arc::clone(records), collection);
    let mut query = RecordQuery::new(collection).matching(Condition::All).limit(limits::PAGE_MAX);
    let mut found = Vec::new();
    loop {
        let (page, next) = match typed.find(query.clone()).await {
            Err(RecordError::UnknownCollection(_)) => return Ok(found),
            page => page.map_err(failed)?,
        };
        found.extend(page.into_iter().map(|stored| stored.value));
        let Some(cursor) = next else { return Ok(found) };
        query = query.after(cursor);
    }
}

fn failed(error: RecordError) -> ReadError {
    match error {
        RecordError::Store(error) => error.into(),
        other => StoreError::other(other.code(), other.to_string()).into(),
    }
}

fn time(date: annals_core::bson::DateTime) -> Timestamp {
    Timestamp::from_millis(date.timestamp_millis())
}

/// A build of a projection: what is known about it, its vital signs, and the process that runs it.
type OfBuild<'a> = (Known<'a>, Vitals<'a>, Option<&'a String>);

struct OfTenant<'a> {
    tenant: &'a str,
    stored: &'a Stored,
    health: &'a mut Vec<ProcessorHealth>,
}

impl<'a> OfTenant<'a> {
    fn add(&mut self, kind: &'static str, name: &str, known: &Known<'_>, owner: Option<&String>, vitals: &Vitals<'_>) {
        self.health.push(ProcessorHealth {
            tenant: self.tenant.to_owned(),
            kind,
            name: name.to_owned(),
            position: known.position,
            head: known.head,
            lag_seconds: known.oldest,
            seconds_since_progress: vitals.since_progress,
            failing: vitals.failing,
            blocked: vitals.stuck,
            letters: self.stored.letters.get(&format!("{kind}/{name}")).copied().unwrap_or(0),
            owner: owner.cloned(),
            degraded: vitals.complaint(),
        });
    }

    /// Adds a processor whose definition cannot be read as degraded, so that it does not hide the others.
    fn unreadable(&mut self, kind: &'static str, name: &str, why: &dyn std::fmt::Display) {
        let (tenant, name) = (self.tenant.to_owned(), name.to_owned());
        self.health.push(ProcessorHealth {
            tenant,
            kind,
            name,
            position: 0,
            head: 0,
            lag_seconds: 0,
            seconds_since_progress: 0,
            failing: 0,
            blocked: 0,
            letters: 0,
            owner: None,
            degraded: Some(why.to_string()),
        });
    }

    /// Adds the processors that people define and workers pull from: handlers or groups.
    async fn handlers(
        &mut self,
        kind: &'static str,
        defined: &[DefinitionRecord],
        handlers: &TenantHandlers,
    ) -> Result<(), ReadError> {
        let stored = self.stored;
        for record in defined {
            let definition = match record.read() {
                Ok(definition) => definition,
                Err(why) => {
                    self.unreadable(kind, &record.name, &why);
                    continue;
                }
            };
            let task = handlers.processor_of(&record.name);
            let (processor, owner) = (stored.processors.get(&task), stored.owners.get(&task));
            let position = processor.map_or(record.start, |it| it.position).cast_unsigned();
            let source = match handlers.source(&definition) {
                Ok(source) => source,
                Err(why) => {
                    self.unreadable(kind, &record.name, &why);
                    continue;
                }
            };
            let (head, oldest) = source.waiting(position, stored.now).await?;
            let progressed = processor.and_then(ProcessorRecord::last_progress).unwrap_or(time(record.defined));
            let is_owned = owner.is_some();
            let known = Known { position, head, oldest, now: stored.now, is_owned, progressed, stored: processor };
            let vitals = known.vitals();
            self.add(kind, &record.name, &known, owner, &vitals);
        }
        Ok(())
    }

    async fn filters(&mut self, filters: &TenantFilters) -> Result<(), ReadError> {
        let stored = self.stored;
        for record in &stored.filters {
            let definition: FilterDefinition = match record.read() {
                Ok(definition) => definition,
                Err(why) => {
                    self.unreadable("filter", &record.key, &why);
                    continue;
                }
            };
            let (position, head, oldest) = filters.waiting(&definition, stored.now).await?;
            let owner = stored.owners.get(&format!("filter/{}", record.key));
            let noted = stored.filtered.get(&record.key).map(|noted| time(noted.at));
            let (progressed, is_owned) = (noted.unwrap_or(time(record.defined)), owner.is_some());
            let known = Known { position, head, oldest, now: stored.now, is_owned, progressed, stored: None };
            let vitals = of_failure(known.vitals(), stored.failures.get(&record.key));
            self.add("filter", &record.key, &known, owner, &vitals);
        }
        Ok(())
    }

    async fn projections(&mut self, projections: &TenantProjections) -> Result<(), ReadError> {
        let stored = self.stored;
        for record in &stored.projections {
            let Some(live) = &record.live else { continue };
            let beside = match &record.building {
                Some(building) => self.build(projections, record, building).await?,
                None => None,
            };
            let Some((known, vitals, owner)) = self.build(projections, record, live).await? else { continue };
            self.add("projection", &record.name, &known, owner, &vitals);
            let of_next = beside.and_then(|(_, vitals, _)| vitals.complaint());
            if let (Some(last), Some(why)) = (self.health.last_mut(), of_next) {
                last.degraded.get_or_insert_with(|| format!("its next build is unhealthy: {why}"));
            }
        }
        Ok(())
    }

    async fn sagas(&mut self, sagas: &HostSagas) -> Result<(), ReadError> {
        let stored = self.stored;
        for record in &stored.sagas {
            let read = record.versions.iter().map(|version| version.read(&record.name));
            let definitions = match read.collect::<Result<Vec<_>, _>>() {
                Ok(definitions) => definitions,
                Err(why) => {
                    self.unreadable("saga", &record.name, &why);
                    continue;
                }
            };
            let task = record.processor();
            let (processor, owner) = (stored.processors.get(&task), stored.owners.get(&task));
            let position = processor.map_or(0, |it| it.position).cast_unsigned();
            let (head, oldest) = sagas.source(&definitions, &record.name).waiting(position, stored.now).await?;
            let progressed = processor.and_then(ProcessorRecord::last_progress).unwrap_or(time(record.defined));
            let is_owned = owner.is_some();
            let known = Known { position, head, oldest, now: stored.now, is_owned, progressed, stored: processor };
            let mut vitals = known.vitals();
            let parked = sagas.parked(&record.name).await;
            vitals.stuck = parked.map_err(|error| StoreError::other(error.code(), error.to_string()))?;
            vitals.failing = vitals.stuck;
            self.add("saga", &record.name, &known, owner, &vitals);
            if let Some(last) = self.health.last_mut().filter(|last| last.blocked > 0) {
                let parked = last.blocked;
                last.degraded = Some(format!("sagas with a compensation that needs an operator: {parked}"));
            }
        }
        Ok(())
    }

    async fn build(
        &mut self,
        projections: &TenantProjections,
        record: &ProjectionRecord,
        build: &BuildRecord,
    ) -> Result<Option<OfBuild<'a>>, ReadError> {
        let stored = self.stored;
        let definition = match build.read(&record.name) {
            Ok(definition) => definition,
            Err(why) => {
                self.unreadable("projection", &record.name, &why);
                return Ok(None);
            }
        };
        let processor = stored.processors.get(&record.processor_of(build.number));
        let owner = stored.owners.get(&format!("projection/{}/{}", record.name, build.slot));
        let position = processor.map_or(0, |it| it.position.cast_unsigned());
        let (head, oldest) = projections.source(&definition).waiting(position, stored.now).await?;
        let progressed = processor.and_then(ProcessorRecord::last_progress).unwrap_or(time(build.since));
        let is_owned = owner.is_some();
        let known = Known { position, head, oldest, now: stored.now, is_owned, progressed, stored: processor };
        let mut vitals = known.vitals();
        vitals.is_at_rest |= record.paused;
        Ok(Some((known, vitals, owner)))
    }
}

/// Returns the vital signs of a filter, given the failure of its next event, if any.
pub(crate) fn of_failure<'a>(vitals: Vitals<'a>, failure: Option<&'a FilterFailureRecord>) -> Vitals<'a> {
    let Some(failure) = failure else { return vitals };
    let is_blocked = failure.retry_at.is_none();
    Vitals { is_blocked, is_held: !is_blocked, reason: Some(&failure.reason), ..vitals }
}
