//! The model as a store, so that the suite is tested before any backend is: a case that the model does not pass is wrong.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use annals_core::{
    Aggregate, AggregateCommits, AggregateIdsQuery, AggregateNamesQuery, AggregateQuery, ByteString, Clock,
    CommitError, CommitOutcome, DEFAULT_SCOPE, DEFAULT_TENANT, DocumentQueries, EventLog, FoundKey, Identity,
    KeyChange, KeyError, KeyPage, KeysQuery, KnownAggregate, LogPage, LogQuery, LogStatus, NewCommit, NewTransaction,
    PrepareKeys, Queries, Randomness, ReadError, RecordSnapshots, Records, SequenceNumber, Snapshots, Store,
    StoreDocuments, StoreError, Streams, SyncTimes, TransactionError, UnknownLog, Version, new_uuid, valid_key,
};
use async_trait::async_trait;
use tokio::sync::watch;

use crate::model::{EPOCH, Model, TransactionVerdict, Verdict};
use crate::records::RecordsModel;
use crate::records::reference::ReferenceRecords;
use crate::streams::StreamsModel;
use crate::streams::reference::ReferenceStreams;
use crate::{ManualClock, OTHER_TENANT, SeededRandomness, Subject};

pub(crate) struct ReferenceSubject {
    clock: Arc<ManualClock>,
    models: BTreeMap<&'static str, Models>,
}

/// The content of a tenant.
#[derive(Default)]
struct Models {
    log: Arc<Mutex<Model>>,
    streams: Arc<Mutex<StreamsModel>>,
    records: Arc<Mutex<RecordsModel>>,
}

impl ReferenceSubject {
    pub fn new() -> Self {
        let models = [DEFAULT_TENANT, OTHER_TENANT].map(|tenant| (tenant, Models::default()));
        Self { clock: Arc::new(ManualClock::at(EPOCH)), models: models.into() }
    }
}

#[async_trait]
impl Subject for ReferenceSubject {
    async fn open(&self) -> Arc<dyn Store> {
        let random = Arc::new(SeededRandomness::new(fastrand::u64(..)));
        let tenants = self.models.iter().map(|(tenant, Models { log: model, streams, records })| {
            let head = watch::Sender::new(Some(model.lock().expect("unpoisoned").head()));
            let log = ReferenceLog { model: model.clone(), clock: self.clock.clone(), random: random.clone(), head };
            let log = Arc::new(log);
            let open = watch::Sender::new(true);
            let streams = Arc::new(ReferenceStreams { model: streams.clone(), log: log.clone(), open });
            let (clock, open) = (self.clock.clone(), watch::Sender::new(true));
            let records = Arc::new(ReferenceRecords { model: records.clone(), clock, open });
            (*tenant, ReferenceTenant { log, streams, records })
        });
        Arc::new(ReferenceStore(tenants.collect()))
    }

    fn clock(&self) -> Arc<ManualClock> {
        self.clock.clone()
    }
}

struct ReferenceStore(BTreeMap<&'static str, ReferenceTenant>);

struct ReferenceTenant {
    log: Arc<ReferenceLog>,
    streams: Arc<ReferenceStreams>,
    records: Arc<ReferenceRecords>,
}

#[async_trait]
impl Store for ReferenceStore {
    fn log(&self, tenant: &str, scope: &str) -> Result<Arc<dyn EventLog>, UnknownLog> {
        match self.0.get(tenant) {
            Some(tenant) if scope == DEFAULT_SCOPE => Ok(tenant.log.clone()),
            Some(_) => Err(UnknownLog::Scope { tenant: tenant.into(), scope: scope.into() }),
            None => Err(UnknownLog::Tenant(tenant.into())),
        }
    }

    fn streams(&self, tenant: &str, scope: &str) -> Result<Arc<dyn Streams>, UnknownLog> {
        self.log(tenant, scope)?;
        Ok(self.0[tenant].streams.clone())
    }

    fn records(&self, tenant: &str) -> Result<Arc<dyn Records>, UnknownLog> {
        match self.0.get(tenant) {
            Some(tenant) => Ok(tenant.records.clone()),
            None => Err(UnknownLog::Tenant(tenant.into())),
        }
    }

    fn snapshots(&self, tenant: &str) -> Result<Arc<dyn Snapshots>, UnknownLog> {
        let found = self.0.get(tenant).ok_or_else(|| UnknownLog::Tenant(tenant.into()))?;
        Ok(Arc::new(RecordSnapshots::new(found.records.clone(), "annals", found.log.clock.clone())))
    }

    fn queries(&self, tenant: &str) -> Result<Arc<dyn Queries>, UnknownLog> {
        let (records, log) = (self.records(tenant)?, self.log(tenant, DEFAULT_SCOPE)?);
        let documents = StoreDocuments::new(records, log, "annals");
        Ok(Arc::new(DocumentQueries::new(documents, self.0[tenant].log.clock.clone())))
    }

    fn prepare_keys(&self, tenant: &str) -> Result<Arc<dyn PrepareKeys>, UnknownLog> {
        match self.0.get(tenant) {
            Some(tenant) => Ok(tenant.log.clone()),
            None => Err(UnknownLog::Tenant(tenant.into())),
        }
    }

    fn tenants(&self) -> Vec<String> {
        self.0.keys().map(|tenant| (*tenant).to_owned()).collect()
    }

    fn identity(&self, tenant: &str) -> Option<Identity> {
        let store_id = annals_core::Uuid::from_u128(tenant.len() as u128);
        self.0.contains_key(tenant).then_some(Identity { store_id, incarnation: 0, incarnation_start: 0 })
    }

    fn status(&self) -> Vec<LogStatus> {
        let of = |(tenant, of_tenant): (&&str, &ReferenceTenant)| {
            let head = of_tenant.log.head.borrow().unwrap_or_default();
            LogStatus {
                tenant: (*tenant).to_owned(),
                scope: DEFAULT_SCOPE.to_owned(),
                head,
                refusing: None,
                records_refusing: None,
                commits: head,
                syncs: head,
                sync_times: SyncTimes { count: head, ..SyncTimes::default() },
                bytes: head,
                recovery: Vec::new(),
                sequencer: None,
            }
        };
        self.0.iter().map(of).collect()
    }

    async fn close(&self) {
        for ReferenceTenant { log, streams, records } in self.0.values() {
            let _closing = (
                log.model.lock().expect("unpoisoned"),
                streams.model.lock().expect("unpoisoned"),
                records.model.lock().expect("unpoisoned"),
            );
            streams.open.send_replace(false);
            records.open.send_replace(false);
            log.head.send_replace(None);
        }
    }
}

struct ReferenceLog {
    model: Arc<Mutex<Model>>,
    clock: Arc<ManualClock>,
    random: Arc<dyn Randomness>,
    /// `None` once closed.
    head: watch::Sender<Option<SequenceNumber>>,
}

impl ReferenceLog {
    fn new_id(&self) -> annals_core::Uuid {
        new_uuid(self.clock.now(), &*self.random)
    }

    fn outcome(&self, commit: &NewCommit, version: Version, first_sequence_number: SequenceNumber) -> CommitOutcome {
        CommitOutcome {
            commit_id: self.new_id(),
            version,
            first_sequence_number: Some(first_sequence_number),
            event_ids: commit.events.iter().map(|event| event.id.unwrap_or_else(|| self.new_id())).collect(),
            duplicate: false,
            stage: None,
        }
    }
}

#[async_trait]
impl EventLog for ReferenceLog {
    async fn commit(&self, mut commit: NewCommit) -> Result<CommitOutcome, CommitError> {
        let mut model = self.model.lock().expect("unpoisoned");
        if self.head.borrow().is_none() {
            return Err(StoreError::Closed.into());
        }
        let now = self.clock.now();
        let (version, first_sequence_number) = match model.judge(&commit, now) {
            Verdict::Refused(error) => return Err(error),
            Verdict::Repeat(outcome) => return Ok(outcome),
            Verdict::Stored(version, first) => (version, first),
        };
        commit.request_id.get_or_insert_with(|| self.new_id().to_string().into());
        let outcome = self.outcome(&commit, version, first_sequence_number);
        model.commit(&commit, now, &Ok(outcome.clone())).expect("the verdict is the model's own");
        self.head.send_replace(Some(model.head()));
        Ok(outcome)
    }

    async fn transact(&self, mut transaction: NewTransaction) -> Result<Vec<CommitOutcome>, TransactionError> {
        let mut model = self.model.lock().expect("unpoisoned");
        if self.head.borrow().is_none() {
            return Err(StoreError::Closed.into());
        }
        let now = self.clock.now();
        let places = match model.judge_transaction(&transaction, now) {
            TransactionVerdict::Refused(error) => return Err(error),
            TransactionVerdict::Repeat(outcomes) => return Ok(outcomes),
            TransactionVerdict::Stored(places) => places,
        };
        transaction.request_id.get_or_insert_with(|| self.new_id().to_string().into());
        let outcomes = transaction.commits.iter().zip(places);
        let outcomes: Vec<_> =
            outcomes.map(|(commit, (version, first))| self.outcome(commit, version, first)).collect();
        let answer = Ok(outcomes.clone());
        model.transact(&transaction, now, &answer).expect("the verdict is the model's own");
        self.head.send_replace(Some(model.head()));
        answer
    }

    async fn read_aggregate(&self, query: AggregateQuery) -> Result<AggregateCommits, ReadError> {
        query.validate()?;
        let mut read = self.model.lock().expect("unpoisoned").commits(&query);
        if query.last {
            read.commits.drain(..read.commits.len().saturating_sub(query.limit));
        }
        read.commits.truncate(query.limit);
        Ok(read)
    }

    async fn request_exists(&self, aggregate: &Aggregate, request_id: &str) -> Result<bool, ReadError> {
        aggregate.validate()?;
        let query = AggregateQuery::new(aggregate.clone());
        let commits = self.model.lock().expect("unpoisoned").commits(&query).commits;
        Ok(commits.iter().any(|commit| commit.info.request_id.as_deref() == Some(request_id)))
    }

    async fn aggregate_names(&self, query: AggregateNamesQuery) -> Result<Vec<ByteString>, ReadError> {
        query.validate()?;
        Ok(self.model.lock().expect("unpoisoned").names(&query))
    }

    async fn aggregate_ids(&self, query: AggregateIdsQuery) -> Result<Vec<KnownAggregate>, ReadError> {
        query.validate()?;
        Ok(self.model.lock().expect("unpoisoned").ids(&query))
    }

    async fn read(&self, query: LogQuery) -> Result<LogPage, ReadError> {
        query.validate()?;
        let model = self.model.lock().expect("unpoisoned");
        let head = model.head();
        let from = query.from.unwrap_or(if query.backwards { head } else { 0 }).min(head);
        let admitted = model.events().iter().filter(|event| query.filter.admits(event));
        let (events, end): (Vec<_>, _) = if query.backwards {
            (admitted.rev().filter(|event| event.sequence_number < from).take(query.limit).cloned().collect(), 0)
        } else {
            (admitted.filter(|event| event.sequence_number >= from).take(query.limit).cloned().collect(), head)
        };
        let next = match events.last().filter(|_| events.len() == query.limit) {
            Some(last) => last.sequence_number + u64::from(!query.backwards),
            None => end,
        };
        Ok(LogPage { events, next, head })
    }

    async fn head(&self) -> Result<SequenceNumber, ReadError> {
        Ok(self.model.lock().expect("unpoisoned").head())
    }

    async fn wait_past(&self, head: SequenceNumber) -> Result<SequenceNumber, ReadError> {
        let mut heads = self.head.subscribe();
        let reached = heads.wait_for(|now| now.is_none_or(|now| now > head)).await.map_err(|_| StoreError::Closed)?;
        (*reached).ok_or(ReadError::Store(StoreError::Closed))
    }
}

#[async_trait]
impl PrepareKeys for ReferenceLog {
    async fn change(&self, change: KeyChange) -> Result<bool, KeyError> {
        let mut model = self.model.lock().expect("unpoisoned");
        if self.head.borrow().is_none() {
            return Err(StoreError::Closed.into());
        }
        model.change_key(&change, self.clock.now())
    }

    async fn look(&self, name: &str, key: &str) -> Result<Option<FoundKey>, KeyError> {
        valid_key(name, key)?;
        let holder = self.model.lock().expect("unpoisoned").holder(name, key);
        Ok(holder.map(|holder| holder.found(self.clock.now())))
    }

    async fn list(&self, query: KeysQuery) -> Result<KeyPage, KeyError> {
        query.validate()?;
        let keys = self.model.lock().expect("unpoisoned").held_keys(&query, self.clock.now());
        Ok(KeyPage::of(keys, query.limit))
    }
}

mod passes {
    crate::event_log!(crate::reference::ReferenceSubject::new());
}
