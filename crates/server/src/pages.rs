//! Pages beside the API. They are made by the program that serves, and read and act through the operations of the API in the same
//! process, so that permissions, tenants, limits and the audit log are those of every other caller.

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

/// Makes the routes that are served beside the API. A route of the API goes before one of the same path, which panics at the start.
#[derive(Clone)]
pub struct Pages(Arc<dyn Fn(Api) -> Router + Send + Sync>);

impl Pages {
    /// Pages that `make` makes once the API is there.
    pub fn new(make: impl Fn(Api) -> Router + Send + Sync + 'static) -> Self {
        Self(Arc::new(make))
    }

    /// The pages, with `router` for everything else.
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

/// The API as pages of the same process call it: by a function, without a connection.
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

/// A caller of pages.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Who {
    /// Who it is, such as `key:ID`; `anonymous` at a server without credentials.
    pub who: String,
    /// The name of its credential.
    pub name: Option<String>,
    /// What it may do; none at a server without credentials, where every caller may do everything.
    pub grant: Option<Grant>,
    /// The tenants that it may see, in order.
    pub tenants: Vec<String>,
}

impl Api {
    /// Calls an operation. The headers carry the credential, the tenant and the content type, as over HTTP.
    pub async fn call(&self, request: Request<Body>) -> Response {
        match self.router.clone().call(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        }
    }

    /// The caller with this `Authorization`, or with the client certificate of the connection.
    ///
    /// # Errors
    /// `unauthenticated` at a server with credentials, if there is none that is valid.
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

    /// Whether callers need credentials.
    pub fn is_secured(&self) -> bool {
        self.server.guard.is_some()
    }

    /// Whether connections are encrypted by this server.
    pub fn is_encrypted(&self) -> bool {
        self.server.options.tls.is_some()
    }

    /// The signal that ends streams.
    pub fn stop(&self) -> &Stop {
        &self.server.options.stop
    }

    /// The server's clock.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        self.server.host.clock()
    }
}
