//! The suite of the port, without what this store does not have yet.

use std::sync::Arc;

use annals_conformance::model::EPOCH;
use annals_conformance::{ManualClock, Subject};
use annals_core::{Store, Timestamp};
use annals_mongodb::Options;
use async_trait::async_trait;

use crate::server::{Databases, two_tenants};

pub struct Mongo {
    databases: Databases,
    clock: Arc<ManualClock>,
    scopes: Vec<String>,
}

impl Mongo {
    pub fn new() -> Self {
        Self { databases: Databases::new(), clock: Arc::new(ManualClock::at(EPOCH)), scopes: Vec::new() }
    }

    /// A store with another scope than the default one.
    pub fn with_scope(scope: &str) -> Self {
        Self { scopes: vec![scope.to_owned()], ..Self::new() }
    }

    async fn opened(&self, options: Options) -> Arc<dyn Store> {
        let (clock, scopes) = (self.clock.clone(), self.scopes.clone());
        Arc::new(self.databases.store(Options { clock, scopes, ..options }).await)
    }
}

#[async_trait]
impl Subject for Mongo {
    async fn open(&self) -> Arc<dyn Store> {
        self.opened(Options::default()).await
    }

    async fn open_with_other(&self) -> Arc<dyn Store> {
        self.opened(two_tenants()).await
    }

    fn clock(&self) -> Arc<ManualClock> {
        self.clock.clone()
    }
}

/// A store in times to come: a key that expires by its clock is not removed by the server's.
fn in_a_hundred_years() -> Mongo {
    const CENTURY: i64 = 100 * 366 * 24 * 60 * 60 * 1000;
    let later = Timestamp::from_millis(EPOCH.as_millis() + CENTURY);
    Mongo { clock: Arc::new(ManualClock::at(later)), ..Mongo::new() }
}

mod replica_set {
    use super::*;
    annals_conformance::commits_and_log!(Mongo::new());
    annals_conformance::keys!(in_a_hundred_years());
    annals_conformance::prepare!(in_a_hundred_years());
}
