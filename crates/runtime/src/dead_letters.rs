//! The dead letters of a tenant. The contract is [`DeadLetters`].
//!
//! ```text
//!  owner of a group or handler ── parks ──▶ letter ◀── retry, discard ── a person, one letter or many
//!            ▲                                │ due                        bulk.rs
//!            └────────── offers it again ◀────┘
//!                                             │ changed
//!                                             ▼
//!  keeper.rs: one process commits the events that announce letters, watches the thresholds, and finishes bulk acts
//! ```
//!
//! `edits.rs` changes related letters together; both sides use it.

mod bulk;
mod counts;
mod edits;
mod keeper;
mod leaving;
mod listed;
mod open;
mod partners;
mod policies;

use std::sync::Arc;

use annals_core::dead_letters::{
    BulkAct, BulkBody, BulkOutcome, BulkRecord, DEAD_LETTERS, DeadLetter, DeadLetterError, DeadLetters, LetterPage,
    LetterPolicy, LetterQuery, LetterStatus, LetterView, POLICIES, PolicyPage, PolicyRecord, PolicyStatus, Statistics,
    ThresholdRecord,
};
use annals_core::handlers::{HandlerError, Reason};
use annals_core::partners::Partners;
use annals_core::{
    ByteString, Clock, Condition, Cursor, Expected, Invalid, RecordError, RecordQuery, RecordType, Records, Store,
    Stored, TypedRecords, UnknownLog, limits, valid_name,
};
use async_trait::async_trait;
use tokio::sync::OnceCell;

pub(crate) use edits::Edits;
use edits::{Asked, date};
pub(crate) use open::OpenLetters;
pub(crate) use policies::Policies;

use crate::handlers::TenantHandlers;
use crate::host::{Brokers, Host, Shared, locked, supervise};

/// The number of attempts to change a letter that changes between the read and the write.
const TRIES: usize = 100;

/// The dead letters of one tenant in this process.
pub(crate) struct TenantDeadLetters {
    shared: Arc<Shared>,
    tenant: String,
    records: Arc<dyn Records>,
    policies: Policies,
    handlers: Arc<TenantHandlers>,
    groups: Arc<TenantHandlers>,
    partners: Arc<dyn Partners>,
    /// The names of topics on the brokers that events are published to.
    brokers: Arc<Brokers>,
    declared: OnceCell<()>,
    started: OnceCell<()>,
}

impl Host {
    /// Returns the dead letters of a tenant.
    ///
    /// # Errors
    /// [`UnknownLog::Tenant`] if the tenant is not declared.
    pub fn dead_letters(&self, tenant: &str) -> Result<Arc<dyn DeadLetters>, UnknownLog> {
        Ok(self.dead_letters_of(tenant)?)
    }

    pub(crate) fn dead_letters_of(&self, tenant: &str) -> Result<Arc<TenantDeadLetters>, UnknownLog> {
        let mut all = locked(&self.0.dead_letters);
        if let Some(known) = all.get(tenant) {
            return Ok(Arc::clone(known));
        }
        let shared = Arc::clone(&self.0.shared);
        let of_tenant = Arc::new(TenantDeadLetters {
            records: shared.store.records(tenant)?,
            policies: Policies::of_tenant(&shared, tenant)?,
            handlers: self.tenant(tenant)?,
            groups: self.groups_of(tenant)?,
            partners: self.partners(tenant)?,
            brokers: Arc::clone(&self.0.brokers),
            declared: OnceCell::new(),
            started: OnceCell::new(),
            tenant: tenant.to_owned(),
            shared,
        });
        all.insert(tenant.to_owned(), Arc::clone(&of_tenant));
        Ok(of_tenant)
    }

    /// Returns the statistics of dead letters of each tenant. Tenants whose letters cannot be read are left out.
    pub async fn dead_letter_counts(&self) -> Vec<(String, Statistics)> {
        let mut counts = Vec::new();
        for tenant in self.store().tenants() {
            if let Ok(letters) = self.dead_letters_of(&tenant)
                && let Ok(counted) = letters.counted(&Condition::All).await
            {
                counts.push((tenant, counted));
            }
        }
        counts
    }

    /// Lists the dead letters of a tenant as [`DeadLetters::list`] does, limited to those whose stored fields match a condition. The
    /// condition may change from page to page.
    ///
    /// # Errors
    /// [`UnknownLog`] as [`DeadLetterError::Invalid`]; else as [`DeadLetters::list`].
    pub async fn list_dead_letters(
        &self,
        tenant: &str,
        query: &LetterQuery,
        condition: Condition,
    ) -> Result<LetterPage, DeadLetterError> {
        let unknown = |error: UnknownLog| Invalid::new(error.code(), "tenant", error.to_string());
        let letters = self.dead_letters_of(tenant).map_err(unknown)?;
        letters.list_some(query, condition).await
    }

    /// Counts the dead letters of a tenant as [`DeadLetters::statistics`] does, limited to those whose stored fields match a condition.
    ///
    /// # Errors
    /// As [`list_dead_letters`](Self::list_dead_letters).
    pub async fn count_dead_letters(&self, tenant: &str, condition: &Condition) -> Result<Statistics, DeadLetterError> {
        let unknown = |error: UnknownLog| Invalid::new(error.code(), "tenant", error.to_string());
        self.dead_letters_of(tenant).map_err(unknown)?.counted(condition).await
    }

    /// Announces the dead letters of all tenants for as long as the host runs.
    pub(crate) fn start_dead_letters(&self) {
        for tenant in self.store().tenants() {
            // Every tenant that the store lists is declared.
            if let Ok(letters) = self.dead_letters_of(&tenant) {
                letters.start();
            }
        }
    }
}

impl TenantDeadLetters {
    /// Starts the task that announces letters, unless it runs. Needs an async runtime.
    pub fn start(self: &Arc<Self>) {
        if self.started.set(()).is_ok() {
            let task = format!("dead-letters/{}", self.tenant);
            supervise(&self.shared, task, keeper::Keeper::new(Arc::clone(self)));
        }
    }

    fn clock(&self) -> &dyn Clock {
        &*self.shared.options.clock
    }

    fn store(&self) -> &Arc<dyn Store> {
        &self.shared.store
    }

    fn letters(&self) -> TypedRecords<DeadLetter> {
        TypedRecords::declared(Arc::clone(&self.records))
    }

    async fn declare(&self) -> Result<(), RecordError> {
        let declare = || async {
            self.records.declare(<DeadLetter as RecordType>::collection()).await?;
            self.records.declare(<PolicyRecord as RecordType>::collection()).await?;
            self.records.declare(<BulkRecord as RecordType>::collection()).await?;
            self.records.declare(<ThresholdRecord as RecordType>::collection()).await
        };
        self.declared.get_or_try_init(declare).await.copied()
    }

    async fn list_page(&self, query: &LetterQuery) -> Result<LetterPage, DeadLetterError> {
        let asked = RecordQuery::new(DEAD_LETTERS).matching(query.condition());
        let mut asked = asked.descending("failed_at").limit(query.page_length());
        if let Some(cursor) = &query.cursor {
            asked = asked.after(Cursor::new(cursor.to_string()));
        }
        let (page, next) = match self.letters().find(asked).await {
            Err(RecordError::UnknownCollection(_)) => (Vec::new(), None),
            page => page?,
        };
        let items = page.into_iter().map(|stored| stored.value.into()).collect();
        Ok(LetterPage { items, cursor: next.map(|cursor| cursor.as_str().into()) })
    }

    fn edits(&self) -> Edits {
        let random = Arc::clone(&self.shared.options.random);
        Edits::new(&self.records, self.policies.clone(), random, self.clock().now())
    }

    /// Wakes the consumers of changed letters, and the task that announces them.
    fn changed<'a>(&self, processors: impl IntoIterator<Item = &'a str>) {
        for processor in processors {
            match processor.split_once('/') {
                Some(("group", name)) => self.groups.look_for_letters(name),
                Some(("handler", name)) => self.handlers.look_for_letters(name),
                _ => {}
            }
        }
        self.shared.letters_of(&self.tenant).notify_one();
    }

    async fn one(&self, id: &str, act: BulkAct, reason: Reason) -> Result<LetterView, DeadLetterError> {
        reason.validate()?;
        self.declare().await?;
        for _ in 0..TRIES {
            let mut edits = self.edits();
            let asked = carry_out(&mut edits, id, act, &reason).await?;
            let status = match asked {
                None => return Err(DeadLetterError::Unknown(id.into())),
                Some(Asked::Over(status)) => Some(status),
                Some(Asked::Done) => None,
            };
            if let Some(status) = status {
                return Err(over(id, act, status));
            }
            let view = edits.letter(id).await?.cloned().ok_or_else(|| DeadLetterError::Unknown(id.into()))?;
            match self.records.write(edits.finish()?.0).await {
                Ok(_) => {
                    let by = reason.by.as_deref();
                    tracing::info!(
                        letter = id,
                        act = act.name(),
                        reason = reason.reason,
                        by,
                        "an operator acted on a dead letter"
                    );
                    self.changed([&*view.processor]);
                    return Ok(view.into());
                }
                Err(RecordError::NotAsExpected { .. } | RecordError::DuplicateKey { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(busy())
    }

    /// Discards the open letters of a consumer that is deleted.
    pub async fn give_up(&self, processor: &str, reason: Reason) -> Result<(), HandlerError> {
        self.give_up_letters(processor, reason).await.map_err(|error| match error {
            DeadLetterError::Store(error) => HandlerError::Store(error),
            other => Invalid::new(other.code(), "", other.to_string()).into(),
        })
    }

    async fn give_up_letters(&self, processor: &str, reason: Reason) -> Result<(), DeadLetterError> {
        let open = Condition::and([DeadLetter::open(), Condition::eq("processor", processor)]);
        match self.records.count(DEAD_LETTERS, &open).await {
            Ok(0) | Err(RecordError::UnknownCollection(_)) => return Ok(()),
            count => count?,
        };
        let reason = format!("its consumer was deleted: {}", reason.reason);
        let body = BulkBody { condition: Some(open), ids: None, reason, by: None, dry_run: false };
        self.bulk(BulkAct::Discard, body).await.map(drop)
    }

    async fn put(
        &self,
        topic: &str,
        policy: Option<LetterPolicy>,
        reason: Reason,
    ) -> Result<PolicyStatus, DeadLetterError> {
        reason.validate()?;
        valid_name("topic", topic)?;
        self.declare().await?;
        let Reason { reason, by } = reason;
        tracing::info!(topic, reason, by, "an operator changed the policy of a topic's dead letters");
        let record = PolicyRecord { topic: topic.to_owned(), policy, reason, by, at: date(self.clock().now()) };
        let change = TypedRecords::replacement(&record, Expected::AbsentOr(Condition::All))?;
        self.records.write(vec![change]).await?;
        self.policy(topic).await
    }

    /// Returns the event type that a topic carries: one on the tenant's broker, else one that is a view of the log.
    fn type_of(&self, topic: &str) -> String {
        let brokers = locked(&self.brokers);
        let on_broker = brokers.get(&self.tenant).and_then(|(_, names)| names.type_of(topic));
        on_broker.or_else(|| self.shared.options.topics.type_of(topic)).unwrap_or(topic).to_owned()
    }
}

/// Applies a person's act to one letter.
async fn carry_out(edits: &mut Edits, id: &str, act: BulkAct, reason: &Reason) -> Result<Option<Asked>, RecordError> {
    let by = reason.by.as_deref();
    match act {
        BulkAct::Retry => edits.retry(id, &reason.reason, by).await,
        BulkAct::Discard => edits.discard(id, &format!("manual: {}", reason.reason), by).await,
    }
}

fn over(id: &str, act: BulkAct, status: LetterStatus) -> DeadLetterError {
    let act = match act {
        BulkAct::Retry => "retried",
        BulkAct::Discard => "discarded",
    };
    DeadLetterError::Terminal { id: id.into(), state: status.name().to_owned(), act: act.to_owned() }
}

fn busy() -> DeadLetterError {
    annals_core::StoreError::Unreachable("other processes kept changing the letter; retry".to_owned()).into()
}

#[async_trait]
impl DeadLetters for TenantDeadLetters {
    async fn list(&self, query: LetterQuery) -> Result<LetterPage, DeadLetterError> {
        self.list_page(&query).await
    }

    async fn get(&self, id: &str) -> Result<LetterView, DeadLetterError> {
        let found = match self.letters().get(edits::id(id)).await {
            Err(RecordError::UnknownCollection(_)) => None,
            found => found?,
        };
        found.map(|stored| stored.value.into()).ok_or_else(|| DeadLetterError::Unknown(id.into()))
    }

    async fn retry(&self, id: &str, reason: Reason) -> Result<LetterView, DeadLetterError> {
        self.one(id, BulkAct::Retry, reason).await
    }

    async fn discard(&self, id: &str, reason: Reason) -> Result<LetterView, DeadLetterError> {
        self.one(id, BulkAct::Discard, reason).await
    }

    async fn bulk(&self, act: BulkAct, body: BulkBody) -> Result<BulkOutcome, DeadLetterError> {
        self.many(act, body).await
    }

    async fn statistics(&self) -> Result<Statistics, DeadLetterError> {
        self.counted(&Condition::All).await
    }

    async fn policies(&self, after: Option<&str>, limit: usize) -> Result<PolicyPage, DeadLetterError> {
        self.declare().await?;
        let stored = TypedRecords::<PolicyRecord>::declared(Arc::clone(&self.records));
        let own = Condition::not_null("policy");
        let condition = match after {
            Some(after) => Condition::and([own, Condition::gt("_id", after)]),
            None => own,
        };
        let limit = limit.clamp(1, limits::PAGE_MAX);
        let query = RecordQuery::new(POLICIES).matching(condition).ascending("_id").limit(limit);
        let (page, next) = stored.find(query).await?;
        let mut items = Vec::with_capacity(page.len());
        for Stored { value, .. } in page {
            items.push(self.policies.of(&value.topic, &self.type_of(&value.topic)).await?);
        }
        let cursor = next.and(items.last().map(|last| last.topic.clone()));
        Ok(PolicyPage { items, cursor })
    }

    async fn policy(&self, topic: &str) -> Result<PolicyStatus, DeadLetterError> {
        valid_name("topic", topic)?;
        Ok(self.policies.of(topic, &self.type_of(topic)).await?)
    }

    async fn put_policy(
        &self,
        topic: ByteString,
        policy: LetterPolicy,
        reason: Reason,
    ) -> Result<PolicyStatus, DeadLetterError> {
        policy.validate()?;
        self.put(&topic, Some(policy), reason).await
    }

    async fn delete_policy(&self, topic: &str, reason: Reason) -> Result<PolicyStatus, DeadLetterError> {
        self.put(topic, None, reason).await
    }
}
