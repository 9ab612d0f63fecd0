//! The addresses of the API, and what their handlers share.

use std::sync::Arc;

use annals_core::{Code, Store};
use axum::Router;
use axum::extract::{Request, State};
use axum::http::Method;
use axum::middleware::from_fn_with_state;
use axum::routing::{MethodRouter, any, get, post, put};
use tokio::sync::Semaphore;

use crate::body;
use crate::gate::{Gate, gate};
use crate::metrics::Metrics;
use crate::options::{Callers, Options};
use crate::problem::Problem;
use crate::site::this_machine_only;
use crate::v1::queries::How;
use crate::v1::{
    aggregates, backup, changes, commits, follow, index, keys, log, queries, records, sequencer, snapshots, stats,
    streams, transactions, verdicts,
};
use crate::{health, metrics};

/// What the handlers share.
pub(crate) struct Server {
    pub store: Arc<dyn Store>,
    pub options: Options,
    pub metrics: Metrics,
    /// One permit for each commit or transaction that may be under way.
    pub commits: Semaphore,
    /// One permit for each byte of request bodies that may be held.
    pub bodies: Arc<Semaphore>,
    /// One permit for each backup that may be under way.
    pub backups: Arc<Semaphore>,
}

impl Server {
    /// The place of a route in [`paths`].
    pub fn place_of(&self, path: &str) -> usize {
        routes().iter().position(|(known, _)| *known == path).unwrap_or(routes().len())
    }
}

type Route = (&'static str, MethodRouter<Arc<Server>>);

fn routes() -> Vec<Route> {
    vec![
        ("/v1", get(index::index)),
        (commits::PATH, post(commits::commit)),
        ("/v1/transactions", post(transactions::transact)),
        ("/v1/aggregates/{name}", get(aggregates::ids)),
        ("/v1/aggregates/{name}/{id}/commits", get(aggregates::commits)),
        ("/v1/aggregates/{name}/{id}/requests/{request_id}", get(aggregates::request)),
        ("/v1/log", get(log::page)),
        ("/v1/log/follow", get(follow::follow)),
        ("/v1/log/{sequence_number}", get(log::event)),
        ("/v1/streams", get(streams::list)),
        ("/v1/streams/{name}", get(streams::events)),
        ("/v1/streams/{name}/entries", get(streams::entries)),
        ("/v1/streams/{name}/positions/{sequence_number}", get(streams::position)),
        ("/v1/streams/{name}/state", get(streams::state)),
        ("/v1/stats", get(stats::stats)),
        ("/v1/sequencer", get(sequencer::state)),
        ("/v1/held", get(sequencer::held)),
        ("/v1/held/retry", post(sequencer::retry)),
        ("/v1/held/accept", post(sequencer::accept)),
        ("/v1/backup", get(backup::whole).post(backup::since)),
        ("/v1/streams/{name}/verdicts", post(verdicts::append)),
        ("/v1/records/collections", get(records::list)),
        ("/v1/records/collections/{collection}", get(records::describe).put(records::declare)),
        ("/v1/records/collections/{collection}/find", post(records::find)),
        ("/v1/records/collections/{collection}/explain", post(records::explain)),
        ("/v1/records/collections/{collection}/count", post(records::count)),
        ("/v1/records/collections/{collection}/get", post(records::get)),
        ("/v1/records/collections/{collection}/ids/{id}", get(records::get_by_text)),
        ("/v1/records/changes", get(changes::page).post(records::write)),
        ("/v1/records/changes/last", get(changes::last)),
        ("/v1/records/changes/follow", get(changes::follow)),
        ("/v1/snapshots/{aggregate}", put(snapshots::declare)),
        ("/v1/snapshots/{aggregate}/{id}", get(snapshots::load).put(snapshots::save).delete(snapshots::delete)),
        ("/v1/query/{aggregate}/snapshots/single", queries::snapshots(How::Single)),
        ("/v1/query/{aggregate}/snapshots/list", queries::snapshots(How::List)),
        ("/v1/query/{aggregate}/snapshots/paged", queries::snapshots(How::Paged)),
        ("/v1/query/{aggregate}/snapshots/count", queries::snapshots(How::Count)),
        ("/v1/query/{aggregate}/snapshots/explain", queries::snapshots(How::Explain)),
        ("/v1/query/{aggregate}/commits/single", queries::commits(How::Single)),
        ("/v1/query/{aggregate}/commits/list", queries::commits(How::List)),
        ("/v1/query/{aggregate}/commits/paged", queries::commits(How::Paged)),
        ("/v1/query/{aggregate}/commits/count", queries::commits(How::Count)),
        ("/v1/query/{aggregate}/commits/explain", queries::commits(How::Explain)),
        ("/v1/keys/{name}/{key}", get(keys::look).put(keys::put).delete(keys::delete)),
        ("/v1/keys/{name}/{key}/rollback", post(keys::rollback)),
        ("/health/live", get(health::live)),
        ("/health/ready", get(health::ready)),
        ("/metrics", get(metrics::metrics)),
    ]
}

/// The addresses, in the order of the documentation.
pub(crate) fn paths() -> Vec<&'static str> {
    routes().into_iter().map(|(path, _)| path).collect()
}

/// The API over `store`, with its errors, limits and metrics.
///
/// It can be merged with routes of your own, which its limits and metrics then do not cover; its answer for unknown addresses becomes
/// that of the whole. Event streams end when `options.stop` is given or the store closes.
pub fn router(store: Arc<dyn Store>, options: Options) -> Router {
    let callers = options.callers;
    let (router, _) = build(store, options);
    match callers {
        Callers::Anyone => router,
        Callers::ThisMachine => this_machine_only(router),
    }
}

/// The API, which lets anyone in, and what its handlers share.
pub(crate) fn build(store: Arc<dyn Store>, options: Options) -> (Router, Arc<Server>) {
    let routes = routes();
    let paths = routes.iter().map(|(path, _)| *path).chain(["unknown"]);
    let server = Arc::new(Server {
        metrics: Metrics::new(paths),
        commits: Semaphore::new(options.commits_in_flight_max.min(Semaphore::MAX_PERMITS)),
        bodies: Arc::new(Semaphore::new(options.body_bytes_in_flight_max.min(Semaphore::MAX_PERMITS))),
        backups: Arc::new(Semaphore::new(backup::AT_ONCE)),
        store,
        options,
    });
    let gated = |place: usize, methods: MethodRouter<Arc<Server>>| {
        methods.layer(from_fn_with_state(Gate::new(&server, place), gate))
    };
    let unknown = gated(routes.len(), any(unknown_route)).with_state(Arc::clone(&server));
    let mut router = Router::new();
    for (place, (path, methods)) in routes.into_iter().enumerate() {
        router = router.route(path, gated(place, methods.fallback(method_not_allowed)));
    }
    (router.fallback_service(unknown).with_state(Arc::clone(&server)), server)
}

async fn unknown_route(State(server): State<Arc<Server>>, request: Request) -> Problem {
    let path = request.uri().path().to_owned();
    body::discard(&server.options, request.into_body());
    Problem::new(Code::UnknownRoute, format!("there is nothing at {path}; GET /v1 lists the addresses"))
}

async fn method_not_allowed(State(server): State<Arc<Server>>, method: Method, request: Request) -> Problem {
    let path = request.uri().path().to_owned();
    body::discard(&server.options, request.into_body());
    Problem::new(Code::MethodNotAllowed, format!("{path} does not take {method}; the Allow header says what it takes"))
}
