//! Reads a source ahead of its owner. One page is buffered while the next is being read, so a slow processor holds two.

use std::sync::Arc;
use std::time::Duration;

use annals_core::{Clock, ReadError, StoreError, Timestamp};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::source::{Following, Found, Source};

/// The first and the longest pause after a failed read.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));

/// A page of events in order, and where the source continues.
pub(crate) struct Page {
    pub events: Vec<Found>,
    pub next: u64,
    /// Whether the source ends here, because the next event is at or after its `stop_at`.
    pub ended: bool,
    /// Whether the event at which the processor begins, or a later one, was seen.
    pub begun: bool,
}

/// A task that reads ahead. It ends when this value is dropped.
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
    /// Starts reading from a position, passing over events until the first one at or after `starts_at`.
    pub fn start(source: Source, from: u64, starts_at: Option<Timestamp>, clock: Arc<dyn Clock>) -> Self {
        let (out, pages) = mpsc::channel(1);
        let following = source.follow(from, starts_at);
        Self { pages, task: tokio::spawn(read(source, following, clock, out)) }
    }

    /// Returns the next page; `None` once the source can no longer be read.
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
