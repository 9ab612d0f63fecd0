//! The task that owns a subscription: it holds the lease, requests pages from the producer, and stores the received events.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use annals_core::horizon::{
    CREDITS_MAX, HorizonError, Intake, Next, OfferRequest, Offered, Offering, OriginRecord, ProgressRecord, Refusal,
    SubscriptionDefinition, check_last,
};
use annals_core::{
    Clock, LogQuery, ReceiveError, ReceivedBatch, Receiving, RecordError, RecordedEvent, StoreError, StreamPosition,
    Subscription, SubscriptionState, Timestamp, TypedRecords,
};
use tokio::sync::watch;

use super::pages::Pages;
use super::{Slot, TenantHorizon, whatever};
use crate::host::{Asked, Ended, Held, Leases, Supervised, is_set, locked, reached};

/// How often to ask for a lease that another process holds. Together with the time of a lease, this bounds the time of a takeover.
const ASK_EVERY: Duration = Duration::from_millis(500);
/// How often progress is noted while only its numbers change.
const NOTE_EVERY: Duration = Duration::from_secs(1);
/// How long a producer waits for the first event of a page, in milliseconds.
const WAIT_MS: u64 = 10_000;
/// The number of the scope's newest events among which the last received one is looked up.
const LOOK_BACK: usize = 100;

/// The state of a subscription's owner that survives restarts of its task.
pub(super) struct Owner {
    pub horizon: Arc<TenantHorizon>,
    pub name: String,
    pub slot: Arc<Slot>,
}

/// The state of an owner while it holds the lease.
struct Work<'o> {
    owner: &'o Owner,
    definition: SubscriptionDefinition,
    clock: Arc<dyn Clock>,
    offering: Arc<dyn Offering>,
    receiving: Arc<dyn Receiving>,
    intake: Intake,
    leases: &'o Leases,
    held: &'o Held,
    changed: watch::Receiver<u64>,
    noted: ProgressRecord,
    noted_at: Timestamp,
}

/// Why an owner stops working.
enum Stop {
    /// The host is drained, or the subscription was deleted.
    Done,
    /// The store is being closed. It may refuse writes before it refuses reads.
    Closed,
    /// Another process owns the subscription.
    Lost,
    /// A less busy process gets the subscription.
    Given(String),
    /// The definition changed, so the work must start over.
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
                Stop::Lost => tracing::info!(subscription = self.name, "another process took over the subscription"),
                Stop::Failed(error) => return Ended::Failed(error),
            }
        }
    }
}

impl Owner {
    /// Returns whether a new owner would start at once: the store may refuse writes while its reads still work.
    async fn can_be_read(&self) -> bool {
        let is_drained = *self.horizon.shared.stop.borrow();
        !is_drained && self.horizon.definition(&self.name).await.is_ok()
    }

    /// Ends, so that a new owner can start. A definition that was put meanwhile found this one still running.
    async fn end(&mut self) {
        *locked(&self.slot.runs) = false;
        let is_drained = *self.horizon.shared.stop.borrow();
        if !is_drained && self.horizon.definition(&self.name).await.is_ok() {
            self.horizon.start(&self.name);
        }
    }

    /// Takes the lease, works, and releases the lease.
    async fn own(&self) -> Stop {
        // Subscribe to changes first, so that a later change is noticed.
        let mut changed = self.slot.changed.subscribe();
        let (leases, held) = match self.take(&mut changed).await {
            Ok(taken) => taken,
            Err(stop) => return stop,
        };
        // This also covers a failure to begin: a lease kept by a living process would keep out every other process.
        let stop = match self.begin(&leases, &held, changed).await {
            Ok(mut work) => {
                let Err(stop) = work.run().await;
                if !matches!(stop, Stop::Lost) {
                    let _ = work.note().await;
                }
                stop
            }
            Err(stop) => stop,
        };
        *locked(&self.slot.known) = None;
        match &stop {
            Stop::Done | Stop::Closed | Stop::Failed(_) => leases.release(&held).await,
            Stop::Given(to) => leases.give(&held, to).await,
            Stop::Lost | Stop::Again => {}
        }
        stop
    }

    async fn take(&self, changed: &mut watch::Receiver<u64>) -> Result<(Leases, Held), Stop> {
        let horizon = &self.horizon;
        horizon.declare().await?;
        horizon.definition(&self.name).await?;
        let task = format!("subscription/{}", self.name);
        let leases = Leases::new(&horizon.shared, &horizon.tenant, Arc::clone(&horizon.records), task).spread();
        let held = self.until_taken(&leases, changed).await?;
        Ok((leases, held))
    }

    async fn begin<'w>(
        &'w self,
        leases: &'w Leases,
        held: &'w Held,
        changed: watch::Receiver<u64>,
    ) -> Result<Work<'w>, Stop> {
        let horizon = &self.horizon;
        let (definition, _) = horizon.definition(&self.name).await?;
        let receiving = horizon.store().receiving(&horizon.tenant, &definition.scope);
        let receiving = receiving.map_err(|error| Stop::Failed(error.to_string()))?;
        let noted = horizon.noted(&definition).await?;
        Ok(Work {
            owner: self,
            clock: Arc::clone(horizon.clock()),
            offering: horizon.offering(&definition)?,
            receiving,
            noted: ProgressRecord::of(&definition, &noted),
            intake: Intake::new(noted),
            leases,
            held,
            changed,
            noted_at: Timestamp::from_millis(0),
            definition,
        })
    }

    async fn until_taken(&self, leases: &Leases, changed: &mut watch::Receiver<u64>) -> Result<Held, Stop> {
        let (clock, mut stop) = (self.horizon.clock(), self.horizon.shared.stop.subscribe());
        loop {
            if let Asked::Taken(held) = leases.ask().await? {
                return Ok(held);
            }
            tokio::select! {
                biased;
                () = is_set(&mut stop) => return Err(Stop::Done),
                _ = changed.changed() => return Err(Stop::Again),
                () = clock.sleep(ASK_EVERY) => {}
            }
        }
    }
}

impl Work<'_> {
    async fn run(&mut self) -> Result<std::convert::Infallible, Stop> {
        loop {
            self.show();
            match self.intake.next(self.clock.now()) {
                Next::Wait(at) => {
                    let clock = Arc::clone(&self.clock);
                    self.beside(async move { clock.sleep_until(at).await }).await?;
                }
                Next::Connect => {
                    let connected = self.connect().await?;
                    self.noticed(connected);
                }
                Next::Take(from) => {
                    let taken = self.take(from).await?;
                    self.noticed(taken);
                }
            }
        }
    }

    fn noticed(&mut self, outcome: Result<(), Refusal>) {
        let Err(refusal) = outcome else { return };
        let (Refusal::Failing(reason) | Refusal::Refused(reason) | Refusal::Blocked(reason)) = &refusal;
        tracing::debug!(subscription = self.owner.name, reason, "a subscription is not receiving");
        let random = self.owner.horizon.shared.options.random.bits() as u64;
        self.intake.failed(refusal, self.clock.now(), random);
    }

    fn show(&self) {
        *locked(&self.owner.slot.known) = Some(self.intake.progress().clone());
    }

    /// Waits for `work`, and meanwhile keeps the lease and notes the progress.
    async fn beside<T>(&mut self, work: impl Future<Output = T>) -> Result<T, Stop> {
        let mut work = pin!(work);
        let mut stop = self.owner.horizon.shared.stop.subscribe();
        loop {
            let now = self.clock.now();
            if !self.leases.keeps(self.held).await? {
                return Err(Stop::Lost);
            }
            if let Some(to) = self.leases.given_to() {
                return Err(Stop::Given(to));
            }
            // If the clock was set back, do not wait until it reaches the old time again.
            self.noted_at = self.noted_at.min(now);
            if self.is_worth_noting(now) {
                self.note().await?;
            }
            let notes = self.is_changed().then(|| self.noted_at.plus(NOTE_EVERY));
            let look = notes.unwrap_or(now.plus(Duration::from_secs(3600)));
            tokio::select! {
                biased;
                () = is_set(&mut stop) => return Err(Stop::Done),
                _ = self.changed.changed() => return Err(Stop::Again),
                done = &mut work => return Ok(done),
                () = self.leases.until_called_off(self.held) => {}
                () = reached(&*self.clock, now, look) => {}
            }
        }
    }

    fn is_changed(&self) -> bool {
        self.noted != ProgressRecord::of(&self.definition, self.intake.progress())
    }

    /// Returns whether to note the progress: at once if the state changed, once a second if only numbers did.
    fn is_worth_noting(&self, now: Timestamp) -> bool {
        let (noted, progress) = (&self.noted, self.intake.progress());
        let is_other = noted.state != progress.state
            || noted.notice != progress.notice
            || noted.microservice.as_deref() != progress.microservice.as_deref();
        is_other || now >= self.noted_at.plus(NOTE_EVERY) && self.is_changed()
    }

    async fn note(&mut self) -> Result<(), Stop> {
        let record = ProgressRecord::of(&self.definition, self.intake.progress());
        let notes = TypedRecords::<ProgressRecord>::declared(Arc::clone(&self.owner.horizon.records));
        notes.replace_if(&record, whatever()).await?;
        (self.noted, self.noted_at) = (record, self.clock.now());
        Ok(())
    }

    fn request(&self, from: StreamPosition, incarnation: Option<u32>) -> OfferRequest {
        let horizon = &self.owner.horizon;
        OfferRequest {
            microservice: horizon.shared.options.microservice.as_str().into(),
            tenant: horizon.tenant.as_str().into(),
            stream: self.definition.stream.clone(),
            partition: self.definition.partition.clone(),
            from,
            credits: 0,
            wait_ms: 0,
            incarnation,
        }
    }

    /// Asks the producer for its identity.
    async fn greet(&mut self, incarnation: Option<u32>) -> Result<Result<Offered, Refusal>, Stop> {
        let (offering, request) = (Arc::clone(&self.offering), self.request(0, incarnation));
        let greeted = self.beside(async move { offering.offer(request).await }).await?;
        Ok(greeted.map_err(|error| Refusal::from(&error)))
    }

    /// Compares the producer with the one that the received events came from.
    async fn connect(&mut self) -> Result<Result<(), Refusal>, Stop> {
        let mut offered = match self.greet(None).await? {
            Ok(offered) => offered,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let subscription = self.definition.subscription(&offered.microservice);
        let origins = TypedRecords::<OriginRecord>::declared(Arc::clone(&self.owner.horizon.records));
        let key = OriginRecord::key(&self.definition.scope, &subscription);
        let known = origins.get(key).await?.map(|found| found.value.read()).transpose().map_err(Stop::Failed)?;
        if let Some(known) = known.as_ref().filter(|known| known.incarnation != offered.identity.incarnation) {
            // Ask up to which number the log agrees with the known incarnation.
            offered = match self.greet(Some(known.incarnation)).await? {
                Ok(offered) => offered,
                Err(refusal) => return Ok(Err(refusal)),
            };
        }
        let (receiving, of) = (Arc::clone(&self.receiving), subscription.clone());
        let stored = match self.beside(async move { receiving.state(&of).await }).await? {
            Ok(stored) => stored,
            Err(error) => return not_stored(error).map(Err),
        };
        if let Some(last) = self.last_received(&subscription, stored).await? {
            let (offering, at) = (Arc::clone(&self.offering), stored.position.saturating_sub(1));
            let request = OfferRequest { credits: 1, ..self.request(at, None) };
            let found = match self.beside(async move { offering.offer(request).await }).await? {
                Ok(found) => found.events.first().cloned(),
                Err(error) => return Ok(Err(Refusal::from(&error))),
            };
            let is_older = known.as_ref().is_some_and(|known| known.incarnation != offered.identity.incarnation);
            // For an older incarnation, the numbers decide what a restore means for received events.
            if let (false, Err(refusal)) = (is_older, check_last(&last, found.as_ref())) {
                return Ok(Err(refusal));
            }
        }
        match self.intake.connect(subscription.clone(), stored, known.as_ref(), &offered) {
            Ok(Some(origin)) => {
                // INVARIANT: the origin is stored before the first event from that origin.
                let record = OriginRecord::of(&self.definition.scope, &subscription, &origin);
                origins.replace_if(&record, whatever()).await?;
                Ok(Ok(()))
            }
            Ok(None) => Ok(Ok(())),
            Err(refusal) => Ok(Err(refusal)),
        }
    }

    /// Returns the last received event, if it is among the newest events of the scope's log.
    async fn last_received(
        &self,
        subscription: &Subscription,
        stored: SubscriptionState,
    ) -> Result<Option<RecordedEvent>, Stop> {
        let Some(last) = stored.sequence_number else { return Ok(None) };
        let horizon = &self.owner.horizon;
        let log = horizon.store().log(&horizon.tenant, &self.definition.scope);
        let log = log.map_err(|error| Stop::Failed(error.to_string()))?;
        let query = LogQuery { backwards: true, limit: LOOK_BACK, ..LogQuery::default() };
        let page = log.read(query).await.map_err(HorizonError::from)?;
        Ok(page.events.into_iter().find(|event| {
            let from = event.commit.received.as_ref();
            from.is_some_and(|from| from.subscription == *subscription && from.sequence_number == last)
        }))
    }

    /// Stores page after page until something fails.
    async fn take(&mut self, from: StreamPosition) -> Result<Result<(), Refusal>, Stop> {
        let request = OfferRequest { credits: CREDITS_MAX, wait_ms: WAIT_MS, ..self.request(from, None) };
        let mut pages = Pages::start(Arc::clone(&self.offering), request, Arc::clone(&self.clock));
        loop {
            let Some((from, page)) = self.beside(pages.next()).await? else {
                return Ok(Err(Refusal::Failing("the reader of the producer has ended".to_owned())));
            };
            let taken = match page {
                Ok(offered) => self.intake.take(from, offered),
                Err(error) => Err(Refusal::from(&error)),
            };
            let batches = match taken {
                Ok(batches) => batches,
                Err(refusal) => return Ok(Err(refusal)),
            };
            for batch in batches {
                if let Err(refusal) = self.store(batch).await? {
                    return Ok(Err(refusal));
                }
            }
            self.show();
        }
    }

    async fn store(&mut self, batch: ReceivedBatch) -> Result<Result<(), Refusal>, Stop> {
        let receiving = Arc::clone(&self.receiving);
        match self.beside(async move { receiving.receive(batch).await }).await? {
            Ok(received) => {
                self.intake.stored(received.state, self.clock.now());
                Ok(Ok(()))
            }
            Err(error) => not_stored(error).map(Err),
        }
    }
}

/// Converts an error of storing events to its consequence for the subscription.
fn not_stored(error: ReceiveError) -> Result<Refusal, Stop> {
    match error {
        ReceiveError::Store(StoreError::Closed) => Err(Stop::Closed),
        error @ ReceiveError::OtherEvents { .. } => Ok(Refusal::Blocked(error.to_string())),
        error => Ok(Refusal::Failing(error.to_string())),
    }
}

impl From<HorizonError> for Stop {
    fn from(error: HorizonError) -> Self {
        match error {
            HorizonError::UnknownSubscription(_) => Self::Done,
            HorizonError::Store(StoreError::Closed) => Self::Closed,
            other => Self::Failed(other.to_string()),
        }
    }
}

impl From<RecordError> for Stop {
    fn from(error: RecordError) -> Self {
        match error {
            RecordError::Store(StoreError::Closed) => Self::Closed,
            other => Self::Failed(other.to_string()),
        }
    }
}
