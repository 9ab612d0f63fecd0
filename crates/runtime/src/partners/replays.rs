//! Replays: ranges of the log whose events are sent again, or sent to a partner that starts before its definition.

use std::sync::Arc;

use annals_core::bson::Bson;
use annals_core::handlers::Reason;
use annals_core::partners::{DeliveryRecord, EventDirection, PartnerError, ReplayStarted, ReplayState, ReplayTask};
use annals_core::{
    Code, Condition, Expected, Filter, Invalid, LogQuery, RecordChange, RecordError, RecordType, StoreError,
    TypedRecords, event_document, new_uuid,
};

use super::owner::Work;
use super::{TenantPartners, date, whatever};
use crate::host::is_set;

/// The number of events of the log that are read at once.
const PAGE: usize = 200;

impl TenantPartners {
    pub(super) async fn start_replay(
        &self,
        partner: &str,
        from: u64,
        to: Option<u64>,
        reason: Reason,
    ) -> Result<ReplayStarted, PartnerError> {
        self.open()?;
        reason.validate()?;
        let (definition, _) = self.definition(partner).await?;
        let invalid = |path: &str, message: String| Err(Invalid::new(Code::InvalidBody, path, message).into());
        if definition.select.is_none() {
            return invalid("", format!("partner {partner:?} selects no events, so there is nothing to replay"));
        }
        let head = self.log.head().await?;
        let to = to.unwrap_or(head);
        if to > head || from > to {
            return invalid("to", format!("is not between from and the head of the log, {head}"));
        }
        self.declare().await?;
        let id = new_uuid(self.now(), &*self.shared.options.random).to_string();
        let task = ReplayTask {
            id: id.clone(),
            partner: partner.to_owned(),
            from: from.cast_signed(),
            to: to.cast_signed(),
            next: from.cast_signed(),
            again: true,
            state: ReplayState::Running,
            started: date(self.now()),
        };
        let act = self.act(&format!("partner/{partner}"), "replay", reason).between(from, to);
        let changes =
            vec![TypedRecords::replacement(&task, Expected::Absent)?, TypedRecords::replacement(&act, whatever())?];
        self.records.write(changes).await?;
        self.start();
        self.wake(&DeliveryRecord::lane_of(EventDirection::Out, partner), partner).await;
        Ok(ReplayStarted { id, from, to })
    }
}

impl Work {
    /// Runs replays until the owner ends.
    pub async fn run_replays(self: Arc<Self>) -> Result<(), String> {
        let mut ending = self.ending.subscribe();
        loop {
            let ran = tokio::select! {
                () = is_set(&mut ending) => return Ok(()),
                ran = self.run_all() => ran,
            };
            match ran {
                Err(RecordError::Store(StoreError::Closed)) => return Ok(()),
                Err(error) => return Err(error.to_string()),
                Ok(()) => {}
            }
            tokio::select! {
                () = is_set(&mut ending) => return Ok(()),
                () = self.partners.replays.notified() => {}
            }
        }
    }

    async fn run_all(&self) -> Result<(), RecordError> {
        let tasks = TypedRecords::<ReplayTask>::declared(Arc::clone(&self.partners.records));
        let running = Condition::eq("state", "running");
        let (found, _) = tasks.find(TypedRecords::<ReplayTask>::query().matching(running)).await?;
        if !found.is_empty() {
            // The known partners lag behind the definitions, and may lack the partner whose definition started the replay; its events
            // would be left out.
            self.known.send_replace(Arc::new(self.partners.load().await?));
        }
        for task in found {
            let mut task = task.value;
            while task.state == ReplayState::Running {
                match self.step(task).await? {
                    Some(next) => task = next,
                    None => return Ok(()),
                }
            }
        }
        Ok(())
    }

    /// Records the next page of a replay. Returns `None` if another process has moved it.
    async fn step(&self, task: ReplayTask) -> Result<Option<ReplayTask>, RecordError> {
        let known = Arc::clone(&self.known.borrow());
        let (from, to) = (task.next.cast_unsigned(), task.to.cast_unsigned());
        let query = LogQuery { from: Some(from), limit: PAGE, backwards: false, filter: Filter::default() };
        let page = self.partners.log.read(query).await.map_err(|error| StoreError::Unreachable(error.to_string()))?;
        let mut pairs = Vec::new();
        let replay = task.again.then_some(task.id.as_str());
        let partner = known.partners.get(&task.partner);
        if let Some(partner) = partner
            && let Some(matcher) = &partner.matcher
        {
            let events = page.events.iter().filter(|event| event.sequence_number < to);
            let selected = events.filter(|event| matcher.matches(&event_document(event)));
            pairs = selected.map(|event| self.partners.outgoing(partner, event, replay)).collect();
        }
        let next = if page.events.is_empty() || partner.is_none() { to } else { page.next.min(to) };
        let state = if next >= to { ReplayState::Done } else { ReplayState::Running };
        let fields = [
            ("next", Bson::from(next.cast_signed())),
            ("state", if state == ReplayState::Done { "done" } else { "running" }.into()),
        ];
        let as_read = Expected::Matching(Condition::eq("next", task.next));
        let moved = RecordChange::set_if(ReplayTask::COLLECTION, task.id.as_str(), fields, as_read);
        let stored = self.insert_replayed(vec![self.fence(), moved], pairs).await;
        let stored = stored.map_err(StoreError::Unreachable)?;
        Ok(stored.then(|| ReplayTask { next: next.cast_signed(), state, ..task }))
    }
}
