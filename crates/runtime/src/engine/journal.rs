//! What an owner stores: one batch of records for everything that changed since the last batch.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use annals_core::handlers::{
    ActRecord, FAILING_PARTITIONS, FailingRecord, ParkedRecord, ProcessorRecord, ReplayRecord, partitions_of,
};
use annals_core::order::Direction;
use annals_core::processing::{Changes, Failing, Replay};
use annals_core::{
    Clock, Condition, Expected, Lease, RecordChange, RecordError, RecordQuery, RecordType, Records, SortBy, StoreError,
    TypedRecords, limits,
};

/// The first and the longest pause before a write is repeated because its outcome is unknown or the store had no room for it.
const PAUSES: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(5));

/// The stored state of one processor, written by its owner only.
pub(crate) struct Journal {
    records: Arc<dyn Records>,
    clock: Arc<dyn Clock>,
    record: ProcessorRecord,
}

/// Why a batch was not written.
pub(crate) enum NotWritten {
    /// Another process now owns the processor, or deleted it.
    Lost,
    /// The store refused an effect. Nothing of the batch was written.
    Refused(RecordError),
    /// A dead letter was changed after it was read. Nothing of the batch was written.
    Conflict,
    /// The store cannot write.
    Store(StoreError),
}

impl Journal {
    /// Declares the collections of processors.
    pub async fn declare(records: &Arc<dyn Records>) -> Result<(), RecordError> {
        records.declare(<Lease as RecordType>::collection()).await?;
        records.declare(<ProcessorRecord as RecordType>::collection()).await?;
        records.declare(<FailingRecord as RecordType>::collection()).await?;
        records.declare(<ParkedRecord as RecordType>::collection()).await?;
        records.declare(<ActRecord as RecordType>::collection()).await?;
        records.declare(<ReplayRecord as RecordType>::collection()).await
    }

    /// Takes over a processor: from now on the store accepts only writes of this epoch. `first` is the initial record of a new processor.
    pub async fn take_over(
        records: Arc<dyn Records>,
        clock: Arc<dyn Clock>,
        first: ProcessorRecord,
    ) -> Result<Self, NotWritten> {
        let processors = TypedRecords::<ProcessorRecord>::declared(Arc::clone(&records));
        let record = match processors.get(first.name.as_str()).await? {
            None => {
                processors.insert(&first).await?;
                first
            }
            Some(found) => {
                let expected = Expected::Matching(Condition::lt("epoch", first.epoch));
                let record = ProcessorRecord { epoch: first.epoch, turn: found.value.turn + 1, ..found.value };
                processors.replace_if(&record, expected).await?;
                record
            }
        };
        Ok(Self { records, clock, record })
    }

    /// Takes over a processor whose record was created together with what it belongs to. Returns `None` if the record is gone, which
    /// means that the work is over.
    pub async fn retake(
        records: Arc<dyn Records>,
        clock: Arc<dyn Clock>,
        name: &str,
        epoch: i64,
    ) -> Result<Option<Self>, NotWritten> {
        let processors = TypedRecords::<ProcessorRecord>::declared(Arc::clone(&records));
        let Some(found) = processors.get(name).await? else { return Ok(None) };
        let expected = Expected::Matching(Condition::lt("epoch", epoch));
        let record = ProcessorRecord { epoch, turn: found.value.turn + 1, ..found.value };
        processors.replace_if(&record, expected).await?;
        Ok(Some(Self { records, clock, record }))
    }

    /// Returns the record as last written.
    pub fn record(&self) -> &ProcessorRecord {
        &self.record
    }

    /// Reads the stored failing partitions.
    pub async fn failing(&self) -> Result<Vec<Failing>, RecordError> {
        let mut failing = Vec::new();
        let mut query = RecordQuery {
            sort: vec![SortBy { path: "_id.partition".to_owned(), direction: Direction::Ascending }],
            ..RecordQuery::new(FAILING_PARTITIONS).matching(partitions_of(&self.record.name)).limit(limits::PAGE_MAX)
        };
        let typed = TypedRecords::<FailingRecord>::declared(Arc::clone(&self.records));
        loop {
            let (page, next) = typed.find(query.clone()).await?;
            failing.extend(page.into_iter().map(|stored| stored.value.read()));
            let Some(cursor) = next else { return Ok(failing) };
            query = query.after(cursor);
        }
    }

    /// Reads the replay that is in progress, if there is one.
    pub async fn replay(&self) -> Result<Option<Replay>, RecordError> {
        let Some(mark) = &self.record.replay else { return Ok(None) };
        let replays = TypedRecords::<ReplayRecord>::declared(Arc::clone(&self.records));
        let found = replays.get(mark.id.as_str()).await?;
        // A restore clamps the mark, not the replay's record.
        Ok(found.map(|found| Replay { to: mark.to.cast_unsigned(), ..found.value.read() }))
    }

    /// Deletes the failing partitions that an act left to be forgotten, if any. There may be too many for one batch.
    pub async fn forget(&mut self, failing: &mut Vec<Failing>) -> Result<(), NotWritten> {
        let Some(from) = self.record.forgets.map(i64::cast_unsigned) else { return Ok(()) };
        let forgotten: Vec<_> = failing.extract_if(.., |failing| failing.position >= from).collect();
        let progress = self.record.progress();
        for some in forgotten.chunks(limits::PAGE_MAX) {
            let failing = some.iter().map(|failing| (failing.partition.clone(), None)).collect();
            let changes = Changes { progress: progress.clone(), failing, parked: Vec::new() };
            self.write(changes, &[], |_| ()).await?;
        }
        let kept = failing.len();
        let blocked = failing.iter().filter(|failing| failing.retry_at.is_none()).count();
        let nothing = Changes { progress, failing: Vec::new(), parked: Vec::new() };
        let done = |record: &mut ProcessorRecord| {
            record.forgets = None;
            (record.failing, record.blocked, record.is_blocked) = (kept as i64, blocked as i64, false);
        };
        self.write(nothing, &[], done).await
    }

    /// Writes the changes together with the effects, all or none. `edit` makes further changes to the processor's record.
    pub async fn write(
        &mut self,
        changes: Changes,
        effects: &[RecordChange],
        edit: impl FnOnce(&mut ProcessorRecord),
    ) -> Result<(), NotWritten> {
        self.write_with(changes, Vec::new(), effects, edit).await
    }

    /// Does the same with changes of dead letters, which other writers may change as well.
    pub async fn write_with(
        &mut self,
        changes: Changes,
        letters: Vec<RecordChange>,
        effects: &[RecordChange],
        edit: impl FnOnce(&mut ProcessorRecord),
    ) -> Result<(), NotWritten> {
        let mut record = self.record.clone();
        let expected = Expected::Matching(record.unchanged());
        record.turn += 1;
        if record.progress().position != changes.progress.position {
            record.moved(self.clock.now());
        }
        record.set(&changes.progress);
        edit(&mut record);
        let mut batch = vec![TypedRecords::replacement(&record, expected)?];
        for (partition, state) in &changes.failing {
            batch.push(match state {
                Some(state) => TypedRecords::replacement(&FailingRecord::of(&record.name, state), whatever())?,
                None => {
                    let id = FailingRecord::id_of(&record.name, partition);
                    RecordChange::delete_if(FAILING_PARTITIONS, id, whatever())
                }
            });
        }
        for parked in &changes.parked {
            batch.push(TypedRecords::replacement(&ParkedRecord::of(&record.name, parked), whatever())?);
        }
        let contested = batch.len()..batch.len() + letters.len();
        batch.extend(letters);
        batch.extend_from_slice(effects);
        self.until_known(batch, contested, record).await
    }

    async fn until_known(
        &mut self,
        batch: Vec<RecordChange>,
        contested: Range<usize>,
        record: ProcessorRecord,
    ) -> Result<(), NotWritten> {
        let mut pause = PAUSES.0;
        loop {
            match self.records.write(batch.clone()).await {
                Ok(_) => break,
                Err(RecordError::NotAsExpected { change: 0, .. }) => {
                    // An earlier attempt whose response was lost may have stored it.
                    if !self.is_stored(&record).await? {
                        return Err(NotWritten::Lost);
                    }
                    break;
                }
                Err(RecordError::NotAsExpected { change, .. } | RecordError::DuplicateKey { change, .. })
                    if contested.contains(&change) =>
                {
                    if !self.is_stored(&record).await? {
                        return Err(NotWritten::Conflict);
                    }
                    break;
                }
                Err(RecordError::Store(error @ (StoreError::Overloaded | StoreError::Unreachable(_)))) => {
                    tracing::debug!(processor = record.name, %error, "retrying the write of a processor's batch");
                    self.clock.sleep(pause).await;
                    pause = (pause * 2).min(PAUSES.1);
                }
                Err(RecordError::Store(error)) => return Err(NotWritten::Store(error)),
                Err(refused) => return Err(NotWritten::Refused(refused)),
            }
        }
        self.record = record;
        Ok(())
    }

    async fn is_stored(&self, record: &ProcessorRecord) -> Result<bool, RecordError> {
        let processors = TypedRecords::<ProcessorRecord>::declared(Arc::clone(&self.records));
        let found = processors.get(record.name.as_str()).await?;
        Ok(found.is_some_and(|found| (found.value.epoch, found.value.turn) == (record.epoch, record.turn)))
    }
}

fn whatever() -> Expected {
    Expected::AbsentOr(Condition::All)
}

impl From<RecordError> for NotWritten {
    fn from(error: RecordError) -> Self {
        match error {
            RecordError::Store(error) => Self::Store(error),
            // Only its owner writes a processor's record.
            RecordError::NotAsExpected { .. } | RecordError::DuplicateKey { .. } => Self::Lost,
            other => Self::Refused(other),
        }
    }
}
