//! The relay of a tenant: a task that follows the log and publishes each event whose type has a topic. The state machine is
//! [`annals_core::relay`].
//!
//! ```text
//!  Host::relay ─▶ relay/task.rs: lease, back-off ─▶ relay/session.rs: publisher opened, earlier ones fenced, position read
//!                                                        │   ┌─ next page read and encoded ─┐  relay/pages.rs
//!                                                        └──▶│  batch published             │──▶ status, `published` waits end
//!                                                            └──────────────────────────────┘
//! ```

mod pages;
mod session;
mod task;
mod waiting;

use std::sync::Arc;

use annals_core::relay::{HeldRecord, MessageOptions, RelayRecord, RelayState, RelayStatus, RelayTopics};
use annals_core::types::{EventTypes, TypeError};
use annals_core::{
    Broker, BrokerError, ByteString, Condition, DEFAULT_SCOPE, EventLog, Expected, RecordError, RecordType, Records,
    StoreError, TypedRecords, UnknownLog, limits,
};
use tokio::sync::watch;

use crate::host::{Host, Shared, locked, supervise};
use crate::topics::of_types;
use task::Task;

/// How many records of held events are written in one batch.
const HELD_AT_ONCE: usize = 100;

/// Options of a relay.
#[derive(Debug, Clone, Default)]
pub struct RelayOptions {
    /// The topics of event types.
    pub topics: RelayTopics,
    /// Key, headers and body of the messages.
    pub messages: MessageOptions,
}

/// The relay of one tenant in this process.
pub(crate) struct TenantRelay {
    shared: Arc<Shared>,
    tenant: String,
    broker: Arc<dyn Broker>,
    log: Arc<dyn EventLog>,
    records: Arc<dyn Records>,
    messages: MessageOptions,
    /// Supplies the categories of registered types.
    types: Arc<dyn EventTypes>,
    topics: watch::Sender<Arc<RelayTopics>>,
    status: watch::Sender<RelayStatus>,
}

impl Host {
    /// Publishes the events of a tenant through a broker for as long as the host runs. If processes share the store, one of them
    /// publishes at a time. If the tenant already has a relay, that relay continues with these topics. Needs an async runtime.
    ///
    /// # Errors
    /// [`UnknownLog::Tenant`] if the tenant is not declared.
    pub fn relay(&self, tenant: &str, broker: Arc<dyn Broker>, options: RelayOptions) -> Result<(), UnknownLog> {
        self.use_broker(tenant, Arc::clone(&broker), options.topics.settings.clone());
        let mut relays = locked(&self.0.relays);
        if let Some(relay) = relays.get(tenant) {
            relay.topics.send_replace(Arc::new(options.topics));
            return Ok(());
        }
        let relay = Arc::new(TenantRelay {
            shared: Arc::clone(&self.0.shared),
            tenant: tenant.to_owned(),
            broker,
            log: self.store().log(tenant, DEFAULT_SCOPE)?,
            records: self.store().records(tenant)?,
            types: self.store().event_types(tenant)?,
            messages: options.messages,
            topics: watch::Sender::new(Arc::new(options.topics)),
            status: watch::Sender::new(RelayStatus { tenant: tenant.to_owned(), ..RelayStatus::default() }),
        });
        relays.insert(tenant.to_owned(), Arc::clone(&relay));
        drop(relays);
        supervise(&self.0.shared, format!("relay/{tenant}"), Task::new(relay));
        Ok(())
    }

    /// Changes the topics of a tenant's relay. Does nothing for a tenant without one.
    pub fn relay_topics(&self, tenant: &str, topics: RelayTopics) {
        if let Some(relay) = locked(&self.0.relays).get(tenant) {
            relay.topics.send_replace(Arc::new(topics));
        }
    }

    /// Returns the status of this process's relays, by tenant.
    pub fn relays(&self) -> Vec<RelayStatus> {
        let relays: Vec<_> = locked(&self.0.relays).values().map(|relay| relay.status.borrow().clone()).collect();
        if relays.is_empty() {
            return relays;
        }
        let logs = self.store().status();
        let with_head = |status: RelayStatus| {
            let log = logs.iter().find(|log| log.tenant == status.tenant && log.scope == DEFAULT_SCOPE);
            let head = log.map_or(status.head, |log| log.head).max(status.position);
            RelayStatus { head, lag: head - status.position, ..status }
        };
        relays.into_iter().map(with_head).collect()
    }

    pub(crate) fn relay_of(&self, tenant: &str) -> Option<Arc<TenantRelay>> {
        locked(&self.0.relays).get(tenant).cloned()
    }
}

impl TenantRelay {
    async fn declare(&self) -> Result<(), RecordError> {
        self.records.declare(<annals_core::Lease as RecordType>::collection()).await?;
        self.records.declare(<RelayRecord as RecordType>::collection()).await?;
        self.records.declare(<HeldRecord as RecordType>::collection()).await
    }

    /// Creates the topics of registered types that the broker does not have. One that cannot be created is created at the latest before the
    /// first event of its type is published.
    async fn create_missing(&self) {
        if let Err(error) = self.try_create_missing().await {
            tracing::warn!(tenant = self.tenant, %error, "could not create the topics of all registered types");
        }
    }

    async fn try_create_missing(&self) -> Result<(), BrokerError> {
        let settings = self.topics.borrow().settings.clone();
        let mut after = None::<ByteString>;
        loop {
            let page = match self.types.list(after.as_deref(), limits::PAGE_MAX).await {
                // An adapter by itself has no registry.
                Err(TypeError::Store(StoreError::NotSupported(_))) => return Ok(()),
                page => page.map_err(of_types)?,
            };
            for topic in page.items.iter().filter_map(|it| settings.topic_in(&it.name, &it.category).ok()) {
                if self.broker.create_topic(&topic).await? {
                    tracing::info!(tenant = self.tenant, topic = &*topic.name, "created a topic");
                }
            }
            after = page.cursor;
            if after.is_none() {
                return Ok(());
            }
        }
    }

    /// Stores events as held.
    async fn store_held(&self, all: &[HeldRecord]) -> Result<(), RecordError> {
        for some in all.chunks(HELD_AT_ONCE) {
            let record = |held: &HeldRecord| TypedRecords::replacement(held, Expected::AbsentOr(Condition::All));
            self.records.write(some.iter().map(record).collect::<Result<_, _>>()?).await?;
        }
        self.count_held().await
    }

    async fn count_held(&self) -> Result<(), RecordError> {
        let held = self.records.count(HeldRecord::COLLECTION, &Condition::All).await?;
        self.status.send_modify(|status| status.held = held);
        Ok(())
    }

    /// Updates the state of the relay, which wakes callers that wait for a position.
    fn is_now(&self, state: RelayState, error: Option<String>) {
        self.status.send_if_modified(|status| {
            let changed = status.state != state || status.last_error != error;
            (status.state, status.last_error) = (state, error);
            changed
        });
    }
}
