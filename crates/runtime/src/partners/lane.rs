//! A lane: the deliveries of one partner in one direction, each attempted when it is due.

use std::collections::{HashSet, VecDeque};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use annals_core::partners::{Breaker, DeliveryRecord, EventDirection};
use annals_core::{Clock, RecordError, StoreError, Timestamp, TypedRecords};
use futures_util::FutureExt;
use tokio::task::JoinSet;

use super::attempt::Done;
use super::known::Partner;
use super::owner::Work;
use crate::host::{is_set, locked, message_of};

/// How many deliveries are looked up at once.
const LOOK: usize = 100;
/// How often a lane looks again although nobody told it, on a store that other processes write to.
const LOOK_ANYWAY: Duration = Duration::from_secs(60);
/// When a lane looks again whose store failed.
const AFTER_FAILURE: Duration = Duration::from_secs(1);

/// A lane at work.
pub(super) struct Lane {
    work: Arc<Work>,
    partner: String,
    direction: EventDirection,
    name: String,
    /// Due now, and not begun.
    ready: VecDeque<DeliveryRecord>,
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
        let (ready, taken, breaker) = (VecDeque::new(), HashSet::new(), Breaker::default());
        Self { work, partner, direction, name, ready, taken, look: true, later: None, breaker }
    }

    /// Attempts what is due, until the partner is deleted or the owner ends. Returns the lane's name.
    pub async fn run(mut self) -> String {
        let partners = Arc::clone(&self.work.partners);
        let (mut known, mut ending) = (self.work.known.subscribe(), self.work.ending.subscribe());
        let wake = partners.wake_of(&self.name);
        let clock: Arc<dyn Clock> = Arc::clone(partners.clock());
        let mut flights: JoinSet<Done> = JoinSet::new();
        loop {
            let partner = known.borrow_and_update().partners.get(&self.partner).cloned();
            let Some(partner) = partner.filter(|_| !*ending.borrow()) else {
                while flights.join_next().await.is_some() {}
                locked(&partners.breakers).remove(&self.name);
                return self.name;
            };
            let until = self.begin(&partner, &mut flights).await;
            tokio::select! {
                // An attempt that panics ends as well.
                Some(Ok(done)) = flights.join_next() => self.ended(&partner, done),
                () = wake.notified() => self.look = true,
                () = sleep_until(&*clock, until) => {
                    self.look = true;
                    self.later = None;
                }
                _ = known.changed() => self.look = true,
                () = is_set(&mut ending) => {}
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
    async fn begin(&mut self, partner: &Arc<Partner>, flights: &mut JoinSet<Done>) -> Option<Timestamp> {
        let now = self.work.partners.now();
        let (most, opens) = self.most(partner, now);
        if most == 0 {
            return opens;
        }
        while flights.len() < most {
            if self.ready.is_empty()
                && self.look
                && let Err(error) = self.look_up(now).await
            {
                if !matches!(error, RecordError::Store(StoreError::Closed)) {
                    tracing::warn!(lane = self.name, %error, "deliveries cannot be looked up");
                }
                return Some(now.plus(AFTER_FAILURE));
            }
            let Some(delivery) = self.ready.pop_front() else { break };
            let (work, key) = (Arc::clone(&self.work), delivery.key.clone());
            self.taken.insert(key.clone());
            let attempt = Arc::clone(&self.work).attempt(Arc::clone(partner), self.direction, delivery);
            flights.spawn(async move {
                match AssertUnwindSafe(attempt).catch_unwind().await {
                    Ok(done) => done,
                    Err(panic) => work.panicked(key, message_of(&*panic)),
                }
            });
        }
        // A process that records a delivery and ends before it tells the owner leaves it to be found.
        let anyway = self.work.partners.shared.may_share().then(|| now.plus(LOOK_ANYWAY));
        [self.later, anyway].into_iter().flatten().min()
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

    fn ended(&mut self, partner: &Partner, done: Done) {
        self.taken.remove(&done.key);
        self.look |= done.look;
        self.later = match (self.later, done.later) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
        let partners = &self.work.partners;
        let Some(outcome) = done.outcome else { return };
        partners.metrics.attempted(&self.partner, self.direction, &outcome);
        if self.direction == EventDirection::Out {
            let limits = &partner.definition.limits;
            self.breaker.note(&outcome, partners.now(), limits.breaker_failures);
            let until = self.breaker.opens_until(Duration::from_millis(limits.breaker_ms.into()));
            let mut breakers = locked(&partners.breakers);
            match until {
                Some(until) => breakers.insert(self.name.clone(), until),
                None => breakers.remove(&self.name),
            };
        }
    }
}

async fn sleep_until(clock: &dyn Clock, at: Option<Timestamp>) {
    match at {
        Some(at) => clock.sleep_until(at).await,
        None => std::future::pending().await,
    }
}
