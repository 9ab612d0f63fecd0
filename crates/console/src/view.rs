//! The view of one page for one request: its caller, its parameters, and access to the API.

use std::collections::BTreeMap;
use std::sync::Arc;

use annals_server::{Api, Who};
use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, header};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};

use crate::Settings;
use crate::components::{Link, Notice};
use crate::examined::Examined;
use crate::page::{Act, Page, address};
use crate::samples::Samples;
use crate::values::text;

/// The largest response of the API that a page reads.
const ANSWER_BYTES_MAX: usize = 64 * 1024 * 1024;
/// The characters that are escaped in paths and queries.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
const TENANT: HeaderName = HeaderName::from_static("annals-tenant");

/// The parameters of a page.
pub(crate) type Parameters = BTreeMap<String, String>;

/// The view of one page for one request.
pub(crate) struct View {
    pub api: Api,
    pub settings: Arc<Settings>,
    pub samples: Arc<Samples>,
    pub examined: Arc<Examined>,
    pub page: &'static Page,
    pub who: Who,
    /// The credential of the session.
    pub credential: HeaderMap,
    pub tenant: String,
    /// The token of the acts of the page.
    pub token: String,
    pub signed_in: bool,
    pub parameters: Parameters,
}

/// The reason why something cannot be shown: a problem of the API.
#[derive(Debug)]
pub(crate) struct Refused {
    pub status: StatusCode,
    pub title: String,
    pub detail: String,
}

impl Refused {
    pub fn new(status: StatusCode, title: &str, detail: impl Into<String>) -> Self {
        Self { status, title: title.to_owned(), detail: detail.into() }
    }

    fn of(status: StatusCode, problem: &Value) -> Self {
        let advice = text(problem, "advice");
        let detail = [text(problem, "detail"), advice].into_iter().filter(|part| !part.is_empty());
        Self {
            status,
            title: format!("{} ({})", text(problem, "title"), text(problem, "code")),
            detail: detail.collect::<Vec<_>>().join(". "),
        }
    }

    /// Returns the notice that a page shows for it.
    pub fn notice(&self) -> Notice {
        // A feature that this kind of store does not support is not a fault.
        let class = if self.status == StatusCode::NOT_IMPLEMENTED { "soft" } else { "bad" };
        Notice { class, title: self.title.clone(), text: self.detail.clone(), link: None }
    }
}

impl From<askama::Error> for Refused {
    fn from(error: askama::Error) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "The page cannot be rendered.", error.to_string())
    }
}

impl View {
    /// Returns a parameter that is present and not empty.
    pub fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// Returns a parameter, or an empty text.
    pub fn value(&self, name: &str) -> String {
        self.parameters.get(name).cloned().unwrap_or_default()
    }

    /// Reads a document from the API.
    pub async fn get(&self, path: &str) -> Result<Value, Refused> {
        self.send(Method::GET, path, None).await
    }

    /// Reads with these parameters, leaving out empty ones.
    pub async fn query(&self, path: &str, parameters: &[(&str, &str)]) -> Result<Value, Refused> {
        self.get(&with(path, parameters)).await
    }

    /// Calls an operation with a body.
    pub async fn send(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Value, Refused> {
        let response = self.response(method, path, body).await?;
        let status = response.status();
        let read = to_bytes(response.into_body(), ANSWER_BYTES_MAX).await;
        let bytes = read.map_err(|error| unreadable(&error.to_string()))?;
        let document = serde_json::from_slice(&bytes).unwrap_or_else(|_| json!({}));
        // A server that is not ready returns the reasons in the same shape.
        match status.is_success() || path == "/health/ready" {
            true => Ok(document),
            false => Err(Refused::of(status, &document)),
        }
    }

    /// Calls an operation whose response may have any length and type.
    pub async fn stream(&self, path: &str) -> Result<Response<Body>, Refused> {
        let response = self.response(Method::GET, path, None).await?;
        if response.status().is_success() {
            return Ok(response);
        }
        let status = response.status();
        let bytes = to_bytes(response.into_body(), ANSWER_BYTES_MAX).await.unwrap_or_default();
        Err(Refused::of(status, &serde_json::from_slice(&bytes).unwrap_or_else(|_| json!({}))))
    }

    async fn response(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Response<Body>, Refused> {
        let bytes = body.map(Value::to_string).unwrap_or_default();
        let mut request = Request::builder().method(method).uri(path);
        if let Some(headers) = request.headers_mut() {
            headers.extend(self.credential.clone());
            if let Ok(tenant) = HeaderValue::from_bytes(self.tenant.as_bytes()) {
                headers.insert(TENANT, tenant);
            }
            if body.is_some() {
                headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
                headers.insert(header::CONTENT_LENGTH, bytes.len().into());
            }
        }
        let body = if body.is_some() { Body::from(bytes) } else { Body::empty() };
        let request = request.body(body).map_err(|error| unreadable(&error.to_string()))?;
        Ok(self.api.call(request).await)
    }

    /// Returns the address of a page for the same tenant.
    pub fn link(&self, page: &str, parameters: &[(&str, &str)]) -> String {
        let path = if page == "overview" { "/".to_owned() } else { format!("/console/{page}") };
        with(&with(&path, &[("tenant", self.chosen())]), parameters)
    }

    /// Returns a link to an act of this page, if the caller may perform it.
    pub fn act(&self, id: &str, parameters: &[(&str, &str)]) -> Option<Link> {
        self.act_of(self.page, id, parameters)
    }

    /// Returns a link to an act of any page, if the caller may perform it.
    pub fn act_of(&self, page: &Page, id: &str, parameters: &[(&str, &str)]) -> Option<Link> {
        let act = page.acts.iter().find(|act| act.id == id)?;
        let path = format!("/console/{}/act/{id}", page.id);
        let href = with(&with(&path, &[("tenant", self.chosen())]), parameters);
        act.permission.is_of(self.who.grant.as_ref()).then(|| Link::new(act.title, href))
    }

    /// Returns links to those of these acts that the caller may perform.
    pub fn acts(&self, ids: &[&str], parameters: &[(&str, &str)]) -> Vec<Link> {
        ids.iter().filter_map(|id| self.act(id, parameters)).collect()
    }

    /// Returns the address to which an act returns.
    pub fn back(&self, act: &Act) -> String {
        let kept: Vec<(&str, String)> = act.back.iter().map(|name| (*name, self.value(name))).collect();
        let kept: Vec<(&str, &str)> = kept.iter().map(|(name, value)| (*name, value.as_str())).collect();
        self.link(self.page.id, &kept)
    }

    /// Returns a link to a download of this page, if the caller may have it.
    pub fn file(&self, id: &str, text: &str, parameters: &[(&str, &str)]) -> Option<Link> {
        let file = self.page.files.iter().find(|file| file.id == id)?;
        let path = format!("/console/{}/file/{id}", self.page.id);
        let href = with(&with(&path, &[("tenant", self.chosen())]), parameters);
        file.permission.is_of(self.who.grant.as_ref()).then(|| Link::new(text, href))
    }

    /// Returns a link to the next page of a list, if there is one.
    pub fn next(&self, text: &str, parameter: &str, value: &Value) -> Option<Link> {
        let value = crate::values::shown(value);
        let kept: Vec<(&str, &str)> = self
            .parameters
            .iter()
            .filter(|(name, _)| *name != parameter && *name != "tenant" && *name != "done")
            .map(|(name, value)| (&**name, &**value))
            .collect();
        let href = with(&self.link(self.page.id, &kept), &[(parameter, &value)]);
        (!value.is_empty()).then(|| Link::new(text, href))
    }

    /// Returns the hidden fields of a form of this page.
    pub fn hidden(&self) -> Vec<(String, String)> {
        let chosen = self.chosen();
        if chosen.is_empty() { Vec::new() } else { vec![("tenant".to_owned(), chosen.to_owned())] }
    }

    /// Returns the address of this page.
    pub fn address(&self) -> String {
        address(self.page)
    }

    /// Returns the tenant in the address.
    fn chosen(&self) -> &str {
        self.parameters.get("tenant").map_or("", String::as_str)
    }

    /// Returns the path of an act with its parameters filled in.
    pub fn filled(&self, path: &str) -> String {
        fill(path, |name| escape(self.parameters.get(name).map_or("", String::as_str)))
    }

    /// Returns the description of an act with its parameters filled in.
    pub fn about(&self, act: &Act) -> String {
        fill(act.about, |name| self.value(name))
    }
}

fn unreadable(why: &str) -> Refused {
    Refused::new(StatusCode::BAD_GATEWAY, "The response cannot be read.", why)
}

/// Escapes a part of a path or a query.
pub(crate) fn escape(text: &str) -> String {
    utf8_percent_encode(text, ESCAPED).to_string()
}

/// Returns a path with additional parameters, leaving out empty ones.
pub(crate) fn with(path: &str, parameters: &[(&str, &str)]) -> String {
    let mut path = path.to_owned();
    for (name, value) in parameters.iter().filter(|(_, value)| !value.is_empty()) {
        path.push(if path.contains('?') { '&' } else { '?' });
        path.push_str(&format!("{}={}", escape(name), escape(value)));
    }
    path
}

/// Replaces each name in braces in a text.
fn fill(text: &str, value: impl Fn(&str) -> String) -> String {
    let mut parts = text.split('{');
    let mut filled = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.split_once('}') {
            Some((name, rest)) => {
                filled.push_str(&value(name));
                filled.push_str(rest);
            }
            None => filled.push_str(part),
        }
    }
    filled
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_escape_what_they_carry() {
        assert_eq!(with("/x", &[("a", "1&2"), ("b", ""), ("c", "ž/?")]), "/x?a=1%262&c=%C5%BE%2F%3F");
        assert_eq!(fill("/v1/{name}/x/{id}", |name| format!("<{name}>")), "/v1/<name>/x/<id>");
    }
}
