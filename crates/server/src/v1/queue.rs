//! `/v1/queues`: work queues with priorities, a cap and leases.

use std::sync::Arc;

use annals_core::handlers::ActBody;
use annals_core::queue::{
    ItemResult, ItemState, ItemsBody, ItemsQuery, NewItem, PriorityBody, QueueBody, QueueError, Queues, RenewBody,
    TakeBody,
};
use annals_core::{ByteString, Code};
use axum::extract::{Path, Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use utoipa::IntoParams;

use super::managed::{page_length, read};
use crate::answer::json;
use crate::caller::Caller;
use crate::payload::Payload;
use crate::problem::Problem;
use crate::query::{Limit, Query};
use crate::route::{self, Feature, Operation, Permission, get, patch, post};
use crate::schemas;
use crate::state::Server;

const ONE: &str = "/v1/queues/{queue}";
const ITEM: &str = "/v1/queues/{queue}/items/{id}";
const UNKNOWN: &[Code] = &[Code::UnknownQueue, Code::QueueUnavailable];
const UNKNOWN_ITEM: &[Code] = &[Code::UnknownQueue, Code::UnknownItem, Code::QueueUnavailable];

/// Returns the operations on work queues.
pub(crate) fn feature() -> Feature {
    let status = Payload::json::<schemas::QueueStatus>;
    let mut operations = vec![
        get("/v1/queues", Permission::Reader, list)
            .described(
                "listQueues",
                "Lists work queues with the numbers of their items.",
                Payload::json::<schemas::QueuePage>(),
            )
            .refuses(&[Code::QueueUnavailable]),
        get(ONE, Permission::Reader, one)
            .described("getQueue", "Returns a work queue with the numbers of its items.", status())
            .refuses(UNKNOWN),
        route::put(ONE, Permission::Operator, put)
            .described("putQueue", "Defines a work queue, or changes its definition.", status().created())
            .takes(Payload::body::<schemas::QueueDefinition>())
            .refuses(&[Code::InvalidQueue, Code::QueueUnavailable]),
        route::delete(ONE, Permission::Operator, delete)
            .described("deleteQueue", "Deletes a work queue with its items.", Payload::json::<schemas::Deleted>())
            .takes(Payload::body::<schemas::Reason>())
            .refuses(UNKNOWN),
        get("/v1/queues/{queue}/items", Permission::Reader, items)
            .described(
                "listQueueItems",
                "Lists the items of a work queue in the order in which they were enqueued.",
                Payload::json::<schemas::QueueItemPage>(),
            )
            .refuses(UNKNOWN),
        get(ITEM, Permission::Reader, item)
            .described("getQueueItem", "Returns an item of a work queue.", Payload::json::<schemas::QueueItem>())
            .refuses(UNKNOWN_ITEM),
        patch(ITEM, Permission::Operator, prioritise)
            .described(
                "prioritiseQueueItem",
                "Changes the priority of an item; its age is kept.",
                Payload::json::<schemas::QueueItem>(),
            )
            .takes(Payload::body::<schemas::QueueItemPriority>())
            .refuses(UNKNOWN_ITEM),
        route::delete(ITEM, Permission::Operator, cancel)
            .described(
                "cancelQueueItem",
                "Removes an item, pending or active.",
                Payload::json::<schemas::CancelledQueueItem>(),
            )
            .takes(Payload::body::<schemas::Reason>())
            .refuses(UNKNOWN_ITEM),
        post("/v1/queues/{queue}/items/{id}/release", Permission::Operator, release_one)
            .described(
                "releaseQueueItem",
                "Returns an active item to the queue with its age, whichever worker has it.",
                Payload::json::<schemas::QueueItemResult>(),
            )
            .takes(Payload::body::<schemas::Reason>())
            .refuses(UNKNOWN_ITEM),
    ];
    operations.extend(work());
    Feature::new("Queues", operations)
}

/// Returns the operations of producers and workers.
fn work() -> [Operation; 5] {
    let settled = Payload::json::<schemas::QueueItemResults>;
    [
        post("/v1/queues/{queue}/enqueue", Permission::Writer, enqueue)
            .described(
                "enqueue",
                "Adds an item, unless its id is pending or active.",
                Payload::json::<schemas::EnqueuedItem>().created(),
            )
            .takes(Payload::body::<schemas::NewQueueItem>())
            .refuses(&[Code::UnknownQueue, Code::QueueFull, Code::QueueUnavailable]),
        post("/v1/queues/{queue}/take", Permission::Writer, take)
            .described("takeQueueItems", "Hands out items with leases.", Payload::json::<schemas::TakenItems>())
            .takes(Payload::body::<schemas::TakeItems>())
            .refuses(UNKNOWN),
        post("/v1/queues/{queue}/renew", Permission::Writer, renew)
            .described("renewQueueItems", "Extends leases.", settled())
            .takes(Payload::body::<schemas::RenewItems>())
            .refuses(UNKNOWN),
        post("/v1/queues/{queue}/done", Permission::Writer, done)
            .described("finishQueueItems", "Removes active items whose work is done.", settled())
            .takes(Payload::body::<schemas::SettledItems>())
            .refuses(UNKNOWN),
        post("/v1/queues/{queue}/release", Permission::Writer, release)
            .described("releaseQueueItems", "Returns active items to the queue with their age.", settled())
            .takes(Payload::body::<schemas::SettledItems>())
            .refuses(UNKNOWN),
    ]
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

/// The parameters of a list of items.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct ItemListQuery {
    /// `pending` or `active`; both when absent.
    state: Option<String>,
    /// Only the items of this user; the empty name selects items without a user.
    user: Option<String>,
    /// The length of the page: 1 to 1,000, 100 when absent.
    #[param(inline)]
    limit: Option<Limit>,
    /// The `cursor` of the previous page.
    cursor: Option<String>,
}

impl ItemListQuery {
    fn query(self) -> Result<ItemsQuery, Problem> {
        let state = match self.state.as_deref() {
            None => None,
            Some("pending") => Some(ItemState::Pending),
            Some("active") => Some(ItemState::Active),
            Some(other) => return Err(Problem::query("state", format!("{other:?} is neither pending nor active"))),
        };
        let limit = page_length(self.limit)?;
        Ok(ItemsQuery { state, user: self.user.map(Into::into), after: self.cursor.map(Into::into), limit })
    }
}

fn queues(server: &Server, caller: &Caller) -> Result<Arc<dyn Queues>, Problem> {
    Ok(server.host.queues(&caller.tenant)?)
}

/// `GET /v1/queues`.
async fn list(
    State(server): State<Arc<Server>>,
    Query(query): Query<ListQuery>,
    caller: Caller,
) -> Result<Response, Problem> {
    let limit = page_length(query.limit)?;
    json(StatusCode::OK, &queues(&server, &caller)?.list(query.cursor.as_deref(), limit).await?)
}

/// `GET /v1/queues/{queue}`.
async fn one(
    State(server): State<Arc<Server>>,
    Path(queue): Path<String>,
    caller: Caller,
) -> Result<Response, Problem> {
    json(StatusCode::OK, &queues(&server, &caller)?.get(&queue).await?)
}

/// `PUT /v1/queues/{queue}`.
async fn put(
    State(server): State<Arc<Server>>,
    Path(queue): Path<String>,
    caller: Caller,
    request: Request,
) -> Result<Response, Problem> {
    let queues = queues(&server, &caller)?;
    let body: QueueBody = read(&server, request).await?;
    let new = queues.put(body.of(&queue)).await?;
    let status = if new { StatusCode::CREATED } else { StatusCode::OK };
    json(status, &queues.get(&queue).await?)
}

/// `DELETE /v1/queues/{queue}`.
async fn delete(
    State(server): State<Arc<Server>>,
    Path(queue): Path<String>,
    caller: Caller,
    request: Request,
) -> Result<Response, Problem> {
    #[derive(Serialize)]
    struct Deleted {
        deleted: bool,
    }
    let queues = queues(&server, &caller)?;
    let body: ActBody = read(&server, request).await?;
    queues.delete(&queue, body.of_deletion()?).await?;
    json(StatusCode::OK, &Deleted { deleted: true })
}

/// `GET /v1/queues/{queue}/items`.
async fn items(
    State(server): State<Arc<Server>>,
    Path(queue): Path<String>,
    Query(query): Query<ItemListQuery>,
    caller: Caller,
) -> Result<Response, Problem> {
    json(StatusCode::OK, &queues(&server, &caller)?.items(&queue, query.query()?).await?)
}

/// `GET /v1/queues/{queue}/items/{id}`.
async fn item(
    State(server): State<Arc<Server>>,
    Path((queue, id)): Path<(String, String)>,
    caller: Caller,
) -> Result<Response, Problem> {
    json(StatusCode::OK, &queues(&server, &caller)?.item(&queue, &id).await?)
}

/// `PATCH /v1/queues/{queue}/items/{id}`.
async fn prioritise(
    State(server): State<Arc<Server>>,
    Path((queue, id)): Path<(String, String)>,
    caller: Caller,
    request: Request,
) -> Result<Response, Problem> {
    let queues = queues(&server, &caller)?;
    let body: PriorityBody = read(&server, request).await?;
    json(StatusCode::OK, &queues.prioritise(&queue, &id, body).await?)
}

/// `DELETE /v1/queues/{queue}/items/{id}`.
async fn cancel(
    State(server): State<Arc<Server>>,
    Path((queue, id)): Path<(String, String)>,
    caller: Caller,
    request: Request,
) -> Result<Response, Problem> {
    let queues = queues(&server, &caller)?;
    let body: ActBody = read(&server, request).await?;
    json(StatusCode::OK, &queues.cancel(&queue, &id, body.of_deletion()?).await?)
}

/// `POST /v1/queues/{queue}/items/{id}/release`.
async fn release_one(
    State(server): State<Arc<Server>>,
    Path((queue, id)): Path<(String, String)>,
    caller: Caller,
    request: Request,
) -> Result<Response, Problem> {
    let queues = queues(&server, &caller)?;
    let body: ActBody = read(&server, request).await?;
    json(StatusCode::OK, &queues.release_item(&queue, &id, body.of_deletion()?).await?)
}

/// `POST /v1/queues/{queue}/enqueue`.
async fn enqueue(
    State(server): State<Arc<Server>>,
    Path(queue): Path<String>,
    caller: Caller,
    request: Request,
) -> Result<Response, Problem> {
    let queues = queues(&server, &caller)?;
    let item: NewItem = read(&server, request).await?;
    let enqueued = queues.enqueue(&queue, item).await?;
    let status = if enqueued.duplicate { StatusCode::OK } else { StatusCode::CREATED };
    json(status, &enqueued)
}

/// `POST /v1/queues/{queue}/take`. If the caller disconnects before the response, the items return to the queue when their leases end.
async fn take(
    State(server): State<Arc<Server>>,
    Path(queue): Path<String>,
    caller: Caller,
    request: Request,
) -> Result<Response, Problem> {
    let queues = queues(&server, &caller)?;
    let take: TakeBody = read(&server, request).await?;
    json(StatusCode::OK, &queues.take(&queue, take).await?)
}

/// The outcomes for the items of a request, in its order.
#[derive(Serialize)]
struct Results {
    results: Vec<ItemResult>,
}

/// `POST /v1/queues/{queue}/renew`.
async fn renew(
    State(server): State<Arc<Server>>,
    Path(queue): Path<String>,
    caller: Caller,
    request: Request,
) -> Result<Response, Problem> {
    let queues = queues(&server, &caller)?;
    let renew: RenewBody = read(&server, request).await?;
    json(StatusCode::OK, &Results { results: queues.renew(&queue, renew).await? })
}

/// `POST /v1/queues/{queue}/done`.
async fn done(
    State(server): State<Arc<Server>>,
    Path(queue): Path<String>,
    caller: Caller,
    request: Request,
) -> Result<Response, Problem> {
    let queues = queues(&server, &caller)?;
    let items: ItemsBody = read(&server, request).await?;
    json(StatusCode::OK, &Results { results: queues.done(&queue, items).await? })
}

/// `POST /v1/queues/{queue}/release`.
async fn release(
    State(server): State<Arc<Server>>,
    Path(queue): Path<String>,
    caller: Caller,
    request: Request,
) -> Result<Response, Problem> {
    let queues = queues(&server, &caller)?;
    let items: ItemsBody = read(&server, request).await?;
    json(StatusCode::OK, &Results { results: queues.release(&queue, items).await? })
}

impl From<QueueError> for Problem {
    fn from(error: QueueError) -> Self {
        let problem = Self::new(error.code(), error.to_string());
        let named = |queue: ByteString| problem.clone().fact("name", &*queue);
        match error {
            QueueError::Invalid(invalid) => invalid.into(),
            QueueError::Store(error) => annals_core::ReadError::Store(error).into(),
            QueueError::Unknown(queue) => named(queue),
            QueueError::UnknownItem { queue, id } => named(queue).fact("key", &*id),
            QueueError::Full { queue, reason } => named(queue).fact("reason", reason),
            QueueError::Unavailable(reason) => problem.fact("reason", reason),
            _ => problem,
        }
    }
}
