//! `/v1/keys`: prepare keys, taken and given back without a commit.

use std::sync::Arc;

use annals_core::wire::records::Encoding;
use annals_core::wire::{read_key_change, read_key_rollback, write_found_key, write_key_changed};
use annals_core::{Code, Invalid, KeyChange, PrepareKeys, Release};
use axum::extract::{Path, RawQuery, Request, State};
use axum::http::HeaderMap;
use axum::response::Response;

use crate::asked::{self, Asked};
use crate::documents::answer;
use crate::problem::Problem;
use crate::query::Query;
use crate::router::Server;
use crate::source::tenant;

/// `GET /v1/keys/{name}/{key}`.
pub(crate) async fn look(
    State(server): State<Arc<Server>>,
    Path((name, key)): Path<(String, String)>,
    RawQuery(raw): RawQuery,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    Query::parse(raw.as_deref(), &[])?;
    match keys(&server, &headers)?.look(&name, &key).await? {
        Some(found) => answer(&headers, write_found_key(&name, &key, &found)).await,
        None => {
            let problem = Problem::new(Code::UnknownKey, format!("nobody holds the key {key:?} of {name}"));
            Err(problem.fact("name", name).fact("key", key))
        }
    }
}

/// `PUT /v1/keys/{name}/{key}`.
pub(crate) async fn put(
    State(server): State<Arc<Server>>,
    Path((name, key)): Path<(String, String)>,
    request: Request,
) -> Result<Response, Problem> {
    carry_out(&server, request, move |bytes, encoding| read_key_change(&name, &key, bytes, encoding)).await
}

/// `POST /v1/keys/{name}/{key}/rollback`.
pub(crate) async fn rollback(
    State(server): State<Arc<Server>>,
    Path((name, key)): Path<(String, String)>,
    request: Request,
) -> Result<Response, Problem> {
    carry_out(&server, request, move |bytes, encoding| read_key_rollback(&name, &key, bytes, encoding)).await
}

/// `DELETE /v1/keys/{name}/{key}?value`: the same without a body, which some programs do not send with this method.
pub(crate) async fn delete(
    State(server): State<Arc<Server>>,
    Path((name, key)): Path<(String, String)>,
    RawQuery(raw): RawQuery,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let query = Query::parse(raw.as_deref(), &["value"])?;
    let wrong = |error: serde_json::Error| Problem::query("value", format!("is not JSON: {error}; a text has quotes"));
    let value = query.text("value")?.map(serde_json::from_str).transpose().map_err(wrong)?;
    let change = KeyChange::Rollback(Release { value, ..Release::new(name, key) });
    make(&server, &headers, keys(&server, &headers)?, change).await
}

/// Reads a request, unless it is to be refused anyway, and makes the change that it is.
async fn carry_out(
    server: &Server,
    request: Request,
    read: impl FnOnce(&[u8], Encoding) -> Result<KeyChange, Invalid> + Send + 'static,
) -> Result<Response, Problem> {
    let port = |headers: &HeaderMap| keys(server, headers);
    let asked = asked::read(server, request, port, server.options.body_bytes_max, read).await?;
    let Asked { port, headers, read: change, held: _held } = asked;
    make(server, &headers, port, change).await
}

/// Changes of keys share the places of commits that are under way.
async fn make(
    server: &Server,
    headers: &HeaderMap,
    keys: Arc<dyn PrepareKeys>,
    change: KeyChange,
) -> Result<Response, Problem> {
    let _place = server.commits.try_acquire().map_err(|_| {
        Problem::new(Code::Overloaded, "too many commits are under way; nothing was changed, try again in a moment")
    })?;
    answer(headers, write_key_changed(keys.change(change).await?)).await
}

/// The prepare keys of the tenant that is named.
fn keys(server: &Server, headers: &HeaderMap) -> Result<Arc<dyn PrepareKeys>, Problem> {
    Ok(server.store.prepare_keys(tenant(headers)?)?)
}
