//! The audit log: every administrative act is an event in the system tenant's log, stored before the act is carried out. A second event
//! records its result.

use std::sync::Arc;

use annals_core::audit::{
    ACT_BEGUN, ACT_ENDED, AUDIT_AGGREGATE, ActBegun, ActEnded, ActOutcome, AuditEntry, AuditPage,
};
use annals_core::{
    Aggregate, AggregateFilter, AggregateQuery, ByteString, Clock, Code, CommitError, DEFAULT_SCOPE, Data, EventLog,
    Filter, Invalid, LogQuery, NewCommit, NewEvent, Randomness, ReadError, RecordedEvent, Store, UnknownLog, limits,
    new_uuid,
};
use annals_system::SystemRandomness;

/// The audit log of a store.
pub struct Audit {
    log: Arc<dyn EventLog>,
    clock: Arc<dyn Clock>,
    random: SystemRandomness,
}

impl Audit {
    /// Opens the audit log in the log of `tenant`.
    ///
    /// # Errors
    /// [`UnknownLog::Tenant`] if the tenant is not declared.
    pub fn new(store: &dyn Store, tenant: &str, clock: Arc<dyn Clock>) -> Result<Self, UnknownLog> {
        Ok(Self { log: store.log(tenant, DEFAULT_SCOPE)?, clock, random: SystemRandomness::new() })
    }

    /// Stores that an act begins, and returns its id. An act that cannot be recorded must not be carried out.
    ///
    /// # Errors
    /// See [`CommitError`].
    pub async fn begin(&self, act: &ActBegun) -> Result<ByteString, CommitError> {
        let id: ByteString = new_uuid(self.clock.now(), &self.random as &dyn Randomness).to_string().into();
        self.commit(&id, ACT_BEGUN, Data::from_value(act)).await?;
        Ok(id)
    }

    /// Stores the result of an act.
    ///
    /// # Errors
    /// See [`CommitError`]; the act is then listed as one with an unknown result.
    pub async fn end(&self, id: &ByteString, ended: &ActEnded) -> Result<(), CommitError> {
        self.commit(id, ACT_ENDED, Data::from_value(ended)).await
    }

    async fn commit(&self, id: &ByteString, what: &str, data: Result<Data, String>) -> Result<(), CommitError> {
        let data = data.map_err(|why| Invalid::new(Code::InvalidData, "data", why))?;
        let commit = NewCommit::new(AUDIT_AGGREGATE, id.clone()).event(NewEvent::new(what, data));
        self.log.commit(commit).await.map(drop)
    }

    /// Lists acts, newest first: at most `limit` of those before the cursor of an earlier page.
    ///
    /// # Errors
    /// `invalid_query` for a cursor that is not of this list; else see [`ReadError`].
    pub async fn list(&self, cursor: Option<&str>, limit: usize) -> Result<AuditPage, ReadError> {
        let wrong = |text: &str| {
            Invalid::new(
                Code::InvalidQuery,
                "cursor",
                format!("{text:?} is not a cursor of this list; start again without one"),
            )
        };
        let from = cursor.map(|text| text.parse().map_err(|_| wrong(text))).transpose()?;
        let aggregate = Some(AggregateFilter { name: AUDIT_AGGREGATE.into(), id: None });
        let filter = Filter { types: vec![ACT_BEGUN.into()], tags: Vec::new(), aggregate };
        let limit = limit.clamp(1, limits::PAGE_MAX);
        let page = self.log.read(LogQuery { from, limit, backwards: true, filter }).await?;
        let mut items = Vec::with_capacity(page.events.len());
        for event in &page.events {
            items.extend(self.entry(event).await?);
        }
        let cursor = (page.events.len() == limit).then(|| page.next.to_string().into());
        Ok(AuditPage { items, cursor })
    }

    /// Returns the act that an event began, with its result; `None` for an event of something else.
    async fn entry(&self, event: &RecordedEvent) -> Result<Option<AuditEntry>, ReadError> {
        let Ok(act) = event.data.decode::<ActBegun>() else { return Ok(None) };
        let aggregate: Aggregate = event.commit.aggregate.clone();
        let id = aggregate.id.clone();
        let commits = self.log.read_aggregate(AggregateQuery::new(aggregate)).await?.commits;
        let events = commits.iter().flat_map(|commit| &commit.events);
        let ended =
            events.filter(|event| event.event_type == ACT_ENDED).find_map(|event| event.data.decode::<ActEnded>().ok());
        let (outcome, code) = ended.map_or((ActOutcome::Unknown, None), |ended| (ended.outcome, ended.code));
        Ok(Some(AuditEntry { sequence_number: event.sequence_number, id, at: event.time, act, outcome, code }))
    }
}
