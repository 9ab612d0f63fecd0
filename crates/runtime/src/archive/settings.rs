//! Rules and holds: one record, changed by compare-and-set.

use std::time::Duration;

use annals_core::archive::{
    ARCHIVED_MARK, ArchiveError, ArchiveFailure, ArchiveStatus, ArchiveTarget, HOLD_PARTS_MAX, HoldBody, HoldPage,
    HoldRecord, HoldStatus, PutRetention, RULES_MAX, RetentionBody, RetentionDefault, RetentionPage, RetentionPlan,
    RetentionStatus, RuleKind, RuleRecord, TypeCategory, hold_parts,
};
use annals_core::browse::{BROWSE_SETTINGS, ViewRecord};
use annals_core::bson::DateTime;
use annals_core::handlers::{ActRecord, Reason};
use annals_core::types::TypeError;
use annals_core::{
    ByteString, Code, Condition, DEFAULT_CATEGORY, Expected, Invalid, RecordChange, RecordError, RecordType,
    StoreError, TypedRecords, limits, valid_name,
};

use super::{NO_PLACE, TenantArchive};
use crate::browse::settings_of;

/// How long a caller that sets a hold or a rule waits until no document has an expiry date that contradicts it.
const IN_FORCE_WITHIN: Duration = Duration::from_secs(5);

/// The settings as read, and the expectation for batches that depend on them.
pub(crate) struct Loaded {
    pub record: ViewRecord,
    pub plan: RetentionPlan,
    pub expected: Expected,
}

impl Loaded {
    /// Returns the check that makes a batch depend on the settings.
    pub fn check(&self) -> RecordChange {
        RecordChange::check(BROWSE_SETTINGS, ViewRecord::ID, self.expected.clone())
    }
}

/// Returns one page of items after a name, and where the next page begins.
fn paged<T>(all: Vec<T>, name: fn(&T) -> &str, after: Option<&str>, limit: usize) -> (Vec<T>, Option<String>) {
    let mut rest: Vec<T> = all.into_iter().filter(|it| after.is_none_or(|after| name(it) > after)).collect();
    let more = rest.len() > limit;
    rest.truncate(limit);
    let cursor = rest.last().filter(|_| more).map(|last| name(last).to_owned());
    (rest, cursor)
}

/// Returns the error for too many parts: due documents are found by one condition, which contains the filters of all holds.
fn too_many_parts(parts: usize) -> Invalid {
    let message = format!(
        "cannot be added: all holds together would have {parts} parts, and {HOLD_PARTS_MAX} are the most; a filter has a \
         part for each field and one more if it has several; remove holds, or put several into one with lists such as \
         event_ids"
    );
    Invalid::new(Code::InvalidBody, "filter", message)
}

impl TenantArchive {
    pub(super) async fn load(&self) -> Result<Loaded, RecordError> {
        let (record, expected) = settings_of(&self.records).await?;
        Ok(Loaded { plan: RetentionPlan::of(&record), record, expected })
    }

    /// Changes the settings, and retries until no other writer is faster. The edit sees the newest settings each time.
    async fn edit<T>(
        &self,
        edit: impl FnMut(&mut ViewRecord) -> Result<T, ArchiveError>,
    ) -> Result<(Loaded, T), ArchiveError> {
        self.edit_with(edit, None).await
    }

    /// Removes something from the settings, and records in the same batch who did it and why.
    async fn remove(
        &self,
        of: String,
        reason: Reason,
        edit: impl FnMut(&mut ViewRecord) -> Result<(), ArchiveError>,
    ) -> Result<(), ArchiveError> {
        reason.validate()?;
        self.records.declare(<ActRecord as RecordType>::collection()).await?;
        let act = ActRecord::new(&of, "delete", reason, (self.now(), 0, self.shared.options.random.bits()));
        let recorded = TypedRecords::replacement(&act, Expected::AbsentOr(Condition::All))?;
        self.edit_with(edit, Some(recorded)).await.map(drop)
    }

    async fn edit_with<T>(
        &self,
        mut edit: impl FnMut(&mut ViewRecord) -> Result<T, ArchiveError>,
        beside: Option<RecordChange>,
    ) -> Result<(Loaded, T), ArchiveError> {
        self.records.declare(<ViewRecord as RecordType>::collection()).await?;
        loop {
            let (mut record, expected) = settings_of(&self.records).await?;
            let done = edit(&mut record)?;
            record.version += 1;
            let batch = std::iter::once(TypedRecords::replacement(&record, expected)?).chain(beside.clone()).collect();
            match self.records.write(batch).await {
                Ok(revisions) => {
                    let expected = Expected::Revision(revisions.first().copied().unwrap_or_default());
                    let loaded = Loaded { plan: RetentionPlan::of(&record), record, expected };
                    self.wake();
                    return Ok((loaded, done));
                }
                Err(RecordError::NotAsExpected { .. } | RecordError::DuplicateKey { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Returns the categories of registered types, without those of the default category.
    async fn categories(&self) -> Result<Vec<TypeCategory>, ArchiveError> {
        let (mut all, mut after) = (Vec::new(), None::<ByteString>);
        loop {
            let page = match self.types.list(after.as_deref(), limits::PAGE_MAX).await {
                Err(TypeError::Store(StoreError::NotSupported(_))) => return Ok(all),
                Err(TypeError::Store(error)) => return Err(error.into()),
                Err(error) => return Err(StoreError::other(error.code(), error.to_string()).into()),
                Ok(page) => page,
            };
            let others = page.items.iter().filter(|it| &*it.category != DEFAULT_CATEGORY);
            all.extend(others.map(|it| TypeCategory { name: it.name.to_string(), category: it.category.to_string() }));
            after = page.cursor;
            if after.is_none() {
                return Ok(all);
            }
        }
    }

    /// Stores changed categories if there is a rule for a category.
    pub(super) async fn with_categories(&self, loaded: Loaded) -> Result<Loaded, ArchiveError> {
        if !loaded.record.rules.iter().any(|rule| rule.kind == RuleKind::Category) {
            return Ok(loaded);
        }
        let categories = self.categories().await?;
        if loaded.record.categories == categories {
            return Ok(loaded);
        }
        let (loaded, ()) = self
            .edit(|record| {
                record.categories.clone_from(&categories);
                Ok(())
            })
            .await?;
        Ok(loaded)
    }

    pub(super) async fn changed_rule(&self, name: &str, body: RetentionBody) -> Result<PutRetention, ArchiveError> {
        body.validate()?;
        valid_name("name", name)?;
        if body.archive == ArchiveTarget::Files && self.shared.options.archive.is_none() {
            let message = "cannot be files, because the server has no folder or bucket for them; set server.archive";
            return Err(Invalid::new(Code::InvalidBody, "archive", message).into());
        }
        let categories = self.categories().await?;
        let is_category =
            self.shared.options.topics.categories.contains_key(name) || categories.iter().any(|it| it.category == name);
        let kind = if is_category { RuleKind::Category } else { RuleKind::Type };
        let rule = RuleRecord {
            name: name.to_owned(),
            kind,
            ttl_days: body.ttl_days.map(i64::from),
            archive: body.archive,
            reason: body.reason.clone(),
            by: body.by.clone(),
            at: DateTime::from_millis(self.now().as_millis()),
        };
        let put = |record: &mut ViewRecord| {
            let before = record.rules.len();
            record.rules.retain(|it| it.name != rule.name);
            let created = record.rules.len() == before;
            if created && before >= RULES_MAX {
                let message = format!("exceeds the limit of {RULES_MAX} rules per tenant; remove one first");
                return Err(Invalid::new(Code::InvalidBody, "name", message).into());
            }
            record.rules.push(rule.clone());
            record.rules.sort_by(|one, other| one.name.cmp(&other.name));
            if record.rules.iter().any(|it| it.kind == RuleKind::Category) {
                record.categories.clone_from(&categories);
            }
            Ok(created)
        };
        if body.dry_run {
            let mut record = self.load().await?.record;
            let created = put(&mut record)?;
            let due = self.would_be_due(&RetentionPlan::of(&record), &rule).await?;
            return Ok(PutRetention { rule: RetentionStatus::of(&rule), created, due: Some(due) });
        }
        let (loaded, created) = self.edit(put).await?;
        self.start();
        if rule.archive != ArchiveTarget::None {
            // Documents that expire by an earlier rule have no copy in this archive.
            let own = Condition::exists("annals.sequence_number");
            let uncopied = [loaded.plan.types_of(rule.kind, &rule.name), own, Condition::missing(ARCHIVED_MARK)];
            // The view has one index of a type's events by time, and one of all expiry dates.
            let by = if rule.kind == RuleKind::Type { "timestamp" } else { "ttl_expires_at" };
            self.in_force(&Condition::and(uncopied), by).await?;
        }
        Ok(PutRetention { rule: RetentionStatus::of(&rule), created, due: None })
    }

    /// Returns the number of events that a rule would remove from the view now.
    async fn would_be_due(&self, plan: &RetentionPlan, rule: &RuleRecord) -> Result<u64, ArchiveError> {
        let Some(days) = rule.ttl_days else { return Ok(0) };
        let builds = self.builds().await?;
        let Some((_, live)) = builds.first() else { return Ok(0) };
        let until = DateTime::from_millis(self.now().as_millis() - days * 24 * 60 * 60 * 1_000);
        let mut all = vec![plan.types_of(rule.kind, &rule.name), Condition::lte("stored_at", until)];
        all.extend(plan.not_held());
        Ok(self.records.count(live, &Condition::and(all)).await?)
    }

    pub(super) async fn removed_rule(&self, name: &str, reason: Reason) -> Result<(), ArchiveError> {
        let removed = self.remove(format!("retention/{name}"), reason, |record| {
            let before = record.rules.len();
            record.rules.retain(|it| it.name != name);
            match record.rules.len() < before {
                true => Ok(()),
                false => Err(ArchiveError::UnknownRule(name.to_owned())),
            }
        });
        removed.await
    }

    pub(super) async fn listed_rules(&self, after: Option<&str>, limit: usize) -> Result<RetentionPage, ArchiveError> {
        let loaded = self.load().await?;
        let default = RetentionDefault { ttl_days: loaded.record.days(), archive: ArchiveTarget::None };
        let all = loaded.record.rules.iter().map(RetentionStatus::of).collect();
        let (items, cursor) = paged(all, |it: &RetentionStatus| &it.name, after, limit);
        Ok(RetentionPage { items, cursor, default, archive: self.status(&loaded).await? })
    }

    /// Returns the status of the archive.
    pub(crate) async fn status(&self, loaded: &Loaded) -> Result<ArchiveStatus, ArchiveError> {
        let (state, builds) = (self.state().await?, self.builds().await?);
        let version = loaded.record.version;
        let settled = version == 0 || builds.iter().all(|(number, _)| state.is_settled(*number, version));
        let mut status = ArchiveStatus::of(&state, settled);
        let needs_place = loaded.record.rules.iter().any(|rule| rule.archive == ArchiveTarget::Files);
        if needs_place && self.shared.options.archive.is_none() && status.failing.is_none() {
            let reason = NO_PLACE.to_owned();
            status.failing = Some(ArchiveFailure { reason, since: self.now().nearest_writable() });
        }
        Ok(status)
    }

    pub(super) async fn changed_hold(&self, name: &str, body: HoldBody) -> Result<(HoldStatus, bool), ArchiveError> {
        body.validate()?;
        valid_name("name", name)?;
        let hold = HoldRecord {
            name: name.to_owned(),
            filter: body.filter.clone(),
            reason: body.reason.clone(),
            by: body.by.clone(),
            at: DateTime::from_millis(self.now().as_millis()),
        };
        let (_, created) = self
            .edit(|record| {
                let (before, parts_before) = (record.holds.len(), hold_parts(&record.holds));
                record.holds.retain(|it| it.name != hold.name);
                let created = record.holds.len() == before;
                record.holds.push(hold.clone());
                record.holds.sort_by(|one, other| one.name.cmp(&other.name));
                let parts = hold_parts(&record.holds);
                // If there are too many parts already, allow a change that adds none.
                if parts > HOLD_PARTS_MAX && parts > parts_before {
                    return Err(too_many_parts(parts).into());
                }
                Ok(created)
            })
            .await?;
        self.start();
        // The index that has a filter's fields also has the time.
        let in_force = self.in_force(&hold.filter.condition(), "timestamp").await?;
        Ok((HoldStatus::of(&hold, in_force), created))
    }

    /// Removes the expiry dates that documents must no longer have. Returns whether that completed within a few seconds; the task does
    /// the rest.
    async fn in_force(&self, selected: &Condition, by: &str) -> Result<bool, ArchiveError> {
        tokio::select! {
            biased;
            held = self.hold_now(selected, by) => held.map(|()| true),
            () = self.clock().sleep(IN_FORCE_WITHIN) => Ok(false),
        }
    }

    pub(super) async fn removed_hold(&self, name: &str, reason: Reason) -> Result<(), ArchiveError> {
        let removed = self.remove(format!("hold/{name}"), reason, |record| {
            let before = record.holds.len();
            record.holds.retain(|it| it.name != name);
            match record.holds.len() < before {
                true => Ok(()),
                false => Err(ArchiveError::UnknownHold(name.to_owned())),
            }
        });
        removed.await
    }

    pub(super) async fn listed_holds(&self, after: Option<&str>, limit: usize) -> Result<HoldPage, ArchiveError> {
        let loaded = self.load().await?;
        let (rest, cursor) = paged(loaded.record.holds, |it: &HoldRecord| &it.name, after, limit);
        let mut items = Vec::with_capacity(rest.len());
        for hold in rest {
            let in_force = self.is_in_force(&hold.filter.condition()).await?;
            items.push(HoldStatus::of(&hold, in_force));
        }
        Ok(HoldPage { items, cursor })
    }

    pub(super) async fn known_hold(&self, name: &str) -> Result<HoldStatus, ArchiveError> {
        let loaded = self.load().await?;
        let hold = loaded.record.holds.iter().find(|it| it.name == name);
        let hold = hold.ok_or_else(|| ArchiveError::UnknownHold(name.to_owned()))?;
        let in_force = self.is_in_force(&hold.filter.condition()).await?;
        Ok(HoldStatus::of(hold, in_force))
    }
}
