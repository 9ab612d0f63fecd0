//! The Redis adapter of work queues ([`annals_core::queue::WorkQueue`]). It is a separate crate because it is the only one that builds a
//! Redis client.
//!
//! ```text
//!  RedisQueues::open(url) ─▶ of(store, tenant) ─▶ queue.rs: one call of queue.lua for each request
//!                                                    └─ annals:{STORE/TENANT/QUEUE}:…   one hash slot, listed in queue.lua
//! ```
//!
//! Redis holds only the items: definitions are records of the store, so after Redis was emptied, the queues are empty and keep their caps.
//! A script is atomic, so concurrent callers in any number of processes see each other's hand-outs. Times are those of the caller.
//!
//! Durability over a restart depends on the configuration of Redis: with `appendonly yes` and `appendfsync always` everything acknowledged
//! is kept, with `everysec` all but the last second.

mod answers;
mod queue;

use std::sync::Arc;
use std::time::Duration;

use annals_core::queue::{QueueBackend, QueueError, WorkQueue};
use annals_core::{Clock, Code, OpenError, Uuid};
use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use tokio::sync::OnceCell;

/// Timeout of a response. The client's default of half a second is too short for a Redis that loads its file after a restart.
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// Timeout of one attempt to connect.
const CONNECT_MAX: Duration = Duration::from_secs(2);

/// Work queues on one Redis server. It connects on first use, so Redis may be away when a program starts.
pub struct RedisQueues(Arc<Link>);

/// The connection that all queues share.
pub(crate) struct Link {
    client: redis::Client,
    connection: OnceCell<ConnectionManager>,
    pub script: redis::Script,
    pub clock: Arc<dyn Clock>,
}

impl RedisQueues {
    /// Creates the queues for the Redis at `url`, for example `redis://127.0.0.1:6379` or `redis://:PASSWORD@HOST/0`. Does not connect.
    ///
    /// # Errors
    /// `invalid_config` for an invalid URL.
    pub fn open(url: &str, clock: Arc<dyn Clock>) -> Result<Self, OpenError> {
        let wrong = |error: redis::RedisError| {
            // The URL may contain a password.
            let message = format!("the URL of the Redis for work queues cannot be read: {error}");
            OpenError::new(Code::InvalidConfig, message)
        };
        let client = redis::Client::open(url).map_err(wrong)?;
        let script = redis::Script::new(include_str!("queue.lua"));
        Ok(Self(Arc::new(Link { client, connection: OnceCell::new(), script, clock })))
    }
}

impl QueueBackend for RedisQueues {
    fn of(&self, store_id: Uuid, tenant: &str) -> Arc<dyn WorkQueue> {
        Arc::new(queue::RedisQueue { link: Arc::clone(&self.0), place: format!("{store_id}/{tenant}") })
    }
}

impl Link {
    /// Returns the connection, which reconnects by itself.
    pub async fn connection(&self) -> Result<ConnectionManager, QueueError> {
        let connect = async || {
            let config = ConnectionManagerConfig::new()
                .set_response_timeout(Some(ANSWER_MAX))
                .set_connection_timeout(Some(CONNECT_MAX))
                .set_number_of_retries(2);
            self.client.get_connection_manager_with_config(config).await.map_err(|error| unavailable(&error))
        };
        self.connection.get_or_try_init(connect).await.cloned()
    }
}

pub(crate) fn unavailable(error: &redis::RedisError) -> QueueError {
    QueueError::Unavailable(format!("Redis: {error}"))
}
