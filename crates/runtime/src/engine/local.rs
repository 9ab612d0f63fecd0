//! A handler in Rust: a worker of its own processor, in the same process.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use annals_core::handlers::{Delivery, DeliveryFailure, HandlerError, PullBody, Settlement};
use annals_core::replays::is_inbox_token;
use annals_core::trace::TraceContext;
use annals_core::{Clock, EventLog, NewCommit, RecordedEvent, StoreError, Timestamp};
use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream::{FuturesUnordered, StreamExt};

use super::owner::Settling;
use crate::handler::{Attempt, Effects, EventKey, HandleFailure, Handler, RetryWish};
use crate::handlers::TenantHandlers;
use crate::host::{Ended, Supervised, message_of};

/// The shortest and the longest time that one attempt may take, in milliseconds; the limits of a lease.
const LEASE_MS: (u64, u64) = (100, 12 * 60 * 60 * 1_000);
/// How long one pull waits, in milliseconds: a day. A pull is answered once there is something to do, and ends with its owner, so a
/// shorter wait gains nothing.
const WAIT_MS: u64 = 24 * 60 * 60 * 1_000;
/// The pause before a request that the store failed to serve is repeated.
const AGAIN: Duration = Duration::from_secs(1);

/// Settlements in flight.
type Settles<'a> = FuturesUnordered<BoxFuture<'a, Result<(), HandlerError>>>;

/// An attempt that has ended and is to be settled.
struct Attempted {
    settling: Settling,
    /// When its lease ends.
    until: Timestamp,
    /// Whether a replay delivered its events.
    is_replayed: bool,
}

/// Runs a handler of this process.
pub(crate) struct Local {
    pub handlers: Arc<TenantHandlers>,
    pub name: String,
    /// The name of its processor, which is the prefix of the request ids of its commits.
    pub origin: String,
    pub handler: Arc<dyn Handler>,
    pub log: Arc<dyn EventLog>,
    pub clock: Arc<dyn Clock>,
    /// The number of partitions that are handled concurrently.
    pub lanes: usize,
    pub batch: usize,
}

impl Supervised for Local {
    async fn run(&mut self) -> Ended {
        let this = &*self;
        // At most one pull, which continues while attempts end: dropping a pull could lose deliveries that it has already claimed.
        let (mut attempts, mut pulls) = (FuturesUnordered::new(), FuturesUnordered::new());
        let mut settles: Settles<'_> = FuturesUnordered::new();
        let stop = this.handlers.stop();
        // Its claims rest on the life of the process, so keep that life even while no owner does.
        let _alive = this.handlers.stay_alive();
        let mut pull_at: Option<Timestamp> = None;
        let error = loop {
            // A lane whose attempt has ended is free: the owner serves the pull after settling what was sent before it.
            let free = this.lanes.saturating_sub(attempts.len());
            if pulls.is_empty() && free > 0 && pull_at.is_none() {
                pulls.push(this.pull((free * this.batch).min(1_000)));
            }
            tokio::select! {
                biased;
                () = stop.stopped() => return Ended::Done,
                Some(attempted) = attempts.next(), if !attempts.is_empty() => {
                    this.begin_to_settle(ended_by_now(attempted, &mut attempts), &settles);
                }
                Some(settled) = settles.next(), if !settles.is_empty() => match settled {
                    Ok(()) => {}
                    // Another owner has taken over, and hands out the events again. Attempts in flight continue: a dropped attempt would
                    // be repeated concurrently with whatever it left running.
                    Err(HandlerError::OwnedElsewhere { .. }) => {}
                    Err(HandlerError::Store(error)) if error != StoreError::Closed => {}
                    Err(error) => break error,
                },
                Some(pulled) = pulls.next(), if !pulls.is_empty() => match pulled {
                    Ok(deliveries) => attempts.extend(by_partition(deliveries).map(|of_one| this.attempt(of_one))),
                    // An attempt may take hours; the other lanes do not wait for it.
                    Err(HandlerError::Store(error)) if error != StoreError::Closed => {
                        tracing::warn!(handler = this.name, %error, "could not pull deliveries; retrying");
                        pull_at = Some(this.clock.now().plus(AGAIN));
                    }
                    Err(error) => break error,
                },
                () = this.clock.sleep_until(pull_at.unwrap_or_default()), if pull_at.is_some() => pull_at = None,
            }
        };
        drop(pulls);
        // The owner keeps running, so a dropped attempt's deliveries would stay in flight until their lease expires.
        while !(attempts.is_empty() && settles.is_empty()) {
            tokio::select! {
                () = stop.stopped() => return Ended::Done,
                Some(attempted) = attempts.next(), if !attempts.is_empty() => {
                    this.begin_to_settle(ended_by_now(attempted, &mut attempts), &settles);
                }
                Some(_) = settles.next(), if !settles.is_empty() => {}
            }
        }
        ended(&error)
    }
}

impl Local {
    async fn pull(&self, max: usize) -> Result<Vec<Delivery>, HandlerError> {
        let lease_ms = u64::try_from(self.handler.attempt_max().as_millis()).unwrap_or(u64::MAX);
        let lease_ms = lease_ms.clamp(LEASE_MS.0, LEASE_MS.1);
        let body = PullBody { max, wait_ms: WAIT_MS, lease_ms, worker: "in this process".to_owned() };
        self.handlers.take(&self.name, body, true).await
    }

    /// Handles the deliveries of one partition. Returns `None` if their lease has expired: the owner has then counted the attempt as
    /// failed, and hands the deliveries out again.
    async fn attempt(&self, deliveries: Vec<Delivery>) -> Option<Attempted> {
        let first = deliveries.first()?;
        let (until, is_replayed) = (first.until, deliveries.iter().any(|delivery| is_inbox_token(&delivery.token)));
        let attempt = Attempt {
            number: first.attempt,
            last_reason: first.last_reason.clone(),
            replay: first.replay.clone(),
            topic: first.topic.clone(),
            trace: first.trace,
        };
        let mut settlements = Vec::with_capacity(deliveries.len());
        let (mut events, mut traces) = (Vec::with_capacity(deliveries.len()), Vec::with_capacity(deliveries.len()));
        for Delivery { token, event, trace, .. } in deliveries {
            settlements.push(Settlement::done(token));
            events.push(event);
            traces.push(trace);
        }
        let mut effects = Effects { attempt, ..Effects::default() };
        let handling = async {
            match AssertUnwindSafe(self.handler.handle(&events, &mut effects)).catch_unwind().await {
                Ok(Ok(())) => self.commit(std::mem::take(&mut effects.commits), &events, &traces).await,
                Ok(Err(failure)) => Err(failure),
                Err(panic) => Err(HandleFailure::new(format!("the handler panicked: {}", message_of(&*panic)))),
            }
        };
        let handled = tokio::select! {
            handled = handling => handled,
            () = self.clock.sleep_until(until) => return None,
        };
        let settling = match handled {
            Ok(()) => Settling { settlements, effects: effects.records },
            // The first one fails. Those after it are released, and are delivered again after it.
            Err(failure) => {
                let first = settlements.into_iter().take(1).map(|it| failed(it.token, failure.clone()));
                Settling { settlements: first.collect(), effects: Vec::new() }
            }
        };
        Some(Attempted { settling, until, is_replayed })
    }

    /// Settles attempts: those of the handler's own events together, and each one of a replay separately.
    fn begin_to_settle<'a>(&'a self, ended: Vec<Attempted>, settles: &Settles<'a>) {
        let (replayed, own): (Vec<Attempted>, Vec<Attempted>) = ended.into_iter().partition(|it| it.is_replayed);
        if !own.is_empty() {
            let own: Vec<Settling> = own.into_iter().map(|it| it.settling).collect();
            settles.push(async move { self.handlers.settle_all(&self.name, own).await.map(drop) }.boxed());
        }
        for it in replayed {
            settles.push(self.settle_replayed(it.settling, it.until).boxed());
        }
    }

    /// Settles an attempt of a replay, and retries until it is stored: no owner hands out its event again before its lease ends at
    /// `until`.
    async fn settle_replayed(&self, settling: Settling, until: Timestamp) -> Result<(), HandlerError> {
        loop {
            match self.handlers.settle_all(&self.name, vec![settling.clone()]).await {
                Err(HandlerError::Store(error)) if error != StoreError::Closed && self.clock.now() < until => {
                    tracing::debug!(handler = self.name, %error, "retrying to settle the delivery of a replay");
                    self.clock.sleep(AGAIN).await;
                }
                settled => return settled.map(drop),
            }
        }
    }

    /// Stores the commits of a success. A repeated attempt finds them stored.
    async fn commit(
        &self,
        commits: Vec<(EventKey, NewCommit)>,
        events: &[RecordedEvent],
        traces: &[Option<TraceContext>],
    ) -> Result<(), HandleFailure> {
        let mut counts: HashMap<EventKey, u32> = HashMap::new();
        let key = |event: &RecordedEvent| (event.commit.commit_id, event.ordinal);
        for (cause, mut commit) in commits {
            let n = counts.entry(cause).or_default();
            let (id, ordinal) = cause;
            commit.request_id = Some(format!("{}/{id}.{ordinal}/{n}", self.origin).into());
            *n += 1;
            let caused = events.iter().zip(traces).find(|(event, _)| key(event) == cause);
            caused.and_then(|(_, trace)| *trace).iter().for_each(|trace| trace.note(&mut commit));
            self.log.commit(commit).await?;
        }
        Ok(())
    }
}

/// Returns this attempt and all others that have ended by now, so that they are settled in one write.
fn ended_by_now<F>(first: Option<Attempted>, attempts: &mut FuturesUnordered<F>) -> Vec<Attempted>
where
    F: Future<Output = Option<Attempted>>,
{
    let mut all = Vec::from_iter(first);
    while let Some(Some(attempted)) = attempts.next().now_or_never() {
        all.extend(attempted);
    }
    all
}

/// Groups deliveries by partition. Those of one partition are adjacent and in order.
fn by_partition(deliveries: Vec<Delivery>) -> impl Iterator<Item = Vec<Delivery>> {
    let mut groups: Vec<Vec<Delivery>> = Vec::new();
    for delivery in deliveries {
        match groups.last_mut() {
            Some(group) if group[0].partition == delivery.partition => group.push(delivery),
            _ => groups.push(vec![delivery]),
        }
    }
    groups.into_iter()
}

fn failed(token: String, failure: HandleFailure) -> Settlement {
    let HandleFailure { reason, retry } = failure;
    let (retry_after_ms, never) = match retry {
        RetryWish::Policy => (None, false),
        RetryWish::After(millis) => (Some(millis), false),
        RetryWish::Never => (None, true),
    };
    Settlement { token, failure: Some(DeliveryFailure { reason, retry_after_ms, never }) }
}

fn ended(error: &HandlerError) -> Ended {
    match error {
        HandlerError::Unknown(_) | HandlerError::Store(annals_core::StoreError::Closed) => Ended::Done,
        other => Ended::Failed(other.to_string()),
    }
}
