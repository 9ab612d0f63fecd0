//! The snapshots of a server's tenant, over HTTP, behind the same port as snapshots in this process.

use annals_core::bson::raw::{RawDocument, RawDocumentBuf};
use annals_core::wire::records as wire;
use annals_core::wire::{read_saved, read_snapshot, write_snapshot};
use annals_core::{
    Aggregate, Code, Collection, Index, RecordError, Snapshot, Snapshots, StoreError, Version, snapshot_collection,
};
use async_trait::async_trait;
use bytes::Bytes;
use hyper::Method;

use super::records::refused;
use super::{Client, Path, answers};
use crate::client::http::Answer;

/// The snapshots of one tenant of a server. It keeps the contract of [`Snapshots`].
#[derive(Clone)]
pub struct SnapshotsClient(Client);

impl Client {
    /// Returns the snapshots of the same tenant, over the same connections. They belong to the tenant, not to a scope.
    pub fn snapshots(&self) -> SnapshotsClient {
        SnapshotsClient(self.clone())
    }
}

impl SnapshotsClient {
    /// Sends a request, and retries once if the connection breaks: the server may have closed a pooled connection just as it was reused.
    /// All requests here are idempotent.
    async fn ask(&self, method: Method, path: &str, body: Bytes) -> Result<Answer, RecordError> {
        let answer = match self.0.http.document(method.clone(), path, body.clone()).await {
            Ok(answer) => answer,
            Err(_) => self.0.http.document(method, path, body).await.map_err(StoreError::Unreachable)?,
        };
        if answer.status.is_success() { Ok(answer) } else { Err(refused(&answer)) }
    }

    /// Returns the snapshot at this path.
    async fn loaded(&self, aggregate: &Aggregate, path: &str) -> Result<Option<Snapshot>, RecordError> {
        match self.ask(Method::GET, path, Bytes::new()).await {
            Ok(answer) => {
                let snapshot = |body: &[u8]| read_snapshot(aggregate, body, wire::Encoding::Bson);
                read(&answer, |body| snapshot(body).map_err(|error| error.to_string())).map(Some)
            }
            Err(RecordError::Invalid(invalid)) if invalid.code == Code::UnknownSnapshot => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn path(aggregate: &Aggregate) -> Result<Path, RecordError> {
        aggregate.validate()?;
        snapshot_collection(&aggregate.name)?;
        Ok(Path::below(&["snapshots", &aggregate.name, &aggregate.id]))
    }
}

fn read<T>(answer: &Answer, read: impl Fn(&[u8]) -> Result<T, String>) -> Result<T, RecordError> {
    Ok(read(&answer.body).map_err(|error| answers::unknown(&format!("{} with {error}", answer.status)))?)
}

#[async_trait]
impl Snapshots for SnapshotsClient {
    async fn declare(&self, name: &str, indexes: Vec<Index>) -> Result<(), RecordError> {
        snapshot_collection(name)?;
        let declared = Collection { name: name.to_owned(), indexes, feed: false };
        let body: RawDocumentBuf = wire::write_collection(&declared)?;
        let path = Path::below(&["snapshots", name]).done();
        self.ask(Method::PUT, &path, body.into_bytes().into()).await.map(drop)
    }

    async fn save(&self, snapshot: &Snapshot) -> Result<bool, RecordError> {
        snapshot.validate()?;
        let path = Self::path(&snapshot.info.aggregate)?.done();
        let answer = self.ask(Method::PUT, &path, write_snapshot(snapshot).into_bytes().into()).await?;
        read(&answer, read_saved)
    }

    async fn load(&self, aggregate: &Aggregate) -> Result<Option<Snapshot>, RecordError> {
        self.loaded(aggregate, &Self::path(aggregate)?.done()).await
    }

    async fn until(&self, aggregate: &Aggregate, version: Version) -> Result<(), RecordError> {
        let Some(past) = version.checked_sub(1) else { return Ok(()) };
        let path = Self::path(aggregate)?.number("past", past).done();
        // The server answers after a while even if nothing has happened.
        while self.loaded(aggregate, &path).await?.is_none_or(|snapshot| snapshot.info.version < version) {}
        Ok(())
    }

    async fn delete(&self, aggregate: &Aggregate, version: Option<Version>) -> Result<bool, RecordError> {
        let path = Self::path(aggregate)?.maybe("version", version).done();
        let answer = self.ask(Method::DELETE, &path, Bytes::new()).await?;
        read(&answer, |body| {
            let document = RawDocument::from_bytes(body).map_err(|error| error.to_string())?;
            document.get_bool("deleted").map_err(|error| error.to_string())
        })
    }
}
