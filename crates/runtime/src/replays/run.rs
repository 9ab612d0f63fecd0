//! The task of one replay in this process: it holds the lease, reads the next events, sends them and stores the position.

use std::sync::Arc;
use std::time::Duration;

use annals_core::bson::Bson;
use annals_core::replays::{After, INBOX, ReplayBody, ReplayError, ReplayState, Sent};
use annals_core::{Condition, Expected, RecordError, StoreError, Stored, Timestamp};
use tokio::sync::Mutex;

use super::next::{Next, query_of, selected};
use super::targets::Target;
use super::webhook::Posted;
use super::{LOOK_EVERY, ReplaySession, TenantReplays};
use crate::host::{Asked, Ended, Held, Leases, Supervised, is_set, locked};

/// The most records that one batch for a topic writes.
const CHANGES_MAX: usize = 5_000;
/// The most unsettled deliveries of a replay. Those that exist when it is paused are still delivered.
const UNSETTLED_MAX: u64 = 1_000;

/// The longest pause between two attempts while a target is down.
const OUTAGE_PAUSE_MAX: Duration = Duration::from_secs(60);

/// A replay that this process sends.
pub(super) struct Runner {
    pub replays: Arc<TenantReplays>,
    pub id: String,
}

/// Why a replay stops.
enum Stop {
    /// The process sends nothing more, or the replay is no longer running.
    Done,
    /// The stored session has changed, so the work must start over from it.
    Again,
    Failed(ReplayError),
}

impl From<ReplayError> for Stop {
    fn from(error: ReplayError) -> Self {
        match error {
            ReplayError::Store(StoreError::Closed) => Self::Done,
            error => Self::Failed(error),
        }
    }
}

impl From<RecordError> for Stop {
    fn from(error: RecordError) -> Self {
        ReplayError::from(error).into()
    }
}

/// The state of a replay while this process holds the lease.
struct Work<'r> {
    runner: &'r Runner,
    leases: &'r Leases,
    held: &'r Held,
    session: ReplaySession,
    revision: u64,
    body: ReplayBody,
    target: Target,
    /// Held from before events are sent until they are stored as sent. The run does not end meanwhile.
    sending: &'r Mutex<()>,
    /// When this run sent its first event, and when that event happened.
    anchor: Option<(Timestamp, Timestamp)>,
    /// When the previous event was due.
    last_due: Option<Timestamp>,
    /// The time at the last look at the clock.
    looked: Timestamp,
}

/// Returns a time of a clock that was then set back by this many milliseconds.
fn set_back(time: Timestamp, millis: i64) -> Timestamp {
    Timestamp::from_millis(time.as_millis().saturating_sub(millis))
}

impl Supervised for Runner {
    async fn run(&mut self) -> Ended {
        loop {
            let ended = match self.own().await {
                Ok(()) | Err(Stop::Done) => Ended::Done,
                Err(Stop::Again) => continue,
                // A permanent failure ends the replay; any other is retried.
                Err(Stop::Failed(error)) => match self.fail(error).await {
                    Some(error) => return Ended::Failed(error),
                    None => Ended::Done,
                },
            };
            locked(&self.replays.running).remove(&self.id);
            // It may have been resumed while it ended.
            let is_stopped = *self.replays.shared.sends_no_more.borrow();
            let is_resumed = !is_stopped && matches!(self.load().await, Ok(Some(_)));
            if !is_resumed || !locked(&self.replays.running).insert(self.id.clone()) {
                return ended;
            }
        }
    }
}

impl Runner {
    /// Returns the session, if it is running.
    async fn load(&self) -> Result<Option<Stored<ReplaySession>>, RecordError> {
        let found = self.replays.stored(&self.id).await?;
        Ok(found.filter(|found| found.value.status == ReplayState::Running))
    }

    /// Ends the replay if a retry cannot succeed. Otherwise returns the error.
    async fn fail(&self, error: ReplayError) -> Option<String> {
        let kind = match &error {
            ReplayError::Invalid(_) => "invalid_settings",
            ReplayError::Handler(_) => "target_unavailable",
            ReplayError::Browse(_) => "browse_view_unavailable",
            _ => return Some(error.to_string()),
        };
        loop {
            let found = match self.load().await {
                Ok(Some(found)) => found,
                Ok(None) => return None,
                Err(error) => return Some(error.to_string()),
            };
            let mut session = found.value;
            session.broken(kind, error.to_string(), self.replays.clock().now());
            match self.replays.write(&session, Expected::Revision(found.revision), Vec::new()).await {
                Ok(Some(_)) => return None,
                Ok(None) => {}
                Err(error) => return Some(error.to_string()),
            }
        }
    }

    /// Stores why this process cannot send a replay that no other process sends.
    async fn show(&self, mut found: Stored<ReplaySession>, why: &str) -> Result<(), RecordError> {
        if found.value.is_left(why) {
            // If another writer has changed it meanwhile, that change takes precedence.
            self.replays.write(&found.value, Expected::Revision(found.revision), Vec::new()).await?;
        }
        Ok(())
    }

    /// Takes the lease, sends, and releases the lease.
    async fn own(&self) -> Result<(), Stop> {
        let replays = &self.replays;
        replays.records.declare(<annals_core::Lease as annals_core::RecordType>::collection()).await?;
        let leases =
            Leases::new(&replays.shared, &replays.tenant, Arc::clone(&replays.records), format!("replay/{}", self.id));
        let mut stop = replays.shared.sends_no_more.subscribe();
        let mut is_left = false;
        let held = loop {
            if *stop.borrow() {
                return Err(Stop::Done);
            }
            let Some(found) = self.load().await? else { return Ok(()) };
            // Check before asking for the lease, so that it stays with a process that can send. A body that cannot be read is reported by
            // the holder of the lease.
            let cannot = found.value.body().ok().and_then(|body| replays.can_send(&body).err());
            if let Some(error) = cannot {
                let is_elsewhere = leases.is_elsewhere().await?;
                if is_left && !is_elsewhere {
                    self.show(found, &error.to_string()).await?;
                    return Err(error.into());
                }
                // Another process may be about to take it.
                is_left = !is_elsewhere;
            } else if let Asked::Taken(held) = leases.ask().await? {
                break held;
            }
            tokio::select! {
                biased;
                () = is_set(&mut stop) => return Err(Stop::Done),
                () = replays.clock().sleep(LOOK_EVERY) => {}
            }
        };
        let sending = Mutex::new(());
        let stopped = async {
            is_set(&mut stop).await;
            // Wait for a post in progress: it would be posted again after the restart. The lock is fair, so no further event is sent.
            let _sent = sending.lock().await;
        };
        let ended = tokio::select! {
            biased;
            () = stopped => Err(Stop::Done),
            ended = self.run_holding(&leases, &held, &sending) => ended,
        };
        leases.release(&held).await;
        ended
    }

    async fn run_holding(&self, leases: &Leases, held: &Held, sending: &Mutex<()>) -> Result<(), Stop> {
        let Some(found) = self.load().await? else { return Ok(()) };
        let body = found.value.body().map_err(ReplayError::from)?;
        let target = self.replays.target(&found.value, &body).await?;
        let Stored { value: session, revision } = found;
        let (runner, anchor, last_due, looked) = (self, None, None, self.replays.clock().now());
        let mut work =
            Work { runner, leases, held, session, revision, body, target, sending, anchor, last_due, looked };
        work.go().await
    }
}

impl Work<'_> {
    fn replays(&self) -> &TenantReplays {
        &self.runner.replays
    }

    fn now(&self) -> Timestamp {
        self.replays().clock().now()
    }

    /// Returns the time, and by how many milliseconds the clock was set back since the last look. The pace continues from the new time, so
    /// that no event waits until the clock reaches the old one again.
    fn look(&mut self) -> (Timestamp, i64) {
        let now = self.now();
        let back = self.looked.as_millis().saturating_sub(now.as_millis()).max(0);
        self.looked = now;
        self.anchor = self.anchor.map(|(begun, first)| (set_back(begun, back), first));
        self.last_due = self.last_due.map(|due| set_back(due, back));
        (now, back)
    }

    async fn go(&mut self) -> Result<(), Stop> {
        self.replays().browse.until(self.session.annals.until.cast_unsigned()).await.map_err(ReplayError::from)?;
        if !self.session.annals.is_counted {
            let all =
                self.replays().browse.count(&selected(&self.session, &self.body)).await.map_err(ReplayError::from)?;
            self.session.counted(all.min(self.body.max_events.unwrap_or(u64::MAX)));
            self.store(Vec::new()).await?;
        }
        let mut query = query_of(&self.session, &self.body);
        loop {
            // Some may have expired since they were counted, so the last page may come early.
            let left = self.session.left().unwrap_or(0);
            if left == 0 {
                return self.finish().await;
            }
            query.limit = self.batch().min(usize::try_from(left).unwrap_or(usize::MAX));
            let (documents, cursor) =
                self.replays().browse.find_stored(query.clone()).await.map_err(ReplayError::from)?;
            let page = self.replays().events_of(&documents).await?;
            self.send_page(page).await?;
            if self.session.status.is_terminal() {
                return Ok(());
            }
            match cursor {
                Some(cursor) => query.after = Some(cursor),
                None => return self.finish().await,
            }
        }
    }

    /// Returns the number of events in one batch.
    fn batch(&self) -> usize {
        let most = CHANGES_MAX / self.target.receivers().max(1);
        (self.body.batch_size as usize).min(most.max(1))
    }

    /// Sends the events of a page; those that are due together are sent together.
    async fn send_page(&mut self, page: Vec<Next>) -> Result<(), Stop> {
        let mut group = Vec::with_capacity(page.len());
        for next in page {
            let due = self.due(&next);
            if due > self.now() {
                self.send(std::mem::take(&mut group)).await?;
                self.wait_until(due).await?;
            }
            group.push(next);
            if self.target.sends_singly() {
                self.send(std::mem::take(&mut group)).await?;
            }
            if self.session.status.is_terminal() {
                return Ok(());
            }
        }
        self.send(group).await
    }

    /// Returns when an event is due.
    fn due(&mut self, next: &Next) -> Timestamp {
        let (now, _) = self.look();
        let mut due = now;
        if let (Some(speed), Some(Bson::DateTime(time))) = (self.body.pace(), &next.after.time) {
            let happened = Timestamp::from_millis(time.timestamp_millis());
            let before = self.session.last_event_at.map(|time| Timestamp::from_millis(time.timestamp_millis()));
            let (begun, first) = *self.anchor.get_or_insert((now, before.unwrap_or(happened)));
            due = due.max(begun.plus(happened.since(first).div_f64(speed)));
        }
        if let (Some(rate), Some(last)) = (self.body.rate, self.last_due) {
            due = due.max(last.plus(Duration::from_secs_f64(1.0 / rate)));
        }
        self.last_due = Some(due);
        due
    }

    /// Waits until a time, and meanwhile checks whether the replay was paused or cancelled.
    async fn wait_until(&mut self, mut time: Timestamp) -> Result<(), Stop> {
        let mut changes = self.replays().changes.subscribe();
        loop {
            changes.mark_unchanged();
            self.keep_lease().await?;
            self.unchanged().await?;
            let (now, back) = self.look();
            time = set_back(time, back);
            if now >= time {
                return Ok(());
            }
            let left = time.since(now);
            let pause = if self.replays().shared.may_share() { left.min(LOOK_EVERY) } else { left };
            let clock = self.replays().clock();
            tokio::select! {
                biased;
                _ = changes.changed() => {}
                () = clock.sleep_until(now.plus(pause)) => {}
                // If the clock is set back, it may not reach that time for long.
                () = clock.sleep(pause) => {}
            }
        }
    }

    /// Checks that no other writer has changed the session.
    async fn unchanged(&self) -> Result<(), Stop> {
        match self.runner.load().await? {
            Some(found) if found.revision == self.revision => Ok(()),
            Some(_) => Err(Stop::Again),
            None => Err(Stop::Done),
        }
    }

    /// Checks that no other process may send the replay by now.
    async fn keep_lease(&self) -> Result<(), Stop> {
        if self.leases.keeps(self.held).await? { Ok(()) } else { Err(Stop::Again) }
    }

    /// Sends events and stores the outcome.
    async fn send(&mut self, group: Vec<Next>) -> Result<(), Stop> {
        if group.is_empty() {
            return Ok(());
        }
        self.keep_lease().await?;
        if self.target.is_inbox() {
            self.wait_for_room(UNSETTLED_MAX).await?;
        }
        // If it was paused meanwhile, no further event must be sent.
        self.unchanged().await?;
        let (mut attempt, mut outages, sending) = (0, 0, self.sending);
        let (outcome, _sending) = loop {
            let until_stored = (sending.lock().await, self.posts());
            let now = self.now();
            let outcome = self.target.send(&mut self.session, &self.body, &group, now).await?;
            if self.body.waits_for_target()
                && let Some(reason) = outcome.unreachable()
            {
                drop(until_stored);
                self.sit_out(reason, outages).await?;
                outages += 1;
                continue;
            }
            let is_unsent = |it: &Sent| matches!(it, Sent::Failed(_) | Sent::Unreachable(_));
            let is_failed = outcome.sent.iter().zip(&group).any(|(it, next)| is_unsent(it) && next.event.is_some());
            if !is_failed || attempt >= self.body.retry_attempts {
                break (outcome, until_stored);
            }
            drop(until_stored);
            let pause = Duration::from_secs((1 << attempt.min(4)).min(10));
            attempt += 1;
            self.pause(pause).await?;
        };
        let now = self.now();
        let before = self.session.annals.after_id.clone();
        let mut posted = None;
        self.session.answered();
        for (next, sent) in group.into_iter().zip(outcome.sent) {
            if self.target.sends_singly() {
                posted = Some((next.after.clone(), sent.clone()));
            }
            self.session.sent(next.after, sent, self.body.on_error, now);
            if self.session.status.is_terminal() {
                break;
            }
        }
        let stored = self.store(outcome.changes).await;
        if let Some((after, sent)) = posted.filter(|_| matches!(stored, Err(Stop::Again))) {
            self.count_posted(before.as_ref(), after, sent).await?;
        }
        stored
    }

    /// Counts a post, for which the end of the process waits beyond the time that tasks have, so that it is not posted again.
    fn posts(&self) -> Option<Posted> {
        self.target.sends_singly().then(|| Posted::begin(&self.replays().shared.posted))
    }

    /// Counts an event that was posted while the replay was paused, resumed or cancelled, because it must not be posted again. `before`
    /// is the position of the previous event.
    async fn count_posted(&self, before: Option<&Bson>, after: After, sent: Sent) -> Result<(), Stop> {
        while let Some(found) = self.replays().stored(&self.runner.id).await? {
            let mut session = found.value;
            if session.annals.after_id.as_ref() != before {
                break;
            }
            session.answered();
            session.sent(after.clone(), sent.clone(), self.body.on_error, self.now());
            if self.replays().write(&session, Expected::Revision(found.revision), Vec::new()).await?.is_some() {
                break;
            }
        }
        Ok(())
    }

    /// Shows that the target is down, and waits before the next attempt. The event is not counted.
    async fn sit_out(&mut self, reason: &str, before: u32) -> Result<(), Stop> {
        if self.session.waits(reason) {
            self.store(Vec::new()).await?;
        }
        self.pause(Duration::from_secs(1 << before.min(6)).min(OUTAGE_PAUSE_MAX)).await
    }

    /// Waits for this long, and meanwhile checks whether the replay was paused or cancelled.
    async fn pause(&mut self, time: Duration) -> Result<(), Stop> {
        let (now, _) = self.look();
        self.wait_until(now.plus(time)).await
    }

    /// Waits until there are fewer unsettled deliveries than this.
    async fn wait_for_room(&mut self, most: u64) -> Result<(), Stop> {
        let of_it = Condition::eq("session", self.session.id.as_str());
        loop {
            let mut changes = self.replays().changes.subscribe();
            if self.replays().records.count(INBOX, &of_it).await? < most {
                return Ok(());
            }
            self.unchanged().await?;
            self.keep_lease().await?;
            let (stores, clock) = (self.replays().shared.may_share(), self.replays().clock());
            tokio::select! {
                biased;
                _ = changes.changed() => {}
                () = clock.sleep(LOOK_EVERY), if stores => {}
            }
        }
    }

    async fn finish(&mut self) -> Result<(), Stop> {
        if self.target.is_inbox() {
            self.wait_for_room(1).await?;
            self.unchanged().await?;
        }
        let now = self.now();
        // If no event is left, no response clears the notice that the replay waits for its target.
        self.session.answered();
        self.session.completed(now);
        self.store(Vec::new()).await
    }

    /// Stores the session. If its revision has changed, another writer was faster, and nothing is stored.
    async fn store(&mut self, beside: Vec<annals_core::RecordChange>) -> Result<(), Stop> {
        let expected = Expected::Revision(self.revision);
        match self.replays().write(&self.session, expected, beside).await? {
            Some(revision) => {
                self.revision = revision;
                Ok(())
            }
            None => Err(Stop::Again),
        }
    }
}
