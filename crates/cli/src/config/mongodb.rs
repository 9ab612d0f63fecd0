//! The configuration of a store on MongoDB, and the tenants that a Dolittle microservice declares.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use annals::mongodb::{ConnectionOptions, Options, Requests, Tenant, dolittle_tenants};
use serde::{Deserialize, Serialize};

use super::{Config, Origins};
use crate::failure::Failure;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MongoDbSection {
    /// The owner of the database: the bounded context of Wow. If empty, the owner that the database names, or `annals` for a new
    /// database.
    pub context_name: String,
    /// The database of commits and the log; empty for the URL's database.
    pub event_stream_database: String,
    /// The database of snapshots; empty for the URL's database.
    pub snapshot_database: String,
    /// The database of prepare keys; empty for the URL's database.
    pub prepare_database: String,
    /// Databases of individual tenants.
    pub databases: BTreeMap<String, TenantDatabases>,
    /// The extent within which a request id must be unique.
    pub request_ids: RequestIds,
    /// Whether missing collections and indexes are created.
    pub auto_init_schema: bool,
    /// Whether Annals' own collections are created at the start, and not only before the first write to them.
    pub create_all_at_start: bool,
    /// Whether commits also have the indexes `idx_create_time` and `idx_event_type_time`.
    pub optional_indexes: bool,
    /// Most pending commits, and most pending record changes, of a tenant in this process.
    pub waiting_max: u32,
    /// Most connections to each server, unless the URL sets this.
    pub pool_size_max: u32,
    /// Connections to each server that are kept open, unless the URL sets this.
    pub pool_size_min: u32,
    /// How long a request searches for a primary, in milliseconds, unless the URL sets this.
    pub selection_timeout_ms: u64,
    /// The time limit for connecting to a server, in milliseconds, unless the URL sets this.
    pub connect_timeout_ms: u64,
    /// The time limit for a response of MongoDB, in milliseconds.
    pub answer_timeout_ms: u64,
    /// The duration of the sequencer's lease, in milliseconds.
    pub lease_ms: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RequestIds {
    PerAggregate,
    Global,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TenantDatabases {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event_stream: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prepare: Option<String>,
}

impl Default for MongoDbSection {
    fn default() -> Self {
        let options = Options::default();
        let connection = options.connection;
        Self {
            context_name: options.context_name.unwrap_or_default(),
            event_stream_database: String::new(),
            snapshot_database: String::new(),
            prepare_database: String::new(),
            databases: BTreeMap::new(),
            request_ids: RequestIds::PerAggregate,
            auto_init_schema: options.auto_init_schema,
            create_all_at_start: options.create_all_at_start,
            optional_indexes: options.optional_indexes,
            waiting_max: options.waiting_max as u32,
            pool_size_max: connection.pool_size_max,
            pool_size_min: connection.pool_size_min,
            selection_timeout_ms: connection.selection_time.as_millis() as u64,
            connect_timeout_ms: connection.connect_time.as_millis() as u64,
            answer_timeout_ms: options.outcome_time.as_millis() as u64,
            lease_ms: options.lease.as_millis() as u64,
        }
    }
}

impl MongoDbSection {
    /// Returns the options of the adapter. The tenants in it are those with databases of their own.
    pub fn options(&self) -> Options {
        let named = |name: &String| Some(name.clone()).filter(|name| !name.is_empty());
        let tenants = self.databases.iter().map(|(name, databases)| Tenant {
            name: name.clone(),
            event_stream_database: databases.event_stream.clone(),
            snapshot_database: databases.snapshot.clone(),
            prepare_database: databases.prepare.clone(),
        });
        Options {
            tenants: tenants.collect(),
            context_name: named(&self.context_name),
            event_stream_database: named(&self.event_stream_database),
            snapshot_database: named(&self.snapshot_database),
            prepare_database: named(&self.prepare_database),
            requests: match self.request_ids {
                RequestIds::PerAggregate => Requests::PerAggregate,
                RequestIds::Global => Requests::Global,
            },
            auto_init_schema: self.auto_init_schema,
            create_all_at_start: self.create_all_at_start,
            optional_indexes: self.optional_indexes,
            waiting_max: self.waiting_max as usize,
            connection: ConnectionOptions {
                pool_size_max: self.pool_size_max,
                pool_size_min: self.pool_size_min,
                selection_time: Duration::from_millis(self.selection_timeout_ms),
                connect_time: Duration::from_millis(self.connect_timeout_ms),
            },
            outcome_time: Duration::from_millis(self.answer_timeout_ms),
            lease: Duration::from_millis(self.lease_ms),
            ..Options::default()
        }
    }
}

/// Adds the tenants of the `.dolittle` folder, with their databases. They replace the tenant `default` if no tenants are configured.
/// Configured databases of a tenant take precedence.
pub fn declare_dolittle_tenants(config: &mut Config, origins: &mut Origins) -> Result<(), Failure> {
    const NAMES: &str = "tenants.names";
    if !config.tenants.dolittle_folder.is_empty() {
        let folder = config.tenants.dolittle_folder.clone();
        let found = dolittle_tenants(Path::new(&folder))
            .map_err(|error| Failure::config(format!("tenants.dolittle_folder: {}", error.message)))?;
        if origins.get(NAMES).is_none_or(|origin| origin == "default") {
            config.tenants.names.clear();
            origins.insert(NAMES.to_owned(), folder);
        }
        for tenant in found.tenants {
            if !config.tenants.names.contains(&tenant.name) {
                config.tenants.names.push(tenant.name.clone());
            }
            let databases = config.mongodb.databases.entry(tenant.name).or_default();
            databases.event_stream = databases.event_stream.take().or(tenant.event_stream_database);
        }
        config.dolittle_servers = found.servers;
    }
    match config.mongodb.databases.keys().find(|name| !config.tenants.names.contains(name)) {
        Some(name) => Err(Failure::config(format!(
            "mongodb.databases: tenant {name:?} is not declared; add it to tenants.names, or correct the name"
        ))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TENANT: &str = "445f8ea8-1a6f-40d7-b2fc-796dba92dc44";

    fn declared(names: Option<&[&str]>) -> Result<Config, Failure> {
        let folder = tempfile::tempdir().expect("a folder");
        let text = format!(r#"{{"{TENANT}": {{"eventStore": {{"servers": ["db"], "database": "store_a"}}}}}}"#);
        std::fs::write(folder.path().join("resources.json"), text).expect("written");
        let mut config = Config::default();
        config.tenants.dolittle_folder = folder.path().display().to_string();
        let mut origins = Origins::new();
        if let Some(names) = names {
            config.tenants.names = names.iter().map(|name| (*name).to_owned()).collect();
            origins.insert("tenants.names".to_owned(), "annals.toml".to_owned());
        }
        declare_dolittle_tenants(&mut config, &mut origins).map(|()| config)
    }

    #[test]
    fn a_microservice_s_tenants_are_declared_with_their_databases() {
        let config = declared(None).expect("declared");
        assert_eq!(config.tenants.names, [TENANT]);
        assert_eq!(config.mongodb.databases[TENANT].event_stream.as_deref(), Some("store_a"));
        assert_eq!(config.mongodb.options().tenants[0].event_stream_database.as_deref(), Some("store_a"));
        assert!(config.dolittle_servers.contains("db:27017"));
        assert_eq!(declared(Some(&["default"])).expect("declared").tenants.names, ["default", TENANT]);
    }

    #[test]
    fn databases_of_an_undeclared_tenant_are_refused() {
        let mut config = Config::default();
        config.mongodb.databases.insert("acmee".to_owned(), TenantDatabases::default());
        let refused = declare_dolittle_tenants(&mut config, &mut Origins::new()).expect_err("refused");
        assert!(refused.message.contains("acmee"), "{refused}");
        config = Config::default();
        config.tenants.dolittle_folder = "nowhere".to_owned();
        let refused = declare_dolittle_tenants(&mut config, &mut Origins::new()).expect_err("refused");
        assert!(
            refused.message.contains("tenants.dolittle_folder") && refused.message.contains("nowhere"),
            "{refused}"
        );
    }
}
