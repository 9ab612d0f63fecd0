//! A worker that is attached to a handler: it gets deliveries as far as its credit goes, and settles them.
//!
//! ```text
//!  attach, settle, credit ─▶ credit ─▶ pull ─▶ unsettled ─▶ deliveries
//!                     └─────────────▶ settle ──┴▶ settled
//! ```
//!
//! INVARIANT: every delivery that was pulled is in `unsettled` until its settlement is stored or its lease has ended. What is still there
//! when the worker is gone is given back.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use annals_core::Timestamp;
use annals_core::handlers::{Delivery, HandlerError, PullBody, SettleBody, SettleResult, Settlement};
use annals_system::sleep;
use axum::response::Response;
use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use futures_util::stream;

use super::documents::Form;
use super::feed::stopping;
use super::frames::{self, Messages, invalid};
use super::generated::process_request::Request as Sent;
use super::generated::process_response::Response as Answered;
use super::generated::{self, Idle, ProcessRequest, ProcessResponse, Settled};
use super::handlers::settlements;
use crate::answer::data_bytes;
use crate::metrics::Counted;
use crate::problem::Problem;
use crate::room::Room;
use crate::scoped::ScopedHandlers;
use crate::state::Server;
use crate::unread::HeldBytes;
use crate::v1::lines::CHUNK_BYTES;

/// Most deliveries of one pull, so that another one follows soon.
const PULL_MAX: u64 = 100;
/// The reason with which the deliveries of a worker that is gone fail.
const GONE: &str = "the worker ended its call or lost its connection";

/// The error of a settlement before whose delivery another one of its batch is to be settled.
const OUT_OF_ORDER: &str = "out_of_order";

/// What a worker is attached to.
pub(super) struct Worker {
    pub handlers: Arc<ScopedHandlers>,
    pub handler: String,
    pub tenant: String,
    /// The scope of the handler's source.
    pub scope: String,
    /// Every pull, except for the number of deliveries.
    pub pull: PullBody,
    pub form: Form,
}

/// A worker that is attached to a handler.
pub(super) struct Attached {
    server: Arc<Server>,
    worker: Worker,
    messages: Messages,
    /// How many deliveries may still be sent.
    credit: u64,
    /// The pull in flight. Dropping it takes no deliveries.
    pulling: Option<BoxFuture<'static, Result<Vec<Delivery>, HandlerError>>>,
    /// Deliveries that were pulled and not sent yet.
    pulled: std::vec::IntoIter<Delivery>,
    /// The guard that counts their bytes as unread.
    held: Option<HeldBytes>,
    room: Room,
    /// The tokens that are not settled, in the order of delivery, and the ends of their leases.
    unsettled: Vec<(String, Timestamp)>,
    quiet_max: Duration,
    /// Whether the first message was sent.
    begun: bool,
    _counted: Counted,
}

enum Happened {
    Stopped,
    Sent(Result<Option<ProcessRequest>, Problem>),
    Pulled(Result<Vec<Delivery>, HandlerError>),
    Nothing,
}

impl Attached {
    /// Attaches a worker, unless the server has too many of them and of other followers.
    pub fn new(server: Arc<Server>, worker: Worker, messages: Messages, credit: u64) -> Result<Self, Problem> {
        Ok(Self {
            quiet_max: server.options.comment_interval,
            room: Room::of(&server.options),
            _counted: server.follower()?,
            server,
            worker,
            messages,
            credit,
            pulling: None,
            pulled: Vec::new().into_iter(),
            held: None,
            unsettled: Vec::new(),
            begun: false,
        })
    }

    /// Answers the worker until it ends its call.
    pub fn answered(self) -> Response {
        frames::streamed(stream::unfold(Some(self), |attached| async move {
            let mut attached = attached?;
            match attached.chunk().await {
                Ok(chunk) => chunk.map(|chunk| (Ok(chunk), Some(attached))),
                Err(problem) => Some((Err(problem), None)),
            }
        }))
    }

    /// Returns the next messages, or `None` once the worker has ended its call.
    async fn chunk(&mut self) -> Result<Option<Bytes>, Problem> {
        if !std::mem::replace(&mut self.begun, true) {
            // It shows that the worker is attached.
            return Ok(Some(answer(Answered::Idle(Idle { credit: self.credit }))));
        }
        loop {
            if !self.pulled.as_slice().is_empty() {
                return self.deliver().map(Some);
            }
            if self.pulling.is_none() && self.credit > 0 {
                self.pulling = Some(self.pull());
            }
            match self.happens().await {
                Happened::Stopped => return Err(stopping()),
                Happened::Nothing => return Ok(Some(answer(Answered::Idle(Idle { credit: self.credit })))),
                Happened::Sent(sent) => match sent? {
                    None => return Ok(None),
                    Some(request) => {
                        if let Some(settled) = self.take(request).await? {
                            return Ok(Some(answer(Answered::Settled(settled))));
                        }
                    }
                },
                Happened::Pulled(deliveries) => {
                    self.pulling = None;
                    self.keep(deliveries?);
                }
            }
        }
    }

    /// Waits for what happens next. Cancelling loses nothing.
    async fn happens(&mut self) -> Happened {
        tokio::select! {
            () = self.server.options.stop.stopped() => Happened::Stopped,
            sent = self.messages.next() => Happened::Sent(sent),
            deliveries = pending(&mut self.pulling) => Happened::Pulled(deliveries),
            () = sleep(self.quiet_max) => Happened::Nothing,
        }
    }

    /// Begins a pull of as many deliveries as there is credit for.
    fn pull(&self) -> BoxFuture<'static, Result<Vec<Delivery>, HandlerError>> {
        let (handlers, handler) = (Arc::clone(&self.worker.handlers), self.worker.handler.clone());
        let max = usize::try_from(self.credit.min(PULL_MAX)).unwrap_or(1);
        let pull = PullBody { max, ..self.worker.pull.clone() };
        let room = self.room.clone();
        async move {
            room.open().await;
            handlers.pull(&handler, pull).await
        }
        .boxed()
    }

    fn keep(&mut self, deliveries: Vec<Delivery>) {
        self.credit = self.credit.saturating_sub(deliveries.len() as u64);
        let now = self.server.host.clock().now();
        self.unsettled.retain(|(_, until)| *until > now);
        self.unsettled.extend(deliveries.iter().map(|delivery| (delivery.token.clone(), delivery.until)));
        let bytes = data_bytes(deliveries.iter().map(|delivery| &delivery.event));
        self.held = Some(self.room.hold(bytes));
        self.pulled = deliveries.into_iter();
    }

    /// Returns the next deliveries that were pulled.
    fn deliver(&mut self) -> Result<Bytes, Problem> {
        let mut chunk = Vec::new();
        while chunk.len() < CHUNK_BYTES
            && let Some(delivery) = self.pulled.next()
        {
            append(Answered::Delivery(self.worker.message(delivery)?), &mut chunk);
        }
        if self.pulled.as_slice().is_empty() {
            self.pulled = Vec::new().into_iter();
            self.held = None;
        }
        Ok(chunk.into())
    }

    /// Does what the worker asks for, and returns the results of its settlements.
    async fn take(&mut self, request: ProcessRequest) -> Result<Option<Settled>, Problem> {
        match request.request {
            Some(Sent::Credit(credit)) => {
                self.credit = self.credit.saturating_add(u64::from(credit.more));
                Ok(None)
            }
            Some(Sent::Settle(settle)) => {
                self.credit = self.credit.saturating_add(u64::from(settle.credit));
                let body = settlements(settle.settlements);
                let results = self.worker.handlers.settle(&self.worker.handler, body).await?;
                self.settled(&results);
                Ok(Some(Settled { results: results.into_iter().map(result).collect() }))
            }
            Some(Sent::Attach(_)) => Err(invalid("the worker is attached already; begin another call")),
            None => Err(invalid("the message holds none of attach, settle and credit")),
        }
    }

    /// Forgets the deliveries that are settled or lost. One that was settled out of order is still to be settled.
    fn settled(&mut self, results: &[SettleResult]) {
        let is_over = |result: &&SettleResult| result.error.as_deref() != Some(OUT_OF_ORDER);
        let over: HashSet<_> = results.iter().filter(is_over).map(|result| &*result.token).collect();
        self.unsettled.retain(|(token, _)| !over.contains(&**token));
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        // A server that stops leaves them to their next owner, which delivers them again without counting a failure.
        if self.unsettled.is_empty() || self.server.options.stop.is_stopped() {
            return;
        }
        // A worker that is dropped together with its runtime leaves them to their leases.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let (handlers, handler) = (Arc::clone(&self.worker.handlers), std::mem::take(&mut self.worker.handler));
        let tokens = std::mem::take(&mut self.unsettled);
        runtime.spawn(async move {
            let results = tokens.into_iter().map(|(token, _)| Settlement::failed(token, GONE)).collect();
            if let Err(error) = handlers.settle(&handler, SettleBody { results }).await {
                tracing::warn!(%error, handler, "the deliveries of a worker that is gone wait for the end of their leases");
            }
        });
    }
}

impl Worker {
    fn message(&self, delivery: Delivery) -> Result<generated::Delivery, Problem> {
        let event = self.form.event(&delivery.event, &self.tenant, &self.scope)?;
        Ok(generated::Delivery {
            token: delivery.token,
            event: Some(event),
            position: delivery.position,
            partition: delivery.partition.map(|partition| partition.to_string()),
            attempt: delivery.attempt,
            last_reason: delivery.last_reason,
            until_ms: delivery.until.as_millis(),
            replay: delivery.replay.map(|replay| replay.to_string()),
            topic: delivery.topic.map(|topic| topic.to_string()),
            traceparent: delivery.trace.map(|trace| trace.to_string()),
        })
    }
}

async fn pending<T>(future: &mut Option<BoxFuture<'static, T>>) -> T {
    match future {
        Some(future) => future.await,
        None => std::future::pending().await,
    }
}

fn result(result: SettleResult) -> generated::SettleResult {
    generated::SettleResult { token: result.token, settled: result.settled, error: result.error }
}

fn append(answered: Answered, out: &mut Vec<u8>) {
    frames::append(&ProcessResponse { response: Some(answered) }, out);
}

fn answer(answered: Answered) -> Bytes {
    let mut out = Vec::new();
    append(answered, &mut out);
    out.into()
}
