//! Options for opening a store on MongoDB.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use annals_core::{Clock, DEFAULT_TENANT, Randomness, limits};
use annals_system::{SystemClock, SystemRandomness};

use crate::AtStep;
use crate::sequencer::step;

/// Options for opening a store on MongoDB.
#[derive(Clone)]
pub struct Options {
    /// The declared tenants, each with databases of its own.
    pub tenants: Vec<Tenant>,
    /// The scopes that every tenant has besides `default`. A name that is a UUID denotes that scope of a Dolittle Runtime; any other name
    /// denotes the UUID derived from it.
    pub scopes: Vec<String>,
    /// The database of commits and the log of the tenant `default`, if not that of the URL. For other tenants that name no database, it is
    /// this name followed by `_` and the tenant's name.
    pub event_stream_database: Option<String>,
    /// The same for snapshots.
    pub snapshot_database: Option<String>,
    /// The same for prepare keys.
    pub prepare_database: Option<String>,
    /// The context that owns the database: `contextName` of every commit and of the marker in `wow_database_metadata`. If `None`, it is
    /// taken from the marker of a database that Annals has created or adopted, and is `annals` in a new one.
    pub context_name: Option<String>,
    /// Whether missing collections and indexes are created. If off, missing ones are an error.
    pub auto_init_schema: bool,
    /// Whether Annals' own collections are created when they are declared, and not only before the first write to them. A store for which
    /// `auto_init_schema` is switched off later needs this.
    pub create_all_at_start: bool,
    /// Whether a store that does not exist is an error, rather than being created.
    pub must_exist: bool,
    /// Within which scope a request id must be unique.
    pub requests: Requests,
    /// Whether the collections of commits also have the indexes `idx_create_time` and `idx_event_type_time`.
    pub optional_indexes: bool,
    /// Maximum number of commits of one log that are pending at once; more are refused with `overloaded`.
    pub waiting_max: usize,
    /// Time limit for finding out the outcome of a commit to which MongoDB does not respond, before it is answered as unknown. It is also
    /// the limit for how long a commit may be pending before it is sent, and for the response to a read.
    pub outcome_time: Duration,
    /// How many changes of records are kept; a value below the port's minimum counts as that minimum.
    pub record_changes_kept: u64,
    /// Connection options that apply unless the URL sets them.
    pub connection: ConnectionOptions,
    /// The duration of the sequencer's lease, 1 s to 60 s: another process takes over from one that was killed within four thirds of it.
    pub lease: Duration,
    /// The source of the times in documents.
    pub clock: Arc<dyn Clock>,
    /// The source of ids.
    pub random: Arc<dyn Randomness>,
    /// Called at each step of the sequencer in this process: for tests, which kill or pause the process there.
    pub at_step: AtStep,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            tenants: vec![Tenant::new(DEFAULT_TENANT)],
            scopes: Vec::new(),
            event_stream_database: None,
            snapshot_database: None,
            prepare_database: None,
            context_name: None,
            auto_init_schema: true,
            create_all_at_start: false,
            must_exist: false,
            requests: Requests::PerAggregate,
            optional_indexes: false,
            waiting_max: 8192,
            outcome_time: Duration::from_secs(20),
            record_changes_kept: limits::CHANGES_KEPT_MIN,
            connection: ConnectionOptions::default(),
            lease: Duration::from_secs(3),
            clock: Arc::new(SystemClock),
            random: Arc::new(SystemRandomness::new()),
            at_step: step::nothing,
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Options");
        shown.field("tenants", &self.tenants).field("scopes", &self.scopes).field("context_name", &self.context_name);
        shown.finish_non_exhaustive()
    }
}

/// Connection options; settings in the URL take precedence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectionOptions {
    /// Maximum number of connections to each server.
    pub pool_size_max: u32,
    /// Number of connections to each server that are kept open while idle.
    pub pool_size_min: u32,
    /// How long a request waits for a primary before it fails.
    pub selection_time: Duration,
    /// Time limit for connecting to a server.
    pub connect_time: Duration,
}

impl Default for ConnectionOptions {
    fn default() -> Self {
        Self {
            pool_size_max: 100,
            pool_size_min: 0,
            selection_time: Duration::from_secs(10),
            connect_time: Duration::from_secs(10),
        }
    }
}

/// A tenant and its databases. A database that is not named is derived from the store's own databases and the tenant's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tenant {
    /// Its name.
    pub name: String,
    /// The database of commits and the log.
    pub event_stream_database: Option<String>,
    /// The database of snapshots.
    pub snapshot_database: Option<String>,
    /// The database of prepare keys.
    pub prepare_database: Option<String>,
}

impl Tenant {
    /// Creates a tenant whose databases are derived from its name.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), event_stream_database: None, snapshot_database: None, prepare_database: None }
    }
}

/// Within which scope a request id must be unique. A store never changes from one to the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Requests {
    /// Unique per aggregate, by the index `aggregateId_1_requestId_1`; sharding by aggregateId works.
    PerAggregate,
    /// Unique across all aggregates of a name, by the index `requestId_1`; not for sharded collections.
    Global,
}
