//! Reads a source ahead of its owner: one page waits while the next is read, so a slow processor holds two.

use std::sync::Arc;
use std::time::Duration;

use annals_core::{Clock, ReadError, StoreError};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::source::{Found, Source};

/// The first and the longest pause after a failed read.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));

/// Events in order, and where the source continues.
pub(crate) struct Page {
    pub events: Vec<Found>,
    pub next: u64,
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
    /// Reads from a position on.
    pub fn start(source: Source, from: u64, clock: Arc<dyn Clock>) -> Self {
        let (out, pages) = mpsc::channel(1);
        Self { pages, task: tokio::spawn(read(source, from, clock, out)) }
    }

    /// The next page. None once the source cannot be read any more.
    pub async fn next(&mut self) -> Option<Result<Page, ReadError>> {
        self.pages.recv().await
    }
}

async fn read(source: Source, from: u64, clock: Arc<dyn Clock>, out: mpsc::Sender<Result<Page, ReadError>>) {
    let mut following = source.follow(from);
    let mut pause = PAUSES.0;
    loop {
        let page = match source.step(&mut following).await {
            Ok((events, next)) => Ok(Page { events, next }),
            Err(error) => Err(error),
        };
        let failed = page.is_err();
        let ends = matches!(page, Err(ReadError::Store(StoreError::Closed) | ReadError::Invalid(_)));
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
