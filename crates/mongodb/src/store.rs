//! An open store and its tenants, each with databases of its own.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use annals_core::doctor::Diagnosis;
use annals_core::{
    DEFAULT_SCOPE, DEFAULT_TENANT, DocumentQueries, EventLog, Identity, LogStatus, PrepareKeys, Queries, Receiving,
    Records, Sequencing, Snapshots, Store, StreamDefinitions, Streams, UnknownLog, Uuid, new_uuid,
};
use async_trait::async_trait;
use futures_util::future::{BoxFuture, FutureExt, join_all, try_join_all};
use mongodb::{Client, Database};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::answers::Answers;
use crate::cache;
use crate::connect::{Connection, check_following, connect};
use crate::examine::examine;
use crate::identity;
use crate::layout::names::{EVENT_LOG, IDENTITY, aggregate_of, collections};
use crate::layout::schema::Schema;
use crate::layout::{owner, schema};
use crate::log::{Adopted, Log, Means};
use crate::options::Options;
use crate::primary::Primary;
use crate::reach;
use crate::records::{MongoDocuments, MongoRecords};
use crate::refused::{Code, OpenError, asking};
use crate::scope::ScopeLog;
use crate::scope::receive::ScopeReceiving;
use crate::scopes::{canonical, scopes};
use crate::sequencer::{self, Cluster};
use crate::sequencing::AskSequencer;
use crate::sessions::Sessions;
use crate::snapshots::MongoSnapshots;
use crate::stream_definitions::MongoStreamDefinitions;
use crate::streams::{LogOfStreams, MongoStreams};
use crate::tenants::{Databases, databases, lease_database};

/// How long closing waits for MongoDB's responses to requests in flight. Together with the next limit, a stop takes less than ten seconds.
const ANSWERS_TIME_MAX: Duration = Duration::from_secs(6);
/// How long closing waits for the sequencer to release its lease.
const SEQUENCER_TIME_MAX: Duration = Duration::from_secs(2);

/// A store on MongoDB.
pub struct MongoStore {
    tenants: BTreeMap<String, (Arc<Log>, Identity)>,
    records: BTreeMap<String, Arc<MongoRecords>>,
    /// The records of the snapshots, which are those above unless snapshots have a database of their own.
    snapshots: BTreeMap<String, Arc<MongoRecords>>,
    snapshot_databases: BTreeMap<String, Database>,
    /// Fields of commits that an index begins with.
    indexed: Arc<[&'static str]>,
    primary: Arc<Primary>,
    /// The logs of scopes other than the default one, by tenant and scope.
    scopes: BTreeMap<Key, Arc<ScopeLog>>,
    streams: BTreeMap<Key, Arc<MongoStreams>>,
    /// Receives events into each scope other than the default one.
    receiving: BTreeMap<Key, Arc<ScopeReceiving>>,
    stop: watch::Sender<bool>,
    cluster: Arc<Cluster>,
    sessions: Arc<Sessions>,
    sequencer: Mutex<Option<JoinHandle<()>>>,
}

/// A tenant and a scope.
type Key = (String, String);

impl MongoStore {
    /// Opens the store at `url`, whose path is the database of the tenant `default`, and creates what is missing in it.
    ///
    /// Everything is created before the first commit, and nothing that exists is changed. The store's tasks run on the runtime of the
    /// caller.
    ///
    /// # Errors
    /// `invalid_config` for the URL or the options, `unsuitable_server` if the server or a database cannot hold a store, `unreachable` if
    /// no primary responds. Also `not_adopted`, `foreign_numbers`, `store_damaged` and `not_a_store` for the state of a database.
    pub fn open(url: &str, options: Options) -> BoxFuture<'_, Result<Self, OpenError>> {
        Self::opened(url, options).boxed()
    }

    async fn opened(url: &str, options: Options) -> Result<Self, OpenError> {
        check_lease(options.lease)?;
        check_answer_time(options.outcome_time)?;
        let Connection { client, database, primary } = connect(url, &options.connection).await?;
        let databases = databases(&options, database.as_deref())?;
        let declared = scopes(&options)?;
        check_following(&client).await?;
        cache::warn_if_small(&client).await;
        let holder = new_uuid(options.clock.now(), &*options.random).to_string();
        let sessions = Sessions::new(client.database(lease_database(&databases)), &holder);
        let answers = Arc::new(Answers::new(primary.clone(), options.outcome_time));
        let means = Means { answers, sessions, blocks: Arc::default() };
        let opening = databases.iter().map(|(tenant, names)| open_tenant(&client, tenant, names, &options, &means));
        let tenants: BTreeMap<_, _> = try_join_all(opening).await?.into_iter().collect();
        let records = tenants.iter().map(|(tenant, (log, _))| {
            let records = MongoRecords::new(log.database.clone(), &options, means.clone());
            (tenant.clone(), records)
        });
        let records: BTreeMap<_, _> = records.collect();
        let snapshots = tenants.keys().map(|tenant| {
            let Databases { events, snapshots, .. } = &databases[tenant];
            let own = || MongoRecords::new(client.database(snapshots), &options, means.clone());
            (tenant.clone(), if snapshots == events { records[tenant].clone() } else { own() })
        });
        let snapshots = snapshots.collect();
        let snapshot_databases =
            tenants.keys().map(|tenant| (tenant.clone(), client.database(&databases[tenant].snapshots))).collect();
        let scopes = open_scopes(&tenants, &declared, &options).await?;
        let streams = open_streams(&tenants, &scopes, &options);
        let receiving =
            |(key, log): (&Key, &Arc<ScopeLog>)| (key.clone(), Arc::new(ScopeReceiving::new(log.clone(), &options)));
        let receiving = scopes.iter().map(receiving).collect();
        let logs = in_order_of_lease(&tenants);
        let indexed = schema::indexed_fields_of_commits(&options).into();
        let cluster = Arc::new(Cluster::new(client, logs, holder, options.lease, options.at_step));
        let (stop, stopped) = watch::channel(false);
        let sequencer = tokio::spawn(sequencer::run(cluster.clone(), stopped));
        let sequencer = Mutex::new(Some(sequencer));
        let sessions = means.sessions;
        Ok(Self {
            tenants,
            records,
            snapshots,
            snapshot_databases,
            indexed,
            scopes,
            streams,
            receiving,
            primary,
            cluster,
            sessions,
            stop,
            sequencer,
        })
    }

    fn logs(&self) -> impl Iterator<Item = &Arc<Log>> {
        self.tenants.values().map(|(log, _)| log)
    }

    /// Accepts no more requests, and waits until those in flight are answered.
    async fn answered(&self) {
        join_all(self.logs().map(|log| log.drain())).await;
        join_all(self.records.values().chain(self.snapshots.values()).map(|records| records.close())).await;
        join_all(self.streams.values().map(|streams| streams.close())).await;
        join_all(self.receiving.values().map(|receiving| receiving.close())).await;
    }

    /// Wakes the followers of all logs and tells them that nothing more will come.
    fn end_waiting(&self) {
        self.logs().for_each(|log| log.numbers.close());
        self.scopes.values().for_each(|log| log.close());
    }
}

async fn open_tenant(
    client: &Client,
    tenant: &str,
    names: &Databases,
    options: &Options,
    means: &Means,
) -> Result<(String, (Arc<Log>, Identity)), OpenError> {
    let database = client.database(&names.events);
    let there = collections(&database).await.map_err(|error| asking(&names.events, &error))?;
    // Checked before anything is written: a log that other software numbered must be adopted first.
    if there.iter().any(|name| name == EVENT_LOG) {
        reach::judge(&database).await?;
    }
    let commits: Vec<String> = there.iter().filter(|name| aggregate_of(name).is_some()).cloned().collect();
    Schema::new(database.clone(), options).inspect(&commits).await?;
    let ours = there.iter().any(|name| name == IDENTITY);
    let context = owner::context(&database, options.context_name.as_deref(), ours).await?;
    if options.must_exist && !ours {
        let message = format!(
            "there is no store in database {}; correct the URL, commit something first, or adopt what is there",
            names.events
        );
        return Err(OpenError::new(Code::NotAStore, message));
    }
    for name in BTreeSet::from([&names.events, &names.snapshots, &names.keys]) {
        owner::claim(&client.database(name), &context).await?;
    }
    schema::ensure_log(&database, &there, options.auto_init_schema).await?;
    let head = identity::begin_log(&database).await?;
    let identity = identity::of(&database, options).await?;
    let adopted = Adopted::read(&database, &identity).await.map_err(|error| asking(&names.events, &error))?;
    let log = Log::new(tenant, database, client.database(&names.keys), options, context, adopted, means.clone());
    log.numbers.publish(head);
    Ok((tenant.to_owned(), (log, identity)))
}

async fn open_scopes(
    tenants: &BTreeMap<String, (Arc<Log>, Identity)>,
    declared: &BTreeMap<String, Uuid>,
    options: &Options,
) -> Result<BTreeMap<Key, Arc<ScopeLog>>, OpenError> {
    let all = tenants.iter().flat_map(|tenant| declared.iter().map(move |scope| (tenant, scope)));
    let opening = all.map(|((tenant, (log, identity)), (scope, id))| async move {
        let opened =
            ScopeLog::open((tenant, scope, *id), log.database.clone(), identity, options, log.means.clone()).await?;
        Ok(((tenant.clone(), scope.clone()), Arc::new(opened)))
    });
    Ok(try_join_all(opening).await?.into_iter().collect())
}

fn open_streams(
    tenants: &BTreeMap<String, (Arc<Log>, Identity)>,
    scopes: &BTreeMap<Key, Arc<ScopeLog>>,
    options: &Options,
) -> BTreeMap<Key, Arc<MongoStreams>> {
    let default = tenants.iter().map(|(tenant, (log, identity))| {
        let key = (tenant.clone(), DEFAULT_SCOPE.to_owned());
        (key, LogOfStreams::Default(log.clone()), identity)
    });
    let others = scopes.iter().filter_map(|(key, log)| {
        let (_, identity) = tenants.get(&key.0)?;
        Some((key.clone(), LogOfStreams::Scope(log.clone()), identity))
    });
    let opened =
        default.chain(others).map(|(key, log, identity)| (key, Arc::new(MongoStreams::new(log, *identity, options))));
    opened.collect()
}

fn check_lease(lease: Duration) -> Result<(), OpenError> {
    if (1..=60).contains(&lease.as_secs()) && lease <= Duration::from_secs(60) {
        return Ok(());
    }
    let message = format!("the sequencer's lease is to hold {} ms; use 1000 to 60000", lease.as_millis());
    Err(OpenError::new(Code::InvalidConfig, message))
}

fn check_answer_time(time: Duration) -> Result<(), OpenError> {
    if time >= Duration::from_millis(100) {
        return Ok(());
    }
    let message = format!("answers are to be waited for {} ms; use 100 or more", time.as_millis());
    Err(OpenError::new(Code::InvalidConfig, message))
}

/// Returns the logs in the order that determines the lease: it is in the database of the tenant `default`, or of the first one, so that
/// every process finds the same one.
fn in_order_of_lease(tenants: &BTreeMap<String, (Arc<Log>, Identity)>) -> Vec<Arc<Log>> {
    let default = tenants.get(DEFAULT_TENANT).map(|(log, _)| log.clone());
    let others = tenants.iter().filter(|(name, _)| *name != DEFAULT_TENANT).map(|(_, (log, _))| log.clone());
    default.into_iter().chain(others).collect()
}

#[async_trait]
impl Store for MongoStore {
    fn log(&self, tenant: &str, scope: &str) -> Result<Arc<dyn EventLog>, UnknownLog> {
        let (log, _) = self.tenants.get(tenant).ok_or_else(|| UnknownLog::Tenant(tenant.to_owned()))?;
        if scope == DEFAULT_SCOPE {
            return Ok(log.clone());
        }
        let key = (tenant.to_owned(), canonical(scope).into_owned());
        match self.scopes.get(&key) {
            Some(log) => Ok(log.clone()),
            None => Err(UnknownLog::Scope { tenant: key.0, scope: key.1 }),
        }
    }

    fn records(&self, tenant: &str) -> Result<Arc<dyn Records>, UnknownLog> {
        let records = self.records.get(tenant).ok_or_else(|| UnknownLog::Tenant(tenant.to_owned()))?;
        Ok(records.clone())
    }

    fn snapshots(&self, tenant: &str) -> Result<Arc<dyn Snapshots>, UnknownLog> {
        let unknown = || UnknownLog::Tenant(tenant.to_owned());
        let ((log, _), records) = self.tenants.get(tenant).zip(self.snapshots.get(tenant)).ok_or_else(unknown)?;
        let database = self.snapshot_databases.get(tenant).ok_or_else(unknown)?;
        Ok(Arc::new(MongoSnapshots::new(log, records.clone(), database.clone())))
    }

    fn queries(&self, tenant: &str) -> Result<Arc<dyn Queries>, UnknownLog> {
        let unknown = || UnknownLog::Tenant(tenant.to_owned());
        let ((log, _), snapshots) = self.tenants.get(tenant).zip(self.snapshots.get(tenant)).ok_or_else(unknown)?;
        let commits = self.records.get(tenant).ok_or_else(unknown)?;
        let documents = MongoDocuments::new(commits.clone(), snapshots.clone(), self.indexed.clone());
        Ok(Arc::new(DocumentQueries::new(documents, log.clock.clone())))
    }

    fn prepare_keys(&self, tenant: &str) -> Result<Arc<dyn PrepareKeys>, UnknownLog> {
        let (log, _) = self.tenants.get(tenant).ok_or_else(|| UnknownLog::Tenant(tenant.to_owned()))?;
        Ok(log.clone())
    }

    fn streams(&self, tenant: &str, scope: &str) -> Result<Arc<dyn Streams>, UnknownLog> {
        self.log(tenant, scope)?;
        let key = (tenant.to_owned(), canonical(scope).into_owned());
        let streams = self.streams.get(&key);
        streams.map(|streams| Arc::clone(streams) as _).ok_or(UnknownLog::Scope { tenant: key.0, scope: key.1 })
    }

    fn stream_definitions(&self, tenant: &str, scope: &str) -> Result<Arc<dyn StreamDefinitions>, UnknownLog> {
        self.log(tenant, scope)?;
        let key = (tenant.to_owned(), canonical(scope).into_owned());
        Ok(match (self.scopes.get(&key), self.tenants.get(tenant)) {
            (Some(log), _) => Arc::new(MongoStreamDefinitions::of_scope(log)),
            (None, Some((log, _))) => Arc::new(MongoStreamDefinitions::of_default(log)),
            (None, None) => return Err(UnknownLog::Tenant(key.0)),
        })
    }

    fn receiving(&self, tenant: &str, scope: &str) -> Result<Arc<dyn Receiving>, UnknownLog> {
        self.log(tenant, scope)?;
        // The default scope does not receive events.
        let key = (tenant.to_owned(), canonical(scope).into_owned());
        let receiving = self.receiving.get(&key);
        receiving.map(|receiving| Arc::clone(receiving) as _).ok_or(UnknownLog::Scope { tenant: key.0, scope: key.1 })
    }

    fn sequencing(&self, tenant: &str) -> Result<Arc<dyn Sequencing>, UnknownLog> {
        let (log, _) = self.tenants.get(tenant).ok_or_else(|| UnknownLog::Tenant(tenant.to_owned()))?;
        Ok(Arc::new(AskSequencer { log: log.clone(), cluster: self.cluster.clone() }))
    }

    fn scope_name<'a>(&self, scope: &'a str) -> Cow<'a, str> {
        canonical(scope)
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn tenants(&self) -> Vec<String> {
        self.tenants.keys().cloned().collect()
    }

    fn identity(&self, tenant: &str) -> Option<Identity> {
        self.tenants.get(tenant).map(|(_, identity)| *identity)
    }

    fn status(&self) -> Vec<LogStatus> {
        let no_primary = self.primary.refusal();
        let status = self.logs().map(|log| {
            let sequencer = self.cluster.status(log.held.get());
            let own = log.status();
            let refusing = own.refusing.clone().or_else(|| self.cluster.stalled(log.database.name()));
            LogStatus { sequencer: Some(sequencer), refusing, ..own }
        });
        let mut status: Vec<_> = status.chain(self.scopes.values().map(|log| log.status())).collect();
        status.iter_mut().for_each(|log| log.refusing = log.refusing.take().or_else(|| no_primary.clone()));
        status
    }

    async fn examine(&self) -> Diagnosis {
        let clock = &self.cluster.logs[0].clock;
        examine(&self.cluster.client, &**clock).await
    }

    async fn close(&self) {
        // Commits in flight need the sequencer for their numbers, so it stops last.
        if tokio::time::timeout(ANSWERS_TIME_MAX, self.answered()).await.is_err() {
            tracing::warn!("MongoDB does not answer; what is under way is answered as unknown");
            self.logs().for_each(|log| log.give_up());
            self.records.values().chain(self.snapshots.values()).for_each(|records| records.give_up());
            self.streams.values().for_each(|streams| streams.give_up());
            self.receiving.values().for_each(|receiving| receiving.give_up());
        }
        self.sessions.close().await;
        self.stop.send_replace(true);
        let sequencer = self.sequencer.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(mut task) = sequencer {
            match tokio::time::timeout(SEQUENCER_TIME_MAX, &mut task).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::error!(%error, "the sequencer's task failed"),
                Err(_) => {
                    tracing::warn!("the sequencer's lease was not given back; it ends by itself");
                    task.abort();
                }
            }
        }
        self.end_waiting();
    }
}

impl Drop for MongoStore {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        self.end_waiting();
        self.streams.values().for_each(|streams| streams.stop());
    }
}
