//! Acts on many letters, page by page. Each page is stored together with the progress of the act, so that the act is finished after a
//! crash.

use std::collections::BTreeSet;
use std::sync::Arc;

use annals_core::dead_letters::{
    BulkAct, BulkBody, BulkDetail, BulkOutcome, BulkRecord, DEAD_LETTERS, DeadLetter, DeadLetterError, Selection,
};
use annals_core::handlers::Reason;
use annals_core::{
    ByteString, Code, Condition, Cursor, Expected, Invalid, RecordError, RecordQuery, Revision, TypedRecords, new_uuid,
};

use super::edits::{Asked, date};
use super::{TRIES, TenantDeadLetters, busy, carry_out, over};

/// The number of letters that are changed in one batch.
const PAGE: usize = 200;
/// The most details in an outcome.
const DETAILS_MAX: usize = 100;

impl TenantDeadLetters {
    pub(super) async fn many(&self, act: BulkAct, body: BulkBody) -> Result<BulkOutcome, DeadLetterError> {
        let (selection, reason, dry_run) = body.read()?;
        self.declare().await?;
        match selection {
            Selection::Ids(ids) if dry_run => {
                let condition = Condition::and([DeadLetter::open(), Condition::ids(ids.iter().map(|id| &**id))]);
                self.counted_only(&condition).await
            }
            Selection::Ids(ids) => self.by_id(act, ids, &reason).await,
            Selection::Matching(condition) if dry_run => {
                self.counted_only(&Condition::and([DeadLetter::open(), condition])).await
            }
            Selection::Matching(condition) => self.matching(act, &condition, reason).await,
        }
    }

    async fn counted_only(&self, condition: &Condition) -> Result<BulkOutcome, DeadLetterError> {
        let total = self.records.count(DEAD_LETTERS, condition).await?;
        Ok(BulkOutcome { dry_run: true, total, ..BulkOutcome::default() })
    }

    async fn by_id(&self, act: BulkAct, ids: Vec<ByteString>, reason: &Reason) -> Result<BulkOutcome, DeadLetterError> {
        let mut outcome = BulkOutcome { total: ids.len() as u64, ..BulkOutcome::default() };
        for id in ids {
            let done = self.one(&id, act, reason.clone()).await;
            let error = match done {
                Ok(_) => None,
                Err(error @ (DeadLetterError::Unknown(_) | DeadLetterError::Terminal { .. })) => {
                    Some(error.to_string())
                }
                Err(error) => return Err(error),
            };
            count(&mut outcome, id, error);
        }
        Ok(outcome)
    }

    async fn matching(
        &self,
        act: BulkAct,
        condition: &Condition,
        reason: Reason,
    ) -> Result<BulkOutcome, DeadLetterError> {
        let now = self.clock().now();
        let condition = serde_json::to_string(condition)
            .map_err(|error| Invalid::new(Code::InvalidCondition, "condition", error.to_string()))?;
        let record = BulkRecord {
            id: new_uuid(now, &*self.shared.options.random).to_string(),
            act: act.name().to_owned(),
            condition,
            reason: reason.reason,
            by: reason.by,
            at: date(now),
            until: date(now),
            process: self.shared.process.clone(),
            cursor: None,
            done: false,
            successful: 0,
            failed: 0,
        };
        let (act, reason, by) = (act.name(), &record.reason, &record.by);
        tracing::info!(
            bulk = record.id,
            act,
            reason,
            by,
            condition = record.condition,
            "starting a bulk act on dead letters"
        );
        let acts = TypedRecords::<BulkRecord>::declared(Arc::clone(&self.records));
        let revision = acts.insert(&record).await?;
        self.finish(record, revision).await
    }

    /// Carries a bulk act to its end, from its stored progress.
    pub(super) async fn finish(
        &self,
        mut record: BulkRecord,
        mut revision: Revision,
    ) -> Result<BulkOutcome, DeadLetterError> {
        let acts = TypedRecords::<BulkRecord>::declared(Arc::clone(&self.records));
        let mut outcome = BulkOutcome { id: Some(record.id.as_str().into()), ..BulkOutcome::default() };
        let mut conflicts = 0;
        while !record.done {
            if *self.shared.stop.borrow() {
                // The next process finishes it.
                return Err(annals_core::StoreError::Closed.into());
            }
            let page = self.page(&record).await?;
            let next = BulkRecord {
                cursor: page.next,
                done: page.is_last,
                successful: record.successful + page.outcome.successful.cast_signed(),
                failed: record.failed + page.outcome.failed.cast_signed(),
                ..record.clone()
            };
            let mut changes = vec![TypedRecords::replacement(&next, Expected::Revision(revision))?];
            changes.extend(page.changes);
            match self.records.write(changes).await {
                Ok(revisions) => {
                    revision = revisions.first().copied().unwrap_or(revision);
                    (record, conflicts) = (next, 0);
                    let left = DETAILS_MAX.saturating_sub(outcome.details.len());
                    outcome.details.extend(page.outcome.details.into_iter().take(left));
                    self.changed(page.processors.iter().map(String::as_str));
                }
                // A letter changed after it was read, or another process is finishing the same act: continue from what is stored now.
                Err(RecordError::NotAsExpected { .. }) if conflicts < TRIES => {
                    conflicts += 1;
                    let stored = acts.get(record.id.as_str()).await?.ok_or_else(busy)?;
                    (record, revision) = (stored.value, stored.revision);
                }
                Err(error) => return Err(error.into()),
            }
        }
        (outcome.successful, outcome.failed) = (record.successful.cast_unsigned(), record.failed.cast_unsigned());
        outcome.total = outcome.successful + outcome.failed;
        Ok(outcome)
    }

    async fn page(&self, record: &BulkRecord) -> Result<BulkPage, DeadLetterError> {
        let unreadable = |what: &str| Invalid::new(Code::InvalidRecord, what, "of a stored bulk act cannot be read");
        let act = BulkAct::from_name(&record.act).ok_or_else(|| unreadable("act"))?;
        let condition: Condition = serde_json::from_str(&record.condition).map_err(|_| unreadable("condition"))?;
        let until = Condition::lte("created_at", record.until);
        let selected = Condition::and([DeadLetter::open(), until, condition]);
        // The letters of a key are adjacent and in order: what is planned after the first one is changed together with it.
        let mut query = RecordQuery::new(DEAD_LETTERS)
            .matching(selected)
            .ascending("processor")
            .ascending("key")
            .ascending("position")
            .limit(PAGE);
        if let Some(cursor) = &record.cursor {
            query = query.after(Cursor::new(cursor.clone()));
        }
        let (letters, next) = self.letters().find(query).await?;
        let (mut edits, mut outcome) = (self.edits(), BulkOutcome::default());
        let reason = Reason { reason: record.reason.clone(), by: record.by.clone() };
        let mut processors = BTreeSet::new();
        let ids: Vec<String> = letters.iter().map(|stored| stored.value.id.clone()).collect();
        for stored in letters {
            processors.insert(stored.value.processor.clone());
            edits.know(stored);
        }
        for id in ids {
            let error = match carry_out(&mut edits, &id, act, &reason).await? {
                Some(Asked::Done) => None,
                Some(Asked::Over(status)) => Some(over(&id, act, status).to_string()),
                None => Some(DeadLetterError::Unknown(id.as_str().into()).to_string()),
            };
            if error.is_none() {
                outcome.successful += 1;
            } else {
                count(&mut outcome, id.into(), error);
            }
        }
        let is_last = next.is_none();
        let next = next.map(|cursor| cursor.as_str().to_owned());
        Ok(BulkPage { changes: edits.finish()?.0, next, is_last, outcome, processors })
    }

    /// Finishes the bulk acts of processes that have ended.
    pub(super) async fn finish_others(&self) -> Result<(), DeadLetterError> {
        let acts = TypedRecords::<BulkRecord>::declared(Arc::clone(&self.records));
        let unfinished = Condition::and([Condition::is_false("done"), Condition::ne("process", &*self.shared.process)]);
        let query = TypedRecords::<BulkRecord>::query().matching(unfinished).ascending("_id").limit(100);
        let page = match acts.find(query).await {
            Err(RecordError::UnknownCollection(_)) => return Ok(()),
            page => page?.0,
        };
        for stored in page {
            tracing::info!(
                bulk = stored.value.id,
                "continuing a bulk act on dead letters that another process started"
            );
            self.finish(stored.value, stored.revision).await?;
        }
        Ok(())
    }
}

/// The changes of one page of a bulk act.
struct BulkPage {
    changes: Vec<annals_core::RecordChange>,
    next: Option<String>,
    is_last: bool,
    outcome: BulkOutcome,
    processors: BTreeSet<String>,
}

fn count(outcome: &mut BulkOutcome, id: ByteString, error: Option<String>) {
    let status = if error.is_none() { "success" } else { "failed" };
    match &error {
        None => outcome.successful += 1,
        Some(_) => outcome.failed += 1,
    }
    if outcome.details.len() < DETAILS_MAX {
        outcome.details.push(BulkDetail { id, status: ByteString::from_static(status), error });
    }
}
