//! Applying inputs to sagas: the changes of many inputs are one batch, and the next work of the sagas starts once that batch is stored.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use annals_core::bson::DateTime;
use annals_core::sagas::{SAGAS, SagaInput, SagaMachine, SagaRecord};
use annals_core::{
    Condition, Expected, RecordChange, RecordError, RecordQuery, RecordedEvent, Timestamp, TypedRecords, limits,
};

use super::acts::unchanged;
use super::owner::{Stop, Task, Work};
use super::sending::{Done, call, send};
use crate::engine::journal::NotWritten;

/// The most inputs in one batch.
const BATCH_MAX: usize = 256;

/// An input of a saga.
pub(super) struct Item<'e> {
    pub id: String,
    pub input: Input<'e>,
    /// Everything below it has been applied once this input has.
    pub next: u64,
}

pub(super) enum Input<'e> {
    Event(&'e RecordedEvent),
    Time,
    Done(Done),
}

impl<'e> Input<'e> {
    fn read(&self) -> SagaInput<'e> {
        match self {
            Self::Event(event) => SagaInput::Event(event),
            Self::Time => SagaInput::Time,
            Self::Done(Done::Sent { count, refused }) => SagaInput::Sent { count: *count, refused: refused.clone() },
            Self::Done(Done::Acted { work, result }) => SagaInput::Acted { work: work.clone(), result: result.clone() },
        }
    }
}

/// Sagas that inputs change, in order, each with the expectation of its write.
#[derive(Default)]
struct Changed {
    order: Vec<String>,
    sagas: HashMap<String, (Arc<SagaRecord>, Expected)>,
}

impl Work<'_> {
    /// Applies inputs in order, in as few batches as possible.
    pub(super) async fn apply(&mut self, items: &[Item<'_>]) -> Result<(), Stop> {
        for some in items.chunks(BATCH_MAX) {
            self.apply_batch(some).await?;
        }
        Ok(())
    }

    async fn apply_batch(&mut self, items: &[Item<'_>]) -> Result<(), Stop> {
        let mut waiting = vec![items];
        let mut refused: HashSet<String> = HashSet::new();
        while let Some(some) = waiting.pop() {
            let Some(last) = some.last() else { continue };
            let changed = self.changed(some, &refused).await?;
            let before = self.read_to;
            self.read_to = before.max(last.next);
            if !changed.order.is_empty() {
                match self.write(&changed).await {
                    Ok(()) => {}
                    Err(NotWritten::Refused(RecordError::NotAsExpected { .. })) => {
                        // An operator requested an act on a saga meanwhile.
                        self.read_to = before;
                        self.read_again(some).await?;
                        waiting.push(some);
                        continue;
                    }
                    Err(NotWritten::Refused(RecordError::DuplicateKey { change, .. })) => {
                        // Other software has a saga with the same correlation under another id.
                        self.read_to = before;
                        refused.extend(change.checked_sub(1).and_then(|at| changed.order.get(at)).cloned());
                        tracing::error!(
                            definition = self.owner.name,
                            change,
                            "another saga with the same correlation already exists under another id"
                        );
                        waiting.push(some);
                        continue;
                    }
                    Err(NotWritten::Refused(RecordError::Invalid(_))) if some.len() > 1 => {
                        // Together they are too large: halve them.
                        self.read_to = before;
                        let (first, second) = some.split_at(some.len() / 2);
                        waiting.extend([second, first]);
                        continue;
                    }
                    Err(error) => return Err(error.into()),
                }
            }
            self.go_on(some, changed);
        }
        Ok(())
    }

    /// Applies the inputs in memory, and returns the changed sagas.
    async fn changed(&mut self, items: &[Item<'_>], refused: &HashSet<String>) -> Result<Changed, Stop> {
        let loaded = self.load(items).await?;
        let now = self.clock.now();
        let mut changed = Changed::default();
        for item in items.iter().filter(|item| !refused.contains(&item.id)) {
            let known = changed.sagas.get(&item.id).map(|(saga, _)| saga);
            let known = known.or_else(|| self.busy.get(&item.id)).map(|saga| &**saga).or_else(|| loaded.get(&item.id));
            let (next, expected) = match (known, &item.input) {
                (None, Input::Event(event)) => (self.started(event, &item.id, now), Expected::Absent),
                (None, _) => continue,
                (Some(saga), input) => (self.next(saga, input, now), unchanged(saga)),
            };
            let Some(next) = next.map(Arc::new) else { continue };
            match changed.sagas.get_mut(&item.id) {
                Some((saga, _)) => *saga = next,
                None => {
                    changed.order.push(item.id.clone());
                    changed.sagas.insert(item.id.clone(), (next, expected));
                }
            }
        }
        Ok(changed)
    }

    fn started(&self, event: &RecordedEvent, id: &str, now: Timestamp) -> Option<SagaRecord> {
        let definition = self.definitions.get(&self.newest).filter(|definition| definition.is_started_by(event))?;
        let saga = SagaMachine::start(definition, event, now);
        (saga.saga_id == id).then_some(saga)
    }

    fn next(&self, saga: &SagaRecord, input: &Input<'_>, now: Timestamp) -> Option<SagaRecord> {
        let definition = self.definitions.get(&saga.annals.version)?;
        if let Input::Event(event) = input
            && definition.correlation(event).ok().as_ref() != Some(&saga.execution_id)
        {
            return None;
        }
        SagaMachine::of(definition, saga.clone()).apply(input.read(), now)
    }

    /// Reads the sagas that are not in memory.
    async fn load(&self, items: &[Item<'_>]) -> Result<HashMap<String, SagaRecord>, Stop> {
        let mut ids: Vec<&str> = items.iter().map(|item| &*item.id).filter(|id| !self.busy.contains_key(*id)).collect();
        ids.sort_unstable();
        ids.dedup();
        let mut loaded = HashMap::new();
        if ids.is_empty() {
            return Ok(loaded);
        }
        let mut query = RecordQuery::new(SAGAS).matching(Condition::is_in("_id", ids)).limit(limits::PAGE_MAX);
        let typed = self.owner.sagas.typed::<SagaRecord>();
        loop {
            let (page, next) = typed.find(query.clone()).await.map_err(NotWritten::from)?;
            loaded.extend(page.into_iter().map(|found| (found.value.id.clone(), found.value)));
            let Some(cursor) = next else { return Ok(loaded) };
            query = query.after(cursor);
        }
    }

    /// Reloads sagas that other writers have changed.
    async fn read_again(&mut self, items: &[Item<'_>]) -> Result<(), Stop> {
        let typed = self.owner.sagas.typed::<SagaRecord>();
        for id in items.iter().map(|item| &item.id) {
            if let Some(known) = self.busy.get_mut(id)
                && let Some(found) = typed.get(id.as_str()).await.map_err(NotWritten::from)?
            {
                *known = Arc::new(found.value);
            }
        }
        Ok(())
    }

    async fn write(&mut self, changed: &Changed) -> Result<(), NotWritten> {
        let mut effects: Vec<RecordChange> = Vec::with_capacity(changed.order.len());
        for (saga, expected) in changed.order.iter().filter_map(|id| changed.sagas.get(id)) {
            effects.push(TypedRecords::replacement(&**saga, expected.clone())?);
        }
        self.store(&effects, |_| ()).await
    }

    /// Starts the next work of the sagas.
    fn go_on(&mut self, items: &[Item<'_>], mut changed: Changed) {
        for id in &changed.order {
            if let Some((saga, _)) = changed.sagas.remove(id) {
                self.begin_work(saga);
            }
        }
        for item in items.iter().filter(|item| matches!(item.input, Input::Done(_))) {
            // Its task has ended without changing the saga.
            if !self.running.contains_key(&item.id)
                && let Some(saga) = self.busy.remove(&item.id)
            {
                self.begin_work(saga);
            }
        }
    }

    /// Starts the next work of a stored saga.
    fn begin_work(&mut self, saga: Arc<SagaRecord>) {
        let id = saga.saga_id.clone();
        let sooner = saga.timer().into_iter().chain(self.next_due).min();
        self.next_due = sooner;
        let work = self.definitions.get(&saga.annals.version).and_then(|definition| saga.work(definition));
        if let Some(task) = self.running.get(&id) {
            let is_meant = task.function.is_none() || task.function == work;
            if is_meant {
                self.busy.insert(id, saga);
                return;
            }
            // The step was given up, so the outcome of its function is irrelevant.
            task.handle.abort();
            self.running.remove(&id);
        }
        let (number, busy) = (self.task, id.clone());
        let handle = if !saga.annals.outbox.is_empty() {
            let sending = send(Arc::clone(&self.owner.sagas.log), Arc::clone(&self.clock), Arc::clone(&saga));
            Some((None, self.tasks.spawn(async move { (id, number, sending.await) })))
        } else if let Some(work) = work {
            let function = self.owner.sagas.function(&self.owner.name, saga.annals.version, &work.name);
            function.map(|function| {
                let calling = call(function, Arc::clone(&saga), work.clone());
                (Some(work), self.tasks.spawn(async move { (id, number, calling.await) }))
            })
        } else {
            None
        };
        match handle {
            Some((function, handle)) => {
                self.task += 1;
                self.running.insert(busy.clone(), Task { number, function, handle });
                self.busy.insert(busy, saga);
            }
            None => drop(self.busy.remove(&busy)),
        }
    }

    /// Finds due sagas by their index, and fires their timers or starts their work.
    pub(super) async fn fire(&mut self) -> Result<(), Stop> {
        let now = self.clock.now();
        let of = Condition::eq("saga_name", self.owner.name.as_str());
        let at = DateTime::from_millis(now.as_millis());
        let is_due = Condition::and([of.clone(), Condition::lte("annals.due", at)]);
        let typed = self.owner.sagas.typed::<SagaRecord>();
        let mut query = RecordQuery::new(SAGAS).matching(is_due).ascending("annals.due").limit(BATCH_MAX);
        self.next_due = None;
        loop {
            let (page, next) = typed.find(query.clone()).await.map_err(NotWritten::from)?;
            let mut items = Vec::new();
            for saga in page.into_iter().map(|found| Arc::new(found.value)) {
                let id = saga.saga_id.clone();
                let fires = saga.annals.asked.is_some() || saga.timer().is_some_and(|timer| timer <= now);
                match self.busy.get_mut(&id) {
                    // What other writers stored is newer than the state in memory.
                    Some(known) if known.annals.turn < saga.annals.turn => *known = saga,
                    Some(_) => {}
                    None if !fires => self.begin_work(saga),
                    None => {}
                }
                if fires {
                    items.push(Item { id, input: Input::Time, next: self.read_to });
                }
            }
            self.apply(&items).await?;
            let Some(cursor) = next else { break };
            query = query.after(cursor);
        }
        let later = Condition::and([of, Condition::gt("annals.due", at)]);
        let query = RecordQuery::new(SAGAS).matching(later).ascending("annals.due").limit(1);
        let (page, _) = typed.find(query).await.map_err(NotWritten::from)?;
        let stored = page.first().and_then(|found| found.value.due());
        let timers = self.busy.values().filter_map(|saga| saga.timer());
        self.next_due = timers.chain(stored).chain(self.next_due).min();
        Ok(())
    }
}
