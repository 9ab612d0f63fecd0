//! The router of the API: every feature, and what applies to all of them.

use std::sync::{Arc, LazyLock};

use annals_core::{Code, Store};
use axum::Router;
use axum::extract::Request;
use axum::http::Method;
use axum::middleware::from_fn_with_state;
use axum::routing::{MethodRouter, any};

use crate::gate::{Gate, gate};
use crate::options::Options;
use crate::problem::Problem;
use crate::route::{Feature, Permission};
use crate::security::Needs;
use crate::site::Site;
use crate::state::Server;
use crate::{errors, grpc, health, metrics, openapi, v1};

/// Returns every feature, in the order of the documentation.
pub(crate) fn features() -> Vec<Feature> {
    vec![
        v1::index::feature(),
        v1::commits::feature(),
        v1::transactions::feature(),
        v1::aggregates::feature(),
        v1::log::feature(),
        v1::follow::feature(),
        v1::streams::feature(),
        v1::verdicts::feature(),
        v1::records::feature(),
        v1::changes::feature(),
        v1::snapshots::feature(),
        v1::queries::feature(),
        v1::keys::feature(),
        v1::types::feature(),
        v1::filters::feature(),
        v1::handlers::feature(),
        v1::topics::feature(),
        v1::groups::feature(),
        v1::dead_letters::feature(),
        v1::processor_states::feature(),
        v1::projections::feature(),
        v1::queue::feature(),
        v1::sagas::feature(),
        v1::browse::feature(),
        v1::archive::feature(),
        v1::replays::feature(),
        v1::horizon::feature(),
        v1::partners::feature(),
        v1::stats::feature(),
        v1::sequencer::feature(),
        v1::backup::feature(),
        v1::credentials::feature(),
        v1::audit::feature(),
        v1::doctor::feature(),
        health::feature(),
        metrics::feature(),
        openapi::feature(),
        grpc::feature(),
        errors::feature(),
        v1::asyncapi::feature(),
    ]
}

/// The paths of the API, without duplicates.
pub(crate) static PATHS: LazyLock<Vec<&'static str>> = LazyLock::new(|| {
    let mut paths = Vec::new();
    for operation in features().iter().flat_map(|feature| &feature.operations) {
        if !paths.contains(&operation.path) {
            paths.push(operation.path);
        }
    }
    paths
});

/// The metrics label of requests that match no route.
const UNKNOWN: &str = "unknown";

/// Returns the API over `store`, with its errors, limits and metrics.
///
/// The router can be merged with routes of your own, which its limits and metrics then do not cover. Its response to unknown paths
/// becomes that of the merged router. Event streams end when `options.stop` is given or the store closes.
pub fn router(store: Arc<dyn Store>, options: Options) -> Router {
    let site = Site::of(&options);
    let (router, _) = built(store, options);
    match site {
        None => router,
        Some(site) => site.around(router),
    }
}

/// Builds the API and the pages beside it, without the check of [`Site`].
pub(crate) fn built(store: Arc<dyn Store>, options: Options) -> (Router, Arc<Server>) {
    let pages = options.pages.clone();
    let (router, server) = build(store, options);
    match pages {
        None => (router, server),
        Some(pages) => (pages.beside(router, &server), server),
    }
}

/// Builds the API, without the check of [`Site`], and the state that its handlers share.
pub(crate) fn build(store: Arc<dyn Store>, options: Options) -> (Router, Arc<Server>) {
    let paths = || PATHS.iter().chain(grpc::PATHS.iter()).copied();
    let server = Arc::new(Server::new(store, options, paths().chain([UNKNOWN])));
    // A request that matches no operation is refused for that reason, and not for its query.
    let around = |label| from_fn_with_state(Gate::new(&server, label, Needs::new(Permission::Open), true), gate);
    let mut router = Router::new();
    for path in paths() {
        let refused = MethodRouter::new().fallback(method_not_allowed).layer(around(path));
        router = router.route(path, refused);
    }
    for operation in features().into_iter().flat_map(|feature| feature.operations) {
        let gated = Gate::new(&server, operation.path, operation.needs, operation.inputs.query);
        let gated = if operation.audited { gated.auditing(operation.id) } else { gated };
        router = router.route(operation.path, operation.methods.route_layer(from_fn_with_state(gated, gate)));
    }
    for method in grpc::methods() {
        let gated = from_fn_with_state(Gate::new(&server, method.path, method.needs, false), gate);
        let speaking = from_fn_with_state(method.reads(), grpc::speaking);
        router = router.route(method.path, method.methods.route_layer(gated).route_layer(speaking));
    }
    let unknown = any(unknown_route).layer(around(UNKNOWN)).with_state(Arc::clone(&server));
    (router.fallback_service(unknown).with_state(Arc::clone(&server)), server)
}

async fn unknown_route(request: Request) -> Problem {
    let path = request.uri().path();
    Problem::new(Code::UnknownRoute, format!("there is no endpoint {path}; GET /v1 lists all endpoints"))
}

async fn method_not_allowed(method: Method, request: Request) -> Problem {
    let path = request.uri().path();
    Problem::new(
        Code::MethodNotAllowed,
        format!("{path} does not support {method}; the Allow header lists the supported methods"),
    )
}
