//! The task that archives due events, in one process at a time.

use std::sync::Arc;
use std::time::Duration;

use annals_core::archive::{ArchiveStateRecord, ArchiveTarget, DueGroup, SettledRecord};
use annals_core::bson::DateTime;
use annals_core::{Condition, Expected, Lease, RecordError, RecordType, StoreError, TypedRecords};

use super::guard::{Guard, Stop, TASK};
use super::{Loaded, TenantArchive};
use crate::host::{Asked, Ended, Held, Leases, Supervised, is_set};

/// How often to look for due events and for settings that another process changed.
const EVERY: Duration = Duration::from_secs(10);
/// The longest pause between two rounds that find nothing.
const EVERY_MAX: Duration = Duration::from_secs(60 * 60);
/// The pause after a round, as a multiple of the round's duration, so that rounds over large views cost little.
const REST: u32 = 50;
/// How often to ask for a lease that another process holds.
const ASK_EVERY: Duration = Duration::from_secs(1);

pub(super) struct Keeper {
    pub archive: Arc<TenantArchive>,
}

impl Supervised for Keeper {
    async fn run(&mut self) -> Ended {
        loop {
            match self.archive.keep().await {
                Stop::Done => return Ended::Done,
                Stop::Failed(error) | Stop::Unwritable(error) => return Ended::Failed(error),
                Stop::Refused(error) => return Ended::Failed(error.to_string()),
                Stop::Lost | Stop::Again => {}
            }
        }
    }
}

impl TenantArchive {
    /// Takes the lease and works until it is lost or the host is drained.
    async fn keep(&self) -> Stop {
        if let Err(stop) = self.until_needed().await {
            return stop;
        }
        let leases = Leases::new(&self.shared, &self.tenant, Arc::clone(&self.records), TASK.to_owned());
        let held = match self.until_taken(&leases).await {
            Ok(held) => held,
            Err(stop) => return stop,
        };
        let stop = self.hold_lease(&leases, &held).await;
        if !matches!(stop, Stop::Lost) {
            leases.release(&held).await;
        }
        stop
    }

    /// Waits until the tenant has settings of its own, so that nothing is written for tenants that do not use the archive.
    async fn until_needed(&self) -> Result<(), Stop> {
        let (changed, mut stop) = (self.shared.archive_of(&self.tenant), self.shared.stop.subscribe());
        loop {
            match self.load().await {
                Ok(loaded) if loaded.record.version > 0 => return Ok(()),
                Ok(_) => {}
                // A store that is read-only or has damaged records cannot archive.
                Err(RecordError::Store(StoreError::ReadOnly(_) | StoreError::RecordsDamaged(_))) => {
                    return Err(Stop::Done);
                }
                Err(error) => return Err(error.into()),
            }
            tokio::select! {
                biased;
                () = is_set(&mut stop) => return Err(Stop::Done),
                () = changed.notified() => {}
                () = self.clock().sleep(EVERY) => {}
            }
        }
    }

    async fn until_taken(&self, leases: &Leases) -> Result<Held, Stop> {
        self.records.declare(<Lease as RecordType>::collection()).await?;
        self.records.declare(<ArchiveStateRecord as RecordType>::collection()).await?;
        let mut stop = self.shared.stop.subscribe();
        loop {
            if let Asked::Taken(held) = leases.ask().await? {
                return Ok(held);
            }
            tokio::select! {
                biased;
                () = is_set(&mut stop) => return Err(Stop::Done),
                () = self.clock().sleep(ASK_EVERY) => {}
            }
        }
    }

    async fn hold_lease(&self, leases: &Leases, held: &Held) -> Stop {
        let (changed, mut stop) = (self.shared.archive_of(&self.tenant), self.shared.stop.subscribe());
        let guard = Guard { archive: self, leases, held };
        let mut look = self.now();
        let mut looked = look;
        loop {
            let began = self.now();
            // If the clock was set back, do not wait for it.
            if began >= look || began < looked {
                // A round that is repeated is due now, also if the clock was set back.
                (look, looked) = (began, began);
                let has_more = match self.round(&guard).await {
                    Ok(has_more) => has_more,
                    Err(Stop::Again) => continue,
                    Err(stop) => return stop,
                };
                let rest = (self.now().since(began) * REST).clamp(EVERY, EVERY_MAX);
                // Counted from the beginning, so that a clock that was set forward meanwhile is noticed at once.
                look = began.plus(if has_more { EVERY } else { rest });
            }
            tokio::select! {
                biased;
                () = is_set(&mut stop) => return Stop::Done,
                () = leases.until_called_off(held) => return Stop::Lost,
                () = changed.notified() => look = self.now(),
                () = self.clock().sleep_until(look) => {}
                // If the clock is set back, also during a round, it may not reach that time for long.
                () = self.clock().sleep(look.since(self.now()).min(EVERY_MAX)) => {}
            }
            if let Err(stop) = guard.keep_lease().await {
                return stop;
            }
        }
    }

    /// Does everything that is due now. Returns whether something was archived or failed to be, which means that there is more to do
    /// soon.
    async fn round(&self, guard: &Guard<'_>) -> Result<bool, Stop> {
        guard.keep_lease().await?;
        let loaded = self.with_categories(self.load().await?).await?;
        let builds = self.builds().await?;
        let before = self.state().await?;
        let mut state = before.clone();
        state.settled.retain(|it| builds.iter().any(|(number, _)| *number == it.build));
        for (number, collection) in &builds {
            if !state.is_settled(*number, loaded.record.version) {
                self.settle(guard, &loaded, collection).await?;
                state.settled.retain(|it| it.build != *number);
                state.settled.push(SettledRecord { build: *number, version: loaded.record.version });
            }
        }
        let failure = match builds.first() {
            Some((_, live)) => self.archive_due(guard, &loaded, live, &mut state).await?,
            None => None,
        };
        if failure.is_none() {
            (state.failure, state.failing_since) = (None, None);
        } else if state.failure.is_none() {
            state.failing_since = Some(self.date());
            tracing::warn!(tenant = self.tenant, error = failure, "cannot write the archive; events stay in the view");
        }
        state.failure = failure;
        if state != before {
            self.store(guard, &loaded, &state).await?;
        }
        Ok(state.archived != before.archived || state.failure.is_some())
    }

    fn date(&self) -> DateTime {
        DateTime::from_millis(self.now().as_millis())
    }

    /// Archives due events. Returns why the archive cannot be written, if so.
    async fn archive_due(
        &self,
        guard: &Guard<'_>,
        loaded: &Loaded,
        live: &str,
        state: &mut ArchiveStateRecord,
    ) -> Result<Option<String>, Stop> {
        let groups = loaded.plan.due_groups();
        let (mut failure, mut waiting) = (None, 0);
        let is_of_files = |group: &DueGroup| group.retention.archive == ArchiveTarget::Files;
        if groups.iter().any(is_of_files) || self.has_files().await? {
            failure = self.recover_files(guard).await?;
        }
        // While a recorded file cannot be placed, no events go into further files: they would expire where readers cannot find them.
        let mut unplaced = failure.clone();
        for group in groups {
            let archived = match unplaced.clone().filter(|_| is_of_files(&group)) {
                Some(why) => Err(Stop::Unwritable(why)),
                None => self.archive_group(guard, loaded, live, &group, state).await,
            };
            match archived {
                Ok(()) => {}
                Err(Stop::Unwritable(why)) => {
                    let due = loaded.plan.due(&group, self.now().as_millis());
                    waiting += self.records.count(live, &due).await?.cast_signed();
                    failure.get_or_insert(why);
                    // Find out whether it left a file that cannot be placed.
                    if unplaced.is_none() {
                        unplaced = self.recover_files(guard).await?;
                    }
                }
                Err(stop) => return Err(stop),
            }
        }
        let refused = Condition::eq("annals.archived", "refused");
        if !loaded.plan.due_groups().is_empty() {
            state.refused = self.records.count(live, &refused).await?.cast_signed();
        }
        state.waiting = waiting + state.refused;
        Ok(failure)
    }

    async fn archive_group(
        &self,
        guard: &Guard<'_>,
        loaded: &Loaded,
        live: &str,
        group: &DueGroup,
        state: &mut ArchiveStateRecord,
    ) -> Result<(), Stop> {
        loop {
            guard.keep_lease().await?;
            let mut moved = 0;
            let had_some = match group.retention.archive {
                ArchiveTarget::Collection => self.collect(guard, loaded, live, group, &mut moved).await,
                ArchiveTarget::Files => self.write_files(guard, loaded, live, group, &mut moved).await,
                ArchiveTarget::None => Ok(false),
            };
            // Count what was archived before a failure as well.
            if moved > 0 {
                state.archived += i64::try_from(moved).unwrap_or(i64::MAX);
                state.last_archived = Some(self.date());
                self.store(guard, loaded, state).await?;
            }
            if !had_some? {
                return Ok(());
            }
        }
    }

    /// Stores the state of the archive.
    async fn store(&self, guard: &Guard<'_>, loaded: &Loaded, state: &ArchiveStateRecord) -> Result<(), Stop> {
        let any = Expected::AbsentOr(Condition::All);
        let mut batch = guard.checks(loaded).to_vec();
        batch.push(TypedRecords::replacement(state, any)?);
        match self.records.write(batch).await {
            Ok(_) => Ok(()),
            Err(error) => guard.stop_of(error),
        }
    }
}
