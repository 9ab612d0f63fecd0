//! Requests pages from a producer, one ahead of the owner: while it stores a page, the next one is in flight.

use std::sync::Arc;
use std::time::Duration;

use annals_core::horizon::{HorizonError, OfferRequest, Offered, Offering};
use annals_core::{Clock, StreamPosition};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// The shortest interval between requests that return nothing, so that a producer that does not wait is not polled continuously.
const EMPTY_EVERY: Duration = Duration::from_millis(100);

/// The position where a page begins, and the page.
pub(super) type Asked = (StreamPosition, Result<Offered, HorizonError>);

/// A task that requests pages. It ends when this value is dropped, and after an error.
pub(super) struct Pages {
    pages: mpsc::Receiver<Asked>,
    task: JoinHandle<()>,
}

impl Drop for Pages {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Pages {
    /// Starts requesting pages from the position of `request`.
    pub fn start(offering: Arc<dyn Offering>, request: OfferRequest, clock: Arc<dyn Clock>) -> Self {
        let (out, pages) = mpsc::channel(1);
        Self { pages, task: tokio::spawn(ask(offering, request, clock, out)) }
    }

    /// Returns the next page; `None` after an error.
    pub async fn next(&mut self) -> Option<Asked> {
        self.pages.recv().await
    }
}

async fn ask(offering: Arc<dyn Offering>, mut request: OfferRequest, clock: Arc<dyn Clock>, out: mpsc::Sender<Asked>) {
    loop {
        let (from, asked_at) = (request.from, clock.now());
        let page = offering.offer(request.clone()).await;
        let next = page.as_ref().ok().map(|page| page.next);
        if out.send((from, page)).await.is_err() {
            return;
        }
        match next {
            Some(next) if next > from => request.from = next,
            Some(_) => clock.sleep_until(asked_at.plus(EMPTY_EVERY)).await,
            None => return,
        }
    }
}
