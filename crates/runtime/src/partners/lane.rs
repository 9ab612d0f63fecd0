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

/// The number of deliveries that are looked up at once.
const LOOK: usize = 100;
/// How often a lane looks even if it was not woken, on a store that other processes write to.
const LOOK_ANYWAY: Duration = Duration::from_secs(60);
/// The pause before a lane looks again after a failure of the store.
const AFTER_FAILURE: Duration = Duration::from_secs(1);

/// The state of a lane. The outcomes of attempts are stored while the next attempts are made, so that outcomes and claims share batches.
pub(super) struct Lane {
    work: Arc<Work>,
    partner: String,
    direction: EventDirection,
    name: String,
    /// Claims and requests in flight: at most as many as the partner accepts concurrently.
    attempts: JoinSet<Attempted>,
    /// Outcomes of attempts that are being stored.
    ends: JoinSet<Done>,
    /// Deliveries that are due and not started.
    ready: VecDeque<DeliveryRecord>,
    /// The number of the next deliveries whose events have been read.
    read: usize,
    /// Those of their events that were found.
    events: HashMap<ObjectId, PartnerEventRecord>,
    /// The keys of deliveries that are started and not ended.
    taken: HashSet<String>,
    /// Those of them that a look-up found due, and passed.
    passed: HashSet<String>,
    /// Whether there may be due deliveries that are not known yet.
    look: bool,
    /// When the next delivery becomes due.
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
            passed: HashSet::new(),
            look: true,
            later: None,
            breaker: Breaker::default(),
        }
    }

    /// Attempts due deliveries, until the partner is deleted or the owner ends. Returns the lane's name.
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
                // An attempt that panics ends as well.
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
            // Take everything else that has ended by now, so that as many attempts as possible start together.
            while let Some(Ok(attempted)) = self.attempts.try_join_next() {
                self.attempted(attempted);
            }
            while let Some(Ok(done)) = self.ends.try_join_next() {
                self.ended(done);
            }
        }
    }

    /// Returns how many attempts may be in flight now, and when that changes by itself.
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

    /// Starts as many attempts as may be in flight. Returns when to look again.
    async fn begin(&mut self, partner: &Arc<Partner>) -> Option<Timestamp> {
        let now = self.work.partners.now();
        let (most, opens) = self.most(partner, now);
        if most == 0 {
            (self.read, self.events) = (0, HashMap::new());
            return opens;
        }
        // Bound the ends too, so that they do not accumulate while the store is slow.
        while self.attempts.len() < most && self.attempts.len() + self.ends.len() < 2 * most {
            if self.ready.is_empty()
                && self.look
                && let Err(error) = self.look_up(now).await
            {
                if !matches!(error, RecordError::Store(StoreError::Closed)) {
                    tracing::warn!(lane = self.name, %error, "cannot look up deliveries; retrying");
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
        // A process that stores a delivery and dies before it wakes the owner leaves the delivery to be found.
        let anyway = self.work.partners.shared.may_share().then(|| now.plus(LOOK_ANYWAY));
        [self.later, anyway].into_iter().flatten().min()
    }

    /// Reads the events of the next deliveries together. An attempt whose event was not found reads it by itself, and fails by itself.
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
            Err(error) => {
                tracing::debug!(lane = self.name, %error, "could not read the events of deliveries together; reading them one by one")
            }
        }
    }

    async fn look_up(&mut self, now: Timestamp) -> Result<(), RecordError> {
        let deliveries = TypedRecords::<DeliveryRecord>::declared(Arc::clone(&self.work.partners.records));
        let limit = LOOK + self.taken.len().min(LOOK);
        let query = TypedRecords::<DeliveryRecord>::query().matching(DeliveryRecord::due_in(&self.name));
        // Reset before the read, so that a later wake-up causes another look-up.
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
                _ if self.taken.contains(&delivery.key) => {
                    self.passed.insert(delivery.key);
                }
                _ => self.ready.push_back(delivery),
            }
        }
        self.look = full;
        Ok(())
    }

    /// Handles an attempt that has been made, and starts storing its outcome.
    fn attempted(&mut self, attempted: Attempted) {
        let made = match attempted {
            Attempted::Made(made) => *made,
            Attempted::Over(mut done) => {
                // It was set to wait and became due again before this lane learned the first. It is due still.
                done.look |= done.later.is_none() && self.passed.contains(&done.key);
                return self.ended(done);
            }
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

    /// Handles an attempt whose outcome is stored.
    fn ended(&mut self, done: Done) {
        self.taken.remove(&done.key);
        self.passed.remove(&done.key);
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
