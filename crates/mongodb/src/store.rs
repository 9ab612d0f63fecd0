//! An open store: its tenants, each with databases of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use annals_core::{
    DEFAULT_SCOPE, DEFAULT_TENANT, EventLog, Identity, LogStatus, Records, Store, Streams, UnknownLog, limits, new_uuid,
};
use async_trait::async_trait;
use futures_util::future::try_join_all;
use mongodb::Client;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::absent::Absent;
use crate::connect::{Connection, connect};
use crate::identity;
use crate::layout::names::{EVENT_LOG, IDENTITY};
use crate::layout::{owner, schema};
use crate::log::{Adopted, Log};
use crate::options::{Options, Tenant};
use crate::reach;
use crate::records::MongoRecords;
use crate::refused::{Code, OpenError, asking};
use crate::sequencer::{self, Cluster};

/// A store on MongoDB.
pub struct MongoStore {
    tenants: BTreeMap<String, (Arc<Log>, Identity)>,
    records: BTreeMap<String, Arc<MongoRecords>>,
    stop: watch::Sender<bool>,
    sequencer: Mutex<Option<JoinHandle<()>>>,
}

impl MongoStore {
    /// Opens the store at `url`, whose path is the database of the tenant `default`, and makes in it what is missing.
    ///
    /// Everything is made before the first commit; nothing that is there is changed. The store's tasks run on the runtime that this is
    /// called on.
    ///
    /// # Errors
    /// `invalid_config` for the URL or the options, `unsuitable_server` for a server or a database that cannot hold a store,
    /// `unreachable` when no primary answers.
    pub async fn open(url: &str, options: Options) -> Result<Self, OpenError> {
        let Connection { client, database } = connect(url).await?;
        let databases = databases(&options, database.as_deref())?;
        let opening = databases.iter().map(|(tenant, names)| open_tenant(&client, tenant, names, &options));
        let tenants: BTreeMap<_, _> = try_join_all(opening).await?.into_iter().collect();
        let records = tenants.iter().map(|(tenant, (log, _))| {
            let records = MongoRecords::new(log.database.clone(), &options);
            (tenant.clone(), records)
        });
        let records = records.collect();
        let holder = new_uuid(options.clock.now(), &*options.random).to_string();
        let cluster = Cluster { client, logs: in_order_of_lease(&tenants), holder };
        let (stop, stopped) = watch::channel(false);
        let sequencer = tokio::spawn(sequencer::run(Arc::new(cluster), stopped));
        Ok(Self { tenants, records, stop, sequencer: Mutex::new(Some(sequencer)) })
    }

    fn logs(&self) -> impl Iterator<Item = &Arc<Log>> {
        self.tenants.values().map(|(log, _)| log)
    }
}

async fn open_tenant(
    client: &Client,
    tenant: &str,
    names: &Databases,
    options: &Options,
) -> Result<(String, (Arc<Log>, Identity)), OpenError> {
    let database = client.database(&names.events);
    let there = database.list_collection_names().await.map_err(|error| asking(&names.events, &error))?;
    // Before anything is written: what other software has numbered is adopted first.
    if there.iter().any(|name| name == EVENT_LOG) {
        reach::judge(&database).await?;
    }
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
    identity::begin_log(&database).await?;
    let identity = identity::of(&database, options).await?;
    let adopted = Adopted::read(&database, &identity).await.map_err(|error| asking(&names.events, &error))?;
    Ok((tenant.to_owned(), (Arc::new(Log::new(tenant, database, options, context, adopted)), identity)))
}

/// The lease lies with the tenant `default`, or the first one: every process of a cluster must find the same.
fn in_order_of_lease(tenants: &BTreeMap<String, (Arc<Log>, Identity)>) -> Vec<Arc<Log>> {
    let default = tenants.get(DEFAULT_TENANT).map(|(log, _)| log.clone());
    let others = tenants.iter().filter(|(name, _)| *name != DEFAULT_TENANT).map(|(_, (log, _))| log.clone());
    default.into_iter().chain(others).collect()
}

/// The names of a tenant's databases.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Databases {
    pub(crate) events: String,
    pub(crate) snapshots: String,
    pub(crate) keys: String,
}

/// Where the lease lies: with the tenant `default`, or the first one.
pub(crate) fn lease_database(databases: &BTreeMap<String, Databases>) -> &str {
    let first = databases.get(DEFAULT_TENANT).or_else(|| databases.values().next());
    first.map_or("", |names| &names.events)
}

/// Every tenant's databases, no two tenants with the same.
pub(crate) fn databases(options: &Options, of_url: Option<&str>) -> Result<BTreeMap<String, Databases>, OpenError> {
    let invalid = |message: String| OpenError::new(Code::InvalidConfig, message);
    let mut databases = BTreeMap::new();
    let mut taken: BTreeMap<String, String> = BTreeMap::new();
    for tenant in &options.tenants {
        let names = of_tenant(tenant, of_url).map_err(invalid)?;
        for name in BTreeSet::from([&names.events, &names.snapshots, &names.keys]) {
            valid_database(name).map_err(invalid)?;
            // On some systems names that differ in case only are one database.
            if let Some(other) = taken.insert(name.to_lowercase(), tenant.name.clone()) {
                let message =
                    format!("tenants {other:?} and {:?} would share database {name:?}; give each its own", tenant.name);
                return Err(invalid(message));
            }
        }
        databases.insert(tenant.name.clone(), names);
    }
    if databases.is_empty() {
        return Err(invalid("no tenant is declared; declare at least one under [tenants]".to_owned()));
    }
    Ok(databases)
}

fn of_tenant(tenant: &Tenant, of_url: Option<&str>) -> Result<Databases, String> {
    let name = &tenant.name;
    let first = name.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric());
    let rest = name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-'));
    if !first || !rest || name.len() > limits::NAME_BYTES_MAX {
        let rule = "1 to 100 bytes of A-Z a-z 0-9 _ . - and begins with a letter or digit";
        return Err(format!("tenant {name:?} is not a name; a name has {rule}"));
    }
    let by_default = of_url.map(|database| match &**name {
        DEFAULT_TENANT => database.to_owned(),
        // A name of a database holds no dot.
        other => format!("{database}_{}", other.replace('.', "-")),
    });
    let or = |configured: &Option<String>, what: &str| {
        configured.clone().or_else(|| by_default.clone()).ok_or_else(|| {
            format!(
                "the {what} database of tenant {name:?} has no name; write it behind the last slash of the MongoDB URL"
            )
        })
    };
    Ok(Databases {
        events: or(&tenant.event_stream_database, "event stream")?,
        snapshots: or(&tenant.snapshot_database, "snapshot")?,
        keys: or(&tenant.prepare_database, "prepare")?,
    })
}

fn valid_database(name: &str) -> Result<(), String> {
    let forbidden = |c: char| c.is_control() || r#"/\. "$*<>:|?"#.contains(c);
    if matches!(name, "admin" | "local" | "config") || name.is_empty() || name.len() > 63 || name.contains(forbidden) {
        let rule = r#"1 to 63 bytes without / \ . " $ * < > : | ? and spaces, and not admin, local or config"#;
        return Err(format!("{name:?} cannot be the name of a database; use {rule}"));
    }
    Ok(())
}

#[async_trait]
impl Store for MongoStore {
    fn log(&self, tenant: &str, scope: &str) -> Result<Arc<dyn EventLog>, UnknownLog> {
        let (log, _) = self.tenants.get(tenant).ok_or_else(|| UnknownLog::Tenant(tenant.to_owned()))?;
        if scope != DEFAULT_SCOPE {
            return Err(UnknownLog::Scope { tenant: tenant.to_owned(), scope: scope.to_owned() });
        }
        Ok(log.clone())
    }

    fn records(&self, tenant: &str) -> Result<Arc<dyn Records>, UnknownLog> {
        let records = self.records.get(tenant).ok_or_else(|| UnknownLog::Tenant(tenant.to_owned()))?;
        Ok(records.clone())
    }

    fn streams(&self, tenant: &str, scope: &str) -> Result<Arc<dyn Streams>, UnknownLog> {
        self.log(tenant, scope).map(|_| Arc::new(Absent) as Arc<dyn Streams>)
    }

    fn tenants(&self) -> Vec<String> {
        self.tenants.keys().cloned().collect()
    }

    fn identity(&self, tenant: &str) -> Option<Identity> {
        self.tenants.get(tenant).map(|(_, identity)| *identity)
    }

    fn status(&self) -> Vec<LogStatus> {
        self.logs().map(|log| log.status()).collect()
    }

    async fn close(&self) {
        // Commits under way need the sequencer for their numbers, so it ends last.
        for log in self.logs() {
            log.drain().await;
        }
        for records in self.records.values() {
            records.close().await;
        }
        self.stop.send_replace(true);
        let sequencer = self.sequencer.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(Err(error)) = match sequencer {
            Some(task) => Some(task.await),
            None => None,
        } {
            tracing::error!(%error, "the sequencer's task failed");
        }
        self.logs().for_each(|log| log.numbers.close());
    }
}

impl Drop for MongoStore {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        self.logs().for_each(|log| log.numbers.close());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(options: &Options, url: Option<&str>) -> Result<Vec<String>, String> {
        let found = databases(options, url).map_err(|error| error.message)?;
        Ok(found.values().map(|names| format!("{} {} {}", names.events, names.snapshots, names.keys)).collect())
    }

    fn tenants(names: &[&str]) -> Options {
        Options { tenants: names.iter().copied().map(Tenant::new).collect(), ..Options::default() }
    }

    #[test]
    fn databases_follow_from_the_url_and_the_tenant() {
        assert_eq!(names(&tenants(&["default"]), Some("shop")), Ok(vec!["shop shop shop".to_owned()]));
        let two = names(&tenants(&["default", "eu.west"]), Some("shop")).expect("named");
        assert_eq!(two[1], "shop_eu-west shop_eu-west shop_eu-west");
        let mut three = tenants(&["default"]);
        three.tenants[0].snapshot_database = Some("views".to_owned());
        three.tenants[0].prepare_database = Some("keys".to_owned());
        assert_eq!(names(&three, Some("shop")), Ok(vec!["shop views keys".to_owned()]));
    }

    #[test]
    fn what_cannot_be_is_refused_with_what_to_write() {
        let refused = |options: &Options, url| names(options, url).expect_err("refused");
        assert!(refused(&tenants(&["default"]), None).contains("last slash"));
        assert!(refused(&tenants(&["default"]), Some("admin")).contains("cannot be the name"));
        assert!(refused(&tenants(&["a", "A"]), Some("shop")).contains("share"));
        let mut same = tenants(&["default", "other"]);
        same.tenants[1].event_stream_database = Some("shop".to_owned());
        assert!(refused(&same, Some("shop")).contains("share"));
        assert!(refused(&tenants(&[]), Some("shop")).contains("[tenants]"));
        assert!(refused(&tenants(&["../x"]), Some("shop")).contains("not a name"));
    }
}
