//! A log that counts the commits that are read from it as commits of an aggregate.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use annals_core::{AggregateCommits, AggregateQuery, EventLog, ReadError};
use async_trait::async_trait;

use crate::tap::{Tap, Tapped};

#[derive(Default)]
pub(crate) struct Counted {
    commits: AtomicU64,
}

impl Counted {
    pub fn over(inner: Arc<dyn EventLog>) -> Arc<Tapped<Self>> {
        Tapped::new(inner, Arc::default())
    }

    /// Returns how many commits were read since the last call.
    pub fn taken(&self) -> u64 {
        self.commits.swap(0, Ordering::SeqCst)
    }
}

#[async_trait]
impl Tap for Counted {
    async fn read_aggregate(&self, log: &dyn EventLog, query: AggregateQuery) -> Result<AggregateCommits, ReadError> {
        let found = log.read_aggregate(query).await?;
        self.commits.fetch_add(found.commits.len() as u64, Ordering::SeqCst);
        Ok(found)
    }
}
