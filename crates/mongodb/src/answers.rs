//! Time limits for responses of MongoDB. Requests wait during an election, which takes seconds. If the driver's heartbeats show that the
//! primary has been gone for longer, they fail early.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use annals_core::StoreError;
use annals_system::sleep;

use crate::primary::{Primary, no_primary};

/// An election is over within this time, so requests wait that long without a primary.
const ELECTION_TIME_MAX: Duration = Duration::from_secs(10);
/// How long later requests still wait for a primary.
const WITHOUT_PRIMARY: Duration = Duration::from_secs(1);

/// The limit under which reads and new requests wait.
pub(crate) struct Answers {
    primary: Arc<Primary>,
    /// The time limit of a read.
    time: Duration,
}

impl Answers {
    pub(crate) fn new(primary: Arc<Primary>, time: Duration) -> Self {
        Self { primary, time }
    }

    /// Checks that there is a primary, or that an election may still be in progress.
    ///
    /// # Errors
    /// `unreachable`, naming the servers, after a second, if there has been no primary for longer than an election takes.
    pub(crate) async fn expected(&self) -> Result<(), StoreError> {
        if !self.primary.is_gone_for(ELECTION_TIME_MAX) {
            return Ok(());
        }
        let back = tokio::time::timeout(WITHOUT_PRIMARY, self.primary.back()).await;
        back.map_err(|_| self.refusal())
    }

    /// Runs a read in bounded time: the limit of a response, or a second if the primary is known to be gone.
    ///
    /// # Errors
    /// The errors of the read; `unreachable`, naming the servers; [`StoreError::Unreachable`], naming the limit.
    pub(crate) async fn of<T, E: From<StoreError>>(&self, read: impl Future<Output = Result<T, E>>) -> Result<T, E> {
        tokio::select! {
            biased;
            read = read => read,
            () = self.gone() => Err(self.refusal().into()),
            () = sleep(self.time) => Err(StoreError::Unreachable(no_answer(self.time)).into()),
        }
    }

    /// Waits until the primary has been gone for longer than an election takes, and does not come back.
    async fn gone(&self) {
        loop {
            self.primary.gone_for(ELECTION_TIME_MAX).await;
            if tokio::time::timeout(WITHOUT_PRIMARY, self.primary.back()).await.is_err() {
                return;
            }
        }
    }

    fn refusal(&self) -> StoreError {
        self.primary.refusal().unwrap_or_else(|| no_primary("it has come back this moment"))
    }
}

/// Returns the message about a server that did not respond within the limit.
pub(crate) fn no_answer(time: Duration) -> String {
    format!("MongoDB gave no answer within {} ms (mongodb.answer_timeout_ms)", time.as_millis())
}
