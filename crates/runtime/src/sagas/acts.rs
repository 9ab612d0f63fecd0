//! Acts of operators on a saga: the request is written into the saga's record, which its owner reads.

use std::time::Duration;

use annals_core::handlers::Reason;
use annals_core::sagas::{SagaAsked, SagaError, SagaPhase, SagaRecord, SagaRequestRecord, SagaStatus};
use annals_core::{Condition, Expected, RecordError, TypedRecords, bson};

use super::{HostSagas, whatever};

/// How long an act waits for the owner to perform it, which may also happen later.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often the stored saga is read while another process owns it.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Returns the expectation that the saga has not changed since it was read.
pub(super) fn unchanged(saga: &SagaRecord) -> Expected {
    Expected::Matching(Condition::eq("revision_id", saga.revision_id))
}

impl HostSagas {
    /// Reads a saga.
    pub(super) async fn saga(&self, id: &str) -> Result<SagaRecord, SagaError> {
        self.open()?;
        let found = match self.typed::<SagaRecord>().get(id).await {
            Err(RecordError::UnknownCollection(_)) => None,
            found => found?,
        };
        found.map(|found| found.value).ok_or_else(|| SagaError::Unknown(id.into()))
    }

    /// Writes an operator's request into the saga, together with the act, and waits for the saga's owner.
    pub(super) async fn ask(&self, id: &str, act: &str, reason: Reason) -> Result<SagaStatus, SagaError> {
        reason.validate()?;
        self.declare().await?;
        self.start();
        let name = loop {
            let mut saga = self.saga(id).await?;
            check(&saga, act)?;
            let expected = unchanged(&saga);
            let now = self.clock().now();
            let Reason { reason: why, by } = reason.clone();
            saga.ask(SagaAsked { act: act.to_owned(), reason: why, by }, now);
            let request = SagaRequestRecord {
                saga_id: saga.saga_id.clone(),
                saga_name: saga.saga_name.clone(),
                at: bson::DateTime::from_millis(now.as_millis()),
            };
            let changes = vec![
                TypedRecords::replacement(&saga, expected)?,
                self.recorded(&format!("saga/{}/{id}", saga.saga_name), act, reason.clone())?,
                TypedRecords::replacement(&request, whatever())?,
            ];
            match self.records.write(changes).await {
                Err(RecordError::NotAsExpected { change: 0, .. }) => {}
                written => {
                    written?;
                    break saga.saga_name;
                }
            }
        };
        self.wake(&name);
        self.until_done(id).await
    }

    /// Waits for a limited time until the owner has performed the request.
    async fn until_done(&self, id: &str) -> Result<SagaStatus, SagaError> {
        let until = self.clock().now().plus(PATIENCE);
        loop {
            let mut written = self.written.subscribe();
            let saga = self.saga(id).await?;
            if saga.annals.asked.is_none() || self.clock().now() >= until {
                return Ok(saga.status());
            }
            let look = self.clock().now().plus(LOOK_EVERY);
            tokio::select! {
                _ = written.changed() => {}
                () = self.clock().sleep_until(look) => {}
            }
        }
    }
}

/// Checks that the state of a saga allows an act.
fn check(saga: &SagaRecord, act: &str) -> Result<(), SagaError> {
    let refused = |state: String| {
        Err(SagaError::NotAllowed { act: act.to_owned(), what: format!("saga {:?}", saga.saga_id), state })
    };
    let inner = &saga.annals;
    if saga.state.is_over() {
        return refused(format!("it is {}", saga.state.name()));
    }
    if let Some(asked) = &inner.asked {
        return refused(format!("an earlier request is still pending: {}; wait until it is done", asked.act));
    }
    match act {
        "cancel" if inner.undoing && inner.ending.is_some() => refused("its steps are already being undone".to_owned()),
        "cancel" if inner.undoing => refused("its steps are done, and what they hold is being released".to_owned()),
        "retry" if !matches!(inner.phase, SagaPhase::Parked | SagaPhase::Pausing) => {
            refused("no step of it is waiting for another attempt".to_owned())
        }
        _ => Ok(()),
    }
}
