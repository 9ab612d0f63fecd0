//! The service `Handlers`: what a worker sends.

use std::sync::Arc;

use annals_core::Code;
use annals_core::handlers::{DeliveryFailure, PullBody, SettleBody, Settlement};
use axum::extract::{Request, State};
use axum::response::Response;
use tokio::time::timeout;

use super::Method;
use super::attached::{Attached, Worker};
use super::documents::Form;
use super::feed::stopping;
use super::frames::{Messages, invalid};
use super::generated::process_request::Request as Sent;
use super::generated::{self, Attach, ProcessRequest};
use crate::caller::Caller;
use crate::problem::Problem;
use crate::route::Permission;
use crate::scoped::ScopedHandlers;
use crate::state::Server;

pub(super) fn methods() -> Vec<Method> {
    vec![Method::new("/annals.v1.Handlers/Process", Permission::Writer, process).naming_scope()]
}

/// The largest message of a worker: a thousand settlements with their reasons.
const MESSAGE_BYTES_MAX: usize = 8 * 1024 * 1024;
/// How long one pull waits. The next one follows at once.
const PULL_WAIT_MS: u64 = 20_000;

async fn process(State(server): State<Arc<Server>>, caller: Caller, request: Request) -> Result<Response, Problem> {
    let handlers = ScopedHandlers::of(&server, &caller)?;
    let mut messages = Messages::new(&server, request, MESSAGE_BYTES_MAX)?;
    let attach = attach(&server, &mut messages).await?;
    let form = Form::of(attach.encoding)?;
    let pull = pull(&attach);
    pull.validate()?;
    handlers.get(&attach.handler).await?;
    let worker = Worker {
        scope: server.host.handler_scope(&caller.tenant, &attach.handler),
        tenant: caller.tenant,
        handlers: Arc::new(handlers),
        handler: attach.handler,
        pull,
        form,
    };
    Ok(Attached::new(server, worker, messages, u64::from(attach.credit))?.answered())
}

/// Waits for the first message.
async fn attach(server: &Server, messages: &mut Messages) -> Result<Attach, Problem> {
    let idle_max = server.options.body_idle_max;
    let first = tokio::select! {
        first = timeout(idle_max, messages.next::<ProcessRequest>()) => first,
        () = server.options.stop.stopped() => return Err(stopping()),
    };
    let first = first.map_err(|_| {
        let message = format!("no message arrived for {idle_max:?}; send attach first");
        Problem::new(Code::RequestTimeout, message)
    })??;
    match first.and_then(|first| first.request) {
        Some(Sent::Attach(attach)) => Ok(attach),
        _ => Err(invalid("the first message is not attach")),
    }
}

fn pull(attach: &Attach) -> PullBody {
    let usual = PullBody::default();
    let lease_ms = if attach.lease_ms == 0 { usual.lease_ms } else { attach.lease_ms };
    PullBody { wait_ms: PULL_WAIT_MS, lease_ms, worker: attach.worker.clone(), ..usual }
}

/// Returns the settlements of a message.
pub(super) fn settlements(settlements: Vec<generated::Settlement>) -> SettleBody {
    let failure = |failure: generated::Failure| {
        let generated::Failure { reason, retry_after_ms, never } = failure;
        DeliveryFailure { reason, retry_after_ms, never }
    };
    let results = settlements
        .into_iter()
        .map(|settled| Settlement { token: settled.token, failure: settled.failure.map(failure) })
        .collect();
    SettleBody { results }
}
