//! The partners of a tenant: definitions, received events, acts, and the tasks that select and send events. The contract is [`Partners`].
//!
//! ```text
//!  log ─▶ partners/select.rs: Condition of each partner ─▶ records, deliveries, position (one batch)
//!                                                               │ due
//!  partners/owner.rs: lease ─▶ partners/lane.rs, one for each partner and direction ─▶ attempt.rs: claim ─▶ send or commit ─▶ finish
//!  partners/receive.rs: signature ─▶ record, delivery ─▶ 202 ─────┘
//!
//!  claims and ends of all lanes ─▶ writer.rs ─▶ one batch for what has gathered meanwhile
//! ```
//!
//! INVARIANT: every batch of the owner's tasks expects the epoch of its lease. A process that lost the lease cannot write.

mod acts;
mod archive;
mod attempt;
mod definitions;
mod events;
mod finish;
mod known;
mod lane;
mod metrics;
mod owner;
mod queues;
mod receive;
mod replays;
mod running;
mod secrets;
mod select;
mod writer;

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicI64};
use std::sync::{Arc, Mutex, Weak};

use annals_core::handlers::{ActRecord, Reason};
use annals_core::partners::{
    Accepted, ArchivedPartnerEvent, DeliveryRecord, EventsQuery, Incoming, NoSending, PARTNERS, PartnerDefinition,
    PartnerError, PartnerEventPage, PartnerEventRecord, PartnerEventView, PartnerPage, PartnerRecord,
    PartnerStatistics, PartnerStatus, Partners, ReplayStarted, ReplayTask, SecretsRecord, SelectionRecord, Sending,
};
use annals_core::{
    Clock, Condition, DEFAULT_SCOPE, EventLog, Expected, Lease, RecordChange, RecordError, RecordType, Records,
    StoreError, Timestamp, UnknownLog,
};
use async_trait::async_trait;
use tokio::sync::Notify;

use crate::host::{Host, Shared, locked};
pub use metrics::{PartnerFailures, PartnerMetrics};
pub use secrets::PartnerKeys;

/// Options for exchanging events with partners.
#[derive(Clone)]
pub struct PartnerOptions {
    /// How requests reach partners. If unset, they reach none.
    pub sending: Arc<dyn Sending>,
    /// The keys that encrypt the partners' secrets. Without them, no secret can be stored.
    pub keys: Option<PartnerKeys>,
}

impl Default for PartnerOptions {
    fn default() -> Self {
        Self { sending: Arc::new(NoSending), keys: None }
    }
}

/// The partners of one tenant in this process.
pub(crate) struct TenantPartners {
    shared: Arc<Shared>,
    tenant: String,
    records: Arc<dyn Records>,
    log: Arc<dyn EventLog>,
    watching: Mutex<bool>,
    runs: Mutex<bool>,
    /// Whether this process owns the partners of the tenant.
    owns: AtomicBool,
    /// The signals that wake lanes.
    wakes: Mutex<HashMap<String, Arc<Notify>>>,
    /// Signals a replay to run.
    replays: Notify,
    /// Until when breakers are open, by lane.
    breakers: Mutex<BTreeMap<String, Timestamp>>,
    metrics: metrics::Counters,
    /// The order of the last received event.
    arrived: AtomicI64,
    me: Weak<Self>,
}

/// The partners of a host's tenants.
#[derive(Default)]
pub(crate) struct AllPartners(Mutex<BTreeMap<String, Arc<TenantPartners>>>);

impl AllPartners {
    fn of(&self, shared: &Arc<Shared>, tenant: &str) -> Result<Arc<TenantPartners>, UnknownLog> {
        let mut all = locked(&self.0);
        if let Some(known) = all.get(tenant) {
            return Ok(Arc::clone(known));
        }
        let records = shared.store.records(tenant)?;
        let log = shared.store.log(tenant, DEFAULT_SCOPE)?;
        let partners = Arc::new_cyclic(|me| TenantPartners {
            shared: Arc::clone(shared),
            tenant: tenant.to_owned(),
            records,
            log,
            watching: Mutex::default(),
            runs: Mutex::default(),
            owns: AtomicBool::default(),
            wakes: Mutex::default(),
            replays: Notify::new(),
            breakers: Mutex::default(),
            metrics: metrics::Counters::default(),
            arrived: AtomicI64::default(),
            me: Weak::clone(me),
        });
        all.insert(tenant.to_owned(), Arc::clone(&partners));
        Ok(partners)
    }
}

impl Host {
    /// Returns the partners of a tenant.
    ///
    /// # Errors
    /// [`UnknownLog::Tenant`] if the tenant is not declared.
    pub fn partners(&self, tenant: &str) -> Result<Arc<dyn Partners>, UnknownLog> {
        Ok(self.partners_of(tenant)?)
    }

    pub(crate) fn partners_of(&self, tenant: &str) -> Result<Arc<TenantPartners>, UnknownLog> {
        self.0.partners.of(&self.0.shared, tenant)
    }

    pub(crate) fn start_partners(&self) {
        for tenant in self.store().tenants() {
            if let Ok(partners) = self.partners_of(&tenant) {
                partners.watch();
            }
        }
    }

    /// Returns the counters of partners in this process.
    pub fn partner_metrics(&self) -> Vec<PartnerMetrics> {
        locked(&self.0.partners.0).values().flat_map(|partners| partners.counted()).collect()
    }
}

impl TenantPartners {
    fn clock(&self) -> &Arc<dyn Clock> {
        &self.shared.options.clock
    }

    fn now(&self) -> Timestamp {
        self.clock().now()
    }

    fn random(&self) -> u128 {
        self.shared.options.random.bits()
    }

    fn open(&self) -> Result<(), PartnerError> {
        if *self.shared.stop.borrow() { Err(StoreError::Closed.into()) } else { Ok(()) }
    }

    async fn declare(&self) -> Result<(), RecordError> {
        for collection in [
            <Lease as RecordType>::collection(),
            <PartnerRecord as RecordType>::collection(),
            <SecretsRecord as RecordType>::collection(),
            <SelectionRecord as RecordType>::collection(),
            <PartnerEventRecord as RecordType>::collection(),
            <DeliveryRecord as RecordType>::collection(),
            <ArchivedPartnerEvent as RecordType>::collection(),
            <ReplayTask as RecordType>::collection(),
            <ActRecord as RecordType>::collection(),
        ] {
            self.records.declare(collection).await?;
        }
        Ok(())
    }

    /// Builds the record of an act on a partner or an event.
    fn act(&self, on: &str, act: &str, reason: Reason) -> ActRecord {
        ActRecord::new(on, act, reason, (self.now(), 0, self.random()))
    }

    /// Returns the signal that wakes the lane before its next delivery is due.
    fn wake_of(&self, lane: &str) -> Arc<Notify> {
        Arc::clone(locked(&self.wakes).entry(lane.to_owned()).or_default())
    }

    /// Wakes the owner of a lane, in whichever process it runs.
    async fn wake(&self, lane: &str, partner: &str) {
        self.wake_of(lane).notify_one();
        self.replays.notify_one();
        if self.owns.load(std::sync::atomic::Ordering::SeqCst) || !self.shared.may_share() {
            return;
        }
        let touched = [("touched", self.now().as_millis().into())];
        let change = RecordChange::set_if(PARTNERS, partner, touched, Expected::Present);
        // If this fails, the owner looks by itself when something else becomes due.
        if let Err(error) = self.records.write(vec![change]).await {
            tracing::debug!(partner, %error, "the owner of a partner could not be notified");
        }
    }
}

#[async_trait]
impl Partners for TenantPartners {
    async fn put(&self, definition: PartnerDefinition) -> Result<bool, PartnerError> {
        self.define(definition).await
    }

    async fn list(&self, after: Option<&str>, limit: usize) -> Result<PartnerPage, PartnerError> {
        self.list_partners(after, limit).await
    }

    async fn get(&self, partner: &str) -> Result<PartnerStatus, PartnerError> {
        self.status(partner).await
    }

    async fn switch(&self, partner: &str, paused: bool, reason: Reason) -> Result<PartnerStatus, PartnerError> {
        self.pause_or_resume(partner, paused, reason).await
    }

    async fn delete(&self, partner: &str, reason: Reason) -> Result<(), PartnerError> {
        self.remove(partner, reason).await
    }

    async fn receive(&self, partner: &str, request: Incoming) -> Result<Accepted, PartnerError> {
        self.take_in(partner, request).await
    }

    async fn events(&self, partner: &str, query: EventsQuery) -> Result<PartnerEventPage, PartnerError> {
        self.list_events(partner, query).await
    }

    async fn event(&self, id: &str) -> Result<PartnerEventView, PartnerError> {
        let (event, delivery) = self.find_event(id).await?;
        Ok(PartnerEventView::of(event, delivery))
    }

    async fn resend(&self, id: &str, reason: Reason) -> Result<PartnerEventView, PartnerError> {
        self.resend_event(id, reason).await
    }

    async fn cancel(&self, id: &str, reason: Reason) -> Result<PartnerEventView, PartnerError> {
        self.cancel_event(id, reason).await
    }

    async fn replay(
        &self,
        partner: &str,
        from: u64,
        to: Option<u64>,
        reason: Reason,
    ) -> Result<ReplayStarted, PartnerError> {
        self.start_replay(partner, from, to, reason).await
    }

    async fn statistics(&self, partner: &str) -> Result<PartnerStatistics, PartnerError> {
        self.count_events(partner).await
    }
}

fn whatever() -> Expected {
    Expected::AbsentOr(Condition::All)
}

/// Treats a collection that is not declared yet as empty.
fn absent<T: Default>(found: Result<T, RecordError>) -> Result<T, RecordError> {
    match found {
        Err(RecordError::UnknownCollection(_)) => Ok(T::default()),
        found => found,
    }
}

fn date(time: Timestamp) -> annals_core::bson::DateTime {
    annals_core::bson::DateTime::from_millis(time.as_millis())
}

fn time(date: annals_core::bson::DateTime) -> Timestamp {
    Timestamp::from_millis(date.timestamp_millis())
}
