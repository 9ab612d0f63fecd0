//! The API while its store is being opened: the server is live, and reports why it is not ready.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use annals_core::{Code, Store};
use axum::body::Body;
use axum::http::{Method, Request, Response, StatusCode};
use axum::response::IntoResponse;
use hyper::body::Incoming;

use crate::answer;
use crate::direct::Direct;
use crate::health::Live;
use crate::options::Options;
use crate::problem::Problem;
use crate::site::Site;

/// The reason why a store is not open yet, as a sentence. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Obstacle(Arc<Mutex<String>>);

impl Obstacle {
    /// Replaces the reason.
    pub fn say(&self, sentence: impl Into<String>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = sentence.into();
    }

    fn said(&self) -> String {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The API of a store, once it is open.
pub(crate) struct Opening {
    open: OnceLock<(Direct, Arc<dyn Store>)>,
    obstacle: Obstacle,
    site: Option<Site>,
    /// Whether callers see the reason. If there are credentials they do not, because no caller can be checked yet.
    tells: bool,
}

impl Opening {
    pub fn new(obstacle: Obstacle, options: &Options) -> Self {
        Self { open: OnceLock::new(), obstacle, site: Site::of(options), tells: options.security.is_none() }
    }

    /// Creates one that is open from the beginning.
    pub fn open(api: Direct, store: Arc<dyn Store>) -> Self {
        Self { open: OnceLock::from((api, store)), obstacle: Obstacle::default(), site: None, tells: true }
    }

    /// Opens it. Later calls do nothing.
    pub fn set(&self, api: Direct, store: Arc<dyn Store>) {
        let _ = self.open.set((api, store));
    }

    pub fn is_open(&self) -> bool {
        self.open.get().is_some()
    }

    pub fn store(&self) -> Option<&Arc<dyn Store>> {
        self.open.get().map(|(_, store)| store)
    }

    pub async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        match self.open.get() {
            Some((api, _)) => api.answer(request).await,
            None => self.not_yet(&request),
        }
    }

    /// Answers a request without a body that was admitted before.
    pub async fn answer_again(&self, request: Request<Body>) -> Response<Body> {
        match self.open.get() {
            Some((api, _)) => api.route(request).await,
            None => Problem::new(Code::NotReady, "the store is not open yet").into_response(),
        }
    }

    fn not_yet(&self, request: &Request<Incoming>) -> Response<Body> {
        if let Some(site) = &self.site
            && let Some(refused) = site.refuse(request.headers(), request.uri())
        {
            return refused.into_response();
        }
        if request.uri().path() == "/health/live" && request.method() == Method::GET {
            return answer::json(StatusCode::OK, &Live::NOW).unwrap_or_else(IntoResponse::into_response);
        }
        let why = if self.tells { self.obstacle.said() } else { "the log of the server has the reason".to_owned() };
        let problem = Problem::new(Code::NotReady, format!("the store is not open yet: {why}"))
            .advise("Wait and retry: the store is opened as soon as the cause is removed. Nothing was stored.");
        // The unread body would otherwise be parsed as the next request.
        if request.method() == Method::GET { problem } else { problem.closing() }.into_response()
    }
}
