//! The event horizon of a tenant: consents, the events offered under them, and the owners of subscriptions. The contract is [`Horizon`].
//!
//! ```text
//!  consumer's request ─▶ horizon/offer.rs: consent? public? ─▶ page of the stream, or a wait that ends when the consent does
//!  subscription ─▶ horizon/owner.rs: lease ─▶ connect ─▶ horizon/pages.rs ─▶ Intake ─▶ Receiving::receive
//! ```
//!
//! INVARIANT: events and the position after them are stored in one write, which expects the position before them. An owner that lost its
//! lease therefore stores nothing twice.

mod consents;
mod offer;
mod owner;
mod pages;
mod running;
mod status;
mod subscriptions;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, Weak};

use annals_core::handlers::{ActRecord, Reason};
use annals_core::horizon::{
    Consent, ConsentPage, ConsentRecord, CredentialRecord, Horizon, HorizonError, Offering, OriginRecord, Progress,
    ProgressRecord, SubscriptionDefinition, SubscriptionPage, SubscriptionRecord, SubscriptionStatus,
};
use annals_core::{Clock, Condition, Expected, Lease, RecordError, RecordType, Records, Store, StoreError, UnknownLog};
use async_trait::async_trait;
use tokio::sync::watch;

use crate::host::{Host, Shared, detached, locked, supervise};
use owner::Owner;

/// The event horizon of one tenant in this process.
pub(crate) struct TenantHorizon {
    shared: Arc<Shared>,
    tenant: String,
    records: Arc<dyn Records>,
    slots: Mutex<BTreeMap<String, Arc<Slot>>>,
    watching: Mutex<bool>,
    /// Counts the changes of consents in this process.
    consented: watch::Sender<u64>,
    /// The horizons of all tenants of the store.
    peers: Weak<Horizons>,
    me: Weak<Self>,
}

/// The horizons of a host's tenants.
#[derive(Default)]
pub(crate) struct Horizons(Mutex<HashMap<String, Arc<TenantHorizon>>>);

/// A subscription as seen by this process, whether or not its owner runs here.
struct Slot {
    /// Counts the changes of the definition.
    changed: watch::Sender<u64>,
    runs: Mutex<bool>,
    /// The progress known to the owner while it holds the lease.
    known: Mutex<Option<Progress>>,
}

impl Horizons {
    fn of(self: &Arc<Self>, shared: &Arc<Shared>, tenant: &str) -> Result<Arc<TenantHorizon>, UnknownLog> {
        let mut horizons = locked(&self.0);
        if let Some(known) = horizons.get(tenant) {
            return Ok(Arc::clone(known));
        }
        let records = shared.store.records(tenant)?;
        let horizon = Arc::new_cyclic(|me| TenantHorizon {
            shared: Arc::clone(shared),
            tenant: tenant.to_owned(),
            records,
            slots: Mutex::default(),
            watching: Mutex::default(),
            consented: watch::Sender::new(0),
            peers: Arc::downgrade(self),
            me: Weak::clone(me),
        });
        horizons.insert(tenant.to_owned(), Arc::clone(&horizon));
        Ok(horizon)
    }
}

impl Host {
    /// Returns the event horizon of a tenant.
    ///
    /// # Errors
    /// [`UnknownLog::Tenant`] if the tenant is not declared.
    pub fn horizon(&self, tenant: &str) -> Result<Arc<dyn Horizon>, UnknownLog> {
        Ok(self.horizon_of(tenant)?)
    }

    /// Returns what a tenant offers to consumers that have its consent.
    ///
    /// # Errors
    /// [`UnknownLog::Tenant`] if the tenant is not declared.
    pub fn offering(&self, tenant: &str) -> Result<Arc<dyn Offering>, UnknownLog> {
        Ok(self.horizon_of(tenant)?)
    }

    pub(crate) fn start_subscriptions(&self) {
        for tenant in self.store().tenants() {
            if let Ok(horizon) = self.horizon_of(&tenant) {
                horizon.watch();
            }
        }
    }

    pub(crate) fn horizon_of(&self, tenant: &str) -> Result<Arc<TenantHorizon>, UnknownLog> {
        self.0.horizons.of(&self.0.shared, tenant)
    }
}

impl TenantHorizon {
    fn clock(&self) -> &Arc<dyn Clock> {
        &self.shared.options.clock
    }

    fn store(&self) -> &Arc<dyn Store> {
        &self.shared.store
    }

    fn open(&self) -> Result<(), HorizonError> {
        if *self.shared.stop.borrow() { Err(StoreError::Closed.into()) } else { Ok(()) }
    }

    /// Returns the event horizon of another tenant of the store.
    fn peer(&self, tenant: &str) -> Result<Arc<TenantHorizon>, HorizonError> {
        let peers = self.peers.upgrade().ok_or(StoreError::Closed)?;
        Ok(peers.of(&self.shared, tenant)?)
    }

    fn slot(&self, name: &str) -> Arc<Slot> {
        let new = || Slot { changed: watch::Sender::new(0), runs: Mutex::default(), known: Mutex::default() };
        Arc::clone(locked(&self.slots).entry(name.to_owned()).or_insert_with(|| Arc::new(new())))
    }

    async fn declare(&self) -> Result<(), RecordError> {
        for collection in [
            <Lease as RecordType>::collection(),
            <ConsentRecord as RecordType>::collection(),
            <SubscriptionRecord as RecordType>::collection(),
            <CredentialRecord as RecordType>::collection(),
            <OriginRecord as RecordType>::collection(),
            <ProgressRecord as RecordType>::collection(),
            <ActRecord as RecordType>::collection(),
        ] {
            self.records.declare(collection).await?;
        }
        Ok(())
    }

    /// Builds the record of an act on a consent or a subscription.
    fn act(&self, on: &str, act: &str, reason: Reason) -> ActRecord {
        ActRecord::new(on, act, reason, (self.clock().now(), 0, self.shared.options.random.bits()))
    }

    /// Starts the owner of a subscription, unless it runs already.
    fn start(&self, name: &str) {
        let Some(horizon) = self.me.upgrade() else { return };
        let slot = self.slot(name);
        if std::mem::replace(&mut *locked(&slot.runs), true) {
            return;
        }
        let task = format!("subscription/{}/{name}", self.tenant);
        supervise(&self.shared, task, Owner { horizon, name: name.to_owned(), slot });
    }
}

#[async_trait]
impl Horizon for TenantHorizon {
    async fn put_consent(&self, consent: Consent) -> Result<bool, HorizonError> {
        let horizon = self.me.upgrade().ok_or(StoreError::Closed)?;
        detached(async move { horizon.give(consent).await }).await
    }

    async fn consents(&self, after: Option<&str>, limit: usize) -> Result<ConsentPage, HorizonError> {
        self.list_consents(after, limit).await
    }

    async fn consent(&self, id: &str) -> Result<Consent, HorizonError> {
        self.find_consent(id).await
    }

    async fn revoke_consent(&self, id: &str, reason: Reason) -> Result<(), HorizonError> {
        let (horizon, id) = (self.me.upgrade().ok_or(StoreError::Closed)?, id.to_owned());
        detached(async move { horizon.revoke(&id, reason).await }).await
    }

    async fn put_subscription(&self, definition: SubscriptionDefinition) -> Result<bool, HorizonError> {
        let horizon = self.me.upgrade().ok_or(StoreError::Closed)?;
        detached(async move { horizon.define(definition).await }).await
    }

    async fn subscriptions(&self, after: Option<&str>, limit: usize) -> Result<SubscriptionPage, HorizonError> {
        self.list_subscriptions(after, limit).await
    }

    async fn subscription(&self, name: &str) -> Result<SubscriptionStatus, HorizonError> {
        self.open()?;
        let (definition, _) = self.definition(name).await?;
        self.status(definition).await
    }

    async fn delete_subscription(&self, name: &str, reason: Reason) -> Result<(), HorizonError> {
        let (horizon, name) = (self.me.upgrade().ok_or(StoreError::Closed)?, name.to_owned());
        detached(async move { horizon.remove(&name, reason).await }).await
    }
}

fn whatever() -> Expected {
    Expected::AbsentOr(Condition::All)
}

/// Treats a collection that is not declared yet as empty.
fn absent<T>(found: Result<Option<T>, RecordError>) -> Result<Option<T>, RecordError> {
    match found {
        Err(RecordError::UnknownCollection(_)) => Ok(None),
        found => found,
    }
}
