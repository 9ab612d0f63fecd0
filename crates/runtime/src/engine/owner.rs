//! The task that owns a processor: it holds the lease, feeds the state machine, hands out events and stores their outcomes.

mod act;
mod command;
mod consumed;
mod guard;
mod hand_out;
mod letters;
mod marks;
mod settle;
mod stand_by;
mod trace;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use annals_core::dead_letters::DeadLetter;
use annals_core::handlers::{HandlerDefinition, HandlerError, ProcessorRecord};
use annals_core::processing::{Machine, Progress, Taken};
use annals_core::{Clock, ReadError, RecordedEvent, Records, StoreError, Stored, Timestamp};
use annals_system::Seal;
use tokio::sync::mpsc;

use super::journal::{Journal, NotWritten};
use super::reader::{Page, Reader};
use super::source::Source;
use crate::due::{Awaiting, Due};
use crate::host::{Ended, Held, Leases, Shared, Supervised, is_set, reached};
pub(crate) use command::{Awaited, Command, Settling, Snapshot};

/// The bytes of event data that an owner holds before it stops reading ahead.
const HELD_BYTES_MAX: usize = 64 * 1024 * 1024;
/// The number of failing partitions whose next events are looked up in one turn.
const LOOK_UPS_MAX: usize = 16;
/// How often a position is stored that only advanced over events that do not match the processor's source.
const STORE_EVERY: Duration = Duration::from_secs(1);
/// An owner without workers releases its lease after this long if other processes may have workers.
const IDLE_MAX: Duration = Duration::from_secs(10);
/// An owner that gives its processor to another process hands out nothing more, and waits at most this long for deliveries in flight.
const GIVING_MAX: Duration = Duration::from_secs(5);
/// A worker that has not pulled for this long is no longer listed.
const WORKER_SEEN: Duration = Duration::from_secs(60);

/// The state of a processor's owner that survives restarts of its task.
pub(crate) struct Owner {
    pub shared: Arc<Shared>,
    pub tenant: String,
    /// The name of its task, for example `handler/default/billing`.
    pub task: String,
    /// The collection that holds its definition.
    pub definitions: &'static str,
    pub records: Arc<dyn Records>,
    pub source: Source,
    pub definition: HandlerDefinition,
    pub commands: mpsc::Receiver<Command>,
    /// Whether a handler of this process is its worker. If so, the owner never releases the lease for lack of workers.
    pub local: Arc<AtomicBool>,
}

/// The state of an owner while it holds the lease.
struct Work<'o> {
    owner: &'o mut Owner,
    clock: Arc<dyn Clock>,
    leases: &'o Leases,
    held: &'o Held,
    journal: Journal,
    machine: Machine,
    /// Seals the numbers of deliveries, because consecutive numbers can be guessed.
    seal: Seal,
    reader: Reader,
    /// The events that the machine may hand out, by position.
    events: HashMap<u64, RecordedEvent>,
    bytes: usize,
    pulls: VecDeque<command::Pull>,
    waiters: Vec<command::Waiter>,
    /// Events that were sent to a worker that had gone.
    returned: (mpsc::UnboundedSender<Vec<Taken>>, mpsc::UnboundedReceiver<Vec<Taken>>),
    workers: HashMap<String, Timestamp>,
    last_pull: Timestamp,
    last_stored: Timestamp,
    last_reason: Option<String>,
    /// When a delivery was last settled as done.
    last_success: Option<Timestamp>,
    /// Events before this time are passed over until the first one at or after it.
    starts_at: Option<Timestamp>,
    /// Whether everything up to the source's `stop_at` was read.
    ended: bool,
    /// Whether the look-up of a failing partition's next event continues in the next turn.
    catching_up: bool,
    /// Since when the processor is to be given to another process.
    giving_since: Option<Timestamp>,
    /// When to look for due dead letters next.
    letters_at: Timestamp,
    /// The time of the last pass over due dead letters. All that were due by then were offered.
    letters_read: Option<Timestamp>,
    /// The pass over due dead letters that is in progress.
    pass: Option<letters::Pass>,
    /// Dead letters as they were read when they were offered, by position. If one is not here when it is settled, it is read again.
    letters: HashMap<u64, Stored<DeadLetter>>,
    /// Signals letters that another process made due.
    due: Awaiting,
    /// Whether the collection of dead letters is declared.
    has_letters: bool,
    /// The spans of deliveries in flight.
    traces: trace::Traces,
    guarded: guard::Guarded,
    /// Whether the collection of the guard's records is declared.
    has_guard: bool,
}

/// Why an owner stops working.
enum Stop {
    /// The host is drained, the handler was deleted, or the owner is no longer needed.
    Done,
    /// Another process owns the processor.
    Lost,
    /// A less busy process gets the processor.
    Given(String),
    /// An act or a changed definition requires a restart from the stored state.
    Again,
    Failed(String),
}

impl Supervised for Owner {
    async fn run(&mut self) -> Ended {
        loop {
            match self.own().await {
                Stop::Done => return Ended::Done,
                Stop::Again | Stop::Given(_) => {}
                Stop::Lost => tracing::info!(task = self.task, "another process took over the task"),
                Stop::Failed(error) => return Ended::Failed(error),
            }
        }
    }
}

impl Owner {
    /// Takes the lease, works, and releases the lease.
    async fn own(&mut self) -> Stop {
        let mut leases = Leases::new(&self.shared, &self.tenant, Arc::clone(&self.records), self.task.clone());
        // A handler with remote workers runs where they pull; a handler of this program can run in any process of the program.
        if self.local.load(Ordering::Relaxed) {
            leases = leases.spread();
        }
        let held = match stand_by::until_taken(self, &leases).await {
            Ok(held) => held,
            Err(stop) => return stop,
        };
        // This also covers a failure to begin: a lease kept by a living process would keep out every other process.
        let stop = match Work::begin(self, &leases, &held).await {
            Ok(work) => work.until_stopped().await,
            Err(stop) => stop,
        };
        match &stop {
            Stop::Lost | Stop::Again => {}
            Stop::Given(to) => leases.give(&held, to).await,
            Stop::Done | Stop::Failed(_) => leases.release(&held).await,
        }
        stop
    }
}

impl<'o> Work<'o> {
    async fn begin(owner: &'o mut Owner, leases: &'o Leases, held: &'o Held) -> Result<Self, Stop> {
        let clock = Arc::clone(&owner.shared.options.clock);
        let defined = stand_by::defined(owner).await?;
        owner.source = owner.source.redefined(&owner.definition);
        let first = ProcessorRecord::first(&owner.task, held.epoch(), &defined);
        let mut journal = Journal::take_over(Arc::clone(&owner.records), Arc::clone(&clock), first).await?;
        let mut failing = journal.failing().await.map_err(NotWritten::from)?;
        journal.forget(&mut failing).await?;
        let progress = stand_by::clamped(owner, &mut journal, &mut failing).await?;
        let first_token = held.epoch().cast_unsigned() << 40;
        let mut machine = Machine::resume(owner.definition.settings(), progress, failing, first_token);
        machine.replaying(journal.replay().await.map_err(NotWritten::from)?);
        let starts_at = journal.record().starts_at();
        let reader = Reader::start(owner.source.clone(), machine.read_to(), starts_at, Arc::clone(&clock));
        let seal = Seal::new(&*owner.shared.options.random);
        let (now, last_reason) = (clock.now(), journal.record().last_reason.clone());
        let last_success = journal.record().last_success();
        let spans = owner.shared.options.spans.clone();
        let due = Due::of(&owner.shared, &owner.tenant, &owner.records).letters(&owner.task);
        let traces = trace::Traces::new(spans, &owner.tenant, owner.definition.name.clone());
        Ok(Self {
            owner,
            leases,
            held,
            journal,
            machine,
            seal,
            reader,
            events: HashMap::new(),
            bytes: 0,
            pulls: VecDeque::new(),
            waiters: Vec::new(),
            returned: mpsc::unbounded_channel(),
            workers: HashMap::new(),
            last_pull: now,
            last_stored: now,
            last_reason,
            last_success,
            starts_at,
            ended: false,
            catching_up: false,
            giving_since: None,
            letters_at: Timestamp::from_millis(0),
            letters_read: None,
            pass: None,
            letters: HashMap::new(),
            due,
            has_letters: false,
            traces,
            guarded: guard::Guarded::default(),
            has_guard: false,
            clock,
        })
    }

    async fn until_stopped(mut self) -> Stop {
        self.count_duplicates(0);
        self.count_retries(&[]);
        let stop = match self.know_letters().await {
            Ok(()) => self.run().await,
            Err(stop) => stop,
        };
        // Not after a failure: changes and letters that belong to the position may be lost, and storing the position would skip their
        // events.
        if matches!(stop, Stop::Given(_) | Stop::Done) {
            let _ = self.store_progress().await;
        }
        stop
    }

    async fn run(&mut self) -> Stop {
        loop {
            if let Err(stop) = self.turn().await {
                return stop;
            }
        }
    }

    /// Does everything that can be done now, then waits for something to happen.
    async fn turn(&mut self) -> Result<(), Stop> {
        let now = self.clock.now();
        // If the clock was set back, do not wait until it reaches the old time again.
        self.last_stored = self.last_stored.min(now);
        self.keep_lease(now).await?;
        self.expire(now).await?;
        if self.is_unstored() && now.since(self.last_stored) >= STORE_EVERY {
            self.store(&[]).await?;
        }
        self.catch_up(now).await?;
        self.follow(now).await?;
        self.offer_letters(now).await?;
        self.serve(now).await?;
        self.answer_waiters();
        self.forget();
        self.wait(now).await
    }

    /// Ends the leases of deliveries that have expired.
    async fn expire(&mut self, now: Timestamp) -> Result<(), NotWritten> {
        self.guard_released(now);
        if self.machine.expire(now, self.random()) == 0 {
            return Ok(());
        }
        self.guard_released(now);
        self.traces.expire(now);
        self.store(&[]).await
    }

    /// Waits for something to happen after `now`. Everything that was due up to `now` has been done.
    async fn wait(&mut self, now: Timestamp) -> Result<(), Stop> {
        let clock = Arc::clone(&self.clock);
        let reads = !self.ended && self.machine.room() > 0 && self.bytes < HELD_BYTES_MAX;
        let next_look = self.next_look(now);
        let mut stop = self.owner.shared.stop.subscribe();
        tokio::select! {
            biased;
            () = is_set(&mut stop) => Err(Stop::Done),
            Some(taken) = self.returned.1.recv() => {
                self.traces.forget(&taken);
                self.machine.release(&taken, clock.now());
                self.guard_released(clock.now());
                Ok(())
            }
            command = self.owner.commands.recv() => match command {
                Some(command) => self.commands(command).await,
                None => Err(Stop::Done),
            },
            () = self.leases.until_called_off(self.held), if self.giving_since.is_none() => Ok(()),
            () = self.due.due() => {
                self.letters_at = Timestamp::from_millis(0);
                Ok(())
            }
            page = self.reader.next(), if reads => self.read(page),
            () = reached(&*clock, now, next_look) => Ok(()),
        }
    }

    fn read(&mut self, page: Option<Result<Page, ReadError>>) -> Result<(), Stop> {
        match page {
            None => Err(Stop::Failed("its source can no longer be read".to_owned())),
            Some(Err(ReadError::Store(StoreError::Closed))) => Err(Stop::Done),
            Some(Err(error)) => {
                self.last_reason = Some(format!("reading: {error}"));
                Ok(())
            }
            Some(Ok(Page { events, next, ended, begun })) => {
                self.ended = ended;
                if begun {
                    self.starts_at = None;
                }
                let mut known = Vec::with_capacity(events.len());
                for (fetched, event) in events {
                    self.hold(fetched.position, event);
                    known.push(fetched);
                }
                self.machine.read(known, next);
                Ok(())
            }
        }
    }

    /// Looks up the next events of failing partitions that are due.
    async fn catch_up(&mut self, now: Timestamp) -> Result<(), Stop> {
        if self.journal.record().paused || self.pulls.is_empty() {
            return Ok(());
        }
        let mut ended = false;
        self.catching_up = false;
        let wanted = self.machine.wanted(now, LOOK_UPS_MAX);
        let found = self.owner.source.next_of_each(&wanted).await?;
        for (wanted, (found, scanned_to)) in wanted.iter().zip(found) {
            // If no index leads to a partition, the look-up continues in the next turn.
            self.catching_up |= found.is_none() && scanned_to < wanted.to;
            let next = found.map(|(fetched, event)| {
                self.hold(fetched.position, event);
                fetched
            });
            ended |= self.machine.fetched(&wanted.partition, next, scanned_to);
        }
        if ended {
            self.store(&[]).await?;
        }
        Ok(())
    }

    fn hold(&mut self, position: u64, event: RecordedEvent) {
        self.bytes += event.page_bytes();
        if let Some(before) = self.events.insert(position, event) {
            self.bytes -= before.page_bytes();
        }
    }

    /// Drops events that can no longer be handed out.
    fn forget(&mut self) {
        let has_many = self.events.len() > 2 * self.machine.needed_count() + 512;
        let is_large = self.bytes >= letters::OFFERED_BYTES_MAX && self.events.len() > self.machine.needed_count();
        if has_many || is_large || self.bytes >= HELD_BYTES_MAX {
            let needed = self.machine.needed();
            self.events.retain(|position, _| needed.contains(position));
            self.letters.retain(|position, _| needed.contains(position));
            self.bytes = self.events.values().map(RecordedEvent::page_bytes).sum();
        }
    }

    async fn keep_lease(&mut self, now: Timestamp) -> Result<(), Stop> {
        if !self.leases.keeps(self.held).await.map_err(NotWritten::from)? {
            return Err(Stop::Lost);
        }
        self.give(now)?;
        let shared = self.owner.shared.may_share();
        let idle = self.pulls.is_empty() && now.since(self.last_pull) >= IDLE_MAX && self.machine.is_idle();
        if shared && idle && !self.owner.local.load(Ordering::Relaxed) { Err(Stop::Done) } else { Ok(()) }
    }

    /// Gives the processor to a less busy process, once nothing is in flight.
    fn give(&mut self, now: Timestamp) -> Result<(), Stop> {
        let Some(to) = self.leases.given_to() else {
            self.giving_since = None;
            return Ok(());
        };
        let since = *self.giving_since.get_or_insert(now);
        if self.machine.is_idle() || now.since(since) >= GIVING_MAX { Err(Stop::Given(to)) } else { Ok(()) }
    }

    /// Returns when to look again if nothing happens before. What became due after `now`, when this turn began, has not been seen yet.
    fn next_look(&self, now: Timestamp) -> Timestamp {
        let stores = self.is_unstored().then(|| self.last_stored.plus(STORE_EVERY));
        let follows_workers = self.owner.shared.may_share() && !self.owner.local.load(Ordering::Relaxed);
        let idles = follows_workers.then(|| self.last_pull.max(now).plus(IDLE_MAX));
        let pulls = self.pulls.iter().map(|pull| pull.ends).min();
        if self.catching_up && !self.pulls.is_empty() || self.reads_letters(now) {
            return now;
        }
        // A retry that is already due waits for a lane or for the next pull.
        let (retry, lease) = (self.machine.next_retry(now), self.machine.next_lease_end());
        let gives = self.giving_since.map(|since| since.plus(GIVING_MAX));
        let letters = (!self.pulls.is_empty()).then_some(self.letters_at);
        let looks = [stores, idles, pulls, retry, lease, gives, letters];
        let first = looks.into_iter().flatten().filter(|at| *at > now).min();
        first.unwrap_or(now.plus(Duration::from_secs(3600)))
    }

    async fn store_progress(&mut self) -> Result<(), NotWritten> {
        if self.is_unstored() { self.store(&[]).await } else { Ok(()) }
    }

    fn random(&self) -> u64 {
        self.owner.shared.options.random.bits() as u64
    }

    fn progress(&self) -> &Progress {
        self.machine.progress()
    }
}

impl From<NotWritten> for Stop {
    fn from(error: NotWritten) -> Self {
        match error {
            NotWritten::Lost => Self::Lost,
            NotWritten::Store(StoreError::Closed) => Self::Done,
            NotWritten::Store(error) => Self::Failed(error.to_string()),
            NotWritten::Refused(error) => Self::Failed(error.to_string()),
            NotWritten::Conflict => Self::Failed("other processes kept changing its dead letters".to_owned()),
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

impl From<&NotWritten> for HandlerError {
    fn from(error: &NotWritten) -> Self {
        match error {
            NotWritten::Lost => Self::Store(StoreError::Unreachable("another process took over the handler".into())),
            NotWritten::Store(error) => Self::Store(error.clone()),
            NotWritten::Refused(error) => error.clone().into(),
            NotWritten::Conflict => {
                Self::Store(StoreError::Unreachable("its dead letters were changed in the meantime; retry".into()))
            }
        }
    }
}
