//! UmaDB's engine. It has no subscription of its own: its server polls for its followers.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::mpsc::UnboundedSender;
use umadb_core::db::UmaDb;
use umadb_dcb::{DcbEvent, DcbEventStoreSync, DcbQuery};
use uuid::Uuid;

use super::{Reads, Stored, Weight, disk_bytes};
use crate::corpus::{Commit, TAG};
use crate::umadb::{EVENT_TYPE, Gatherer, open, query};

/// Events per request. A response is held in memory as a whole.
const PAGE: u32 = 1_000;

/// The engine, and the thread that batches appends.
#[derive(Clone)]
pub struct Umadb {
    store: Arc<UmaDb>,
    gatherer: Gatherer,
}

/// Returns the events of a commit of the corpus.
pub fn events(commit: &Commit) -> Vec<DcbEvent> {
    let event = |(place, payload): (usize, &String)| {
        let mut tags = vec![commit.aggregate_id.clone()];
        if commit.tagged && place == 0 {
            tags.push(TAG.to_owned());
        }
        let id = Uuid::from_u128(((commit.number as u128 + 1) << 16) | place as u128);
        DcbEvent::new().event_type(EVENT_TYPE).tags(tags).data(payload.as_bytes()).uuid(id)
    };
    commit.payloads.iter().enumerate().map(event).collect()
}

impl Umadb {
    fn count(&self, query: Option<&DcbQuery>) -> Result<usize, String> {
        let (mut events, mut start) = (0, 1);
        loop {
            let found = self.store.read_with_head(query.cloned(), Some(start), false, Some(PAGE));
            let (page, _) = found.map_err(|error| error.to_string())?;
            let Some(last) = page.last() else { return Ok(events) };
            start = last.position + 1;
            events += page.len();
        }
    }
}

impl Reads for Umadb {
    const FOLLOWS: bool = false;

    async fn append(&self, commit: Commit) -> Result<(), String> {
        self.gatherer.append(events(&commit), None).await.map(drop)
    }

    async fn read_all(&self) -> Result<usize, String> {
        self.count(None)
    }

    async fn read_aggregate(&self, id: &str) -> Result<usize, String> {
        self.count(Some(&query(id)))
    }

    async fn read_tagged(&self, tag: &str) -> Result<usize, String> {
        self.count(Some(&query(tag)))
    }

    async fn follow(&self, _: usize, _: UnboundedSender<Instant>) -> Result<(), String> {
        Err("UmaDB's engine has no subscription".to_owned())
    }
}

impl Stored for Umadb {
    fn open(folder: &Path) -> Result<Self, String> {
        let store = open(folder)?;
        Ok(Self { gatherer: Gatherer::start(Arc::clone(&store)), store })
    }

    async fn weigh(self, folder: &Path) -> Result<Weight, String> {
        let head = self.store.head().map_err(|error| error.to_string())?;
        let bytes = disk_bytes(folder, &|_| true).map_err(|error| format!("{}: {error}", folder.display()))?;
        Ok(Weight { events: head.unwrap_or_default(), bytes })
    }
}
