//! Pages that are served beside the API. The serving program supplies them. They read and act through the operations of the API in the
//! same process, so the same permissions, tenants, limits and audit log apply to them as to every caller.

use std::fmt;
use std::sync::Arc;

use annals_core::Clock;
use annals_core::credentials::Grant;
use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::HeaderMap;
use axum::response::Response;
use tower_service::Service;

use crate::options::Stop;
use crate::problem::Problem;
use crate::state::Server;

/// A function that builds the routes served beside the API. If a route has the same path as one of the API, the server panics at
/// start-up.
#[derive(Clone)]
pub struct Pages(Arc<dyn Fn(Api) -> Router + Send + Sync>);

impl Pages {
    /// Creates pages that `make` builds once the API exists.
    pub fn new(make: impl Fn(Api) -> Router + Send + Sync + 'static) -> Self {
        Self(Arc::new(make))
    }

    /// Returns the pages merged with `router`, which answers everything else.
    pub(crate) fn beside(&self, router: Router, server: &Arc<Server>) -> Router {
        let api = Api { router: router.clone(), server: Arc::clone(server) };
        self.0(api).merge(router)
    }
}

impl fmt::Debug for Pages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pages")
    }
}

/// The API as pages of the same process call it: through a function, without a connection.
#[derive(Clone)]
pub struct Api {
    router: Router,
    server: Arc<Server>,
}

impl fmt::Debug for Api {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Api")
    }
}

/// The caller of a page.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Who {
    /// Its identity, such as `key:ID`, or `anonymous` at a server without credentials.
    pub who: String,
    /// The name of its credential.
    pub name: Option<String>,
    /// Its permissions, or `None` at a server without credentials, where every caller may do everything.
    pub grant: Option<Grant>,
    /// The tenants that it may see, sorted.
    pub tenants: Vec<String>,
}

impl Api {
    /// Calls an operation. The headers carry the credential, the tenant and the content type, as they do over HTTP.
    pub async fn call(&self, request: Request<Body>) -> Response {
        match self.router.clone().call(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        }
    }

    /// Returns the caller that this `Authorization` header, or the connection's client certificate, identifies.
    ///
    /// # Errors
    /// Returns `unauthenticated` if the server has credentials and the request has no valid one.
    pub async fn who(&self, headers: &HeaderMap) -> Result<Who, Problem> {
        let mut tenants: Vec<String> = self.server.store.status().into_iter().map(|log| log.tenant).collect();
        tenants.sort_unstable();
        tenants.dedup();
        let Some(guard) = &self.server.guard else {
            return Ok(Who { who: "anonymous".to_owned(), name: None, grant: None, tenants });
        };
        let access = guard.known(headers).await?;
        tenants.retain(|tenant| guard.may_see(&access.grant, tenant));
        Ok(Who { who: access.who.clone(), name: access.name.clone(), grant: Some(access.grant.clone()), tenants })
    }

    /// Returns whether callers need credentials.
    pub fn is_secured(&self) -> bool {
        self.server.guard.is_some()
    }

    /// Returns whether this server encrypts connections.
    pub fn is_encrypted(&self) -> bool {
        self.server.options.tls.is_some()
    }

    /// Returns the signal that ends streams.
    pub fn stop(&self) -> &Stop {
        &self.server.options.stop
    }

    /// Returns the server's clock.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        self.server.host.clock()
    }
}
