//! The replays of a tenant: their stored state, and those that this process sends. The contract is [`Replays`].
//!
//! ```text
//!  POST …/start ─▶ ReplaySession: running ─▶ run.rs: lease ─▶ browse view: which events, in which order ─▶ log: the events
//!                       ▲                                                                                    │
//!                       └── one batch of records: position, counters, deliveries ◀── targets.rs ◀────────────┘
//!  pull ─▶ handlers/replayed.rs: deliveries of replays, beside those of the handler itself ◀── settle
//! ```
//!
//! INVARIANT: a batch advances a replay only if it finds the session at its last revision, so two processes never count the same event as
//! sent twice.

mod acts;
mod claims;
mod follow;
mod leaving;
mod next;
mod run;
mod targets;
mod webhook;

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use annals_core::browse::EventSummary;
use annals_core::handlers::Reason;
use annals_core::replays::{
    INBOX, InboxRecord, PreviewBody, REPLAY_SESSIONS, ReplayAct, ReplayBody, ReplayError, ReplayPage, ReplayPreview,
    ReplaySession, ReplayState, ReplayStatus, ReplayTarget, Replays,
};
use annals_core::{
    Clock, Code, Condition, Cursor, DEFAULT_SCOPE, EventLog, Expected, Invalid, Projection, Record, RecordChange,
    RecordError, RecordQuery, RecordType, Records, Revision, StoreError, Stored, Timestamp, TypedRecords, UnknownLog,
    limits, new_uuid,
};
use async_trait::async_trait;
use tokio::sync::watch;

use crate::browse::TenantBrowse;
use crate::handlers::TenantHandlers;
use crate::host::{Brokers, Host, Shared, locked};

/// How often a replay that another process sends is read.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// The number of events in a preview.
const SHOWN_MAX: usize = 100;

/// The replays of one tenant in this process.
pub(crate) struct TenantReplays {
    shared: Arc<Shared>,
    tenant: String,
    records: Arc<dyn Records>,
    log: Arc<dyn EventLog>,
    browse: Arc<TenantBrowse>,
    handlers: Arc<TenantHandlers>,
    groups: Arc<TenantHandlers>,
    /// The external brokers to which events are published.
    brokers: Arc<Brokers>,
    /// The replays that this process sends or waits to send.
    running: Mutex<HashSet<String>>,
    /// Counts the writes of this process.
    changes: watch::Sender<u64>,
    started: AtomicBool,
    me: Weak<Self>,
}

impl Host {
    /// Returns the replays of a tenant.
    ///
    /// # Errors
    /// [`UnknownLog::Tenant`] if the tenant is not declared.
    pub fn replays(&self, tenant: &str) -> Result<Arc<dyn Replays>, UnknownLog> {
        Ok(self.replays_of(tenant)?)
    }

    pub(crate) fn replays_of(&self, tenant: &str) -> Result<Arc<TenantReplays>, UnknownLog> {
        let mut tenants = locked(&self.0.replays);
        if let Some(known) = tenants.get(tenant) {
            return Ok(Arc::clone(known));
        }
        let shared = Arc::clone(&self.0.shared);
        let records = shared.store.records(tenant)?;
        let log = shared.store.log(tenant, DEFAULT_SCOPE)?;
        let (browse, handlers, groups) = (self.browse_of(tenant)?, self.tenant(tenant)?, self.groups_of(tenant)?);
        let replays = Arc::new_cyclic(|me| TenantReplays {
            changes: shared.replayed(tenant),
            shared,
            tenant: tenant.to_owned(),
            records,
            log,
            browse,
            handlers,
            groups,
            brokers: Arc::clone(&self.0.brokers),
            running: Mutex::default(),
            started: AtomicBool::new(false),
            me: Weak::clone(me),
        });
        tenants.insert(tenant.to_owned(), Arc::clone(&replays));
        Ok(replays)
    }

    pub(crate) fn start_replays(&self) {
        for tenant in self.0.shared.store.tenants() {
            if let Ok(replays) = self.replays_of(&tenant) {
                replays.start();
            }
        }
    }
}

/// Deletes the unsettled deliveries of a replay.
pub(crate) async fn clear_inbox(records: &dyn Records, session: &str) -> Result<(), RecordError> {
    let condition = Condition::eq("session", session);
    let query = RecordQuery { projection: Projection::only(["session"]), ..RecordQuery::new(INBOX) };
    let query = query.matching(condition).limit(limits::PAGE_MAX);
    loop {
        let page = match records.find(query.clone()).await {
            Err(RecordError::UnknownCollection(_)) => return Ok(()),
            page => page?,
        };
        let any = || Expected::AbsentOr(Condition::All);
        let delete = |it: &Record| Some(RecordChange::delete_if(INBOX, it.document.get_str("_id").ok()?, any()));
        let changes: Vec<_> = page.records.iter().filter_map(delete).collect();
        if changes.is_empty() {
            return Ok(());
        }
        records.write(changes).await?;
    }
}

impl TenantReplays {
    fn clock(&self) -> &dyn Clock {
        &*self.shared.options.clock
    }

    fn open(&self) -> Result<(), ReplayError> {
        if *self.shared.stop.borrow() { Err(StoreError::Closed.into()) } else { Ok(()) }
    }

    fn typed(&self) -> TypedRecords<ReplaySession> {
        TypedRecords::declared(Arc::clone(&self.records))
    }

    async fn declare(&self) -> Result<(), RecordError> {
        self.records.declare(<ReplaySession as RecordType>::collection()).await?;
        self.records.declare(<InboxRecord as RecordType>::collection()).await
    }

    async fn stored(&self, id: &str) -> Result<Option<Stored<ReplaySession>>, RecordError> {
        match self.typed().get(id).await {
            Err(RecordError::UnknownCollection(_)) => Ok(None),
            found => found,
        }
    }

    async fn known(&self, id: &str) -> Result<Stored<ReplaySession>, ReplayError> {
        self.open()?;
        self.stored(id).await?.ok_or_else(|| ReplayError::Unknown(id.into()))
    }

    /// Wakes callers in this process that wait for changes.
    fn wake(&self) {
        self.changes.send_modify(|count| *count += 1);
    }

    /// Writes a session that was read at a revision, together with related changes. Returns its new revision; `None` if it has changed
    /// since.
    async fn write(
        &self,
        session: &ReplaySession,
        expected: Expected,
        beside: Vec<RecordChange>,
    ) -> Result<Option<Revision>, RecordError> {
        let mut changes = vec![TypedRecords::replacement(session, expected)?];
        changes.extend(beside);
        let written = self.records.write(changes).await;
        self.wake();
        match written {
            Ok(revisions) => Ok(revisions.first().copied()),
            Err(RecordError::NotAsExpected { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Checks what depends on the store and this process.
    async fn check(&self, body: &ReplayBody) -> Result<(), ReplayError> {
        body.validate()?;
        match &body.target {
            ReplayTarget::Handler { name } => _ = self.handlers.definition(name).await?,
            ReplayTarget::File { name } => {
                let Some(folder) = &self.shared.options.exports else {
                    let message = "cannot be a file: the server has no folder for exports";
                    return Err(Invalid::new(Code::InvalidReplay, "target.kind", message).into());
                };
                if self.path_in(folder, name).exists() {
                    let message = format!("{name:?} already exists; choose another name, or remove the file");
                    return Err(Invalid::new(Code::InvalidReplay, "target.name", message).into());
                }
            }
            ReplayTarget::Webhook { url } => {
                let refused = |message| Invalid::new(Code::InvalidReplay, "target.url", message);
                self.shared.options.partners.sending.check(url).map_err(refused)?;
            }
            ReplayTarget::Topic { .. } => self.check_reach(body).await?,
            ReplayTarget::Test {} => {}
        }
        Ok(())
    }

    /// Refuses to send to topics on an external broker: its content follows the log, in order and once, and another publisher would fence
    /// the relay. Groups that follow the log receive a replay even then, so one such group that reads the topic is enough.
    async fn check_reach(&self, body: &ReplayBody) -> Result<(), ReplayError> {
        let has_own = locked(&self.brokers).contains_key(&self.tenant);
        if !has_own || self.reads_a_topic_of(body).await? {
            return Ok(());
        }
        let message = "cannot be a topic: no group that follows the log (/v1/groups) reads it, and a replay does not publish to the broker. \
                       To process its messages again, stop the consumers of a group on Kafka and set their offsets back \
                       (kafka-consumer-groups.sh --group GROUP --topic TOPIC --reset-offsets --to-datetime TIME --execute), or replay to \
                       a handler, a webhook or a file";
        Err(Invalid::new(Code::InvalidReplay, "target.kind", message).into())
    }
}

#[async_trait]
impl Replays for TenantReplays {
    async fn preview(&self, body: PreviewBody) -> Result<ReplayPreview, ReplayError> {
        self.open()?;
        let replay = body.replay();
        replay.validate()?;
        if matches!(replay.target, ReplayTarget::Topic { .. }) {
            self.check_reach(&replay).await?;
        }
        self.browse.until(self.log.head().await?).await?;
        let condition = replay.filter.condition();
        let most = usize::try_from(body.max_events.unwrap_or(u64::MAX)).unwrap_or(usize::MAX);
        let count = self.browse.count(&condition).await?.min(body.max_events.unwrap_or(u64::MAX));
        let mut query = RecordQuery::new("").matching(condition).ascending("timestamp").limit(most.min(SHOWN_MAX));
        let mut first = Vec::new();
        while query.limit > 0 {
            let (some, next) = self.browse.find(query.clone()).await?;
            first.extend(some.iter().map(EventSummary::of));
            query.after = next;
            query.limit = if query.after.is_some() { most.min(SHOWN_MAX).saturating_sub(first.len()) } else { 0 };
        }
        Ok(ReplayPreview { count, first, target: body.target })
    }

    async fn create(&self, body: ReplayBody) -> Result<ReplayStatus, ReplayError> {
        self.open()?;
        self.check(&body).await?;
        self.declare().await?;
        let (now, random) = (self.clock().now(), &*self.shared.options.random);
        let ids = (new_uuid(now, random), new_uuid(now, random));
        let session = ReplaySession::new(ids.0.to_string(), ids.1.to_string(), &body, now);
        self.typed().insert(&session).await?;
        self.wake();
        Ok(session.shown(now))
    }

    async fn list(
        &self,
        state: Option<ReplayState>,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<ReplayPage, ReplayError> {
        self.open()?;
        let condition = state.map_or(Condition::All, |state| Condition::eq("status", state.name()));
        let query = RecordQuery::new(REPLAY_SESSIONS).matching(condition).descending("created_at").limit(limit);
        let query = RecordQuery { after: cursor.map(Cursor::new), ..query };
        let (found, next) = match self.typed().find(query).await {
            Err(RecordError::UnknownCollection(_)) => (Vec::new(), None),
            found => found?,
        };
        let now = self.clock().now();
        let items = found.iter().map(|it| it.value.shown(now)).collect();
        Ok(ReplayPage { items, cursor: next.map(|cursor| cursor.as_str().into()) })
    }

    async fn get(&self, id: &str) -> Result<ReplayStatus, ReplayError> {
        Ok(self.known(id).await?.value.shown(self.clock().now()))
    }

    async fn act(&self, id: &str, act: ReplayAct, reason: Reason) -> Result<ReplayStatus, ReplayError> {
        self.carry_out(id, act, reason).await
    }

    async fn changed(&self, id: &str, seen: Option<&ReplayStatus>) -> Result<ReplayStatus, ReplayError> {
        let mut changes = self.changes.subscribe();
        let mut stop = self.shared.stop.subscribe();
        loop {
            changes.mark_unchanged();
            let now = self.get(id).await?;
            // The remaining time is estimated again with each read.
            let same = |seen: &&ReplayStatus| {
                ReplayStatus { eta: None, ..(*seen).clone() } == ReplayStatus { eta: None, ..now.clone() }
            };
            if seen.as_ref().is_none_or(|seen| !same(seen)) {
                return Ok(now);
            }
            tokio::select! {
                biased;
                () = crate::host::is_set(&mut stop) => return Err(StoreError::Closed.into()),
                _ = changes.changed() => {}
                () = self.clock().sleep(LOOK_EVERY), if self.shared.may_share() => {}
            }
        }
    }

    async fn clean_up(&self, older_than_hours: u32) -> Result<u64, ReplayError> {
        self.open()?;
        let before = self.clock().now().as_millis() - i64::from(older_than_hours) * 3_600_000;
        self.remove_ended_before(Timestamp::from_millis(before)).await
    }
}

impl TenantReplays {
    /// Starts running replays, follows those that other processes start, and removes those that ended long ago. Later calls do nothing.
    pub fn start(&self) {
        if !self.started.swap(true, Ordering::Relaxed) {
            self.follow();
            self.let_leave();
        }
    }
}
