//! The task of one build: it holds the build's lease, follows the log and folds events into the records of one collection.
//!
//! INVARIANT: the records result from exactly the events below the stored position, because one batch writes both.
//!
//! INVARIANT: a process that lost the lease, or whose build was dropped, cannot write. Every batch expects the epoch and the turn of the
//! build's processor, and a batch that drops a build deletes its processor.

use std::sync::Arc;
use std::time::Duration;

use annals_core::handlers::ProcessorRecord;
use annals_core::processing::{Changes, Progress};
use annals_core::projections::{BuildRecord, ProjectionError, Projector, Working};
use annals_core::{Clock, Expected, ReadError, RecordChange, StoreError, Timestamp};
use tokio::sync::watch;

use super::{Seen, TenantProjections};
use crate::engine::journal::{Journal, NotWritten};
use crate::engine::reader::{Page, Reader};
use crate::engine::source::Source;
use crate::host::{Asked, Ended, Held, Leases, Supervised, is_set, reached};

/// How often to ask for a lease that another process holds.
const ASK_EVERY: Duration = Duration::from_millis(500);
/// How often a position is stored that only advanced over events that do not match the projection's source.
const STORE_EVERY: Duration = Duration::from_secs(1);

/// The state of a build that survives restarts of its task.
pub(super) struct Build {
    pub projections: Arc<TenantProjections>,
    pub build: BuildRecord,
    pub projector: Projector,
    pub source: Source,
    /// The stored record of the projection.
    pub seen: watch::Receiver<Seen>,
    /// Every event below it is folded and stored, or does not match the projection's source.
    pub position: watch::Sender<u64>,
}

/// The state of a build while it holds the lease.
pub(super) struct Work<'b> {
    pub build: &'b mut Build,
    pub clock: Arc<dyn Clock>,
    pub journal: Journal,
    pub reader: Reader,
    pub working: Working,
    /// The collection of its records.
    pub collection: String,
    /// Every event below it was read and folded, or does not match the projection's source.
    pub read_to: u64,
    pub last_stored: Timestamp,
    /// The number of the projection's resumptions when this work began.
    pub resumed: i64,
    /// Whether it is blocked by an event.
    pub is_blocked: bool,
    /// The expected settings of the browse view, which its documents are based on; `None` for other projections.
    pub settings: Option<Expected>,
}

/// Why a build stops working.
pub(super) enum Stop {
    /// The host is drained, or the build was dropped.
    Done,
    /// Another process owns it.
    Lost,
    /// A less busy process gets the build.
    Given(String),
    /// The work must start over from the stored state.
    Again,
    Failed(String),
}

impl Supervised for Build {
    async fn run(&mut self) -> Ended {
        loop {
            match self.own().await {
                Stop::Done => return Ended::Done,
                Stop::Again | Stop::Given(_) => {}
                Stop::Lost => tracing::info!(task = self.task(), "another process took over the build"),
                Stop::Failed(error) => return Ended::Failed(error),
            }
        }
    }
}

impl Build {
    /// Returns the name for the lease, which belongs to the collection: epochs therefore ascend over all builds that fill it.
    fn task(&self) -> String {
        format!("projection/{}/{}", self.projector.definition().name, self.build.slot)
    }

    fn is_dropped(&self) -> bool {
        self.seen.borrow().1.build(self.build.number).is_none()
    }

    /// Takes the lease, works, and releases the lease.
    async fn own(&mut self) -> Stop {
        let records = Arc::clone(&self.projections.records);
        let leases = Leases::new(&self.projections.shared, &self.projections.tenant, records, self.task()).spread();
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
        Journal::declare(&self.projections.records).await.map_err(NotWritten::from)?;
        let clock = Arc::clone(&self.projections.shared.options.clock);
        let mut stop = self.projections.shared.stop.subscribe();
        loop {
            if self.is_dropped() {
                return Err(Stop::Done);
            }
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

impl<'b> Work<'b> {
    async fn begin(build: &'b mut Build, epoch: i64) -> Result<Self, Stop> {
        let (projections, number) = (Arc::clone(&build.projections), build.build.number);
        let clock = Arc::clone(&projections.shared.options.clock);
        let (record, seen) = {
            let seen = build.seen.borrow_and_update().clone();
            (Arc::clone(&seen.1), seen)
        };
        if build.is_dropped() {
            return Err(Stop::Done);
        }
        let collection = record.collection_of(build.build.slot);
        let declared = projections.declare_records(build.projector.definition(), &collection).await;
        declared.map_err(NotWritten::from)?;
        let processor = record.processor_of(number);
        let records = Arc::clone(&projections.records);
        let journal = Journal::retake(records, Arc::clone(&clock), &processor, epoch).await?;
        // A missing processor means that the build was dropped.
        let journal = journal.ok_or(Stop::Done)?;
        let from = journal.record().position.cast_unsigned();
        let is_first = journal.record().turn == 1;
        let reader = Reader::start(build.source.clone(), from, None, Arc::clone(&clock));
        let mut work = Self {
            last_stored: clock.now(),
            journal,
            reader,
            working: Working::default(),
            collection,
            read_to: from,
            resumed: seen.1.resumed,
            is_blocked: false,
            settings: None,
            build,
            clock,
        };
        work.working = work.nothing_in_work(is_first);
        work.check_restored().await?;
        if work.is_browse() {
            work.read_retention().await.map_err(NotWritten::from)?;
        }
        work.publish();
        Ok(work)
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
        let (_, record) = self.build.seen.borrow_and_update().clone();
        let Some((_, is_live)) = record.build(self.build.build.number) else { return Err(Stop::Done) };
        if record.resumed != self.resumed {
            return Err(Stop::Again);
        }
        // If the clock was set back, do not wait until it reaches the old time again.
        self.last_stored = self.last_stored.min(now);
        if self.is_unstored() && now.since(self.last_stored) >= STORE_EVERY {
            self.store(&[], |_| ()).await?;
        }
        let folds = !record.paused && !self.is_blocked;
        if folds && !is_live && self.has_caught_up().await? && self.swap().await? {
            return Ok(());
        }
        let stores = self.is_unstored().then(|| self.last_stored.plus(STORE_EVERY));
        self.wait(folds, stores, (leases, held)).await
    }

    async fn wait(
        &mut self,
        folds: bool,
        look_at: Option<Timestamp>,
        (leases, held): (&Leases, &Held),
    ) -> Result<(), Stop> {
        let clock = Arc::clone(&self.clock);
        let mut stop = self.build.projections.shared.stop.subscribe();
        let now = clock.now();
        let until = look_at.unwrap_or_else(|| now.plus(Duration::from_secs(3600)));
        tokio::select! {
            biased;
            () = is_set(&mut stop) => Err(Stop::Done),
            changed = self.build.seen.changed() => changed.map_err(|_| Stop::Done),
            () = leases.until_called_off(held) => Ok(()),
            page = self.reader.next(), if folds => self.read(page).await,
            () = reached(&*clock, now, until) => Ok(()),
        }
    }

    async fn read(&mut self, page: Option<Result<Page, ReadError>>) -> Result<(), Stop> {
        match page {
            None => Err(Stop::Failed("the log can no longer be read".to_owned())),
            Some(Err(ReadError::Store(StoreError::Closed))) => Err(Stop::Done),
            // The reader retries by itself.
            Some(Err(error)) => {
                tracing::debug!(collection = self.collection, %error, "a projection cannot read the log; retrying");
                Ok(())
            }
            Some(Ok(page)) => {
                let events: Vec<_> = page.events.into_iter().map(|(_, event)| event).collect();
                self.fold(&events, page.next).await?;
                if !self.is_blocked {
                    self.read_to = page.next;
                    self.publish();
                }
                Ok(())
            }
        }
    }

    /// Returns whether events were passed over since the position was stored.
    fn is_unstored(&self) -> bool {
        self.read_to > self.journal.record().position.cast_unsigned()
    }

    /// Stores that everything below `read_to` is folded, together with these effects.
    pub async fn store(
        &mut self,
        effects: &[RecordChange],
        edit: impl FnOnce(&mut ProcessorRecord),
    ) -> Result<(), NotWritten> {
        self.last_stored = self.clock.now();
        let progress = Progress { position: self.read_to, ahead: Vec::new() };
        let changes = Changes { progress, failing: Vec::new(), parked: Vec::new() };
        self.journal.write(changes, effects, edit).await
    }

    fn publish(&self) {
        self.build.position.send_if_modified(|known| std::mem::replace(known, self.read_to) != self.read_to);
    }
}

impl From<NotWritten> for Stop {
    fn from(error: NotWritten) -> Self {
        match error {
            NotWritten::Lost => Self::Lost,
            NotWritten::Store(StoreError::Closed) => Self::Done,
            NotWritten::Store(error) => Self::Failed(error.to_string()),
            NotWritten::Refused(error) => Self::Failed(error.to_string()),
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

impl From<ProjectionError> for Stop {
    fn from(error: ProjectionError) -> Self {
        match error {
            ProjectionError::Store(StoreError::Closed) | ProjectionError::Unknown(_) => Self::Done,
            other => Self::Failed(other.to_string()),
        }
    }
}
