//! The task that manages the letters of a tenant, in one process at a time. It commits the events that announce letters, watches the
//! thresholds, and finishes bulk acts of processes that have ended.

use std::sync::Arc;
use std::time::Duration;

use annals_core::bson::doc;
use annals_core::dead_letters::{
    Announcement, DEAD_LETTERS, DeadLetter, DeadLetterError, LETTER_AGGREGATE, Level, THRESHOLD_CROSSED,
    ThresholdRecord,
};
use annals_core::{
    CommitError, Condition, Cursor, DEFAULT_SCOPE, Data, EventLog, Expected, Lease, NewCommit, NewEvent, RecordChange,
    RecordError, RecordType, StoreError, Stored, Timestamp, TypedRecords,
};
use futures_util::future::join_all;

use super::TenantDeadLetters;
use super::edits::{date, id};
use crate::host::{Asked, Ended, Held, Leases, Supervised, is_set};

/// How often to look for letters that another process changed, and to count the open ones.
const EVERY: Duration = Duration::from_secs(5);
/// The shortest time between two counts of the open letters.
const COUNT_EVERY: Duration = Duration::from_secs(1);
/// How often to ask for a lease that another process holds.
const ASK_EVERY: Duration = Duration::from_secs(1);
/// The number of letters that are announced together.
const PAGE: usize = 200;
/// The number of pages that are announced before other work has its turn.
const PAGES_MAX: usize = 10;
/// The number of attempts to store the letters of a page as one batch.
const BATCHES_MAX: usize = 8;
/// The id of the only record of thresholds.
const OPEN: &str = "open";

pub(super) struct Keeper {
    letters: Arc<TenantDeadLetters>,
}

impl Keeper {
    pub fn new(letters: Arc<TenantDeadLetters>) -> Self {
        Self { letters }
    }
}

impl Supervised for Keeper {
    async fn run(&mut self) -> Ended {
        match self.letters.keep().await {
            Ok(()) | Err(DeadLetterError::Store(StoreError::Closed)) => Ended::Done,
            // A store that is read-only or has damaged records gets no letters.
            Err(DeadLetterError::Store(StoreError::ReadOnly(_) | StoreError::RecordsDamaged(_))) => Ended::Done,
            Err(error) => Ended::Failed(error.to_string()),
        }
    }
}

impl TenantDeadLetters {
    /// Takes the lease and works until the host is drained.
    async fn keep(&self) -> Result<(), DeadLetterError> {
        if !self.until_needed().await? {
            return Ok(());
        }
        let leases = Leases::new(&self.shared, &self.tenant, Arc::clone(&self.records), "dead-letters".to_owned());
        self.records.declare(<Lease as RecordType>::collection()).await?;
        loop {
            let Some(held) = self.until_taken(&leases).await? else { return Ok(()) };
            let kept = self.hold(&leases, &held).await;
            if !matches!(kept, Ok(Kept::Lost)) {
                leases.release(&held).await;
            }
            if matches!(kept?, Kept::Done) {
                return Ok(());
            }
        }
    }

    /// Waits for the tenant's first letter, so that nothing is written for tenants without letters. Returns false if the host is drained.
    async fn until_needed(&self) -> Result<bool, DeadLetterError> {
        let (changed, mut stop) = (self.shared.letters_of(&self.tenant), self.shared.stop.subscribe());
        loop {
            if self.has_failed_partner_events().await? {
                return Ok(true);
            }
            match self.records.get(DEAD_LETTERS, &id("none")).await {
                Err(RecordError::UnknownCollection(_)) => {}
                known => {
                    known?;
                    return Ok(true);
                }
            }
            tokio::select! {
                biased;
                () = is_set(&mut stop) => return Ok(false),
                () = changed.notified() => {}
                () = self.clock().sleep(EVERY) => {}
            }
        }
    }

    async fn until_taken(&self, leases: &Leases) -> Result<Option<Held>, DeadLetterError> {
        let mut stop = self.shared.stop.subscribe();
        loop {
            if let Asked::Taken(held) = leases.ask().await? {
                return Ok(Some(held));
            }
            tokio::select! {
                biased;
                () = is_set(&mut stop) => return Ok(None),
                () = self.clock().sleep(ASK_EVERY) => {}
            }
        }
    }

    async fn hold(&self, leases: &Leases, held: &Held) -> Result<Kept, DeadLetterError> {
        self.finish_others().await?;
        self.give_up_orphans().await?;
        let (changed, mut stop) = (self.shared.letters_of(&self.tenant), self.shared.stop.subscribe());
        let mut count_at = self.clock().now();
        let mut place = None;
        loop {
            if !leases.keeps(held).await? {
                return Ok(Kept::Lost);
            }
            let more = self.announce(&mut place).await?;
            let now = self.clock().now();
            // If the clock was set back, do not wait until it reaches the old time again.
            count_at = count_at.min(now.plus(COUNT_EVERY));
            if now >= count_at {
                self.follow_partners(now).await?;
                self.watch_threshold().await?;
                self.archive(now).await?;
                count_at = now.plus(COUNT_EVERY);
            }
            tokio::select! {
                biased;
                () = is_set(&mut stop) => return Ok(Kept::Done),
                () = leases.until_called_off(held) => return Ok(Kept::Lost),
                () = std::future::ready(()), if more => {}
                () = changed.notified() => {}
                () = self.clock().sleep_until(now.plus(EVERY)) => {}
                () = self.clock().sleep(EVERY) => {}
            }
        }
    }

    fn log(&self) -> Result<Arc<dyn EventLog>, DeadLetterError> {
        let unknown = |error: annals_core::UnknownLog| StoreError::other(error.code(), error.to_string());
        Ok(self.store().log(&self.tenant, DEFAULT_SCOPE).map_err(unknown)?)
    }

    /// Commits pending announcements, a page at a time, and continues after `place`. Returns whether there are more pages; if there are
    /// none, the next call starts from the beginning. A letter whose event is refused is retried in that round, and holds up no other.
    async fn announce(&self, place: &mut Option<Cursor>) -> Result<bool, DeadLetterError> {
        let (letters, log) = (self.letters(), self.log()?);
        for _ in 0..PAGES_MAX {
            // Not sorted: the index of pending announcements is read in its own order, and only as far as the page reaches.
            let mut query = TypedRecords::<DeadLetter>::query().matching(Condition::is_true("announcing")).limit(PAGE);
            if let Some(cursor) = place.take() {
                query = query.after(cursor);
            }
            let (page, more) = match letters.find(query).await {
                // There has never been a letter.
                Err(RecordError::UnknownCollection(_)) => return Ok(false),
                page => page?,
            };
            let announced = join_all(page.iter().map(|stored| announce_one(&*log, &stored.value))).await;
            let mut changes = Vec::with_capacity(page.len());
            for (Stored { value, revision }, committed) in page.into_iter().zip(announced) {
                let Some(number) = committed? else { continue };
                let mut letter = value;
                letter.announced_up_to(number);
                changes.push(letters.replacing(&letter, Expected::Revision(revision))?);
            }
            self.store_announced(changes).await?;
            *place = more;
            if place.is_none() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Stores letters whose announcements are committed, as one batch. Letters that changed meanwhile are left out: they are announced
    /// again, and the request id makes the repetition harmless. If many changed, each letter is stored by itself.
    async fn store_announced(&self, mut changes: Vec<RecordChange>) -> Result<(), RecordError> {
        for _ in 0..BATCHES_MAX {
            if changes.is_empty() {
                return Ok(());
            }
            match self.records.write(changes.clone()).await {
                Err(RecordError::NotAsExpected { change, .. }) if change < changes.len() => {
                    drop(changes.remove(change));
                }
                written => return written.map(drop),
            }
        }
        for change in changes {
            match self.records.write(vec![change]).await {
                Ok(_) | Err(RecordError::NotAsExpected { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Announces that the number of open letters has crossed a threshold.
    async fn watch_threshold(&self) -> Result<(), DeadLetterError> {
        let thresholds = TypedRecords::<ThresholdRecord>::declared(Arc::clone(&self.records));
        let (open, now) = (self.open_count().await?, self.clock().now());
        let stored = match thresholds.get(OPEN).await {
            Err(RecordError::UnknownCollection(_)) => None,
            stored => stored?,
        };
        let known = stored.as_ref().map_or(Level::Normal, |stored| stored.value.level);
        let level = Level::of(open);
        let mut record = match stored {
            Some(stored) if known == level => stored.value,
            None if level == Level::Normal => return Ok(()),
            stored => {
                let number = stored.map_or(0, |stored| stored.value.number) + 1;
                tracing::warn!(
                    tenant = self.tenant,
                    open,
                    level = level.name(),
                    "the number of open dead letters crossed a threshold"
                );
                let open = i64::try_from(open).unwrap_or(i64::MAX);
                let record = threshold(level, open, number, now);
                self.declare().await?;
                // Only the holder of the lease writes this record.
                thresholds.replace_if(&record, Expected::AbsentOr(Condition::All)).await?;
                record
            }
        };
        if record.announced {
            return Ok(());
        }
        let data = doc! { "level": record.level.name(), "open": record.open };
        let request = format!("dead-letter/threshold/{}", record.number);
        if commit(&*self.log()?, "threshold", THRESHOLD_CROSSED, &data, request).await? {
            record.announced = true;
            thresholds.replace_if(&record, Expected::AbsentOr(Condition::All)).await?;
        }
        Ok(())
    }
}

/// How the work under the lease ended.
enum Kept {
    Lost,
    Done,
}

fn threshold(level: Level, open: i64, number: i64, at: Timestamp) -> ThresholdRecord {
    ThresholdRecord { id: OPEN.to_owned(), level, open, number, announced: false, at: date(at) }
}

/// Commits the announcements of one letter in order. Returns the number of the last one that is committed.
async fn announce_one(log: &dyn EventLog, letter: &DeadLetter) -> Result<Option<i64>, DeadLetterError> {
    let mut last = None;
    for Announcement { number, event_type, data } in &letter.announcements {
        let request = format!("dead-letter/{}/{number}", letter.id);
        if !commit(log, &letter.id, event_type, data, request).await? {
            break;
        }
        last = Some(*number);
    }
    Ok(last)
}

/// Commits an event under a request id, so that a repetition adds nothing. Returns false if it is refused.
async fn commit(
    log: &dyn EventLog,
    id: &str,
    event_type: &str,
    data: &annals_core::bson::Document,
    request: String,
) -> Result<bool, DeadLetterError> {
    let data = Data::from_document(data)
        .map_err(|why| DeadLetterError::from(annals_core::Invalid::new(annals_core::Code::InvalidData, "data", why)))?;
    let mut commit = NewCommit::new(LETTER_AGGREGATE, id).event(NewEvent::new(event_type, data));
    commit.request_id = Some(request.into());
    match log.commit(commit).await {
        Ok(_) => Ok(true),
        Err(CommitError::Store(error)) => Err(error.into()),
        Err(error) => {
            tracing::warn!(id, event_type, %error, "an event about a dead letter was refused");
            Ok(false)
        }
    }
}
