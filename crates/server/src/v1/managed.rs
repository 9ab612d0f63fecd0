//! Shared code of operations on named resources: paged lists, definitions that are put, deletions with a reason, and waits that end when
//! the server stops.

use annals_core::handlers::{ActBody, Reason};
use annals_core::wire::parse_json;
use annals_core::{Code, limits};
use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::Response;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use utoipa::IntoParams;

use crate::answer::json;
use crate::body::{self, Held};
use crate::problem::Problem;
use crate::query::Limit;
use crate::state::Server;

/// The parameters of a list.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(super) struct ListQuery {
    /// The length of the page: 1 to 1,000, 100 when absent.
    #[param(inline)]
    limit: Option<Limit>,
    /// The `cursor` of the previous page.
    cursor: Option<String>,
}

impl ListQuery {
    /// Returns the cursor after which the page begins, and its length.
    pub(super) fn page(&self) -> Result<(Option<&str>, usize), Problem> {
        Ok((self.cursor.as_deref(), page_length(self.limit)?))
    }
}

pub(super) fn page_length(limit: Option<Limit>) -> Result<usize, Problem> {
    let limit = Limit::or_default(limit);
    if (1..=limits::PAGE_MAX).contains(&limit) {
        return Ok(limit);
    }
    Err(Problem::query("limit", format!("{limit} is not between 1 and {}", limits::PAGE_MAX)))
}

/// Reads the bytes of a definition, which its own type parses.
pub(super) async fn definition(server: &Server, request: Request) -> Result<Held, Problem> {
    let (parts, body) = request.into_parts();
    body::read(server, &parts, body).await
}

/// Reads a JSON body.
pub(super) async fn read<T: DeserializeOwned + Send + 'static>(
    server: &Server,
    request: Request,
) -> Result<T, Problem> {
    let held = definition(server, request).await?;
    let bytes = held.bytes.clone();
    Ok(body::parse(held.bytes.len(), move || parse_json(&bytes)).await??)
}

/// Reads the reason of a deletion or another act.
pub(super) async fn reason(server: &Server, request: Request) -> Result<Reason, Problem> {
    Ok(read::<ActBody>(server, request).await?.of_deletion()?)
}

/// Responds with the state of what was put, with 201 if it is new.
pub(super) fn put(new: bool, state: &impl Serialize) -> Result<Response, Problem> {
    json(if new { StatusCode::CREATED } else { StatusCode::OK }, state)
}

/// Responds that something was deleted.
pub(super) fn deleted() -> Result<Response, Problem> {
    #[derive(Serialize)]
    struct Deleted {
        deleted: bool,
    }
    json(StatusCode::OK, &Deleted { deleted: true })
}

/// Waits for a response that may take long, until the server stops. `again` names what the caller then has to repeat.
pub(super) async fn while_serving<T, E>(
    server: &Server,
    answer: impl Future<Output = Result<T, E>>,
    again: &str,
) -> Result<T, Problem>
where
    Problem: From<E>,
{
    tokio::select! {
        answered = answer => Ok(answered?),
        () = server.options.stop.stopped() => {
            Err(Problem::new(Code::Closing, format!("the server is shutting down; {again} again after its restart")))
        }
    }
}
