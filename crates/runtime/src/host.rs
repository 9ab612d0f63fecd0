//! The task host: runs every background task of a process and reports the status of each.
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

/// Options of a host.
#[derive(Clone)]
pub struct HostOptions {
    /// Tells the time, and wakes tasks at a given time.
    pub clock: Arc<dyn Clock>,
    /// The source of jitter and of the name of this process.
    pub random: Arc<dyn Randomness>,
    /// How long the lease of a dead process keeps its tasks from being taken over, where processes share a store. Default: 4 s.
    pub lease: Duration,
    /// The maximum time for tasks to end when the host is drained. Default: 16 s, longer than a replay waits for the response of a
    /// webhook (15 s). An event whose response arrives later is posted again.
    pub drain_max: Duration,
    /// The categories of topics, with their partitions and retention.
    pub topics: TopicSettings,
    /// The name of this microservice on the event horizon. Default: `default`.
    pub microservice: String,
    /// How subscriptions reach producers in other processes. If unset, they reach none.
    pub producers: Arc<dyn Producers>,
    /// The backend that stores the items of work queues. If unset, they are stored as records in the store.
    pub queues: Option<Arc<dyn QueueBackend>>,
    /// Options for exchanging events with partners.
    pub partners: PartnerOptions,
    /// The folder to which replays may write files, with a subfolder for each tenant. If unset, replays cannot write files.
    pub exports: Option<PathBuf>,
    /// How long finished replays are kept before they are removed; unset means forever. Default: 30 days.
    pub replay_retention: Option<Duration>,
    /// The recorder of spans. If unset, no spans are recorded.
    pub spans: Option<Arc<dyn Spans>>,
    /// How long closed dead letters stay in their collection before they are moved to the archive. If unset, they are never moved.
    pub letter_retention: Option<Duration>,
    /// Where files of archived events are stored. Required if retention archives into files.
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

/// Runs the background tasks of one process on one store. Clones share the host; dropping the last one ends its tasks without waiting for
/// them.
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
    /// The health that was read most recently, and when.
    pub(crate) health: tokio::sync::Mutex<Option<(Timestamp, health::Read)>>,
    pub(crate) horizons: Arc<Horizons>,
    pub(crate) partners: AllPartners,
    pub(crate) credentials: Mutex<BTreeMap<String, Arc<LiveCredentials>>>,
    pub(crate) relays: Mutex<BTreeMap<String, Arc<TenantRelay>>>,
    pub(crate) consumers: Mutex<Vec<watch::Receiver<ConsumerStatus>>>,
    /// The brokers of tenants that publish to one of their own, with the names of their topics.
    pub(crate) brokers: Arc<Brokers>,
    pub(crate) queues: Mutex<BTreeMap<String, Arc<TenantQueues>>>,
    pub(crate) replays: Mutex<BTreeMap<String, Arc<TenantReplays>>>,
    pub(crate) dead_letters: Mutex<BTreeMap<String, Arc<TenantDeadLetters>>>,
    pub(crate) archives: Mutex<BTreeMap<String, Arc<TenantArchive>>>,
}

/// The brokers of tenants, by tenant.
pub(crate) type Brokers = Mutex<BTreeMap<String, NamedBroker>>;

/// A broker, and the names of a tenant's topics there.
pub(crate) type NamedBroker = (Arc<dyn Broker>, TopicSettings);

/// The state that all tasks of a host share.
pub(crate) struct Shared {
    pub store: Arc<dyn Store>,
    pub options: HostOptions,
    /// The name of this process among those that share the store.
    pub process: String,
    pub tasks: Mutex<BTreeMap<String, watch::Receiver<TaskStatus>>>,
    /// By tenant, the tasks that this process runs or could run.
    spreads: Mutex<BTreeMap<String, Arc<Spread>>>,
    /// By tenant, a counter whose changes wake callers that wait for replays.
    replayed: Mutex<BTreeMap<String, watch::Sender<u64>>>,
    /// By tenant, the signal that wakes the task that announces dead letters.
    letters: Mutex<BTreeMap<String, Arc<Notify>>>,
    /// By tenant, the signal that wakes the task that archives events.
    archived: Mutex<BTreeMap<String, Arc<Notify>>>,
    /// By tenant, the items that are due.
    pub due: Mutex<BTreeMap<String, Arc<Due>>>,
    /// Counters of the duplicates that the guards of groups passed.
    pub duplicates: Duplicates,
    /// Counters of the retries of handlers and groups.
    pub retries: RetryCounts,
    /// Set once, when the host is drained.
    pub stop: watch::Sender<bool>,
    /// Set once, at that time or earlier: replays send nothing more.
    pub sends_no_more: watch::Sender<bool>,
    /// The number of events of replays that were posted to webhooks and are not yet stored as sent.
    pub posted: watch::Sender<usize>,
}

impl Host {
    /// Returns the recorder of this process's spans, if there is one.
    pub fn spans(&self) -> Option<&Arc<dyn Spans>> {
        self.0.shared.options.spans.as_ref()
    }

    /// Starts a host on an open store. Tasks start when they are needed.
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

    /// Runs the filters, projections, sagas, subscriptions, partners and replays of all tenants for as long as the host runs, including
    /// those that are defined later. `annals serve` calls this; without it, a host runs only what is defined through it. Needs an async
    /// runtime.
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

    /// Returns the handlers of a tenant.
    ///
    /// # Errors
    /// [`UnknownLog::Tenant`] if the tenant is not declared.
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

    /// Returns the clock that all tasks use.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.0.shared.options.clock
    }

    /// Returns the status of the tasks that run in this process, sorted by name.
    pub fn tasks(&self) -> Vec<TaskStatus> {
        let mut tasks = locked(&self.0.shared.tasks);
        tasks.retain(|_, status| status.borrow().state != TaskState::Ended);
        tasks.values().map(|status| status.borrow().clone()).collect()
    }

    /// Stops replays in this process from sending, ahead of draining the host; all other requests are still served. An event that was
    /// already posted to a webhook is counted once the webhook responds.
    pub fn send_no_more(&self) {
        self.0.shared.sends_no_more.send_replace(true);
    }

    /// Returns whether an event of a replay was posted to a webhook whose response is pending or not stored yet. If the process ends
    /// before that, the event is posted again. A webhook has 15 s to respond.
    pub fn awaits_answers(&self) -> bool {
        *self.0.shared.posted.borrow() > 0
    }

    /// Ends all tasks and waits for them, at most `drain_max`. Leases are released, so that another process can continue at once. Call it
    /// before the store is closed; later requests to the host are refused as closing.
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
                // `wait_for` fails if the task has already ended and dropped its sender; that counts as ended.
                let _ = task.wait_for(|status| status.state == TaskState::Ended).await;
            }
        };
        tokio::select! {
            () = ended => {}
            () = shared.options.clock.sleep(shared.options.drain_max) => {
                tracing::warn!("tasks did not stop in time; their leases will expire");
            }
        }
        beside::left(&shared.process);
    }
}

impl Shared {
    /// Returns the counter whose changes wake callers that wait for replays of a tenant. It starts at 0.
    pub fn replayed(&self, tenant: &str) -> watch::Sender<u64> {
        let mut tenants = locked(&self.replayed);
        tenants.entry(tenant.to_owned()).or_insert_with(|| watch::Sender::new(0)).clone()
    }

    /// Returns whether leases decide who owns a task, because another process may have the store open or this process has another host on
    /// it.
    pub fn may_share(&self) -> bool {
        self.store.is_shared() || beside::is_shared(&self.store)
    }

    /// Returns the signal that wakes the task that announces the dead letters of a tenant.
    pub fn letters_of(&self, tenant: &str) -> Arc<Notify> {
        Arc::clone(locked(&self.letters).entry(tenant.to_owned()).or_default())
    }

    /// Returns the signal that wakes the task that archives events of a tenant.
    pub fn archive_of(&self, tenant: &str) -> Arc<Notify> {
        Arc::clone(locked(&self.archived).entry(tenant.to_owned()).or_default())
    }

    /// Returns the life of this process in a tenant, on which its claims there rest; `None` if no other process can have the store open.
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

    /// Returns whether a process is gone whose claims in a tenant rest on this life: by the clock of this process, its heartbeat was not
    /// renewed for the time of a lease. The caller must check at least four times per lease. A claim without a life is known to be
    /// abandoned only if no other process can have the store open.
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

    /// Returns whether a lease in a tenant is in force, which means that its holder is alive. On a store that is not shared, the holder
    /// may be another host of this process.
    pub async fn holds(&self, tenant: &str, records: &Arc<dyn Records>, lease: &Lease) -> Result<bool, RecordError> {
        let heartbeat = match lease.life {
            Some(_) if self.store.is_shared() => heartbeat::heartbeat_of(records, &lease.holder).await?,
            _ => None,
        };
        Ok(self.is_in_force(tenant, lease, heartbeat.as_ref(), self.options.clock.now()))
    }

    /// Returns whether a lease in a tenant is in force at this time, given the heartbeat of its holder.
    pub fn is_in_force(&self, tenant: &str, lease: &Lease, heartbeat: Option<&ProcessRecord>, now: Timestamp) -> bool {
        if !self.store.is_shared() {
            return !lease.is_released() && beside::is_running(&lease.holder);
        }
        let spread = locked(&self.spreads).get(tenant).cloned();
        match (lease.life, heartbeat, spread) {
            // This process's own observations of another process are more reliable than the time in its heartbeat.
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

/// Subscribes to the starts of further hosts in this process.
pub(crate) fn hosts_started() -> watch::Receiver<u64> {
    beside::changes()
}

/// Waits until a signal is set. A signal whose sender was dropped counts as set.
pub(crate) async fn is_set(signal: &mut watch::Receiver<bool>) {
    let _ = signal.wait_for(|set| *set).await;
}

/// Waits until a time, seen from `now`. If the clock is set back meanwhile, the wait ends after as long as it would have taken before,
/// and the caller looks again.
pub(crate) async fn reached(clock: &dyn Clock, now: Timestamp, at: Timestamp) {
    tokio::select! {
        () = clock.sleep_until(at) => {}
        () = clock.sleep(at.since(now)) => {}
    }
}

pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
