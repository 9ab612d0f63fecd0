//! A tap that counts the events that are read from a log.

use std::sync::atomic::{AtomicUsize, Ordering};

use annals_core::{EventLog, LogPage, LogQuery, ReadError};
use async_trait::async_trait;

use crate::tap::Tap;

/// A count of events that were read.
#[derive(Default)]
pub(super) struct Count(AtomicUsize);

impl Count {
    pub fn get(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

#[async_trait]
impl Tap for Count {
    async fn read(&self, log: &dyn EventLog, query: LogQuery) -> Result<LogPage, ReadError> {
        let page = log.read(query).await?;
        self.0.fetch_add(page.events.len(), Ordering::SeqCst);
        Ok(page)
    }
}
