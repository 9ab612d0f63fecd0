//! Operations that the audit log records. An act is stored before it is carried out, so that none is missing; its outcome is stored
//! afterwards.

use annals_core::Code;
use annals_core::audit::{ActBegun, ActEnded, ActOutcome};
use axum::body::{Body, HttpBody};
use axum::extract::Request;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;

use crate::body::{Taken, read_taken};
use crate::caller::{Caller, Principal};
use crate::media;
use crate::problem::Problem;
use crate::reader::READER;
use crate::state::Server;

/// Reasons are truncated to this length before they are recorded.
const REASON_BYTES_MAX: usize = 4 * 1024;

/// The reason in the body of an act, and the person it names.
#[derive(Deserialize, Default)]
struct Why {
    #[serde(default)]
    reason: Option<String>,
    #[serde(default)]
    by: Option<String>,
}

/// Records an act of a known caller and carries it out. An act that cannot be recorded is refused.
pub(crate) async fn audited(server: &Server, operation: &str, request: Request, next: Next) -> Response {
    match record(server, operation, request, next).await {
        Ok(response) => response,
        Err(problem) => problem.into_response(),
    }
}

async fn record(server: &Server, operation: &str, request: Request, next: Next) -> Result<Response, Problem> {
    let (parts, body) = request.into_parts();
    let (Principal::Known(access), Some(guard)) = (Principal::of(&parts), &server.guard) else {
        return Ok(next.run(Request::from_parts(parts, body)).await);
    };
    let audit = guard.audit.as_ref().map_err(|error| {
        Problem::new(
            Code::NotReady,
            format!("the act was not carried out, because it cannot be recorded in the audit log: {error}"),
        )
    })?;
    // Operations on the whole store belong to no tenant.
    let tenant = (!access.grant.administers_the_store() || parts.headers.contains_key(crate::caller::TENANT_HEADER))
        .then(|| Caller::of(&parts.headers, Principal::Known(access.clone())).map(|caller| caller.tenant))
        .transpose()?;
    let (why, body) = if body.is_end_stream() {
        (Why::default(), body)
    } else {
        let taken = Taken {
            media_types: &[media::JSON, media::EXTENDED_JSON, media::BSON, media::LINES],
            bytes_max: server.options.body_bytes_max,
        };
        let held = read_taken(server, &parts, body, taken).await?;
        (serde_json::from_slice(&held.bytes).unwrap_or_default(), Body::from(held.bytes.clone()))
    };
    let act = ActBegun {
        who: access.who.clone(),
        name: access.name.clone(),
        what: operation.to_owned(),
        path: Some(parts.uri.path().to_owned()),
        tenant,
        why: why.reason.map(cut),
        by: why.by.map(cut),
        from: READER.try_with(|reader| reader.peer()).ok().flatten().map(|peer| peer.to_string()),
    };
    tracing::info!(who = act.who, what = act.what, path = act.path, "an administrative act");
    let id = audit.begin(&act).await?;
    let response = next.run(Request::from_parts(parts, body)).await;
    let status = response.status();
    let refused = !status.is_success();
    let ended = ActEnded {
        outcome: if refused { ActOutcome::Refused } else { ActOutcome::Done },
        code: refused.then(|| match response.extensions().get::<Code>() {
            Some(code) => code.as_str().to_owned(),
            None => status.as_str().to_owned(),
        }),
    };
    if let Err(error) = audit.end(&id, &ended).await {
        // The act is then listed with an unknown outcome.
        tracing::error!(%error, act = %id, "cannot record the outcome of an administrative act");
    }
    Ok(response)
}

fn cut(mut text: String) -> String {
    let end = (0..=REASON_BYTES_MAX.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    text.truncate(end);
    text
}
