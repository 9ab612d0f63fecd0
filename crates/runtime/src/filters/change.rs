//! Defining a filter, and the rules for changing a definition. They are those of the Dolittle Runtime, and are checked before the
//! registration succeeds.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

use annals_core::filters::{Evaluator, FilterDefinition, FilterError, FilterKind, FilterRecord};
use annals_core::{
    ByteString, Code, Expected, Filter, Included, Invalid, RecordError, RecordedEvent, SequenceNumber, StoreError,
    StreamDefinition, StreamQuery, TypedRecords,
};

use super::compare::{first_change, first_difference};
use super::source::Source;
use super::{EventFilter, Ports, TenantFilters};
use crate::host::{detached, locked, message_of};

impl TenantFilters {
    /// Defines a filter. Returns true if it is new.
    pub(super) async fn change(
        &self,
        definition: FilterDefinition,
        function: Option<Arc<dyn EventFilter>>,
    ) -> Result<bool, FilterError> {
        let filters = self.me.upgrade().ok_or(StoreError::Closed)?;
        detached(async move { filters.define(definition, function).await }).await
    }

    async fn define(
        &self,
        definition: FilterDefinition,
        function: Option<Arc<dyn EventFilter>>,
    ) -> Result<bool, FilterError> {
        self.open()?;
        definition.validate()?;
        let definition = FilterDefinition { name: self.canonical(&definition.name), ..definition };
        let unknown = |error: annals_core::UnknownLog| Invalid::new(error.code(), "scope", error.to_string());
        let ports = self.ports(&definition.name.scope).map_err(unknown)?;
        self.declare().await?;
        let key = definition.name.key();
        let slot = self.slot(&key);
        // The owner in this process appends nothing until this is decided.
        let turn = slot.turn.lock().await;
        let is_new = self.register(&ports, &definition, function.as_deref()).await?;
        ports.definitions.put(&definition.name.stream, definition.in_layout(&*ports.definitions)).await?;
        self.forget_failure(&key).await?;
        if let Some(function) = function {
            *locked(&slot.function) = Some(function);
        }
        slot.changed.send_modify(|count| *count += 1);
        drop(turn);
        if definition.kind != FilterKind::Remote {
            self.start(&key);
        }
        Ok(is_new)
    }

    /// Checks the definition against what the stream holds, and stores it.
    async fn register(
        &self,
        ports: &Ports,
        definition: &FilterDefinition,
        function: Option<&dyn EventFilter>,
    ) -> Result<bool, FilterError> {
        let filters = TypedRecords::<FilterRecord>::declared(Arc::clone(&self.records));
        let key = definition.name.key();
        loop {
            let found = self.record(&key).await?;
            let known = found.as_ref().map(|found| found.value.read()).transpose()?;
            let is_unchanged = known.as_ref().is_some_and(|known| known.write() == definition.write());
            if is_unchanged && function.is_none() {
                return Ok(false);
            }
            let progress = ports.streams.stream(&definition.name.stream).await?.progress;
            let verified = found.as_ref().is_none_or(|found| found.value.verify_from.is_none());
            let check = Check { ports, definition, function, progress, verified };
            check.against(known.as_ref()).await?;
            let now = self.clock().now();
            let written = match found {
                Some(_) if is_unchanged => return Ok(false),
                Some(found) => {
                    let record = found.value.redefined(definition, progress, now);
                    filters.replace_if(&record, Expected::Revision(found.revision)).await.map(|_| false)
                }
                None => filters.insert(&FilterRecord::of(definition, now)).await.map(|_| true),
            };
            match written {
                Ok(is_new) => return Ok(is_new),
                // Another process was faster.
                Err(RecordError::DuplicateKey { .. } | RecordError::NotAsExpected { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// A definition to compare with the verdicts below `progress`.
struct Check<'a> {
    ports: &'a Ports,
    definition: &'a FilterDefinition,
    function: Option<&'a dyn EventFilter>,
    progress: SequenceNumber,
    /// Whether all those verdicts are known to follow from the stored definition.
    verified: bool,
}

impl Check<'_> {
    async fn against(&self, known: Option<&FilterDefinition>) -> Result<(), FilterError> {
        if self.progress == 0 {
            return Ok(());
        }
        if let Some(known) = known {
            if let Some(setting) = known.difference_in_kind(self.definition) {
                return Err(self.changed(setting, self.first_entry().await?));
            }
            return self.differs(self.with_definition(known).await?);
        }
        // A Dolittle Runtime may have filled the stream.
        if let Some(stored) = self.ports.definitions.get(&self.definition.name.stream).await? {
            return self.with_layout(&stored).await;
        }
        let first = match self.definition.kind {
            // It is unknown what a client would have included.
            FilterKind::Remote => None,
            FilterKind::Declared | FilterKind::Function => self.with_stream().await?,
        };
        self.differs(first)
    }

    fn changed(&self, setting: &str, first_difference: Option<SequenceNumber>) -> FilterError {
        FilterError::Changed { name: self.definition.name.key(), setting: setting.to_owned(), first_difference }
    }

    fn differs(&self, first: Option<SequenceNumber>) -> Result<(), FilterError> {
        match first {
            Some(_) => Err(self.changed("events", first)),
            None => Ok(()),
        }
    }

    async fn first_entry(&self) -> Result<Option<SequenceNumber>, FilterError> {
        let query = StreamQuery { limit: 1, ..StreamQuery::new(self.definition.name.stream.clone()) };
        Ok(self.ports.streams.read(query).await?.entries.first().map(|entry| entry.sequence_number))
    }

    /// Compares the definition with the verdicts that the stream holds.
    async fn with_stream(&self) -> Result<Option<SequenceNumber>, FilterError> {
        let source = Source::of(self.definition, self.ports);
        let stream = (&*self.ports.streams, &*self.definition.name.stream);
        let evaluation = Evaluation::new(self.definition, self.function);
        let failed = Mutex::new(None);
        let entry_of = |event: &RecordedEvent| match evaluation.entry(event) {
            Ok(entry) => entry,
            Err(reason) => {
                locked(&failed).get_or_insert((event.sequence_number, reason));
                None
            }
        };
        let first = first_difference(&source, stream, 0..self.progress, entry_of).await?;
        let failed = locked(&failed).take();
        match failed {
            Some((at, reason)) => {
                let message = format!("cannot be compared with the stream: event {at} failed: {reason}");
                Err(Invalid::new(Code::InvalidFilter, "function", message).into())
            }
            None => Ok(first),
        }
    }

    /// Compares the definition with the one that the verdicts are from.
    async fn with_definition(&self, known: &FilterDefinition) -> Result<Option<SequenceNumber>, FilterError> {
        let (new, range) = (self.definition, 0..self.progress);
        let (before, after) = (Evaluator::new(known), Evaluator::new(new));
        let types_only = known.differs_in_types_only(new) && !known.types.is_empty() && !new.types.is_empty();
        if types_only && self.verified && known.kind != FilterKind::Function && new.source.is_none() {
            let (old, new): (BTreeSet<_>, BTreeSet<_>) = (known.types.iter().collect(), new.types.iter().collect());
            let changed = old.symmetric_difference(&new).map(|name| (*name).clone()).collect();
            let filter = Filter { types: changed, ..self.definition.filter() };
            let source = Source::Log { log: Arc::clone(&self.ports.log), filter };
            return Ok(first_change(&source, range, |it| before.admits(it), |it| after.admits(it)).await?);
        }
        match new.kind {
            FilterKind::Declared | FilterKind::Function => self.with_stream().await,
            // Events that the client was not shown before would have to be evaluated now, and those that it was shown may be included.
            FilterKind::Remote => {
                let everything = FilterDefinition { types: Vec::new(), condition: None, ..new.clone() };
                let source = Source::of(&everything, self.ports);
                let first = first_change(&source, range, |it| before.admits(it), |it| after.admits(it)).await?;
                match first {
                    None if known.write() != new.write() && known.partition_by != new.partition_by => {
                        self.first_entry().await
                    }
                    first => Ok(first),
                }
            }
        }
    }

    /// Compares the definition with one that a Dolittle Runtime stored, by the Runtime's rules.
    async fn with_layout(&self, stored: &StreamDefinition) -> Result<(), FilterError> {
        let definitions = &*self.ports.definitions;
        let new = self.definition.in_layout(definitions);
        let differs = [
            ("partitioned", stored.partitioned != new.partitioned),
            ("public", stored.public != new.public),
            ("kind", stored.types.is_some() != new.types.is_some()),
        ];
        if let Some((setting, _)) = differs.into_iter().find(|(_, differs)| *differs) {
            return Err(self.changed(setting, self.first_entry().await?));
        }
        let (Some(old), Some(new)) = (&stored.types, &new.types) else { return Ok(()) };
        let changed: Vec<ByteString> = old.symmetric_difference(new).map(|id| definitions.type_name(*id)).collect();
        if changed.is_empty() {
            return Ok(());
        }
        // Types that the new definition names are looked up by those names.
        let named = self.definition.types.iter().filter(|name| !old.contains(&definitions.type_id(name)));
        let types = changed.into_iter().chain(named.cloned()).collect();
        let source = Source::Log { log: Arc::clone(&self.ports.log), filter: Filter { types, ..Filter::default() } };
        let first = first_change(&source, 0..self.progress, |_| false, |_| true).await?;
        self.differs(first)
    }
}

/// Evaluates events by a definition, and by its function if it has one.
pub(super) struct Evaluation<'a> {
    evaluator: Evaluator,
    function: Option<&'a dyn EventFilter>,
}

impl<'a> Evaluation<'a> {
    pub fn new(definition: &FilterDefinition, function: Option<&'a dyn EventFilter>) -> Self {
        Self { evaluator: Evaluator::new(definition), function }
    }

    /// Returns the entry of an event; `None` if it is excluded.
    ///
    /// # Errors
    /// The panic message of the function.
    pub fn entry(&self, event: &RecordedEvent) -> Result<Option<Included>, String> {
        let Some(function) = self.function else { return Ok(self.evaluator.declared(event)) };
        if !self.evaluator.admits(event) {
            return Ok(None);
        }
        match catch_unwind(AssertUnwindSafe(|| function.verdict(event))) {
            Ok(verdict) => Ok(self.evaluator.entry(event, verdict)),
            Err(panic) => Err(format!("the function panicked: {}", message_of(&*panic))),
        }
    }
}
