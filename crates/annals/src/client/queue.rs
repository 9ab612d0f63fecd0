//! The work queues of a server's tenant, over HTTP, behind the same port as those of a host in this process.

use annals_core::handlers::{ActBody, Reason};
use annals_core::queue::{
    CancelledItem, Enqueued, ItemPage, ItemResult, ItemState, ItemStatus, ItemsBody, ItemsQuery, NewItem, PriorityBody,
    QueueBody, QueueDefinition, QueueError, QueuePage, QueueStatus, Queues, RenewBody, TakeBody, Taken,
};
use annals_core::{ByteString, Code, Invalid, ReadError, StoreError};
use async_trait::async_trait;
use bytes::Bytes;
use hyper::{Method, StatusCode};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::answers::{self, problem, unknown};
use super::http::Answer;
use super::{Client, Path};

/// The work queues of one tenant of a server. It keeps the contract of [`Queues`].
#[derive(Clone)]
pub struct QueuesClient(Client);

impl Client {
    /// Returns the work queues of the same tenant, over the same connections.
    pub fn queues(&self) -> QueuesClient {
        QueuesClient(self.clone())
    }
}

/// The answer to a renewal or a settlement.
#[derive(Deserialize)]
struct Results {
    results: Vec<ItemResult>,
}

impl QueuesClient {
    async fn send(&self, method: Method, path: Path, body: String) -> Result<Answer, QueueError> {
        let json = "application/json";
        let answer = self.0.http.ask(method, &path.done(), Bytes::from(body), json, json).await;
        let answer = answer.map_err(StoreError::Unreachable).map_err(QueueError::Store)?;
        if answer.status.is_success() { Ok(answer) } else { Err(refused(&answer)) }
    }

    async fn ask<T: DeserializeOwned>(&self, method: Method, path: Path, body: String) -> Result<T, QueueError> {
        let answer = self.send(method, path, body).await?;
        let read = serde_json::from_slice(&answer.body);
        read.map_err(|error| QueueError::Store(unknown(&format!("{} with {error}", answer.status))))
    }

    async fn post<T: DeserializeOwned>(&self, queue: &str, what: &str, body: &impl Serialize) -> Result<T, QueueError> {
        self.ask(Method::POST, Path::below(&["queues", queue, what]), json(body)).await
    }
}

fn json(value: &impl Serialize) -> String {
    // Strings and numbers always serialise to JSON.
    serde_json::to_string(value).unwrap_or_default()
}

fn reasoned(reason: Reason) -> String {
    let Reason { reason, by } = reason;
    json(&ActBody { reason, by, position: None, to: None, from: None })
}

fn refused(answer: &Answer) -> QueueError {
    let (code, problem) = match problem(answer) {
        Ok(problem) => problem,
        Err(unknown) => return QueueError::Store(unknown),
    };
    let queue = ByteString::from(problem.name.clone().unwrap_or_default());
    match code {
        Code::UnknownQueue => QueueError::Unknown(queue),
        Code::UnknownItem => QueueError::UnknownItem { queue, id: problem.into_key().into() },
        Code::QueueFull => QueueError::Full { queue, reason: problem.into_reason() },
        Code::QueueUnavailable => QueueError::Unavailable(problem.into_reason()),
        code => match answers::other::<ReadError>(code, problem) {
            ReadError::Store(error) => QueueError::Store(error),
            ReadError::Invalid(invalid) => invalid.into(),
            other => Invalid::new(code, "", other.to_string()).into(),
        },
    }
}

#[async_trait]
impl Queues for QueuesClient {
    async fn list(&self, after: Option<&str>, limit: usize) -> Result<QueuePage, QueueError> {
        let path = Path::below(&["queues"]).maybe("cursor", after).number("limit", limit);
        self.ask(Method::GET, path, String::new()).await
    }

    async fn get(&self, queue: &str) -> Result<QueueStatus, QueueError> {
        self.ask(Method::GET, Path::below(&["queues", queue]), String::new()).await
    }

    async fn put(&self, definition: QueueDefinition) -> Result<bool, QueueError> {
        definition.validate()?;
        let path = Path::below(&["queues", &definition.name]);
        let body = json(&QueueBody::from(definition.clone()));
        Ok(self.send(Method::PUT, path, body).await?.status == StatusCode::CREATED)
    }

    async fn delete(&self, queue: &str, reason: Reason) -> Result<(), QueueError> {
        self.send(Method::DELETE, Path::below(&["queues", queue]), reasoned(reason)).await.map(drop)
    }

    async fn enqueue(&self, queue: &str, item: NewItem) -> Result<Enqueued, QueueError> {
        self.post(queue, "enqueue", &item).await
    }

    async fn take(&self, queue: &str, take: TakeBody) -> Result<Taken, QueueError> {
        self.post(queue, "take", &take).await
    }

    async fn renew(&self, queue: &str, renew: RenewBody) -> Result<Vec<ItemResult>, QueueError> {
        self.post::<Results>(queue, "renew", &renew).await.map(|it| it.results)
    }

    async fn done(&self, queue: &str, items: ItemsBody) -> Result<Vec<ItemResult>, QueueError> {
        self.post::<Results>(queue, "done", &items).await.map(|it| it.results)
    }

    async fn release(&self, queue: &str, items: ItemsBody) -> Result<Vec<ItemResult>, QueueError> {
        self.post::<Results>(queue, "release", &items).await.map(|it| it.results)
    }

    async fn release_item(&self, queue: &str, id: &str, reason: Reason) -> Result<ItemResult, QueueError> {
        self.ask(Method::POST, Path::below(&["queues", queue, "items", id, "release"]), reasoned(reason)).await
    }

    async fn item(&self, queue: &str, id: &str) -> Result<ItemStatus, QueueError> {
        self.ask(Method::GET, Path::below(&["queues", queue, "items", id]), String::new()).await
    }

    async fn items(&self, queue: &str, query: ItemsQuery) -> Result<ItemPage, QueueError> {
        let state = query.state.map(|state| match state {
            ItemState::Pending => "pending",
            ItemState::Active => "active",
        });
        let path = Path::below(&["queues", queue, "items"]).maybe("state", state).maybe("user", query.user.as_deref());
        let path = path.maybe("cursor", query.after.as_deref()).number("limit", query.page_length());
        self.ask(Method::GET, path, String::new()).await
    }

    async fn prioritise(&self, queue: &str, id: &str, body: PriorityBody) -> Result<ItemStatus, QueueError> {
        self.ask(Method::PATCH, Path::below(&["queues", queue, "items", id]), json(&body)).await
    }

    async fn cancel(&self, queue: &str, id: &str, reason: Reason) -> Result<CancelledItem, QueueError> {
        self.ask(Method::DELETE, Path::below(&["queues", queue, "items", id]), reasoned(reason)).await
    }
}
