//! Cross-origin access to the API (CORS). Off unless the operator names origins.
//!
//! An allowed page sends its own key or token. Cookies are never allowed, and the console's pages are not part of the API. So an allowed
//! page cannot act as the user who is signed in to the console.

use std::sync::Arc;

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri, header};
use axum::response::IntoResponse;

use crate::options::Options;
use crate::site::Site;

/// The origins whose pages may call the API; none by default.
#[derive(Debug, Clone, Default)]
pub struct Origins(Arc<[HeaderValue]>);

const METHODS: HeaderValue = HeaderValue::from_static("GET, HEAD, POST, PUT, PATCH, DELETE");
/// The response headers that a page may read besides the safelisted ones.
const EXPOSED: HeaderValue = HeaderValue::from_static("Content-Disposition, Retry-After");
/// For how many seconds a browser may cache a preflight response.
const REMEMBERED: HeaderValue = HeaderValue::from_static("600");

impl Origins {
    /// Parses origins such as `https://app.example.com` or `http://localhost:5173`.
    ///
    /// # Errors
    /// Returns a sentence that names the first text that is not an origin.
    pub fn read<T: AsRef<str>>(origins: &[T]) -> Result<Self, String> {
        let read = |text: &T| {
            let text = text.as_ref();
            origin(text).ok_or_else(|| {
                format!("{text:?} is not an origin; write each origin as https://HOST or https://HOST:PORT, without a path and without *")
            })
        };
        Ok(Self(origins.iter().map(read).collect::<Result<_, _>>()?))
    }

    /// Returns the origin of a request, if it is an allowed one and the request is for the API.
    fn page_of(&self, headers: &HeaderMap, uri: &Uri) -> Option<&HeaderValue> {
        let named = headers.get(header::ORIGIN).filter(|_| is_api(uri.path()))?;
        self.0.iter().find(|known| known.as_bytes().eq_ignore_ascii_case(named.as_bytes()))
    }

    /// Returns whether the request comes from a page of an allowed origin and is for the API.
    pub(crate) fn allow(&self, headers: &HeaderMap, uri: &Uri) -> bool {
        self.page_of(headers, uri).is_some()
    }
}

/// Parses an origin as browsers send it. A URL with more than a scheme, host and port is not an origin.
fn origin(text: &str) -> Option<HeaderValue> {
    let authority = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"))?;
    let parsed: Uri = text.parse().ok()?;
    let known = parsed.authority()?;
    let is_whole = known.as_str() == authority && !known.host().is_empty() && !authority.contains(['@', '*']);
    is_whole.then(|| HeaderValue::from_str(&text.to_ascii_lowercase()).ok()).flatten()
}

/// Returns whether a path belongs to the API. Pages served beside it check their callers themselves.
fn is_api(path: &str) -> bool {
    path == "/v1"
        || path.starts_with("/v1/")
        || path.starts_with("/health/")
        || matches!(path, "/openapi.json" | "/asyncapi.json")
}

/// The CORS policy, if origins are configured: it answers preflights and adds headers to responses.
#[derive(Debug, Clone)]
pub(crate) struct Cors {
    origins: Origins,
    site: Option<Site>,
}

impl Cors {
    /// Creates the policy of a server with these options, or returns `None` if no origin is named.
    pub fn of(options: &Options) -> Option<Self> {
        let origins = options.cors_origins.clone();
        (!origins.0.is_empty()).then(|| Self { origins, site: Site::of(options) })
    }

    /// Answers a preflight request of an allowed page. Returns `None` for any other request.
    pub fn preflight<B>(&self, request: &Request<B>) -> Option<Response<Body>> {
        let headers = request.headers();
        let asks = request.method() == Method::OPTIONS && headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
        if !asks || !self.origins.allow(headers, request.uri()) {
            return None;
        }
        if let Some(refused) = self.site.as_ref().and_then(|site| site.refuse(headers, request.uri())) {
            return Some(refused.into_response());
        }
        let mut response = StatusCode::NO_CONTENT.into_response();
        let answers = response.headers_mut();
        answers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, METHODS);
        answers.insert(header::ACCESS_CONTROL_MAX_AGE, REMEMBERED);
        // The list of allowed headers is not a safeguard: the key and the origin are what is checked.
        if let Some(wanted) = headers.get(header::ACCESS_CONTROL_REQUEST_HEADERS) {
            answers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, wanted.clone());
        }
        Some(response)
    }

    /// Returns the headers to add to the response to a request, or `None` if the request is not for the API.
    pub fn answers<B>(&self, request: &Request<B>) -> Option<Answers> {
        let origin = self.origins.page_of(request.headers(), request.uri()).cloned();
        is_api(request.uri().path()).then_some(Answers(origin))
    }
}

/// The CORS headers of a response. Contains the origin of the page if it is an allowed one.
pub(crate) struct Answers(Option<HeaderValue>);

impl Answers {
    pub fn put(self, headers: &mut HeaderMap) {
        // A cache must not serve one origin's response to another.
        headers.append(header::VARY, HeaderValue::from_static("Origin"));
        if let Some(origin) = self.0 {
            headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
            headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_scheme_host_and_port_and_nothing_else() {
        for text in ["https://app.example", "http://localhost:5173", "https://[::1]:8443", "HTTPS://App.Example"] {
            let read = Origins::read(&[text]);
            // The scheme of a URL is written small everywhere.
            assert_eq!(read.is_ok(), !text.starts_with("HTTPS"), "{text}");
        }
        for text in
            ["*", "https://*.example", "https://", "https://a.example/", "https://a.example/x", "null", "a.example", ""]
        {
            let refused = Origins::read(&[text]).expect_err(text);
            assert!(refused.contains("is not an origin"), "{refused}");
        }
        let refused = Origins::read(&["https://user@a.example"]).expect_err("a user");
        assert!(refused.contains("user@a.example"), "{refused}");
    }

    #[test]
    fn pages_beside_the_api_are_not_part_of_it() {
        for path in ["/v1", "/v1/log", "/health/ready", "/openapi.json"] {
            assert!(is_api(path), "{path}");
        }
        for path in ["/", "/console/log", "/console/handlers/act/pause", "/v12", "/metrics"] {
            assert!(!is_api(path), "{path}");
        }
    }
}
