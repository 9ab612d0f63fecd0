//! The suite of the port of records.

use std::sync::Arc;

use annals_conformance::{ManualClock, Subject};
use annals_core::{Clock, Store};
use annals_mongodb::{Options, SystemClock};
use async_trait::async_trait;

use crate::server::{Databases, two_tenants};

/// A store whose clock stands still at the present: the server deletes what has expired by its own.
pub struct MongoRecords {
    databases: Databases,
    clock: Arc<ManualClock>,
}

impl MongoRecords {
    pub fn new() -> Self {
        Self { databases: Databases::new(), clock: Arc::new(ManualClock::at(SystemClock.now())) }
    }
}

#[async_trait]
impl Subject for MongoRecords {
    async fn open(&self) -> Arc<dyn Store> {
        Arc::new(self.databases.store(Options { clock: self.clock.clone(), ..two_tenants() }).await)
    }

    fn clock(&self) -> Arc<ManualClock> {
        self.clock.clone()
    }
}

mod replica_set {
    use super::*;
    annals_conformance::records!(MongoRecords::new());
}
