//! The registry of a tenant: the stored types, and the compiled schemas with which commits are checked.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use annals_core::dead_letters::is_announcement;
use annals_core::types::{
    Compatibility, EVENT_TYPES, EventTypes, GenerationRecord, PutType, SchemaPolicy, TYPE_SETTINGS, TypeDefinition,
    TypeError, TypePage, TypeRecord, TypeSettingsRecord, TypeStatus, UnknownTypes, UpcastStep, first_break,
};
use annals_core::{
    ByteString, Clock, Code, Condition, Data, Expected, Invalid, NewEvent, RecordError, RecordQuery, RecordedEvent,
    Records, StoreError, TypedRecords, limits,
};
use async_trait::async_trait;
use tokio::sync::OnceCell;

use super::validator::Validator;

/// How long another process's registration may go unnoticed if processes share a store, in milliseconds.
const LOOK_EVERY_MS: i64 = 1_000;

/// The registry of one tenant.
pub(super) struct Registry {
    records: Arc<dyn Records>,
    clock: Arc<dyn Clock>,
    /// Whether other processes may register types.
    shared: bool,
    known: RwLock<Arc<Known>>,
    loaded: OnceCell<()>,
    /// When the store was last checked for changes.
    looked: AtomicI64,
}

/// The types of a tenant at one point in time.
#[derive(Default)]
pub(super) struct Known {
    types: HashMap<ByteString, Arc<KnownType>>,
    unknown: UnknownTypes,
    /// The numbers of the newest changes of the types and of the settings.
    changes: (u64, u64),
}

struct KnownType {
    record: TypeRecord,
    policy: SchemaPolicy,
    generations: HashMap<u32, Arc<Validator>>,
    /// The upcasters to a generation, by generation.
    upcasters: BTreeMap<u32, Vec<UpcastStep>>,
}

impl Known {
    /// Returns whether there is nothing to check.
    pub fn is_empty(&self) -> bool {
        self.types.is_empty() && self.unknown == UnknownTypes::Accept
    }

    /// Checks the event with this ordinal in its commit.
    pub fn check(&self, at: usize, event: &NewEvent) -> Result<(), Invalid> {
        let Some(known) = self.types.get(&event.event_type) else {
            return match self.unknown {
                UnknownTypes::Accept | UnknownTypes::Quarantine => Ok(()),
                UnknownTypes::Refuse => {
                    let message = format!(
                        "{:?} is not registered, but this store accepts registered types only",
                        &*event.event_type
                    );
                    Err(Invalid::new(Code::TypeNotRegistered, format!("events[{at}].type"), message))
                }
            };
        };
        let refused = known.refused(&event.event_type, event.generation, &event.data);
        let refused = refused.map(|refused| refused.inside(&format!("events[{at}]")));
        known.judged(&event.event_type, refused)
    }

    /// Returns an event as consumers receive it; `None` if that is how it was recorded.
    pub fn consume(&self, event: &RecordedEvent) -> Result<Option<RecordedEvent>, Invalid> {
        let Some(known) = self.types.get(&event.event_type) else {
            return match self.unknown {
                UnknownTypes::Quarantine if !is_announcement(&event.event_type) => {
                    let message = format!(
                        "{:?} is not registered, so its events are quarantined; register it, then retry the letter",
                        &*event.event_type
                    );
                    Err(Invalid::new(Code::TypeNotRegistered, "type", message))
                }
                _ => Ok(None),
            };
        };
        let current = known.upcast(event)?;
        let shown = current.as_ref().unwrap_or(event);
        known.judged(&event.event_type, known.refused(&event.event_type, shown.generation, &shown.data))?;
        Ok(current)
    }
}

impl KnownType {
    /// Returns why an event is not valid for its type. The path begins with `data` or names another field of the event.
    fn refused(&self, event_type: &str, generation: u32, data: &Data) -> Option<Invalid> {
        match (self.policy, self.generations.get(&generation)) {
            (SchemaPolicy::Off, _) => None,
            (_, Some(validator)) => validator.check(data).map(|(path, reason)| {
                Invalid::new(
                    Code::SchemaViolation,
                    path,
                    format!("{reason} (generation {generation} of type {event_type:?})"),
                )
            }),
            (_, None) => {
                let message = format!("generation {generation} of type {event_type:?} is not registered");
                Some(Invalid::new(Code::TypeNotRegistered, "generation", message))
            }
        }
    }

    /// Applies the policy of the type to an event that is not valid.
    fn judged(&self, event_type: &str, refused: Option<Invalid>) -> Result<(), Invalid> {
        match refused {
            Some(refused) if self.policy == SchemaPolicy::Enforce => Err(refused),
            Some(refused) => {
                tracing::warn!(
                    event_type,
                    path = refused.path,
                    reason = refused.message,
                    "an event does not match the schema of its type"
                );
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Returns the event with the data of the newest generation to which upcasters lead; `None` if there are none.
    fn upcast(&self, event: &RecordedEvent) -> Result<Option<RecordedEvent>, Invalid> {
        let mut current: Option<RecordedEvent> = None;
        for (generation, steps) in self.upcasters.range(event.generation.saturating_add(1)..) {
            let before = current.as_ref().unwrap_or(event);
            let data = UpcastStep::apply_all(steps, &before.data).map_err(|why| {
                let message =
                    format!("the upcaster of generation {generation} does not produce valid event data: {why}");
                Invalid::new(Code::SchemaViolation, "data", message)
            })?;
            current = Some(RecordedEvent { data, generation: *generation, ..before.clone() });
        }
        Ok(current)
    }
}

impl Registry {
    pub fn new(records: Arc<dyn Records>, clock: Arc<dyn Clock>, shared: bool) -> Self {
        let (known, loaded, looked) = (RwLock::default(), OnceCell::new(), AtomicI64::new(0));
        Self { records, clock, shared, known, loaded, looked }
    }

    /// Returns the types in force now.
    pub async fn current(&self) -> Result<Arc<Known>, StoreError> {
        if !self.loaded.initialized() {
            self.loaded.get_or_try_init(|| self.load_at_first()).await?;
        }
        if self.shared {
            self.look().await?;
        }
        Ok(self.known())
    }

    fn known(&self) -> Arc<Known> {
        Arc::clone(&self.known.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Loads the stored types. If records are damaged, the log is not affected, and commits continue unchecked.
    async fn load_at_first(&self) -> Result<(), StoreError> {
        match self.load().await {
            Err(error @ (StoreError::RecordsDamaged(_) | StoreError::NotSupported(_))) => {
                tracing::warn!(%error, "cannot read event types; commits are not checked against schemas");
                Ok(())
            }
            loaded => loaded,
        }
    }

    /// Loads the types again if another process has changed them.
    async fn look(&self) -> Result<(), StoreError> {
        let now = self.clock.now().as_millis();
        let looked = self.looked.load(Ordering::Relaxed);
        if now - looked < LOOK_EVERY_MS
            || self.looked.compare_exchange(looked, now, Ordering::Relaxed, Ordering::Relaxed).is_err()
        {
            return Ok(());
        }
        // Of two concurrent callers, one checks; the other continues with the types known until now.
        if self.changes().await == self.known().changes { Ok(()) } else { self.load().await }
    }

    /// Returns the numbers of the newest changes; 0 if nothing was ever registered.
    async fn changes(&self) -> (u64, u64) {
        let types = self.records.last_change(EVENT_TYPES).await.unwrap_or(0);
        (types, self.records.last_change(TYPE_SETTINGS).await.unwrap_or(0))
    }

    async fn load(&self) -> Result<(), StoreError> {
        let store = |error: RecordError| match error {
            RecordError::Store(error) => error,
            other => StoreError::Io(other.to_string()),
        };
        // Read before the types, so that a concurrent registration causes another load and is not missed.
        let changes = self.changes().await;
        let mut known = Known { unknown: self.stored_unknown().await.map_err(store)?, changes, ..Known::default() };
        let before = self.known();
        let types = TypedRecords::<TypeRecord>::declared(Arc::clone(&self.records));
        let mut query = TypedRecords::<TypeRecord>::query().limit(limits::PAGE_MAX);
        loop {
            let (page, next) = match types.find(query.clone()).await {
                Err(RecordError::UnknownCollection(_)) => (Vec::new(), None),
                page => page.map_err(store)?,
            };
            for found in page {
                // Schemas that have not changed are not compiled again.
                let name: ByteString = found.value.name.as_str().into();
                let same = before.types.get(&name).filter(|known| known.record == found.value).cloned();
                known.types.insert(name, same.unwrap_or_else(|| Arc::new(KnownType::of(found.value))));
            }
            match next {
                Some(cursor) => query = query.after(cursor),
                None => break,
            }
        }
        let mut current = self.known.write().unwrap_or_else(PoisonError::into_inner);
        // If two loads run concurrently, the later one wins.
        if current.changes.0 <= known.changes.0 && current.changes.1 <= known.changes.1 {
            *current = Arc::new(known);
        }
        Ok(())
    }

    async fn stored_unknown(&self) -> Result<UnknownTypes, RecordError> {
        let settings = TypedRecords::<TypeSettingsRecord>::declared(Arc::clone(&self.records));
        match settings.get(TypeSettingsRecord::ID).await {
            Err(RecordError::UnknownCollection(_)) | Ok(None) => Ok(UnknownTypes::Accept),
            Ok(Some(found)) => Ok(found.value.unknown),
            Err(error) => Err(error),
        }
    }

    async fn record(&self, name: &str) -> Result<Option<annals_core::Stored<TypeRecord>>, RecordError> {
        match TypedRecords::<TypeRecord>::declared(Arc::clone(&self.records)).get(name).await {
            Err(RecordError::UnknownCollection(_)) => Ok(None),
            found => found,
        }
    }
}

impl KnownType {
    fn of(record: TypeRecord) -> Self {
        let compiled = record.generations.iter().filter_map(|it| {
            let number = u32::try_from(it.generation).ok()?;
            // This schema was compiled once before it was stored.
            let validator = Validator::of(&it.schema());
            let compiled = validator.inspect_err(|error| {
                tracing::warn!(event_type = record.name, generation = number, error, "cannot use a stored schema");
            });
            Some((number, Arc::new(compiled.ok()?)))
        });
        let generations = compiled.collect();
        let upcasters = record.generations.iter().filter_map(|it| {
            let steps = it.upcaster();
            (!steps.is_empty()).then(|| Some((u32::try_from(it.generation).ok()?, steps)))?
        });
        let upcasters = upcasters.collect();
        Self { policy: record.policy, generations, upcasters, record }
    }
}

/// Applies a definition to a stored type. Returns `None` if it changes nothing.
fn changed(
    record: &TypeRecord,
    definition: &TypeDefinition,
    at: annals_core::Timestamp,
) -> Result<Option<TypeRecord>, TypeError> {
    let incompatible = |path: &str, reason: String| TypeError::Incompatible {
        name: definition.name.clone(),
        generation: definition.generation,
        path: path.to_owned(),
        reason,
    };
    if definition.id.is_some() && definition.uuid().to_string() != record.uuid {
        return Err(incompatible(
            "id",
            format!("is already {}; it cannot change, because it is stored with events", record.uuid),
        ));
    }
    let mut next =
        TypeRecord { category: definition.category.to_string(), policy: definition.policy, ..record.clone() };
    let number = i64::from(definition.generation);
    let newest = record.generations.last();
    match record.generations.iter().find(|it| it.generation == number) {
        Some(known) if known.schema() == definition.schema => {
            // An upcaster may be corrected, because it does not change any event.
            let upcaster = GenerationRecord::written(&definition.upcaster);
            for it in next.generations.iter_mut().filter(|it| it.generation == number && upcaster.is_some()) {
                it.upcaster.clone_from(&upcaster);
            }
        }
        Some(_) => {
            let latest = newest.map_or(number, |it| it.generation) + 1;
            return Err(incompatible(
                "schema",
                format!("differs from the registered one; register it as generation {latest}"),
            ));
        }
        None if newest.is_some_and(|newest| newest.generation > number) => {
            return Err(incompatible("generation", "is older than the newest one and was never registered".to_owned()));
        }
        None => {
            let broken = newest.and_then(|newest| first_break(&newest.schema(), &definition.schema));
            let compares = definition.compatibility == Compatibility::Backward && definition.upcaster.is_empty();
            if let Some(broken) = broken.filter(|_| compares) {
                let advice =
                    "make it optional or wider, register it with an upcaster, or set \"compatibility\": \"none\"";
                return Err(incompatible(&broken.path, format!("{}; {advice}", broken.reason)));
            }
            next.generations.push(GenerationRecord::of(definition, at));
        }
    }
    Ok((next != *record).then_some(next))
}

#[async_trait]
impl EventTypes for Registry {
    async fn put(&self, definition: TypeDefinition) -> Result<PutType, TypeError> {
        definition.validate()?;
        let compiled = Validator::of(&definition.schema);
        compiled.map_err(|error| Invalid::new(Code::InvalidType, "schema", error))?;
        let types = TypedRecords::<TypeRecord>::declare(Arc::clone(&self.records)).await?;
        loop {
            let done = match self.record(&definition.name).await? {
                None => match types.insert(&TypeRecord::new(&definition, self.clock.now())).await {
                    Ok(_) => PutType::Created,
                    Err(RecordError::DuplicateKey { .. }) => continue,
                    Err(error) => return Err(error.into()),
                },
                Some(found) => match changed(&found.value, &definition, self.clock.now())? {
                    None => PutType::Unchanged,
                    Some(record) => match types.replace_if(&record, Expected::Revision(found.revision)).await {
                        Ok(_) => PutType::Changed,
                        Err(RecordError::NotAsExpected { .. }) => continue,
                        Err(error) => return Err(error.into()),
                    },
                },
            };
            if done != PutType::Unchanged {
                self.load().await?;
            }
            return Ok(done);
        }
    }

    async fn list(&self, after: Option<&str>, limit: usize) -> Result<TypePage, TypeError> {
        let types = TypedRecords::<TypeRecord>::declared(Arc::clone(&self.records));
        let behind = after.map_or(Condition::All, |after| Condition::gt("_id", after));
        let query: RecordQuery = TypedRecords::<TypeRecord>::query().matching(behind).ascending("_id").limit(limit);
        let (page, next) = match types.find(query).await {
            Err(RecordError::UnknownCollection(_)) => (Vec::new(), None),
            page => page?,
        };
        let items: Vec<TypeStatus> = page.iter().map(|found| found.value.read()).collect::<Result<_, _>>()?;
        let cursor = next.and_then(|_| items.last().map(|it| it.name.clone()));
        Ok(TypePage { items, cursor })
    }

    async fn get(&self, name: &str) -> Result<TypeStatus, TypeError> {
        let found = self.record(name).await?.ok_or_else(|| TypeError::Unknown(name.into()))?;
        Ok(found.value.read()?)
    }

    async fn unknown(&self) -> Result<UnknownTypes, TypeError> {
        Ok(self.stored_unknown().await?)
    }

    async fn set_unknown(&self, unknown: UnknownTypes) -> Result<(), TypeError> {
        let settings = TypedRecords::<TypeSettingsRecord>::declare(Arc::clone(&self.records)).await?;
        let record = TypeSettingsRecord { id: TypeSettingsRecord::ID.to_owned(), unknown };
        settings.replace_if(&record, Expected::AbsentOr(Condition::All)).await?;
        Ok(self.load().await?)
    }

    async fn consume(&self, event: &RecordedEvent) -> Result<Option<RecordedEvent>, TypeError> {
        let known = self.current().await?;
        if known.is_empty() { Ok(None) } else { Ok(known.consume(event)?) }
    }
}
