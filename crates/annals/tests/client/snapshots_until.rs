//! A server saves no snapshot ahead of its log, and the suites of snapshots and queries save some without commits. So a snapshot that is
//! refused as ahead is saved after the commits that it lacks, or past the server where commits would be found by the case.

use std::sync::Arc;

use annals::{
    Aggregate, ByteString, Code, EventLog, Index, NewCommit, NewEvent, RecordError, Snapshot, Snapshots,
    SnapshotsClient, Version,
};
use async_trait::async_trait;

/// How a snapshot is saved that the server refuses as ahead of the log.
pub enum Ahead {
    /// Through the server, after commits.
    Commits(Arc<dyn EventLog>),
    /// Past the server, in its store.
    Direct(Arc<dyn Snapshots>),
}

pub struct SnapshotsUntil {
    pub client: SnapshotsClient,
    pub ahead: Ahead,
}

#[async_trait]
impl Snapshots for SnapshotsUntil {
    async fn declare(&self, name: &str, indexes: Vec<Index>) -> Result<(), RecordError> {
        self.client.declare(name, indexes).await
    }

    async fn save(&self, snapshot: &Snapshot) -> Result<bool, RecordError> {
        match (self.client.save(snapshot).await, &self.ahead) {
            (Err(error), Ahead::Commits(log)) if error.code() == Code::SnapshotAhead => {
                reach(&**log, &snapshot.info.aggregate, snapshot.info.version).await;
                self.client.save(snapshot).await
            }
            (Err(error), Ahead::Direct(snapshots)) if error.code() == Code::SnapshotAhead => {
                snapshots.save(snapshot).await
            }
            (saved, _) => saved,
        }
    }

    async fn load(&self, aggregate: &Aggregate) -> Result<Option<Snapshot>, RecordError> {
        self.client.load(aggregate).await
    }

    async fn until(&self, aggregate: &Aggregate, version: Version) -> Result<(), RecordError> {
        self.client.until(aggregate, version).await
    }

    async fn delete(&self, aggregate: &Aggregate, version: Option<Version>) -> Result<bool, RecordError> {
        self.client.delete(aggregate, version).await
    }
}

async fn reach(log: &dyn EventLog, aggregate: &Aggregate, version: Version) {
    while log.aggregate_version(aggregate).await.expect("it is read") < version {
        let mut commit = NewCommit::new(aggregate.name.clone(), aggregate.id.clone());
        commit.events.push(NewEvent::new(ByteString::from_static("changed"), annals::Data::empty()));
        log.commit(commit).await.expect("it is taken");
    }
}
