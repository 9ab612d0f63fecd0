//! `/v1/keys`: prepare keys, taken and released without a commit.

use std::sync::Arc;

use annals_core::wire::records::Encoding;
use annals_core::wire::{read_key_change, read_key_rollback, write_found_key, write_key_changed, write_key_page};
use annals_core::{Code, Invalid, KeyChange, KeysQuery, PrepareKeys, Release};
use axum::extract::{Path, Request, State};
use axum::response::Response;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::accept::Accept;
use crate::asked::{self, Asked};
use crate::caller::Caller;
use crate::documents::answer;
use crate::payload::{Document, Payload};
use crate::problem::Problem;
use crate::query::{Limit, ListQuery, Query};
use crate::route::{self, Feature, Permission, get, post};
use crate::schemas;
use crate::state::Server;

/// Returns the operations on prepare keys.
pub(crate) fn feature() -> Feature {
    const KEY: &str = "/v1/keys/{name}/{key}";
    let changed = Payload::document::<schemas::KeyChanged>;
    let refusals = &[Code::KeyTaken, Code::KeyNotHeld, Code::Overloaded];
    Feature::new(
        "Prepare keys",
        [
            get("/v1/keys/{name}", Permission::Reader, list).described(
                "listKeys",
                "Lists the prepare keys of a name that are held, in order.",
                Payload::document::<Document>(),
            ),
            get(KEY, Permission::Reader, look)
                .described("lookUpKey", "Returns a prepare key that is held.", Payload::document::<schemas::FoundKey>())
                .refuses(&[Code::UnknownKey]),
            route::put(KEY, Permission::Writer, put)
                .described("prepareKey", "Takes a prepare key, or changes one that is held.", changed())
                .takes(Payload::asked::<schemas::KeyChange>())
                .refuses(refusals),
            route::delete(KEY, Permission::Writer, delete)
                .described("releaseKey", "Rolls back a prepare key.", changed())
                .refuses(refusals),
            post("/v1/keys/{name}/{key}/rollback", Permission::Writer, rollback)
                .described(
                    "rollBackKey",
                    "Rolls back a prepare key; the body has the value that it must have.",
                    changed(),
                )
                .takes(Payload::asked::<schemas::KeyRollback>())
                .refuses(refusals),
        ],
    )
}

/// The parameters of a deletion.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct DeleteQuery {
    /// The value that the key must have, as JSON.
    value: Option<String>,
}

/// `GET /v1/keys/{name}`.
async fn list(
    State(server): State<Arc<Server>>,
    Path(name): Path<String>,
    Query(query): Query<ListQuery>,
    caller: Caller,
    accept: Accept,
) -> Result<Response, Problem> {
    let wanted = KeysQuery {
        after: query.after.map(Into::into),
        limit: Limit::or_default(query.limit),
        ..KeysQuery::new(name.as_str())
    };
    let keys = server.store.prepare_keys(&caller.tenant)?;
    let page = server.query_of_the_log(async move { keys.list(wanted).await }).await?;
    answer(accept, write_key_page(&name, &page)).await
}

/// `GET /v1/keys/{name}/{key}`.
async fn look(
    State(server): State<Arc<Server>>,
    Path((name, key)): Path<(String, String)>,
    caller: Caller,
    accept: Accept,
) -> Result<Response, Problem> {
    match server.store.prepare_keys(&caller.tenant)?.look(&name, &key).await? {
        Some(found) => answer(accept, write_found_key(&name, &key, &found)).await,
        None => {
            let problem = Problem::new(Code::UnknownKey, format!("the key {key:?} of {name} is not held"));
            Err(problem.fact("name", name).fact("key", key))
        }
    }
}

/// `PUT /v1/keys/{name}/{key}`.
async fn put(
    State(server): State<Arc<Server>>,
    Path((name, key)): Path<(String, String)>,
    caller: Caller,
    accept: Accept,
    request: Request,
) -> Result<Response, Problem> {
    carry_out(&server, caller, accept, request, move |bytes, encoding| read_key_change(&name, &key, bytes, encoding))
        .await
}

/// `POST /v1/keys/{name}/{key}/rollback`.
async fn rollback(
    State(server): State<Arc<Server>>,
    Path((name, key)): Path<(String, String)>,
    caller: Caller,
    accept: Accept,
    request: Request,
) -> Result<Response, Problem> {
    carry_out(&server, caller, accept, request, move |bytes, encoding| read_key_rollback(&name, &key, bytes, encoding))
        .await
}

/// `DELETE /v1/keys/{name}/{key}?value`: a rollback without a body, because some programs send none with this method.
async fn delete(
    State(server): State<Arc<Server>>,
    Path((name, key)): Path<(String, String)>,
    Query(query): Query<DeleteQuery>,
    caller: Caller,
    accept: Accept,
) -> Result<Response, Problem> {
    let wrong =
        |error: serde_json::Error| Problem::query("value", format!("is not JSON: {error}; write a string in quotes"));
    let value = query.value.as_deref().map(serde_json::from_str).transpose().map_err(wrong)?;
    let change = KeyChange::Rollback(Release { value, ..Release::new(name, key) });
    make(&server, accept, server.store.prepare_keys(&caller.tenant)?, change).await
}

/// Reads a request and makes the change in it. The tenant is checked first, so that a refused body is not read.
async fn carry_out(
    server: &Server,
    caller: Caller,
    accept: Accept,
    request: Request,
    read: impl FnOnce(&[u8], Encoding) -> Result<KeyChange, Invalid> + Send + 'static,
) -> Result<Response, Problem> {
    let keys = server.store.prepare_keys(&caller.tenant)?;
    let asked = asked::read(server, request, server.options.body_bytes_max, read).await?;
    let Asked { read: change, held: _held } = asked;
    make(server, accept, keys, change).await
}

/// Changes a key. Changes of keys share the places of commits in flight.
async fn make(
    server: &Server,
    accept: Accept,
    keys: Arc<dyn PrepareKeys>,
    change: KeyChange,
) -> Result<Response, Problem> {
    let _place = server.place("nothing was changed; retry in a moment")?;
    answer(accept, write_key_changed(keys.change(change).await?)).await
}
