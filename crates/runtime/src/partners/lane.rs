//! A lane: the deliveries of one partner in one direction, each attempted when it is due.

use std::collections::{HashMap, HashSet, VecDeque};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use annals_core::bson::oid::ObjectId;
use annals_core::partners::{Breaker, DeliveryRecord, EventDirection, PartnerEventRecord};
use annals_core::{Clock, Condition, RecordError, StoreError, Timestamp, TypedRecords};
use futures_util::FutureExt;
use tokio::task::JoinSet;

use super::attempt::{Attempted, Done, Made};
use super::known::Partner;
use super::owner::Work;
use crate::host::{is_set, locked, message_of};

/// How many deliveries are looked up at once.
const LOOK: usize = 100;
/// How often a lane looks again although nobody told it, on a store that other processes write to.
const LOOK_ANYWAY: Duration = Duration::from_secs(60);
/// When a lane looks again whose store failed.
const AFTER_FAILURE: Duration = Duration::from_secs(1);

/// A lane at work. What an attempt stores at its end is stored while the next attempts are made, so that the claims of these and the ends
/// of those share batches.
pub(super) struct Lane {
    work: Arc<Work>,
    partner: String,
    direction: EventDirection,
    name: String,
    /// Claims and requests in flight: as many as the partner takes at a time, at most.
    attempts: JoinSet<Attempted>,
    /// What became of attempts and is being stored.
    ends: JoinSet<Done>,
    /// Due now, and not begun.
    ready: VecDeque<DeliveryRecord>,
    /// How many of the next ones have had their events read.
    read: usize,
    /// The events that were found.
    events: HashMap<ObjectId, PartnerEventRecord>,
    /// Begun, and not ended.
    taken: HashSet<String>,
    /// Whether there may be more than what is known.
    look: bool,
    /// When something else becomes due.
    later: Option<Timestamp>,
    breaker: Breaker,
}

impl Lane {
    pub fn new(work: Arc<Work>, partner: String, direction: EventDirection) -> Self {
        let name = DeliveryRecord::lane_of(direction, &partner);
        Self {
            work,
            partner,
            direction,
            name,
            attempts: JoinSet::new(),
            ends: JoinSet::new(),
            ready: VecDeque::new(),
            read: 0,
            events: HashMap::new(),
            taken: HashSet::new(),
            look: true,
            later: None,
            breaker: Breaker::default(),
        }
    }

    /// Attempts what is due, until the partner is deleted or the owner ends. Returns the lane's name.
    pub async fn run(mut self) -> String {
        let partners = Arc::clone(&self.work.partners);
        let (mut known, mut ending) = (self.work.known.subscribe(), self.work.ending.subscribe());
        let wake = partners.wake_of(&self.name);
        let clock: Arc<dyn Clock> = Arc::clone(partners.clock());
        loop {
            let partner = known.borrow_and_update().partners.get(&self.partner).cloned();
            let Some(partner) = partner.filter(|_| !*ending.borrow()) else {
                while let Some(attempted) = self.attempts.join_next().await {
                    if let Ok(attempted) = attempted {
                        self.attempted(attempted);
                    }
                }
                while self.ends.join_next().await.is_some() {}
                locked(&partners.breakers).remove(&self.name);
                return self.name;
            };
            let until = self.begin(&partner).await;
            tokio::select! {
                // One that panics ends as well.
                Some(Ok(attempted)) = self.attempts.join_next() => self.attempted(attempted),
                Some(Ok(done)) = self.ends.join_next() => self.ended(done),
                () = wake.notified() => self.look = true,
                () = sleep_until(&*clock, until) => {
                    self.look = true;
                    self.later = None;
                }
                _ = known.changed() => self.look = true,
                () = is_set(&mut ending) => {}
            }
            // What else is over by now, so that as many as possible begin together.
            while let Some(Ok(attempted)) = self.attempts.try_join_next() {
                self.attempted(attempted);
            }
            while let Some(Ok(done)) = self.ends.try_join_next() {
                self.ended(done);
            }
        }
    }

    /// How many attempts may be in flight now, and when that changes by itself.
    fn most(&self, partner: &Partner, now: Timestamp) -> (usize, Option<Timestamp>) {
        let definition = &partner.definition;
        let concurrency = definition.limits.concurrency as usize;
        if self.direction == EventDirection::In {
            return (concurrency, None);
        }
        if definition.paused || definition.url.is_none() {
            return (0, None);
        }
        let wait = Duration::from_millis(definition.limits.breaker_ms.into());
        (self.breaker.admits(now, concurrency, wait), self.breaker.opens_until(wait).filter(|until| *until > now))
    }

    /// Begins attempts as far as they may be in flight. Returns when to look again.
    async fn begin(&mut self, partner: &Arc<Partner>) -> Option<Timestamp> {
        let now = self.work.partners.now();
        let (most, opens) = self.most(partner, now);
        if most == 0 {
            (self.read, self.events) = (0, HashMap::new());
            return opens;
        }
        // No more ends gather while the store is slow than there are attempts.
        while self.attempts.len() < most && self.attempts.len() + self.ends.len() < 2 * most {
            if self.ready.is_empty()
                && self.look
                && let Err(error) = self.look_up(now).await
            {
                if !matches!(error, RecordError::Store(StoreError::Closed)) {
                    tracing::warn!(lane = self.name, %error, "deliveries cannot be looked up");
                }
                return Some(now.plus(AFTER_FAILURE));
            }
            if self.read == 0 {
                self.read_events(most).await;
            }
            let Some(delivery) = self.ready.pop_front() else { break };
            self.read = self.read.saturating_sub(1);
            let event = self.events.remove(&delivery.event);
            let (work, key) = (Arc::clone(&self.work), delivery.key.clone());
            self.taken.insert(key.clone());
            let attempt = Arc::clone(&self.work).attempt(Arc::clone(partner), self.direction, delivery, event);
            self.attempts.spawn(async move {
                match AssertUnwindSafe(attempt).catch_unwind().await {
                    Ok(attempted) => attempted,
                    Err(panic) => Attempted::Over(work.panicked(key, message_of(&*panic))),
                }
            });
        }
        // A process that records a delivery and ends before it tells the owner leaves it to be found.
        let anyway = self.work.partners.shared.may_share().then(|| now.plus(LOOK_ANYWAY));
        [self.later, anyway].into_iter().flatten().min()
    }

    /// Reads the events of the next deliveries together. An attempt whose event this does not find reads it alone, and fails alone.
    async fn read_events(&mut self, most: usize) {
        let ids: Vec<ObjectId> = self.ready.iter().take(most).map(|delivery| delivery.event).collect();
        (self.read, self.events) = (ids.len(), HashMap::new());
        if ids.len() < 2 {
            return;
        }
        let wanted = Condition::is_in("_id", ids);
        let query = TypedRecords::<PartnerEventRecord>::query().matching(wanted).limit(most);
        match self.work.partners.typed_events().find_readable(query, drop).await {
            Ok((found, _)) => self.events = found.into_iter().map(|found| (found.value.id, found.value)).collect(),
            Err(error) => tracing::debug!(lane = self.name, %error, "events of deliveries are read one by one"),
        }
    }

    async fn look_up(&mut self, now: Timestamp) -> Result<(), RecordError> {
        let deliveries = TypedRecords::<DeliveryRecord>::declared(Arc::clone(&self.work.partners.records));
        let limit = LOOK + self.taken.len().min(LOOK);
        let query = TypedRecords::<DeliveryRecord>::query().matching(DeliveryRecord::due_in(&self.name));
        // What is woken meanwhile is looked up again.
        self.look = false;
        let (found, _) =
            deliveries.find(query.ascending("due").limit(limit)).await.inspect_err(|_| self.look = true)?;
        let full = found.len() == limit;
        self.later = None;
        for delivery in found.into_iter().map(|found| found.value) {
            match delivery.due_at() {
                Some(due) if due > now => {
                    self.later = Some(due);
                    return Ok(());
                }
                _ if self.taken.contains(&delivery.key) => {}
                _ => self.ready.push_back(delivery),
            }
        }
        self.look = full;
        Ok(())
    }

    /// Takes note of an attempt, and begins to store what became of it.
    fn attempted(&mut self, attempted: Attempted) {
        let made = match attempted {
            Attempted::Made(made) => *made,
            Attempted::Over(done) => return self.ended(done),
        };
        self.note(&made);
        let (work, key) = (Arc::clone(&self.work), made.delivery.key.clone());
        let end = Arc::clone(&self.work).end_attempt(made);
        self.ends.spawn(async move {
            match AssertUnwindSafe(end).catch_unwind().await {
                Ok(done) => done,
                Err(panic) => work.panicked(key, message_of(&*panic)),
            }
        });
    }

    /// Counts an attempt, and opens or closes the breaker.
    fn note(&mut self, made: &Made) {
        let partners = &self.work.partners;
        partners.metrics.attempted(&self.partner, self.direction, &made.outcome);
        if self.direction == EventDirection::Out {
            let limits = &made.partner.definition.limits;
            self.breaker.note(&made.outcome, partners.now(), limits.breaker_failures);
            let until = self.breaker.opens_until(Duration::from_millis(limits.breaker_ms.into()));
            let mut breakers = locked(&partners.breakers);
            match until {
                Some(until) => breakers.insert(self.name.clone(), until),
                None => breakers.remove(&self.name),
            };
        }
    }

    /// Takes note of an attempt that is over.
    fn ended(&mut self, done: Done) {
        self.taken.remove(&done.key);
        self.look |= done.look;
        self.later = match (self.later, done.later) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
    }
}

async fn sleep_until(clock: &dyn Clock, at: Option<Timestamp>) {
    match at {
        Some(at) => clock.sleep_until(at).await,
        None => std::future::pending().await,
    }
}
