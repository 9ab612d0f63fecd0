//! The sequencer of a server's tenant, over HTTP, behind the same port as in this process.

use annals_core::{Ask, Asked, HeldCommit, HeldId, ReadError, SequencerState, Sequencing, StoreError, limits};
use async_trait::async_trait;
use serde::Deserialize;

use super::{Client, Path, answers};

/// The sequencer of one tenant of a server. It keeps the contract of [`Sequencing`].
#[derive(Clone)]
pub struct SequencingClient(Client);

impl Client {
    /// Returns the sequencer of the same tenant, over the same connections.
    pub fn sequencing(&self) -> SequencingClient {
        SequencingClient(self.clone())
    }
}

#[derive(Deserialize)]
struct List {
    held: Vec<HeldCommit>,
}

#[async_trait]
impl Sequencing for SequencingClient {
    async fn state(&self) -> Result<SequencerState, ReadError> {
        self.0.get(Path::below(&["sequencer"]).done()).await
    }

    async fn held(&self, after: Option<HeldId>, limit: usize) -> Result<Vec<HeldCommit>, ReadError> {
        let after = after.map(|after| format!("{}/{}", after.collection, after.commit));
        let path = Path::below(&["held"]).maybe("after", after).number("limit", limit.min(limits::PAGE_MAX + 1));
        let List { held } = self.0.get(path.done()).await?;
        Ok(held)
    }

    async fn ask(&self, commit: HeldId, what: Ask) -> Result<Asked, ReadError> {
        let word = match what {
            Ask::Retry => "retry",
            Ask::Accept => "accept",
        };
        let json = serde_json::to_vec(&commit)
            .map_err(|error| StoreError::Unreachable(format!("the commit cannot be written as JSON: {error}")))?;
        let (path, json) = (Path::below(&["held", word]).done(), bytes::Bytes::from(json));
        // The request is idempotent, so it is safe to retry.
        let answer = match self.0.http.post(&path, json.clone()).await {
            Ok(answer) => answer,
            Err(_) => self.0.http.post(&path, json).await.map_err(StoreError::Unreachable)?,
        };
        answers::read(&answer)
    }
}
