//! Defining, listing and deleting partners.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use annals_core::handlers::Reason;
use annals_core::partners::{
    DeliveryRecord, EventDirection, PARTNER_SECRETS, PARTNERS, PartnerArchive, PartnerDefinition, PartnerError,
    PartnerPage, PartnerRecord, PartnerStatus, ReplayState, ReplayTask, SELECTION, SecretsRecord, SelectFrom,
    SelectionRecord, SigningSecret,
};
use annals_core::{
    Code, Condition, Expected, Invalid, RecordChange, RecordError, RecordType, StoreError, Timestamp, TypedRecords,
    limits,
};

use super::{TenantPartners, absent, date, time, whatever};
use crate::host::locked;

/// The number of attempts to write a definition that another process changes meanwhile.
const TRIES: usize = 10;

impl TenantPartners {
    pub(super) fn typed(&self) -> TypedRecords<PartnerRecord> {
        TypedRecords::declared(Arc::clone(&self.records))
    }

    /// Returns the definition of a partner without its secrets, and its record.
    pub(super) async fn definition(&self, id: &str) -> Result<(PartnerDefinition, PartnerRecord), PartnerError> {
        let found = absent(self.typed().get(id).await)?;
        let record = found.ok_or_else(|| PartnerError::Unknown(id.to_owned()))?.value;
        Ok((record.read()?, record))
    }

    pub(super) async fn define(&self, definition: PartnerDefinition) -> Result<bool, PartnerError> {
        self.open()?;
        definition.validate()?;
        let invalid = |path: &str, message: String| Invalid::new(Code::InvalidPartner, path, message);
        if let Some(url) = &definition.url {
            self.shared.options.partners.sending.check(url).map_err(|message| invalid("url", message))?;
        }
        self.declare().await?;
        for _ in 0..TRIES {
            match self.try_define(&definition).await {
                Err(PartnerError::Store(StoreError::Unreachable(_))) => {}
                defined => return defined,
            }
        }
        self.try_define(&definition).await
    }

    async fn try_define(&self, definition: &PartnerDefinition) -> Result<bool, PartnerError> {
        let id = &*definition.id;
        let selection = self.selection().await?;
        let found = match self.definition(id).await {
            Err(PartnerError::Unknown(_)) => None,
            found => Some(found?),
        };
        if found.is_none() && definition.secrets.is_none() {
            let message =
                "are missing; a new partner needs at least one, such as whsec_ and the base64 of 24 random bytes";
            return Err(Invalid::new(Code::InvalidPartner, "secrets", message).into());
        }
        let unchanged = |(before, _): &(PartnerDefinition, PartnerRecord)| before.shown() == definition.shown();
        if definition.secrets.is_none() && found.as_ref().is_some_and(unchanged) {
            return Ok(false);
        }
        let (now, head) = (self.now(), self.log.head().await?);
        let (archived, turn, copied) = found.as_ref().map_or((PartnerArchive::None, 0, 0), |(before, record)| {
            (before.archive, record.archive_turn, record.copied_turn)
        });
        let record = PartnerRecord {
            id: id.to_owned(),
            definition: definition.shown(),
            from: found.as_ref().map_or(head.cast_signed(), |(_, record)| record.from),
            defined: found.as_ref().map_or(date(now), |(_, record)| record.defined),
            changed: date(now),
            touched: 0,
            archive_turn: turn + i64::from(definition.archive != archived),
            copied_turn: copied,
        };
        let mut changes = vec![self.next_generation(selection, head)?];
        let expected = found.as_ref().map_or(Expected::Absent, |(_, record)| {
            Expected::Matching(Condition::eq("definition", record.definition.as_str()))
        });
        changes.push(TypedRecords::replacement(&record, expected)?);
        if let Some(secrets) = &definition.secrets {
            changes.push(TypedRecords::replacement(&self.encrypted(id, secrets)?, whatever())?);
        }
        if found.is_none() {
            changes.extend(self.catch_up(definition, head)?);
        }
        self.records.write(changes).await?;
        self.start();
        self.wake(&DeliveryRecord::lane_of(EventDirection::Out, id), id).await;
        Ok(found.is_none())
    }

    fn encrypted(&self, id: &str, secrets: &[annals_core::ByteString]) -> Result<SecretsRecord, PartnerError> {
        let read = |(n, secret): (usize, &annals_core::ByteString)| {
            SigningSecret::read(secret).map_err(|why| Invalid::new(Code::InvalidPartner, format!("secrets[{n}]"), why))
        };
        let secrets = secrets.iter().enumerate().map(read).collect::<Result<Vec<_>, _>>()?;
        let keys = self.shared.options.partners.keys.as_ref();
        let keys = keys.ok_or_else(|| {
            PartnerError::Key("the server has no key to encrypt secrets with; configure partners.key_file".to_owned())
        })?;
        keys.encrypt(&self.tenant, id, &secrets, || self.random())
    }

    /// Returns the change that makes the selection read the definitions again.
    fn next_generation(&self, selection: Option<SelectionRecord>, head: u64) -> Result<RecordChange, PartnerError> {
        let Some(selection) = selection else {
            let first = SelectionRecord { id: SELECTION.to_owned(), position: head.cast_signed(), generation: 1 };
            return Ok(TypedRecords::replacement(&first, Expected::Absent)?);
        };
        let expected = Expected::Matching(Condition::eq("generation", selection.generation));
        let next = [("generation", (selection.generation + 1).into())];
        Ok(RecordChange::set_if(SelectionRecord::COLLECTION, SELECTION, next, expected))
    }

    /// Returns the replay that gives a new partner the existing events of the log that it selects; `None` if it starts with the latest.
    fn catch_up(&self, definition: &PartnerDefinition, head: u64) -> Result<Option<RecordChange>, PartnerError> {
        let from = match definition.start {
            SelectFrom::Latest => return Ok(None),
            SelectFrom::Beginning => 0,
            SelectFrom::SequenceNumber(number) => number,
        };
        if definition.select.is_none() || from >= head {
            return Ok(None);
        }
        let task = ReplayTask {
            id: format!("start/{}", definition.id),
            partner: definition.id.to_string(),
            from: from.cast_signed(),
            to: head.cast_signed(),
            next: from.cast_signed(),
            again: false,
            state: ReplayState::Running,
            started: date(self.now()),
        };
        Ok(Some(TypedRecords::replacement(&task, whatever())?))
    }

    async fn status_of(&self, record: &PartnerRecord) -> Result<PartnerStatus, PartnerError> {
        let definition = record.read()?;
        let secrets = TypedRecords::<SecretsRecord>::declared(Arc::clone(&self.records));
        let secrets = absent(secrets.get(record.id.as_str()).await)?.map_or(0, |found| found.value.secrets.len());
        let mut status = PartnerStatus::of(&definition, secrets, (time(record.defined), time(record.changed)));
        let lane = DeliveryRecord::lane_of(EventDirection::Out, &record.id);
        let until: Option<Timestamp> = locked(&self.breakers).get(&lane).copied();
        if let Some(until) = until.filter(|_| !definition.paused) {
            (status.state, status.retry_at) = ("failing".to_owned(), Some(until));
        }
        Ok(status)
    }

    pub(super) async fn status(&self, id: &str) -> Result<PartnerStatus, PartnerError> {
        self.open()?;
        let (_, record) = self.definition(id).await?;
        self.status_of(&record).await
    }

    pub(super) async fn list_partners(&self, after: Option<&str>, limit: usize) -> Result<PartnerPage, PartnerError> {
        self.open()?;
        let condition = after.map_or(Condition::All, |after| Condition::gt("_id", after));
        let query = TypedRecords::<PartnerRecord>::query().matching(condition).limit(limit.clamp(1, limits::PAGE_MAX));
        let (found, next) = absent(self.typed().find(query).await)?;
        let mut items = Vec::with_capacity(found.len());
        for record in &found {
            items.push(self.status_of(&record.value).await?);
        }
        let cursor = next.and(found.last()).map(|last| last.value.id.clone());
        Ok(PartnerPage { items, cursor })
    }

    pub(super) async fn pause_or_resume(
        &self,
        id: &str,
        paused: bool,
        reason: Reason,
    ) -> Result<PartnerStatus, PartnerError> {
        self.open()?;
        reason.validate()?;
        self.definition(id).await?;
        self.declare().await?;
        for _ in 0..TRIES {
            if self.try_switch(id, paused, &reason).await? {
                self.start();
                self.wake(&DeliveryRecord::lane_of(EventDirection::Out, id), id).await;
                return self.status(id).await;
            }
        }
        let message = format!("partner {id:?} was changed by others {TRIES} times in a row; retry");
        Err(StoreError::Unreachable(message).into())
    }

    /// Changes `paused` in the current definition, and records who did it and why. Returns false if the definition has changed since it
    /// was read.
    async fn try_switch(&self, id: &str, paused: bool, reason: &Reason) -> Result<bool, PartnerError> {
        let found = absent(self.typed().get(id).await)?.ok_or_else(|| PartnerError::Unknown(id.to_owned()))?;
        let mut definition = found.value.read()?;
        if definition.paused == paused {
            return Ok(true);
        }
        definition.paused = paused;
        let record = PartnerRecord { definition: definition.shown(), changed: date(self.now()), ..found.value };
        let act = if paused { "pause" } else { "resume" };
        let act = self.act(&format!("partner/{id}"), act, reason.clone());
        let changes = vec![
            TypedRecords::replacement(&record, Expected::Revision(found.revision))?,
            TypedRecords::replacement(&act, whatever())?,
        ];
        match self.records.write(changes).await {
            Err(RecordError::NotAsExpected { .. }) => Ok(false),
            written => Ok(written.map(|_| true)?),
        }
    }

    pub(super) async fn remove(&self, id: &str, reason: Reason) -> Result<(), PartnerError> {
        self.open()?;
        reason.validate()?;
        self.definition(id).await?;
        self.declare().await?;
        let selection = self.selection().await?;
        let act = self.act(&format!("partner/{id}"), "delete", reason);
        let changes = vec![
            self.next_generation(selection, 0)?,
            RecordChange::delete_if(PARTNERS, id, Expected::Present),
            RecordChange::delete_if(PARTNER_SECRETS, id, whatever()),
            RecordChange::delete_if(ReplayTask::COLLECTION, format!("start/{id}"), whatever()),
            TypedRecords::replacement(&act, whatever())?,
        ];
        match self.records.write(changes).await {
            Err(RecordError::NotAsExpected { .. }) => Err(PartnerError::Unknown(id.to_owned())),
            written => Ok(written.map(drop)?),
        }
    }

    /// Sets whether this process owns the partners of the tenant.
    pub(super) fn set_owner(&self, owns: bool) {
        self.owns.store(owns, Ordering::SeqCst);
        if !owns {
            locked(&self.breakers).clear();
        }
    }
}
