//! `/v1/events`: the browse view.

use std::sync::Arc;

use annals_core::browse::{
    Browse, BrowseError, BrowseQuery, BrowseSort, ExportFormat, ReplayFilter, StatisticsQuery, ViewBody,
};
use annals_core::handlers::ActBody;
use annals_core::{Code, limits};
use axum::extract::{Path, Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde::Deserialize;
use utoipa::IntoParams;

use super::export;
use super::managed::read;
use crate::answer::json;
use crate::caller::Caller;
use crate::media;
use crate::payload::Payload;
use crate::problem::Problem;
use crate::query::{Limit, List, Number, Query, Switch, Time};
use crate::route::{Feature, Permission, get, post, put};
use crate::schemas;
use crate::state::Server;

/// Returns the operations on the browse view.
pub(crate) fn feature() -> Feature {
    const OFF: &[Code] = &[Code::BrowseViewOff];
    let status = Payload::json::<schemas::ViewStatus>;
    let operations = vec![
        get("/v1/events", Permission::Reader, page)
            .described("browseEvents", "Returns one page of events.", Payload::json::<schemas::BrowsePage>())
            .refuses(OFF),
        get("/v1/events/statistics", Permission::Reader, statistics)
            .described(
                "getEventStatistics",
                "Counts the events of the last hours.",
                Payload::json::<schemas::EventStatistics>(),
            )
            .refuses(OFF),
        get("/v1/events/export", Permission::Reader, exported)
            .described(
                "exportEvents",
                "Returns all events that match a filter, newest first.",
                Payload::raw(media::CSV, "One line per event, after a header.")
                    .or(media::LINES, "One document an event."),
            )
            .refuses(OFF),
        get("/v1/events/view", Permission::Reader, view).described(
            "getBrowseView",
            "Returns the state of the browse view.",
            status(),
        ),
        put("/v1/events/view", Permission::Operator, set_view)
            .described("setBrowseView", "Switches the browse view on or off, or changes its retention.", status())
            .takes(Payload::body::<schemas::ViewBody>()),
        post("/v1/events/view/rebuild", Permission::Operator, rebuild)
            .described("rebuildBrowseView", "Rebuilds the browse view from the log, beside the live one.", status())
            .takes(Payload::body::<schemas::Reason>())
            .refuses(&[Code::BrowseViewOff, Code::StateConflict]),
        get("/v1/events/{event_id}", Permission::Reader, one)
            .described(
                "getBrowsedEvent",
                "Returns an event with others of its aggregate.",
                Payload::json::<schemas::EventDetail>(),
            )
            .refuses(&[Code::BrowseViewOff, Code::UnknownEvent]),
    ];
    Feature::new("Events", operations)
}

/// The parameters of a page.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(super) struct PageQuery {
    /// Events with one of these ids.
    #[param(inline)]
    event_ids: Option<List>,
    /// Events of one of these types.
    #[param(inline)]
    event_types: Option<List>,
    /// Events of none of these types.
    #[param(inline)]
    exclude_event_types: Option<List>,
    /// Events of the aggregates with this id.
    aggregate_id: Option<String>,
    /// Events whose data names this execution.
    execution_id: Option<String>,
    /// Events whose data names this execution, or whose aggregate has this id.
    execution: Option<String>,
    /// Events of this user.
    user_id: Option<String>,
    /// Events of this service.
    service_name: Option<String>,
    /// Events that happened at this time or later.
    #[param(inline)]
    start_time: Option<Time>,
    /// Events that happened at this time or earlier.
    #[param(inline)]
    end_time: Option<Time>,
    /// Words, at least one of which the type, service, user or execution must contain.
    search: Option<String>,
    /// Leaves out services whose name begins with `system-`.
    #[param(inline)]
    exclude_system: Option<Switch>,
    /// `timestamp`, `sequence_number`, `event_type`, `aggregate_id` or `stored_at`; `-` before it reverses it. `-timestamp` when absent.
    sort: Option<String>,
    /// The number of events to skip, 0 to 100,000; not together with a cursor.
    #[param(inline)]
    skip: Option<Number>,
    /// The length of the page: 1 to 1,000, 100 when absent. Of an export, the number of rows; all when absent.
    #[param(inline)]
    limit: Option<Limit>,
    /// The `cursor` of the previous page.
    cursor: Option<String>,
    /// The highest `total` that is counted. Without it all matching events are counted, which takes longer the more there are.
    #[param(inline)]
    count_up_to: Option<Number>,
    /// The format of an export: `csv`, or `jsonl`, the default.
    format: Option<String>,
}

impl PageQuery {
    /// Builds the query of a page, for which no format may be given.
    pub(super) fn of_page(self) -> Result<BrowseQuery, Problem> {
        if self.format.is_some() {
            return Err(Problem::query("format", "is a parameter of an export, not of a page; leave it out"));
        }
        self.asked()
    }

    fn asked(self) -> Result<BrowseQuery, Problem> {
        let list = |list: Option<List>| list.map(List::texts);
        let filter = ReplayFilter {
            event_ids: list(self.event_ids),
            execution_id: self.execution_id,
            aggregate_id: self.aggregate_id,
            event_types: list(self.event_types),
            exclude_event_types: list(self.exclude_event_types),
            start_time: self.start_time.map(|time| time.0),
            end_time: self.end_time.map(|time| time.0),
            user_id: self.user_id,
            service_name: self.service_name,
        };
        let query = BrowseQuery {
            filter,
            search: self.search,
            execution: self.execution,
            exclude_system: Switch::is_on(self.exclude_system),
            sort: self.sort.as_deref().map_or(Ok(BrowseSort::default()), BrowseSort::parse)?,
            skip: self.skip.map_or(0, |skip| skip.0),
            limit: Limit::or_default(self.limit),
            cursor: self.cursor,
            count_up_to: self.count_up_to.map(|bound| bound.0),
        };
        query.validate()?;
        Ok(query)
    }
}

/// The parameters of statistics.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct HoursQuery {
    /// The number of hours before now, 1 to 168; 24 when absent.
    #[param(inline)]
    hours: Option<Number>,
    /// The event types that count as errors.
    #[param(inline)]
    failure_types: Option<List>,
}

fn browse(server: &Server, caller: &Caller) -> Result<Arc<dyn Browse>, Problem> {
    Ok(server.host.browse(&caller.tenant)?)
}

/// `GET /v1/events`.
async fn page(
    State(server): State<Arc<Server>>,
    Query(query): Query<PageQuery>,
    caller: Caller,
) -> Result<Response, Problem> {
    let (browse, query) = (browse(&server, &caller)?, query.of_page()?);
    json(StatusCode::OK, &server.query(async move { browse.page(query).await }).await?)
}

/// `GET /v1/events/statistics`.
async fn statistics(
    State(server): State<Arc<Server>>,
    Query(query): Query<HoursQuery>,
    caller: Caller,
) -> Result<Response, Problem> {
    let hours = query.hours.map_or(24, |hours| u32::try_from(hours.0).unwrap_or(u32::MAX));
    let query = StatisticsQuery { hours, failure_types: query.failure_types.map(List::texts) };
    query.validate()?;
    let browse = browse(&server, &caller)?;
    json(StatusCode::OK, &server.query(async move { browse.statistics(query).await }).await?)
}

/// `GET /v1/events/export`.
async fn exported(
    State(server): State<Arc<Server>>,
    Query(mut query): Query<PageQuery>,
    caller: Caller,
) -> Result<Response, Problem> {
    let format = ExportFormat::parse(query.format.as_deref().unwrap_or("jsonl"))?;
    if query.skip.is_some() || query.cursor.is_some() || query.count_up_to.is_some() {
        return Err(Problem::query(
            "skip",
            "is a parameter of a page, like cursor and count_up_to; leave them out of an export",
        ));
    }
    let rows = query.limit.take().map(|limit| limit.0);
    if rows == Some(0) {
        return Err(Problem::query("limit", "must be at least 1"));
    }
    let query = BrowseQuery { limit: limits::PAGE_MAX, ..query.asked()? };
    export::answer(&server, browse(&server, &caller)?, caller, (format, query, rows)).await
}

/// `GET /v1/events/view`.
async fn view(State(server): State<Arc<Server>>, caller: Caller) -> Result<Response, Problem> {
    json(StatusCode::OK, &browse(&server, &caller)?.view().await?)
}

/// `PUT /v1/events/view`.
async fn set_view(State(server): State<Arc<Server>>, caller: Caller, request: Request) -> Result<Response, Problem> {
    let browse = browse(&server, &caller)?;
    let body: ViewBody = read(&server, request).await?;
    json(StatusCode::OK, &browse.set_view(body).await?)
}

/// `POST /v1/events/view/rebuild`.
async fn rebuild(State(server): State<Arc<Server>>, caller: Caller, request: Request) -> Result<Response, Problem> {
    let browse = browse(&server, &caller)?;
    let body: ActBody = read(&server, request).await?;
    json(StatusCode::OK, &browse.rebuild(body.of_deletion()?).await?)
}

/// `GET /v1/events/{event_id}`.
async fn one(State(server): State<Arc<Server>>, Path(id): Path<String>, caller: Caller) -> Result<Response, Problem> {
    json(StatusCode::OK, &browse(&server, &caller)?.event(&id).await?)
}

impl From<BrowseError> for Problem {
    fn from(error: BrowseError) -> Self {
        let problem = Self::new(error.code(), error.to_string());
        match error {
            BrowseError::Invalid(invalid) => invalid.into(),
            BrowseError::Store(error) => annals_core::ReadError::Store(error).into(),
            BrowseError::UnknownEvent(id) => problem.fact("name", id),
            BrowseError::NotAllowed { act, state } => {
                problem.fact("act", act).fact("what", "the browse view").fact("state", state)
            }
            _ => problem,
        }
    }
}
