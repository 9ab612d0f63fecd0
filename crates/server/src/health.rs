//! `GET /health/live` and `GET /health/ready`.

use std::sync::Arc;

use annals_core::relay::RelayStatus;
use annals_core::{Code, LogStatus, StoreError};
use annals_runtime::{ProcessorHealth, TaskState, TaskStatus};
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::Response;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use crate::answer;
use crate::caller::Principal;
use crate::payload::Payload;
use crate::problem::Problem;
use crate::route::{Feature, Permission, get};
use crate::state::Server;

/// Returns the operations of health checks, which ignore the query.
pub(crate) fn feature() -> Feature {
    Feature::new(
        "Health",
        [
            get("/health/live", Permission::Open, live)
                .described("live", "Returns OK while the process runs.", Payload::json::<Live>())
                .ignoring_query(),
            get("/health/ready", Permission::Open, ready)
                .described(
                    "ready",
                    "Reports whether every log accepts commits and every processor advances, and the reasons if not.",
                    Payload::json::<Ready<'_>>(),
                )
                .ignoring_query()
                .refuses(&[Code::NotReady, Code::Closing]),
        ],
    )
}

/// The process answers.
#[derive(Serialize, ToSchema)]
pub(crate) struct Live {
    status: &'static str,
}

impl Live {
    pub(crate) const NOW: Self = Self { status: "live" };
}

/// Every log accepts commits.
#[derive(Serialize, ToSchema)]
struct Ready<'a> {
    /// `ready`, or `degraded` if a handler, filter, projection, saga or subscription is unhealthy.
    status: &'static str,
    /// The unhealthy handlers, filters, projections, sagas and subscriptions.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    degraded: &'a [Degraded<'a>],
    logs: &'a [Log<'a>],
    tasks: &'a [Task<'a>],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    relays: &'a [Relay],
}

/// The relay that publishes the events of a tenant. An unreachable broker does not make the server less ready: commits continue.
#[derive(Serialize, ToSchema)]
#[schema(as = RelayStatus)]
struct Relay {
    tenant: String,
    state: &'static str,
    position: u64,
    lag: u64,
    published: u64,
    held: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    fork: Option<Fork>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_error: Option<String>,
}

impl Relay {
    /// Returns why an operator should look at the relay, if there is a reason.
    fn degraded(&self) -> Option<Degraded<'_>> {
        let held = "the broker refused events, which are held; the collection annals-relay-held lists them";
        let reason = self.last_error.as_deref().or((self.held > 0).then_some(held))?;
        Some(Degraded { tenant: Some(&self.tenant), kind: "relay", name: None, reason })
    }
}

/// The point at which a restored log diverged from what had been published.
#[derive(Serialize, ToSchema)]
#[schema(as = RelayFork)]
struct Fork {
    incarnation: u32,
    at: u64,
    published: u64,
}

/// An unhealthy handler, filter, projection, definition of sagas or subscription.
#[derive(Serialize, ToSchema)]
#[schema(as = DegradedProcessor)]
struct Degraded<'a> {
    /// The tenant; absent if no processor of any tenant can be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    tenant: Option<&'a str>,
    /// `handler`, `filter`, `projection`, `saga` or `subscription`; `processors` where none can be read.
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    reason: &'a str,
}

/// A background task of this process.
#[derive(Serialize, ToSchema)]
struct Task<'a> {
    name: &'a str,
    state: &'static str,
    restarts: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_error: Option<&'a str>,
}

/// The status of a log.
#[derive(Serialize, ToSchema)]
#[schema(as = LogStatus)]
struct Log<'a> {
    tenant: &'a str,
    scope: &'a str,
    head: u64,
    commits: u64,
    syncs: u64,
    bytes: u64,
    recovery: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    sequencer: Option<Sequencer>,
    #[serde(skip_serializing_if = "Option::is_none")]
    refusing: Option<Refusing>,
    #[serde(skip_serializing_if = "Option::is_none")]
    records_refusing: Option<Refusing>,
}

/// The state of the sequencer as this process knows it.
#[derive(Serialize, ToSchema)]
#[schema(as = SequencerStatus)]
struct Sequencer {
    leads: bool,
    held: u64,
    lag_ms: Option<u64>,
}

#[derive(Serialize, ToSchema)]
struct Refusing {
    code: &'static str,
    detail: String,
}

/// Responds that the process is alive.
async fn live() -> Result<Response, Problem> {
    answer::json(StatusCode::OK, &Live::NOW)
}

/// Reports whether every log accepts commits, records and streams, and the reasons if one does not.
///
/// If the server has credentials, only a caller that may see every tenant, scope and event type sees logs and tasks. Others only learn
/// whether the server is ready.
async fn ready(State(server): State<Arc<Server>>, request: Request) -> Result<Response, Problem> {
    let all = sees_all(&server, &request.into_parts().0);
    if server.options.stop.is_stopped() {
        return Err(Problem::new(Code::Closing, StoreError::Closed.to_string()));
    }
    let status = server.store.status();
    let logs: Vec<Log<'_>> = status.iter().map(shown).collect();
    let reasons: Vec<String> = logs.iter().flat_map(reasons).collect();
    if reasons.is_empty() {
        if !all {
            return answer::json(
                StatusCode::OK,
                &Ready { status: "ready", degraded: &[], logs: &[], tasks: &[], relays: &[] },
            );
        }
        let tasks = server.host.tasks();
        let tasks: Vec<Task<'_>> = tasks.iter().map(task).collect();
        let relays: Vec<Relay> = server.host.relays().into_iter().map(relay).collect();
        let health = server.host.health().await.map_err(|error| error.to_string());
        let mut degraded = degraded(&health);
        degraded.extend(relays.iter().filter_map(Relay::degraded));
        // A stuck processor is no reason to stop sending requests to this process, so it is in the body and not in the status code.
        let status = if degraded.is_empty() { "ready" } else { "degraded" };
        let (degraded, relays) = (&degraded, &relays);
        return answer::json(StatusCode::OK, &Ready { status, degraded, logs: &logs, tasks: &tasks, relays });
    }
    if !all {
        return Err(Problem::new(
            Code::NotReady,
            "a log refuses commits, or records and streams; the log of the server has the reason",
        ));
    }
    // Serialising strings and numbers cannot fail.
    let logs = serde_json::to_value(&logs).unwrap_or(Value::Null);
    Err(Problem::new(Code::NotReady, reasons.join("; ")).fact("logs", logs))
}

/// Lists the processors that are not healthy.
fn degraded(health: &Result<Arc<Vec<ProcessorHealth>>, String>) -> Vec<Degraded<'_>> {
    match health {
        Err(reason) => vec![Degraded { tenant: None, kind: "processors", name: None, reason }],
        Ok(health) => {
            let named = health.iter().filter_map(|of| {
                let reason = of.degraded.as_deref()?;
                Some(Degraded { tenant: Some(&of.tenant), kind: of.kind, name: Some(&of.name), reason })
            });
            named.collect()
        }
    }
}

/// Returns whether a caller of an open operation may see details that name tenants and scopes. Reasons of failures may mention events of
/// any type.
pub(crate) fn sees_all(server: &Server, parts: &Parts) -> bool {
    let principal = Principal::of(parts);
    match (&principal, &server.guard) {
        (_, None) => true,
        (Principal::Known(access), _) => {
            let is_restricted =
                principal.restricted_to_types().is_some() || principal.restricted_to_streams().is_some();
            access.grant.covers_every_tenant() && principal.may_see_every_scope() && !is_restricted
        }
        (Principal::Anonymous, _) => false,
    }
}

fn relay(status: RelayStatus) -> Relay {
    let fork = |it: annals_core::Fork| Fork { incarnation: it.incarnation, at: it.at, published: it.published };
    Relay {
        tenant: status.tenant,
        state: status.state.as_str(),
        position: status.position,
        lag: status.lag,
        published: status.published,
        held: status.held,
        fork: status.fork.map(fork),
        last_error: status.last_error,
    }
}

fn task(status: &TaskStatus) -> Task<'_> {
    let state = match status.state {
        TaskState::Running => "running",
        TaskState::Restarting => "restarting",
        TaskState::Ended => "ended",
    };
    Task { name: &status.name, state, restarts: status.restarts, last_error: status.last_error.as_deref() }
}

fn reasons(log: &Log<'_>) -> impl Iterator<Item = String> {
    let said = |what: &str, why: &Refusing| format!("{}/{}{what}: {}", log.tenant, log.scope, why.detail);
    let commits = log.refusing.as_ref().map(|why| said("", why));
    let records = log.records_refusing.as_ref().map(|why| said(" (records and streams)", why));
    commits.into_iter().chain(records)
}

fn shown(log: &LogStatus) -> Log<'_> {
    let refusing = |error: &StoreError| Refusing { code: error.code().as_str(), detail: error.to_string() };
    Log {
        tenant: &log.tenant,
        scope: &log.scope,
        head: log.head,
        commits: log.commits,
        syncs: log.syncs,
        bytes: log.bytes,
        recovery: &log.recovery,
        sequencer: log.sequencer.map(|it| Sequencer { leads: it.leads, held: it.held, lag_ms: it.lag_ms }),
        refusing: log.refusing.as_ref().map(refusing),
        records_refusing: log.records_refusing.as_ref().map(refusing),
    }
}
