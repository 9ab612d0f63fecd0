//! `/v1/replays`: replays, which send events of the log again.

use std::sync::Arc;
use std::time::Duration;

use annals_core::handlers::ActBody;
use annals_core::replays::{PreviewBody, ReplayAct, ReplayBody, ReplayError, ReplayState, ReplayStatus};
use annals_core::{Code, StoreError};
use annals_system::sleep;
use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream;
use serde::{Deserialize, Serialize};
use utoipa::IntoParams;

use super::follow::{event_stream, last_word};
use super::managed::{page_length, read};
use crate::answer::json;
use crate::caller::Caller;
use crate::media;
use crate::metrics::Counted;
use crate::options::Stop;
use crate::payload::Payload;
use crate::problem::Problem;
use crate::query::{Limit, Number, Query};
use crate::route::{self, Feature, Permission, get, post};
use crate::schemas;
use crate::scoped::ScopedReplays;
use crate::state::Server;

const ONE: &str = "/v1/replays/{id}";

/// Returns the operations on replays.
pub(crate) fn feature() -> Feature {
    const REFUSALS: &[Code] = &[Code::UnknownReplay, Code::StateConflict, Code::BrowseViewOff];
    let status = Payload::json::<schemas::ReplayStatus>;
    let act = |draft: route::Draft, id, summary| {
        draft.described(id, summary, status()).takes(Payload::body::<schemas::Reason>()).refuses(REFUSALS)
    };
    let operator = Permission::Operator;
    let operations = vec![
        post("/v1/replays/preview", Permission::Reader, preview)
            .described("previewReplay", "Returns what a replay would send.", Payload::json::<schemas::ReplayPreview>())
            .takes(Payload::body::<schemas::PreviewBody>())
            .refuses(&[Code::InvalidReplay, Code::BrowseViewOff]),
        post("/v1/replays", operator, create)
            .described(
                "createReplay",
                "Creates a replay, which sends nothing until it is started.",
                Payload::json::<schemas::ReplayStatus>(),
            )
            .takes(Payload::body::<schemas::ReplayBody>())
            .refuses(&[Code::InvalidReplay, Code::UnknownHandler]),
        get("/v1/replays", Permission::Reader, list).described(
            "listReplays",
            "Lists replays, newest first.",
            Payload::json::<schemas::ReplayPage>(),
        ),
        route::delete("/v1/replays", operator, clean_up).described(
            "removeReplays",
            "Removes replays that ended long ago.",
            Payload::json::<schemas::RemovedReplays>(),
        ),
        get(ONE, Permission::Reader, one)
            .described("getReplay", "Returns the state of a replay.", status())
            .refuses(&[Code::UnknownReplay]),
        get("/v1/replays/{id}/follow", Permission::Reader, follow)
            .described(
                "followReplay",
                "Follows a replay as server-sent events until it ends.",
                Payload::raw(media::EVENTS, "One event per state."),
            )
            .refuses(&[Code::UnknownReplay]),
        act(post("/v1/replays/{id}/start", operator, start), "startReplay", "Starts a replay."),
        act(post("/v1/replays/{id}/pause", operator, pause), "pauseReplay", "Pauses a replay."),
        act(post("/v1/replays/{id}/resume", operator, resume), "resumeReplay", "Resumes a replay with its next event."),
        act(post("/v1/replays/{id}/cancel", operator, cancel), "cancelReplay", "Cancels a replay."),
    ];
    Feature::new("Replays", operations)
}

/// The parameters of a list.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct ListQuery {
    /// Replays in this state: `created`, `running`, `paused`, `completed`, `failed` or `cancelled`.
    status: Option<String>,
    /// The length of the page: 1 to 1,000, 100 when absent.
    #[param(inline)]
    limit: Option<Limit>,
    /// The `cursor` of the previous page.
    cursor: Option<String>,
}

/// The parameters of a removal.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct AgeQuery {
    /// Replays that ended more than this many hours ago, 1 or more; 24 when absent.
    #[param(inline)]
    older_than_hours: Option<Number>,
}

fn replays(server: &Server, caller: &Caller) -> Result<ScopedReplays, Problem> {
    ScopedReplays::of(server, caller)
}

/// `POST /v1/replays/preview`.
async fn preview(State(server): State<Arc<Server>>, caller: Caller, request: Request) -> Result<Response, Problem> {
    let replays = replays(&server, &caller)?;
    let body: PreviewBody = read(&server, request).await?;
    json(StatusCode::OK, &server.query(async move { replays.preview(body).await }).await?)
}

/// `POST /v1/replays`.
async fn create(State(server): State<Arc<Server>>, caller: Caller, request: Request) -> Result<Response, Problem> {
    let replays = replays(&server, &caller)?;
    let body: ReplayBody = read(&server, request).await?;
    json(StatusCode::OK, &replays.create(body).await?)
}

/// `GET /v1/replays`.
async fn list(
    State(server): State<Arc<Server>>,
    Query(query): Query<ListQuery>,
    caller: Caller,
) -> Result<Response, Problem> {
    let state = query.status.map(|name| {
        let state: Result<ReplayState, _> = serde_json::from_value(serde_json::Value::String(name.clone()));
        state.map_err(|_| {
            Problem::query(
                "status",
                format!("{name:?} is not a state; use created, running, paused, completed, failed or cancelled"),
            )
        })
    });
    let (state, limit) = (state.transpose()?, page_length(query.limit)?);
    json(StatusCode::OK, &replays(&server, &caller)?.list(state, query.cursor.as_deref(), limit).await?)
}

/// `DELETE /v1/replays`.
async fn clean_up(
    State(server): State<Arc<Server>>,
    Query(query): Query<AgeQuery>,
    caller: Caller,
) -> Result<Response, Problem> {
    #[derive(Serialize)]
    struct Removed {
        removed: u64,
    }
    let hours = query.older_than_hours.map_or(24, |hours| hours.0);
    let Some(hours) = u32::try_from(hours).ok().filter(|hours| *hours > 0) else {
        return Err(Problem::query("older_than_hours", format!("{hours} hours are not allowed; the minimum is 1")));
    };
    json(StatusCode::OK, &Removed { removed: replays(&server, &caller)?.clean_up(hours).await? })
}

/// `GET /v1/replays/{id}`.
async fn one(State(server): State<Arc<Server>>, Path(id): Path<String>, caller: Caller) -> Result<Response, Problem> {
    json(StatusCode::OK, &replays(&server, &caller)?.get(&id).await?)
}

macro_rules! replay_acts {
    ($($function:ident $act:ident)+) => {$(
        async fn $function(
            State(server): State<Arc<Server>>,
            Path(id): Path<String>,
            caller: Caller,
            request: Request,
        ) -> Result<Response, Problem> {
            let replays = replays(&server, &caller)?;
            let body: ActBody = read(&server, request).await?;
            json(StatusCode::OK, &replays.act(&id, ReplayAct::$act, body.of_deletion()?).await?)
        }
    )+};
}

replay_acts! { start Start pause Pause resume Resume cancel Cancel }

/// `GET /v1/replays/{id}/follow`: the current state, then each state that differs from the previous one.
async fn follow(
    State(server): State<Arc<Server>>,
    Path(id): Path<String>,
    caller: Caller,
) -> Result<Response, Problem> {
    let replays = replays(&server, &caller)?;
    let first = replays.get(&id).await?;
    let feed = Feed {
        replays,
        id,
        caller,
        next: Some(first),
        seen: None,
        comment_interval: server.options.comment_interval,
        stop: server.options.stop.clone(),
        ended: false,
        _counted: server.follower()?,
    };
    let chunks = stream::unfold(feed, |mut feed| async move {
        let chunk = feed.chunk().await?;
        Some((Ok::<_, std::convert::Infallible>(chunk), feed))
    });
    Ok(event_stream(Body::from_stream(chunks)))
}

struct Feed {
    replays: ScopedReplays,
    id: String,
    caller: Caller,
    /// The state that is sent next.
    next: Option<ReplayStatus>,
    /// The state that was sent last.
    seen: Option<ReplayStatus>,
    comment_interval: Duration,
    stop: Stop,
    ended: bool,
    _counted: Counted,
}

impl Feed {
    /// Returns the next state or a comment, or `None` at the end.
    async fn chunk(&mut self) -> Option<Bytes> {
        if self.ended || self.stop.is_stopped() {
            return None;
        }
        let status = match self.next.take() {
            Some(status) => Ok(status),
            None => tokio::select! {
                biased;
                () = self.stop.stopped() => return None,
                status = self.replays.changed(&self.id, self.seen.as_ref()) => status,
                () = sleep(self.comment_interval) => return Some(Bytes::from_static(b": quiet\n\n")),
            },
        };
        match status {
            Ok(status) => {
                self.ended = status.status.is_terminal();
                let data = serde_json::to_string(&status).unwrap_or_default();
                self.seen = Some(status);
                Some(format!("data: {data}\n\n").into())
            }
            Err(error) => {
                self.ended = true;
                match error {
                    ReplayError::Store(StoreError::Closed) => None,
                    error => Some(last_word(&error.into(), &self.caller).into()),
                }
            }
        }
    }
}

impl From<ReplayError> for Problem {
    fn from(error: ReplayError) -> Self {
        let problem = Self::new(error.code(), error.to_string());
        match error {
            ReplayError::Invalid(invalid) => invalid.into(),
            ReplayError::Browse(error) => error.into(),
            ReplayError::Handler(error) => error.into(),
            ReplayError::Store(error) => annals_core::ReadError::Store(error).into(),
            ReplayError::Unknown(id) => problem.fact("name", &*id),
            ReplayError::NotAllowed { act, id, state } => {
                problem.fact("act", act).fact("what", format!("replay {id:?}")).fact("state", state)
            }
            _ => problem,
        }
    }
}
