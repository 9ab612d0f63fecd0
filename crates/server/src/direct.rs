//! The API as connections call it: commits go straight to their handler, everything else through the router.
//!
//! Routing a commit costs as much as reading its body. For a commit, the same code runs here that the router would run: the site check,
//! then the gate.

use std::sync::Arc;

use annals_core::Store;
use axum::Router;
use axum::body::Body;
use axum::http::{Method, Request, Response};
use axum::response::IntoResponse;
use hyper::body::Incoming;
use tower_service::Service;

use crate::gate::Gate;
use crate::options::Options;
use crate::router::built;
use crate::site::Site;
use crate::state::Server;
use crate::v1::commits;

/// The service that answers the requests of a connection.
pub(crate) struct Direct {
    router: Router,
    commits: Option<(Arc<Server>, Gate)>,
    site: Option<Site>,
}

impl Direct {
    /// Serves a router of the caller's own, which may do anything with a commit before it reaches its handler.
    pub fn only(router: Router) -> Self {
        Self { router, commits: None, site: None }
    }

    /// Serves the API and nothing else.
    pub fn api(store: Arc<dyn Store>, options: Options) -> Self {
        let site = Site::of(&options);
        let (router, server) = built(store, options);
        let gate = commits::gate(&server);
        Self { router, commits: Some((server, gate)), site }
    }

    pub async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        if let Some(site) = &self.site
            && let Some(refused) = site.refuse(request.headers(), request.uri())
        {
            return refused.into_response();
        }
        match &self.commits {
            Some((server, gate)) if request.uri().path() == commits::PATH && request.method() == Method::POST => {
                gate.pass(gate.draining(request), |request| commits::answer(server, request)).await
            }
            _ => self.route(request.map(Body::new)).await,
        }
    }

    /// Answers a request that has passed the site check and is not a commit.
    pub async fn route(&self, request: Request<Body>) -> Response<Body> {
        match self.router.clone().call(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        }
    }
}
