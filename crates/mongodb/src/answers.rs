//! How long MongoDB is waited for. An election is waited for, because it is over in seconds; where a primary has been gone for longer,
//! which the driver's heartbeats tell, nobody waits for what is not going to come.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use annals_core::StoreError;
use annals_system::sleep;

use crate::primary::{Primary, no_primary};

/// An election is over within this: so long without a primary is nothing out of the ordinary.
const ELECTION_TIME_MAX: Duration = Duration::from_secs(10);
/// How long who comes later waits for a primary all the same.
const WITHOUT_PRIMARY: Duration = Duration::from_secs(1);

/// What reads, and whatever else is about to begin, wait under.
pub(crate) struct Answers {
    primary: Arc<Primary>,
    /// How long a read may take.
    time: Duration,
}

impl Answers {
    pub(crate) fn new(primary: Arc<Primary>, time: Duration) -> Self {
        Self { primary, time }
    }

    /// Sees that there is a primary, or that one may be elected at any moment.
    ///
    /// # Errors
    /// `unreachable`, naming the servers, after a second where there has been none for longer than an election takes.
    pub(crate) async fn expected(&self) -> Result<(), StoreError> {
        if !self.primary.is_gone_for(ELECTION_TIME_MAX) {
            return Ok(());
        }
        let back = tokio::time::timeout(WITHOUT_PRIMARY, self.primary.back()).await;
        back.map_err(|_| self.refusal())
    }

    /// What comes of a read, in bounded time: that of an answer, or a second where the primary is known to be gone.
    ///
    /// # Errors
    /// Those of the read; `unreachable`, naming the servers, and [`StoreError::Unreachable`] with the limit.
    pub(crate) async fn of<T, E: From<StoreError>>(&self, read: impl Future<Output = Result<T, E>>) -> Result<T, E> {
        tokio::select! {
            biased;
            read = read => read,
            () = self.gone() => Err(self.refusal().into()),
            () = sleep(self.time) => Err(StoreError::Unreachable(no_answer(self.time)).into()),
        }
    }

    /// Ends once the primary has been gone for longer than an election takes, and does not come back.
    async fn gone(&self) {
        loop {
            self.primary.gone_for(ELECTION_TIME_MAX).await;
            if tokio::time::timeout(WITHOUT_PRIMARY, self.primary.back()).await.is_err() {
                return;
            }
        }
    }

    fn refusal(&self) -> StoreError {
        self.primary.refusal().unwrap_or_else(|| no_primary("it has just become reachable again"))
    }
}

/// A server that is silent, with the limit that was waited for.
pub(crate) fn no_answer(time: Duration) -> String {
    format!("MongoDB did not answer within {} ms (mongodb.answer_timeout_ms)", time.as_millis())
}
