//! How a store on MongoDB is opened.

use std::sync::Arc;

use annals_core::{Clock, DEFAULT_TENANT, Randomness, limits};

use crate::{SystemClock, SystemRandomness};

/// How a store on MongoDB is opened.
#[derive(Clone)]
pub struct Options {
    /// The declared tenants, each with databases of its own.
    pub tenants: Vec<Tenant>,
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
    /// How many changes of records are kept; fewer than the port promises count as so many.
    pub record_changes_kept: u64,
    /// Where times come from.
    pub clock: Arc<dyn Clock>,
    /// Where ids come from.
    pub random: Arc<dyn Randomness>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            tenants: vec![Tenant::new(DEFAULT_TENANT)],
            context_name: None,
            auto_init_schema: true,
            must_exist: false,
            requests: Requests::PerAggregate,
            optional_indexes: false,
            waiting_max: 8192,
            record_changes_kept: limits::CHANGES_KEPT_MIN,
            clock: Arc::new(SystemClock),
            random: Arc::new(SystemRandomness::new()),
        }
    }
}

/// A tenant and its databases. What is not named is the database of the URL for the tenant `default`, and that name with `_` and the
/// tenant's behind it for others.
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
