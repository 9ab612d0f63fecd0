//! The task host: it runs every background task of a process, and knows how each is.
//!
//! ```text
//!  annals serve ─┐
//!  your program ─┴▶ Host::start(store) ─▶ handlers(tenant) ─▶ an owner for each handler that somebody pulls from
//!                        │                                     supervised: restarted with back-off, panics caught
//!                        ├─ start_defined() ─▶ every filter, projection, saga, subscription and partner that is defined
//!                        ├─ stage()  what a commit can wait for
//!                        ├─ tasks()  what runs, and how
//!                        ├─ health() of every processor, from the store
//!                        └─ drain()  before the store is closed: tasks end, leases are released
//! ```

mod beside;
mod detached;
mod heartbeat;
mod lease;
mod spread;
mod stages;
mod supervise;
mod watched;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use annals_core::archive::ArchiveFiles;
use annals_core::handlers::Handlers;
use annals_core::horizon::{NoProducers, Producers};
use annals_core::queue::QueueBackend;
use annals_core::spread::ProcessRecord;
use annals_core::trace::Spans;
use annals_core::{
    Broker, Clock, Lease, Randomness, RecordError, Records, Store, Timestamp, TopicSettings, UnknownLog, new_uuid,
};
use annals_system::{SystemClock, SystemRandomness};
use futures_util::future::{BoxFuture, FutureExt};
use tokio::sync::{Notify, watch};

use crate::archive::TenantArchive;
use crate::credentials::LiveCredentials;
use crate::dead_letters::TenantDeadLetters;
use crate::due::Due;
use crate::engine::retries::RetryCounts;
use crate::filters::TenantFilters;
use crate::groups::{ConsumerStatus, Duplicates};
use crate::handlers::{Kind, LetteredHandlers, TenantHandlers};
use crate::health;
use crate::horizon::Horizons;
use crate::partners::{AllPartners, PartnerOptions};
use crate::projections::TenantProjections;
use crate::queue::TenantQueues;
use crate::relay::TenantRelay;
use crate::replays::TenantReplays;
use crate::sagas::HostSagas;
pub(crate) use detached::detached;
pub(crate) use lease::{Asked, Held, Leases};
use spread::Spread;
pub use stages::{Stage, StageError, check_stage};
pub(crate) use supervise::{Ended, Supervised, message_of, supervise};
pub use supervise::{TaskState, TaskStatus};

/// How a host runs its tasks.
#[derive(Clone)]
pub struct HostOptions {
    /// The time, and what sleeps until it.
    pub clock: Arc<dyn Clock>,
    /// Jitter, and the name of this process.
    pub random: Arc<dyn Randomness>,
    /// How long a task of a process that died stays without a successor, where processes share a store. 4 s.
    pub lease: Duration,
    /// How long tasks may take to end when the host is drained. 16 s, which is longer than a replay waits for the answer of a webhook: an
    /// event whose answer comes later is posted again.
    pub drain_max: Duration,
    /// The categories of topics and their numbers.
    pub topics: TopicSettings,
    /// What the microservice of this store calls itself on the event horizon. `default`.
    pub microservice: String,
    /// How subscriptions reach producers in other processes. They reach none unless it is set.
    pub producers: Arc<dyn Producers>,
    /// What holds the items of work queues; the store's records unless it is set.
    pub queues: Option<Arc<dyn QueueBackend>>,
    /// How events are exchanged with partners.
    pub partners: PartnerOptions,
    /// The folder to which replays may write files, in a folder for each tenant. They write none unless it is set.
    pub exports: Option<PathBuf>,
    /// How long replays that are over stay before they are removed; for ever when absent. 30 days.
    pub replay_retention: Option<Duration>,
    /// What records spans. None are recorded unless it is set.
    pub spans: Option<Arc<dyn Spans>>,
    /// How long dead letters that are over stay in their collection before they are moved to the archive. They stay unless it is set.
    pub letter_retention: Option<Duration>,
    /// Where files of archived events are stored. Retention that archives into files needs it.
    pub archive: Option<Arc<dyn ArchiveFiles>>,
}

impl std::fmt::Debug for HostOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { lease, drain_max, microservice, .. } = self;
        let mut shown = f.debug_struct("HostOptions");
        shown.field("lease", lease).field("drain_max", drain_max).field("microservice", microservice);
        shown.finish_non_exhaustive()
    }
}

impl Default for HostOptions {
    fn default() -> Self {
        Self {
            clock: Arc::new(SystemClock),
            random: Arc::new(SystemRandomness::new()),
            lease: Duration::from_secs(4),
            drain_max: Duration::from_secs(16),
            topics: TopicSettings::default(),
            microservice: "default".to_owned(),
            producers: Arc::new(NoProducers),
            queues: None,
            partners: PartnerOptions::default(),
            exports: None,
            replay_retention: Some(Duration::from_secs(30 * 24 * 60 * 60)),
            spans: None,
            letter_retention: None,
            archive: None,
        }
    }
}

/// Runs the tasks of one process on one store. Cloning shares it; dropping the last clone ends its tasks without waiting for them.
#[derive(Clone)]
pub struct Host(pub(crate) Arc<Inner>);

impl std::fmt::Debug for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Host").field("process", &self.0.shared.process).finish_non_exhaustive()
    }
}

pub(crate) struct Inner {
    pub(crate) shared: Arc<Shared>,
    tenants: Mutex<BTreeMap<String, Arc<TenantHandlers>>>,
    groups: Mutex<BTreeMap<String, Arc<TenantHandlers>>>,
    filters: Mutex<BTreeMap<String, Arc<TenantFilters>>>,
    pub(crate) projections: Mutex<BTreeMap<String, Arc<TenantProjections>>>,
    pub(crate) sagas: Mutex<BTreeMap<String, Arc<HostSagas>>>,
    /// The health that was read last, and when.
    pub(crate) health: tokio::sync::Mutex<Option<(Timestamp, health::Read)>>,
    pub(crate) horizons: Arc<Horizons>,
    pub(crate) partners: AllPartners,
    pub(crate) credentials: Mutex<BTreeMap<String, Arc<LiveCredentials>>>,
    pub(crate) relays: Mutex<BTreeMap<String, Arc<TenantRelay>>>,
    pub(crate) consumers: Mutex<Vec<watch::Receiver<ConsumerStatus>>>,
    /// The brokers of their own that tenants publish to, with the names of their topics.
    pub(crate) brokers: Arc<Brokers>,
    pub(crate) queues: Mutex<BTreeMap<String, Arc<TenantQueues>>>,
    pub(crate) replays: Mutex<BTreeMap<String, Arc<TenantReplays>>>,
    pub(crate) dead_letters: Mutex<BTreeMap<String, Arc<TenantDeadLetters>>>,
    pub(crate) archives: Mutex<BTreeMap<String, Arc<TenantArchive>>>,
}

/// The brokers of tenants.
pub(crate) type Brokers = Mutex<BTreeMap<String, NamedBroker>>;

/// A broker, and the names of a tenant's topics there.
pub(crate) type NamedBroker = (Arc<dyn Broker>, TopicSettings);

/// What every task of a host needs.
pub(crate) struct Shared {
    pub store: Arc<dyn Store>,
    pub options: HostOptions,
    /// The name of this process among those that share the store.
    pub process: String,
    pub tasks: Mutex<BTreeMap<String, watch::Receiver<TaskStatus>>>,
    /// By tenant, the tasks that this process runs or could run.
    spreads: Mutex<BTreeMap<String, Arc<Spread>>>,
    /// By tenant, counts what wakes those who wait for replays.
    replayed: Mutex<BTreeMap<String, watch::Sender<u64>>>,
    /// By tenant, what wakes the task that announces dead letters.
    letters: Mutex<BTreeMap<String, Arc<Notify>>>,
    /// By tenant, what wakes the task that archives events.
    archived: Mutex<BTreeMap<String, Arc<Notify>>>,
    /// By tenant, what is due.
    pub due: Mutex<BTreeMap<String, Arc<Due>>>,
    /// What the guards of groups passed.
    pub duplicates: Duplicates,
    /// The retries of handlers and groups.
    pub retries: RetryCounts,
    /// Set once when the host is drained.
    pub stop: watch::Sender<bool>,
    /// Set once before that, or with it: replays send nothing more.
    pub sends_no_more: watch::Sender<bool>,
    /// How many events of replays are posted to webhooks, and not yet stored as sent.
    pub posted: watch::Sender<usize>,
}

impl Host {
    /// What records the spans of this process, if something does.
    pub fn spans(&self) -> Option<&Arc<dyn Spans>> {
        self.0.shared.options.spans.as_ref()
    }

    /// Starts a host on an open store. Tasks begin when they are needed.
    pub fn start(store: Arc<dyn Store>, options: HostOptions) -> Self {
        let process = new_uuid(options.clock.now(), &*options.random).to_string();
        beside::entered(&store, &process);
        let (tasks, spreads, stop) = (Mutex::default(), Mutex::default(), watch::Sender::new(false));
        let (replayed, letters, archived, due) =
            (Mutex::default(), Mutex::default(), Mutex::default(), Mutex::default());
        let (duplicates, retries) = (Duplicates::default(), RetryCounts::default());
        let (sends_no_more, posted) = (watch::Sender::new(false), watch::Sender::new(0));
        let shared = Arc::new(Shared {
            store,
            options,
            process,
            tasks,
            spreads,
            replayed,
            letters,
            archived,
            due,
            duplicates,
            retries,
            stop,
            sends_no_more,
            posted,
        });
        Self(Arc::new(Inner {
            shared,
            tenants: Mutex::default(),
            groups: Mutex::default(),
            filters: Mutex::default(),
            projections: Mutex::default(),
            sagas: Mutex::default(),
            queues: Mutex::default(),
            relays: Mutex::default(),
            consumers: Mutex::default(),
            brokers: Arc::default(),
            credentials: Mutex::default(),
            health: tokio::sync::Mutex::default(),
            horizons: Arc::default(),
            partners: AllPartners::default(),
            replays: Mutex::default(),
            dead_letters: Mutex::default(),
            archives: Mutex::default(),
        }))
    }

    /// Runs the filters, projections, sagas, subscriptions, partners and replays of all tenants, those that are defined now and those that
    /// are defined later, for as long as the host runs. `annals serve` does so. Without it a host runs those that are put through it. Needs
    /// an async runtime.
    pub fn start_defined(&self) {
        self.start_filters();
        self.start_projections();
        self.start_sagas();
        self.start_subscriptions();
        self.start_partners();
        self.start_replays();
        self.start_dead_letters();
        self.start_archives();
    }

    /// The handlers of a tenant.
    ///
    /// # Errors
    /// [`UnknownLog::Tenant`] when the tenant is not declared.
    pub fn handlers(&self, tenant: &str) -> Result<Arc<dyn Handlers>, UnknownLog> {
        let (handlers, letters) = (self.tenant(tenant)?, self.dead_letters_of(tenant)?);
        Ok(Arc::new(LetteredHandlers { handlers, letters }))
    }

    pub(crate) fn tenant(&self, tenant: &str) -> Result<Arc<TenantHandlers>, UnknownLog> {
        self.of_kind(&self.0.tenants, tenant, Kind::Handlers)
    }

    pub(crate) fn groups_of(&self, tenant: &str) -> Result<Arc<TenantHandlers>, UnknownLog> {
        self.of_kind(&self.0.groups, tenant, Kind::Groups)
    }

    fn of_kind(
        &self,
        tenants: &Mutex<BTreeMap<String, Arc<TenantHandlers>>>,
        tenant: &str,
        kind: Kind,
    ) -> Result<Arc<TenantHandlers>, UnknownLog> {
        let mut tenants = locked(tenants);
        if let Some(known) = tenants.get(tenant) {
            return Ok(Arc::clone(known));
        }
        let of_tenant = TenantHandlers::new(Arc::clone(&self.0.shared), tenant, kind)?;
        tenants.insert(tenant.to_owned(), Arc::clone(&of_tenant));
        Ok(of_tenant)
    }

    pub(crate) fn filters_of(&self, tenant: &str) -> Result<Arc<TenantFilters>, UnknownLog> {
        let mut filters = locked(&self.0.filters);
        if let Some(known) = filters.get(tenant) {
            return Ok(Arc::clone(known));
        }
        let of_tenant = TenantFilters::new(Arc::clone(&self.0.shared), tenant)?;
        filters.insert(tenant.to_owned(), Arc::clone(&of_tenant));
        Ok(of_tenant)
    }

    pub(crate) fn store(&self) -> &Arc<dyn Store> {
        &self.0.shared.store
    }

    /// The clock that the tasks go by.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.0.shared.options.clock
    }

    /// The tasks that run in this process, by name.
    pub fn tasks(&self) -> Vec<TaskStatus> {
        let mut tasks = locked(&self.0.shared.tasks);
        tasks.retain(|_, status| status.borrow().state != TaskState::Ended);
        tasks.values().map(|status| status.borrow().clone()).collect()
    }

    /// Ends the sending of replays in this process, before the host is drained: whatever else is asked of the host is still answered. An
    /// event that a webhook has is counted once it answers.
    pub fn send_no_more(&self) {
        self.0.shared.sends_no_more.send_replace(true);
    }

    /// Whether an event of a replay is posted to a webhook that did not answer yet, or whose answer is not stored: it is posted again if
    /// that is not waited for. A webhook has 15 s to answer.
    pub fn awaits_answers(&self) -> bool {
        *self.0.shared.posted.borrow() > 0
    }

    /// Ends all tasks and waits for them, at most `drain_max`; leases are released, so that another process continues at once. Call it
    /// before the store is closed. Whatever is asked of the host afterwards is refused as closing.
    pub fn drain(&self) -> BoxFuture<'_, ()> {
        self.drained().boxed()
    }

    async fn drained(&self) {
        let shared = &self.0.shared;
        self.send_no_more();
        shared.stop.send_replace(true);
        let tasks: Vec<_> = locked(&shared.tasks).values().cloned().collect();
        let ended = async {
            for mut task in tasks {
                // The sender is dropped when the task has ended.
                let _ = task.wait_for(|status| status.state == TaskState::Ended).await;
            }
        };
        tokio::select! {
            () = ended => {}
            () = shared.options.clock.sleep(shared.options.drain_max) => {
                tracing::warn!("tasks did not end in time; their leases run out by themselves");
            }
        }
        beside::left(&shared.process);
    }
}

impl Shared {
    /// What counts whatever wakes those who wait for replays of a tenant; 0 before the first.
    pub fn replayed(&self, tenant: &str) -> watch::Sender<u64> {
        let mut tenants = locked(&self.replayed);
        tenants.entry(tenant.to_owned()).or_insert_with(|| watch::Sender::new(0)).clone()
    }

    /// Whether leases decide who owns a task: other processes may have the store open, or another host of this process.
    pub fn may_share(&self) -> bool {
        self.store.is_shared() || beside::is_shared(&self.store)
    }

    /// What wakes the task that announces the dead letters of a tenant.
    pub fn letters_of(&self, tenant: &str) -> Arc<Notify> {
        Arc::clone(locked(&self.letters).entry(tenant.to_owned()).or_default())
    }

    /// What wakes the task that archives events of a tenant.
    pub fn archive_of(&self, tenant: &str) -> Arc<Notify> {
        Arc::clone(locked(&self.archived).entry(tenant.to_owned()).or_default())
    }

    /// The life of this process in a tenant, on which what it holds there rests; none where no other process can have the store open.
    pub async fn life_in(
        self: &Arc<Self>,
        tenant: &str,
        records: &Arc<dyn Records>,
    ) -> Result<Option<i64>, RecordError> {
        match self.store.is_shared() {
            true => Spread::of(self, tenant, records).heartbeat().alive().await.map(Some),
            false => Ok(None),
        }
    }

    /// Whether a process is gone that holds something in a tenant for as long as this life lasts: by the clock of this process, which
    /// must look at least four times in the time of a lease, its heartbeat was not renewed for that time. What rests on no life is not
    /// known to be left, except where no other process can have the store open.
    pub async fn is_gone(
        self: &Arc<Self>,
        tenant: &str,
        records: &Arc<dyn Records>,
        process: &str,
        life: Option<i64>,
    ) -> Result<bool, RecordError> {
        match life {
            _ if !self.store.is_shared() => Ok(!beside::is_running(process)),
            None => Ok(false),
            Some(life) => {
                let tasks = Spread::of(self, tenant, records);
                Ok(tasks.heartbeat().after_life(process, life).await?.is_some())
            }
        }
    }

    /// Whether this lease is in force in a tenant: its holder is there, which may be another host of this process on a store that is not
    /// shared.
    pub async fn holds(&self, tenant: &str, records: &Arc<dyn Records>, lease: &Lease) -> Result<bool, RecordError> {
        let heartbeat = match lease.life {
            Some(_) if self.store.is_shared() => heartbeat::heartbeat_of(records, &lease.holder).await?,
            _ => None,
        };
        Ok(self.is_in_force(tenant, lease, heartbeat.as_ref(), self.options.clock.now()))
    }

    /// Whether a lease is in force in a tenant at this time, whose holder has this heartbeat.
    pub fn is_in_force(&self, tenant: &str, lease: &Lease, heartbeat: Option<&ProcessRecord>, now: Timestamp) -> bool {
        if !self.store.is_shared() {
            return !lease.is_released() && beside::is_running(&lease.holder);
        }
        let spread = locked(&self.spreads).get(tenant).cloned();
        match (lease.life, heartbeat, spread) {
            // What this process has seen of another one tells more than the time in its heartbeat.
            (Some(life), Some(found), Some(spread)) if lease.holder != self.process => {
                found.life == life && spread.heartbeat().lives(found, now)
            }
            _ => lease.is_in_force(heartbeat, now),
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.shared.sends_no_more.send_replace(true);
        self.shared.stop.send_replace(true);
        beside::left(&self.shared.process);
    }
}

/// Tells of each host of this process that starts from now on.
pub(crate) fn hosts_started() -> watch::Receiver<u64> {
    beside::changes()
}

/// Waits until a signal is given. One whose sender is gone counts as given.
pub(crate) async fn is_set(signal: &mut watch::Receiver<bool>) {
    let _ = signal.wait_for(|set| *set).await;
}

pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
