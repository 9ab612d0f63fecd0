//! The task that owns a filter: it holds the lease, and appends verdicts at the progress of the stream.

use std::sync::Arc;
use std::time::Duration;

use annals_core::filters::{
    FilterDefinition, FilterError, FilterFailureRecord, FilterKind, FilterName, FilterProgressRecord, FilterRecord,
};
use annals_core::handlers::DeliveryFailure;
use annals_core::processing::ProcessingRetry;
use annals_core::{
    Clock, Expected, Included, ReadError, RecordError, SequenceNumber, StoreError, StreamError, Timestamp,
    TypedRecords, Verdicts,
};
use tokio::sync::{mpsc, watch};

use super::change::Evaluation;
use super::compare::first_difference;
use super::remote::{Command, Handed, Pull};
use super::source::Source;
use super::{EventFilter, Ports, Slot, TenantFilters, fill, remote, whatever};
use crate::host::{Asked, Ended, Held, Leases, Supervised, is_set, locked};

/// How often to ask for a lease that another process holds. Together with the time of a lease, this bounds the time of a takeover.
const ASK_EVERY: Duration = Duration::from_millis(500);
/// How often a progress is stored that only advanced over excluded events.
pub(super) const STORE_EVERY: Duration = Duration::from_secs(1);
/// The owner of a remote filter releases its lease after this long without a pull.
pub(super) const IDLE_MAX: Duration = Duration::from_secs(10);
/// The first and the longest pause before verdicts are appended again that the store could not take.
const PAUSES: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(5));

/// The state of a filter's owner that survives restarts of its task.
pub(super) struct Owner {
    pub filters: Arc<TenantFilters>,
    pub key: String,
    pub slot: Arc<Slot>,
    pub commands: mpsc::Receiver<Command>,
}

/// The state of an owner while it holds the lease.
pub(super) struct Work<'o> {
    pub owner: &'o mut Owner,
    pub definition: FilterDefinition,
    pub function: Option<Arc<dyn EventFilter>>,
    pub source: Source,
    pub clock: Arc<dyn Clock>,
    /// The progress of the stream as known to this owner.
    pub progress: SequenceNumber,
    /// The failure of the next event.
    pub failure: Option<FilterFailureRecord>,
    /// The number of the definition's change that this work is based on.
    change: u64,
    ports: Ports,
    pub leases: &'o Leases,
    pub held: &'o Held,
    last_stored: Option<Timestamp>,
    /// When its progress was last noted.
    noted: Option<Timestamp>,
}

/// Why an owner stops working.
pub(super) enum Stop {
    /// The host is drained, the filter was deleted, or the owner is no longer needed.
    Done,
    /// The store is being closed. It may refuse writes before it refuses reads.
    Closed,
    /// Another process owns the filter.
    Lost,
    /// A less busy process gets the filter.
    Given(String),
    /// The definition or the stream changed, so the work must start over.
    Again,
    Failed(String),
}

impl Supervised for Owner {
    async fn run(&mut self) -> Ended {
        loop {
            match self.own().await {
                stop @ (Stop::Done | Stop::Closed) => {
                    // A new owner would be refused at once as well, so this one pauses.
                    if matches!(stop, Stop::Closed) && self.can_be_read().await {
                        return Ended::Failed(StoreError::Closed.to_string());
                    }
                    self.end().await;
                    return Ended::Done;
                }
                Stop::Again | Stop::Given(_) => {}
                Stop::Lost => tracing::info!(filter = self.key, "another process took over the filter"),
                Stop::Failed(error) => return Ended::Failed(error),
            }
        }
    }
}

impl Owner {
    fn task(&self) -> String {
        format!("filter/{}", self.key)
    }

    /// Returns whether a new owner would start at once: the store may refuse writes while its reads still work.
    async fn can_be_read(&self) -> bool {
        let is_drained = *self.filters.shared.stop.borrow();
        let kind = self.defined().await.ok().and_then(|found| found.value.read().ok()).map(|found| found.kind);
        !is_drained && kind.is_some_and(|kind| kind != FilterKind::Remote)
    }

    /// Ends, so that a new owner can start. A definition that was put meanwhile found this one still running.
    async fn end(&mut self) {
        self.commands.close();
        let is_drained = *self.filters.shared.stop.borrow();
        let kind = match self.defined().await {
            Ok(found) => found.value.read().ok().map(|definition| definition.kind),
            Err(_) => None,
        };
        // A client that pulls starts an owner itself.
        if !is_drained && kind.is_some_and(|kind| kind != FilterKind::Remote) {
            self.filters.start(&self.key);
        }
    }

    /// Takes the lease, works, and releases the lease.
    async fn own(&mut self) -> Stop {
        let (leases, held) = match self.take().await {
            Ok(taken) => taken,
            Err(stop) => return stop,
        };
        // This also covers a failure to begin: a lease kept by a living process would keep out every other process.
        let stop = match Work::begin(self, &leases, &held).await {
            Ok(mut work) => match work.definition.kind {
                FilterKind::Remote => remote::run(&mut work).await,
                FilterKind::Declared | FilterKind::Function => fill::run(&mut work).await,
            },
            Err(stop) => stop,
        };
        match &stop {
            // After a restart this process may find that it can no longer run the filter.
            Stop::Done | Stop::Closed | Stop::Failed(_) | Stop::Again => leases.release(&held).await,
            Stop::Given(to) => leases.give(&held, to).await,
            Stop::Lost => {}
        }
        stop
    }

    /// Reads the stored definition. Stops if this process cannot run the filter.
    async fn defined(&self) -> Result<annals_core::Stored<FilterRecord>, Stop> {
        let found = self.filters.record(&self.key).await?.ok_or(Stop::Done)?;
        let definition = found.value.read().map_err(|invalid| Stop::Failed(invalid.to_string()))?;
        let is_here = definition.kind != FilterKind::Function || locked(&self.slot.function).is_some();
        if is_here { Ok(found) } else { Err(Stop::Done) }
    }

    /// Waits for the lease, unless this process cannot run the filter.
    async fn take(&mut self) -> Result<(Leases, Held), Stop> {
        let filters = Arc::clone(&self.filters);
        filters.declare().await?;
        let first = self.defined().await?.value.read().map_err(|invalid| Stop::Failed(invalid.to_string()))?;
        let mut leases = Leases::new(&filters.shared, &filters.tenant, Arc::clone(&filters.records), self.task());
        // A remote filter runs where its clients pull.
        if first.kind != FilterKind::Remote {
            leases = leases.spread();
        }
        let held = self.until_taken(&leases, first.kind).await?;
        Ok((leases, held))
    }

    /// Waits for the lease. Pulls wait meanwhile; settlements are refused with the owner's name.
    async fn until_taken(&mut self, leases: &Leases, kind: FilterKind) -> Result<Held, Stop> {
        let filters = Arc::clone(&self.filters);
        let (clock, mut stop) = (Arc::clone(filters.clock()), filters.shared.stop.subscribe());
        let mut changed = self.slot.changed.subscribe();
        let mut pulls: Vec<Pull> = Vec::new();
        let mut last_asked = clock.now();
        loop {
            let elsewhere = match leases.ask().await? {
                // Pulls that are dropped without an answer are repeated by their callers.
                Asked::Taken(held) => return Ok(held),
                Asked::Elsewhere { owner } => owner,
            };
            // Not until a time: if the clock is set back, the next question would have to wait until the clock reaches it.
            let mut pause = clock.sleep(ASK_EVERY);
            let mut is_over = false;
            while !is_over {
                tokio::select! {
                    biased;
                    () = is_set(&mut stop) => return Err(Stop::Done),
                    _ = changed.changed() => return Err(Stop::Again),
                    // Before the commands, so that many of them do not keep the lease from being asked for.
                    () = &mut pause => is_over = true,
                    command = self.commands.recv() => {
                        last_asked = clock.now();
                        match command.ok_or(Stop::Done)? {
                            Command::Pull(pull) => pulls.push(pull),
                            Command::Settle { answer, .. } => {
                                let (name, owner) = (self.key.clone(), elsewhere.clone());
                                let _ = answer.send(Err(FilterError::OwnedElsewhere { name, owner }));
                            }
                            Command::Look { answer } => drop(answer),
                        }
                    }
                }
                let now = clock.now();
                for pull in pulls.extract_if(.., |pull| pull.ends <= now || pull.answer.is_closed()) {
                    let _ = pull.answer.send(Ok(Handed::nothing()));
                }
            }
            let is_idle = pulls.is_empty() && clock.now().since(last_asked) > IDLE_MAX;
            if kind == FilterKind::Remote && is_idle {
                return Err(Stop::Done);
            }
        }
    }
}

impl<'o> Work<'o> {
    async fn begin(owner: &'o mut Owner, leases: &'o Leases, held: &'o Held) -> Result<Self, Stop> {
        let filters = Arc::clone(&owner.filters);
        // Read the number of the change first, so that a later change is noticed before anything is appended.
        let change = *owner.slot.changed.borrow();
        let stored = owner.defined().await?;
        let definition = stored.value.read().map_err(|invalid| Stop::Failed(invalid.to_string()))?;
        let unknown = |error: annals_core::UnknownLog| Stop::Failed(error.to_string());
        let ports = filters.ports(&definition.name.scope).map_err(unknown)?;
        let progress = ports.streams.stream(&definition.name.stream).await?.progress;
        let function = locked(&owner.slot.function).clone();
        let mut work = Self {
            source: Source::of(&definition, &ports),
            function,
            failure: filters.failure(&owner.key).await?,
            clock: Arc::clone(filters.clock()),
            definition,
            progress,
            change,
            ports,
            leases,
            held,
            last_stored: None,
            noted: None,
            owner,
        };
        work.repair().await?;
        work.verify(stored).await?;
        Ok(work)
    }

    /// Stores the definition in the layout again, if a crash came between the two writes.
    async fn repair(&self) -> Result<(), Stop> {
        let (definitions, stream) = (&*self.ports.definitions, &*self.definition.name.stream);
        let wanted = self.definition.in_layout(definitions);
        if definitions.get(stream).await?.as_ref() != Some(&wanted) {
            definitions.put(stream, wanted).await?;
        }
        Ok(())
    }

    /// Compares the definition with verdicts that another process appended while the definition changed. If they differ, nothing more is
    /// appended until the definition that they follow from is put again.
    async fn verify(&mut self, stored: annals_core::Stored<FilterRecord>) -> Result<(), Stop> {
        let Some(from) = stored.value.verify_from.map(i64::cast_unsigned) else { return Ok(()) };
        if from < self.progress && self.definition.kind != FilterKind::Remote {
            let evaluation = Evaluation::new(&self.definition, self.function.as_deref());
            let stream = (&*self.ports.streams, &*self.definition.name.stream);
            let entry = |event: &annals_core::RecordedEvent| evaluation.entry(event).unwrap_or_default();
            if let Some(at) = first_difference(&self.source, stream, from..self.progress, entry).await? {
                let reason = format!(
                    "the verdict on event {at} differs, because an earlier definition made it; put the earlier definition again"
                );
                return self.failed(at, &DeliveryFailure { reason, retry_after_ms: None, never: true }).await;
            }
        }
        let record = FilterRecord { verify_from: None, ..stored.value };
        let filters = TypedRecords::<FilterRecord>::declared(Arc::clone(&self.owner.filters.records));
        match filters.replace_if(&record, Expected::Revision(stored.revision)).await {
            Ok(_) => Ok(()),
            Err(RecordError::NotAsExpected { .. }) => Err(Stop::Again),
            Err(error) => Err(error.into()),
        }
    }

    /// Appends entries and moves the progress to `to`.
    pub async fn append(&mut self, to: SequenceNumber, included: Vec<Included>) -> Result<(), Stop> {
        let slot = Arc::clone(&self.owner.slot);
        let mut pause = PAUSES.0;
        let FilterName { stream, .. } = self.definition.name.clone();
        let verdicts = Verdicts { stream, from: self.progress, to, included, public: self.definition.public };
        loop {
            let turn = slot.turn.lock().await;
            if *slot.changed.borrow() != self.change {
                return Err(Stop::Again);
            }
            let error = match self.ports.streams.append(verdicts.clone()).await {
                Ok(_) => break,
                Err(StreamError::Store(error @ (StoreError::Overloaded | StoreError::Unreachable(_)))) => error,
                // Another process has evaluated these events, or the store was restored.
                Err(StreamError::Moved { .. } | StreamError::VerdictsDiffer { .. }) => return Err(Stop::Again),
                Err(StreamError::Store(StoreError::Closed)) => return Err(Stop::Closed),
                Err(error) => return Err(Stop::Failed(error.to_string())),
            };
            drop(turn);
            tracing::debug!(filter = self.owner.key, %error, "retrying to append verdicts");
            let mut stop = self.owner.filters.shared.stop.subscribe();
            tokio::select! {
                () = is_set(&mut stop) => return Err(Stop::Done),
                () = self.clock.sleep(pause) => {}
            }
            pause = (pause * 2).min(PAUSES.1);
        }
        let now = self.clock.now();
        (self.progress, self.last_stored) = (to, Some(now));
        self.note_progress(now).await;
        Ok(())
    }

    /// Stores the time of the filter's progress, at most once a second.
    async fn note_progress(&mut self, now: Timestamp) {
        if self.noted.is_some_and(|noted| now < noted.plus(STORE_EVERY)) {
            return;
        }
        let noted = FilterProgressRecord::new(&self.owner.key, self.progress, now);
        let typed = TypedRecords::<FilterProgressRecord>::declared(Arc::clone(&self.owner.filters.records));
        match typed.replace_if(&noted, whatever()).await {
            Ok(_) => self.noted = Some(now),
            // This is only informative; the stream itself holds the progress.
            Err(error) => {
                tracing::debug!(filter = self.owner.key, %error, "could not store the time of a filter's progress")
            }
        }
    }

    /// Takes notice of a clock that was set back, so that nothing waits until it reaches the old time again.
    pub fn notice(&mut self, now: Timestamp) {
        self.last_stored = self.last_stored.map(|stored| stored.min(now));
        self.noted = self.noted.map(|noted| noted.min(now));
    }

    /// Returns when a progress without entries may be stored.
    pub fn store_at(&self) -> Timestamp {
        self.last_stored.map_or(Timestamp::from_millis(0), |stored| stored.plus(STORE_EVERY))
    }

    /// Returns the number of the definition's change that this work is based on.
    pub fn change(&self) -> u64 {
        self.change
    }

    /// Checks that this process still holds the lease and need not give the filter to another one.
    pub async fn keep_lease(&self) -> Result<(), Stop> {
        if !self.leases.keeps(self.held).await? {
            return Err(Stop::Lost);
        }
        self.leases.given_to().map_or(Ok(()), |to| Err(Stop::Given(to)))
    }

    /// Waits until the filter must be given up.
    pub async fn until_called_off(&self) {
        self.leases.until_called_off(self.held).await;
    }

    /// Returns the epoch of this ownership.
    pub fn epoch(&self) -> u64 {
        self.held.epoch().cast_unsigned()
    }

    /// Records that the evaluation of an event failed.
    pub async fn failed(&mut self, at: SequenceNumber, failure: &DeliveryFailure) -> Result<(), Stop> {
        let before = self.failure.as_ref().filter(|before| before.sequence_number == at.cast_signed());
        let attempts = before.map_or(0, FilterFailureRecord::attempts).saturating_add(1);
        let now = self.clock.now();
        let random = self.owner.filters.shared.options.random.bits() as u64;
        let delay = failure.retry_after_ms.unwrap_or_else(|| ProcessingRetry::default().delay_ms(attempts, random));
        let retry_at = (!failure.never).then(|| now.plus(Duration::from_millis(delay.min(DELAY_MAX_MS))));
        tracing::warn!(filter = self.owner.key, event = at, reason = failure.reason, "cannot evaluate an event");
        let record = FilterFailureRecord::new(&self.owner.key, at, (attempts, &failure.reason), (now, retry_at));
        let failures = TypedRecords::<FilterFailureRecord>::declared(Arc::clone(&self.owner.filters.records));
        failures.replace_if(&record, whatever()).await?;
        self.failure = Some(record);
        Ok(())
    }

    /// Records that the event that had failed was evaluated.
    pub async fn succeeded(&mut self) -> Result<(), Stop> {
        if self.failure.take().is_some() {
            self.owner.filters.forget_failure(&self.owner.key).await?;
        }
        Ok(())
    }

    /// Returns whether the next event may be attempted now.
    pub fn may_attempt(&self, now: Timestamp) -> bool {
        self.failure.as_ref().is_none_or(|failure| failure.retry_at().is_some_and(|at| at <= now))
    }
}

/// Waits until the definition is changed or deleted after this change.
pub(super) async fn superseded(changed: &mut watch::Receiver<u64>, change: u64) {
    // A slot outlives its owner, so the sender exists.
    let _ = changed.wait_for(|now| *now != change).await;
}

/// The longest delay before an event is retried: 30 days.
const DELAY_MAX_MS: u64 = 30 * 24 * 60 * 60 * 1_000;

impl From<RecordError> for Stop {
    fn from(error: RecordError) -> Self {
        match error {
            RecordError::Store(error) => error.into(),
            other => Self::Failed(other.to_string()),
        }
    }
}

impl From<StoreError> for Stop {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Closed => Self::Closed,
            other => Self::Failed(other.to_string()),
        }
    }
}

impl From<ReadError> for Stop {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Store(error) => error.into(),
            other => Self::Failed(other.to_string()),
        }
    }
}

impl From<FilterError> for Stop {
    fn from(error: FilterError) -> Self {
        match error {
            FilterError::Store(error) => error.into(),
            other => Self::Failed(other.to_string()),
        }
    }
}
