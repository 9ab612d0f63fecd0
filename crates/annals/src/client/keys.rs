//! The prepare keys of a server's tenant, over HTTP, behind the same port as keys in this process. Bodies are BSON, so every type is
//! preserved.

use annals_core::wire::{read_found_key, read_key_changed, read_key_page, write_key_change, write_key_rollback};
use annals_core::{Code, FoundKey, KeyChange, KeyError, KeyPage, KeysQuery, PrepareKeys, StoreError, valid_key};
use async_trait::async_trait;
use bytes::Bytes;
use hyper::Method;

use super::answers::{other, problem, unknown};
use super::{Client, Path};
use crate::client::http::Answer;

/// The prepare keys of one tenant of a server. It keeps the contract of [`PrepareKeys`].
///
/// If the connection breaks during a change, the outcome is unknown: [`StoreError::Unreachable`]. The client does not retry, because if
/// the first attempt took the key, a second one would be refused.
#[derive(Clone)]
pub struct KeysClient(Client);

impl Client {
    /// Returns the prepare keys of the same tenant, over the same connections. They belong to the tenant, not to a scope.
    pub fn prepare_keys(&self) -> KeysClient {
        KeysClient(self.clone())
    }
}

fn read<T>(answer: &Answer, read: impl Fn(&[u8]) -> Result<T, String>) -> Result<T, KeyError> {
    Ok(read(&answer.body).map_err(|error| unknown(&format!("{} with {error}", answer.status)))?)
}

impl KeysClient {
    /// Sends a read, and retries once if the connection breaks: the server may have closed a pooled connection just as it was reused.
    async fn ask(&self, path: &str) -> Result<Answer, StoreError> {
        match self.0.http.document(Method::GET, path, Bytes::new()).await {
            Ok(answer) => Ok(answer),
            Err(_) => self.0.http.document(Method::GET, path, Bytes::new()).await.map_err(StoreError::Unreachable),
        }
    }
}

#[async_trait]
impl PrepareKeys for KeysClient {
    async fn change(&self, change: KeyChange) -> Result<bool, KeyError> {
        change.validate()?;
        let (method, path, body) = match &change {
            KeyChange::Rollback(old) => {
                let path = Path::below(&["keys", &old.name, &old.key, "rollback"]);
                (Method::POST, path, write_key_rollback(old.value.as_ref()))
            }
            KeyChange::Prepare(new) | KeyChange::Reprepare { new, .. } | KeyChange::Move { new, .. } => {
                (Method::PUT, Path::below(&["keys", &new.name, &new.key]), write_key_change(new, &change))
            }
        };
        let answer = self.0.http.document(method, &path.done(), body.into_bytes().into()).await;
        let answer = answer.map_err(StoreError::Unreachable)?;
        if answer.status.is_success() {
            return read(&answer, read_key_changed);
        }
        match problem(&answer)? {
            (Code::KeyNotHeld, _) => Err(change.not_held()),
            (code, problem) => Err(other(code, problem)),
        }
    }

    async fn look(&self, name: &str, key: &str) -> Result<Option<FoundKey>, KeyError> {
        valid_key(name, key)?;
        let answer = self.ask(&Path::below(&["keys", name, key]).done()).await?;
        if answer.status.is_success() {
            return read(&answer, read_found_key).map(Some);
        }
        match problem(&answer)? {
            (Code::UnknownKey, _) => Ok(None),
            (code, problem) => Err(other(code, problem)),
        }
    }

    async fn list(&self, query: KeysQuery) -> Result<KeyPage, KeyError> {
        query.validate()?;
        let path = Path::below(&["keys", &query.name]).maybe("after", query.after).number("limit", query.limit);
        let answer = self.ask(&path.done()).await?;
        if answer.status.is_success() {
            return read(&answer, read_key_page);
        }
        let (code, problem) = problem(&answer)?;
        Err(other(code, problem))
    }
}
