//! Acts of operators on replays.

use annals_core::bson::DateTime;
use annals_core::handlers::{ActRecord, Reason};
use annals_core::replays::{REPLAY_SESSIONS, ReplayAct, ReplayError, ReplayState, ReplayStatus};
use annals_core::{
    Condition, Expected, RecordChange, RecordError, RecordQuery, RecordType, Timestamp, TypedRecords, limits,
};

use super::{TenantReplays, clear_inbox};

impl TenantReplays {
    /// Changes the state of a replay, and records in the same batch who did it and why.
    pub(super) async fn carry_out(
        &self,
        id: &str,
        act: ReplayAct,
        reason: Reason,
    ) -> Result<ReplayStatus, ReplayError> {
        reason.validate()?;
        self.records.declare(<ActRecord as RecordType>::collection()).await?;
        self.declare().await?;
        loop {
            let found = self.known(id).await?;
            let (mut session, now) = (found.value, self.clock().now());
            let refused = |state: ReplayState| ReplayError::NotAllowed {
                act: act.name().to_owned(),
                id: id.to_owned(),
                state: state.name().to_owned(),
            };
            session.act(act, now).map_err(refused)?;
            let mut claim = None;
            if act == ReplayAct::Start {
                let body = session.body()?;
                claim = self.claim(&session, &body).await?;
                self.check(&body).await?;
                session.annals.until = self.log.head().await?.cast_signed();
            }
            let place = (now, found.revision, self.shared.options.random.bits());
            let record = ActRecord::new(&format!("replay/{id}"), act.name(), reason.clone(), place);
            let recorded = TypedRecords::replacement(&record, Expected::AbsentOr(Condition::All))?;
            let beside = std::iter::once(recorded).chain(claim).collect();
            if self.write(&session, Expected::Revision(found.revision), beside).await?.is_none() {
                continue;
            }
            if act == ReplayAct::Cancel {
                clear_inbox(&*self.records, id).await?;
                self.wake();
            }
            self.start();
            self.sync(id).await?;
            return Ok(session.shown(now));
        }
    }

    /// Deletes replays that ended before a time, and returns their number.
    pub(super) async fn remove_ended_before(&self, before: Timestamp) -> Result<u64, ReplayError> {
        let over = [ReplayState::Completed, ReplayState::Failed, ReplayState::Cancelled].map(ReplayState::name);
        let condition = Condition::and([
            Condition::is_in("status", over),
            Condition::lt("completed_at", DateTime::from_millis(before.as_millis())),
        ]);
        let query = RecordQuery::new(REPLAY_SESSIONS).matching(condition).limit(limits::PAGE_MAX);
        let mut removed = 0;
        loop {
            let (found, _) = match self.typed().find(query.clone()).await {
                Err(RecordError::UnknownCollection(_)) => return Ok(0),
                found => found?,
            };
            if found.is_empty() {
                if removed > 0 {
                    self.wake();
                }
                return Ok(removed);
            }
            for it in found {
                clear_inbox(&*self.records, &it.value.id).await?;
                let deletion =
                    RecordChange::delete_if(REPLAY_SESSIONS, it.value.id.as_str(), Expected::Revision(it.revision));
                let file = self.giving_up_file(&it.value).await?;
                match self.records.write(std::iter::once(deletion).chain(file).collect()).await {
                    Ok(_) => removed += 1,
                    Err(RecordError::NotAsExpected { .. }) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
    }
}
