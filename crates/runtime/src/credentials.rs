//! The credentials of a store, and those that this process knows. The contract is [`Credentials`].
//!
//! Authenticating a request must not read the store, so every process keeps all credentials in memory and follows the changes of their
//! collection. A process that cannot follow them reports that ([`LiveCredentials::are_current`]).

use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use annals_core::credentials::{
    ApiKey, CREDENTIALS, CreatedCredential, Credential, CredentialError, CredentialPage, CredentialRecord,
    CredentialState, Credentials, NewCredential, RevokeBody,
};
use annals_core::{
    ChangesError, Clock, Condition, Expected, RecordError, Records, Revision, Store, StoreError, Timestamp,
    TypedRecords, UnknownLog, limits,
};
use async_trait::async_trait;
use futures_util::future::BoxFuture;
use tokio::sync::watch;

use crate::host::{Ended, Host, Shared, Supervised, is_set, locked, supervise};

/// How often to look for changes even if none was signalled.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// How long the known credentials count as current without another look.
const CURRENT_MAX: Duration = Duration::from_secs(30);

/// The credentials of a store, as records of its system tenant.
pub struct StoredCredentials {
    records: Arc<dyn Records>,
    clock: Arc<dyn Clock>,
}

impl StoredCredentials {
    /// Opens the credentials among the records of `tenant`.
    ///
    /// # Errors
    /// [`UnknownLog::Tenant`] if the tenant is not declared.
    pub fn new(store: &dyn Store, tenant: &str, clock: Arc<dyn Clock>) -> Result<Self, UnknownLog> {
        Ok(Self { records: store.records(tenant)?, clock })
    }

    fn typed(&self) -> TypedRecords<CredentialRecord> {
        TypedRecords::declared(Arc::clone(&self.records))
    }

    async fn declare(&self) -> Result<TypedRecords<CredentialRecord>, RecordError> {
        TypedRecords::declare(Arc::clone(&self.records)).await
    }

    /// Reads a page of the records; empty if no credential was ever created.
    async fn page(&self, after: Option<&str>, limit: usize) -> Result<Vec<(CredentialRecord, Revision)>, RecordError> {
        let after = after.map_or(Condition::All, |after| Condition::gt("_id", after));
        let query = TypedRecords::<CredentialRecord>::query().matching(after).limit(limit);
        match self.typed().find(query).await {
            Err(RecordError::UnknownCollection(_)) => Ok(Vec::new()),
            page => Ok(page?.0.into_iter().map(|found| (found.value, found.revision)).collect()),
        }
    }

    async fn all(&self) -> Result<Vec<(CredentialRecord, Revision)>, RecordError> {
        let mut all: Vec<(CredentialRecord, Revision)> = Vec::new();
        loop {
            let after = all.last().map(|(record, _)| record.id.clone());
            let page = self.page(after.as_deref(), limits::PAGE_MAX).await?;
            if page.is_empty() {
                return Ok(all);
            }
            all.extend(page);
        }
    }

    /// Returns whether there is a credential that can be used now.
    ///
    /// # Errors
    /// See [`CredentialError`].
    pub async fn any_active(&self) -> Result<bool, CredentialError> {
        let now = self.clock.now();
        Ok(self.all().await?.iter().any(|(record, _)| record.state(now) == CredentialState::Active))
    }

    async fn record(&self, id: &str) -> Result<(CredentialRecord, Revision), CredentialError> {
        let found = match self.typed().get(id).await {
            Err(RecordError::UnknownCollection(_)) => None,
            found => found?,
        };
        let found = found.ok_or_else(|| CredentialError::Unknown(id.into()))?;
        Ok((found.value, found.revision))
    }
}

#[async_trait]
impl Credentials for StoredCredentials {
    async fn create(&self, new: NewCredential) -> Result<CreatedCredential, CredentialError> {
        new.validate()?;
        let random = |error| CredentialError::Store(StoreError::Io(error));
        let (id, secret) =
            (annals_system::secret_bytes().map_err(random)?, annals_system::secret_bytes().map_err(random)?);
        let (key, now) = (ApiKey::new(id, secret), self.clock.now());
        let record = CredentialRecord::new(new, &key, now);
        self.declare().await?.insert(&record).await?;
        Ok(CreatedCredential { key: key.reveal(), credential: record.shown(now) })
    }

    async fn list(&self, after: Option<&str>, limit: usize) -> Result<CredentialPage, CredentialError> {
        let limit = limit.clamp(1, limits::PAGE_MAX);
        let now = self.clock.now();
        let found = self.page(after, limit).await?;
        // After a full page, the next one may be empty.
        let cursor = found.last().filter(|_| found.len() == limit).map(|(record, _)| record.id.as_str().into());
        Ok(CredentialPage { items: found.iter().map(|(record, _)| record.shown(now)).collect(), cursor })
    }

    async fn get(&self, id: &str) -> Result<Credential, CredentialError> {
        Ok(self.record(id).await?.0.shown(self.clock.now()))
    }

    async fn revoke(&self, id: &str, reason: RevokeBody) -> Result<Credential, CredentialError> {
        reason.validate()?;
        let (mut record, revision) = self.record(id).await?;
        let now = self.clock.now();
        if record.state(now) != CredentialState::Revoked {
            record.revoke(now, reason);
            self.typed().replace_if(&record, Expected::Revision(revision)).await?;
        }
        Ok(record.shown(now))
    }
}

/// A credential that this process knows.
pub struct KnownCredential {
    /// The stored record. That of a revoked credential may be older; check [`is_ended`](Self::is_ended).
    pub record: CredentialRecord,
    revision: Revision,
    ended: watch::Sender<bool>,
}

impl KnownCredential {
    /// Returns whether it was revoked or deleted.
    pub fn is_ended(&self) -> bool {
        *self.ended.borrow()
    }

    /// Waits until it is revoked or deleted.
    pub fn ended(&self) -> BoxFuture<'static, ()> {
        let mut ended = self.ended.subscribe();
        Box::pin(async move { is_set(&mut ended).await })
    }
}

/// The credentials that this process knows: all of them, kept current by a task of the host.
pub struct LiveCredentials {
    stored: StoredCredentials,
    shared: Arc<Shared>,
    known: RwLock<HashMap<String, Arc<KnownCredential>>>,
    /// When the known credentials were last confirmed to match the store, in milliseconds.
    current_at: AtomicI64,
    /// Set once they were first read.
    read: watch::Sender<bool>,
    /// Serialises loads, so that an older one never replaces what a newer one read.
    loading: tokio::sync::Mutex<()>,
}

impl Host {
    /// Returns the credentials among the records of a tenant, which are followed for as long as the host runs. Needs an async runtime.
    ///
    /// # Errors
    /// [`UnknownLog::Tenant`] if the tenant is not declared.
    pub fn credentials(&self, tenant: &str) -> Result<Arc<LiveCredentials>, UnknownLog> {
        let mut known = locked(&self.0.credentials);
        if let Some(known) = known.get(tenant) {
            return Ok(Arc::clone(known));
        }
        let shared = Arc::clone(&self.0.shared);
        let stored = StoredCredentials::new(&*shared.store, tenant, Arc::clone(&shared.options.clock))?;
        let live = Arc::new(LiveCredentials {
            stored,
            shared: Arc::clone(&shared),
            known: RwLock::default(),
            current_at: AtomicI64::new(i64::MIN),
            read: watch::Sender::new(false),
            loading: tokio::sync::Mutex::default(),
        });
        supervise(&shared, "credentials".to_owned(), Follow(Arc::clone(&live)));
        known.insert(tenant.to_owned(), Arc::clone(&live));
        Ok(live)
    }
}

impl LiveCredentials {
    /// Returns the credential with an id, if there is one.
    pub fn find(&self, id: &str) -> Option<Arc<KnownCredential>> {
        self.known.read().unwrap_or_else(PoisonError::into_inner).get(id).cloned()
    }

    /// Returns the time that decides whether credentials have expired.
    pub fn now(&self) -> Timestamp {
        self.stored.clock.now()
    }

    /// Returns the clock that decides whether credentials have expired.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.stored.clock
    }

    /// Returns whether the known credentials matched the store within the last 30 s.
    pub fn are_current(&self) -> bool {
        let at = Timestamp::from_millis(self.current_at.load(Ordering::Relaxed));
        self.now().since(at) <= CURRENT_MAX
    }

    /// Waits until the credentials were first read.
    pub async fn are_read(&self) {
        is_set(&mut self.read.subscribe()).await;
    }

    async fn load(&self) -> Result<(), RecordError> {
        let _alone = self.loading.lock().await;
        let all = self.stored.all().await?;
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::take(&mut *known);
        for (record, revision) in all {
            let kept = before.get(&record.id).filter(|kept| kept.revision == revision);
            let entry = match kept {
                Some(kept) => Arc::clone(kept),
                None => {
                    let ended = watch::Sender::new(record.revoked.is_some());
                    Arc::new(KnownCredential { record, revision, ended })
                }
            };
            known.insert(entry.record.id.clone(), entry);
        }
        // Credentials that were changed or deleted end, so that their holders are authenticated again.
        for (id, entry) in before {
            if known.get(&id).is_none_or(|current| !Arc::ptr_eq(current, &entry)) {
                entry.ended.send_replace(true);
            }
        }
        Ok(())
    }

    async fn follow(&self) -> Result<(), String> {
        // A store that cannot be written may still hold credentials.
        if let Err(error) = self.stored.declare().await {
            tracing::debug!(%error, "the collection of credentials is not declared");
        }
        let records = &self.stored.records;
        let mut loaded = None;
        loop {
            let last = match records.last_change(CREDENTIALS).await {
                Ok(last) => last,
                Err(ChangesError::UnknownCollection(_) | ChangesError::NoFeed(_)) => 0,
                Err(ChangesError::Store(StoreError::Closed)) => return Ok(()),
                Err(error) => return Err(error.to_string()),
            };
            // Read after the number of the last change, so that no later change is missed.
            if loaded != Some(last) {
                self.load().await.map_err(|error| error.to_string())?;
                loaded = Some(last);
            }
            self.current_at.store(self.now().as_millis(), Ordering::Relaxed);
            self.read.send_replace(true);
            tokio::select! {
                changed = records.wait_past_change(CREDENTIALS, last) => if changed.is_err() {
                    self.shared.options.clock.sleep(LOOK_EVERY).await;
                },
                () = self.shared.options.clock.sleep(LOOK_EVERY) => {}
            }
        }
    }
}

/// Follows the changes of credentials.
struct Follow(Arc<LiveCredentials>);

impl Supervised for Follow {
    async fn run(&mut self) -> Ended {
        let mut stop = self.0.shared.stop.subscribe();
        tokio::select! {
            () = is_set(&mut stop) => Ended::Done,
            followed = self.0.follow() => followed.map_or_else(Ended::Failed, |()| Ended::Done),
        }
    }
}

#[async_trait]
impl Credentials for LiveCredentials {
    async fn create(&self, new: NewCredential) -> Result<CreatedCredential, CredentialError> {
        let created = self.stored.create(new).await?;
        // Load it now, so that its holder can use it in this process at once.
        self.load().await?;
        Ok(created)
    }

    async fn list(&self, after: Option<&str>, limit: usize) -> Result<CredentialPage, CredentialError> {
        self.stored.list(after, limit).await
    }

    async fn get(&self, id: &str) -> Result<Credential, CredentialError> {
        self.stored.get(id).await
    }

    async fn revoke(&self, id: &str, reason: RevokeBody) -> Result<Credential, CredentialError> {
        let revoked = self.stored.revoke(id, reason).await?;
        self.load().await?;
        Ok(revoked)
    }
}
