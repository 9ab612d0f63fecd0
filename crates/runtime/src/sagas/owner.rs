//! The task of one definition: it holds the definition's lease, follows the log and the clock, and runs its sagas.
//!
//! INVARIANT: an event is applied once, because one batch writes the sagas that it changes and the position after it.
//!
//! INVARIANT: a process that lost the lease cannot write, because every batch expects the epoch and the turn of the definition's
//! processor. It may still commit events, but those were decided and stored before. Its successor commits them under the same request
//! ids, which adds nothing.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use annals_core::processing::{Changes, Progress};
use annals_core::sagas::{SagaDefinition, SagaError, SagaRecord};
use annals_core::{Clock, ReadError, RecordChange, RecordedEvent, StoreError, Timestamp};
use tokio::sync::{Notify, watch};
use tokio::task::{AbortHandle, JoinSet};

use super::sending::Done;
use super::write::{Input, Item};
use super::{HostSagas, Seen};
use crate::engine::journal::{Journal, NotWritten};
use crate::engine::reader::{Page, Reader};
use crate::engine::source::Source;
use crate::host::{Asked, Ended, Held, Leases, Supervised, is_set, reached};

/// How often to ask for a lease that another process holds.
const ASK_EVERY: Duration = Duration::from_millis(500);
/// How often a position is stored that only advanced over events of no saga.
const STORE_EVERY: Duration = Duration::from_secs(1);
/// The most sagas with work in progress. At this number, no more events are read.
const UNDER_WAY_MAX: usize = 1_000;
/// The most outcomes that are written in one batch.
const OUTCOMES_MAX: usize = 256;

/// The state of a definition's owner in this process that survives restarts of its task.
pub(super) struct Owner {
    pub sagas: Arc<HostSagas>,
    pub name: String,
    seen: watch::Receiver<Seen>,
    position: watch::Sender<u64>,
    wake: Arc<Notify>,
}

/// The state of an owner while it holds the lease.
pub(super) struct Work<'o> {
    pub owner: &'o mut Owner,
    pub clock: Arc<dyn Clock>,
    pub journal: Journal,
    /// The versions, by number.
    pub definitions: HashMap<i64, SagaDefinition>,
    pub newest: i64,
    reader: Reader,
    /// Every event below it has been applied.
    pub read_to: u64,
    last_stored: Timestamp,
    /// The sagas with work in progress, as last written.
    pub busy: HashMap<String, Arc<SagaRecord>>,
    pub running: HashMap<String, Task>,
    pub tasks: JoinSet<(String, u64, Done)>,
    /// Counts tasks.
    pub task: u64,
    /// When the next timer fires.
    pub next_due: Option<Timestamp>,
}

/// Work in progress for a saga.
pub(super) struct Task {
    pub number: u64,
    /// The function that is being called; `None` while the outbox is being committed.
    pub function: Option<annals_core::sagas::SagaWork>,
    pub handle: AbortHandle,
}

/// Why an owner stops working.
pub(super) enum Stop {
    /// The host is drained, or the definition was deleted.
    Done,
    /// Another process owns it.
    Lost,
    /// A less busy process gets it.
    Given(String),
    /// The work must start over from the stored state.
    Again,
    Failed(String),
}

impl Supervised for Owner {
    async fn run(&mut self) -> Ended {
        loop {
            match self.own().await {
                Stop::Done => return Ended::Done,
                Stop::Again | Stop::Given(_) => {}
                Stop::Lost => tracing::info!(task = self.task(), "another process took over the sagas"),
                Stop::Failed(error) => return Ended::Failed(error),
            }
        }
    }
}

impl Owner {
    pub fn new(
        sagas: Arc<HostSagas>,
        name: String,
        seen: watch::Receiver<Seen>,
        position: watch::Sender<u64>,
        wake: Arc<Notify>,
    ) -> Self {
        Self { sagas, name, seen, position, wake }
    }

    fn task(&self) -> String {
        format!("saga/{}", self.name)
    }

    /// Takes the lease, works, and releases the lease.
    async fn own(&mut self) -> Stop {
        let records = Arc::clone(&self.sagas.records);
        let leases = Leases::new(&self.sagas.shared, &self.sagas.tenant, records, self.task()).spread();
        let held = match self.until_taken(&leases).await {
            Ok(held) => held,
            Err(stop) => return stop,
        };
        let stop = match Work::begin(self, held.epoch()).await {
            Ok(mut work) => work.run(&leases, &held).await,
            Err(stop) => stop,
        };
        match &stop {
            Stop::Done | Stop::Failed(_) => leases.release(&held).await,
            Stop::Given(to) => leases.give(&held, to).await,
            Stop::Lost | Stop::Again => {}
        }
        stop
    }

    async fn until_taken(&mut self, leases: &Leases) -> Result<Held, Stop> {
        self.sagas.declare().await?;
        let clock = Arc::clone(&self.sagas.shared.options.clock);
        let mut stop = self.sagas.shared.stop.subscribe();
        loop {
            if let Asked::Taken(held) = leases.ask().await.map_err(NotWritten::from)? {
                return Ok(held);
            }
            tokio::select! {
                biased;
                () = is_set(&mut stop) => return Err(Stop::Done),
                changed = self.seen.changed() => changed.map_err(|_| Stop::Done)?,
                () = clock.sleep(ASK_EVERY) => {}
            }
        }
    }
}

impl<'o> Work<'o> {
    async fn begin(owner: &'o mut Owner, epoch: i64) -> Result<Self, Stop> {
        let sagas = Arc::clone(&owner.sagas);
        let clock = Arc::clone(&sagas.shared.options.clock);
        let (_, record) = owner.seen.borrow_and_update().clone();
        let mut definitions = HashMap::new();
        for version in &record.versions {
            let read = version.read(&owner.name).map_err(|error| Stop::Failed(error.to_string()))?;
            definitions.insert(version.version, read);
        }
        let newest = record.versions.last().map_or(0, |version| version.version);
        let records = Arc::clone(&sagas.records);
        let journal = Journal::retake(records, Arc::clone(&clock), &record.processor(), epoch).await?;
        // A missing processor means that the definition was deleted.
        let journal = journal.ok_or(Stop::Done)?;
        let all: Vec<_> = definitions.values().cloned().collect();
        let source = sagas.source(&all, &owner.name);
        let from = journal.record().position.cast_unsigned();
        let reader = Reader::start(source.clone(), from, None, Arc::clone(&clock));
        let mut work = Self {
            last_stored: clock.now(),
            next_due: Some(clock.now()),
            owner,
            clock,
            journal,
            definitions,
            newest,
            reader,
            read_to: from,
            busy: HashMap::new(),
            running: HashMap::new(),
            tasks: JoinSet::new(),
            task: 0,
        };
        work.check_restored(&source).await?;
        work.publish();
        Ok(work)
    }

    /// Moves a position above the fork of a restored store back to the fork, because other events are there now.
    async fn check_restored(&mut self, source: &Source) -> Result<(), Stop> {
        let sagas = Arc::clone(&self.owner.sagas);
        let (stored, seen) = (self.journal.record().store.clone(), self.journal.record().incarnation);
        let seen = u32::try_from(seen).unwrap_or(0);
        let scope = annals_core::DEFAULT_SCOPE;
        let identity = sagas.shared.store.identity_since(&sagas.tenant, scope, seen).ok_or(Stop::Done)?;
        let store = identity.store_id.to_string();
        if stored == store && seen == identity.incarnation {
            return Ok(());
        }
        let head = source.head().await?;
        let fork = if stored == store { identity.incarnation_start.min(head) } else { head };
        if self.read_to > fork {
            let (name, position) = (&self.owner.name, self.read_to);
            tracing::warn!(definition = name, position, fork, "the store was restored; sagas resume at the fork");
            self.read_to = fork;
            self.reader = Reader::start(source.clone(), fork, None, Arc::clone(&self.clock));
        }
        let incarnation = identity.incarnation.into();
        Ok(self.store(&[], |record| (record.store, record.incarnation) = (store, incarnation)).await?)
    }

    async fn run(&mut self, leases: &Leases, held: &Held) -> Stop {
        loop {
            if let Err(stop) = self.turn(leases, held).await {
                // Events that were read and whose position is not stored would be read again after a restart.
                let is_over = matches!(stop, Stop::Done | Stop::Given(_)) && self.is_unstored();
                if is_over && let Err(NotWritten::Lost) = self.store(&[], |_| ()).await {
                    return Stop::Lost;
                }
                return stop;
            }
        }
    }

    async fn turn(&mut self, leases: &Leases, held: &Held) -> Result<(), Stop> {
        let now = self.clock.now();
        if !leases.keeps(held).await.map_err(NotWritten::from)? {
            return Err(Stop::Lost);
        }
        if let Some(to) = leases.given_to() {
            return Err(Stop::Given(to));
        }
        let (_, record) = self.owner.seen.borrow_and_update().clone();
        if record.versions.len() != self.definitions.len() {
            return Err(Stop::Again);
        }
        // If the clock was set back, do not wait until it reaches the old time again.
        self.last_stored = self.last_stored.min(now);
        if self.is_unstored() && now.since(self.last_stored) >= STORE_EVERY {
            self.store(&[], |_| ()).await?;
        }
        if self.next_due.is_some_and(|due| due <= now) {
            return self.fire().await;
        }
        let stores = self.is_unstored().then(|| self.last_stored.plus(STORE_EVERY));
        let look_at = stores.into_iter().chain(self.next_due).min();
        self.wait(look_at, leases, held).await
    }

    async fn wait(&mut self, look_at: Option<Timestamp>, leases: &Leases, held: &Held) -> Result<(), Stop> {
        let clock = Arc::clone(&self.clock);
        let wake = Arc::clone(&self.owner.wake);
        let mut stop = self.owner.sagas.shared.stop.subscribe();
        let now = clock.now();
        let until = look_at.unwrap_or_else(|| now.plus(Duration::from_secs(3600)));
        let reads = self.busy.len() < UNDER_WAY_MAX;
        tokio::select! {
            biased;
            () = is_set(&mut stop) => Err(Stop::Done),
            changed = self.owner.seen.changed() => changed.map_err(|_| Stop::Done),
            () = leases.until_called_off(held) => Ok(()),
            () = wake.notified() => self.fire().await,
            Some(done) = self.tasks.join_next(), if !self.tasks.is_empty() => self.done(done.ok()).await,
            page = self.reader.next(), if reads => self.read(page).await,
            () = reached(&*clock, now, until) => Ok(()),
        }
    }

    /// Writes the outcomes of all tasks that have ended by now.
    async fn done(&mut self, first: Option<(String, u64, Done)>) -> Result<(), Stop> {
        let mut ended: Vec<_> = first.into_iter().collect();
        while ended.len() < OUTCOMES_MAX {
            match self.tasks.try_join_next() {
                Some(done) => ended.extend(done.ok()),
                None => break,
            }
        }
        let mut items = Vec::with_capacity(ended.len());
        for (id, number, done) in ended {
            // The outcome of a cancelled task is ignored.
            if self.running.get(&id).is_some_and(|task| task.number == number) {
                self.running.remove(&id);
                items.push(Item { id, input: Input::Done(done), next: self.read_to });
            }
        }
        self.apply(&items).await
    }

    async fn read(&mut self, page: Option<Result<Page, ReadError>>) -> Result<(), Stop> {
        let page = match page {
            None => return Err(Stop::Failed("the log can no longer be read".to_owned())),
            Some(Err(ReadError::Store(StoreError::Closed))) => return Err(Stop::Done),
            // The reader retries by itself.
            Some(Err(error)) => {
                tracing::debug!(definition = self.owner.name, %error, "sagas cannot read the log; retrying");
                return Ok(());
            }
            Some(Ok(page)) => page,
        };
        let events: Vec<RecordedEvent> = page.events.into_iter().map(|(_, event)| event).collect();
        let mut items = Vec::new();
        for (n, event) in events.iter().enumerate() {
            let next = events.get(n + 1).map_or(page.next, |next| next.sequence_number);
            let first = items.len();
            for id in self.sagas_of(event) {
                items.push(Item { id, input: Input::Event(event), next: event.sequence_number });
            }
            // The event counts as applied once all of its sagas are written.
            if let Some(last) = items[first..].last_mut() {
                last.next = next;
            }
        }
        self.apply(&items).await?;
        self.read_to = page.next;
        self.publish();
        Ok(())
    }

    /// Returns the ids of the sagas to which an event may belong.
    fn sagas_of(&self, event: &RecordedEvent) -> Vec<String> {
        let name = &self.owner.name;
        let mut ids = Vec::new();
        for (version, definition) in &self.definitions {
            let correlation = match definition.correlation(event) {
                Ok(correlation) => correlation,
                // The saga is created under the event's id, so that its failure is visible.
                Err(_) if *version == self.newest && definition.is_started_by(event) => {
                    event.id.hyphenated().to_string()
                }
                Err(_) => continue,
            };
            let id = annals_core::sagas::saga_id(name, &correlation);
            if !ids.contains(&id) {
                ids.push(id);
            }
        }
        ids
    }

    /// Returns whether events were passed over since the position was stored.
    fn is_unstored(&self) -> bool {
        self.read_to > self.journal.record().position.cast_unsigned()
    }

    /// Stores that everything below `read_to` has been applied, together with these effects.
    pub async fn store(
        &mut self,
        effects: &[RecordChange],
        edit: impl FnOnce(&mut annals_core::handlers::ProcessorRecord),
    ) -> Result<(), NotWritten> {
        self.last_stored = self.clock.now();
        let progress = Progress { position: self.read_to, ahead: Vec::new() };
        let changes = Changes { progress, failing: Vec::new(), parked: Vec::new() };
        self.journal.write(changes, effects, edit).await?;
        self.owner.sagas.written.send_modify(|count| *count += 1);
        Ok(())
    }

    fn publish(&self) {
        self.owner.position.send_if_modified(|known| std::mem::replace(known, self.read_to) != self.read_to);
    }
}

impl From<NotWritten> for Stop {
    fn from(error: NotWritten) -> Self {
        match error {
            NotWritten::Lost => Self::Lost,
            NotWritten::Store(StoreError::Closed) => Self::Done,
            NotWritten::Store(error) => Self::Failed(error.to_string()),
            NotWritten::Refused(error) => Self::Failed(error.to_string()),
            // Sagas have no dead letters.
            NotWritten::Conflict => Self::Lost,
        }
    }
}

impl From<ReadError> for Stop {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Store(StoreError::Closed) => Self::Done,
            other => Self::Failed(other.to_string()),
        }
    }
}

impl From<SagaError> for Stop {
    fn from(error: SagaError) -> Self {
        match error {
            SagaError::Store(StoreError::Closed) => Self::Done,
            other => Self::Failed(other.to_string()),
        }
    }
}
