//! The work queues of one tenant. Each request is one call of the script.

use std::sync::Arc;
use std::time::Duration;

use annals_core::ByteString;
use annals_core::queue::{
    Enqueued, ItemPage, ItemRef, ItemResult, ItemState, ItemStatus, ItemsQuery, NewItem, QueueCounts, QueueDefinition,
    QueueError, QueuePriority, Taken, WorkQueue,
};
use async_trait::async_trait;
use redis::FromRedisValue;

use crate::answers::{self, Fields};
use crate::{Link, unavailable};

/// The queues of one tenant of a store.
pub(crate) struct RedisQueue {
    pub link: Arc<Link>,
    /// Store and tenant: the prefix of all keys.
    pub place: String,
}

impl RedisQueue {
    /// Calls the script, and sends its text if Redis does not have it.
    async fn call<T: FromRedisValue>(
        &self,
        queue: &QueueDefinition,
        request: &str,
        arguments: &[&str],
    ) -> Result<T, QueueError> {
        let mut connection = self.link.connection().await?;
        let mut call = self.link.script.prepare_invoke();
        call.key(format!("annals:{{{}/{}}}", self.place, queue.name));
        call.arg(request).arg(self.link.clock.now().as_millis());
        call.arg(queue.cap).arg(u8::from(queue.fair)).arg(queue.ageing_ms);
        call.arg(queue.pending_max).arg(queue.pending_max_per_user);
        for argument in arguments {
            call.arg(*argument);
        }
        call.invoke_async(&mut connection).await.map_err(|error| unavailable(&error))
    }

    async fn settle(
        &self,
        queue: &QueueDefinition,
        request: &str,
        items: &[ItemRef],
        lease: Duration,
    ) -> Result<Vec<ItemResult>, QueueError> {
        let lease = lease.as_millis().to_string();
        let mut arguments = vec![&*lease];
        for item in items {
            arguments.extend([&*item.id, item.token.as_deref().unwrap_or_default()]);
        }
        let answer: Vec<(String, String, String)> = self.call(queue, request, &arguments).await?;
        answers::results(items, &answer)
    }

    async fn one(&self, queue: &QueueDefinition, request: &str, arguments: &[&str]) -> Result<ItemStatus, QueueError> {
        let fields: Fields = self.call(queue, request, arguments).await?;
        let id = ByteString::from(arguments.first().copied().unwrap_or_default());
        answers::status(&fields)?.ok_or(QueueError::UnknownItem { queue: queue.name.clone(), id })
    }
}

fn index(priority: QueuePriority) -> String {
    priority.index().to_string()
}

#[async_trait]
impl WorkQueue for RedisQueue {
    async fn enqueue(&self, queue: &QueueDefinition, item: &NewItem) -> Result<Enqueued, QueueError> {
        let (priority, payload) = (index(item.priority), item.payload_text());
        let answer: Fields = self.call(queue, "enqueue", &[&*item.id, &*priority, &*item.user, &*payload]).await?;
        answers::enqueued(queue, &item.id, &answer)
    }

    async fn take(
        &self,
        queue: &QueueDefinition,
        max: usize,
        lease: Duration,
        worker: &str,
    ) -> Result<Taken, QueueError> {
        let (max, lease) = (max.to_string(), lease.as_millis().to_string());
        answers::taken(self.call(queue, "take", &[&*max, &*lease, worker]).await?)
    }

    async fn renew(
        &self,
        queue: &QueueDefinition,
        items: &[ItemRef],
        lease: Duration,
    ) -> Result<Vec<ItemResult>, QueueError> {
        self.settle(queue, "renew", items, lease).await
    }

    async fn done(&self, queue: &QueueDefinition, items: &[ItemRef]) -> Result<Vec<ItemResult>, QueueError> {
        self.settle(queue, "done", items, Duration::ZERO).await
    }

    async fn release(&self, queue: &QueueDefinition, items: &[ItemRef]) -> Result<Vec<ItemResult>, QueueError> {
        self.settle(queue, "release", items, Duration::ZERO).await
    }

    async fn prioritise(
        &self,
        queue: &QueueDefinition,
        id: &str,
        priority: QueuePriority,
    ) -> Result<ItemStatus, QueueError> {
        self.one(queue, "prioritise", &[id, &index(priority)]).await
    }

    async fn cancel(&self, queue: &QueueDefinition, id: &str) -> Result<ItemStatus, QueueError> {
        self.one(queue, "cancel", &[id]).await
    }

    async fn item(&self, queue: &QueueDefinition, id: &str) -> Result<ItemStatus, QueueError> {
        self.one(queue, "item", &[id]).await
    }

    async fn items(&self, queue: &QueueDefinition, query: &ItemsQuery) -> Result<ItemPage, QueueError> {
        let (start, limit) = (query.start()?.to_string(), query.page_length().to_string());
        let state = match query.state {
            None => "",
            Some(ItemState::Pending) => "pending",
            Some(ItemState::Active) => "active",
        };
        let (user, any_user) = match &query.user {
            None => ("", "1"),
            Some(user) => (&**user, "0"),
        };
        answers::page(self.call(queue, "items", &[&*start, &*limit, state, user, any_user]).await?)
    }

    async fn counts(&self, queue: &QueueDefinition) -> Result<QueueCounts, QueueError> {
        let answer: Vec<String> = self.call(queue, "counts", &[]).await?;
        answers::counts(&answer)
    }

    async fn clear(&self, queue: &QueueDefinition) -> Result<(), QueueError> {
        let _: Vec<String> = self.call(queue, "clear", &[]).await?;
        Ok(())
    }
}
