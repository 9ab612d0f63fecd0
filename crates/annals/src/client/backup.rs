//! Backups of a server's store.

use annals_core::{ReadError, StoreError};
use bytes::Bytes;
use hyper::Method;

use super::http::ByteStream;
use super::{Client, refused};

/// The archive of a backup, streamed from a server.
pub struct BackupStream(ByteStream);

impl BackupStream {
    /// Returns the next bytes, or `None` at the end. Only a complete backup has an end.
    ///
    /// # Errors
    /// [`StoreError::Unreachable`] if the server aborts the backup; the server's log says why.
    pub async fn next(&mut self) -> Result<Option<Bytes>, StoreError> {
        self.0.next().await.map_err(StoreError::Unreachable)
    }
}

impl Client {
    /// Begins a backup of the server's whole store. `earlier` is the manifest of a backup that the caller still has: data that it holds
    /// and that cannot have changed since is omitted.
    ///
    /// # Errors
    /// The server's refusal, or [`StoreError::Unreachable`].
    pub async fn backup(&self, earlier: Option<Vec<u8>>) -> Result<BackupStream, ReadError> {
        let (method, body) = match earlier {
            Some(manifest) => (Method::POST, manifest.into()),
            None => (Method::GET, Bytes::new()),
        };
        self.backup_of(method, "/v1/backup", body).await
    }

    /// Begins a full backup without records and streams, to save the logs of a store whose records are damaged.
    ///
    /// # Errors
    /// As for [`backup`](Self::backup).
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
