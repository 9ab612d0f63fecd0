//! Deliveries of replays, which workers pull along with the handler's own. They are stored as separate records, so a replay does not move
//! the handler's position or block its partitions.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use annals_core::handlers::{Delivery, HandlerError, PullBody, SettleResult, Settlement};
use annals_core::processing::Outcome;
use annals_core::replays::{INBOX, InboxRecord, ReplaySession, inbox_token, is_inbox_token, of_token};
use annals_core::trace::TraceContext;
use annals_core::types::TypeError;
use annals_core::{
    Condition, Expected, LogQuery, RecordChange, RecordError, RecordQuery, RecordedEvent, Stored, Timestamp,
    TypedRecords, limits,
};

use super::claimed::{Claim, Claimed, Place};
use super::{Kind, TenantHandlers};
use crate::dead_letters::{Edits, Policies};
use crate::due::Due;
use crate::engine::owner::Settling;
use crate::replays::clear_inbox;

/// Deliveries of replays, and when to look for more.
struct Taken {
    deliveries: Vec<Delivery>,
    look_at: Option<Timestamp>,
}

/// What can be delivered now.
struct Choice {
    chosen: Vec<Stored<InboxRecord>>,
    /// Deliveries whose lease of their last attempt has expired.
    given_up: Vec<Stored<InboxRecord>>,
    look_at: Option<Timestamp>,
}

impl TenantHandlers {
    /// Takes deliveries without validating the request: those of replays, or the handler's own. A `local` worker, which is a handler of
    /// this process, loses its deliveries of replays when the process ends.
    pub async fn take(&self, name: &str, body: PullBody, local: bool) -> Result<Vec<Delivery>, HandlerError> {
        let ends = self.clock().now().plus(Duration::from_millis(body.wait_ms));
        let mut replayed = self.shared.replayed(&self.tenant).subscribe();
        let mut due = Due::of(&self.shared, &self.tenant, &self.records).inbox(&self.kind.processor_of(name));
        loop {
            let mut look_at = None;
            if *replayed.borrow_and_update() > 0 {
                let taken = self.take_replayed(name, &body, local).await?;
                if !taken.deliveries.is_empty() {
                    return Ok(taken.deliveries);
                }
                look_at = taken.look_at;
            }
            let left = u64::try_from(ends.since(self.clock().now()).as_millis()).unwrap_or(0);
            let own = self.take_own(name, PullBody { wait_ms: left, ..body.clone() });
            tokio::select! {
                biased;
                own = own => return own,
                _ = replayed.changed() => {}
                () = due.due() => {}
                () = self.clock().sleep_until(look_at.unwrap_or(ends)), if look_at.is_some() => {}
            }
        }
    }

    async fn take_replayed(&self, name: &str, body: &PullBody, local: bool) -> Result<Taken, HandlerError> {
        let choice = match self.choose(name, body.max).await {
            Err(RecordError::UnknownCollection(_)) => return Ok(Taken { deliveries: Vec::new(), look_at: None }),
            choice => choice?,
        };
        for given_up in choice.given_up {
            self.give_up(given_up, "its lease ended before it was settled".to_owned()).await?;
        }
        let mut taken = Taken { deliveries: Vec::new(), look_at: choice.look_at };
        if choice.chosen.is_empty() {
            return Ok(taken);
        }
        let (holder, life) = match local {
            true => (Some(self.shared.process.clone()), self.shared.life_in(&self.tenant, &self.records).await?),
            false => (None, None),
        };
        let (now, mut claims) = (self.clock().now(), Vec::new());
        let until = now.plus(Duration::from_millis(body.lease_ms));
        for Stored { value: record, revision } in choice.chosen {
            let Some(event) = self.event(record.sequence_number.cast_unsigned()).await? else { continue };
            let event = match self.consumed(event).await? {
                Ok(event) => event,
                Err(reason) => {
                    self.give_up(Stored { value: record, revision }, reason).await?;
                    continue;
                }
            };
            let (attempts, holder) = (record.attempts + 1, holder.clone());
            let claim = Some((self.shared.options.random.bits() as u64).cast_signed());
            let leased = InboxRecord { attempts, ready_at: until.as_millis(), holder, life, claim, ..record.clone() };
            taken.deliveries.push(delivery(&leased, event, until));
            claims.push(Claim { before: Stored { value: record, revision }, leased });
        }
        let place = Place {
            shared: Arc::clone(&self.shared),
            records: Arc::clone(&self.records),
            replayed: self.shared.replayed(&self.tenant),
            until,
        };
        match Claimed::make(place, claims).await {
            Ok(claimed) => {
                claimed.accept();
                Ok(taken)
            }
            // Another worker was faster; the caller looks again.
            Err(RecordError::NotAsExpected { .. }) => Ok(Taken { deliveries: Vec::new(), look_at: Some(now) }),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns an event as consumers of topics receive it, or why they cannot. Handlers receive events as they were recorded.
    async fn consumed(&self, event: RecordedEvent) -> Result<Result<RecordedEvent, String>, HandlerError> {
        if self.kind != Kind::Groups {
            return Ok(Ok(event));
        }
        let unknown = |error: annals_core::UnknownLog| annals_core::StoreError::other(error.code(), error.to_string());
        let types = self.shared.store.event_types(&self.tenant).map_err(unknown)?;
        match types.consume(&event).await {
            Ok(current) => Ok(Ok(current.unwrap_or(event))),
            Err(TypeError::Store(error)) => Err(error.into()),
            Err(refused) => Ok(Err(refused.to_string())),
        }
    }

    /// Chooses what can be delivered: the first delivery of each partition, unless it is in flight or waits after a failure.
    async fn choose(&self, name: &str, max: usize) -> Result<Choice, RecordError> {
        let processor = self.kind.processor_of(name);
        let typed = TypedRecords::<InboxRecord>::declared(Arc::clone(&self.records));
        let query = RecordQuery::new(INBOX).matching(Condition::eq("processor", processor)).limit(limits::PAGE_MAX);
        let (mut found, _) = typed.find(query).await?;
        self.drop_those_of_ended(&mut found).await?;
        let now = self.clock().now();
        // Nothing signals the end of the process whose handler has a delivery, so look as often as heartbeats are renewed.
        let (look_again, now) = (now.plus(self.shared.options.lease / 4).as_millis(), now.as_millis());
        let mut choice = Choice { chosen: Vec::new(), given_up: Vec::new(), look_at: None };
        let (mut held, mut times) = (HashSet::new(), BTreeSet::new());
        for mut record in found {
            if !held.insert(record.value.partition.clone()) {
                continue;
            }
            if record.value.ready_at > now && self.is_abandoned(&record.value).await? {
                // The attempt does not count, but its number stays used: its process may merely be cut off and still settle it.
                let InboxRecord { attempts_max, ready_at, holder, life, .. } = &mut record.value;
                (*attempts_max, *ready_at, *holder, *life) = (*attempts_max + 1, now, None, None);
            }
            let it = &record.value;
            if it.ready_at > now {
                let is_elsewhere = it.holder.as_ref().is_some_and(|holder| *holder != self.shared.process);
                times.insert(if is_elsewhere { it.ready_at.min(look_again) } else { it.ready_at });
            } else if it.attempts >= it.attempts_max {
                choice.given_up.push(record);
            } else if choice.chosen.len() < max {
                choice.chosen.push(record);
            }
        }
        choice.look_at = times.first().map(|time| Timestamp::from_millis(*time));
        Ok(choice)
    }

    /// Returns whether a delivery in flight was abandoned, because the process whose own handler has it is gone.
    async fn is_abandoned(&self, record: &InboxRecord) -> Result<bool, RecordError> {
        let Some(holder) = record.holder.as_deref().filter(|holder| *holder != self.shared.process) else {
            return Ok(false);
        };
        self.shared.is_gone(&self.tenant, &self.records, holder, record.life).await
    }

    /// Drops deliveries of replays that failed or were cancelled, including those that a process died before removing.
    async fn drop_those_of_ended(&self, found: &mut Vec<Stored<InboxRecord>>) -> Result<(), RecordError> {
        let sessions = TypedRecords::<ReplaySession>::declared(Arc::clone(&self.records));
        let ids: BTreeSet<String> = found.iter().map(|it| it.value.session.clone()).collect();
        for id in ids {
            let session = sessions.get(id.as_str()).await?;
            if session.is_none_or(|session| session.value.status.is_terminal()) {
                clear_inbox(&*self.records, &id).await?;
                found.retain(|it| it.value.session != id);
            }
        }
        Ok(())
    }

    async fn event(&self, number: u64) -> Result<Option<RecordedEvent>, HandlerError> {
        let page = self.log.read(LogQuery { from: Some(number), limit: 1, ..LogQuery::default() }).await;
        let page = page.map_err(|error| match error {
            annals_core::ReadError::Store(error) => HandlerError::Store(error),
            other => HandlerError::Store(annals_core::StoreError::Io(other.to_string())),
        })?;
        Ok(page.events.into_iter().next().filter(|event| event.sequence_number == number))
    }

    /// Settles deliveries of replays and of the handler's own events, each with its effects.
    pub async fn settle_all(&self, name: &str, settling: Vec<Settling>) -> Result<Vec<SettleResult>, HandlerError> {
        let is_replayed = |settling: &Settling| settling.settlements.iter().any(|it| is_inbox_token(&it.token));
        if !settling.iter().any(is_replayed) {
            return self.settle_own(name, settling).await;
        }
        let mut results = Vec::with_capacity(settling.len());
        for one in settling {
            match is_replayed(&one) {
                true => results.extend(self.settle_replayed(name, one).await?),
                false => results.extend(self.settle_own(name, vec![one]).await?),
            }
        }
        self.shared.replayed(&self.tenant).send_modify(|count| *count += 1);
        Ok(results)
    }

    async fn settle_replayed(&self, name: &str, settling: Settling) -> Result<Vec<SettleResult>, HandlerError> {
        let (mut results, mut effects) = (Vec::new(), settling.effects);
        for settlement in settling.settlements {
            let settled = self.settle_one(name, &settlement, std::mem::take(&mut effects)).await?;
            let error = (!settled).then(|| "lease_lost".to_owned());
            results.push(SettleResult { token: settlement.token, settled, error });
        }
        Ok(results)
    }

    /// Settles one delivery. Returns false if it no longer belongs to this worker.
    async fn settle_one(
        &self,
        name: &str,
        settlement: &Settlement,
        effects: Vec<RecordChange>,
    ) -> Result<bool, HandlerError> {
        let Some(token) = of_token(&settlement.token) else { return Ok(false) };
        let typed = TypedRecords::<InboxRecord>::declared(Arc::clone(&self.records));
        let found = match typed.get(token.id).await {
            Err(RecordError::UnknownCollection(_)) => None,
            found => found?,
        };
        // A worker may settle only deliveries of its own handler that were actually delivered.
        let own = self.kind.processor_of(name);
        let is_own = |it: &Stored<InboxRecord>| token.is_of(&it.value) && it.value.processor == own;
        let Some(found) = found.filter(is_own) else { return Ok(false) };
        let revision = Expected::Revision(found.revision);
        let (reason, pause) = match settlement.outcome() {
            Outcome::Done => match self.processed(name, &found.value, revision.clone(), effects).await? {
                Ok(settled) => return Ok(settled),
                Err(refused) => (format!("its effects were refused: {refused}"), found.value.pause_ms()),
            },
            Outcome::Never { reason } => (reason, None),
            Outcome::RetryAfter { reason, millis } => {
                (reason, found.value.pause_ms().map(|_| i64::try_from(millis).unwrap_or(i64::MAX)))
            }
            Outcome::Failed { reason } => (reason, found.value.pause_ms()),
        };
        let Some(pause) = pause else { return Ok(self.give_up(found, reason).await?) };
        let ready_at = self.clock().now().as_millis().saturating_add(pause);
        let record = InboxRecord { ready_at, last_reason: Some(reason), holder: None, life: None, ..found.value };
        self.written(vec![TypedRecords::replacement(&record, revision)?]).await
    }

    /// Removes a delivery that succeeded, stores its effects, and ends the open letter of its event, if there is one. Returns false if it
    /// no longer belongs to this worker. Returns an inner error if the store refuses an effect; then nothing was stored.
    async fn processed(
        &self,
        name: &str,
        record: &InboxRecord,
        revision: Expected,
        effects: Vec<RecordChange>,
    ) -> Result<Result<bool, RecordError>, HandlerError> {
        let unknown = |error: annals_core::UnknownLog| annals_core::StoreError::other(error.code(), error.to_string());
        let own = effects.len() + 1;
        loop {
            let (now, random) = (self.clock().now(), Arc::clone(&self.shared.options.random));
            let policies = Policies::of_tenant(&self.shared, &self.tenant).map_err(unknown)?;
            let mut edits = Edits::new(&self.records, policies, random, now);
            edits.processed(&self.kind.processor_of(name), &record.event_id, now).await?;
            let letters = edits.finish()?.0;
            let has_letters = !letters.is_empty();
            let delivered = RecordChange::delete_if(INBOX, record.id.as_str(), revision.clone());
            let changes = effects.iter().cloned().chain([delivered]).chain(letters).collect();
            match self.records.write(changes).await {
                Ok(_) if has_letters => {
                    self.look_for_letters(name);
                    self.shared.letters_of(&self.tenant).notify_one();
                    return Ok(Ok(true));
                }
                Ok(_) => return Ok(Ok(true)),
                // A letter was changed after it was read.
                Err(RecordError::NotAsExpected { change, .. }) if change >= own => {}
                Err(RecordError::NotAsExpected { change, .. }) if change + 1 == own => return Ok(Ok(false)),
                Err(RecordError::Store(error)) => return Err(error.into()),
                Err(refused) => return Ok(Err(refused)),
            }
        }
    }

    async fn written(&self, changes: Vec<RecordChange>) -> Result<bool, HandlerError> {
        match self.records.write(changes).await {
            Ok(_) => Ok(true),
            Err(RecordError::NotAsExpected { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Removes a delivery that has failed permanently, and counts it in its replay.
    async fn give_up(&self, found: Stored<InboxRecord>, reason: String) -> Result<bool, RecordError> {
        let sessions = TypedRecords::<ReplaySession>::declared(Arc::clone(&self.records));
        let Stored { value: record, revision } = found;
        loop {
            let mut changes = vec![RecordChange::delete_if(INBOX, record.id.as_str(), Expected::Revision(revision))];
            if let Some(session) = sessions.get(record.session.as_str()).await? {
                let mut counted = session.value;
                let on_error = counted.body().map(|body| body.on_error).unwrap_or_default();
                counted.taken_back(Some(record.event_id.clone()), reason.clone(), on_error, self.clock().now());
                changes.push(TypedRecords::replacement(&counted, Expected::Revision(session.revision))?);
            }
            match self.records.write(changes).await {
                Ok(_) => return Ok(true),
                Err(RecordError::NotAsExpected { change: 0, .. }) => return Ok(false),
                // The replay was changed meanwhile.
                Err(RecordError::NotAsExpected { .. }) => {}
                Err(error) => return Err(error),
            }
        }
    }
}

fn delivery(record: &InboxRecord, event: RecordedEvent, until: Timestamp) -> Delivery {
    let time = record.time.map_or(event.time, Timestamp::from_millis);
    let event = RecordedEvent { time, ..event };
    Delivery {
        token: inbox_token(record),
        position: event.sequence_number,
        trace: TraceContext::of_header(&event.commit.header),
        event,
        partition: record.partition.as_deref().map(Into::into),
        attempt: u32::try_from(record.attempts).unwrap_or(u32::MAX),
        last_reason: record.last_reason.clone(),
        until,
        replay: Some(record.replay_id.as_str().into()),
        topic: record.topic.as_deref().map(Into::into),
    }
}
