//! How a store on MongoDB is opened.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use annals_core::{Clock, DEFAULT_TENANT, Randomness, limits};
use annals_system::{SystemClock, SystemRandomness};

use crate::AtStep;
use crate::sequencer::step;

/// How a store on MongoDB is opened.
#[derive(Clone)]
pub struct Options {
    /// The declared tenants, each with databases of its own.
    pub tenants: Vec<Tenant>,
    /// The scopes that every tenant has besides `default`. One that is called by a UUID is that scope of a Dolittle Runtime; another name
    /// stands for the UUID that follows from it.
    pub scopes: Vec<String>,
    /// Where commits and the log of the tenant `default` are, if not in the database of the URL. For other tenants that name no database
    /// it is this name with `_` and the tenant's behind it.
    pub event_stream_database: Option<String>,
    /// The same for snapshots.
    pub snapshot_database: Option<String>,
    /// The same for prepare keys.
    pub prepare_database: Option<String>,
    /// Whose database it is: `contextName` of every commit, and of the owner's mark in `wow_database_metadata`. None is whose the mark of a
    /// database says that Annals has made or adopted, and `annals` in a new one.
    pub context_name: Option<String>,
    /// Whether collections and indexes are made when they are missing. Where it is off, missing ones are an error.
    pub auto_init_schema: bool,
    /// Whether a store that is not there yet is an error, instead of being made.
    pub must_exist: bool,
    /// Where a request id must not be used twice.
    pub requests: Requests,
    /// Whether commits also have the indexes `idx_create_time` and `idx_event_type_time`.
    pub optional_indexes: bool,
    /// Most commits of one log that wait at once; more are refused with `overloaded`.
    pub waiting_max: usize,
    /// How long the outcome of a commit is looked for, when MongoDB gives none, before the commit is answered as unknown; how long one may
    /// wait before it is sent; and how long a read waits for its answer.
    pub outcome_time: Duration,
    /// How many changes of records are kept; fewer than the port promises count as so many.
    pub record_changes_kept: u64,
    /// Connections, where the URL says nothing about them.
    pub connection: ConnectionOptions,
    /// How long the sequencer's lease holds, 1 s to 60 s: another process takes over from one that was killed within four thirds of it.
    pub lease: Duration,
    /// Where the times in documents come from.
    pub clock: Arc<dyn Clock>,
    /// What MongoDB and other processes are waited for by: deadlines, pauses and leases. It must go on by itself.
    pub timer: Arc<dyn Clock>,
    /// Where ids come from.
    pub random: Arc<dyn Randomness>,
    /// Called at each step of the sequencer in this process: for tests, which end the process there or make it wait.
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
            must_exist: false,
            requests: Requests::PerAggregate,
            optional_indexes: false,
            waiting_max: 8192,
            outcome_time: Duration::from_secs(20),
            record_changes_kept: limits::CHANGES_KEPT_MIN,
            connection: ConnectionOptions::default(),
            lease: Duration::from_secs(3),
            clock: Arc::new(SystemClock),
            timer: Arc::new(SystemClock),
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

/// Connections, where the URL says nothing about them: what it says goes first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectionOptions {
    /// Connections to each server, at most.
    pub pool_size_max: u32,
    /// Connections to each server that are kept open while nothing happens.
    pub pool_size_min: u32,
    /// How long a request looks for a primary before it fails.
    pub selection_time: Duration,
    /// How long connecting to a server may take.
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

/// A tenant and its databases. What is not named follows from the store's own databases and the tenant's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tenant {
    /// Its name.
    pub name: String,
    /// Where commits and the log are.
    pub event_stream_database: Option<String>,
    /// Where snapshots are.
    pub snapshot_database: Option<String>,
    /// Where prepare keys are.
    pub prepare_database: Option<String>,
}

impl Tenant {
    /// A tenant with the databases that follow from its name.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), event_stream_database: None, snapshot_database: None, prepare_database: None }
    }
}

/// Where a request id must not be used twice. A store never changes from one to the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Requests {
    /// Within its aggregate, by the index `aggregateId_1_requestId_1`; sharding by aggregateId works.
    PerAggregate,
    /// Within all aggregates of a name, by the index `requestId_1`; not for sharded collections.
    Global,
}
