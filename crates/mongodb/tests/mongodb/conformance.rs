//! The suite of the port, without what this store does not have yet.

use std::sync::Arc;

use annals_conformance::model::EPOCH;
use annals_conformance::{ManualClock, Subject};
use annals_core::Store;
use annals_mongodb::Options;
use async_trait::async_trait;

use crate::server::{Databases, two_tenants};

pub struct Mongo {
    databases: Databases,
    clock: Arc<ManualClock>,
}

impl Mongo {
    pub fn new() -> Self {
        Self { databases: Databases::new(), clock: Arc::new(ManualClock::at(EPOCH)) }
    }
}

#[async_trait]
impl Subject for Mongo {
    async fn open(&self) -> Arc<dyn Store> {
        Arc::new(self.databases.store(Options { clock: self.clock.clone(), ..two_tenants() }).await)
    }

    fn clock(&self) -> Arc<ManualClock> {
        self.clock.clone()
    }
}

mod replica_set {
    use super::*;
    annals_conformance::commits_and_log!(Mongo::new());
}
