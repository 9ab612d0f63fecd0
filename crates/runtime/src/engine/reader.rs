//! Reads a source ahead of its owner: one page waits while the next is read, so a slow processor holds two.

use std::sync::Arc;
use std::time::Duration;

use annals_core::{Clock, ReadError, StoreError, Timestamp};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::source::{Following, Found, Source};

/// The first and the longest pause after a failed read.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));

/// Events in order, and where the source continues.
pub(crate) struct Page {
    pub events: Vec<Found>,
    pub next: u64,
    /// Whether the source ends here, because the next event is at or after its `stop_at`.
    pub ended: bool,
    /// Whether an event was seen at which it begins or that follows it.
    pub begun: bool,
}

/// A task that reads; it ends when this is dropped.
pub(crate) struct Reader {
    pages: mpsc::Receiver<Result<Page, ReadError>>,
    task: JoinHandle<()>,
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Reader {
    /// Reads from a position on, and passes over events until one is of the time or later.
    pub fn start(source: Source, from: u64, starts_at: Option<Timestamp>, clock: Arc<dyn Clock>) -> Self {
        let (out, pages) = mpsc::channel(1);
        let following = source.follow(from, starts_at);
        Self { pages, task: tokio::spawn(read(source, following, clock, out)) }
    }

    /// The next page. None once the source cannot be read any more.
    pub async fn next(&mut self) -> Option<Result<Page, ReadError>> {
        self.pages.recv().await
    }
}

async fn read(
    source: Source,
    mut following: Following,
    clock: Arc<dyn Clock>,
    out: mpsc::Sender<Result<Page, ReadError>>,
) {
    let mut pause = PAUSES.0;
    loop {
        let page = source.step(&mut following).await;
        let failed = page.is_err();
        let ends = match &page {
            Ok(page) => page.ended,
            Err(error) => matches!(error, ReadError::Store(StoreError::Closed) | ReadError::Invalid(_)),
        };
        if out.send(page).await.is_err() || ends {
            return;
        }
        if failed {
            clock.sleep(pause).await;
            pause = (pause * 2).min(PAUSES.1);
        } else {
            pause = PAUSES.0;
        }
    }
}
