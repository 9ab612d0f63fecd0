//! The work of a saga outside its record: committing the entries of its outbox, and calling functions.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use annals_core::sagas::{SagaActed, SagaFailure, SagaRecord, SagaWork};
use annals_core::{Clock, CommitError, EventLog, StoreError};
use futures_util::FutureExt;

use crate::host::message_of;
use crate::saga::{Function, SagaCall};

/// The first and the longest pause before a commit is repeated because its outcome is unknown or the store could not take it.
const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(10));

/// The outcome of the work.
pub(super) enum Done {
    Sent { count: usize, refused: Option<String> },
    Acted { work: SagaWork, result: Result<SagaActed, SagaFailure> },
}

/// Commits the entries of the outbox in order, up to one that is refused. An entry that was already committed adds nothing.
pub(super) async fn send(log: Arc<dyn EventLog>, clock: Arc<dyn Clock>, saga: Arc<SagaRecord>) -> Done {
    for (count, entry) in saga.annals.outbox.iter().enumerate() {
        let commit = match entry.commit(&saga) {
            Ok(commit) => commit,
            Err(why) => return Done::Sent { count, refused: Some(why) },
        };
        let mut pause = PAUSES.0;
        loop {
            match log.commit(commit.clone()).await {
                Ok(_) => break,
                Err(CommitError::Store(error)) if is_passing(&error) => {
                    tracing::debug!(saga = saga.saga_id, %error, "retrying to commit a command of a saga");
                    clock.sleep(pause).await;
                    pause = (pause * 2).min(PAUSES.1);
                }
                Err(refused) => return Done::Sent { count, refused: Some(refused.to_string()) },
            }
        }
    }
    Done::Sent { count: saga.annals.outbox.len(), refused: None }
}

/// Returns whether the store may accept the same commit later.
fn is_passing(error: &StoreError) -> bool {
    !matches!(error, StoreError::NotSupported(_))
}

/// Calls the function of a step or compensation.
pub(super) async fn call(function: Function, saga: Arc<SagaRecord>, work: SagaWork) -> Done {
    let called = AssertUnwindSafe(async { function(SagaCall::of(&saga, &work)).await }).catch_unwind().await;
    let result = called.unwrap_or_else(|panic| {
        let reason = format!("the function of {:?} panicked: {}", work.name, message_of(&*panic));
        Err(SagaFailure { reason, never: false })
    });
    Done::Acted { work, result }
}
