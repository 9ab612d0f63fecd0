//! The same as [`Until`](crate::until::Until) for prepare keys: once its server was stopped, what cannot be reached is closed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use annals::{FoundKey, KeyChange, KeyError, KeyPage, KeysClient, KeysQuery, PrepareKeys, StoreError};
use async_trait::async_trait;

pub struct KeysUntil {
    pub client: KeysClient,
    pub closed: Arc<AtomicBool>,
}

impl KeysUntil {
    fn told<T>(&self, result: Result<T, KeyError>) -> Result<T, KeyError> {
        result.map_err(|error| match error {
            KeyError::Store(StoreError::Unreachable(_)) if self.closed.load(Ordering::SeqCst) => {
                StoreError::Closed.into()
            }
            other => other,
        })
    }
}

#[async_trait]
impl PrepareKeys for KeysUntil {
    async fn change(&self, change: KeyChange) -> Result<bool, KeyError> {
        self.told(self.client.change(change).await)
    }

    async fn look(&self, name: &str, key: &str) -> Result<Option<FoundKey>, KeyError> {
        self.told(self.client.look(name, key).await)
    }

    async fn list(&self, query: KeysQuery) -> Result<KeyPage, KeyError> {
        self.told(self.client.list(query).await)
    }
}
