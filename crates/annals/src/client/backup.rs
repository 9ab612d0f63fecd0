//! A backup of a server's store.

use annals_core::{ReadError, StoreError};
use bytes::Bytes;
use hyper::Method;

use super::http::ByteStream;
use super::{Client, refused};

/// The archive of a backup as it comes from a server.
pub struct BackupStream(ByteStream);

impl BackupStream {
    /// The next bytes; none at the end, which only a whole backup has.
    ///
    /// # Errors
    /// [`StoreError::Unreachable`] when the server breaks it off; its log says why.
    pub async fn next(&mut self) -> Result<Option<Bytes>, StoreError> {
        self.0.next().await.map_err(StoreError::Unreachable)
    }
}

impl Client {
    /// Begins a backup of the server's whole store. `earlier` is the manifest of one that is at hand: what that one holds and cannot
    /// have changed since does not come again.
    ///
    /// # Errors
    /// What the server refuses it with, or [`StoreError::Unreachable`].
    pub async fn backup(&self, earlier: Option<Vec<u8>>) -> Result<BackupStream, ReadError> {
        let (method, body) = match earlier {
            Some(manifest) => (Method::POST, manifest.into()),
            None => (Method::GET, Bytes::new()),
        };
        self.backup_of(method, "/v1/backup", body).await
    }

    /// The same without records and streams, whole: what is left of a store whose records are damaged.
    ///
    /// # Errors
    /// As there.
    pub async fn backup_without_records(&self) -> Result<BackupStream, ReadError> {
        self.backup_of(Method::GET, "/v1/backup?without_records", Bytes::new()).await
    }

    async fn backup_of(&self, method: Method, path: &str, body: Bytes) -> Result<BackupStream, ReadError> {
        match self.http.bytes(method, path, body).await.map_err(StoreError::Unreachable)? {
            Ok(stream) => Ok(BackupStream(stream)),
            Err(answer) => Err(refused(&answer)),
        }
    }
}
