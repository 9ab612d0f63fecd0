//! Following sessions, which other processes on the same store may start, pause or resume.

use std::sync::Arc;

use annals_core::replays::{REPLAY_SESSIONS, ReplayState};
use annals_core::{ChangeFollower, ChangesError, Condition, RecordError, RecordQuery, StoreError, limits};

use super::TenantReplays;
use super::run::Runner;
use crate::host::{Ended, Supervised, is_set, locked, supervise};

/// Starts the running replays of a tenant, and follows changes by other processes.
struct Follow {
    replays: Arc<TenantReplays>,
}

impl TenantReplays {
    pub(super) fn follow(&self) {
        if let Some(replays) = self.me.upgrade() {
            supervise(&self.shared, format!("replays/{}", self.tenant), Follow { replays });
        }
    }

    /// Reads a replay, and sends it in this process if it is running.
    pub(super) async fn sync(&self, id: &str) -> Result<(), RecordError> {
        if let Some(found) = self.stored(id).await?
            && found.value.status == ReplayState::Running
        {
            self.run(id);
        }
        self.wake();
        Ok(())
    }

    fn run(&self, id: &str) {
        if let Some(replays) = self.me.upgrade()
            && locked(&self.running).insert(id.to_owned())
        {
            let task = format!("replay/{}/{id}", self.tenant);
            supervise(&self.shared, task, Runner { replays, id: id.to_owned() });
        }
    }

    async fn sync_all(&self) -> Result<(), RecordError> {
        let running = Condition::eq("status", ReplayState::Running.name());
        let mut query = RecordQuery::new(REPLAY_SESSIONS).matching(running).limit(limits::PAGE_MAX);
        loop {
            let (page, next) = match self.typed().find(query.clone()).await {
                Err(RecordError::UnknownCollection(_)) => return Ok(()),
                page => page?,
            };
            page.iter().for_each(|found| self.run(&found.value.id));
            // Replays that have sent everything may still have deliveries waiting.
            self.wake();
            let Some(cursor) = next else { return Ok(()) };
            query = query.after(cursor);
        }
    }
}

impl Follow {
    async fn follow(&self) -> Result<(), String> {
        let replays = &self.replays;
        let text = |error: RecordError| error.to_string();
        if !replays.shared.may_share() {
            return replays.sync_all().await.map_err(text);
        }
        replays.declare().await.map_err(text)?;
        let last = replays.records.last_change(REPLAY_SESSIONS).await.map_err(|error| error.to_string())?;
        replays.sync_all().await.map_err(text)?;
        let mut follower = ChangeFollower::new(Arc::clone(&replays.records), REPLAY_SESSIONS, last);
        loop {
            let changes = match follower.next_page().await {
                Ok(changes) => changes,
                Err(ChangesError::Store(StoreError::Closed)) => return Ok(()),
                // A follower that is too far behind starts over and reads all sessions again.
                Err(error) => return Err(error.to_string()),
            };
            for change in &changes {
                if let Some(id) = change.id.as_str() {
                    replays.sync(id).await.map_err(text)?;
                }
            }
        }
    }
}

impl Supervised for Follow {
    async fn run(&mut self) -> Ended {
        let mut stop = self.replays.shared.stop.subscribe();
        tokio::select! {
            () = is_set(&mut stop) => Ended::Done,
            followed = self.follow() => followed.map_or_else(Ended::Failed, |()| Ended::Done),
        }
    }
}
