//! Partner events: `/v1/partners`, the events that partners send to `/v1/partners/{partner}/events`, and `/v1/partner-events`.

use std::sync::Arc;

use annals_core::handlers::{ActBody, Reason};
use annals_core::partners::{
    Ending, EventDirection, EventStatus, EventsQuery, Incoming, PartnerDefinition, PartnerError, Partners, Signed,
    SigningSecret, Unsigned,
};
use annals_core::{Code, ReadError};
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use serde::{Deserialize, Serialize};
use utoipa::IntoParams;

use super::managed::{page_length, read};
use crate::answer::json;
use crate::body::{self, Taken};
use crate::caller::{Caller, tenant_header};
use crate::media;
use crate::payload::Payload;
use crate::problem::Problem;
use crate::query::{Limit, Query, Switch};
use crate::route::{self, Feature, Permission, get, post};
use crate::schemas;
use crate::state::Server;

const PARTNER: &str = "/v1/partners/{partner}";
const EVENTS: &str = "/v1/partners/{partner}/events";
/// The largest body that a partner can be allowed to send.
const BODY_BYTES_MAX: usize = 8 * 1024 * 1024;
/// A CloudEvent in structured mode.
const CLOUDEVENT: &str = annals_core::partners::CLOUDEVENT;

/// Returns the operations on partners and their events.
pub(crate) fn feature() -> Feature {
    let partner = Payload::json::<schemas::Partner>;
    let event = Payload::json::<schemas::PartnerEvent>;
    let unknown: &[Code] = &[Code::UnknownPartner];
    let operator = Permission::Operator;
    let act = |draft: route::Draft, id, summary| {
        let described = draft.described(id, summary, event()).takes(Payload::body::<schemas::Reason>());
        described.refuses(&[Code::UnknownPartnerEvent, Code::PartnerEventState])
    };
    let operations = [
        get("/v1/partners", Permission::Reader, list).described(
            "listPartners",
            "Lists partners, without their secrets.",
            Payload::json::<schemas::PartnerPage>(),
        ),
        get(PARTNER, Permission::Reader, one)
            .described("getPartner", "Returns a partner, without its secrets.", partner())
            .refuses(unknown),
        route::put(PARTNER, operator, put)
            .described(
                "putPartner",
                "Defines a partner, or changes it. Without secrets, an existing one keeps its own.",
                partner().created(),
            )
            .takes(Payload::body::<schemas::NewPartner>())
            .refuses(&[Code::InvalidPartner, Code::PartnerKey]),
        route::delete(PARTNER, operator, delete)
            .described("deletePartner", "Deletes a partner. Its events stay.", Payload::json::<schemas::Deleted>())
            .takes(Payload::body::<schemas::Reason>())
            .refuses(unknown),
        // The signature is the partner's credential.
        post(EVENTS, Permission::Open, receive)
            .described(
                "receivePartnerEvent",
                "Receives an event of a partner, signed as Standard Webhooks specifies. Responds with 202 once it is stored, and with 200 to a repeat.",
                Payload { statuses: vec![202, 200], ..Payload::json::<schemas::Accepted>() },
            )
            .takes(Payload::body::<schemas::ReceivedEvent>())
            .refuses(&[Code::UnknownPartner, Code::InvalidSignature, Code::WebhookIdReused, Code::PartnerKey]),
        get(EVENTS, Permission::Reader, events)
            .described(
                "listPartnerEvents",
                "Lists the events of a partner, newest first.",
                Payload::json::<schemas::PartnerEventPage>(),
            )
            .refuses(unknown),
        get("/v1/partners/{partner}/statistics", Permission::Reader, statistics)
            .described(
                "getPartnerStatistics",
                "Counts the events of a partner by state.",
                Payload::json::<schemas::PartnerStatistics>(),
            )
            .refuses(unknown),
        post("/v1/partners/{partner}/pause", operator, pause)
            .described("pausePartner", "Pauses sending to a partner.", partner())
            .takes(Payload::body::<schemas::Reason>())
            .refuses(unknown),
        post("/v1/partners/{partner}/resume", operator, resume)
            .described("resumePartner", "Resumes sending to a partner.", partner())
            .takes(Payload::body::<schemas::Reason>())
            .refuses(unknown),
        post("/v1/partners/{partner}/replay", operator, replay)
            .described(
                "replayToPartner",
                "Resends the selected events of a range of the log, as new deliveries.",
                Payload::json::<schemas::PartnerReplay>(),
            )
            .takes(Payload::body::<schemas::NewPartnerReplay>())
            .refuses(unknown),
        get("/v1/partner-events/{id}", Permission::Reader, one_event)
            .described("getPartnerEvent", "Returns an event of a partner.", event())
            .refuses(&[Code::UnknownPartnerEvent]),
        act(
            post("/v1/partner-events/{id}/resend", operator, resend),
            "resendPartnerEvent",
            "Attempts an event immediately, with five more attempts.",
        ),
        act(
            post("/v1/partner-events/{id}/cancel", operator, cancel),
            "cancelPartnerEvent",
            "Cancels an event that is pending or failed.",
        ),
    ];
    Feature::new("Partner events", operations)
}

/// The parameters of a list.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct ListQuery {
    /// The length of the page: 1 to 1,000, 100 when absent.
    #[param(inline)]
    limit: Option<Limit>,
    /// The `cursor` of the previous page.
    cursor: Option<String>,
}

/// The parameters of a list of events.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct ListEvents {
    /// `IN` or `OUT`.
    direction: Option<String>,
    /// `PENDING`, `PROCESSING`, `SUCCESS` or `FAILED`.
    status: Option<String>,
    /// The type.
    r#type: Option<String>,
    /// The id of the entity.
    entity_id: Option<String>,
    /// The kind of the entity.
    entity_type: Option<String>,
    /// The day on which it was recorded: days since 1970-01-01.
    day: Option<i32>,
    /// Only events that are due for an attempt now, longest due first.
    #[param(inline)]
    due: Option<Switch>,
    /// Only events with this ending: `success`, `exhausted`, `refused` or `cancelled`.
    ended: Option<String>,
    /// The length of the page: 1 to 1,000, 100 when absent.
    #[param(inline)]
    limit: Option<Limit>,
    /// The `cursor` of the previous page.
    cursor: Option<String>,
}

/// The parameters of what a partner sends.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct Receiving {
    /// The tenant, for partners that cannot send the header `Annals-Tenant`.
    tenant: Option<String>,
}

#[derive(Serialize)]
struct Deleted {
    deleted: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReplayBody {
    #[serde(default)]
    from: u64,
    to: Option<u64>,
    reason: String,
    by: Option<String>,
}

fn partners(server: &Server, caller: &Caller) -> Result<Arc<dyn Partners>, Problem> {
    Ok(server.host.partners(&caller.tenant)?)
}

/// `GET /v1/partners`.
async fn list(
    State(server): State<Arc<Server>>,
    Query(query): Query<ListQuery>,
    caller: Caller,
) -> Result<Response, Problem> {
    let limit = page_length(query.limit)?;
    json(StatusCode::OK, &partners(&server, &caller)?.list(query.cursor.as_deref(), limit).await?)
}

/// `GET /v1/partners/{partner}`.
async fn one(
    State(server): State<Arc<Server>>,
    Path(partner): Path<String>,
    caller: Caller,
) -> Result<Response, Problem> {
    json(StatusCode::OK, &partners(&server, &caller)?.get(&partner).await?)
}

/// `PUT /v1/partners/{partner}`.
async fn put(
    State(server): State<Arc<Server>>,
    Path(partner): Path<String>,
    caller: Caller,
    request: Request,
) -> Result<Response, Problem> {
    let partners = partners(&server, &caller)?;
    let (parts, body) = request.into_parts();
    let held = body::read(&server, &parts, body).await?;
    let new = partners.put(PartnerDefinition::read(&partner, &held.bytes)?).await?;
    let status = if new { StatusCode::CREATED } else { StatusCode::OK };
    json(status, &partners.get(&partner).await?)
}

/// `DELETE /v1/partners/{partner}`.
async fn delete(
    State(server): State<Arc<Server>>,
    Path(partner): Path<String>,
    caller: Caller,
    request: Request,
) -> Result<Response, Problem> {
    let partners = partners(&server, &caller)?;
    let body: ActBody = read(&server, request).await?;
    partners.delete(&partner, body.of_deletion()?).await?;
    json(StatusCode::OK, &Deleted { deleted: true })
}

/// `POST /v1/partners/{partner}/events`.
async fn receive(
    State(server): State<Arc<Server>>,
    Path(partner): Path<String>,
    Query(query): Query<Receiving>,
    caller: Caller,
    request: Request,
) -> Result<Response, Problem> {
    let (parts, body) = request.into_parts();
    let caller = addressed(caller, query.tenant, &parts.headers)?;
    let signed = signed(&parts.headers);
    let taken = Taken { media_types: &[media::JSON, CLOUDEVENT], bytes_max: BODY_BYTES_MAX };
    let held = body::read_taken(&server, &parts, body, taken).await?;
    let incoming = Incoming { signed: signed.clone(), body: held.bytes.clone() };
    let received = match partners(&server, &caller) {
        Ok(partners) => partners.receive(&partner, incoming).await.map_err(Problem::from),
        Err(problem) => Err(problem),
    };
    let accepted = received.map_err(|problem| match problem.code() {
        Code::UnknownTenant | Code::UnknownPartner if server.guard.is_some() => {
            signed_by_nobody(&server, &signed, &held.bytes)
        }
        _ => problem,
    })?;
    let status = if accepted.repeated { StatusCode::OK } else { StatusCode::ACCEPTED };
    json(status, &accepted)
}

/// Returns the caller for a URL that may name the tenant. A partner is given a URL, and often cannot set headers.
fn addressed(caller: Caller, tenant: Option<String>, headers: &HeaderMap) -> Result<Caller, Problem> {
    let Some(tenant) = tenant else { return Ok(caller) };
    if tenant_header(headers)?.is_some_and(|named| named != tenant) {
        return Err(Problem::query("tenant", "differs from the header Annals-Tenant; name the tenant once"));
    }
    Ok(Caller { tenant, ..caller })
}

/// Returns the error for a wrong signature. If the server has credentials, a caller without any must not find out which tenants and
/// partners exist.
fn signed_by_nobody(server: &Server, signed: &Signed, body: &[u8]) -> Problem {
    let nobody = SigningSecret::of_bytes(vec![0; 24]);
    let why = signed.verify(&[nobody], server.host.clock().now(), body).err().unwrap_or(Unsigned::Signature);
    PartnerError::Signature(why).into()
}

fn signed(headers: &HeaderMap) -> Signed {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
    Signed { id: text("webhook-id"), timestamp: text("webhook-timestamp"), signature: text("webhook-signature") }
}

/// `GET /v1/partners/{partner}/events`.
async fn events(
    State(server): State<Arc<Server>>,
    Path(partner): Path<String>,
    Query(query): Query<ListEvents>,
    caller: Caller,
) -> Result<Response, Problem> {
    let query = asked(query)?;
    json(StatusCode::OK, &partners(&server, &caller)?.events(&partner, query).await?)
}

fn asked(query: ListEvents) -> Result<EventsQuery, Problem> {
    let one_of = |name: &str, known: String| Problem::query(name, format!("has an unknown value; use {known}"));
    let direction = query.direction.map(|text| {
        let found = EventDirection::ALL.iter().copied().find(|it| it.as_str() == text);
        found.ok_or_else(|| one_of("direction", "IN or OUT".to_owned()))
    });
    let status = query.status.map(|text| {
        let found = EventStatus::ALL.iter().copied().find(|it| it.as_str() == text);
        found.ok_or_else(|| one_of("status", "PENDING, PROCESSING, SUCCESS or FAILED".to_owned()))
    });
    let ended = query.ended.map(|text| {
        let found = Ending::ALL.iter().copied().find(|it| it.as_str() == text);
        found.ok_or_else(|| one_of("ended", "success, exhausted, refused or cancelled".to_owned()))
    });
    Ok(EventsQuery {
        direction: direction.transpose()?,
        status: status.transpose()?,
        event_type: query.r#type,
        entity_id: query.entity_id,
        entity_type: query.entity_type,
        day: query.day,
        due: Switch::is_on(query.due),
        ended: ended.transpose()?,
        limit: page_length(query.limit)?,
        cursor: query.cursor,
    })
}

/// `GET /v1/partners/{partner}/statistics`.
async fn statistics(
    State(server): State<Arc<Server>>,
    Path(partner): Path<String>,
    caller: Caller,
) -> Result<Response, Problem> {
    let partners = partners(&server, &caller)?;
    json(StatusCode::OK, &server.query(async move { partners.statistics(&partner).await }).await?)
}

/// `POST /v1/partners/{partner}/pause`.
async fn pause(
    State(server): State<Arc<Server>>,
    Path(partner): Path<String>,
    caller: Caller,
    request: Request,
) -> Result<Response, Problem> {
    switch(&server, &caller, &partner, request, true).await
}

/// `POST /v1/partners/{partner}/resume`.
async fn resume(
    State(server): State<Arc<Server>>,
    Path(partner): Path<String>,
    caller: Caller,
    request: Request,
) -> Result<Response, Problem> {
    switch(&server, &caller, &partner, request, false).await
}

/// Pauses or resumes a partner.
async fn switch(
    server: &Server,
    caller: &Caller,
    partner: &str,
    request: Request,
    paused: bool,
) -> Result<Response, Problem> {
    let partners = partners(server, caller)?;
    let body: ActBody = read(server, request).await?;
    json(StatusCode::OK, &partners.switch(partner, paused, body.of_deletion()?).await?)
}

/// `POST /v1/partners/{partner}/replay`.
async fn replay(
    State(server): State<Arc<Server>>,
    Path(partner): Path<String>,
    caller: Caller,
    request: Request,
) -> Result<Response, Problem> {
    let partners = partners(&server, &caller)?;
    let ReplayBody { from, to, reason, by } = read(&server, request).await?;
    json(StatusCode::OK, &partners.replay(&partner, from, to, Reason { reason, by }).await?)
}

/// `GET /v1/partner-events/{id}`.
async fn one_event(
    State(server): State<Arc<Server>>,
    Path(id): Path<String>,
    caller: Caller,
) -> Result<Response, Problem> {
    json(StatusCode::OK, &partners(&server, &caller)?.event(&id).await?)
}

/// `POST /v1/partner-events/{id}/resend`.
async fn resend(
    State(server): State<Arc<Server>>,
    Path(id): Path<String>,
    caller: Caller,
    request: Request,
) -> Result<Response, Problem> {
    let partners = partners(&server, &caller)?;
    let body: ActBody = read(&server, request).await?;
    json(StatusCode::OK, &partners.resend(&id, body.of_deletion()?).await?)
}

/// `POST /v1/partner-events/{id}/cancel`.
async fn cancel(
    State(server): State<Arc<Server>>,
    Path(id): Path<String>,
    caller: Caller,
    request: Request,
) -> Result<Response, Problem> {
    let partners = partners(&server, &caller)?;
    let body: ActBody = read(&server, request).await?;
    json(StatusCode::OK, &partners.cancel(&id, body.of_deletion()?).await?)
}

impl From<PartnerError> for Problem {
    fn from(error: PartnerError) -> Self {
        let problem = Self::new(error.code(), error.to_string());
        match error {
            PartnerError::Invalid(invalid) => invalid.into(),
            PartnerError::Store(error) => ReadError::Store(error).into(),
            PartnerError::Unknown(name) | PartnerError::UnknownEvent(name) | PartnerError::OtherContent(name) => {
                problem.fact("name", name)
            }
            PartnerError::Signature(why) => problem.fact(
                "what",
                match why {
                    Unsigned::Headers => "headers",
                    Unsigned::Stale => "stale",
                    Unsigned::Signature => "signature",
                },
            ),
            PartnerError::State { id, state, act } => problem.fact("name", id).fact("state", state).fact("act", act),
            PartnerError::Key(reason) => problem.fact("reason", reason),
            _ => problem,
        }
    }
}
