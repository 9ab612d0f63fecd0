//! Events as consumers of topics receive them: upgraded to the newest generation of their type, and validated.

use std::collections::HashMap;
use std::sync::Arc;

use annals_core::RecordedEvent;
use annals_core::processing::{Outcome, ProcessingRetry, Settings, Taken, Then, shortened};
use annals_core::types::{EventTypes, TypeError};

use super::{Stop, Work};
use crate::engine::journal::NotWritten;
use crate::groups::GROUPS;

/// Events in the form in which they are delivered, by position. Events that are not in the map are delivered as they were recorded.
pub(super) type Consumed = HashMap<u64, RecordedEvent>;

impl Work<'_> {
    /// Removes events that are not valid for their types from a delivery. Each becomes a dead letter that waits for a person, and its key
    /// continues.
    pub(super) async fn consumed(&mut self, taken: Vec<Taken>) -> Result<(Vec<Taken>, Consumed), Stop> {
        // Handlers receive events as they were recorded.
        if self.owner.definitions != GROUPS {
            return Ok((taken, Consumed::new()));
        }
        let types: Arc<dyn EventTypes> = match self.owner.shared.store.event_types(&self.owner.tenant) {
            Ok(types) => types,
            Err(error) => return Err(Stop::Failed(error.to_string())),
        };
        let (mut valid, mut consumed) = (Vec::with_capacity(taken.len()), Consumed::new());
        for taken in taken {
            let position = taken.event.position;
            let Some(event) = self.events.get(&position) else { continue };
            match types.consume(event).await {
                Ok(None) => valid.push(taken),
                Ok(Some(current)) => {
                    consumed.insert(position, current);
                    valid.push(taken);
                }
                Err(TypeError::Store(error)) => return Err(NotWritten::Store(error).into()),
                Err(refused) => self.quarantine(&taken, refused.to_string()),
            }
        }
        Ok((valid, consumed))
    }

    fn quarantine(&mut self, taken: &Taken, reason: String) {
        let (now, event) = (self.clock.now(), &taken.event);
        tracing::warn!(
            task = self.owner.task,
            position = event.position,
            reason,
            "cannot decode an event as its type; it becomes a dead letter"
        );
        let reason = shortened(reason);
        self.last_reason = Some(reason.clone());
        // Override the policy: one that parks events that are given up would make the key wait for the letter.
        let settings = self.owner.definition.settings();
        let retry = ProcessingRetry { then: Then::Block, ..settings.retry };
        self.machine.set(Settings { retry, ..settings });
        let settled = self.machine.settle(taken.token, Outcome::Never { reason: reason.clone() }, now, 0);
        self.machine.set(settings);
        if settled.is_err() {
            return;
        }
        // The key must not wait, because no further attempt can succeed: park the event.
        if self.machine.failing(&event.partition).is_some_and(|failing| failing.position == event.position) {
            let act = format!("parked: {reason}");
            let _ = self.machine.park_event(&event.partition, Some(event.position), act, now);
        }
    }
}
