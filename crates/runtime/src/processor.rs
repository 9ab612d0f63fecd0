//! The task that follows a log.

use std::sync::Arc;

use annals_core::{EventLog, Filter, Follower, ReadError, RecordedEvent, SequenceNumber, StoreError};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::{Handler, HandlerError, RetryPolicy, State, Status};

/// Hands the events of a log to a [`Handler`]: in order, one at a time, each at least once, none skipped.
///
/// It keeps no position of its own. Whoever starts it says from where, and either keeps [`Status::position`] or can tell the
/// position from what the log holds.
///
/// It ends when it is asked to, when the handler says [`HandlerError::Stop`], when the store closes, and when the log refuses the
/// filter. Every other failure, of the handler or of reading, is tried again for as long as it takes.
pub struct Processor {
    log: Arc<dyn EventLog>,
    from: SequenceNumber,
    filter: Filter,
    retry: RetryPolicy,
}

impl Processor {
    /// Follows all of `log` from sequence number `from`.
    pub fn new(log: Arc<dyn EventLog>, from: SequenceNumber) -> Self {
        Self { log, from, filter: Filter::default(), retry: RetryPolicy::default() }
    }

    /// Only events that pass this filter.
    #[must_use]
    pub fn filter(mut self, filter: Filter) -> Self {
        self.filter = filter;
        self
    }

    /// Other delays between attempts.
    #[must_use]
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        self.retry = policy;
        self
    }

    /// Starts it as a task of the current runtime.
    ///
    /// # Panics
    /// Outside a Tokio runtime.
    pub fn start(self, handler: impl Handler) -> Running {
        let status =
            Status { position: self.from, head: self.from, attempts: 0, last_error: None, state: State::Running };
        let (status_out, status) = watch::channel(status);
        let (stop, stop_in) = watch::channel(false);
        let follower = Follower::new(Arc::clone(&self.log), self.from, self.filter);
        let following =
            Following { log: self.log, follower, handler, retry: self.retry, status: status_out, stop: stop_in };
        Running { status, stop, task: tokio::spawn(following.run()) }
    }
}

/// A processor at work. Dropping it ends the work at once, like a crash would: an event whose handling was cut off counts as not
/// handled. [`stop`](Self::stop) ends it between two events.
pub struct Running {
    status: watch::Receiver<Status>,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Running {
    /// How it is now.
    pub fn status(&self) -> Status {
        self.status.borrow().clone()
    }

    /// A receiver that learns of every change. It may miss some in between, never the last.
    pub fn watch(&self) -> watch::Receiver<Status> {
        self.status.clone()
    }

    /// Waits until it has ended by itself. Cancelling is safe.
    pub async fn ended(&mut self) -> Status {
        // An error would mean that the sender is gone, and its last act is to say `Stopped`.
        let _ = self.status.wait_for(|status| status.state == State::Stopped).await;
        self.status()
    }

    /// Lets the event under way finish, hands over no further one, and returns the last status. A wait for a retry is cut short.
    pub async fn stop(mut self) -> Status {
        self.stop.send_replace(true);
        self.ended().await
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Following<H> {
    log: Arc<dyn EventLog>,
    follower: Follower,
    handler: H,
    retry: RetryPolicy,
    status: watch::Sender<Status>,
    stop: watch::Receiver<bool>,
}

/// Why the loop ended; `Err` of the loop's steps, so that `?` leaves it.
struct End(Option<String>);

impl<H: Handler> Following<H> {
    async fn run(mut self) {
        let End(reason) = match self.follow().await {
            Ok(never) => match never {},
            Err(end) => end,
        };
        if let Some(reason) = reason {
            self.status.send_modify(|status| status.last_error = Some(reason));
        }
    }

    async fn follow(&mut self) -> Result<std::convert::Infallible, End> {
        loop {
            let page = self.next_page().await?;
            for event in page {
                self.handle(&event).await?;
                self.succeeded(event.sequence_number + 1);
            }
            // Behind the last event of a page there may be some that do not pass the filter.
            self.succeeded(self.follower.position());
        }
    }

    async fn next_page(&mut self) -> Result<Vec<RecordedEvent>, End> {
        loop {
            let read = async {
                let page = self.follower.next_page().await?;
                Ok((page, self.log.head().await))
            };
            let read = tokio::select! {
                biased;
                _ = stopped(&mut self.stop) => return Err(End(None)),
                read = read => read,
            };
            match read {
                Ok((page, head)) => {
                    // A page that was read is not given up for want of the head, which is only reported.
                    self.status.send_modify(|status| status.head = head.unwrap_or(status.head));
                    return Ok(page);
                }
                Err(error @ (ReadError::Store(StoreError::Closed) | ReadError::Invalid(_))) => {
                    return Err(End(Some(error.to_string())));
                }
                Err(error) => self.failed(error.to_string()).await?,
            }
        }
    }

    /// Hands one event over until it is handled.
    async fn handle(&mut self, event: &RecordedEvent) -> Result<(), End> {
        loop {
            if *self.stop.borrow() {
                return Err(End(None));
            }
            match self.handler.handle(event).await {
                Ok(()) => return Ok(()),
                Err(HandlerError::Stop(reason)) => return Err(End(Some(reason))),
                Err(HandlerError::Retry(reason)) => self.failed(reason).await?,
            }
        }
    }

    fn succeeded(&self, position: SequenceNumber) {
        self.status.send_modify(|status| {
            status.position = position;
            status.head = status.head.max(position);
            status.attempts = 0;
            status.state = State::Running;
        });
    }

    /// Reports a failure and waits for the time of the next attempt.
    async fn failed(&mut self, reason: String) -> Result<(), End> {
        let mut failures = 0;
        self.status.send_modify(|status| {
            status.attempts = status.attempts.saturating_add(1);
            status.last_error = Some(reason);
            status.state = State::Retrying;
            failures = status.attempts;
        });
        tokio::select! {
            biased;
            _ = stopped(&mut self.stop) => Err(End(None)),
            () = tokio::time::sleep(self.retry.delay(failures)) => Ok(()),
        }
    }
}

/// However the task ends, those who watch it learn of it.
impl<H> Drop for Following<H> {
    fn drop(&mut self) {
        self.status.send_modify(|status| {
            status.state = State::Stopped;
            if std::thread::panicking() {
                status.last_error = Some("the handler panicked".to_owned());
            }
        });
    }
}

/// Returns when the processor is asked to stop, which it also is when nobody holds it any more.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await;
}
