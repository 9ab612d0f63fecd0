//! Tephra as a library. Its reads block the calling thread, and lend each event until the next one is requested.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use tephra::{Event, Position, Query, QueryItem, WriteCoordinator, WriteHandle};
use tokio::sync::mpsc::UnboundedSender;

use super::{Reads, Stored, Weight, disk_bytes};
use crate::corpus::{Commit, TAG};
use crate::tephra::{event_type, open, tags};

/// The store's only writer, and the store itself for reads.
#[derive(Clone)]
pub struct Tephra {
    coordinator: Arc<Mutex<Option<WriteCoordinator>>>,
    handle: WriteHandle,
}

impl Tephra {
    fn count(&self, query: &Query) -> Result<usize, String> {
        let mut reads = self.handle.read(query, Position::ZERO, None);
        let mut events = 0;
        while let Some(event) = reads.next() {
            let event = event.map_err(|error| error.to_string())?.event;
            std::hint::black_box((event.event_type(), event.data()));
            events += 1;
        }
        Ok(events)
    }

    fn count_tagged(&self, tag: &str) -> Result<usize, String> {
        self.count(&Query::item(QueryItem::with_tags(tags([tag])?)))
    }
}

impl Reads for Tephra {
    async fn append(&self, commit: Commit) -> Result<(), String> {
        let event_type = event_type()?;
        let plain = tags([commit.aggregate_id.as_str()])?;
        let tagged = tags([commit.aggregate_id.as_str(), TAG])?;
        let mut events = Vec::with_capacity(commit.payloads.len());
        for (place, payload) in commit.payloads.iter().enumerate() {
            let tags = if commit.tagged && place == 0 { &tagged } else { &plain };
            events.push(Event::new(&event_type, tags, payload.as_bytes()).map_err(|error| error.to_string())?);
        }
        self.handle.append_async(events, None).await.map(drop).map_err(|error| error.to_string())
    }

    async fn read_all(&self) -> Result<usize, String> {
        self.count(&Query::all())
    }

    fn gives(&self) -> bool {
        false
    }

    fn lends(&self) -> bool {
        true
    }

    async fn read_aggregate(&self, id: &str) -> Result<usize, String> {
        self.count_tagged(id)
    }

    async fn read_tagged(&self, tag: &str) -> Result<usize, String> {
        self.count_tagged(tag)
    }

    async fn follow(&self, events: usize, seen: UnboundedSender<Instant>) -> Result<(), String> {
        let mut subscription = self.handle.subscribe(Query::all(), self.handle.head());
        let nobody = |_| "nobody waits for the follower".to_owned();
        seen.send(Instant::now()).map_err(nobody)?;
        let mut left = events;
        while left > 0 {
            let batch = subscription.next_batch_async().await.ok_or("the subscription ended")?;
            let batch = batch.map_err(|error| error.to_string())?;
            left = left.saturating_sub(batch.len());
            for _ in batch {
                seen.send(Instant::now()).map_err(nobody)?;
            }
        }
        Ok(())
    }
}

impl Stored for Tephra {
    fn open(folder: &Path) -> Result<Self, String> {
        let (coordinator, handle) = open(folder)?;
        Ok(Self { coordinator: Arc::new(Mutex::new(Some(coordinator))), handle })
    }

    async fn weigh(self, folder: &Path) -> Result<Weight, String> {
        let coordinator = self.coordinator.lock().unwrap_or_else(PoisonError::into_inner).take();
        let set = coordinator.ok_or("the store is closed already")?.shutdown();
        let closed: Vec<(u64, u64)> = set.sealed_segments().map(|(base, events)| (base.get(), events)).collect();
        let is_closed = |name: &str| {
            let base = name.split('.').next().and_then(|stem| stem.parse().ok());
            base.is_some_and(|base: u64| closed.iter().any(|(closed, _)| *closed == base))
        };
        let bytes = disk_bytes(folder, &is_closed).map_err(|error| format!("{}: {error}", folder.display()))?;
        Ok(Weight { events: closed.iter().map(|(_, events)| events).sum(), bytes })
    }
}
