//! The log of a scope other than the default one: events received from other microservices, in the Dolittle Runtime's layout,
//! `x-<scope>-event-log`. It receives events, is read and followed, and takes no commits.
//!
//! ```text
//!   scope/receive.rs     receives: events, where their subscription stands and the next number, by one transaction
//!   scope/received.rs    what came with received events
//!   scope/end.rs         how far the log reaches, and waiting for more
//!   scope/read.rs        pages, and events by their numbers
//!   scope/aggregates.rs  events of an aggregate, which a Runtime never writes here and a tool may
//!   scope/stats.rs       counting
//! ```
//!
//! Each event is a commit of its own, as in an adopted log (`layout/adopted.rs`). There is no `event-log-commits` for it, so queries
//! search the events themselves.

mod aggregates;
mod end;
mod read;
pub(crate) mod receive;
mod received;
mod stats;

use std::sync::Arc;

use annals_core::{
    Aggregate, AggregateCommits, AggregateIdsQuery, AggregateNamesQuery, AggregateQuery, ByteString, Code, CommitError,
    CommitOutcome, EventLog, Identity, KnownAggregate, LogPage, LogQuery, LogStats, LogStatus, NewCommit,
    NewTransaction, ReadError, RecordedEvent, SequenceNumber, StoreError, SyncTimes, TransactionError,
};
use async_trait::async_trait;
use mongodb::Database;
use mongodb::bson::{RawDocument, RawDocumentBuf};
use uuid::Uuid;

use crate::layout::adopted::Reader;
use crate::layout::foreign::StoredCommit;
use crate::layout::mapping::Mapping;
use crate::layout::names::{EVENT_LOG, STREAMS, of_scope};
use crate::layout::received::{RECEIVED, SUBSCRIPTION_STATES};
use crate::layout::schema;
use crate::log::Means;
use crate::options::Options;
use crate::refused::{OpenError, asking, malformed};
use end::End;

/// The log of one scope of a tenant.
pub(crate) struct ScopeLog {
    tenant: String,
    /// The scope's declared name.
    scope: String,
    pub(crate) database: Database,
    /// The collection of the events.
    pub(crate) collection: String,
    /// The collection of the states of the scope's streams.
    pub(crate) states: String,
    /// The collection of the scope's subscriptions.
    subscriptions: String,
    /// The collection of the additional data of received events.
    arrivals: String,
    /// The scope's UUID.
    pub(crate) id: Uuid,
    end: End,
    reader: Reader,
    pub(crate) means: Means,
}

impl ScopeLog {
    /// Opens the log, and creates the indexes of its layout.
    ///
    /// # Errors
    /// `unsuitable_server`, `unreachable`.
    pub(crate) async fn open(
        (tenant, scope, id): (&str, &str, Uuid),
        database: Database,
        identity: &Identity,
        options: &Options,
        means: Means,
    ) -> Result<Self, OpenError> {
        let (collection, states) = (of_scope(id, EVENT_LOG), of_scope(id, STREAMS));
        schema::ensure_scope(&database, &collection, &states, options.auto_init_schema).await?;
        let asked = |error: mongodb::error::Error| asking(database.name(), &error);
        let mapping = Arc::new(Mapping::read(&database).await.map_err(asked)?);
        let reader = Reader { log: collection.clone(), store_id: identity.store_id, mapping };
        let end = End::at(end::last(&database, &collection).await.map_err(asked)?);
        let (tenant, scope) = (tenant.to_owned(), scope.to_owned());
        let (subscriptions, arrivals) = (of_scope(id, SUBSCRIPTION_STATES), of_scope(id, RECEIVED));
        Ok(Self { tenant, scope, database, collection, states, subscriptions, arrivals, id, end, reader, means })
    }

    /// Returns the names of its event types and aggregates.
    pub(crate) fn mapping(&self) -> &Arc<Mapping> {
        &self.reader.mapping
    }

    /// Wakes all waiters and tells them that nothing more will come.
    pub(crate) fn close(&self) {
        self.end.close();
    }

    pub(crate) fn status(&self) -> LogStatus {
        LogStatus {
            tenant: self.tenant.clone(),
            scope: self.scope.clone(),
            head: self.end.seen(),
            refusing: self.end.hole().map(|number| StoreError::other(Code::ForeignNumbers, self.hole_sentence(number))),
            records_refusing: None,
            commits: 0,
            syncs: 0,
            sync_times: SyncTimes::default(),
            bytes: 0,
            recovery: Vec::new(),
            sequencer: None,
        }
    }

    fn hole_sentence(&self, number: SequenceNumber) -> String {
        format!(
            "database {}: {} has later events than {number}, which is missing: it is waited for; where it was deleted, start again",
            self.database.name(),
            self.collection
        )
    }

    /// Returns the highest head that this process has seen.
    pub(crate) fn seen(&self) -> SequenceNumber {
        self.end.seen()
    }

    /// Returns the number of events in the log at majority, up to the first gap.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub(crate) async fn read_head(&self) -> Result<SequenceNumber, ReadError> {
        end::read(self).await
    }

    /// Returns the events with these numbers, which are ascending and below the head. It ends early if they are large, but returns at
    /// least one.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub(crate) async fn events(&self, numbers: &[SequenceNumber]) -> Result<Vec<RecordedEvent>, ReadError> {
        read::events(self, numbers).await
    }

    fn all(&self) -> mongodb::Collection<RawDocumentBuf> {
        self.database.collection(&self.collection)
    }

    fn read_one(&self, found: &RawDocument) -> Result<(SequenceNumber, StoredCommit), ReadError> {
        let broken = |why: String| malformed(&self.database, &self.collection, found, why);
        let event = crate::layout::adopted::find(found).map_err(broken)?;
        Ok((event.number, self.reader.commit(&event).map_err(broken)?))
    }

    fn takes_no_commits(&self) -> StoreError {
        StoreError::NotSupported(format!(
            "a commit to scope {:?} (on MongoDB its log holds only what was received from other microservices; commit to the default \
             scope)",
            self.scope
        ))
    }
}

#[async_trait]
impl EventLog for ScopeLog {
    async fn commit(&self, commit: NewCommit) -> Result<CommitOutcome, CommitError> {
        commit.validate()?;
        Err(self.takes_no_commits().into())
    }

    async fn transact(&self, transaction: NewTransaction) -> Result<Vec<CommitOutcome>, TransactionError> {
        transaction.validate()?;
        Err(self.takes_no_commits().into())
    }

    async fn read_aggregate(&self, query: AggregateQuery) -> Result<AggregateCommits, ReadError> {
        query.validate()?;
        self.means.answers.of(aggregates::read(self, query)).await
    }

    /// Returns false: received events have no request id.
    async fn request_exists(&self, aggregate: &Aggregate, _: &str) -> Result<bool, ReadError> {
        aggregate.validate()?;
        Ok(false)
    }

    /// Returns `None`: received events have no request id.
    async fn request_outcome(&self, aggregate: &Aggregate, _: &str) -> Result<Option<CommitOutcome>, ReadError> {
        aggregate.validate()?;
        Ok(None)
    }

    async fn aggregate_names(&self, query: AggregateNamesQuery) -> Result<Vec<ByteString>, ReadError> {
        query.validate()?;
        self.means.answers.of(aggregates::names(self, query)).await
    }

    async fn aggregate_ids(&self, query: AggregateIdsQuery) -> Result<Vec<KnownAggregate>, ReadError> {
        query.validate()?;
        self.means.answers.of(aggregates::ids(self, query)).await
    }

    async fn read(&self, query: LogQuery) -> Result<LogPage, ReadError> {
        query.validate()?;
        self.means.answers.of(read::page(self, query)).await
    }

    async fn head(&self) -> Result<SequenceNumber, ReadError> {
        self.means.answers.of(self.read_head()).await
    }

    async fn wait_past(&self, head: SequenceNumber) -> Result<SequenceNumber, ReadError> {
        end::wait_past(self, head).await
    }

    async fn stats(&self, progress: &mut (dyn FnMut(u64, u64) + Send)) -> Result<LogStats, ReadError> {
        stats::count(self, progress).await
    }
}
