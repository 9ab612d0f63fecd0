//! The guard of a consumer on an external broker. Its members are in many processes, so a key that is being processed is reserved in the
//! store.
//!
//! ```text
//!  message ─▶ key ─┬─ processed and not forgotten ──────▶ passed as a duplicate
//!                  ├─ reserved by another attempt ──────▶ waits, then looks again
//!                  └─ free, or reserved by one that is gone ─▶ reserved ─▶ function ─┬─ succeeds ─▶ processed
//!                                                                                     └─ fails ────▶ free
//! ```
//!
//! INVARIANT: a reservation is taken, renewed, turned into a success and given up by its revision, so one attempt at a time has it.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use annals_core::bson::DateTime;
use annals_core::groups::{GuardRecord, GuardSettings};
use annals_core::{Expected, RecordError, RecordedEvent, Records, Revision, Timestamp, TypedRecords};

use crate::handler::HandleFailure;
use crate::host::Shared;

/// How long a reservation holds unless it is renewed. The key of a member that is gone is free after that.
const RESERVED: Duration = Duration::from_secs(30);
const RENEW_EVERY: Duration = Duration::from_secs(10);
/// How often an attempt looks at a key that another one has reserved.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The guard of a consumer in one member.
pub(super) struct Reserving {
    shared: Arc<Shared>,
    records: Arc<dyn Records>,
    settings: GuardSettings,
    tenant: String,
    group: String,
    /// The consumer, by whose name the keys are stored.
    processor: String,
    member: String,
    /// The number of attempts, each of which has a name.
    attempts: AtomicU64,
}

impl Reserving {
    pub fn new(
        shared: &Arc<Shared>,
        records: Arc<dyn Records>,
        settings: GuardSettings,
        (tenant, group): (&str, &str),
        (processor, member): (&str, &str),
    ) -> Self {
        Self {
            shared: Arc::clone(shared),
            records,
            settings,
            tenant: tenant.to_owned(),
            group: group.to_owned(),
            processor: processor.to_owned(),
            member: member.to_owned(),
            attempts: AtomicU64::new(0),
        }
    }

    fn now(&self) -> Timestamp {
        self.shared.options.clock.now()
    }

    fn guarded(&self) -> TypedRecords<GuardRecord> {
        TypedRecords::declared(Arc::clone(&self.records))
    }

    /// Makes an attempt of an event, unless an equivalent one has been processed.
    pub async fn attempt(
        &self,
        event: &RecordedEvent,
        attempt: impl Future<Output = Result<(), HandleFailure>>,
    ) -> Result<(), HandleFailure> {
        let Some(key) = self.settings.by.key_of(event) else { return attempt.await };
        let about = (event.id.hyphenated().to_string(), event.sequence_number);
        let mut record = GuardRecord::new((&self.processor, &key), about, &self.settings, self.now());
        record.holder = Some(format!("{}/{}", self.member, self.attempts.fetch_add(1, Ordering::Relaxed)));
        let reserved = self.reserve(&mut record).await.map_err(not_stored)?;
        let Some(mut revision) = reserved else {
            self.shared.duplicates.passed(&self.tenant, &self.group, 1);
            return Ok(());
        };
        let clock = &self.shared.options.clock;
        let (mut attempt, mut pause) = (pin!(attempt), clock.sleep(RENEW_EVERY));
        let ended = loop {
            tokio::select! {
                biased;
                ended = &mut attempt => break ended,
                () = &mut pause => {
                    // From the renewal on, not from its end, which a slow store delays.
                    pause = clock.sleep(RENEW_EVERY);
                    record.expires_at = date(self.now().plus(RESERVED));
                    // Whatever the reason of a failure is, the next renewal or the end of the attempt finds it again.
                    if let Ok(renewed) = self.guarded().replace_if(&record, Expected::Revision(revision)).await {
                        revision = renewed;
                    }
                }
            }
        };
        if ended.is_err() {
            // If it cannot be given up, it is free after a while.
            let _ = self.guarded().delete_if(record.id, Expected::Revision(revision)).await;
            return ended;
        }
        let now = self.now();
        (record.holder, record.at, record.expires_at) = (None, date(now), date(self.settings.until(now)));
        match self.guarded().replace_if(&record, Expected::Revision(revision)).await {
            Ok(_) => Ok(()),
            // It was not renewed in time, so another attempt may have had the same effect.
            Err(RecordError::NotAsExpected { .. }) => {
                tracing::warn!(group = self.group, event = record.event_id, "an attempt outlived its reservation");
                Ok(())
            }
            Err(error) => Err(not_stored(error)),
        }
    }

    /// Reserves a key once no other attempt has it. Returns the revision of the reservation; `None` if an equivalent event has been
    /// processed.
    async fn reserve(&self, record: &mut GuardRecord) -> Result<Option<Revision>, RecordError> {
        let guarded = self.guarded();
        loop {
            let now = self.now();
            record.expires_at = date(now.plus(RESERVED));
            let reserved = match guarded.get(record.id.as_str()).await? {
                None => guarded.insert(record).await,
                Some(found) if found.value.expires_at.timestamp_millis() <= now.as_millis() => {
                    guarded.replace_if(record, Expected::Revision(found.revision)).await
                }
                Some(found) if found.value.holder.is_none() => return Ok(None),
                Some(_) => {
                    self.shared.options.clock.sleep(LOOK_EVERY).await;
                    continue;
                }
            };
            match reserved {
                Ok(revision) => return Ok(Some(revision)),
                // Another attempt was faster.
                Err(RecordError::DuplicateKey { .. } | RecordError::NotAsExpected { .. }) => {}
                Err(error) => return Err(error),
            }
        }
    }
}

fn date(time: Timestamp) -> DateTime {
    DateTime::from_millis(time.as_millis())
}

fn not_stored(error: RecordError) -> HandleFailure {
    HandleFailure::new(format!("what the group has processed could not be read or stored: {error}"))
}
